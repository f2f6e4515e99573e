//! The CUDA driver, found when the program runs: a table of the functions we call, every one looked up before the first is
//! called. A driver, a device or a function that is missing is a reason, never a panic.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
};

use crate::error::DeviceError;

/// A context, stream, event, module or function of the driver.
pub(crate) type Handle = *mut c_void;
/// An address on the device.
pub(crate) type Address = u64;

/// Set to load the driver from this file instead of looking for `libcuda.so.1`.
const DRIVER_VARIABLE: &str = "SWATH_CUDA_DRIVER";
/// The driver that reads the PTX we carry: CUDA 12.0, which came with driver 525.
const OLDEST: c_int = 12000;
/// `CUDA_ERROR_NOT_READY`: not an error, an event that is still to come.
const NOT_READY: c_int = 600;
/// Compute capability of the PTX we carry, times ten.
const OLDEST_CHIP: i32 = 70;

macro_rules! table {
    ($($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        struct Table {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            error_name: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
            error_string: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
        }

        impl Table {
            fn load(library: &libloading::Library) -> Result<Self, DeviceError> {
                $(
                    // SAFETY: the type is that of cuda.h for this name, which is versioned where it ever changed.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(concat!($symbol, "\0").as_bytes())
                    }
                    .map_err(|_| missing($symbol))?;
                )*
                type Words = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
                // SAFETY: as above.
                let error_name = *unsafe { library.get::<Words>(b"cuGetErrorName\0") }
                    .map_err(|_| missing("cuGetErrorName"))?;
                // SAFETY: as above.
                let error_string = *unsafe { library.get::<Words>(b"cuGetErrorString\0") }
                    .map_err(|_| missing("cuGetErrorString"))?;
                Ok(Self { $($field,)* error_name, error_string })
            }
        }
    };
}

table! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_bus = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    push_current = "cuCtxPushCurrent_v2"(Handle);
    pop_current = "cuCtxPopCurrent_v2"(*mut Handle);
    context_device = "cuCtxGetDevice"(*mut c_int);
    context_synchronize = "cuCtxSynchronize"();
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2"(*mut Address, usize);
    free = "cuMemFree_v2"(Address);
    allocate_host = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    free_host = "cuMemFreeHost"(*mut c_void);
    upload = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
    download = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
    fill = "cuMemsetD8Async"(Address, u8, usize, Handle);
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Handle);
    stream_synchronize = "cuStreamSynchronize"(Handle);
    stream_wait = "cuStreamWaitEvent"(Handle, Handle, c_uint);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_record = "cuEventRecord"(Handle, Handle);
    event_query = "cuEventQuery"(Handle);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
    event_destroy = "cuEventDestroy_v2"(Handle);
    module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload"(Handle);
    module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int);
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, Handle, c_int, usize);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

fn missing(symbol: &str) -> DeviceError {
    DeviceError::Absent(format!(
        "the driver has no {symbol}; it is too old, or not NVIDIA's: driver 525 or newer is needed"
    ))
}

/// The loaded driver. It stays loaded to the end of the process.
pub struct Driver {
    table: Table,
    path: PathBuf,
    version: i32,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Number of the device, as CUDA counts.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Where it sits on the bus.
    pub bus: String,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Memory in bytes.
    pub memory: u64,
}

