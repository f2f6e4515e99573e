//! Describes files, checks and devices as JSON documents, the same for every front end.

mod devices;
mod document;
pub mod facts;
mod mask;
pub mod number;
mod tags;
mod validation;

use serde_json::Value;

use crate::{error::Error, open::dataset::Dataset};
pub use devices::devices;
use facts::Facts;
pub use mask::MaskKind;

/// Describes a file: what `swath info --json` prints, with every tag of every directory if requested.
/// <https://swath-raster.github.io/swath/cli-json.html> lists its keys. It reads no tile and no table of tiles.
///
/// # Errors
/// When bytes cannot be read.
pub fn file(dataset: &Dataset, with_tags: bool) -> Result<Value, Error> {
    Ok(document::document(&Facts::gather(dataset)?, with_tags))
}
