//! What happens to samples after decompression: predictor, byte order, bit unpacking, and the way to their place.

pub mod place;
pub mod predictor;
pub mod unpack;
pub mod ycbcr;

pub use place::{Decoded, fix_in_place, place};
