//! Tests and times reads and writes on a GPU, where there is no toolchain.
//!
//! | command | does |
//! | --- | --- |
//! | `swath-gpu read FILE [--repeat N] [--window X,Y,W,H] [--device cuda\|auto\|cpu] [--trust-input] [--max-device-memory B] [--threads N] [--no-checksum] [--no-kernel-times]` | reads to the device, prints one line of JSON |
//! | `swath-gpu write FILE --out FILE [--repeat N] [--compress C] [--tile N] [--cog] [--level N] [--nvcomp] [--batch ROWS] [--max-device-memory B] [--device cuda\|auto\|cpu]` | reads a file to the device and writes it from there, prints one line of JSON |
//! | `swath-gpu convert FILE --out FILE [--repeat N] …` | the same from file to file |
//! | `swath-gpu zstd FILE [--counts N,N…] [--repeat N]` | times the Zstd decoder alone on N tiles of a file, all of them for 0 |
//! | `swath-gpu corrupt [--codec C] [--count N] [--threads N] [--keep DIR] [--json FILE]` | gives the device damaged tiles |
//! | `swath-gpu kill [--count N] [--dir DIR] [--json FILE]` | kills processes that write from the device |
//! | `swath-gpu cold [--size N] [--repeat N] [--dir DIR] [--json FILE]` | times first calls in fresh processes |
//! | `swath-gpu test [--small] [--only WORD] [--corpus DIR] [--json FILE]` | runs the checks |
//! | `swath-gpu devices` | prints what was found |

mod batch;
mod cold;
mod corrupt;
mod kill;
mod stock;
mod strict;
mod test;
mod write;
mod zstd;

use std::{process::ExitCode, sync::Arc, time::Instant};

use serde_json::{Value, json};
use swath::{
    Dataset, Mode, ReadOptions, Window,
    gpu::{DeviceReport, Gpu, GpuOptions},
};

type Fault = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let result = match command.as_str() {
        "read" => read(&words),
        "devices" => devices(),
        "verify" => verify(&words),
        "test" => test::run(&words),
        "zstd" => zstd::run(&words),
        "corrupt" => corrupt::run(&words),
        "kill" => kill::run(&words),
        "kill-case" => kill::case(&words),
        "cold" => cold::run(&words),
        "cold-case" => cold::case(&words),
        "write" => write::write(&words),
        "convert" => write::convert(&words),
        _ => Err("usage: swath-gpu read FILE … | write FILE --out FILE … | convert FILE --out FILE … | zstd FILE … | \
                  corrupt … | kill … | cold … | test … | devices"
            .into()),
    };
    match result {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("{}", json!({ "ok": false, "error": fault.to_string() }));
            ExitCode::FAILURE
        }
    }
}

fn devices() -> Result<Value, Fault> {
    let gpu = Gpu::open(&GpuOptions::default())?;
    let facts = gpu.facts();
    Ok(json!({
        "name": facts.name,
        "memory": facts.memory,
        "driver": gpu.driver().version(),
        "kernels": gpu.kernel_code().to_string(),
    }))
}

/// The value that follows an option.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).map(String::as_str)
}

fn flag(words: &[String], name: &str) -> bool {
    words.iter().any(|word| word == name)
}

