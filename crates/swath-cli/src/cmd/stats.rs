//! `swath stats`: computes minimum, maximum, mean and standard deviation of every band.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use swath::{
    Dataset,
    describe::number::{self, Exact},
    statistics::{Statistics, StatisticsOptions},
};

use crate::{
    args::Stats,
    console::{self, Progress},
    device, job,
    table::Table,
};

/// Runs `swath stats`.
pub fn run(args: &Stats) -> Result<ExitCode> {
    let dataset = job::open(&args.file, args.threads, 0, args.unlimited, &args.device, &args.remote)?;
    let found = summarise(&dataset, job::bands(args.bands.as_deref(), dataset.bands())?)?;
    if args.json {
        console::print_json(&found.document())?;
    } else {
        console::print(&report(&dataset, &found))?;
    }
    device::report(&args.device, [&dataset]);
    Ok(ExitCode::SUCCESS)
}

/// Computes statistics of some bands, and shows a progress line meanwhile.
pub fn summarise(dataset: &Dataset, bands: Vec<u32>) -> Result<Statistics> {
    let pixels = u64::from(dataset.width()) * u64::from(dataset.height());
    let progress = Mutex::new(Progress::new("reading", pixels.saturating_mul(bands.len() as u64)));
    let show = move |done, _| progress.lock().unwrap_or_else(PoisonError::into_inner).reach(done);
    Ok(dataset.statistics(&StatisticsOptions::default().with_bands(bands).with_progress(Arc::new(show)))?)
}

fn report(dataset: &Dataset, found: &Statistics) -> String {
    let mut table = Table::new(&["band", "min", "max", "mean", "std", "valid", "nodata", "valid %"]);
    let exact = |value: Option<Exact>| value.map(|value| value.to_string()).unwrap_or_default();
    let float = |value: Option<f64>| value.map(number::text).unwrap_or_default();
    for band in &found.bands {
        table.row([
            band.band.to_string(),
            exact(band.min),
            exact(band.max),
            float(band.mean),
            float(band.std),
            band.valid.to_string(),
            band.nodata.to_string(),
            format!("{:.2}", band.percent_valid()),
        ]);
    }
    let note = if found.sample.is_complex() { ", statistics of the magnitude" } else { "" };
    let size = format!("{} × {} pixels, {}{note}", dataset.width(), dataset.height(), found.sample);
    format!("{}: {size}\n{}", console::safe(&found.name), table.text(0))
}
