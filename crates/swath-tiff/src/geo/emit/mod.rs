//! The writing half: tag values from which a reader gets the same georeferencing back.
//!
//! What GDAL 3.12 writes is followed wherever its own reader gives the system back, since that is what every other reader
//! was tried on; where it loses something, the keys here say more. Nothing fails: what cannot be said in tags is listed in
//! `problems`.

mod crs;
mod esri;
mod keys;
pub mod metadata;
mod method;
mod model;
pub mod number;
mod transform;
mod user;
mod world;

#[cfg(test)]
mod tests;

pub use user::parse_user;

use super::crs::Crs;
use super::keys::KeyTags;
use super::rpc::Rpc;
use super::transform::{Gcp, GeoTransform};

/// The values of the GeoTIFF tags. An empty list or `None` is a tag that is not written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeoTags {
    /// 34735 to 34737.
    pub keys: KeyTags,
    /// 33550.
    pub pixel_scale: Option<[f64; 3]>,
    /// 33922.
    pub tiepoints: Vec<f64>,
    /// 34264.
    pub transformation: Option<[f64; 16]>,
    /// 50844.
    pub rpc: Option<Vec<f64>>,
    /// What could not be written, as sentences for a person.
    pub problems: Vec<String>,
}

/// How the tags say the reference system.
#[derive(Debug, Clone, Copy)]
pub enum Reference<'a> {
    /// In keys made for it.
    Crs(Option<&'a Crs>),
    /// In the keys of the file it comes from, word for word.
    Keys(&'a KeyTags),
}

/// The tags for a system, a transform or control points, and a camera model. `pixel_is_point` says what
/// GTRasterTypeGeoKey says, in the keys of a file too; the transform given here always counts from outer corners.
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
    let mut set = keys::KeySet::default();
    let minor = crs.map_or(0, |crs| crs::fill(&mut set, crs, problems));
    // An area is the default; like GDAL, a directory for that alone is not written.
    if pixel_is_point || !set.is_empty() {
        set.short(super::names::GT_RASTER_TYPE, if pixel_is_point { 2 } else { 1 });
    }
    set.pack(minor, problems)
}
