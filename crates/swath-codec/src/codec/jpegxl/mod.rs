//! JPEG XL in each tile (compression 50002 as GDAL first numbered it, 52546 as DNG 1.7 does).
//!
//! Samples are the colour channels, then the extra channels in their order, in the colour space of the file, so that lossless
//! streams decode exactly.

mod decode;

pub use decode::JpegXl;
