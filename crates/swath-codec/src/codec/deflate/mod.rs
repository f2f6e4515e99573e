//! Deflate in a zlib frame (compressions 8 and 32946).

mod decode;
mod encode;

#[cfg(feature = "lerc")]
pub(crate) use decode::inflater;
pub use encode::encoder;
#[cfg(feature = "lerc")]
pub(crate) use encode::{bound, compress, level, working_len};

use std::panic::{AssertUnwindSafe, catch_unwind};

use swath_raster::memory::is_available;

use crate::error::CodecError;

/// Creates a context of about `len` bytes with a function of a library that panics where it gets no memory.
///
/// # Errors
/// When the system has no memory for it.
fn context<T>(len: u64, make: impl FnOnce() -> T) -> Result<T, CodecError> {
    let made = if is_available(len) { catch_unwind(AssertUnwindSafe(make)).ok() } else { None };
    made.ok_or(CodecError::NoMemory(len))
}

/// Name of the codec in errors.
const NAME: &str = "Deflate";

/// Deflate in a zlib frame.
#[derive(Debug, Clone, Copy)]
pub struct Deflate;
