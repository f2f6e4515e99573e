//! Times writes from device memory, and conversions, and reports their cost.

use std::{fs, path::Path, sync::Arc, time::Instant};

use serde_json::{Value, json};
use swath::{
    Blocks, Compression, ConvertOptions, Limits, Metadata, Mode, OpenOptions, ReadOptions, Shape, Window, WriteOptions,
    Writer,
    gpu::{DeviceRaster, DeviceSamples, Gpu, GpuOptions},
};

use crate::{Fault, counters, flag, option};

/// `write SOURCE --out FILE`: reads SOURCE to the device, then writes it from there, as often as asked.
pub fn write(words: &[String]) -> Result<Value, Fault> {
    let source = words.first().ok_or("no file")?;
    let target = option(words, "--out").ok_or("--out names the file to write")?;
    let repeat: usize = option(words, "--repeat").unwrap_or("1").parse::<usize>()?.max(1);
    let gpu = Gpu::open(&GpuOptions::default())?;
    let dataset = OpenOptions::default().with_limits(Limits::none()).open(source)?;
    let mut read = ReadOptions::default().with_device(Mode::Auto).with_gpu(gpu.clone());
    if let Some(rows) = option(words, "--rows") {
        read = read.with_window(Window::new(0, 0, dataset.width(), rows.parse::<u32>()?.min(dataset.height())));
    }
    let raster = dataset.read_device(&read)?;
    let mut options = options(words)?.with_gpu(gpu.clone());
    if let Some(batch) = option(words, "--batch") {
        options = options.with_batch(batch.parse::<u32>()?);
    }
    // Repeats the raster, for files that are too large to make first.
    let times: u32 = option(words, "--times").unwrap_or("1").parse()?;
    gpu.trim();
    // From here on the host's peak is the memory of writing, plus what the driver and the earlier read keep.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (mut seconds, mut answer) = (Vec::new(), json!({}));
    for _ in 0..repeat {
        // Replacing a file also removes the old one, which must not be timed.
        let _ = fs::remove_file(target);
        let start = Instant::now();
        let written = one(&raster, times, dataset.metadata(), target, &options)?;
        seconds.push(start.elapsed().as_secs_f64());
        answer = report(&written, raster.len() as u64 * u64::from(times));
    }
    answer["seconds"] = json!(seconds);
    Ok(answer)
}

fn one(
    raster: &DeviceRaster,
    times: u32,
    metadata: &Metadata,
    target: &str,
    options: &WriteOptions,
) -> Result<swath::Written, swath::Error> {
    let shape = Shape {
        width: raster.width(),
        height: raster.height() * times,
        bands: raster.bands() as u16,
        sample: raster.sample(),
    };
    let mut writer = Writer::create(target, shape, metadata, options)?;
    for _ in 0..times {
        writer.push_device(&DeviceSamples::of_raster(raster)?)?;
    }
    writer.finish()
}

/// `convert SOURCE --out FILE`: from file to file.
pub fn convert(words: &[String]) -> Result<Value, Fault> {
    let source = words.first().ok_or("no file")?;
    let target = option(words, "--out").ok_or("--out names the file to write")?;
    let repeat: usize = option(words, "--repeat").unwrap_or("1").parse::<usize>()?.max(1);
    let gpu = Gpu::open(&GpuOptions::default())?;
    let options = options(words)?.with_gpu(gpu.clone());
    let (mut seconds, mut answer) = (Vec::new(), json!({}));
    for _ in 0..repeat {
        let _ = fs::remove_file(target);
        let start = Instant::now();
        let dataset = OpenOptions::default().with_limits(Limits::none()).with_tile_cache(0).open(source)?;
        let converted = dataset.convert(Path::new(target), &ConvertOptions::default(), &options)?;
        seconds.push(start.elapsed().as_secs_f64());
        let pixels = u64::from(dataset.width())
            * u64::from(dataset.height())
            * u64::from(dataset.bands())
            * dataset.sample().size() as u64;
        answer = report(&converted.written, pixels);
    }
    answer["seconds"] = json!(seconds);
    drop::<Arc<Gpu>>(gpu);
    Ok(answer)
}

fn options(words: &[String]) -> Result<WriteOptions, Fault> {
    let compression = match option(words, "--compress").unwrap_or("deflate") {
        "none" => Compression::None,
        "packbits" => Compression::PackBits,
        "lzw" => Compression::Lzw,
        "deflate" => Compression::Deflate,
        "zstd" => Compression::Zstd,
        "jpeg" => Compression::Jpeg,
        "jpeg2000" => Compression::Jpeg2000,
        other => return Err(format!("no codec {other}").into()),
    };
    let tile: u32 = option(words, "--tile").unwrap_or("512").parse()?;
    let mode = match option(words, "--device") {
        Some("cpu") => Mode::Cpu,
        Some("auto") => Mode::Auto,
        _ => Mode::Cuda,
    };
    let mut options = WriteOptions::default()
        .with_compression(compression)
        .with_blocks(Blocks::Tiles(tile, tile))
        .with_cog(flag(words, "--cog"))
        .with_nvcomp(flag(words, "--nvcomp"))
        .with_device(mode);
    if flag(words, "--no-predictor") {
        options = options.with_predictor(swath::tiff::structure::Predictor::None);
    }
    if let Some(level) = option(words, "--level") {
        options = options.with_level(level.parse()?);
    }
    if let Some(bytes) = option(words, "--max-device-memory") {
        options = options.with_max_device_memory(bytes.parse()?);
    }
    if let Some(bytes) = option(words, "--max-memory") {
        options = options.with_max_memory(bytes.parse::<usize>()?);
    }
    Ok(options)
}

fn report(written: &swath::Written, pixels: u64) -> Value {
    let device = &written.device;
    json!({
        "ok": true,
        "pixels_bytes": pixels,
        "file_bytes": written.size,
        "overviews": written.overviews,
        "device": device.device,
        "device_tiles": device.device_tiles,
        "host_tiles": device.host_tiles,
        "batches": device.batches,
        "notices": device.notices,
        "counters": counters(device),
        "host_peak_bytes": host_peak(),
    })
}

/// The most memory that the process has had, file mappings of the driver included.
fn host_peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}
