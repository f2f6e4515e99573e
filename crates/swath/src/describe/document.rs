//! The facts as JSON. The keys are documented in docs/cli-json.md and only ever added to.

use serde_json::{Map, Value, json};
use swath_tiff::{
    geo::{Crs, GeoValue, Rpc, gdal_xml::Domain},
    structure::ByteOrder,
};

use super::{
    facts::{self, Facts},
    number, tags,
};
use crate::open::{
    image::{Image, Role},
    overviews::Overview,
};

/// The whole document.
pub(super) fn document(facts: &Facts<'_>, with_tags: bool) -> Value {
    let mut out = Map::new();
    let mut add = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    // rasterio's keys, in its (alphabetical) order, then ours.
    for (key, value) in rio(facts) {
        add(key, value);
    }
    let (dataset, metadata) = (facts.dataset, facts.metadata);
    let header = dataset.header();
    add("name", dataset.name().into());
    add("file_size", dataset.size().into());
    add("bigtiff", header.big.into());
    add("byte_order", if header.order == ByteOrder::Little { "little" } else { "big" }.into());
    add("orientation", dataset.main().layout().orientation.into());
    add("predictor", facts::predictor(dataset.main()).into());
    add("scales", metadata.bands.iter().map(|band| number::json(band.scale.unwrap_or(1.0))).collect());
    add("offsets", metadata.bands.iter().map(|band| number::json(band.offset.unwrap_or(0.0))).collect());
    let sample = dataset.sample();
    let nodatas = metadata.bands.iter().map(|band| {
        let found = band.nodata.as_ref().and_then(|nodata| facts::nodata(nodata, sample));
        found.map_or(Value::Null, |value| value.json())
    });
    add("nodatavals", nodatas.collect());
    let whole = metadata.georeference.crs.as_ref();
    add("wkt", whole.and_then(|crs| crs.wkt2.clone()).into());
    add("crs_name", whole.map(|crs| crs.name.clone()).into());
    add("vertical_epsg", whole.and_then(|crs| crs.vertical_epsg).into());
    add("area_or_point", facts.metadata.area_or_point().into());
    add("overviews", overviews(facts));
    add("cog", cog(facts));
    add("ifds", facts.images.iter().map(|(image, role)| ifd(image, *role)).collect());
    add("palette", palette(facts));
    let gcps = metadata.georeference.gcps.iter().map(|gcp| {
        let [col, row, x, y, z] = [gcp.pixel, gcp.line, gcp.x, gcp.y, gcp.z].map(number::json);
        json!({ "id": gcp.id, "col": col, "row": row, "x": x, "y": y, "z": z })
    });
    add("gcps", gcps.collect());
    add("gcp_crs", metadata.georeference.gcp_crs.as_ref().map_or(Value::Null, crs));
    add("rpcs", metadata.georeference.rpc.as_ref().map_or(Value::Null, rpc));
    add("geokeys", geokeys(facts));
    let structure = Domain { name: "IMAGE_STRUCTURE".to_owned(), items: metadata.image_structure.clone() };
    let domains = metadata.domains.iter().chain((!structure.items.is_empty()).then_some(&structure));
    add("tags", domain_tags(domains));
    add("band_tags", metadata.bands.iter().map(|band| domain_tags(band.domains.iter())).collect());
    let xml = metadata.xml_domains.iter().map(|domain| (domain.name.clone(), domain.text.clone().into()));
    add("xml", Value::Object(xml.collect()));
    add("side_files", metadata.side_files.clone().into());
    add("unrecognised", metadata.unrecognised.clone().into());
    add("problems", facts.problems.clone().into());
    if with_tags {
        add("tags_raw", tags::list(facts));
    }
    Value::Object(out)
}

/// The keys that `rio info` prints, with its meaning.
fn rio(facts: &Facts<'_>) -> Vec<(&'static str, Value)> {
    let (dataset, metadata) = (facts.dataset, facts.metadata);
    let main = dataset.main();
    let layout = main.layout();
    let bands = &metadata.bands;
    let [a, b, c, d, e, f] = facts.transform().to_affine();
    let (x_size, y_size) = facts.transform().pixel_size();
    let floats = |values: &[f64]| -> Value { values.iter().map(|value| number::json(*value)).collect() };
    let stats: Option<Vec<Value>> = bands
        .iter()
        .map(|band| {
            let [min, max, mean, std] = facts::stated_statistics(band)?.map(number::json);
            Some(json!({ "min": min, "max": max, "mean": mean, "std": std }))
        })
        .collect();
    let flags: Value = facts.masks.iter().map(|mask| Value::from(mask.flags())).collect();
    vec![
        ("blockxsize", layout.tile_width.into()),
        ("blockysize", facts::block_height(main).into()),
        ("bounds", floats(&facts.bounds())),
        ("colorinterp", bands.iter().map(|band| band.color.clone()).collect()),
        ("compress", facts::compress(main).into()),
        ("count", dataset.bands().into()),
        ("crs", facts.crs().map_or(Value::Null, crs)),
        ("descriptions", bands.iter().map(|band| band.description.clone()).map(Value::from).collect()),
        ("driver", "GTiff".into()),
        ("dtype", dataset.sample().name().into()),
        ("height", dataset.height().into()),
        ("indexes", (1..=dataset.bands()).collect()),
        ("interleave", facts::interleave(main).into()),
        ("lnglat", facts.lnglat().map_or(Value::Null, |lnglat| floats(&lnglat))),
        ("mask_flags", flags),
        ("nodata", facts.nodata().map_or(Value::Null, |nodata| nodata.json())),
        ("photometric", facts::photometric(main).into()),
        ("res", floats(&[x_size, y_size])),
        ("shape", json!([dataset.height(), dataset.width()])),
        ("stats", stats.filter(|stats| !stats.is_empty()).into()),
        ("tiled", layout.tiled.into()),
        ("transform", floats(&[a, b, c, d, e, f, 0.0, 0.0, 1.0])),
        (
            "units",
            bands.iter().map(|band| band.unit.clone().filter(|unit| !unit.is_empty())).map(Value::from).collect(),
        ),
        ("width", dataset.width().into()),
    ]
}

