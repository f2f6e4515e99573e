//! Samples in memory: buffers for them, their statistics, and smaller versions of them (overviews).
//!
//! Nothing here knows files or codecs.

pub mod half;
pub mod memory;
pub mod moments;
pub mod shrink;
pub mod simd;
