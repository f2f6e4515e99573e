//! GeoTIFF and COG, read and written as fast as the hardware allows.
//!
//! A file is opened as a [`Dataset`], read into a [`Raster`], and written by a [`Writer`] or by [`Dataset::convert`]:
//!
//! ```
//! # fn main() -> Result<(), swath::Error> {
//! use swath::{Dataset, Metadata, ReadOptions, Rows, SampleType, Shape, Window, WriteOptions, Writer};
//! # let path = std::env::temp_dir().join(format!("swath-lib-{}.tif", std::process::id()));
//!
//! let shape = Shape { width: 640, height: 480, bands: 1, sample: SampleType::U16 };
//! let mut writer = Writer::create(&path, shape, &Metadata::default(), &WriteOptions::cog())?;
//! for y in 0..480 {
//!     let row: Vec<u16> = (0..640).map(|x| x + y).collect();
//!     writer.push(&Rows::pixels(&row))?;
//! }
//! writer.finish()?;
//!
//! let dataset = Dataset::open(&path)?;
//! let raster = dataset.read(&ReadOptions::default().with_window(Window::new(600, 400, 16, 16)))?;
//! assert_eq!(raster.samples::<u16>()?[0], 1000);
//! # std::fs::remove_file(&path).ok();
//! # Ok(()) }
//! ```
//!
//! The root has what most programs need. The rest is in modules by topic:
//!
//! | module | topic |
//! |---|---|
//! | [`codec`] | which codecs there are |
//! | [`convert`] | from one file to another |
//! | [`describe`] | files and devices as JSON documents |
//! | [`geo`] | reference systems, transforms, control points, nodata |
//! | [`gpu`] | GPUs, rasters in their memory, DLPack |
//! | [`io`] | sources and sinks of bytes; files behind a network |
//! | [`names`] | options by the names that GDAL has for them |
//! | [`read`], [`mod@write`] | the less common options of reads and writes |
//! | [`statistics`] | minimum, maximum, mean and deviation of bands |
//! | [`tiff`] | directories, tags and layout of a file |
//! | [`validate`] | whether a file is a valid COG |
//!
//! `DESIGN.md` says why the engine is built as it is, `PLATFORM.md` what it needs.
#![forbid(unsafe_code)]

mod cancel;
pub mod codec;
pub mod convert;
pub mod describe;
mod device;
mod error;
mod fetch;
pub mod gpu;
pub mod io;
mod metadata;
pub mod names;
mod open;
mod raster;
pub mod read;
mod sample;
mod state;
pub mod statistics;
mod threads;
pub mod tiff;
pub mod validate;
pub mod write;

pub use cancel::Cancel;
#[doc(inline)]
pub use convert::{ConvertOptions, Converted};
pub use device::Mode;
pub use error::{Error, ErrorKind};
pub use metadata::{Band, Georeference, Metadata};
pub use open::{OpenOptions, dataset::Dataset};
pub use raster::{Interleave, Raster};
#[doc(inline)]
pub use read::ReadOptions;
pub use sample::Sample;
pub use swath_tiff::{Compression, Limits, SampleType, Window, geo};
#[doc(inline)]
pub use write::{Blocks, Overviews, Resampling, Rows, Shape, WriteOptions, Writer, Written};

/// The Rust lines of the README files and of the pages in docs/.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../docs/rust.md")]
    mod rust {}
}