impl Driver {
    /// Loads and starts the driver: from `path`, else from the file that `SWATH_CUDA_DRIVER` names, else `libcuda.so.1`.
    ///
    /// # Errors
    /// When there is none, or it is too old.
    pub fn load(path: Option<&Path>) -> Result<Arc<Self>, DeviceError> {
        let named = path.map(Path::to_path_buf).or_else(|| std::env::var_os(DRIVER_VARIABLE).map(PathBuf::from));
        let path = named.unwrap_or_else(|| PathBuf::from("libcuda.so.1"));
        // SAFETY: loading runs the library's own start-up code; this is NVIDIA's driver, or what the user put in its place.
        let library = unsafe { libloading::Library::new(&path) }
            .map_err(|_| DeviceError::Absent(format!("the NVIDIA driver, {}, cannot be loaded", path.display())))?;
        let table = Table::load(&library)?;
        std::mem::forget(library);
        let mut driver = Self { table, path, version: 0 };
        // SAFETY: the flags of cuInit must be 0.
        driver.check(unsafe { (driver.table.init)(0) }, || "cuInit".into()).map_err(absent)?;
        let mut version = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (driver.table.driver_version)(&raw mut version) };
        driver.check(code, || "cuDriverGetVersion".into()).map_err(absent)?;
        if version < OLDEST {
            return Err(DeviceError::Absent(format!(
                "the driver knows CUDA {}; CUDA 12.0 (driver 525) or newer is needed",
                dotted(version)
            )));
        }
        driver.version = version;
        Ok(Arc::new(driver))
    }

    /// The newest CUDA the driver knows, as in `12.4`.
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// The file it was loaded from, or the name it was found by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn devices(&self) -> Result<i32, DeviceError> {
        let mut count = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.table.device_count)(&raw mut count) };
        self.check(code, || "cuDeviceGetCount".into())?;
        Ok(count)
    }

    /// What device `ordinal` is.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn facts(&self, ordinal: i32) -> Result<DeviceFacts, DeviceError> {
        let count = self.devices()?;
        if !(0..count).contains(&ordinal) {
            return Err(DeviceError::Absent(match count {
                0 => "the driver sees none (CUDA_VISIBLE_DEVICES may hide them)".into(),
                _ => format!("there is no device {ordinal}; there are {count}, counted from 0"),
            }));
        }
        let mut device = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.table.device_get)(&raw mut device, ordinal) };
        self.check(code, || format!("cuDeviceGet({ordinal})"))?;
        let text = |call: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int| {
            let mut text = [0_u8; 256];
            // SAFETY: writes at most the length it is told, which is one less than there is, so a zero follows.
            let code = unsafe { call(text.as_mut_ptr().cast(), 255, device) };
            let text = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned());
            if code == 0 { text.unwrap_or_default() } else { String::new() }
        };
        let attribute = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let code = unsafe { (self.table.device_attribute)(&raw mut value, attribute, device) };
            self.check(code, || format!("cuDeviceGetAttribute({attribute})")).map(|()| value)
        };
        let mut memory = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.table.device_memory)(&raw mut memory, device) };
        self.check(code, || "cuDeviceTotalMem".into())?;
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, MULTIPROCESSOR_COUNT.
        Ok(DeviceFacts {
            ordinal,
            name: text(self.table.device_name),
            bus: text(self.table.device_bus),
            capability: (attribute(75)?, attribute(76)?),
            multiprocessors: attribute(16)?,
            memory: memory as u64,
        })
    }

    fn check(&self, code: c_int, call: impl FnOnce() -> String) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        let words = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: writes one pointer, to a constant of the driver or to nothing.
            let known = unsafe { function(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: the driver's texts are constants that end with a zero.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = words(self.table.error_name).unwrap_or_else(|| format!("error {code}"));
        let text = match words(self.table.error_string) {
            Some(text) => format!("{name}: {text}"),
            None => name,
        };
        Err(DeviceError::Call { call: call(), code, text })
    }
}

fn absent(error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Call { call, text, .. } => DeviceError::Absent(format!("{call}: {text}")),
        other => other,
    }
}

fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A device's context: the primary one, which CuPy and PyTorch use too, or one that the caller brings.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) facts: DeviceFacts,
    raw: Handle,
    /// The device whose primary context is given back in the end.
    retained: Option<c_int>,
    process: u32,
}

// SAFETY: a CUDA context may be used from any thread that makes it current, which every call here does for itself.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Makes a context current on this thread for as long as it lives.
pub(crate) struct Current<'a>(&'a Context);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle. What was pushed by `Context::enter` on this thread is on top: guards are dropped in order.
        let _ = unsafe { (self.0.driver.table.pop_current)(&raw mut raw) };
    }
}

