//! The CUDA driver, loaded at run time: a table of the functions that we call, all looked up before the first call. A
//! missing driver, device or function is an error with a reason, never a panic.

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

/// The variable that names the driver's file. Without it the loader looks for `libcuda.so.1`.
const DRIVER_VARIABLE: &str = "SWATH_CUDA_DRIVER";
/// The oldest driver that reads the PTX we ship: CUDA 12.0, which came with driver 525.
const OLDEST: c_int = 12000;

macro_rules! table {
    ($($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        pub(super) struct Table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
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

/// The loaded driver. It stays loaded until the process ends.
pub struct Driver {
    pub(super) table: Table,
    path: PathBuf,
    version: i32,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Number of the device, as CUDA counts.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Its PCI bus address.
    pub bus: String,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// Memory in bytes.
    pub memory: u64,
}

impl Driver {
    /// Loads and initialises the driver: from `path`, else from the file that `SWATH_CUDA_DRIVER` names, else
    /// `libcuda.so.1`.
    ///
    /// # Errors
    /// When there is no driver, or it is too old.
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
                "the driver supports CUDA {}; CUDA 12.0 (driver 525) or newer is needed",
                dotted(version)
            )));
        }
        driver.version = version;
        Ok(Arc::new(driver))
    }

    /// Returns the newest CUDA version that the driver supports, as in `12.4`.
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// Returns the file that the driver was loaded from, or the name that the loader found it by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// When the driver fails to report it.
    pub fn devices(&self) -> Result<i32, DeviceError> {
        let mut count = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.table.device_count)(&raw mut count) };
        self.check(code, || "cuDeviceGetCount".into())?;
        Ok(count)
    }

    /// Returns the properties of device `ordinal`.
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
            // SAFETY: writes at most the length it is given, which is one less than the array has, so a zero follows.
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

    pub(super) fn check(&self, code: c_int, call: impl FnOnce() -> String) -> Result<(), DeviceError> {
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
