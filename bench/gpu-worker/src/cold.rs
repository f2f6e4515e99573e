//! Times the first call of a process, with kernels as machine code and as PTX, on a driver whose cache is off.
//!
//! `cold` starts a process for each figure: `cold-case`, which opens the GPU, does one thing twice and reports how long
//! each took. Both forms of the kernels have to give the same samples and files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};
use swath::{
    Blocks, Compression, Interleave, Limits, Metadata, Mode, OpenOptions, ReadOptions, Rows, SampleType, Shape, Window,
    WriteOptions, Writer,
    gpu::{DeviceRaster, DeviceSamples, Gpu, GpuOptions},
};

use crate::{Fault, checksum, option};

/// A timed case: its name, the source that it reads, and the codec that it writes.
const CASES: [(&str, &str, Option<Compression>); 7] = [
    ("context", "", None),
    ("read deflate", "deflate", None),
    ("read zstd", "zstd", None),
    ("read lzw", "lzw", None),
    ("write deflate COG", "none", Some(Compression::Deflate)),
    ("write zstd COG", "none", Some(Compression::Zstd)),
    ("chips deflate", "deflate", None),
];
/// The forms of the kernels, and the value of `SWATH_CUDA_KERNELS` for each.
const FORMS: [(&str, &str); 2] = [("machine", ""), ("ptx", "ptx")];
/// Most seconds that the first call may take beyond the bare context.
const GOAL: f64 = 0.3;
const CHIP: u32 = 256;
const CHIPS: u32 = 256;

/// `cold [--size N] [--repeat N] [--dir DIR] [--json FILE]`: a table on standard error, all figures as JSON.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let size: u32 = option(words, "--size").unwrap_or("4096").parse()?;
    let repeat: usize = option(words, "--repeat").unwrap_or("3").parse::<usize>()?.max(1);
    let own = format!("swath-cold-{}", std::process::id());
    let dir = option(words, "--dir").map_or_else(|| std::env::temp_dir().join(own), PathBuf::from);
    fs::create_dir_all(&dir)?;
    let found = make_sources(&dir, size).and_then(|()| measure(&dir, size, repeat));
    let _ = fs::remove_dir_all(&dir);
    let found = found?;
    eprintln!("{}", table(&found));
    if let Some(path) = option(words, "--json") {
        fs::write(path, format!("{found:#}\n"))?;
    }
    match found["ok"].as_bool() {
        Some(true) => Ok(found),
        _ => Err(format!("cold start: {}", found["faults"]).into()),
    }
}

/// One raster of `size` x `size` in every codec, written by the CPU.
fn make_sources(dir: &Path, size: u32) -> Result<(), Fault> {
    let shape = Shape { width: size, height: size, bands: 1, sample: SampleType::U16 };
    let mut samples = Vec::with_capacity(size as usize * size as usize * 2);
    let mut noise = 1_u32;
    for y in 0..size {
        for x in 0..size {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let sample = 3000 + (x / 3 + y / 2) % 4000 + (noise >> 27);
            samples.extend_from_slice(&(sample as u16).to_ne_bytes());
        }
    }
    for (name, compression) in [
        ("none", Compression::None),
        ("deflate", Compression::Deflate),
        ("zstd", Compression::Zstd),
        ("lzw", Compression::Lzw),
    ] {
        let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(512, 512));
        let mut writer = Writer::create(source(dir, name), shape, &Metadata::default(), &options)?;
        writer.push(&Rows::from_bytes(&samples, Interleave::Band))?;
        writer.finish()?;
    }
    Ok(())
}

fn source(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.tif"))
}

