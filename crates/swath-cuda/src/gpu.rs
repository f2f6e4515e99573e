//! An open GPU: a context, and the memory, streams and kernels that are pooled in it.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        driver::{Context, DeviceFacts, Driver},
        library::Search,
        memory::{DeviceBuffer, Memory},
        nvcomp::Nvcomp,
    },
};

/// Which GPU to open, and where to look for what it needs.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    pub(crate) ordinal: i32,
    pub(crate) driver: Option<PathBuf>,
    pub(crate) libraries: Vec<PathBuf>,
}

impl GpuOptions {
    /// Another device than the first, as CUDA counts.
    pub fn with_ordinal(mut self, ordinal: i32) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// The driver's library, instead of the one that the system finds.
    pub fn with_driver(mut self, path: impl Into<PathBuf>) -> Self {
        self.driver = Some(path.into());
        self
    }

    /// A folder in which NVIDIA's optional libraries are looked for before the system's.
    pub fn with_libraries(mut self, folder: impl Into<PathBuf>) -> Self {
        self.libraries.push(folder.into());
        self
    }
}

/// An open GPU. Threads share it; its memory is pooled from read to read.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) memory: Arc<Memory>,
    search: Search,
    nvcomp: OnceLock<Result<Nvcomp, String>>,
}

impl Gpu {
    /// Opens a GPU by its primary context, which CuPy and PyTorch use too.
    ///
    /// # Errors
    /// When there is no driver, it is too old, or there is no such device.
    pub fn open(options: &GpuOptions) -> Result<Arc<Self>, DeviceError> {
        let driver = Driver::load(options.driver.as_deref())?;
        let context = Context::primary(driver, options.ordinal)?;
        Ok(Self::with(context, options))
    }

    fn with(context: Context, options: &GpuOptions) -> Arc<Self> {
        let search = Search { folders: options.libraries.clone() };
        Arc::new(Self { memory: Memory::new(context), search, nvcomp: OnceLock::new() })
    }

    /// nvCOMP, looked for when first asked for.
    pub(crate) fn nvcomp(&self) -> Result<&Nvcomp, DeviceError> {
        let found = self.nvcomp.get_or_init(|| Nvcomp::load(&self.search).map_err(|absent| absent.to_string()));
        found.as_ref().map_err(|reason| DeviceError::Declined(reason.clone()))
    }

    /// Whether nvCOMP is there.
    ///
    /// # Errors
    /// Why it is not.
    pub fn has_nvcomp(&self) -> Result<(), DeviceError> {
        self.nvcomp().map(|_| ())
    }

    /// Uses a context that the caller made.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    ///
    /// # Safety
    /// `context` is a live `CUcontext` that outlives the returned value and every buffer made with it.
    #[allow(unsafe_code, reason = "only the caller knows how long the context lives")]
    pub unsafe fn from_context(
        context: *mut std::ffi::c_void,
        options: &GpuOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        let driver = Driver::load(options.driver.as_deref())?;
        // SAFETY: as the caller promises.
        let context = unsafe { Context::borrowed(driver, context) }?;
        Ok(Self::with(context, options))
    }

    /// What the device is.
    pub fn facts(&self) -> &DeviceFacts {
        &self.memory.context.facts
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.memory.context.driver
    }

    /// Device memory that a read could take: free, or free in our pool.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn available(&self) -> Result<u64, DeviceError> {
        self.memory.available()
    }

    /// Free and total memory of the device.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn free_and_total(&self) -> Result<(u64, u64), DeviceError> {
        self.memory.context.memory()
    }

    /// Gives pooled device memory that nobody uses back to the driver.
    pub fn trim(&self) {
        self.memory.trim();
    }

    /// The context as the driver knows it.
    pub fn context(&self) -> *mut std::ffi::c_void {
        self.memory.context.raw()
    }

    /// A device buffer of `len` bytes whose content is whatever was there.
    ///
    /// # Errors
    /// When the device has not that much memory.
    pub fn buffer(&self, len: usize, meter: &Arc<Meter>) -> Result<DeviceBuffer, DeviceError> {
        self.memory.buffer(len, meter)
    }
}
