//! One write on the device: rows go in, and encoded tiles come out by batches.
//!
//! An [`Encoder`] holds the rows of every level that are still needed, in rings. Tiles are cut out of the rings into the slots of
//! a batch. A batch is encoded and packed at once. The host reads its lengths in one small copy, for which it waits; the bytes
//! leave the device in another copy, to pinned memory, while the next batch is encoded. All work runs on one stream, in the order
//! of the calls: a ring may be filled again as soon as the work that reads it was launched.

mod batch;
mod encoded;
mod encoder;
mod image_library;
mod image_source;
mod nvcomp_slots;
mod overview;
mod path;
mod plan;
mod rows;
mod statistics;
mod tile_format;
mod tile_slots;

pub use encoded::{EncodedBatch, EncodedTile, PendingTiles};
pub use encoder::Encoder;
pub use path::{EncodePath, PIECE_LEN, choose_encode_path};
pub use plan::{EncodePlan, LevelSpec, Shrinks, Slots};
/// What tiles hold beyond the edge of the image.
pub use swath_codec::pre::Edge;
pub use tile_format::TileFormat;

pub use crate::driver::launch::take::DeviceRows;
