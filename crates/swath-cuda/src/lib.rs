//! Everything in swath that knows CUDA. It links to nothing: the driver, the libraries and the device are looked for when the
//! program runs, and each that is missing is a reason a person can read.
//!
//! Device code sees batches of tiles, never files: [`decode::Decoder`] is handed compressed tiles and placements, and leaves
//! samples in one device buffer.

pub mod band;
mod code;
pub mod counters;
pub mod decode;
pub mod encode;
pub mod error;
mod ffi;
pub mod gpu;
mod nvcomp_bench;
mod pictures;
pub mod press;
pub mod probe;
mod ring;
pub mod rule;
mod shrink;
pub mod status;
pub mod upload;

pub use code::KernelCode;
pub use counters::{Counters, Meter};
pub use error::DeviceError;
pub use ffi::{
    dlpack,
    driver::{DeviceFacts, Driver},
    encoding::DeviceRows,
    foreign::{Axes, ForeignArray},
    landing::{Landed, Landing},
    library::offer_libraries,
    memory::{Chunk, DeviceBuffer},
    storage::{FilePart, Flight, Missed, StorageWay, Submission},
    streams::{HostTile, Mark},
};
pub use gpu::{Gpu, GpuOptions};
pub use status::TileStatus;

/// Bytes of a pinned chunk.
pub const CHUNK: usize = ffi::memory::CHUNK;
