//! Writing: rows in, a whole file out, in bounded memory.
//!
//! ```no_run
//! # fn main() -> Result<(), swath::Error> {
//! use swath::{Metadata, Rows, SampleType, Shape, WriteOptions, Writer};
//!
//! let shape = Shape { width: 4096, height: 4096, bands: 1, sample: SampleType::U16 };
//! let mut writer = Writer::create("out.tif", shape, &Metadata::default(), &WriteOptions::cog())?;
//! for _ in 0..4096 {
//!     writer.push(&Rows::pixels(&[0_u16; 4096]))?;
//! }
//! writer.finish()?;
//! # Ok(()) }
//! ```

mod blocks;
mod canvas;
mod cell_set;
mod cells;
mod choosing;
mod device;
mod device_rows;
mod encoded;
mod head;
mod host_rows;
mod input;
mod join;
mod layout;
mod level_writer;
mod levels;
mod memory;
mod options;
mod plan;
mod predictor;
mod progress;
mod rectangles;
mod row_store;
mod shared_sink;
mod shrinks;
mod spilled_rows;
mod step;
mod tags;
mod tile_rows;
mod writer;

pub use crate::names::PredictorRule;
pub use device::samples::DeviceSamples;
pub use encoded::EncodedTileRows;
pub use input::Rows;
pub(crate) use memory::least_memory;
pub use options::{Alpha, BigTiff, Blocks, OnProgress, Overviews, Progress, Shape, WriteOptions};
pub use predictor::PredictorChoice;
pub use swath_raster::shrink::Resampling;
pub use tile_rows::TileRowEncoder;
pub use writer::{Writer, Written};
