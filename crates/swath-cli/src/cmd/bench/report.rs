//! The figures as a table for people and as JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    bound::Speed,
    figure::{Checked, Figure, FileFigures, Machine, ProcessorKind, Timing, Work},
};
use crate::{console, table::Table};

/// Returns a rate in MB/s or GB/s.
pub fn rate(bytes_per_second: f64) -> String {
    if bytes_per_second >= 1e9 {
        format!("{} GB/s", digits(bytes_per_second / 1e9))
    } else {
        format!("{} MB/s", digits(bytes_per_second / 1e6))
    }
}

/// Returns a number with at least three digits.
pub fn digits(number: f64) -> String {
    match number.abs() {
        // What rounds to 100 and to 10 has the digits of these.
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Returns a number of bytes in MB.
fn megabytes(bytes: u64) -> String {
    format!("{} MB", digits(bytes as f64 / 1e6))
}

/// Returns one line about the machine, and one for each GPU.
pub fn machine_text(machine: &Machine) -> String {
    let plural = if machine.threads == 1 { "thread" } else { "threads" };
    let mut out = format!("{}, {} {plural}\n", console::safe(&machine.cpu), machine.threads);
    // Writing into a String cannot fail.
    let _ = writeln!(out, "Memory copy: {}", speeds(&machine.memory_copy));
    for gpu in &machine.gpus {
        let (to, from) = (rate(gpu.copies.to_device), rate(gpu.copies.from_device));
        let _ = writeln!(out, "GPU {}, {}: {to} to the device, {from} from it", gpu.ordinal, console::safe(&gpu.name));
    }
    for reason in &machine.no_gpu {
        let _ = writeln!(out, "GPU not measured: {}", console::safe(reason));
    }
    out
}

fn speeds(speeds: &[Speed]) -> String {
    let one = |speed: &Speed| {
        let plural = if speed.threads == 1 { "thread" } else { "threads" };
        let first = speed.first.map(|first| format!(", first pass {}", rate(first))).unwrap_or_default();
        format!("{} ({} {plural}{first})", rate(speed.best), speed.threads)
    };
    speeds.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the figures of a file as text.
pub fn file_text(file: &FileFigures) -> String {
    let (width, height, bands) = file.shape;
    let plural = if bands == 1 { "band" } else { "bands" };
    let block = if file.tiled { "tiles" } else { "strips" };
    let predictor = if file.predictor > 1 { format!(", predictor {}", file.predictor) } else { String::new() };
    let mut out = format!(
        "{}: {width} × {height}, {bands} {plural} of {}, {}{predictor}, {block} of {} × {}, {} of samples\n",
        console::safe(&file.name),
        file.dtype,
        file.compression.0,
        file.block.0,
        file.block.1,
        megabytes(file.sample_bytes),
    );
    // Writing into a String cannot fail.
    let kind = if file.remote { "Bytes from the server" } else { "Bytes of the file" };
    let _ = writeln!(out, "{kind}: {}\n", speeds(&file.file_read));
    let (windows, others): (Vec<&Figure>, Vec<&Figure>) =
        file.figures.iter().partition(|figure| figure.work.is_windows());
    if !others.is_empty() {
        let mut table = Table::new(&[
            "MB/s of samples",
            "by",
            "best",
            "median",
            "spread %",
            "bound",
            "of it %",
            "bounded by",
            "ratio",
            "runs",
            "measured",
            "note",
        ]);
        for figure in others {
            table.row(row(figure, file));
        }
        out.push_str(&table.without_empty_columns().text(0));
    }
    if !windows.is_empty() {
        let mut table = Table::new(&[
            "windows/s",
            "by",
            "best",
            "median",
            "spread %",
            "latency ms",
            "95 % ms",
            "bound",
            "of it %",
            "bounded by",
            "runs",
            "windows",
            "note",
        ]);
        for figure in windows {
            table.row(window_row(figure));
        }
        out.push('\n');
        out.push_str(&table.without_empty_columns().text(0));
    }
    out
}

/// Returns the text of the last column of a table.
fn note(figure: &Figure) -> String {
    let lossy = figure.outcome.as_ref().is_ok_and(|timing| timing.checked == Checked::EqualButLossy);
    let reason = figure.outcome.as_ref().err().map(|reason| format!("not measured: {reason}"));
    let lossy = lossy.then(|| "the codec is lossy".to_owned());
    let notes: Vec<String> = reason.into_iter().chain(lossy).chain(figure.notes.iter().cloned()).collect();
    console::safe(&notes.join("; "))
}

fn percent(part: Option<f64>) -> String {
    part.map(|part| digits(part * 100.0)).unwrap_or_default()
}

fn row(figure: &Figure, file: &FileFigures) -> Vec<String> {
    let mut cells = vec![figure.work.name(), console::safe(&figure.processor.name())];
    match &figure.outcome {
        Ok(timing) => {
            let rate = |seconds: f64| digits(timing.bytes as f64 / seconds / 1e6);
            let part = timing.bytes as f64 / (file.sample_bytes as f64).max(1.0);
            cells.extend([
                rate(timing.times.best()),
                rate(timing.times.median()),
                digits(timing.times.spread() * 100.0),
                timing.bound().map(|bound| digits(bound.rate / 1e6)).unwrap_or_default(),
                percent(timing.part_of_bound()),
                timing.bound().map(|bound| bound.what.to_owned()).unwrap_or_default(),
                digits(timing.bytes as f64 / (timing.stored as f64).max(1.0)),
                timing.times.0.len().to_string(),
                // Only where not all samples were read or written.
                if part < 1.0 { megabytes(timing.bytes) } else { String::new() },
            ]);
        }
        Err(_) => cells.extend(std::iter::repeat_n(String::new(), 9)),
    }
    cells.push(note(figure));
    cells
}

fn window_row(figure: &Figure) -> Vec<String> {
    let mut cells = vec![figure.work.name(), console::safe(&figure.processor.name())];
    match &figure.outcome {
        Ok(timing) => {
            let rate = |seconds: f64| digits(timing.amount() / seconds);
            let milliseconds =
                |part: f64| timing.latency.as_ref().map(|times| digits(times.quantile(part) * 1e3)).unwrap_or_default();
            cells.extend([
                rate(timing.times.best()),
                rate(timing.times.median()),
                digits(timing.times.spread() * 100.0),
                milliseconds(0.5),
                milliseconds(0.95),
                timing.bound().map(|bound| digits(timing.counted(bound.rate))).unwrap_or_default(),
                percent(timing.part_of_bound()),
                timing.bound().map(|bound| bound.what.to_owned()).unwrap_or_default(),
                timing.times.0.len().to_string(),
                timing.windows.unwrap_or(0).to_string(),
            ]);
        }
        Err(_) => cells.extend(std::iter::repeat_n(String::new(), 10)),
    }
    cells.push(note(figure));
    cells
}

/// Returns everything as JSON; docs/cli-json.md lists the keys.
pub fn document(machine: &Machine, files: &[FileFigures]) -> Value {
    let gpus = machine.gpus.iter().map(|gpu| {
        json!({
            "ordinal": gpu.ordinal,
            "name": gpu.name,
            "to_device": gpu.copies.to_device,
            "from_device": gpu.copies.from_device,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {
            "cpu": machine.cpu,
            "threads": machine.threads,
            "memory_copy": machine.memory_copy.iter().map(speed).collect::<Value>(),
            "gpus": gpus.collect::<Value>(),
            "no_gpu": machine.no_gpu,
        },
        "files": files.iter().map(file_document).collect::<Value>(),
    })
}

fn speed(speed: &Speed) -> Value {
    json!({ "threads": speed.threads, "bytes_per_second": speed.best, "first": speed.first })
}

fn file_document(file: &FileFigures) -> Value {
    let (width, height, bands) = file.shape;
    json!({
        "name": file.name,
        "file_size": file.size,
        "width": width,
        "height": height,
        "count": bands,
        "dtype": file.dtype,
        "compress": file.compression.1,
        "predictor": file.predictor,
        "tiled": file.tiled,
        "blockxsize": file.block.0,
        "blockysize": file.block.1,
        "sample_bytes": file.sample_bytes,
        "remote": file.remote,
        "file_read": file.file_read.iter().map(speed).collect::<Value>(),
        "figures": file.figures.iter().map(figure_document).collect::<Value>(),
    })
}

fn figure_document(figure: &Figure) -> Value {
    let (work, window, layout) = match figure.work {
        Work::Read => ("read", None, None),
        Work::Windows(side) => ("windows", Some(side), None),
        Work::WriteGeoTiff => ("write", None, Some("geotiff")),
        Work::WriteCog => ("write", None, Some("cog")),
    };
    let (device, threads, gpu) = match &figure.processor {
        ProcessorKind::Cpu(threads) => ("cpu", Some(*threads), None),
        ProcessorKind::Gpu(ordinal, _) => ("cuda", None, Some(*ordinal)),
    };
    let timing = figure.outcome.as_ref().ok();
    let reason = figure.outcome.as_ref().err();
    json!({
        "work": work,
        "window": window,
        "layout": layout,
        "device": device,
        "threads": threads,
        "gpu": gpu,
        "measured": timing.map(timing_document),
        "reason": reason,
        "notes": figure.notes,
    })
}

fn timing_document(timing: &Timing) -> Value {
    let bound = |bound: &super::figure::Bound| json!({ "by": bound.what, "bytes_per_second": bound.rate });
    let per_second = |seconds: f64| timing.bytes as f64 / seconds;
    let windows = |seconds: f64| timing.windows.map(|windows| windows as f64 / seconds);
    let latency = timing
        .latency
        .as_ref()
        .map(|times| json!({ "median": times.median(), "p95": times.quantile(0.95), "count": times.0.len() }));
    json!({
        "bytes": timing.bytes,
        "stored_bytes": timing.stored,
        "windows": timing.windows,
        "seconds": timing.times.0,
        "bytes_per_second": { "best": per_second(timing.times.best()), "median": per_second(timing.times.median()) },
        "windows_per_second": timing.windows.map(|_| {
            json!({ "best": windows(timing.times.best()), "median": windows(timing.times.median()) })
        }),
        "spread": timing.times.spread(),
        "latency": latency,
        "bound": timing.bound().map(bound),
        "part_of_bound": timing.part_of_bound(),
        "bounds": timing.bounds.iter().map(bound).collect::<Value>(),
        "checked": match timing.checked {
            Checked::Equal => "equal",
            Checked::EqualButLossy => "equal, lossy",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{super::figure::examples, *};

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([0.1234, 1.239, 12.34, 123.4].map(digits), ["0.12", "1.24", "12.3", "123"]);
        assert_eq!([9.999, 99.99].map(digits), ["10.0", "100"]);
        assert_eq!((rate(1.5e9), rate(25e6)), ("1.50 GB/s".to_owned(), "25.0 MB/s".to_owned()));
    }

    #[test]
    fn the_lowest_bound_is_beside_each_figure() {
        let text = file_text(&examples::file("a\x1b.tif"));
        assert!(text.contains("a\\u{1b}.tif: 1000 × 1000, 1 band of uint16, Deflate, predictor 2"), "{text}");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        let words: Vec<&str> = line("read           ").split_whitespace().collect();
        // 2 MB in 10, 20 and 30 ms, of at most 400 MB/s.
        assert_eq!(words[4..9], ["200", "100", "100", "400", "50.0"], "{text}");
        assert!(line("windows 256²").contains("1600") && line("windows 256²").contains("2.90"), "{text}");
        assert!(line("write GeoTIFF").ends_with("the codec is lossy"), "{text}");
        assert!(line("write COG").ends_with("the CPU compresses"), "{text}");
        assert!(text.contains("not measured: LZMA is not decoded on the GPU"), "{text}");
    }

    #[test]
    fn the_document_has_the_rate_the_bound_and_the_reason() {
        let document = document(&examples::machine(), &[examples::file("a.tif")]);
        let figures = document["files"][0]["figures"].as_array().unwrap();
        let read = &figures[0]["measured"];
        assert_eq!(read["bytes_per_second"]["best"], 2e8);
        assert_eq!(read["bound"]["by"], "file × compression ratio");
        assert_eq!(read["part_of_bound"], 0.5);
        assert_eq!(read["windows_per_second"], Value::Null);
        assert_eq!(figures[1]["measured"], Value::Null);
        assert_eq!(figures[1]["reason"], "LZMA is not decoded on the GPU");
        assert_eq!((&figures[1]["device"], &figures[1]["gpu"]), (&json!("cuda"), &json!(0)));
        assert_eq!(figures[2]["measured"]["windows_per_second"]["best"], 1600.0);
        assert_eq!(figures[3]["measured"]["checked"], "equal, lossy");
        assert_eq!(document["machine"]["gpus"][0]["to_device"], 25e9);
    }
}
