//! Everything in swath that knows CUDA. The crate links to no CUDA library: it looks for the driver, the libraries and
//! the device at run time. Each one that is missing becomes an error with a reason that users can read.
//!
//! Device code sees batches of tiles, never files: the caller gives [`decode::Decoder`] compressed tiles and
//! placements, and the decoder leaves the samples in one device buffer.

pub mod counters;
pub mod decode;
mod driver;
pub mod encode;
pub mod error;
pub mod gpu;
mod kernel_code;
pub mod probe;
pub mod summary;
mod threads;
pub mod transfer;

pub use counters::{Counters, Meter};
pub use decode::TileStatus;
pub use driver::{
    cuda::{DeviceFacts, Driver},
    dlpack,
    foreign::{Axes, ForeignArray},
    launch::take::DeviceRows,
    libraries::{cufile::FileRead, load::offer_libraries},
    memory::{
        pool::{DeviceBuffer, PinnedChunk},
        readback::{PinnedBytes, Readback},
        streams::{Event, HostTile},
    },
    storage::{FailedRead, ReadsInFlight, StorageMethod, Submission},
};
pub use error::DeviceError;
pub use gpu::{Gpu, GpuOptions};
pub use kernel_code::KernelCode;
pub use threads::start_threads_in;

/// Bytes of a [`PinnedChunk`].
pub const CHUNK_LEN: usize = driver::memory::pool::CHUNK_LEN;
