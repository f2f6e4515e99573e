//! Deflate in a zlib frame (compressions 8 and 32946).

mod decode;
mod encode;

#[cfg(feature = "lerc")]
pub(crate) use decode::inflater;
pub use encode::encoder;
#[cfg(feature = "lerc")]
pub(crate) use encode::{bound, compress, level};

/// Name of the codec in errors.
const NAME: &str = "Deflate";

/// Deflate in a zlib frame.
#[derive(Debug, Clone, Copy)]
pub struct Deflate;
