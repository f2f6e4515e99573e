//! The TIFF, BigTIFF, GeoTIFF and COG format, as pure functions over bytes.
//!
//! Nothing here does I/O, starts a thread or decodes a pixel. A parser takes the bytes that are at hand
//! ([`structure::Bytes`]) and returns a value, a [`TiffError`], or the byte range it still lacks.
#![forbid(unsafe_code)]

pub mod error;
pub mod geo;
pub mod plan;
pub mod structure;
pub mod words;

pub use error::TiffError;
pub use words::{
    compression::Compression,
    limits::Limits,
    place::Place,
    sample::{SampleFormat, SampleType},
    window::Window,
};
