//! GPUs: the device itself, rasters in its memory, and what a read or a write did on it.
//!
//! A read or a write uses a GPU when its options ask for one ([`Mode`](crate::Mode)). The engine looks for the CUDA driver when a
//! program first asks; nothing has to be installed to build or to run without one.
//!
//! ```no_run
//! # fn main() -> Result<(), swath::Error> {
//! use swath::{Dataset, Mode, ReadOptions};
//!
//! let options = ReadOptions::default().with_device(Mode::Cuda).with_max_device_memory(2 << 30);
//! let raster = Dataset::open("scene.tif")?.read_device(&options)?; // a DeviceRaster
//! let array = raster.cuda_array()?; // for CuPy and others; raster.dlpack() for PyTorch
//! println!("{:?} at {:#x}: {:?}", array.shape, array.address, raster.report().counters);
//! # Ok(()) }
//! ```

pub use crate::{
    device::{DeviceReport, default_gpu},
    raster::device::{CudaArray, DeviceRaster},
    write::DeviceSamples,
};
pub use swath_cuda::{
    Axes, Counters, DeviceBuffer, DeviceError, DeviceFacts, DeviceRows, Driver, ForeignArray, Gpu, GpuOptions,
    KernelCode, StorageMethod, TileStatus,
    decode::KernelTimes,
    dlpack, offer_libraries,
    probe::{Survey, survey},
    transfer::{CopySpeeds, copy_speeds},
};
