//! Georeferencing: what the GeoTIFF and GDAL tags of an image say about its place on the ground.
//!
//! Pure functions over tag values that are already decoded. Nothing here fails hard: a damaged tag costs the part it
//! describes and leaves a sentence in a `problems` list, because the pixels are still good without it. Where the
//! standard leaves room, GDAL's reading is followed, since that is what the files were checked with; each such choice is
//! noted where it is made.

mod citation;
pub mod crs;
pub mod emit;
pub mod epsg;
mod epsg_index;
pub mod gdal_xml;
mod geodetic;
mod identify;
pub mod keys;
pub mod merge;
pub mod names;
pub mod nodata;
mod number;
pub mod pam;
mod projection;
pub mod rpc;
pub mod rpc_text;
pub mod transform;
pub mod units;
mod vertical;
pub mod wkt;
pub mod world;
pub mod xml;

pub use crs::{Authority, Crs, CrsKind};
pub use emit::{GeoTags, geo_tags, parse_user};
pub use keys::{GeoKey, GeoKeys, GeoValue, KeyTags};
pub use nodata::{Nodata, NodataValue};
pub use rpc::Rpc;
pub use transform::{Gcp, GeoTransform, Georef, ModelTags};
pub use units::Unit;
