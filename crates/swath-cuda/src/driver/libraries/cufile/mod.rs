//! cuFile: reads of a file straight into device memory, and whether they really are direct.
//!
//! Without NVIDIA's kernel module (or peer-to-peer DMA from NVMe) cuFile still works, by reading into host memory and
//! copying, which is never faster than our own copies. So the engine checks how cuFile works before it uses it.

pub(crate) mod batch;
pub(crate) mod system;

use std::{
    fs::File,
    ops::Range,
    path::Path,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::driver::libraries::{
    cufile::system::{configured, descriptor, has_kernel_module, may_be_direct},
    load::{Absent, CallError, Library, Names, RawStream, Search},
    sys::cufile as sys,
};

/// Most reads of a batch where cuFile does not report its limit: cuFile's own default.
const MOST_IN_BATCH: usize = 128;

/// A part of a file, and where it goes in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// The bytes of the file.
    pub range: Range<u64>,
    /// Offset in the buffer.
    pub at: usize,
}

impl FileRead {
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX)
    }
}

/// The request of an asynchronous read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) len: usize,
    pub(crate) file_offset: i64,
    pub(crate) address_offset: i64,
    /// Bytes that were read, or a negative error.
    pub(crate) read: isize,
}

const NAMES: Names = Names {
    label: "cuFile",
    files: &["libcufile.so.0"],
    wheels: &["nvidia/cu13/lib", "nvidia/cufile/lib"],
    landmark: c"cuFileDriverOpen",
};

/// How a read through cuFile reaches device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The storage writes into device memory.
    Direct,
    /// cuFile copies through host memory.
    Compatibility,
    /// Not at all: there is no library, or its driver does not open.
    Absent,
}

/// The facts that decide the mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// `/proc/driver/nvidia-fs` is there: the kernel module is loaded.
    pub has_kernel_module: bool,
    /// The version of nvidia-fs that cuFile uses; zeros without one.
    pub nvfs_version: (u32, u32),
    /// cuFile's flags for the kinds of storage it can read directly.
    pub status_flags: u32,
    /// Whether the open driver falls back to host memory.
    pub allows_compatibility: bool,
    /// What `cufile.json` says about that, if it does.
    pub configured_compatibility: Option<bool>,
}

impl Evidence {
    /// Returns the mode of a driver with these facts.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        let has_nvfs = self.has_kernel_module && (self.nvfs_version.0 != 0 || self.nvfs_version.1 != 0);
        if has_nvfs || self.status_flags & sys::STATUS_NVME_P2P != 0 { Mode::Direct } else { Mode::Compatibility }
    }
}

/// The loaded cuFile library.
#[derive(Debug, Clone, Copy)]
pub struct CuFile {
    library: Library,
    table: sys::Table,
}

impl CuFile {
    /// Loads cuFile. Needs no GPU and opens nothing.
    ///
    /// # Errors
    /// The places that were searched.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        Ok(Self { library, table })
    }

    /// Returns `major.minor`, or `unknown` before 1.7.
    #[must_use]
    pub fn version(&self) -> String {
        let mut version = 0;
        // SAFETY: `version` is writable for the length of the call.
        let answer = self.table.cuFileGetVersion.map(|get| unsafe { get(&raw mut version) });
        match answer {
            Some(sys::Error { code: sys::SUCCESS, .. }) => format!("{}.{}", version / 1000, version % 1000 / 10),
            _ => "unknown".to_owned(),
        }
    }

    /// Returns the file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Opens cuFile's driver for this process. The driver closes with the last clone of the returned value and of the
    /// files registered with it.
    ///
    /// # Errors
    /// cuFile's error: without a GPU, or without nvidia-fs where compatibility mode is off, the driver does not open.
    pub fn open_driver(&self) -> Result<Driver, CallError> {
        // SAFETY: the function has no arguments. Calls nest; each needs one close.
        let answer = unsafe { (self.table.cuFileDriverOpen)() };
        check("cuFileDriverOpen", answer)?;
        let mut session = Session { table: self.table, most_in_batch: MOST_IN_BATCH, under_way: AtomicUsize::new(0) };
        if let Ok(properties) = session.properties()
            && properties.max_batch > 0
        {
            session.most_in_batch = properties.max_batch as usize;
        }
        Ok(Driver { session: Arc::new(session) })
    }

    /// Returns the mode on this machine and the reason in one line. Opens cuFile's driver only where direct reads are
    /// possible.
    #[must_use]
    pub fn survey(search: &Search) -> (Mode, String) {
        let cufile = match Self::load(search) {
            Ok(cufile) => cufile,
            Err(absent) => return (Mode::Absent, absent.to_string()),
        };
        // Opening takes a while and leaves a `cufile.log` in the user's folder, needlessly where the answer is known.
        if !may_be_direct() {
            return (
                Mode::Compatibility,
                format!("cuFile {}, but the module nvidia-fs is not loaded", cufile.version()),
            );
        }
        match cufile.open_driver().and_then(|driver| driver.evidence()) {
            Ok(evidence) if evidence.mode() == Mode::Direct => {
                let (major, minor) = evidence.nvfs_version;
                (Mode::Direct, format!("cuFile {} with nvidia-fs {major}.{minor}", cufile.version()))
            }
            Ok(_) => (Mode::Compatibility, format!("cuFile {} without nvidia-fs", cufile.version())),
            Err(error) => (Mode::Absent, error.to_string()),
        }
    }
}

