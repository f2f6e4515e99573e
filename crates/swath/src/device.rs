//! Which device works, and what it reports.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use swath_cuda::{Counters, DeviceError, Gpu, GpuOptions, decode::KernelTimes};
use swath_io::fork::{self, PerProcess};

/// Share of the free device memory that a read or a write may use by default. The rest is for other users of the GPU.
const SHARE: (u64, u64) = (4, 5);

/// The requested device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A GPU if there is one that can do the work; else the CPU, with a notice in the report.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// A CUDA GPU, or an error that says why it cannot be used.
    Cuda,
}

/// The options of a read or a write about GPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceOptions {
    pub(crate) mode: Option<Mode>,
    pub(crate) gpu: Option<Arc<Gpu>>,
    pub(crate) max_memory: Option<u64>,
    pub(crate) trust_input: Option<bool>,
    pub(crate) cpu_decode: Option<bool>,
    pub(crate) timed: Option<bool>,
}

impl DeviceOptions {
    /// Fills unset options from `defaults`.
    pub(crate) fn or(self, defaults: &Self) -> Self {
        Self {
            mode: self.mode.or(defaults.mode),
            gpu: self.gpu.or_else(|| defaults.gpu.clone()),
            max_memory: self.max_memory.or(defaults.max_memory),
            trust_input: self.trust_input.or(defaults.trust_input),
            cpu_decode: self.cpu_decode.or(defaults.cpu_decode),
            timed: self.timed.or(defaults.timed),
        }
    }

    pub(crate) fn open(&self) -> Result<Arc<Gpu>, DeviceError> {
        swath_cuda::start_threads_in(|| Box::new(fork::Turn::wait()));
        self.gpu.clone().map_or_else(default_gpu, Ok)
    }

    /// The GPU that the mode asks for. Under [`Mode::Auto`] it may be missing; then the second value says why.
    ///
    /// # Errors
    /// When [`Mode::Cuda`] asks for a GPU and there is none.
    pub(crate) fn open_if_wanted(&self) -> Result<(Option<Arc<Gpu>>, Option<DeviceError>), DeviceError> {
        let mode = self.mode.unwrap_or_default();
        if mode == Mode::Cpu {
            return Ok((None, None));
        }
        match self.open() {
            Ok(gpu) => Ok((Some(gpu), None)),
            Err(error) if mode == Mode::Auto => Ok((None, Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Bytes of device memory that a read or a write may take now.
    pub(crate) fn memory_budget(&self, gpu: &Gpu) -> Result<u64, DeviceError> {
        let available = gpu.available()?;
        Ok(match self.max_memory {
            Some(bytes) => bytes.min(available),
            None => available / SHARE.1 * SHARE.0,
        })
    }
}

/// The default GPU: the first, opened on first use.
///
/// # Errors
/// When there is none, or a parent process opened it; later calls return the same error.
pub fn default_gpu() -> Result<Arc<Gpu>, DeviceError> {
    type Opened = Mutex<Option<Result<Arc<Gpu>, DeviceError>>>;
    static OPENED: PerProcess<Opened> = PerProcess::new();
    /// One more than the generation of the process that opened it, or is about to.
    static OPENER: AtomicU64 = AtomicU64::new(0);
    let mut opened = OPENED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(result) = &*opened {
        return result.clone();
    }
    let ours = fork::generation() + 1;
    let result = match OPENER.load(Ordering::Relaxed) {
        opener if opener != 0 && opener != ours => Err(DeviceError::forked()),
        _ => {
            OPENER.store(ours, Ordering::Relaxed);
            Gpu::open(&GpuOptions::default())
        }
    };
    if result.is_err() && OPENER.load(Ordering::Relaxed) == ours {
        OPENER.store(0, Ordering::Relaxed);
    }
    *opened = Some(result.clone());
    result
}

/// What a GPU did for a read or a write, and what that cost.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The GPU; empty where none was used.
    pub device: String,
    /// Counters of the GPU.
    pub counters: Counters,
    /// Tiles that were decoded or compressed by the GPU.
    pub device_tiles: u64,
    /// Tiles that were decoded or compressed by the CPU.
    pub host_tiles: u64,
    /// Pieces of tiles that were decoded by the GPU side by side, of tiles that have several.
    pub pieces: u64,
    /// Batches that the work was cut into to fit in memory.
    pub batches: u32,
    /// How bytes of the file got to the device: `pinned copies`, `cuFile, GPUDirect`, `cuFile, compatibility mode`, or
    /// `host memory` where a library of NVIDIA reads them there itself.
    pub storage: &'static str,
    /// Notices of fallbacks, one line each.
    pub notices: Vec<String>,
    /// Times of the kernels, where requested.
    pub kernels: Option<KernelTimes>,
}

impl DeviceReport {
    /// Adds another report.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.counters, &other.counters);
        sum.buffers += more.buffers;
        sum.allocations += more.allocations;
        sum.allocated_bytes += more.allocated_bytes;
        sum.pinned_allocations += more.pinned_allocations;
        sum.uploads += more.uploads;
        sum.uploaded_bytes += more.uploaded_bytes;
        sum.downloads += more.downloads;
        sum.downloaded_bytes += more.downloaded_bytes;
        sum.launches += more.launches;
        sum.synchronisations += more.synchronisations;
        sum.library_waits += more.library_waits;
        sum.uploads_before_first_wait += more.uploads_before_first_wait;
        sum.peak_bytes = sum.peak_bytes.max(more.peak_bytes);
        sum.storage_reads += more.storage_reads;
        sum.storage_waits += more.storage_waits;
        sum.storage_bytes += more.storage_bytes;
        if let Some(more) = &other.kernels {
            let times = self.kernels.get_or_insert_default();
            times.decode_ms += more.decode_ms;
            times.place_ms += more.place_ms;
        }
        if self.device.is_empty() {
            self.device.clone_from(&other.device);
        }
        if self.storage.is_empty() {
            self.storage = other.storage;
        }
        self.device_tiles += other.device_tiles;
        self.host_tiles += other.host_tiles;
        self.pieces += other.pieces;
        self.batches += other.batches;
        for notice in &other.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
    }
}
