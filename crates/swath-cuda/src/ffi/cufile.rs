//! cuFile: reading a file straight into device memory, and the truth about whether that is what happens.
//!
//! Without NVIDIA's kernel module (or peer-to-peer DMA from NVMe) cuFile still answers, by reading into host memory and
//! copying: never faster than doing so ourselves. So what it reports of itself is asked before it is used.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use super::library::{Absent, CallError, Library, Names, Search};
use super::sys::cufile as sys;

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
        Ok(Driver { session: Arc::new(Session { table: self.table }) })
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
        if !has_kernel_module() && configured("use_pci_p2pdma") != Some(true) {
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
        // SAFETY: matches the one open that this value stands for; files registered with it hold the value, so none is left.
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
        Ok(Registered { handle, _file: file, session: Arc::clone(&self.session) })
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
