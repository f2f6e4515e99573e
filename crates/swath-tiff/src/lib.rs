//! The TIFF, BigTIFF, GeoTIFF and COG format, as pure functions over bytes.
//!
//! Nothing here does I/O, starts a thread or decodes a pixel. A parser takes the bytes that are loaded
//! ([`structure::Bytes`]) and returns a value, a [`TiffError`], or the byte range that it still needs.
#![forbid(unsafe_code)]

mod compression;
pub mod error;
pub mod geo;
pub mod grid;
mod limits;
mod photometric;
mod place;
mod sample;
pub mod structure;
pub mod tag;
mod window;

pub use compression::Compression;
pub use error::TiffError;
pub use grid::{Cell, Grid};
pub use limits::Limits;
pub use photometric::Photometric;
pub use place::Place;
pub use sample::{SampleFormat, SampleType};
pub use window::Window;
