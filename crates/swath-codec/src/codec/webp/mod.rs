//! WebP (compression 50001).
//!
//! One of the two C libraries that this crate binds itself (OpenJPEG is the other). Decoding is two calls into libwebp: both read
//! a slice, and one writes into a slice of known length. Encoding copies a slice into a picture that libwebp owns, and receives
//! the output in pieces.

mod decode;
mod encode;

pub use encode::encoder;

/// Name of the codec in errors.
const NAME: &str = "WebP";

/// WebP, lossy and lossless.
#[derive(Debug, Clone, Copy)]
pub struct WebP;
