//! An open GPU: a context, and the memory, streams and kernels that are pooled in it.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use crate::{
    code::KernelCode,
    error::DeviceError,
    ffi::{
        cufile::{self, CuFile},
        driver::{Context, DeviceFacts, Driver},
        libraries::Libraries,
        library::Search,
        memory::Memory,
        nvcomp::Nvcomp,
        storage::StorageWay,
    },
};

/// Which GPU to open, and where to look for what it needs.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    pub(crate) ordinal: i32,
    pub(crate) driver: Option<PathBuf>,
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) cufile: Option<bool>,
    pub(crate) storage_way: Option<StorageWay>,
    pub(crate) ptx: bool,
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

    /// Whether files are read by cuFile. Unless told, they are where that is GPUDirect, which leaves the host out; told
    /// to, also in cuFile's compatibility mode, which goes by way of host memory and is slower than our own copies. The
    /// variable `SWATH_CUFILE` (`always` or `never`) says the same for programs that do not ask.
    pub fn with_cufile(mut self, used: bool) -> Self {
        self.cufile = Some(used);
        self
    }

    /// The calls of cuFile that are tried first; those behind them follow where cuFile refuses these. For comparisons and
    /// tests: unless told, the best that there are. `SWATH_CUFILE` (`batch`, `async`, `threads` or `serial`) says the same.
    pub fn with_storage_way(mut self, way: StorageWay) -> Self {
        self.storage_way = Some(way);
        self
    }

    /// Has the driver compile the kernels from PTX, also where there is machine code for the chip. The variable
    /// `SWATH_CUDA_KERNELS=ptx` does the same.
    pub fn with_ptx(mut self, wanted: bool) -> Self {
        self.ptx = wanted;
        self
    }

    /// The form in which a device gets the kernels.
    pub(crate) fn kernel_code(&self, facts: &DeviceFacts) -> KernelCode {
        let wanted = self.ptx || std::env::var_os(KERNELS_VARIABLE).is_some_and(|value| value == "ptx");
        KernelCode::choose(facts.capability, wanted)
    }
}

/// The variable that says whether cuFile is used, and how: words with commas between.
const CUFILE_VARIABLE: &str = "SWATH_CUFILE";
/// The variable that chooses PTX.
const KERNELS_VARIABLE: &str = "SWATH_CUDA_KERNELS";

/// What the words of the variable say: whether cuFile is used, and by which calls. Words that are none are passed over.
fn cufile_words(text: &str) -> (Option<bool>, Option<StorageWay>) {
    let (mut used, mut way) = (None, None);
    for word in text.split(',').map(str::trim) {
        match word {
            "always" => used = Some(true),
            "never" => used = Some(false),
            "batch" => way = Some(StorageWay::Batch),
            "async" => way = Some(StorageWay::Async),
            "threads" => way = Some(StorageWay::Threads),
            "serial" => way = Some(StorageWay::Serial),
            _ => {}
        }
    }
    (used, way)
}

/// A file that the device reads itself.
#[derive(Debug)]
pub struct DirectFile {
    pub(crate) file: Arc<cufile::Registered>,
    /// The calls that are tried first.
    pub(crate) way: StorageWay,
    mode: cufile::Mode,
}

impl DirectFile {
    /// How its bytes get to the device, in words for a report.
    pub fn storage(&self) -> &'static str {
        match self.mode {
            cufile::Mode::Direct => "cuFile, GPUDirect",
            _ => "cuFile, compatibility mode",
        }
    }

    /// Whether its reads are to be made one after the other.
    pub fn is_serial(&self) -> bool {
        self.way == StorageWay::Serial
    }
}

