//! LZ4 (compression 50004).
//!
//! The compression number is not registered, and neither libtiff, GDAL nor tifffile know it. xarray-spatial writes it, with an
//! LZ4 frame in each tile. Bare blocks are the obvious alternative, and GPU libraries write them. The decoder reads both and
//! cannot confuse them: a block that began with a frame's magic number would copy from before its first byte.

mod decode;
mod encode;

pub use encode::encoder;

/// Name of the codec in errors.
const NAME: &str = "LZ4";

/// LZ4, as a frame or as a bare block.
#[derive(Debug, Clone, Copy)]
pub struct Lz4;