/// A code where there is one, stated or found as rasterio's `to_epsg` finds it, else WKT.
fn crs(crs: &Crs) -> Value {
    let found = || crs.find_epsg().map(|code| format!("EPSG:{code}"));
    // A compound of two codes may have a code of its own, which is what GDAL names.
    let code = crs.code();
    let compound = code.as_ref().filter(|code| code.contains('+')).and_then(|_| found());
    compound.or(code).or_else(found).or_else(|| crs.wkt2.clone()).into()
}

fn overviews(facts: &Facts<'_>) -> Value {
    let row = |overview: &Overview| {
        json!({
            "width": overview.width, "height": overview.height, "ifd": overview.ifd, "external": overview.external
        })
    };
    facts.overviews.iter().map(row).collect()
}

fn cog(facts: &Facts<'_>) -> Value {
    let cog = facts.cog();
    let ghost = facts.ghost.as_ref().map(|ghost| {
        let items = ghost.items.iter().map(|(key, value)| (key.clone(), value.clone().into()));
        Value::Object(items.collect())
    });
    json!({
        "is_cog": cog.is_cog,
        "ifds_before_data": cog.ifds_before_data,
        "tiled": cog.tiled,
        "ifds_in_order": cog.in_order,
        "ghost": ghost,
        "why_not": cog.reasons,
    })
}

fn ifd(image: &Image, role: Role) -> Value {
    let (layout, grid) = (image.layout(), image.grid());
    json!({
        "index": image.index(),
        "kind": facts::kind(role),
        "offset": image.ifd().offset,
        "width": layout.width,
        "height": layout.height,
        "tiled": layout.tiled,
        "blockxsize": layout.tile_width,
        "blockysize": facts::block_height(image),
        "tiles_across": grid.across,
        "tiles_down": grid.down,
        "tiles": grid.count(),
        "compress": facts::compress(image),
        "compression_code": layout.compression_code,
        "predictor": facts::predictor(image),
        "dtype": layout.sample.name(),
        "bits": layout.bits,
        "count": layout.samples,
        "interleave": facts::interleave(image),
        "photometric": facts::photometric(image),
        "subfile_type": layout.subfile_type,
    })
}

fn palette(facts: &Facts<'_>) -> Value {
    if facts.metadata.palette.is_empty() {
        return Value::Null;
    }
    // 16 bits, as stored.
    facts.metadata.palette.iter().map(|color| Value::from(&color[..])).collect()
}

fn rpc(rpc: &Rpc) -> Value {
    let list = |values: &[f64]| -> Value { values.iter().map(|value| number::json(*value)).collect() };
    let scalars = rpc.scalars().into_iter().map(|(name, value)| (name, number::json(value)));
    let polynomials = rpc.polynomials().into_iter().map(|(name, values)| (name, list(values)));
    scalars.chain(polynomials).map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
}

fn geokeys(facts: &Facts<'_>) -> Value {
    let keys = &facts.metadata.georeference.keys;
    let rows = keys.entries.iter().map(|key| {
        let value: Value = match &key.value {
            GeoValue::Short(value) => (*value).into(),
            GeoValue::Shorts(values) => values.iter().copied().collect(),
            GeoValue::Doubles(values) => match values[..] {
                [value] => number::json(value),
                _ => values.iter().map(|value| number::json(*value)).collect(),
            },
            GeoValue::Ascii(text) => text.clone().into(),
            _ => Value::Null,
        };
        json!({ "id": key.id, "name": key.name(), "value": value, "meaning": key.value_name() })
    });
    rows.collect()
}

fn domain_tags<'a>(domains: impl Iterator<Item = &'a Domain>) -> Value {
    let object = domains.map(|domain| {
        let items = domain.items.iter().map(|(key, value)| (key.clone(), value.clone().into()));
        (domain.name.clone(), Value::Object(items.collect()))
    });
    Value::Object(object.collect())
}
