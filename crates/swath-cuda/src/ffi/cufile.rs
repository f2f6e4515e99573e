//! cuFile: reading a file straight into device memory, and the truth about whether that is what happens.
//!
//! Without NVIDIA's kernel module (or peer-to-peer DMA from NVMe) cuFile still answers, by reading into host memory and
//! copying: never faster than doing so ourselves. So what it reports of itself is asked before it is used.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::library::{Absent, CallError, Library, Names, RawStream, Search};
use super::storage::{FilePart, Request};
use super::sys::cufile as sys;

const NAMES: Names = Names {
    label: "cuFile",
    files: &["libcufile.so.0"],
    wheels: &["nvidia/cu13/lib", "nvidia/cufile/lib"],
    landmark: c"cuFileDriverOpen",
};

/// Reads of a batch where cuFile does not say what it takes: its own default.
const MOST_IN_BATCH: usize = 128;
/// How long one call waits for a batch, and after how many failures in a row the engine gives the batch up.
const PATIENCE: sys::Timespec = sys::Timespec { seconds: 0, nanoseconds: 100_000_000 };
const MOST_FAILURES: usize = 10;

/// How a read through cuFile reaches device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The storage writes into device memory.
    Direct,
    /// Through host memory, inside cuFile.
    Compatibility,
    /// Not at all: no library, or its driver does not open.
    Absent,
}

/// What a verdict on the mode rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// `/proc/driver/nvidia-fs` is there: the kernel module is loaded.
    pub has_kernel_module: bool,
    /// The version of nvidia-fs that cuFile talks to; zeros without one.
    pub nvfs_version: (u32, u32),
    /// cuFile's flags for the kinds of storage it can read directly.
    pub status_flags: u32,
    /// Whether the open driver falls back to host memory.
    pub allows_compatibility: bool,
    /// What `cufile.json` says of that, where there is one that does.
    pub configured_compatibility: Option<bool>,
}

impl Evidence {
    /// The mode of a driver that opened with this evidence.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        let has_nvfs = self.has_kernel_module && (self.nvfs_version.0 != 0 || self.nvfs_version.1 != 0);
        if has_nvfs || self.status_flags & sys::STATUS_NVME_P2P != 0 { Mode::Direct } else { Mode::Compatibility }
    }
}

/// cuFile, loaded.
#[derive(Debug, Clone, Copy)]
pub struct CuFile {
    library: Library,
    table: sys::Table,
}