/// cuFile's open driver.
#[derive(Debug, Clone)]
pub struct Driver {
    session: Arc<Session>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) table: sys::Table,
    /// Most reads of a batch.
    most_in_batch: usize,
    /// Number of batches in flight.
    pub(super) under_way: AtomicUsize,
}

impl Drop for Session {
    fn drop(&mut self) {
        let close = self.table.cuFileDriverClose_v2.unwrap_or(self.table.cuFileDriverClose);
        // SAFETY: matches the one open that this value stands for; files registered with it hold the value, so none is left.
        unsafe { close() };
    }
}

impl Session {
    fn properties(&self) -> Result<sys::DriverProperties, CallError> {
        let mut properties = sys::DriverProperties {
            nvfs_major: 0,
            nvfs_minor: 0,
            poll_threshold: 0,
            max_direct_io: 0,
            status_flags: 0,
            control_flags: 0,
            feature_flags: 0,
            max_device_cache: 0,
            per_buffer_cache: 0,
            max_pinned: 0,
            max_batch: 0,
            batch_timeout: 0,
            room: [0; 32],
        };
        // SAFETY: `properties` is a writable CUfileDrvProps_t, and more, for the length of the call.
        let answer = unsafe { (self.table.cuFileDriverGetProperties)(&raw mut properties) };
        check("cuFileDriverGetProperties", answer)?;
        Ok(properties)
    }
}

impl Driver {
    /// Collects the facts about direct reads.
    ///
    /// # Errors
    /// cuFile's error.
    pub fn evidence(&self) -> Result<Evidence, CallError> {
        let properties = self.session.properties()?;
        Ok(Evidence {
            has_kernel_module: has_kernel_module(),
            nvfs_version: (properties.nvfs_major, properties.nvfs_minor),
            status_flags: properties.status_flags,
            allows_compatibility: properties.control_flags & sys::CONTROL_ALLOW_COMPAT != 0,
            configured_compatibility: configured("allow_compat_mode"),
        })
    }

    /// Registers a file for reads through cuFile. Direct reads need a file opened with `O_DIRECT`.
    ///
    /// # Errors
    /// cuFile's error.
    pub fn register(&self, file: File) -> Result<Registered, CallError> {
        let mut handle = ptr::null_mut();
        let mut description = sys::Description {
            kind: sys::HANDLE_TYPE_FD,
            handle: sys::DescribedFile { descriptor: descriptor(&file), rest: 0 },
            file_system: ptr::null(),
        };
        // SAFETY: both are valid for the length of the call; the descriptor is open, and stays so while registered
        // because `Registered` owns the file.
        let answer = unsafe { (self.session.table.cuFileHandleRegister)(&raw mut handle, &raw mut description) };
        check("cuFileHandleRegister", answer)?;
        Ok(Registered { handle, file, session: Arc::clone(&self.session) })
    }
}

/// A file that can be read into device memory.
#[derive(Debug)]
pub struct Registered {
    pub(super) handle: sys::Opaque,
    file: File,
    pub(super) session: Arc<Session>,
}

