//! One file per compression.

pub mod ccitt;
pub mod deflate;
mod effort;
pub mod jpeg;
#[cfg(any(feature = "jpeg2000", feature = "jpeg2000-write"))]
pub mod jpeg2000;
#[cfg(feature = "jpegxl")]
pub mod jpegxl;
#[cfg(feature = "lerc")]
pub mod lerc;
#[cfg(feature = "lz4")]
pub mod lz4;
#[cfg(feature = "lzma")]
pub mod lzma;
pub mod lzw;
pub mod lzw_encode;
pub mod none;
pub mod packbits;
pub mod packbits_encode;
#[cfg(feature = "webp")]
pub mod webp;
pub mod zstd;

pub(crate) mod testing;
