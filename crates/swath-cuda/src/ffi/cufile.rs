//! cuFile: reading a file straight into device memory, and the truth about whether that is what happens.
//!
//! Without NVIDIA's kernel module (or peer-to-peer DMA from NVMe) cuFile still answers, by reading into host memory and
//! copying: never faster than doing so ourselves. So what it reports of itself is asked before it is used.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use super::library::{Absent, CallError, Library, Names, Search};
use super::sys::cufile as sys;

const NAMES: Names =
    Names { label: "cuFile", files: &["libcufile.so.0"], wheels: &["nvidia/cu13/lib", "nvidia/cufile/lib"] };

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
        self.move_log();
        // SAFETY: takes nothing; calls nest, each to be matched by a close.
        let answer = unsafe { (self.table.cuFileDriverOpen)() };
        check("cuFileDriverOpen", answer)?;
        Ok(Driver { session: Arc::new(Session { table: self.table }) })
    }

    /// Has cuFile write its log to the folder for temporary files, where it can be told: by itself it leaves a
    /// `cufile.log` in whatever folder the user is in. A user who configured it keeps what he configured.
    fn move_log(&self) {
        let is_configured =
            ["CUFILE_LOGFILE_PATH", "CUFILE_ENV_PATH_JSON"].iter().any(|name| std::env::var_os(name).is_some());
        let folder = CString::new(std::env::temp_dir().into_os_string().into_encoded_bytes());
        let (false, Ok(folder), Some(set)) = (is_configured, folder, self.table.cuFileSetParameterString) else {
            return;
        };
        // SAFETY: the string ends in a zero and lives for the length of the call. A refusal only leaves the log where
        // it was.
        unsafe { set(sys::PARAMETER_LOG_FOLDER, folder.as_ptr()) };
    }

    /// The mode on this machine, and why in one line, whatever is missing. Asked only where the CUDA driver is: without
    /// one, cuFile complains on the standard error output by itself.
    #[must_use]
    pub fn survey(search: &Search) -> (Mode, String) {
        let cufile = match Self::load(search) {
            Ok(cufile) => cufile,
            Err(absent) => return (Mode::Absent, absent.to_string()),
        };
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

/// cuFile's driver, open.
#[derive(Debug, Clone)]
pub struct Driver {
    session: Arc<Session>,
}

#[derive(Debug)]
struct Session {
    table: sys::Table,
}

impl Drop for Session {
    fn drop(&mut self) {
        let close = self.table.cuFileDriverClose_v2.unwrap_or(self.table.cuFileDriverClose);
        // SAFETY: matches the open this session stands for; files registered with it hold the session, so none is left.
        unsafe { close() };
    }
}

impl Driver {
    /// What cuFile and the system say of direct reads.
    ///
    /// # Errors
    /// What cuFile said.
    pub fn evidence(&self) -> Result<Evidence, CallError> {
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
        let answer = unsafe { (self.session.table.cuFileDriverGetProperties)(&raw mut properties) };
        check("cuFileDriverGetProperties", answer)?;
        Ok(Evidence {
            has_kernel_module: Path::new("/proc/driver/nvidia-fs").exists(),
            nvfs_version: (properties.nvfs_major, properties.nvfs_minor),
            status_flags: properties.status_flags,
            allows_compatibility: properties.control_flags & sys::CONTROL_ALLOW_COMPAT != 0,
            configured_compatibility: configured_compatibility(),
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
        Ok(Registered { handle, _file: file, session: Arc::clone(&self.session) })
    }

    /// Pins device memory that many reads will go to; without it cuFile reads through a buffer of its own.
    ///
    /// # Errors
    /// What cuFile said.
    ///
    /// # Safety
    /// The CUDA context is current; `address` starts an allocation of at least `len` bytes, which is deregistered
    /// before it is freed.
    pub unsafe fn register_buffer(&self, address: u64, len: usize) -> Result<(), CallError> {
        // SAFETY: the caller keeps this function's contract.
        let answer = unsafe { (self.session.table.cuFileBufRegister)(address as *const _, len, 0) };
        check("cuFileBufRegister", answer)
    }

    /// Undoes [`Self::register_buffer`].
    ///
    /// # Errors
    /// What cuFile said.
    ///
    /// # Safety
    /// The CUDA context is current and no read into the buffer is under way.
    pub unsafe fn deregister_buffer(&self, address: u64) -> Result<(), CallError> {
        // SAFETY: the caller keeps this function's contract; an address that was not registered is answered with an
        // error.
        let answer = unsafe { (self.session.table.cuFileBufDeregister)(address as *const _) };
        check("cuFileBufDeregister", answer)
    }
}

/// A file that can be read into device memory.
#[derive(Debug)]
pub struct Registered {
    handle: sys::Opaque,
    _file: File,
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
        match usize::try_from(answer) {
            Ok(read) => Ok(read),
            Err(_) if answer == -1 => {
                let error = std::io::Error::last_os_error();
                Err(CallError { call: CALL, status: -1, text: error.to_string() })
            }
            Err(_) => {
                let code = i32::try_from(-answer).unwrap_or(i32::MAX);
                Err(CallError { call: CALL, status: code.into(), text: sys::text(code).to_owned() })
            }
        }
    }
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

/// What cuFile's configuration says of compatibility mode.
fn configured_compatibility() -> Option<bool> {
    let path =
        std::env::var_os("CUFILE_ENV_PATH_JSON").map_or_else(|| PathBuf::from("/etc/cufile.json"), PathBuf::from);
    compatibility_in(&std::fs::read_to_string(path).ok()?)
}

/// The value of `allow_compat_mode`. The file is JSON with `//` comments, in which the same words often stand; lines
/// are enough, since the verdict does not rest on this.
fn compatibility_in(config: &str) -> Option<bool> {
    let lines = config.lines().map(|line| line.split("//").next().unwrap_or_default());
    let value = lines.filter_map(|line| line.split_once("\"allow_compat_mode\"")).map(|(_, value)| value).next()?;
    let value = value.trim_start_matches([' ', '\t', ':']);
    [("true", true), ("false", false)].into_iter().find(|(word, _)| value.starts_with(word)).map(|(_, allowed)| allowed)
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
        assert_eq!(compatibility_in(config), Some(false));
        assert_eq!(compatibility_in("{\"allow_compat_mode\": true}"), Some(true));
        assert_eq!(compatibility_in("{}"), None);
    }
}
