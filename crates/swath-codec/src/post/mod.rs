//! The steps after decompression: predictor, byte order, bit unpacking, colour, and copying samples to the output.

pub mod place;
pub mod unpack;
pub mod ycbcr;

pub use place::{Decoded, Take, fix_in_place, place};