// SAFETY: cuFile's file handles may be used from any thread, several at once included.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Reads up to `len` bytes at `offset` of the file to `address_offset` bytes behind `address`, and waits for them.
    /// Returns the number of bytes read, which is less at the end of the file.
    ///
    /// # Errors
    /// The error of cuFile or of the file system.
    ///
    /// # Safety
    /// The CUDA context is current; `len` bytes at that place belong to the allocation that `address` starts, and
    /// nothing else touches them meanwhile.
    pub unsafe fn read(
        &self,
        address: u64,
        address_offset: usize,
        len: usize,
        offset: u64,
    ) -> Result<usize, CallError> {
        const CALL: &str = "cuFileRead";
        let out_of_range = || CallError { call: CALL, status: 0, text: "an offset beyond 2^63".to_owned() };
        let offset = i64::try_from(offset).map_err(|_| out_of_range())?;
        let address_offset = i64::try_from(address_offset).map_err(|_| out_of_range())?;
        // SAFETY: the caller keeps this function's contract; the handle is registered as long as `self` lives.
        let answer =
            unsafe { (self.session.table.cuFileRead)(self.handle, address as *mut _, len, offset, address_offset) };
        Self::answer(CALL, answer, (answer == -1).then(std::io::Error::last_os_error))
    }

    /// Converts the return value of a read: bytes, -1 for an error of the file system, else a negative error of the
    /// system or of cuFile.
    ///
    /// # Errors
    /// The error that a negative value stands for.
    pub(crate) fn answer(
        call: &'static str,
        answer: isize,
        system: Option<std::io::Error>,
    ) -> Result<usize, CallError> {
        usize::try_from(answer).map_err(|_| {
            let code = i32::try_from(answer.unsigned_abs()).unwrap_or(i32::MAX);
            let text = match (system, code) {
                (Some(error), _) => error.to_string(),
                (None, 1) => "the file system failed".to_owned(),
                (None, 2..sys::FIRST_ERROR) => std::io::Error::from_raw_os_error(code).to_string(),
                _ => sys::text(code).to_owned(),
            };
            CallError { call, status: answer as i64, text }
        })
    }

    /// Returns the current length of the file.
    pub(crate) fn len(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }

    /// Returns the most reads of a batch.
    pub(crate) fn most_in_batch(&self) -> usize {
        self.session.most_in_batch
    }

    /// Returns the number of batches in flight, of all files.
    pub(crate) fn batches_under_way(&self) -> usize {
        self.session.under_way.load(Ordering::Acquire)
    }

    /// Whether this version of cuFile has asynchronous reads.
    pub(crate) fn has_async(&self) -> bool {
        self.session.table.cuFileReadAsync.is_some()
    }

    /// Submits a read to a stream. `request` has the offsets and the length; its target is relative to `address`.
    /// cuFile writes the result to `request` when the stream runs the read.
    ///
    /// # Errors
    /// cuFile's error; nothing was submitted then.
    ///
    /// # Safety
    /// As [`Registered::read`]. Until the stream has run the read, `request` stays valid and only cuFile uses it.
    pub(crate) unsafe fn read_async(
        &self,
        address: u64,
        request: *mut Request,
        stream: RawStream,
    ) -> Result<(), CallError> {
        const CALL: &str = "cuFileReadAsync";
        let Some(read) = self.session.table.cuFileReadAsync else { return Err(missing(CALL)) };
        // SAFETY: as the caller promises.
        let answer = unsafe {
            read(
                self.handle,
                address as *mut _,
                &raw mut (*request).len,
                &raw mut (*request).file_offset,
                &raw mut (*request).address_offset,
                &raw mut (*request).read,
                stream,
            )
        };
        check(CALL, answer)
    }

    /// Registers a stream with cuFile, which saves work for each read. Returns whether cuFile did so.
    ///
    /// # Safety
    /// The CUDA context is current, and the stream lives until [`Registered::forget_stream`].
    pub(crate) unsafe fn register_stream(&self, stream: RawStream) -> bool {
        let table = &self.session.table;
        let (Some(register), Some(_)) = (table.cuFileStreamRegister, table.cuFileStreamDeregister) else {
            return false;
        };
        // SAFETY: as the caller promises.
        unsafe { register(stream, sys::STREAM_ALL_FIXED) }.code == sys::SUCCESS
    }

    /// Undoes [`Registered::register_stream`].
    ///
    /// # Safety
    /// The CUDA context is current, or lost; the stream is registered and idle.
    pub(crate) unsafe fn forget_stream(&self, stream: RawStream) {
        if let Some(deregister) = self.session.table.cuFileStreamDeregister {
            // SAFETY: as the caller promises.
            unsafe { deregister(stream) };
        }
    }
}

/// Returns the error for a function that this version of cuFile lacks.
pub(super) fn missing(call: &'static str) -> CallError {
    CallError { call, status: 0, text: "this version does not have it".to_owned() }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once, before the file it stands for is closed.
        unsafe { (self.session.table.cuFileHandleDeregister)(self.handle) };
    }
}

pub(super) fn check(call: &'static str, answer: sys::Error) -> Result<(), CallError> {
    if answer.code == sys::SUCCESS {
        return Ok(());
    }
    let mut text = sys::text(answer.code).to_owned();
    if answer.code == sys::CUDA_DRIVER_ERROR {
        text.push_str(&format!(" {}", answer.cuda));
    }
    Err(CallError { call, status: answer.code.into(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Evidence = Evidence {
        has_kernel_module: false,
        nvfs_version: (0, 0),
        status_flags: 0,
        allows_compatibility: true,
        configured_compatibility: None,
    };

    #[test]
    fn only_a_loaded_module_that_cufile_talks_to_is_direct() {
        assert_eq!(NOTHING.mode(), Mode::Compatibility);
        assert_eq!(Evidence { has_kernel_module: true, ..NOTHING }.mode(), Mode::Compatibility);
        assert_eq!(Evidence { nvfs_version: (2, 25), ..NOTHING }.mode(), Mode::Compatibility);
        assert_eq!(Evidence { has_kernel_module: true, nvfs_version: (2, 25), ..NOTHING }.mode(), Mode::Direct);
        assert_eq!(Evidence { status_flags: sys::STATUS_NVME_P2P, ..NOTHING }.mode(), Mode::Direct);
    }
}
