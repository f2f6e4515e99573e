//! Georeferencing and metadata: reads and writes the GeoTIFF and GDAL tags of an image, and its side files.
//!
//! Pure functions over decoded tag values. A damaged tag is not an error: the reader ignores the damaged part and adds a sentence
//! to a `problems` list, because the pixels are readable without it. Where the standard is ambiguous, the reader follows GDAL,
//! since writers check their files with it; a comment marks each such choice.

mod crs;
mod domain;
pub mod emit;
pub mod gdal_xml;
pub mod key_names;
pub mod keys;
pub mod merge;
pub mod nodata;
mod number;
pub mod pam;
pub mod printf;
mod problems;
pub mod rpc;
pub mod rpc_text;
pub mod transform;
pub mod world;
pub mod xml;

pub use emit::{GeoTags, geo_tags};
pub use keys::{GeoKey, GeoKeys, GeoValue, KeyTags};
pub use nodata::{Nodata, NodataValue};
pub use rpc::Rpc;
pub use transform::{Gcp, GeoTransform, Georef, ModelTags};
// The types that the key reader returns and the key writer takes.
pub use swath_crs::{Authority, Crs, CrsKind, Unit, epsg, parse_user, wkt};
