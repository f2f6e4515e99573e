//! `swath stats`: minimum, maximum, mean and standard deviation of every band.

mod summary;

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swath::{Dataset, ReadOptions};

use crate::{
    args::Stats,
    blocks::{self, BUDGET, Cut},
    console::{self, Progress},
    device, job,
    mask::MaskKind,
    number, sample,
    table::Table,
};
use summary::{Summarise, Summary};

/// Runs `swath stats`.
pub fn run(args: &Stats) -> Result<ExitCode> {
    let dataset = job::open(&args.file, args.threads, 0, &args.device)?;
    let bands = job::bands(args.bands.as_deref(), dataset.bands())?;
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let found = summarise(&dataset, &bands, threads)?;
    let text = if args.json { format!("{:#}\n", document(&dataset, &found)) } else { report(&dataset, &found) };
    console::print(&text)?;
    device::tell(&args.device, [&dataset]);
    Ok(ExitCode::SUCCESS)
}

/// Smallest and largest valid value of some bands.
pub fn range(dataset: &Dataset, bands: &[u32]) -> Result<(f64, f64)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found = summarise(dataset, bands, threads)?;
    let ends = found.iter().filter_map(|(_, summary)| Some((summary.min()?.to_f64(), summary.max()?.to_f64())));
    let range = ends.reduce(|(low, high), (min, max)| (low.min(min), high.max(max)));
    range.with_context(|| format!("{}: there is no valid pixel to take a range from", dataset.name()))
}

/// Reads the image piece by piece.
fn summarise(dataset: &Dataset, bands: &[u32], threads: usize) -> Result<Vec<(u32, Summary)>> {
    blocks::check_size(dataset)?;
    let sample = dataset.sample();
    let masks = MaskKind::of_bands(dataset)?;
    let about = |band: u32| (band as usize).checked_sub(1);
    let nodata: Vec<Option<Vec<u8>>> =
        bands.iter().map(|band| dataset.metadata().bands.get(about(*band)?)?.nodata_sample(sample)).collect();
    // As in GDAL, a band's own nodata value counts before a mask of the whole file.
    let masked = |position: usize, band: u32| {
        let kind = about(band).and_then(|index| masks.get(index));
        nodata.get(position).is_some_and(Option::is_none)
            && matches!(kind, Some(MaskKind::PerDataset | MaskKind::Alpha))
    };
    let mut found: Vec<Summary> = vec![Summary::default(); bands.len()];
    let pixels = u64::from(dataset.width()) * u64::from(dataset.height());
    let mut progress = Progress::new("reading", pixels.saturating_mul(bands.len() as u64));
    let mut buffer = Vec::new();
    // Reading a mask takes as much again, and a copy of it.
    let any_masked = bands.iter().enumerate().any(|(position, band)| masked(position, *band));
    let budget = if any_masked { BUDGET / 3 } else { BUDGET };
    for block in Cut::of(dataset.main()).blocks(bands, sample, budget) {
        let options = ReadOptions::default().with_window(block.window).with_bands(block.bands.iter().copied());
        buffer.resize(dataset.read_len(&options)?, 0);
        dataset.read_into(&options, &mut buffer)?;
        let positions: Vec<usize> = (block.first..block.first + block.bands.len()).collect();
        let wants_mask = positions.iter().zip(&block.bands).any(|(position, band)| masked(*position, *band));
        let mask =
            if wants_mask { Some(dataset.read_mask(&ReadOptions::default().with_window(block.window))?) } else { None };
        let plane_len = block.window.pixels() as usize * sample.size();
        for ((position, band), plane) in positions.iter().zip(&block.bands).zip(buffer.chunks_exact(plane_len.max(1))) {
            let work = Summarise {
                nodata: nodata.get(*position).and_then(Option::as_deref),
                mask: mask.as_ref().filter(|_| masked(*position, *band)).map(|mask| mask.bytes()),
                threads,
            };
            let part = sample::visit(sample, plane, work)
                .with_context(|| format!("{}: no statistics for samples of type {sample}", dataset.name()))?;
            if let Some(total) = found.get_mut(*position) {
                total.merge(&part);
            }
        }
        progress.add(block.window.pixels().saturating_mul(block.bands.len() as u64));
    }
    Ok(bands.iter().copied().zip(found).collect())
}

fn document(dataset: &Dataset, found: &[(u32, Summary)]) -> Value {
    let rows = found.iter().map(|(band, summary)| {
        let [mean, std] = [summary.mean(), summary.std()].map(|value| value.map_or(Value::Null, number::json));
        let exact = |value: Option<number::Exact>| value.map_or(Value::Null, number::Exact::json);
        json!({
            "band": band,
            "min": exact(summary.min()),
            "max": exact(summary.max()),
            "mean": mean,
            "std": std,
            "valid": summary.valid(),
            "nodata": summary.missing(),
            "percent_valid": summary.percent_valid(),
        })
    });
    json!({
        "name": dataset.name(),
        "dtype": dataset.sample().name(),
        "of": if dataset.sample().is_complex() { "magnitude" } else { "value" },
        "bands": rows.collect::<Value>(),
    })
}

fn report(dataset: &Dataset, found: &[(u32, Summary)]) -> String {
    let mut table = Table::new(&["band", "min", "max", "mean", "std", "valid", "nodata", "valid %"]);
    let exact = |value: Option<number::Exact>| value.map(|value| value.to_string()).unwrap_or_default();
    let float = |value: Option<f64>| value.map(number::text).unwrap_or_default();
    for (band, summary) in found {
        table.row([
            band.to_string(),
            exact(summary.min()),
            exact(summary.max()),
            float(summary.mean()),
            float(summary.std()),
            summary.valid().to_string(),
            summary.missing().to_string(),
            format!("{:.2}", summary.percent_valid()),
        ]);
    }
    let note = if dataset.sample().is_complex() { ", statistics of the magnitude" } else { "" };
    let size = format!("{} × {} pixels, {}{note}", dataset.width(), dataset.height(), dataset.sample());
    format!("{}: {size}\n{}", console::safe(dataset.name()), table.text(0))
}
