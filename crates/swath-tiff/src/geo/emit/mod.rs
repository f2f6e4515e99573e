//! Writes georeferencing as tag values, from which a reader gets the same georeferencing back.
//!
//! The output equals GDAL 3.12's wherever GDAL's own reader gets the system back, since all other readers were tested on GDAL's
//! files. Where GDAL loses something, more keys are written. Nothing fails: what tags cannot express is listed in `problems`.

mod crs;
mod key_set;
mod method;
mod tags;
mod transform;

#[cfg(test)]
mod tests;

use swath_crs::Crs;

use crate::geo::{
    key_names::GT_RASTER_TYPE,
    keys::KeyTags,
    rpc::Rpc,
    transform::{Gcp, GeoTransform},
};

pub use tags::GeoTags;

/// Where the keys of the reference system come from.
#[derive(Debug, Clone, Copy)]
pub enum Reference<'a> {
    /// Keys are made for this system.
    Crs(Option<&'a Crs>),
    /// The keys of the source file are copied unchanged.
    Keys(&'a KeyTags),
}

/// Makes the tags for a system, a transform or control points, and a camera model. `pixel_is_point` is the value of
/// GTRasterTypeGeoKey, also in copied keys. The given transform always refers to the outer corners of pixels.
#[must_use]
pub fn geo_tags(
    reference: Reference<'_>,
    transform: Option<&GeoTransform>,
    gcps: &[Gcp],
    rpc: Option<&Rpc>,
    pixel_is_point: bool,
) -> GeoTags {
    let mut tags = GeoTags::default();
    tags.keys = match reference {
        Reference::Keys(keys) => keys.clone(),
        Reference::Crs(crs) => keys_of(crs, pixel_is_point, &mut tags.problems),
    };
    transform::fill(&mut tags, transform, gcps, pixel_is_point);
    if let Some(rpc) = rpc {
        let values = rpc.to_values();
        if values.iter().all(|v| v.is_finite()) {
            tags.rpc = Some(values);
        } else {
            tags.problems.push("the RPC model has NaN or infinite terms and is not written".to_owned());
        }
    }
    tags
}

fn keys_of(crs: Option<&Crs>, pixel_is_point: bool, problems: &mut Vec<String>) -> KeyTags {
    let mut set = key_set::KeySet::default();
    let minor = crs.map_or(0, |crs| crs::fill(&mut set, crs, problems));
    // Area is the default. Like GDAL, do not write a directory only for that.
    if pixel_is_point || !set.is_empty() {
        set.short(GT_RASTER_TYPE, if pixel_is_point { 2 } else { 1 });
    }
    set.pack(minor, problems)
}
