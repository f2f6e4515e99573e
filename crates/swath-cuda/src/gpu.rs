//! An open GPU: its context, and the memory, streams and kernels that are pooled in it.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use crate::{
    driver::{
        context::Context,
        cuda::{DeviceFacts, Driver},
        libraries::{
            cufile::{self, CuFile, system},
            load::Search,
            nvcomp::Nvcomp,
            registry::Libraries,
        },
        memory::pool::Memory,
        storage::StorageMethod,
    },
    error::DeviceError,
    kernel_code::KernelCode,
};

/// Which GPU to open, and where to look for the driver and the libraries.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    pub(crate) ordinal: i32,
    pub(crate) driver: Option<PathBuf>,
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) cufile: Option<bool>,
    pub(crate) storage_method: Option<StorageMethod>,
    pub(crate) ptx: bool,
}

impl GpuOptions {
    /// Sets the number of the device, as CUDA counts. The default is 0.
    pub fn with_ordinal(mut self, ordinal: i32) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// Sets the driver's library file. By default the system finds it.
    pub fn with_driver(mut self, path: impl Into<PathBuf>) -> Self {
        self.driver = Some(path.into());
        self
    }

    /// Adds a folder that is searched for NVIDIA's optional libraries before the system's folders.
    pub fn with_libraries(mut self, folder: impl Into<PathBuf>) -> Self {
        self.libraries.push(folder.into());
        self
    }

    /// Sets whether cuFile reads files. By default cuFile reads where it has GPUDirect, which bypasses the host. `true`
    /// also allows its compatibility mode, which copies through host memory and is slower than our own copies. The
    /// variable `SWATH_CUFILE` (`always` or `never`) sets the default.
    pub fn with_cufile(mut self, used: bool) -> Self {
        self.cufile = Some(used);
        self
    }

    /// Sets the calls of cuFile that are tried first, for comparisons and tests. Where cuFile refuses them, the next
    /// ones follow. `SWATH_CUFILE` (`batch`, `async`, `threads` or `serial`) sets the default.
    pub fn with_storage_method(mut self, method: StorageMethod) -> Self {
        self.storage_method = Some(method);
        self
    }

    /// Makes the driver compile the kernels from PTX, even where there is machine code for the chip. The variable
    /// `SWATH_CUDA_KERNELS=ptx` does the same.
    pub fn with_ptx(mut self, wanted: bool) -> Self {
        self.ptx = wanted;
        self
    }

    /// Returns the form in which a device gets the kernels.
    pub(crate) fn kernel_code(&self, facts: &DeviceFacts) -> KernelCode {
        let wanted = self.ptx || std::env::var_os(KERNELS_VARIABLE).is_some_and(|value| value == "ptx");
        KernelCode::choose(facts.capability, wanted)
    }
}

/// The variable with the defaults for cuFile: words separated by commas.
const CUFILE_VARIABLE: &str = "SWATH_CUFILE";
/// The variable that chooses PTX.
const KERNELS_VARIABLE: &str = "SWATH_CUDA_KERNELS";

/// Parses the variable: whether cuFile is used, and which calls come first. Unknown words are ignored.
fn cufile_words(text: &str) -> (Option<bool>, Option<StorageMethod>) {
    let (mut used, mut method) = (None, None);
    for word in text.split(',').map(str::trim) {
        match word {
            "always" => used = Some(true),
            "never" => used = Some(false),
            "batch" => method = Some(StorageMethod::Batch),
            "async" => method = Some(StorageMethod::Async),
            "threads" => method = Some(StorageMethod::Threads),
            "serial" => method = Some(StorageMethod::Serial),
            _ => {}
        }
    }
    (used, method)
}

/// A file that the device reads itself.
#[derive(Debug)]
pub struct DirectFile {
    pub(crate) file: Arc<cufile::Registered>,
    /// The calls that are tried first.
    pub(crate) method: StorageMethod,
    mode: cufile::Mode,
}

impl DirectFile {
    /// Returns how the file's bytes reach the device, as reports word it.
    pub fn storage(&self) -> &'static str {
        match self.mode {
            cufile::Mode::Direct => "cuFile, GPUDirect",
            _ => "cuFile, compatibility mode",
        }
    }

    /// Whether reads are made one after the other.
    pub fn is_serial(&self) -> bool {
        self.method == StorageMethod::Serial
    }
}

/// An open GPU. Threads share it. Its memory is pooled from read to read.
#[derive(Debug)]
pub struct Gpu {
    /// The setting for cuFile, from the caller or the variable.
    cufile_wanted: Option<bool>,
    storage_method: StorageMethod,
    // Declared before the memory, so that it closes while the context is alive.
    cufile: OnceLock<Result<(cufile::Driver, cufile::Mode), String>>,
    nvcomp: OnceLock<Result<Nvcomp, String>>,
    pub(crate) memory: Arc<Memory>,
}

