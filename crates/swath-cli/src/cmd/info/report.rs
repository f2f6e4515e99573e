//! The report of `swath info` as text.

use std::fmt::Write;

use swath::{
    describe::{
        facts::{self, Facts},
        number,
    },
    geo::{Crs, CrsKind, GeoValue},
    tiff::structure::ByteOrder,
};

use crate::{
    console::{bytes, safe, short},
    table::Table,
};

/// Most directories to list: `--json` lists all pages of a stack of thousands.
const MAX_IFDS: usize = 64;
/// Most bands to list.
const MAX_BANDS: usize = 64;
/// Most characters of a metadata value.
const MAX_VALUE: usize = 160;

/// Returns the report.
pub fn text(facts: &Facts<'_>) -> String {
    let mut out = format!("{}\n", safe(facts.dataset.name()));
    for (label, value) in head(facts) {
        line(&mut out, label, &value);
    }
    section(&mut out, "Bands", &bands(facts));
    let more = facts.metadata.bands.len().saturating_sub(MAX_BANDS);
    if more > 0 {
        out.push_str(&format!("  … and {more} more bands\n"));
    }
    section(&mut out, "Directories", &directories(facts));
    let more = facts.images.len().saturating_sub(MAX_IFDS);
    if more > 0 {
        out.push_str(&format!("  … and {more} more directories\n"));
    }
    metadata(facts, &mut out);
    section(&mut out, "GeoKeys", &geokeys(facts));
    list(&mut out, "Side files", &facts.metadata.side_files);
    list(&mut out, "Not understood", &facts.metadata.unrecognised);
    list(&mut out, "Problems", &facts.problems);
    out
}

fn line(out: &mut String, label: &str, value: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(out, "  {label:<13}{value}");
}

fn section(out: &mut String, title: &str, table: &Table) {
    if !table.is_empty() {
        let _ = write!(out, "\n{title}\n{}", table.text(2));
    }
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(out, "\n{title}");
        items.iter().for_each(|item| out.push_str(&format!("  {}\n", short(item, 400))));
    }
}

fn join(values: &[f64]) -> String {
    values.iter().map(|value| number::text(*value)).collect::<Vec<_>>().join(", ")
}

/// Returns the labelled lines at the top.
fn head(facts: &Facts<'_>) -> Vec<(&'static str, String)> {
    let (dataset, georeference) = (facts.dataset, &facts.metadata.georeference);
    let (header, main) = (dataset.header(), dataset.main());
    let layout = main.layout();
    let format = if header.big { "BigTIFF" } else { "TIFF" };
    let order = if header.order == ByteOrder::Little { "little-endian" } else { "big-endian" };
    let mut lines = vec![
        ("File", format!("{format}, {order}, {}", bytes(dataset.size()))),
        ("Size", format!("{} × {} pixels", dataset.width(), dataset.height())),
    ];
    let plural = if dataset.bands() == 1 { "band" } else { "bands" };
    let bits = if usize::from(layout.bits) == 8 * dataset.sample().size() {
        String::new()
    } else {
        format!(" ({} bits)", layout.bits)
    };
    lines.push(("Samples", format!("{} {plural}, {}{bits}", dataset.bands(), dataset.sample())));
    if let Some(nodata) = facts.nodata() {
        lines.push(("Nodata", nodata.to_string()));
    }
    if layout.orientation != 1 {
        lines.push(("Orientation", format!("{} (pixels are shown as stored)", layout.orientation)));
    }
    match &georeference.crs {
        Some(crs) => lines.push(("CRS", crs_line(crs))),
        None => lines.push(("CRS", "none".to_owned())),
    }
    if let Some(transform) = georeference.transform {
        let [a, b, c, d, e, f] = transform.to_affine();
        lines.push(("Origin", join(&[c, f])));
        if transform.is_axis_aligned() {
            lines.push(("Pixel size", join(&[a, e])));
        } else {
            let (x, y) = transform.pixel_size();
            lines.push(("Pixel size", format!("{} (rotated or sheared)", join(&[x, y]))));
            lines.push(("Transform", join(&[a, b, c, d, e, f])));
        }
        let [left, bottom, right, top] = facts.bounds().map(number::text);
        lines.push(("Bounds", format!("left {left}, bottom {bottom}, right {right}, top {top}")));
        if let Some(lnglat) = facts.lnglat() {
            lines.push(("Centre", format!("{} (longitude, latitude)", join(&lnglat))));
        }
        if georeference.pixel_is_point {
            lines.push((
                "Pixel is",
                "a point (the transform refers to the pixel's corner, half a pixel off)".to_owned(),
            ));
        }
    } else {
        lines.push(("Transform", "none".to_owned()));
    }
    if !georeference.gcps.is_empty() {
        let crs = georeference.gcp_crs.as_ref().map(|crs| format!(", {}", crs_line(crs))).unwrap_or_default();
        lines.push(("GCPs", format!("{}{crs}", georeference.gcps.len())));
    }
    if georeference.rpc.is_some() {
        lines.push(("RPC", "yes".to_owned()));
    }
    lines.push(("Storage", storage(facts)));
    lines.push(("Overviews", overviews(facts)));
    lines.push(("COG", cog(facts)));
    if !facts.metadata.palette.is_empty() {
        lines.push(("Palette", format!("{} colours", facts.metadata.palette.len())));
    }
    lines
}

