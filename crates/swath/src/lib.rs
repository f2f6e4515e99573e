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

mod cancel;
mod convert;
mod describe;
mod device;
mod error;
mod fetch;
mod metadata;
pub mod names;
mod open;
mod raster;
mod read;
mod state;
mod statistics;
mod threads;
mod validate;
mod write;

pub use cancel::Cancel;
pub use convert::{ConvertOptions, Converted, cast::Scale};
pub use describe::{describe, describe_devices, facts, mask::MaskKind, number};
pub use device::{DeviceReport, Mode, default_gpu};
pub use error::{Error, ErrorKind};
pub use metadata::{Band, Georeference, Metadata};
pub use open::{
    OpenOptions,
    dataset::{Dataset, Overview},
    image::{Image, Role},
};
pub use raster::{
    Interleave, Raster,
    device::{CudaArray, DeviceRaster},
};
pub use read::{ColorView, ReadOptions};
pub use statistics::{BandStatistics, OnSamples, Statistics, StatisticsOptions, pieces, samples, statistics};
pub use swath_codec::encode::LercWrap;
pub use swath_codec::registry::{Listing, Registry};
pub use swath_cuda::{
    Axes, Counters, DeviceBuffer, DeviceError, DeviceFacts, DeviceRows, Driver, ForeignArray, Gpu, GpuOptions,
    KernelCode, StorageMethod, TileStatus,
    decode::KernelTimes,
    dlpack, offer_libraries,
    probe::{Survey, survey},
};
pub use swath_io::remote::abandon_uploads;
pub use swath_io::sink::{path::write as write_file, unfinished::abandon_unfinished};
pub use swath_io::{
    Access, FileSink, FileSource, Memory, MemorySink, MemorySource, Origin, ReadInto, RemoteFault, RemoteOptions,
    RemoteSource, Sink, SinkError, Source, SourceError, StreamSink, Traffic, fork, remote,
};
pub use swath_raster::{memory::Buffer, shrink::Resampling};
pub use swath_tiff::{
    Compression, Grid, Limits, Photometric, Place, SampleFormat, SampleType, TiffError, Window, geo, structure, tag,
};
pub use validate::{BlockSummary, Check, Level, Report, validate};
pub use write::{
    Alpha, BigTiff, Blocks, DeviceSamples, EncodedTileRows, OnProgress, Overviews, Progress, Rows, Shape,
    TileRowEncoder, WriteOptions, Writer, Written,
};
