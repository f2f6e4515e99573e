//! What a caller asks a read for.

use std::sync::Arc;

use swath_cuda::Gpu;
use swath_tiff::Window;

use crate::{
    cancel::Cancel,
    device::{DeviceOptions, Mode},
    raster::Interleave,
};

/// Which samples a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorView {
    /// Samples as they are stored: inks stay inks, planes of YCbCr stay apart. (YCbCr whose samples lie together is another encoding
    /// of RGB, and always becomes RGB.)
    #[default]
    Stored,
    /// As GDAL shows them: CMYK of eight bits as red, green, blue and an opaque alpha, planes of YCbCr as RGB, everything
    /// else as stored.
    Shown,
}

/// What to read. The default is the whole first image with all its bands, one plane for each band.
///
/// ```
/// use swath::{ReadOptions, Window};
///
/// let options = ReadOptions::default().with_window(Window::new(0, 0, 512, 512)).with_bands([3, 2, 1]).with_overview(0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    pub(crate) window: Option<Window>,
    pub(crate) bands: Option<Vec<u32>>,
    pub(crate) overview: Option<usize>,
    pub(crate) page: Option<usize>,
    pub(crate) interleave: Interleave,
    pub(crate) color: ColorView,
    pub(crate) upright: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) device: DeviceOptions,
}

impl ReadOptions {
    /// Only this window, in pixels of the image or overview that is read.
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Only these bands, in this order. Bands are counted from 1, as in GDAL.
    pub fn with_bands(mut self, bands: impl IntoIterator<Item = u32>) -> Self {
        self.bands = Some(bands.into_iter().collect());
        self
    }

    /// An overview instead of the full image: 0 is the largest.
    pub fn with_overview(mut self, level: usize) -> Self {
        self.overview = Some(level);
        self
    }

    /// Another directory of the file instead of the first image, counted from 0 along the chain.
    pub fn with_ifd(mut self, index: usize) -> Self {
        self.page = Some(index);
        self
    }

    /// One plane for each band (the default), or all bands of a pixel together.
    pub fn with_interleave(mut self, interleave: Interleave) -> Self {
        self.interleave = interleave;
        self
    }

    /// Samples as they are stored (the default), or as the colours they stand for.
    pub fn with_color(mut self, color: ColorView) -> Self {
        self.color = color;
        self
    }

    /// Turns the result upright as the Orientation tag says. Georeferenced rasters are upright already; photos may not be.
    pub fn with_upright(mut self, upright: bool) -> Self {
        self.upright = upright;
        self
    }

    /// Threads this read may use.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// The requested decode mode. By default, unless set when the file was opened,
    /// [`Dataset::read`](crate::Dataset::read) uses the CPU and [`Dataset::read_device`](crate::Dataset::read_device) the GPU.
    pub fn with_device(mut self, mode: Mode) -> Self {
        self.device.mode = Some(mode);
        self
    }

    /// The GPU to use; the first by default.
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.device.gpu = Some(gpu);
        self
    }

    /// Device memory a read may use, its result included; 80 % of what is free by default. A read that does not fit at once is done in
    /// batches of tiles.
    pub fn with_max_device_memory(mut self, bytes: u64) -> Self {
        self.device.max_memory = Some(bytes);
        self
    }

    /// Declares the file to be sound, so that a read may use a decoder that corrupt input can hang or crash: NVIDIA's nvCOMP for LZ4.
    /// All other codecs use decoders that withstand corrupt input in any case.
    pub fn with_trust_input(mut self, trusted: bool) -> Self {
        self.device.trust_input = Some(trusted);
        self
    }

    /// Under [`Mode::Cuda`], lets the CPU decode tiles that the GPU cannot. [`Mode::Auto`] always does.
    pub fn with_cpu_decode(mut self, allowed: bool) -> Self {
        self.device.cpu_decode = Some(allowed);
        self
    }

    /// Times the kernels of a read on a GPU; they then run after the last copy, so the read takes longer.
    pub fn with_kernel_times(mut self, timed: bool) -> Self {
        self.device.timed = Some(timed);
        self
    }

    /// A token that ends the read.
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }
}
