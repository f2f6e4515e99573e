//! What happens to samples before compression: cutting tiles out of rows, predictor, byte order, bit packing.

pub mod cut;
pub mod moments;
pub mod pack;
pub mod predict;

pub use cut::{Arrangement, Edge, Rows, cut};
