//! The codecs, a folder for each: `mod.rs` has the codec and its constants, `decode` reads it, `encode` writes it.

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
pub mod none;
pub mod packbits;
#[cfg(feature = "webp")]
pub mod webp;
pub mod zstd;

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod testing;