impl Context {
    /// The primary context of a device.
    pub(crate) fn primary(driver: Arc<Driver>, ordinal: i32) -> Result<Self, DeviceError> {
        let facts = driver.facts(ordinal)?;
        check_chip(&facts)?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle; the ordinal was checked, and devices are their ordinals in this API.
        let code = unsafe { (driver.table.primary_retain)(&raw mut raw, ordinal) };
        driver.check(code, || format!("cuDevicePrimaryCtxRetain({ordinal})"))?;
        Ok(Self { driver, facts, raw, retained: Some(ordinal), process: std::process::id() })
    }

    /// A context that someone else made.
    ///
    /// # Safety
    /// `raw` is a live `CUcontext` and outlives everything made from the returned value.
    pub(crate) unsafe fn borrowed(driver: Arc<Driver>, raw: Handle) -> Result<Self, DeviceError> {
        let facts = DeviceFacts {
            ordinal: 0,
            name: String::new(),
            bus: String::new(),
            capability: (0, 0),
            multiprocessors: 0,
            memory: 0,
        };
        let mut context = Self { driver, facts, raw, retained: None, process: std::process::id() };
        let mut ordinal = 0;
        {
            let _current = context.enter()?;
            // SAFETY: writes one integer.
            let code = unsafe { (context.driver.table.context_device)(&raw mut ordinal) };
            context.check(code, || "cuCtxGetDevice".into())?;
        }
        context.facts = context.driver.facts(ordinal)?;
        check_chip(&context.facts)?;
        Ok(context)
    }

    fn check(&self, code: c_int, call: impl FnOnce() -> String) -> Result<(), DeviceError> {
        self.driver.check(code, call)
    }