impl CuFile {
    /// Finds cuFile. Needs no GPU and opens nothing.
    ///
    /// # Errors
    /// Where it was looked for in vain.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        Ok(Self { library, table })
    }

    /// `major.minor`, or that it does not say (before 1.7).
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

    /// The file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Opens cuFile's driver for this process; it closes with the last clone of what is returned and of the files
    /// registered with it.
    ///
    /// # Errors
    /// What cuFile said: without a GPU, or without nvidia-fs where compatibility mode is off, it does not open.
    pub fn open_driver(&self) -> Result<Driver, CallError> {
        // SAFETY: takes nothing; calls nest, each to be matched by a close.
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

    /// The mode on this machine, and why in one line, whatever is missing. Opens cuFile's driver only where direct
    /// reads are possible.
    #[must_use]
    pub fn survey(search: &Search) -> (Mode, String) {
        let cufile = match Self::load(search) {
            Ok(cufile) => cufile,
            Err(absent) => return (Mode::Absent, absent.to_string()),
        };
        // Opening takes a while and leaves a `cufile.log` in the user's folder, for nothing where the answer is known.
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

/// Whether the system has what direct reads need. Does not load the library.
pub(crate) fn may_be_direct() -> bool {
    has_kernel_module() || configured("use_pci_p2pdma") == Some(true)
}

/// cuFile's driver, open.
#[derive(Debug, Clone)]
pub struct Driver {
    session: Arc<Session>,
}

#[derive(Debug)]
struct Session {
    table: sys::Table,
    /// Reads that a batch may have.
    most_in_batch: usize,
    /// Batches that were started and are not over.
    under_way: AtomicUsize,
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
    /// What cuFile and the system say of direct reads.
    ///
    /// # Errors
    /// What cuFile said.
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

    /// Makes a file readable through cuFile. Direct reads want it opened with `O_DIRECT`.
    ///
    /// # Errors
    /// What cuFile said.
    pub fn register(&self, file: File) -> Result<Registered, CallError> {
        let mut handle = ptr::null_mut();
        let mut description = sys::Description {
            kind: sys::HANDLE_TYPE_FD,
            handle: sys::DescribedFile { descriptor: file.as_raw_fd(), rest: 0 },
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
    handle: sys::Opaque,
    file: File,
    session: Arc<Session>,
}

// SAFETY: cuFile's file handles may be used from any thread, several at once included.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Reads up to `len` bytes at `offset` of the file to `address_offset` bytes behind `address`, and waits for them.
    /// Gives how many came: fewer at the end of the file.
    ///
    /// # Errors
    /// What cuFile, or the file system under it, said.
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

    /// What a read answers: bytes, -1 for an error of the file system, else a negative error of the system or of cuFile.
    ///
    /// # Errors
    /// What it says where it is negative.
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

    /// Bytes of the file, now.
    pub(crate) fn len(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }

    /// Reads that a batch may have.
    pub(crate) fn most_in_batch(&self) -> usize {
        self.session.most_in_batch
    }

    /// Batches of all files that are under way.
    pub(crate) fn batches_under_way(&self) -> usize {
        self.session.under_way.load(Ordering::Acquire)
    }

    /// Whether this cuFile has asynchronous reads.
    pub(crate) fn has_async(&self) -> bool {
        self.session.table.cuFileReadAsync.is_some()
    }

    /// Submits a read to a stream: `request` says what is read, and where it goes relative to `address`. cuFile writes the
    /// result to `request` when the stream runs the read.
    ///
    /// # Errors
    /// What cuFile said; nothing was submitted then.
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

    /// Has cuFile keep resources for a stream, which spares it some work for each read; tells whether it does.
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

    /// Ends what [`Registered::register_stream`] began.
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

/// Reads that were submitted together.
#[derive(Debug)]
pub(crate) struct Batch {
    handle: sys::Opaque,
    session: Arc<Session>,
    /// The requests. NVIDIA does not document whether cuFile copies them, so they live as long as the batch.
    reads: Box<[sys::Parameters]>,
    /// Which reads have ended.
    ended: Vec<bool>,
    left: usize,
}

impl Batch {
    /// Submits reads of parts of a file to their places relative to `address`.
    ///
    /// # Errors
    /// What cuFile said; nothing was submitted then.
    ///
    /// # Safety
    /// As [`Registered::read`] for every part, until [`Batch::finish`] has succeeded. The file stays registered until then.
    pub(crate) unsafe fn start(file: &Registered, address: u64, parts: &[FilePart]) -> Result<Self, CallError> {
        const SUBMIT: &str = "cuFileBatchIOSubmit";
        let table = &file.session.table;
        let (Some(set_up), Some(submit), Some(_), Some(destroy)) = (
            table.cuFileBatchIOSetUp,
            table.cuFileBatchIOSubmit,
            table.cuFileBatchIOGetStatus,
            table.cuFileBatchIODestroy,
        ) else {
            return Err(missing("cuFileBatchIOSetUp"));
        };
        let out_of_range = |_| CallError { call: SUBMIT, status: 0, text: "an offset beyond 2^63".to_owned() };
        let mut reads = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            reads.push(sys::Parameters {
                mode: sys::MODE_BATCH,
                address: address as *mut _,
                file_offset: i64::try_from(part.range.start).map_err(out_of_range)?,
                address_offset: i64::try_from(part.at).map_err(out_of_range)?,
                len: part.len(),
                handle: file.handle,
                opcode: sys::OPCODE_READ,
                cookie: ptr::without_provenance_mut(number),
            });
        }
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut batch = Self {
            handle: ptr::null_mut(),
            session: Arc::clone(&file.session),
            ended: vec![false; parts.len()],
            left: parts.len(),
            reads: reads.into_boxed_slice(),
        };
        // SAFETY: writes one handle.
        check("cuFileBatchIOSetUp", unsafe { set_up(&raw mut batch.handle, count) })?;
        // SAFETY: the batch was set up for as many reads; the rest as the caller promises.
        let answer = unsafe { submit(batch.handle, count, batch.reads.as_mut_ptr(), 0) };
        if let Err(error) = check(SUBMIT, answer) {
            // SAFETY: set up above, and without reads.
            unsafe { destroy(std::mem::replace(&mut batch.handle, ptr::null_mut())) };
            return Err(error);
        }
        batch.session.under_way.fetch_add(1, Ordering::AcqRel);
        Ok(batch)
    }

    /// Reads that have not ended yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Waits for all reads; calls `ended` with the number and the result of each.
    ///
    /// # Errors
    /// When cuFile does not report their state. Reads may then still be under way.
    pub(crate) fn finish(
        &mut self,
        nap: std::time::Duration,
        mut ended: impl FnMut(usize, Result<usize, CallError>),
    ) -> Result<(), CallError> {
        const CALL: &str = "cuFileBatchIOGetStatus";
        let table = &self.session.table;
        let (Some(get_status), Some(destroy)) = (table.cuFileBatchIOGetStatus, table.cuFileBatchIODestroy) else {
            return Err(missing(CALL));
        };
        let nothing = sys::Event { cookie: ptr::null_mut(), status: 0, answer: 0 };
        let mut events = vec![nothing; self.left];
        let mut failures = 0;
        while self.left > 0 {
            let wanted = u32::try_from(self.left).unwrap_or(u32::MAX);
            let (mut count, mut patience) = (wanted, PATIENCE);
            // SAFETY: there is room for `count` events; the batch was submitted and not destroyed.
            let answer =
                unsafe { get_status(self.handle, wanted, &raw mut count, events.as_mut_ptr(), &raw mut patience) };
            match check(CALL, answer) {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures >= MOST_FAILURES {
                        return Err(error);
                    }
                    count = 0;
                }
            }
            let before = self.left;
            for event in events.iter().take(count as usize).filter(|event| event.status & sys::STATUS_OVER != 0) {
                let number = event.cookie.addr();
                // Skips reads that were never submitted, and a second report of the same end.
                let Some(over) = self.ended.get_mut(number).filter(|over| !**over) else { continue };
                *over = true;
                self.left -= 1;
                ended(number, self.end_of(event));
            }
            if self.left == before {
                std::thread::sleep(nap);
            }
        }
        if !self.handle.is_null() {
            // SAFETY: all its reads are over, and it is not used again.
            unsafe { destroy(self.handle) };
            self.handle = ptr::null_mut();
            self.session.under_way.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// What an event says.
    fn end_of(&self, event: &sys::Event) -> Result<usize, CallError> {
        const CALL: &str = "cuFileBatchIOSubmit";
        let answer = Registered::answer(CALL, event.answer, None);
        if event.status == sys::STATUS_COMPLETE {
            return answer;
        }
        let text = match answer {
            Err(error) => error.text,
            Ok(_) => "a read of the batch failed".to_owned(),
        };
        Err(CallError { call: CALL, status: event.status.into(), text })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // cuFile may still be reading: leak the requests that it may look at, and stop counting the batch.
            Box::leak(std::mem::take(&mut self.reads));
            self.session.under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A function that this cuFile does not have.
fn missing(call: &'static str) -> CallError {
    CallError { call, status: 0, text: "this version does not have it".to_owned() }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once, before the file it stands for is closed.
        unsafe { (self.session.table.cuFileHandleDeregister)(self.handle) };
    }
}

fn check(call: &'static str, answer: sys::Error) -> Result<(), CallError> {
    if answer.code == sys::SUCCESS {
        return Ok(());
    }
    let mut text = sys::text(answer.code).to_owned();
    if answer.code == sys::CUDA_DRIVER_ERROR {
        text.push_str(&format!(" {}", answer.cuda));
    }
    Err(CallError { call, status: answer.code.into(), text })
}

/// The same file for cuFile to own: opened anew without the page cache for direct reads, where its file system can.
pub fn for_reading(file: &File, mode: Mode) -> Result<File, String> {
    use std::os::unix::fs::OpenOptionsExt;
    /// `O_DIRECT`.
    const UNCACHED: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0x10000 } else { 0x4000 };
    if mode == Mode::Direct {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(direct) = std::fs::OpenOptions::new().read(true).custom_flags(UNCACHED).open(path) {
            return Ok(direct);
        }
    }
    file.try_clone().map_err(|error| error.to_string())
}

fn has_kernel_module() -> bool {
    Path::new("/proc/driver/nvidia-fs").exists()
}

/// What cuFile's configuration says of a setting.
fn configured(key: &str) -> Option<bool> {
    let path = std::env::var_os("CUFILE_ENV_PATH_JSON");
    let path = path.map_or_else(|| PathBuf::from("/etc/cufile.json"), PathBuf::from);
    setting(&std::fs::read_to_string(path).ok()?, key)
}

/// The value of a yes-or-no setting. The file is JSON with `//` comments, in which the same words often stand; lines
/// are enough, since no verdict rests on this alone.
fn setting(config: &str, key: &str) -> Option<bool> {
    let lines = config.lines().map(|line| line.split("//").next().unwrap_or_default());
    let key = format!("\"{key}\"");
    let value = lines.filter_map(|line| line.split_once(&key)).map(|(_, value)| value).next()?;
    let value = value.trim_start_matches([' ', '\t', ':']);
    [("true", true), ("false", false)].into_iter().find(|(word, _)| value.starts_with(word)).map(|(_, is_on)| is_on)
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

    #[test]
    fn the_configuration_is_read_past_its_comments() {
        let config =
            "{\n // \"allow_compat_mode\": true,\n \"properties\": {\n  \"allow_compat_mode\" : false, // why\n }\n}";
        assert_eq!(setting(config, "allow_compat_mode"), Some(false));
        assert_eq!(setting("{\"allow_compat_mode\": true}", "allow_compat_mode"), Some(true));
        assert_eq!(setting("{}", "allow_compat_mode"), None);
        assert_eq!(setting(config, "use_pci_p2pdma"), None);
    }
}
