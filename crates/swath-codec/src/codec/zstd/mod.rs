//! Zstandard (compression 50000).

mod decode;
mod encode;

#[cfg(feature = "lerc")]
pub(crate) use decode::context;
pub use encode::encoder;
#[cfg(feature = "lerc")]
pub(crate) use encode::{bound, compress, compress_at, level, working_len};

/// Name of the codec in errors.
const NAME: &str = "Zstd";

/// Approximate size of a context.
const CONTEXT: u64 = 160 << 10;

/// Whether a code of the library means that it got no memory (`ZSTD_error_memory_allocation`, a negative number as `size_t`).
pub(crate) fn is_memory(code: usize) -> bool {
    code == 64_usize.wrapping_neg()
}

/// Zstandard.
#[derive(Debug, Clone, Copy)]
pub struct Zstd;
