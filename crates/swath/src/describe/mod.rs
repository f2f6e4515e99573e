//! What a file, a check or a machine is, as JSON documents that every front end gives alike.

mod devices;
mod document;
pub mod facts;
pub(crate) mod mask;
pub mod number;
mod tags;
mod validation;

use serde_json::Value;

use crate::{dataset::Dataset, error::Error};
pub use devices::describe_devices;
use facts::Facts;

/// What a file is: what `swath info --json` prints, with every tag of every directory where that is wanted.
/// docs/cli-json.md lists its keys. No tile and no table of tiles is read.
///
/// # Errors
/// When bytes cannot be had.
pub fn describe(dataset: &Dataset, with_tags: bool) -> Result<Value, Error> {
    Ok(document::document(&Facts::gather(dataset)?, with_tags))
}
