//! Runs reads and writes for the benchmarks and reports how long each took.
//!
//! One JSON request a line on standard input, one JSON answer a line on standard output, so that a round costs no start
//! of a process. Only the work a user waits for is timed: checksums and the freeing of memory are not.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"op":"read","path":P,"window":[x,y,w,h] or null,"save":P2 or null}` | `{"ms":M,"crc":C,"shape":[b,r,c]}`, open included |
//! | `{"op":"windows","path":P,"windows":[[x,y,w,h],…]}` | `{"ms":M,"crc":C}`, one handle, opening included |
//! | `{"op":"open","path":P,"n":N}` | `{"ms":M}` for N times open + metadata |
//! | `{"op":"load","path":P}` | `{}`, samples (bands first) that later writes start from |
//! | `{"op":"write","path":P,"shape":[b,r,c],"dtype":T,"compress":C,"level":L,"tile":N,"cog":B,"nodata":V}` | `{"ms":M,"size":S}` |
//! | `{"op":"stream","path":P,…as write…,"max_memory":B}` | the same for rows made on the fly, and `"peak":B` of this process |

use serde_json::{Value, json};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;
use swath::{
    Band, Blocks, Compression, Dataset, Interleave, Metadata, ReadOptions, Rows, SampleType, Shape, Window,
    WriteOptions, Writer,
    geo::{Crs, GeoTransform, Nodata},
    write::BigTiff,
};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    let mut loaded = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&line?, &mut loaded).unwrap_or_else(|fault| json!({ "error": fault.to_string() }));
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(line: &str, loaded: &mut Vec<u8>) -> Result<Value, Fault> {
    let request: Value = serde_json::from_str(line)?;
    let path = request["path"].as_str().ok_or("no path")?;
    match request["op"].as_str() {
        Some("read") => read(path, window(&request["window"])?, request["save"].as_str()),
        Some("windows") => {
            let list = request["windows"].as_array().ok_or("no windows")?;
            let windows = list.iter().map(|item| window(item)?.ok_or_else(|| "no window".into()));
            windows_of(path, &windows.collect::<Result<Vec<Window>, Fault>>()?)
        }
        Some("open") => open(path, request["n"].as_u64().unwrap_or(1)),
        Some("load") => {
            *loaded = std::fs::read(path)?;
            Ok(json!({}))
        }
        Some("write") => write(path, &request, loaded),
        Some("stream") => stream(path, &request),
        other => Err(format!("unknown op {other:?}").into()),
    }
}

fn window(value: &Value) -> Result<Option<Window>, Fault> {
    if value.is_null() {
        return Ok(None);
    }
    let numbers: Vec<u32> = serde_json::from_value(value.clone())?;
    match numbers[..] {
        [x, y, width, height] => Ok(Some(Window::new(x, y, width, height))),
        _ => Err("a window is four numbers".into()),
    }
}

fn read(path: &str, window: Option<Window>, save: Option<&str>) -> Result<Value, Fault> {
    let started = Instant::now();
    let dataset = Dataset::open(path)?;
    let options = window.map_or_else(ReadOptions::default, |window| ReadOptions::default().with_window(window));
    let raster = black_box(dataset.read(&options)?);
    let ms = milliseconds(started);
    if let Some(save) = save {
        std::fs::write(save, raster.bytes())?;
    }
    Ok(json!({ "ms": ms, "crc": crc32fast::hash(raster.bytes()), "shape": raster.shape() }))
}

fn windows_of(path: &str, windows: &[Window]) -> Result<Value, Fault> {
    let mut checksum = crc32fast::Hasher::new();
    let mut rasters = Vec::with_capacity(windows.len());
    let started = Instant::now();
    let dataset = Dataset::open(path)?;
    for window in windows {
        rasters.push(dataset.read(&ReadOptions::default().with_window(*window))?);
    }
    let ms = milliseconds(started);
    for raster in &rasters {
        checksum.update(raster.bytes());
    }
    Ok(json!({ "ms": ms, "crc": checksum.finalize() }))
}

