//! `swath validate`: checks whether a file is a valid cloud optimized GeoTIFF.

use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use swath::{
    Dataset, OpenOptions,
    validate::{Check, Report},
};

use crate::{args::Validate, console, job, table::Table, traffic::Cost};

/// Most levels to list: no valid file has as many.
const MAX_LEVELS: usize = 64;

/// Runs `swath validate`.
pub fn run(args: &Validate) -> Result<ExitCode> {
    let dataset = job::open_as(OpenOptions::default(), &args.file, &args.remote)?;
    let report = dataset.validate(if args.full { Check::Full } else { Check::Structure })?;
    let valid = if args.strict { report.is_valid_strictly() } else { report.is_valid() };
    if args.json {
        console::print_json(&report.document(dataset.name(), args.strict))?;
    } else {
        console::print(&text(&dataset, &report, valid, args))?;
    }
    if let (true, Some(cost)) = (args.show_stats, Cost::of([&dataset])) {
        console::report(&cost.figures());
    }
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn text(dataset: &Dataset, report: &Report, valid: bool, args: &Validate) -> String {
    let verdict = if valid { "is a valid" } else { "is NOT a valid" };
    let mut out = format!("{} {verdict} cloud optimized GeoTIFF\n", console::safe(dataset.name()));
    // Writing into a String cannot fail.
    if let Some(blocks) = report.blocks {
        let _ = writeln!(out, "checked: directories, overviews, {} blocks", blocks.count);
    } else {
        let _ = writeln!(out, "checked: directories, overviews, first blocks (--full for every block)");
    }
    let strict = if args.strict { " (errors under --strict)" } else { "" };
    list(&mut out, "The following errors were found:", &report.errors);
    list(&mut out, &format!("The following warnings were found{strict}:"), &report.warnings);

    let _ = writeln!(out, "\nLayout");
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(out, "  {label:<14}{value}");
    };
    let big = if dataset.header().big { "BigTIFF" } else { "TIFF" };
    line("file", &format!("{big}, {} bytes", dataset.size()));
    line("directories", &report.ifds.to_string());
    match &report.ghost {
        None => line("ghost area", "none"),
        Some(ghost) => {
            let items: Vec<String> = ghost.items.iter().map(|(key, value)| format!("{key}={value}")).collect();
            line("ghost area", &console::short(&items.join(", "), 400));
            let yes_no = |claimed: bool| if claimed { "yes" } else { "no" };
            line("block leaders", yes_no(report.claims("BLOCK_LEADER", "SIZE_AS_UINT4")));
            line("mask between", yes_no(report.claims("MASK_INTERLEAVED_WITH_IMAGERY", "YES")));
        }
    }
    if let Some(blocks) = report.blocks {
        let shared = if blocks.shared > 0 { format!(", {} shared", blocks.shared) } else { String::new() };
        line("blocks", &format!("{}, {} sparse{shared}", blocks.count, blocks.sparse));
        if let Some(first) = blocks.first {
            line("head", &format!("{first} bytes before the first block"));
        }
    }
    let _ = write!(out, "\nLevels\n{}", levels(report).text(2));
    let more = report.levels.len().saturating_sub(MAX_LEVELS);
    if more > 0 {
        let _ = writeln!(out, "  … and {more} more levels");
    }
    out
}

fn list(out: &mut String, title: &str, messages: &[String]) {
    if !messages.is_empty() {
        let _ = writeln!(out, "\n{title}");
        for message in messages {
            let _ = writeln!(out, "- {}", console::safe(message));
        }
    }
}

fn levels(report: &Report) -> Table {
    let mut table =
        Table::new(&["Level", "Size", "Blocks", "Decimation", "IFD", "IFD offset", "First block", "Mask IFD"]);
    for (name, level) in report.named_levels().take(MAX_LEVELS) {
        let kind = if level.tiled { "" } else { " strips" };
        let external = if level.external { " (.ovr)" } else { "" };
        table.row([
            format!("{name}{external}"),
            format!("{}x{}", level.width, level.height),
            format!("{}x{}{kind}", level.tile_width, level.tile_height),
            level.decimation.to_string(),
            level.ifd.to_string(),
            level.ifd_offset.to_string(),
            level.data_offset.map_or_else(String::new, |offset| offset.to_string()),
            level.mask.map_or_else(String::new, |mask| mask.to_string()),
        ]);
    }
    table.without_empty_columns()
}
