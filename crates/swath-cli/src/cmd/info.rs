//! `swath info`: describes a file.

mod raw;
mod report;

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;
use swath::{OpenOptions, codec::Registry, describe::facts::Facts};

use crate::{args::Info, console, job, table::Table, traffic::Cost};

/// Runs `swath info`.
pub fn run(args: &Info) -> Result<ExitCode> {
    if args.codecs {
        codecs(args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.file.as_ref().context("give a file")?;
    let dataset = job::open_as(OpenOptions::default(), file, &args.remote)?;
    if args.json {
        let mut document = swath::describe::file(&dataset, args.tags)?;
        if let (Some(cost), Some(keys)) = (Cost::of([&dataset]), document.as_object_mut()) {
            keys.insert("remote".to_owned(), cost.document());
        }
        console::print_json(&document)?;
    } else {
        let facts = Facts::gather(&dataset)?;
        let mut text = report::text(&facts);
        if args.tags {
            raw::append_text(&facts, &mut text);
        }
        // The requests that this report took.
        text.extend(Cost::of([&dataset]).as_ref().map(Cost::line));
        console::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what this build decodes and encodes.
fn codecs(as_json: bool) -> Result<()> {
    let listing = Registry::listing();
    if as_json {
        let rows = listing.iter().map(|codec| {
            let feature = (!codec.feature.is_empty()).then_some(codec.feature);
            let encoded = (!codec.writes.is_empty()).then_some(codec.writes);
            json!({
                "name": codec.name,
                "decoded_by": codec.reads,
                "encoded_by": encoded,
                "feature": feature,
                "built": codec.built,
            })
        });
        return console::print_json(&rows.collect());
    }
    let mut table = Table::new(&["Compression", "Decoded by", "Encoded by", "In this build"]);
    for codec in &listing {
        let built = match (codec.built, codec.feature) {
            (true, _) => "yes".to_owned(),
            (false, feature) => format!("no: built without feature `{feature}`"),
        };
        let writes = if codec.writes.is_empty() { "-" } else { codec.writes };
        table.row([codec.name.to_owned(), codec.reads.to_owned(), writes.to_owned(), built]);
    }
    console::print(&table.text(0))
}