/// An open GPU. Threads share it; its memory is pooled from read to read.
#[derive(Debug)]
pub struct Gpu {
    /// Whether cuFile was asked for or forbidden.
    cufile_wanted: Option<bool>,
    storage_way: StorageWay,
    // Before the memory, so that it closes while the context is there.
    cufile: OnceLock<Result<(cufile::Driver, cufile::Mode), String>>,
    nvcomp: OnceLock<Result<Nvcomp, String>>,
    pub(crate) memory: Arc<Memory>,
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
        let (used, way) = std::env::var(CUFILE_VARIABLE).map_or((None, None), |words| cufile_words(&words));
        let code = options.kernel_code(&context.facts);
        Arc::new(Self {
            memory: Memory::new(context, Libraries::new(search), code),
            nvcomp: OnceLock::new(),
            cufile_wanted: options.cufile.or(used),
            storage_way: options.storage_way.or(way).unwrap_or_default(),
            cufile: OnceLock::new(),
        })
    }

    /// nvCOMP, looked for when first asked for.
    pub(crate) fn nvcomp(&self) -> Result<&Nvcomp, DeviceError> {
        let found = self
            .nvcomp
            .get_or_init(|| Nvcomp::load(self.memory.libraries.search()).map_err(|absent| absent.to_string()));
        found.as_ref().map_err(|reason| DeviceError::Declined(reason.clone()))
    }

    /// Whether nvCOMP is there.
    ///
    /// # Errors
    /// Why it is not.
    pub fn has_nvcomp(&self) -> Result<(), DeviceError> {
        self.nvcomp().map(|_| ())
    }

    /// Whether nvJPEG is there and works on this device.
    ///
    /// # Errors
    /// Why it is not.
    pub fn has_nvjpeg(&self) -> Result<(), DeviceError> {
        self.memory.libraries.jpeg(&self.memory.context).map(|_| ())
    }

    /// Whether nvJPEG2000 is there and works on this device.
    ///
    /// # Errors
    /// Why it is not.
    pub fn has_nvjpeg2000(&self) -> Result<(), DeviceError> {
        self.memory.libraries.jpeg2000(&self.memory.context).map(|_| ())
    }

    /// The file as one that the device reads itself, where cuFile does that well or was asked for.
    ///
    /// # Errors
    /// Why cuFile, having been asked for, does not read it.
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
        let registered = cufile::for_reading(file, mode).and_then(|file| {
            let _current = self.memory.context.enter().map_err(|error| error.to_string())?;
            driver.register(file).map_err(|error| error.to_string())
        });
        match registered {
            Ok(file) => Ok(Some(DirectFile { file: Arc::new(file), way: self.storage_way, mode })),
            Err(reason) if asked => Err(DeviceError::Declined(reason)),
            Err(_) => Ok(None),
        }
    }

    fn open_cufile(&self) -> Result<(cufile::Driver, cufile::Mode), String> {
        // Loading the library would only delay the first read.
        if self.cufile_wanted != Some(true) && !cufile::may_be_direct() {
            return Err("the module nvidia-fs is not loaded".into());
        }
        let search = self.memory.libraries.search();
        let mode = match CuFile::survey(search) {
            (cufile::Mode::Absent, reason) => return Err(reason),
            // Opening the driver takes a while and leaves a log behind: only for those who asked.
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

    /// What the device is.
    pub fn facts(&self) -> &DeviceFacts {
        &self.memory.context.facts
    }

    /// The form in which the device gets kernels. It changes to PTX when the driver refuses machine code.
    pub fn kernel_code(&self) -> KernelCode {
        self.memory.kernel_code()
    }

    /// Takes the notice that the driver refused machine code. There is one at most, for the first report that takes it.
    pub fn take_notice(&self) -> Option<String> {
        self.memory.take_notice()
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

    /// Gives pooled device memory that nobody uses back to the driver.
    pub fn trim(&self) {
        self.memory.trim();
    }

    /// The context as the driver knows it.
    pub fn context(&self) -> *mut std::ffi::c_void {
        self.memory.context.raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_whether_and_how_in_any_order() {
        assert_eq!(cufile_words("always"), (Some(true), None));
        assert_eq!(cufile_words("never"), (Some(false), None));
        assert_eq!(cufile_words("serial, always"), (Some(true), Some(StorageWay::Serial)));
        assert_eq!(cufile_words("always,async"), (Some(true), Some(StorageWay::Async)));
        assert_eq!(cufile_words("threads"), (None, Some(StorageWay::Threads)));
        assert_eq!(cufile_words("always,,perhaps,batch"), (Some(true), Some(StorageWay::Batch)));
        assert_eq!(cufile_words(""), (None, None));
    }
}
