//! The steps before compression: cutting tiles out of rows, and bit packing.

pub mod cut;
pub mod pack;

pub use cut::{Arrangement, Edge, ImageRows, cut};