    /// Whether another process made it, from which this one was forked: then it can neither be used nor freed.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Makes the context current on this thread.
    pub(crate) fn enter(&self) -> Result<Current<'_>, DeviceError> {
        if self.is_inherited() {
            return Err(DeviceError::forked());
        }
        // SAFETY: the handle is alive as long as `self` (retained, or promised by the caller of `borrowed`).
        let code = unsafe { (self.driver.table.push_current)(self.raw) };
        self.check(code, || "cuCtxPushCurrent".into())?;
        Ok(Current(self))
    }

    /// Free and total memory of the device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        let code = unsafe { (self.driver.table.memory_info)(&raw mut free, &raw mut total) };
        self.check(code, || "cuMemGetInfo".into())?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, len: usize) -> Result<Address, DeviceError> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.driver.table.allocate)(&raw mut address, len.max(1)) };
        self.check(code, || format!("cuMemAlloc({len} bytes)"))?;
        Ok(address)
    }

    /// Gives memory back; the driver waits for work that uses it.
    ///
    /// # Safety
    /// `address` came from [`Context::allocate`] of this context and is not used again.
    pub(crate) unsafe fn free(&self, address: Address) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises.
            let _ = unsafe { (self.driver.table.free)(address) };
        }
    }

    pub(crate) fn allocate_host(&self, len: usize) -> Result<*mut u8, DeviceError> {
        let _current = self.enter()?;
        let mut address = ptr::null_mut();
        // CU_MEMHOSTALLOC_PORTABLE: pinned for every context.
        // SAFETY: writes one address.
        let code = unsafe { (self.driver.table.allocate_host)(&raw mut address, len.max(1), 1) };
        self.check(code, || format!("cuMemHostAlloc({len} bytes)"))?;
        Ok(address.cast())
    }

    /// # Safety
    /// `address` came from [`Context::allocate_host`] of this context and is not used again, by the device neither.
    pub(crate) unsafe fn free_host(&self, address: *mut u8) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises.
            let _ = unsafe { (self.driver.table.free_host)(address.cast()) };
        }
    }

    /// # Safety
    /// Both ranges are allocated, the host's is pinned, and neither is freed nor the host's written to before the copy is done.
    pub(crate) unsafe fn upload(
        &self,
        to: Address,
        from: *const u8,
        len: usize,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.upload)(to, from.cast(), len, stream) };
        self.check(code, || format!("cuMemcpyHtoDAsync({len} bytes)"))
    }

    /// # Safety
    /// Both ranges are allocated and neither is freed nor the host's looked at before the copy is done.
    pub(crate) unsafe fn download(
        &self,
        to: *mut u8,
        from: Address,
        len: usize,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.download)(to.cast(), from, len, stream) };
        self.check(code, || format!("cuMemcpyDtoHAsync({len} bytes)"))
    }

    /// # Safety
    /// The range is allocated and not freed before the fill is done.
    pub(crate) unsafe fn fill(&self, at: Address, byte: u8, len: usize, stream: Handle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.fill)(at, byte, len, stream) };
        self.check(code, || format!("cuMemsetD8Async({len} bytes)"))
    }

    pub(crate) fn stream_create(&self) -> Result<Handle, DeviceError> {
        let _current = self.enter()?;
        let mut stream = ptr::null_mut();
        // CU_STREAM_NON_BLOCKING: the default stream, where other libraries work, does not hold ours up.
        // SAFETY: writes one handle.
        let code = unsafe { (self.driver.table.stream_create)(&raw mut stream, 1) };
        self.check(code, || "cuStreamCreate".into())?;
        Ok(stream)
    }

    /// # Safety
    /// `stream` came from [`Context::stream_create`] and is not used again.
    pub(crate) unsafe fn stream_destroy(&self, stream: Handle) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises.
            let _ = unsafe { (self.driver.table.stream_destroy)(stream) };
        }
    }

    /// # Safety
    /// `stream` is alive.
    pub(crate) unsafe fn stream_synchronize(&self, stream: Handle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.stream_synchronize)(stream) };
        self.check(code, || "cuStreamSynchronize".into())
    }

    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: has no argument.
        let code = unsafe { (self.driver.table.context_synchronize)() };
        self.check(code, || "cuCtxSynchronize".into())
    }

    /// # Safety
    /// `stream` and `event` are alive.
    pub(crate) unsafe fn stream_wait(&self, stream: Handle, event: Handle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.stream_wait)(stream, event, 0) };
        self.check(code, || "cuStreamWaitEvent".into())
    }

    /// An event, which can tell times if asked to.
    pub(crate) fn event_create(&self, timing: bool) -> Result<Handle, DeviceError> {
        let _current = self.enter()?;
        let mut event = ptr::null_mut();
        // CU_EVENT_DISABLE_TIMING makes it cheaper.
        // SAFETY: writes one handle.
        let code = unsafe { (self.driver.table.event_create)(&raw mut event, if timing { 0 } else { 2 }) };
        self.check(code, || "cuEventCreate".into())?;
        Ok(event)
    }

    /// # Safety
    /// `event` came from [`Context::event_create`] and is not used again.
    pub(crate) unsafe fn event_destroy(&self, event: Handle) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises.
            let _ = unsafe { (self.driver.table.event_destroy)(event) };
        }
    }

    /// # Safety
    /// `event` and `stream` are alive.
    pub(crate) unsafe fn event_record(&self, event: Handle, stream: Handle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.event_record)(event, stream) };
        self.check(code, || "cuEventRecord".into())
    }

    /// Whether what was before the event is done.
    ///
    /// # Safety
    /// `event` is alive.
    pub(crate) unsafe fn event_done(&self, event: Handle) -> Result<bool, DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as the caller promises.
        match unsafe { (self.driver.table.event_query)(event) } {
            NOT_READY => Ok(false),
            code => self.check(code, || "cuEventQuery".into()).map(|()| true),
        }
    }

    /// Milliseconds between two events that are done.
    ///
    /// # Safety
    /// Both are alive and were made to tell times.
    pub(crate) unsafe fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32, DeviceError> {
        let _current = self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: writes one number; the rest as the caller promises.
        let code = unsafe { (self.driver.table.event_elapsed)(&raw mut milliseconds, start, end) };
        self.check(code, || "cuEventElapsedTime".into())?;
        Ok(milliseconds)
    }

    /// Loads a module, which the driver copies.
    ///
    /// # Safety
    /// `image` is PTX that ends with a zero, or a whole cubin: the driver is not told its length.
    pub(crate) unsafe fn module_load(&self, name: &str, image: &[u8]) -> Result<Handle, DeviceError> {
        let _current = self.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: writes one handle; the rest as the caller promises.
        let code = unsafe { (self.driver.table.module_load)(&raw mut module, image.as_ptr().cast()) };
        self.check(code, || format!("cuModuleLoadData({name})"))?;
        Ok(module)
    }

    /// # Safety
    /// `module` came from [`Context::module_load`] and none of its functions is used again.
    pub(crate) unsafe fn module_unload(&self, module: Handle) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises.
            let _ = unsafe { (self.driver.table.module_unload)(module) };
        }
    }

    /// # Safety
    /// `module` is alive; the function is alive as long as it is.
    pub(crate) unsafe fn module_function(&self, module: Handle, name: &CStr) -> Result<Handle, DeviceError> {
        let _current = self.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: writes one handle; the rest as the caller promises.
        let code = unsafe { (self.driver.table.module_function)(&raw mut function, module, name.as_ptr()) };
        self.check(code, || format!("cuModuleGetFunction({})", name.to_string_lossy()))?;
        Ok(function)
    }

    /// Prefers shared memory to cache for a kernel, so that as many blocks fit as its other needs allow.
    ///
    /// # Safety
    /// `function` is alive.
    pub(crate) unsafe fn prefer_shared(&self, function: Handle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, all of it.
        // SAFETY: as the caller promises.
        let code = unsafe { (self.driver.table.function_attribute)(function, 9, 100) };
        self.check(code, || "cuFuncSetAttribute".into())
    }

    /// How many blocks of the kernel a multiprocessor holds.
    ///
    /// # Safety
    /// `function` is alive.
    pub(crate) unsafe fn occupancy(&self, function: Handle, threads: u32) -> Result<u32, DeviceError> {
        let _current = self.enter()?;
        let mut blocks = 0;
        // SAFETY: writes one integer; the rest as the caller promises.
        let code = unsafe { (self.driver.table.occupancy)(&raw mut blocks, function, threads as c_int, 0) };
        self.check(code, || "cuOccupancyMaxActiveBlocksPerMultiprocessor".into())?;
        Ok(blocks.max(1) as u32)
    }

    /// # Safety
    /// `function` and `stream` are alive; `argument` points at the kernel's one parameter, and everything that names is
    /// allocated and stays so until the kernel is done.
    pub(crate) unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        threads: u32,
        argument: *mut c_void,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        let mut arguments = [argument];
        let launch = self.driver.table.launch;
        // SAFETY: the driver copies the parameter before it returns; the rest as the caller promises.
        let code = unsafe {
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut())
        };
        self.check(code, || format!("cuLaunchKernel({blocks} blocks of {threads} threads)"))
    }

    /// The context as the driver knows it.
    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let (Some(device), false) = (self.retained, self.is_inherited()) {
            // SAFETY: it was retained once, by us.
            let _ = unsafe { (self.driver.table.primary_release)(device) };
        }
    }
}

fn check_chip(facts: &DeviceFacts) -> Result<(), DeviceError> {
    let (major, minor) = facts.capability;
    if major * 10 + minor < OLDEST_CHIP {
        return Err(DeviceError::Absent(format!(
            "{} has compute capability {major}.{minor}; 7.0 (Volta) or newer is needed",
            facts.name
        )));
    }
    Ok(())
}