impl Gpu {
    /// Opens a GPU with its primary context, which CuPy and PyTorch use too.
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
        let (used, method) = std::env::var(CUFILE_VARIABLE).map_or((None, None), |words| cufile_words(&words));
        let code = options.kernel_code(&context.facts);
        Arc::new(Self {
            memory: Memory::new(context, Libraries::new(search), code),
            nvcomp: OnceLock::new(),
            cufile_wanted: options.cufile.or(used),
            storage_method: options.storage_method.or(method).unwrap_or_default(),
            cufile: OnceLock::new(),
        })
    }

    /// Returns nvCOMP; the first call looks for it.
    pub(crate) fn nvcomp(&self) -> Result<&Nvcomp, DeviceError> {
        let found = self
            .nvcomp
            .get_or_init(|| Nvcomp::load(self.memory.libraries.search()).map_err(|absent| absent.to_string()));
        found.as_ref().map_err(|reason| DeviceError::Declined(reason.clone()))
    }

    /// Checks that nvCOMP is there.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn has_nvcomp(&self) -> Result<(), DeviceError> {
        self.nvcomp().map(|_| ())
    }

    /// Checks that nvJPEG is there and works on this device.
    ///
    /// # Errors
    /// The reason why it is not or does not.
    pub fn has_nvjpeg(&self) -> Result<(), DeviceError> {
        self.memory.libraries.jpeg(&self.memory.context).map(|_| ())
    }

    /// Checks that nvJPEG2000 is there and works on this device.
    ///
    /// # Errors
    /// The reason why it is not or does not.
    pub fn has_nvjpeg2000(&self) -> Result<(), DeviceError> {
        self.memory.libraries.jpeg2000(&self.memory.context).map(|_| ())
    }

    /// Opens a file for direct reads. Returns `None` where cuFile would not be direct and the caller did not ask for
    /// it.
    ///
    /// # Errors
    /// The reason why cuFile does not read the file, where the caller asked for cuFile.
    pub fn direct_file(&self, file: &File) -> Result<Option<DirectFile>, DeviceError> {
        if self.cufile_wanted == Some(false) {
            return Ok(None);
        }
        let opened = self.cufile.get_or_init(|| self.open_cufile());
        let asked = self.cufile_wanted == Some(true);
        let (driver, mode) = match opened {
            Ok((driver, mode)) if asked || *mode == cufile::Mode::Direct => (driver, *mode),
            Err(reason) if asked => return Err(DeviceError::Declined(reason.clone())),
            _ => return Ok(None),
        };
        let registered = system::for_reading(file, mode == cufile::Mode::Direct).and_then(|file| {
            let _current = self.memory.context.enter().map_err(|error| error.to_string())?;
            driver.register(file).map_err(|error| error.to_string())
        });
        match registered {
            Ok(file) => Ok(Some(DirectFile { file: Arc::new(file), method: self.storage_method, mode })),
            Err(reason) if asked => Err(DeviceError::Declined(reason)),
            Err(_) => Ok(None),
        }
    }

    fn open_cufile(&self) -> Result<(cufile::Driver, cufile::Mode), String> {
        // Loading the library would only delay the first read.
        if self.cufile_wanted != Some(true) && !system::may_be_direct() {
            return Err("the module nvidia-fs is not loaded".into());
        }
        let search = self.memory.libraries.search();
        let mode = match CuFile::survey(search) {
            (cufile::Mode::Absent, reason) => return Err(reason),
            // Opening the driver takes a while and leaves a log file behind: only where the caller asked for cuFile.
            (cufile::Mode::Compatibility, reason) if self.cufile_wanted != Some(true) => return Err(reason),
            (mode, _) => mode,
        };
        let _current = self.memory.context.enter().map_err(|error| error.to_string())?;
        let library = CuFile::load(search).map_err(|absent| absent.to_string())?;
        let driver = library.open_driver().map_err(|error| error.to_string())?;
        Ok((driver, mode))
    }

    /// Uses a context that the caller made.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    ///
    /// # Safety
    /// `context` is a live `CUcontext` that outlives the returned value and every buffer made with it.
    #[allow(unsafe_code, reason = "only the caller knows how long the context lives")]
    pub unsafe fn from_context(context: *mut std::ffi::c_void, options: &GpuOptions) -> Result<Arc<Self>, DeviceError> {
        let driver = Driver::load(options.driver.as_deref())?;
        // SAFETY: as the caller promises.
        let context = unsafe { Context::borrowed(driver, context) }?;
        Ok(Self::with(context, options))
    }

    /// Returns what the device is.
    pub fn facts(&self) -> &DeviceFacts {
        &self.memory.context.facts
    }

    /// Returns the form in which the device gets kernels. It becomes PTX when the driver refuses machine code.
    pub fn kernel_code(&self) -> KernelCode {
        self.memory.kernel_code()
    }

    /// Takes the notice that the driver refused machine code. Only the first call after the refusal gets it.
    pub fn take_notice(&self) -> Option<String> {
        self.memory.take_notice()
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Driver {
        &self.memory.context.driver
    }

    /// Returns the bytes of device memory that a read could take: free on the device, or free in our pool.
    ///
    /// # Errors
    /// When the driver fails to report it.
    pub fn available(&self) -> Result<u64, DeviceError> {
        self.memory.available()
    }

    /// Returns unused pooled device memory to the driver.
    pub fn trim(&self) {
        self.memory.trim();
    }

    /// Returns the driver's handle of the context.
    pub fn context(&self) -> *mut std::ffi::c_void {
        self.memory.context.raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_takes_its_words_in_any_order() {
        assert_eq!(cufile_words("always"), (Some(true), None));
        assert_eq!(cufile_words("never"), (Some(false), None));
        assert_eq!(cufile_words("serial, always"), (Some(true), Some(StorageMethod::Serial)));
        assert_eq!(cufile_words("always,async"), (Some(true), Some(StorageMethod::Async)));
        assert_eq!(cufile_words("threads"), (None, Some(StorageMethod::Threads)));
        assert_eq!(cufile_words("always,,perhaps,batch"), (Some(true), Some(StorageMethod::Batch)));
        assert_eq!(cufile_words(""), (None, None));
    }
}