fn open(path: &str, times: u64) -> Result<Value, Fault> {
    let started = Instant::now();
    for _ in 0..times {
        let dataset = Dataset::open(path)?;
        black_box((dataset.width(), dataset.height(), dataset.bands(), dataset.sample(), dataset.metadata()));
    }
    Ok(json!({ "ms": milliseconds(started) }))
}

/// The write that a request describes.
struct Wish {
    shape: Shape,
    metadata: Metadata,
    options: WriteOptions,
}

impl Wish {
    fn parse(request: &Value) -> Result<Self, Fault> {
        let [bands, height, width] = serde_json::from_value::<[u32; 3]>(request["shape"].clone())?;
        let sample = match request["dtype"].as_str() {
            Some("uint8") => SampleType::U8,
            Some("uint16") => SampleType::U16,
            Some("float32") => SampleType::F32,
            other => return Err(format!("unknown dtype {other:?}").into()),
        };
        let compression = match request["compress"].as_str() {
            Some("none") => Compression::None,
            Some("deflate") => Compression::Deflate,
            Some("zstd") => Compression::Zstd,
            Some("lzw") => Compression::Lzw,
            Some("packbits") => Compression::PackBits,
            Some("jpeg") => Compression::Jpeg,
            other => return Err(format!("unknown compression {other:?}").into()),
        };
        let tile = request["tile"].as_u64().unwrap_or(512) as u32;
        let mut options = WriteOptions::default()
            .with_compression(compression)
            .with_blocks(Blocks::Tiles(tile, tile))
            .with_bigtiff(BigTiff::Auto)
            .with_cog(request["cog"].as_bool().unwrap_or(false));
        if let Some(level) = request["level"].as_u64() {
            options = options.with_level(level as u32);
        }
        if let Some(predictor) = request["predictor"].as_u64() {
            options = options.with_predictor(match predictor {
                2 => swath::tiff::structure::Predictor::Horizontal,
                3 => swath::tiff::structure::Predictor::FloatingPoint,
                _ => swath::tiff::structure::Predictor::None,
            });
        }
        if let Some(bytes) = request["max_memory"].as_u64() {
            options = options.with_max_memory(bytes as usize);
        }
        if let Some(statistics) = request["statistics"].as_bool() {
            options = options.with_statistics(statistics);
        }
        let nodata = request["nodata"].as_f64().and_then(|value| Nodata::parse(value.to_string().as_bytes()));
        let mut metadata =
            Metadata { bands: vec![Band { nodata, ..Band::default() }; bands as usize], ..Metadata::default() };
        metadata.georeference.crs = Crs::from_epsg(32633);
        metadata.georeference.transform = Some(GeoTransform([4e5, 10.0, 0.0, 52e5, 0.0, -10.0]));
        Ok(Self { shape: Shape { width, height, bands: bands as u16, sample }, metadata, options })
    }
}

fn write(path: &str, request: &Value, samples: &[u8]) -> Result<Value, Fault> {
    let wish = Wish::parse(request)?;
    let started = Instant::now();
    let mut writer = Writer::create(path, wish.shape, &wish.metadata, &wish.options)?;
    writer.push(&Rows::from_bytes(samples, Interleave::Band))?;
    let written = writer.finish()?;
    Ok(json!({ "ms": milliseconds(started), "size": written.size, "padding": written.padding }))
}

/// Rows of u16 that are made as they are pushed, so that nothing but the writer takes memory.
fn stream(path: &str, request: &Value) -> Result<Value, Fault> {
    let wish = Wish::parse(request)?;
    let started = Instant::now();
    let mut writer = Writer::create(path, wish.shape, &wish.metadata, &wish.options)?;
    let mut row = vec![0_u16; wish.shape.width as usize];
    let mut noise = 0x9e37_79b9_u32;
    for y in 0..wish.shape.height {
        for (x, sample) in row.iter_mut().enumerate() {
            // A slow wave and a little noise: compresses about as a scene does.
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let wave = ((x as u32 >> 3) ^ (y >> 4)) & 0x7ff;
            *sample = (1000 + wave + (noise >> 26)) as u16;
        }
        writer.push(&Rows::pixels(&row))?;
    }
    let written = writer.finish()?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(
        json!({ "ms": milliseconds(started), "size": written.size, "padding": written.padding, "peak": peak.map(|kib| kib << 10) }),
    )
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
