//! One read on the device: tiles go in by batches, and one buffer holds the samples at the end.
//!
//! A [`DecodeBatch`] is some tiles with their placements, cut into groups. The caller uploads the bytes of a group in any order
//! and from any thread, then launches the group. Groups run on several streams, so the copies of one overlap the kernels of
//! another. At most two batches are on the device at once, in the two halves of the working memory. The host waits once, in
//! [`Decoder::finish`].

mod batch;
mod decoder;
mod footprint;
mod group_launch;
mod path;
mod placing;
mod plan;
mod status;
mod tables;
#[cfg(test)]
pub(crate) mod test_spec;
mod uploader;

pub use batch::{DecodeBatch, Placement, are_possible_pieces};
pub use decoder::{Decoder, KernelTimes};
pub use footprint::Footprint;
pub use path::DecodePath;
pub use placing::{Output, PlaneLayout, check_columns};
pub use plan::DecodePlan;
pub use status::TileStatus;
pub use uploader::Uploader;