fn crs_line(crs: &Crs) -> String {
    let kind = match crs.kind {
        CrsKind::Projected => "projected",
        CrsKind::Geographic => "geographic",
        CrsKind::Geocentric => "geocentric",
        CrsKind::Vertical => "vertical",
        CrsKind::Compound => "compound",
        CrsKind::Engineering => "local",
        _ => "of unknown kind",
    };
    let unit = crs.unit.as_ref().map(|unit| format!(", {}", unit.name)).unwrap_or_default();
    let code = crs.code().map(|code| format!("{code}  ")).unwrap_or_default();
    safe(&format!("{code}{} ({kind}{unit})", crs.name))
}

fn block(image: &swath::tiff::Image) -> String {
    let layout = image.layout();
    match (layout.tiled, facts::block_height(image)) {
        (true, _) => format!("{}×{}", layout.tile_width, layout.tile_height),
        (false, 1) => "strips of 1 row".to_owned(),
        (false, rows) => format!("strips of {rows} rows"),
    }
}

fn storage(facts: &Facts<'_>) -> String {
    let main = facts.dataset.main();
    let compression = match main.layout().compression {
        swath::Compression::None => "uncompressed".to_owned(),
        other => other.to_string(),
    };
    let predictor = match facts::predictor(main) {
        2 => ", horizontal predictor",
        3 => ", floating-point predictor",
        _ => "",
    };
    let blocks = if main.layout().tiled { format!("tiles of {}", block(main)) } else { block(main) };
    let interleave = match (facts.dataset.bands(), facts::interleave(main)) {
        (1, _) => String::new(),
        (_, interleave) => format!(", {interleave}-interleaved"),
    };
    let photometric = main.layout().photometric.map(|meaning| format!(", {meaning}")).unwrap_or_default();
    format!("{compression}{predictor}, {blocks}{interleave}{photometric}")
}

fn overviews(facts: &Facts<'_>) -> String {
    if facts.overviews.is_empty() {
        return "none".to_owned();
    }
    let sizes: Vec<String> = facts.overviews.iter().map(|level| format!("{}×{}", level.width, level.height)).collect();
    let external = if facts.overviews.iter().any(|level| level.external) { " (in the .ovr file)" } else { "" };
    format!("{}{external}", sizes.join(", "))
}

fn cog(facts: &Facts<'_>) -> String {
    let cog = facts.cog();
    let ghost = if facts.ghost.is_some() { "ghost area present" } else { "no ghost area" };
    if cog.is_cog { format!("yes, {ghost}") } else { format!("not known to be one: {}", cog.reasons.join("; ")) }
}

