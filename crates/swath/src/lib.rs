//! GeoTIFF and COG, read and written as fast as the hardware allows.
//!
//! ```no_run
//! # fn main() -> Result<(), swath::Error> {
//! use swath::{Dataset, ReadOptions, Window};
//!
//! let dataset = Dataset::open("scene.tif")?;
//! let window = Window::new(1024, 2048, 512, 512);
//! let raster = dataset.read(&ReadOptions::default().with_window(window).with_bands([1, 2, 3]))?;
//! println!("{} bands of {} samples", raster.bands(), raster.sample());
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod arriving;
mod assemble;
mod backing;
mod cache;
mod camera;
mod cast;
mod color;
mod convert;
mod dataset;
mod describe;
mod device;
mod error;
mod extent;
mod image;
mod job;
mod location;
mod mask;
mod metadata;
pub mod names;
mod open;
mod raster;
mod read;
mod remarks;
mod schedule;
mod sidecar;
mod statistics;
mod strip;
mod tables;
mod validate;
mod windows;
mod write;

pub use cast::Scale;
pub use color::ColorView;
pub use convert::{ConvertOptions, Converted};
pub use dataset::{Dataset, Overview};
pub use describe::{describe, describe_devices, facts, mask::MaskKind, number};
pub use device::{CudaArray, DeviceRaster, DeviceReport, Mode, default_gpu};
pub use error::{Error, ErrorKind};
pub use image::{Image, Role};
pub use metadata::{Band, Georeference, Metadata};
pub use open::OpenOptions;
pub use raster::{Interleave, Raster};
pub use read::{Cancel, ReadOptions};
pub use statistics::{BandStatistics, OnSamples, Statistics, StatisticsOptions, pieces, samples, statistics};
pub use swath_codec::registry::{Listing, Registry};
pub use swath_codec::{encode::LercWrap, memory::Buffer, shrink::Resampling};
pub use swath_cuda::{
    Axes, Counters, DeviceBuffer, DeviceError, DeviceFacts, DeviceRows, Driver, ForeignArray, Gpu, GpuOptions,
    KernelCode, StorageWay, TileStatus,
    decode::KernelTimes,
    dlpack, offer_libraries,
    probe::{Survey, survey},
};
pub use swath_io::sink::{file::write as write_file, object::abandon_uploads, part::abandon_unfinished};
pub use swath_io::{
    Access, FileSink, FileSource, Memory, MemorySink, MemorySource, Origin, ReadInto, RemoteFault, RemoteOptions,
    RemoteSource, Sink, SinkError, Source, SourceError, StreamSink, Traffic, fork, remote,
};
pub use swath_tiff::{
    Compression, Limits, Place, SampleFormat, SampleType, TiffError, Window, geo, plan, structure, words,
};
pub use validate::{BlockSummary, Check, Level, Report, validate};
pub use write::{
    Alpha, BandEncoder, BigTiff, Blocks, DeviceSamples, EncodedBand, OnProgress, Overviews, Progress, Rows, Shape,
    WriteOptions, Writer, Written,
};
