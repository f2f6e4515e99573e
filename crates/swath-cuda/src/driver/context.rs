//! A CUDA context and the calls that need one: memory, copies, streams, events, modules and launches.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
    sync::Arc,
};

use crate::{
    driver::cuda::{Address, DeviceFacts, Driver, Handle},
    error::DeviceError,
};

/// `CUDA_ERROR_NOT_READY`: the event is still pending.
const NOT_READY: c_int = 600;
/// Compute capability of the PTX that we ship, times ten.
const OLDEST_CHIP: i32 = 70;

/// A device's context: the primary one, which CuPy and PyTorch use too, or one that the caller provides.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) facts: DeviceFacts,
    raw: Handle,
    /// The device whose primary context is released at the end.
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

/// A guard that keeps a context current on this thread.
pub(crate) struct Current<'a>(&'a Context);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle. What was pushed by `Context::enter` on this thread is on top: guards are dropped in order.
        let _ = unsafe { (self.0.driver.table.pop_current)(&raw mut raw) };
    }
}

impl Context {
    /// Retains the primary context of a device.
    pub(crate) fn primary(driver: Arc<Driver>, ordinal: i32) -> Result<Self, DeviceError> {
        let facts = driver.facts(ordinal)?;
        check_chip(&facts)?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle; the ordinal was checked, and devices are their ordinals in this API.
        let code = unsafe { (driver.table.primary_retain)(&raw mut raw, ordinal) };
        driver.check(code, || format!("cuDevicePrimaryCtxRetain({ordinal})"))?;
        Ok(Self { driver, facts, raw, retained: Some(ordinal), process: std::process::id() })
    }

    /// Uses a context that other code made.
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

    /// Whether a parent process made the context before it forked. Such a context can neither be used nor freed.
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

    /// Returns the free and the total memory of the device.
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

    /// Frees memory. The driver waits for work that uses it.
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
    /// `address` came from [`Context::allocate_host`] of this context, and neither the host nor the device uses it
    /// again.
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

    /// Creates an event, which can measure times if `timing` is set.
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

    /// Whether all work before the event is done.
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

    /// Returns the milliseconds between two events that are done.
    ///
    /// # Safety
    /// Both are alive and were created with `timing`.
    pub(crate) unsafe fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32, DeviceError> {
        let _current = self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: writes one number; the rest as the caller promises.
        let code = unsafe { (self.driver.table.event_elapsed)(&raw mut milliseconds, start, end) };
        self.check(code, || "cuEventElapsedTime".into())?;
        Ok(milliseconds)
    }

    /// Loads a module. The driver copies the image.
    ///
    /// # Safety
    /// `image` is PTX that ends with a zero, or a whole cubin: the call passes no length.
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

    /// Returns how many blocks of the kernel a multiprocessor holds.
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
    /// `function` and `stream` are alive. `argument` points at the kernel's one parameter, and all memory that the
    /// parameter names is allocated and stays so until the kernel is done.
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

    /// Returns the driver's handle of the context.
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
