//! `swath compare`: compares two rasters, and reports where and by how much they differ.

mod metadata;
mod pixels;

use std::{fmt::Write, process::ExitCode};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use swath::{Dataset, describe::number};

use crate::{args::Compare, console, device, job};
use pixels::Pixels;

/// A property in which two files differ.
pub struct Difference {
    /// Name of the property.
    pub what: String,
    /// Its value in the first file; `None` where it has none.
    pub a: Option<String>,
    /// Its value in the second file.
    pub b: Option<String>,
}

/// Runs `swath compare`.
pub fn run(args: &Compare) -> Result<ExitCode> {
    if args.tolerance.is_nan() || args.tolerance < 0.0 {
        bail!("--tolerance must not be negative: {}", args.tolerance);
    }
    let a = job::open(&args.a, args.threads, 0, args.unlimited, &args.device, &args.remote)?;
    // Portions follow the tiles of the first file and may split those of the second, which then need a cache.
    let b = job::open(&args.b, args.threads, 16 << 20, args.unlimited, &args.device, &args.remote)?;
    let mut differences = metadata::shape(&a, &b);
    if !args.pixels_only {
        differences.extend(metadata::meaning(&a, &b));
    }
    let comparable = (a.width(), a.height()) == (b.width(), b.height())
        && a.sample().is_complex() == b.sample().is_complex()
        && pixels::is_known(&a)
        && pixels::is_known(&b);
    let pixels = if comparable { Some(pixels::compare(&a, &b, args.tolerance)?) } else { None };
    let masked = if comparable { pixels::compare_masks(&a, &b)? } else { 0 };
    if masked > 0 {
        let differs = || Some("differs".to_owned());
        differences.push(Difference { what: format!("mask of {masked} pixels"), a: differs(), b: differs() });
    }
    let equal =
        differences.is_empty() && pixels.as_ref().is_some_and(|pixels| pixels.iter().all(|band| band.differing == 0));
    if args.json {
        console::print_json(&document(&a, &b, equal, &differences, pixels.as_deref(), masked))?;
    } else {
        console::print(&report(&a, equal, &differences, pixels.as_deref(), args))?;
    }
    device::report(&args.device, [&a, &b]);
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn document(
    a: &Dataset,
    b: &Dataset,
    equal: bool,
    differences: &[Difference],
    pixels: Option<&[Pixels]>,
    masked: u64,
) -> Value {
    let facts =
        differences.iter().map(|difference| json!({ "what": difference.what, "a": difference.a, "b": difference.b }));
    let total = pixels.map(Pixels::total);
    let bands = pixels.unwrap_or_default().iter().map(figures).collect::<Value>();
    json!({
        "a": a.name(),
        "b": b.name(),
        "equal": equal,
        "differences": facts.collect::<Value>(),
        "pixels": total.as_ref().map(figures),
        "bands": bands,
        "mask_differing": masked,
    })
}

fn figures(pixels: &Pixels) -> Value {
    let first = pixels.first.as_ref().map(
        |first| json!({ "band": first.band, "column": first.column, "row": first.row, "a": first.a, "b": first.b }),
    );
    json!({
        "compared": pixels.compared,
        "differing": pixels.differing,
        "nan_against_number": pixels.nan,
        "max_abs": number::json(pixels.max),
        "mean_abs": number::json(pixels.mean()),
        "first": first,
    })
}

fn report(a: &Dataset, equal: bool, differences: &[Difference], pixels: Option<&[Pixels]>, args: &Compare) -> String {
    let mut out = String::new();
    let total = pixels.map(Pixels::total);
    // Writing into a String cannot fail.
    if equal {
        let within = if total.as_ref().is_some_and(|total| total.max > 0.0) { " within the tolerance" } else { "" };
        let what = if args.pixels_only { "samples" } else { "samples and metadata" };
        let plural = if a.bands() == 1 { "band" } else { "bands" };
        let _ = writeln!(
            out,
            "equal{within}: {} {plural} of {} × {} {}, {what}",
            a.bands(),
            a.width(),
            a.height(),
            a.sample()
        );
    } else {
        let _ = writeln!(out, "different");
        for difference in differences {
            let side =
                |side: &Option<String>| side.as_deref().map_or("none".to_owned(), |text| console::short(text, 300));
            let _ = match (&difference.a, &difference.b) {
                (Some(a), Some(b)) if a == b => writeln!(out, "  {}: {}", difference.what, console::short(a, 300)),
                (a, b) => writeln!(out, "  {}: {} | {}", difference.what, side(a), side(b)),
            };
        }
    }
    let Some(total) = total else {
        let _ = writeln!(out, "  samples: not compared");
        return out;
    };
    if total.differing > 0 {
        let percent = total.differing as f64 / total.compared.max(1) as f64 * 100.0;
        let _ = writeln!(out, "  samples: {} of {} differ ({percent:.4} %)", total.differing, total.compared);
        let each: Vec<String> = pixels
            .unwrap_or_default()
            .iter()
            .filter(|band| band.differing > 0)
            .filter_map(|band| Some(format!("band {}: {}", band.first.as_ref()?.band, band.differing)))
            .take(16)
            .collect();
        if a.bands() > 1 {
            let _ = writeln!(out, "  by band: {}", each.join(", "));
        }
        if let Some(first) = &total.first {
            let location = format!("band {}, column {}, row {}", first.band, first.column, first.row);
            let _ = writeln!(out, "  first: {location}: {} | {}", first.a, first.b);
        }
        if total.nan > 0 {
            let _ = writeln!(out, "  NaN against a number: {}", total.nan);
        }
    }
    if total.max > 0.0 {
        let (max, mean) = (number::text(total.max), number::text(total.mean()));
        let _ = writeln!(out, "  absolute difference: largest {max}, mean {mean}");
    }
    out
}
