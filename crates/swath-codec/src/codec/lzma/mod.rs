//! LZMA2 in an xz container (compression 34925).

mod decode;
mod encode;

pub use encode::encoder;

/// Name of the codec in errors.
const NAME: &str = "LZMA";

/// LZMA2 in an xz container. libtiff's delta filter is part of the container.
#[derive(Debug, Clone, Copy)]
pub struct Lzma;