fn measure(dir: &Path, size: u32, repeat: usize) -> Result<Value, Fault> {
    // For the first process neither our program nor the driver's files are in memory.
    start(dir, CASES[0].0, FORMS[0].1)?;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (case, ..) in CASES {
        let mut row = json!({ "case": case });
        let mut results = BTreeMap::new();
        for (form, variable) in FORMS {
            // Compilation takes seconds, and its figure is only there for comparison.
            let times = if form == "ptx" { 1 } else { repeat };
            let (mut open, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..times {
                let answer = start(dir, case, variable)?;
                if answer["ok"] != json!(true) {
                    faults.push(format!("{case}, {form}: {}", answer["error"]));
                    break;
                }
                for (into, key) in [(&mut open, "open_s"), (&mut first, "first_s"), (&mut second, "second_s")] {
                    into.extend(answer[key].as_f64());
                }
                row[form]["kernels"] = answer["kernels"].clone();
                row[form]["notices"] = answer["notices"].clone();
                results.insert(answer["result"].to_string(), form);
            }
            (row[form]["open_s"], row[form]["first_s"], row[form]["second_s"]) =
                (json!(open), json!(first), json!(second));
        }
        if results.len() > 1 {
            faults.push(format!("{case}: the results differ: {results:?}"));
        }
        rows.push(row);
    }
    Ok(json!({ "ok": faults.is_empty(), "size": size, "goal_s": GOAL, "rows": rows, "faults": faults }))
}

/// Runs a case in a process of its own, without the driver's cache.
fn start(dir: &Path, case: &str, variable: &str) -> Result<Value, Fault> {
    let output = Command::new(std::env::current_exe()?)
        .args(["cold-case", case, "--dir"])
        .arg(dir)
        .env("CUDA_CACHE_DISABLE", "1")
        .env("SWATH_CUDA_KERNELS", variable)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    Ok(result.unwrap_or_else(|| {
        let error = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        json!({ "ok": false, "error": error })
    }))
}

/// `cold-case CASE --dir DIR`: one case, in this process.
pub fn case(words: &[String]) -> Result<Value, Fault> {
    let name = words.first().ok_or("no case")?;
    let dir = PathBuf::from(option(words, "--dir").ok_or("--dir names the folder of the sources")?);
    let (_, reads, writes) = CASES.iter().find(|(case, ..)| case == name).ok_or_else(|| format!("no case {name}"))?;
    let start = Instant::now();
    let gpu = Gpu::open(&GpuOptions::default())?;
    let open = start.elapsed().as_secs_f64();
    let (mut seconds, mut result, mut notices) = (Vec::new(), String::new(), Vec::new());
    if let Some(compression) = writes {
        // The raster has to be on the device first; that takes one kernel, which places samples.
        let raster = read(&gpu, &source(&dir, reads))?;
        for round in 0..2 {
            let target = dir.join(format!("out-{round}.tif"));
            let start = Instant::now();
            notices.extend(write(&gpu, &raster, &target, *compression)?);
            seconds.push(start.elapsed().as_secs_f64());
            result = checksum(&fs::read(&target)?);
            fs::remove_file(&target)?;
        }
    } else if !reads.is_empty() {
        let path = source(&dir, reads);
        for _ in 0..2 {
            let start = Instant::now();
            let raster = if name.starts_with("chips") { chips(&gpu, &path)? } else { read(&gpu, &path)? };
            seconds.push(start.elapsed().as_secs_f64());
            result = checksum(raster.to_host()?.bytes());
            notices.extend(raster.report().notices.iter().cloned());
        }
    }
    Ok(json!({
        "ok": true,
        "kernels": gpu.kernel_code().to_string(),
        "open_s": open,
        "first_s": seconds.first(),
        "second_s": seconds.get(1),
        "result": result,
        "notices": notices,
    }))
}

fn read(gpu: &Arc<Gpu>, path: &Path) -> Result<DeviceRaster, Fault> {
    let dataset = OpenOptions::default().with_limits(Limits::none()).open(path)?;
    Ok(dataset.read_device(&ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone()))?)
}

/// Chips from all over the raster, in one batch.
fn chips(gpu: &Arc<Gpu>, path: &Path) -> Result<DeviceRaster, Fault> {
    let dataset = OpenOptions::default().with_limits(Limits::none()).open(path)?;
    let side = CHIP.min(dataset.width()).min(dataset.height());
    let (right, lower) = (dataset.width() - side + 1, dataset.height() - side + 1);
    let at = |number: u32| Window::new(number * 997 % right, number * 1499 % lower, side, side);
    let windows: Vec<Window> = (0..CHIPS).map(at).collect();
    let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
    Ok(dataset.read_windows_device(&options, &windows)?)
}

fn write(gpu: &Arc<Gpu>, raster: &DeviceRaster, target: &Path, compression: Compression) -> Result<Vec<String>, Fault> {
    let shape =
        Shape { width: raster.width(), height: raster.height(), bands: raster.bands() as u16, sample: raster.sample() };
    let options = WriteOptions::cog().with_compression(compression).with_device(Mode::Cuda).with_gpu(gpu.clone());
    let mut writer = Writer::create(target, shape, &Metadata::default(), &options)?;
    writer.push_device(&DeviceSamples::of_raster(raster)?)?;
    Ok(writer.finish()?.device.notices)
}

/// The best of each figure, for people.
fn table(found: &Value) -> String {
    let best = |value: &Value| {
        let numbers = value.as_array().into_iter().flatten().filter_map(Value::as_f64);
        numbers.reduce(f64::min).map_or_else(|| "-".into(), |best| format!("{best:.3}"))
    };
    let mut lines = vec![format!("{:<18} {:>8} {:>8} {:>8} {:>8}", "seconds", "context", "first", "second", "by PTX")];
    for row in found["rows"].as_array().into_iter().flatten() {
        let (machine, ptx) = (&row["machine"], &row["ptx"]);
        lines.push(format!(
            "{:<18} {:>8} {:>8} {:>8} {:>8}",
            row["case"].as_str().unwrap_or_default(),
            best(&machine["open_s"]),
            best(&machine["first_s"]),
            best(&machine["second_s"]),
            best(&ptx["first_s"]),
        ));
    }
    let kernels = found["rows"][0]["machine"]["kernels"].as_str().unwrap_or("nothing");
    lines.push(format!("with {kernels}; goal of the first call: {GOAL} s"));
    lines.join("\n")
}