fn read(words: &[String]) -> Result<Value, Fault> {
    let file = words.first().ok_or("no file")?;
    let repeat: usize = option(words, "--repeat").unwrap_or("1").parse::<usize>()?.max(1);
    let gpu = Gpu::open(&GpuOptions::default())?;
    let mode = match option(words, "--device") {
        Some("cuda") => Mode::Cuda,
        Some("cpu") => Mode::Cpu,
        _ => Mode::Auto,
    };
    let mut options =
        ReadOptions::default().with_device(mode).with_gpu(gpu.clone()).with_trust_input(flag(words, "--trust-input"));
    if let Some(window) = option(words, "--window") {
        let numbers: Vec<u32> = window.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let &[x, y, width, height] = &*numbers else { return Err("a window is X,Y,W,H".into()) };
        options = options.with_window(Window::new(x, y, width, height));
    }
    if let Some(bytes) = option(words, "--max-device-memory") {
        options = options.with_max_device_memory(bytes.parse()?);
    }
    if let Some(threads) = option(words, "--threads") {
        options = options.with_threads(threads.parse()?);
    }
    let limits = swath::Limits::none();
    let opening = swath::OpenOptions::default().with_limits(limits);
    // The first read loads modules and fills the pools; readers of the list leave it out.
    let mut seconds = Vec::new();
    let mut answer = json!({});
    for round in 1..=repeat {
        let start = Instant::now();
        let dataset: Dataset = opening.open(file)?;
        let raster = dataset.read_device(&options)?;
        seconds.push(start.elapsed().as_secs_f64());
        let report = raster.report();
        if round == repeat {
            let sum =
                if flag(words, "--no-checksum") { Value::Null } else { json!(checksum(raster.to_host()?.bytes())) };
            answer = json!({
                "ok": true,
                "pixels_bytes": raster.len(),
                "file_bytes": dataset.size(),
                "checksum": sum,
                "device": report.device,
                "device_tiles": report.device_tiles,
                "host_tiles": report.host_tiles,
                "pieces": report.pieces,
                "batches": report.batches,
                "storage": report.storage,
                "notices": report.notices,
                "counters": counters(report),
            });
        }
    }
    // Timed kernels run after the last copy, so these reads are others.
    let (mut decode, mut place, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if flag(words, "--no-kernel-times") { 0 } else { repeat } {
        let raster = opening.open(file)?.read_device(&options.clone().with_kernel_times(true))?;
        if let Some(times) = raster.report().kernels {
            decode.push(times.decode_ms);
            place.push(times.place_ms);
            kernels.push(times.decode_ms + times.place_ms);
        }
    }
    answer["seconds"] = json!(seconds);
    answer["kernel_ms"] = json!(kernels);
    answer["decode_ms"] = json!(decode);
    answer["place_ms"] = json!(place);
    drop::<Arc<Gpu>>(gpu);
    Ok(answer)
}

/// Reads files with the CPU and with the GPU; lists those that differ.
fn verify(files: &[String]) -> Result<Value, Fault> {
    let gpu = Gpu::open(&GpuOptions::default())?;
    let (mut equal, mut errors, mut helped) = (0, 0, 0);
    let mut faults = Vec::new();
    for file in files {
        let Ok(dataset) = Dataset::open(file) else {
            errors += 1;
            continue;
        };
        let cpu = dataset.read(&ReadOptions::default());
        let options = ReadOptions::default().with_device(Mode::Auto).with_gpu(gpu.clone());
        let device = dataset.read_device(&options).and_then(|raster| raster.to_host());
        match (cpu, device) {
            (Ok(cpu), Ok(device)) if cpu.bytes() == device.bytes() => {
                equal += 1;
                helped += u32::from(device.report().is_some_and(|report| report.host_tiles > 0));
            }
            (Ok(_), Ok(_)) => faults.push(format!("{file}: different samples")),
            (Err(cpu), Err(device)) if cpu.to_string() == device.to_string() => errors += 1,
            (cpu, device) => faults.push(format!(
                "{file}: cpu {:?}, device {:?}",
                cpu.err().map(|e| e.to_string()),
                device.err().map(|e| e.to_string())
            )),
        }
    }
    Ok(
        json!({ "ok": faults.is_empty(), "equal": equal, "same_error": errors, "decoded_by_cpu": helped, "faults": faults }),
    )
}

fn counters(report: &DeviceReport) -> Value {
    let counters = &report.counters;
    json!({
        "buffers": counters.buffers,
        "allocations": counters.allocations,
        "allocated_bytes": counters.allocated_bytes,
        "uploads": counters.uploads,
        "uploaded_bytes": counters.uploaded_bytes,
        "uploads_before_first_wait": counters.uploads_before_first_wait,
        "downloads": counters.downloads,
        "downloaded_bytes": counters.downloaded_bytes,
        "launches": counters.launches,
        "synchronisations": counters.synchronisations,
        "library_waits": counters.library_waits,
        "peak_bytes": counters.peak_bytes,
    })
}

/// The benchmark's checksum: words of eight bytes, each mixed with its position, summed.
fn checksum(bytes: &[u8]) -> String {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    for (place, byte) in last.iter_mut().zip(rest) {
        *place = *byte;
    }
    let tail = if rest.is_empty() { &[][..] } else { std::slice::from_ref(&last) };
    let mix = |(index, word): (u64, &[u8; 8])| {
        (u64::from_le_bytes(*word) ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    };
    let sum = (0..).zip(words.iter().chain(tail)).map(mix).fold(0_u64, u64::wrapping_add);
    format!("{sum:016x}")
}
