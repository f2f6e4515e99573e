//! Compares the metadata of two files.

use swath::{
    Dataset,
    describe::number,
    geo::{Crs, GeoTransform},
};

use super::Difference;

/// Adds a difference where two values are not equal.
fn differ<T: PartialEq>(
    found: &mut Vec<Difference>,
    what: impl Into<String>,
    a: T,
    b: T,
    text: impl Fn(&T) -> Option<String>,
) {
    if a != b {
        found.push(Difference { what: what.into(), a: text(&a), b: text(&b) });
    }
}

/// Returns the differences in size, bands and type, without which samples cannot be equal.
pub fn shape(a: &Dataset, b: &Dataset) -> Vec<Difference> {
    let mut found = Vec::new();
    let size = |dataset: &Dataset| format!("{} × {}", dataset.width(), dataset.height());
    differ(&mut found, "size", size(a), size(b), |size| Some(size.clone()));
    differ(&mut found, "bands", a.bands(), b.bands(), |bands| Some(bands.to_string()));
    differ(&mut found, "dtype", a.sample(), b.sample(), |sample| Some(sample.to_string()));
    found
}

/// Returns the differences in georeference and metadata of bands.
pub fn meaning(a: &Dataset, b: &Dataset) -> Vec<Difference> {
    let mut found = Vec::new();
    let (one, other) = (a.metadata(), b.metadata());
    let (here, there) = (&one.georeference, &other.georeference);
    differ(&mut found, "CRS", crs(here.crs.as_ref()), crs(there.crs.as_ref()), Clone::clone);
    differ(&mut found, "transform", transform(here.transform), transform(there.transform), Clone::clone);
    let point = |point: bool| Some(if point { "point" } else { "area" }.to_owned());
    differ(&mut found, "pixel is", point(here.pixel_is_point), point(there.pixel_is_point), Clone::clone);
    differ(&mut found, "control points", here.gcps.clone(), there.gcps.clone(), |gcps| {
        Some(format!("{} points", gcps.len()))
    });
    let coefficients = |found: bool| found.then(|| "coefficients".to_owned());
    differ(&mut found, "RPC", here.rpc.clone(), there.rpc.clone(), |rpc| coefficients(rpc.is_some()));
    differ(&mut found, "palette", &one.palette, &other.palette, |palette| {
        (!palette.is_empty()).then(|| format!("{} colours", palette.len()))
    });
    for (index, (mine, yours)) in one.bands.iter().zip(&other.bands).enumerate() {
        let of = |what: &str| format!("{what} of band {}", index + 1);
        let nodata = |band: &swath::Band, dataset: &Dataset| {
            let value = band.nodata.as_ref()?;
            // Different spellings of one value are equal. A value that no sample can have differs from no value.
            let text = number::text(value.as_f64());
            Some(if value.for_dtype(dataset.sample()).is_some() {
                text
            } else {
                format!("{text} (no sample can have it)")
            })
        };
        differ(&mut found, of("nodata"), nodata(mine, a), nodata(yours, b), Clone::clone);
        let float = |value: &f64| Some(number::text(*value));
        differ(&mut found, of("scale"), mine.scale.unwrap_or(1.0), yours.scale.unwrap_or(1.0), float);
        differ(&mut found, of("offset"), mine.offset.unwrap_or(0.0), yours.offset.unwrap_or(0.0), float);
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        differ(&mut found, of("description"), text(&mine.description), text(&yours.description), Clone::clone);
        differ(&mut found, of("unit"), text(&mine.unit), text(&yours.unit), Clone::clone);
        differ(&mut found, of("colour"), mine.color.clone(), yours.color.clone(), |color| Some(color.clone()));
    }
    found
}

/// Returns the code of a reference system, which identifies it; without one its definition, as text to compare.
fn crs(crs: Option<&Crs>) -> Option<String> {
    let crs = crs?;
    crs.code().or_else(|| crs.wkt2.clone()).or_else(|| Some(crs.name.clone()))
}

fn transform(transform: Option<GeoTransform>) -> Option<String> {
    // The shortest text that round-trips is equal exactly if the numbers are.
    let terms = transform?.to_affine().map(number::text);
    Some(terms.join(", "))
}
