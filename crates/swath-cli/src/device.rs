//! Reports on standard error what a GPU did for a command.

use std::io::{self, Write};

use swath::{Dataset, gpu::DeviceReport};

use crate::{args::Device, console, traffic::Cost};

/// Writes notices to standard error, and with `--stats` what the GPU did and the requests to servers and stores.
pub fn report<const N: usize>(args: &Device, datasets: [&Dataset; N]) {
    let mut report = DeviceReport::default();
    for dataset in datasets {
        report.add(&dataset.device_report());
        warn(dataset);
    }
    write_report(args, &report, Cost::of(datasets), false);
}

/// Writes the warnings of a dataset's reads to standard error.
pub fn warn(dataset: &Dataset) {
    for warning in dataset.take_warnings() {
        let _ = writeln!(io::stderr(), "warning: {}", console::safe(&warning));
    }
}

/// Writes one report; `quiet` leaves out the notices.
pub fn write_report(args: &Device, report: &DeviceReport, cost: Option<Cost>, quiet: bool) {
    let mut out = io::stderr().lock();
    for notice in report.notices.iter().filter(|_| !quiet) {
        let _ = writeln!(out, "note: {}", console::safe(notice));
    }
    if args.show_stats {
        let cost = cost.as_ref().map(Cost::figures).unwrap_or_default();
        let _ = out.write_all((figures(report) + &cost).as_bytes());
    }
}

fn waits(counters: &swath::gpu::Counters) -> String {
    match counters.library_waits {
        0 => counters.synchronisations.to_string(),
        states => format!("{}, and {states} for states of NVIDIA's libraries", counters.synchronisations),
    }
}

/// Returns the counters, one line each.
fn figures(report: &DeviceReport) -> String {
    let counters = &report.counters;
    let device = if report.device.is_empty() { "none used" } else { &report.device };
    let bytes = console::bytes;
    let rows = [
        ("device", console::safe(device)),
        ("tiles", format!("{} by the GPU, {} by the CPU", report.device_tiles, report.host_tiles)),
        ("pieces", report.pieces.to_string()),
        ("batches", report.batches.to_string()),
        (
            "buffers",
            format!(
                "{}, of which {} were allocated ({})",
                counters.buffers,
                counters.allocations,
                bytes(counters.allocated_bytes)
            ),
        ),
        (
            "to device",
            format!(
                "{} copies, {}; {} before the first wait",
                counters.uploads,
                bytes(counters.uploaded_bytes),
                counters.uploads_before_first_wait
            ),
        ),
        ("storage", storage(report)),
        ("from device", format!("{} copies, {}", counters.downloads, bytes(counters.downloaded_bytes))),
        ("launches", counters.launches.to_string()),
        ("waits", waits(counters)),
        ("peak memory", bytes(counters.peak_bytes)),
    ];
    rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

/// Returns how the file's bytes reached the device, and what cuFile did for that.
fn storage(report: &DeviceReport) -> String {
    let counters = &report.counters;
    let path = if report.storage.is_empty() { "none" } else { report.storage };
    if counters.storage_reads == 0 {
        return path.to_owned();
    }
    let bytes = console::bytes(counters.storage_bytes);
    format!("{path}; {} reads by cuFile, {bytes}, {} waits", counters.storage_reads, counters.storage_waits)
}