fn bands(facts: &Facts<'_>) -> Table {
    let mut table = Table::new(&[
        "band",
        "colour",
        "description",
        "unit",
        "scale",
        "offset",
        "nodata",
        "mask",
        "min",
        "max",
        "mean",
        "std",
    ]);
    let option = |value: Option<f64>| value.map(number::text).unwrap_or_default();
    for (index, band) in facts.metadata.bands.iter().enumerate().take(MAX_BANDS) {
        let nodata = band.nodata.as_ref().map(|nodata| match facts::nodata(nodata, facts.dataset.sample()) {
            Some(value) => value.to_string(),
            None => format!("{} (no sample can have it)", short(&nodata.text, 32)),
        });
        let mask = facts.masks.get(index).map(|mask| mask.flags().join(" ")).unwrap_or_default();
        let stated = facts::stated_statistics(band).map(|values| values.map(number::text)).unwrap_or_default();
        let text = |text: &Option<String>| short(text.as_deref().unwrap_or(""), 60);
        let cells = [
            (index + 1).to_string(),
            band.color.clone(),
            text(&band.description),
            text(&band.unit),
            option(band.scale),
            option(band.offset),
            nodata.unwrap_or_default(),
            mask,
        ];
        table.row(cells.into_iter().chain(stated));
    }
    table.without_empty_columns()
}

fn directories(facts: &Facts<'_>) -> Table {
    let mut table =
        Table::new(&["ifd", "kind", "size", "blocks", "number", "compression", "predictor", "samples", "offset"]);
    for (image, role) in facts.images.iter().take(MAX_IFDS) {
        let layout = image.layout();
        let predictor = match facts::predictor(image) {
            1 => String::new(),
            other => other.to_string(),
        };
        table.row([
            image.index().to_string(),
            facts::kind(*role).to_owned(),
            format!("{}×{}", layout.width, layout.height),
            block(image),
            image.grid().count().to_string(),
            layout.compression.to_string(),
            predictor,
            format!("{} × {}", layout.samples, layout.sample),
            image.ifd().offset.to_string(),
        ]);
    }
    table.without_empty_columns()
}

fn metadata(facts: &Facts<'_>, out: &mut String) {
    let show = |out: &mut String, title: &str, items: &[(String, String)]| {
        let mut table = Table::new(&["key", "value"]);
        for (key, value) in items {
            table.row([short(key, 60), short(value, MAX_VALUE)]);
        }
        section(out, &safe(title), &table);
    };
    for domain in &facts.metadata.domains {
        let title = if domain.name.is_empty() { "Metadata".to_owned() } else { format!("Metadata ({})", domain.name) };
        show(out, &title, &domain.items);
    }
    show(out, "Metadata (IMAGE_STRUCTURE)", &facts.metadata.image_structure);
    for (index, band) in facts.metadata.bands.iter().enumerate().take(MAX_BANDS) {
        for domain in &band.domains {
            // Statistics are in the table of bands already.
            let stated = facts::stated_statistics(band).is_some() && domain.name.is_empty();
            let known = ["STATISTICS_MINIMUM", "STATISTICS_MAXIMUM", "STATISTICS_MEAN", "STATISTICS_STDDEV"];
            let items: Vec<(String, String)> =
                domain.items.iter().filter(|(key, _)| !(stated && known.contains(&key.as_str()))).cloned().collect();
            let name = if domain.name.is_empty() { String::new() } else { format!(" ({})", domain.name) };
            show(out, &format!("Metadata of band {}{name}", index + 1), &items);
        }
    }
    for document in &facts.metadata.xml_domains {
        let _ = writeln!(
            out,
            "\nMetadata ({})\n  {} characters of XML",
            safe(&document.name),
            document.text.chars().count()
        );
    }
}

fn geokeys(facts: &Facts<'_>) -> Table {
    let mut table = Table::new(&["key", "name", "value", "meaning"]);
    for key in &facts.metadata.georeference.keys.entries {
        let value = match &key.value {
            GeoValue::Short(value) => value.to_string(),
            GeoValue::Shorts(values) => values.iter().map(u16::to_string).collect::<Vec<_>>().join(" "),
            GeoValue::Doubles(values) => values.iter().map(|value| number::text(*value)).collect::<Vec<_>>().join(" "),
            GeoValue::Ascii(text) => text.clone(),
            _ => String::new(),
        };
        table.row([
            key.id.to_string(),
            key.name().unwrap_or("").to_owned(),
            short(&value, 100),
            key.value_name().unwrap_or("").to_owned(),
        ]);
    }
    table
}
