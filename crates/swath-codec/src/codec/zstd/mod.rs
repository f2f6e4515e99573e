//! Zstandard (compression 50000).

mod decode;
mod encode;

#[cfg(feature = "lerc")]
pub(crate) use decode::context;
pub use encode::encoder;
#[cfg(feature = "lerc")]
pub(crate) use encode::{bound, compress, compress_at, level};

/// Name of the codec in errors.
const NAME: &str = "Zstd";

/// Zstandard.
#[derive(Debug, Clone, Copy)]
pub struct Zstd;
