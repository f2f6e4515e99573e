//! Runs reads for the benchmarks and reports how long each took.
//!
//! One JSON request a line on standard input, one JSON answer a line on standard output, so that a round costs no start
//! of a process. Only the work a user waits for is timed: checksums and the freeing of memory are not.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"op":"read","path":P,"window":[x,y,w,h] or null,"save":P2 or null}` | `{"ms":M,"crc":C,"shape":[b,r,c]}`, open included |
//! | `{"op":"windows","path":P,"windows":[[x,y,w,h],…]}` | `{"ms":M,"crc":C}`, one handle, opening included |
//! | `{"op":"open","path":P,"n":N}` | `{"ms":M}` for N times open + metadata |

use serde_json::{Value, json};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;
use swath::{Dataset, ReadOptions, Window};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&line?).unwrap_or_else(|fault| json!({ "error": fault.to_string() }));
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<Value, Fault> {
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

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
