//! Finds and opens NVIDIA's libraries at run time, so that one binary works on machines with all, some or none of them.
//!
//! The search uses *versioned* file names only: parameters have changed under an unchanged symbol between majors, so a
//! file of unknown major cannot be called safely.

use std::ffi::{CStr, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use libloading::Library as Handle;
use once_cell::race::OnceBox;

use crate::error::DeviceError;

/// A CUDA stream (`CUstream` and `cudaStream_t` are the same pointer); null is the default stream.
pub type RawStream = *mut c_void;

/// The variable that adds folders to every search, separated by colons.
pub const FOLDERS_VARIABLE: &str = "SWATH_CUDA_LIBRARIES";

/// Where the toolkit puts its libraries on machines whose loader does not know about them.
const TOOLKIT_FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// Folders that the program offers to every search, after those that a caller or the environment names.
static OFFERED: Offered = Offered(OnceBox::new());

/// Folders that are only ever added to. There is no lock that a child, forked while a thread held it, would wait for: each
/// place in the list is empty or complete.
struct Offered(OnceBox<(PathBuf, Offered)>);

impl Offered {
    /// Adds a folder at the end, unless it is there.
    fn add(&self, folder: PathBuf) {
        let mut place = self;
        let mut added = Box::new((folder, Self(OnceBox::new())));
        loop {
            match place.0.get() {
                Some((known, _)) if *known == added.0 => return,
                Some((_, next)) => place = next,
                // Where another thread was quicker, its folder is found in the next round.
                None => match place.0.set(added) {
                    Ok(()) => return,
                    Err(ours) => added = ours,
                },
            }
        }
    }

    fn folders(&self) -> Vec<PathBuf> {
        std::iter::successors(self.0.get(), |(_, next)| next.0.get()).map(|(folder, _)| folder.clone()).collect()
    }
}

/// Adds folders (also `site-packages` folders) to every later search. For packages that know where their libraries are.
pub fn offer_libraries(folders: impl IntoIterator<Item = PathBuf>) {
    for folder in folders.into_iter().filter(|folder| folder.is_absolute()) {
        OFFERED.add(folder);
    }
}

/// The names of a library: in messages, on disk, and in an installed wheel.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Its name in messages.
    pub label: &'static str,
    /// File names with the major version, the preferred one first.
    pub files: &'static [&'static str],
    /// Folders below `site-packages` in which its wheels put it.
    pub wheels: &'static [&'static str],
    /// A function of every version. Its address tells which file the loader chose.
    pub landmark: &'static CStr,
}

/// Where to look before the loader does.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Folders (also `site-packages` folders) and library files, in search order.
    pub folders: Vec<PathBuf>,
}

/// Why a library, or one of its functions, cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Absent {
    /// No file could be opened.
    #[error("{label} was not found: {reasons}")]
    NotFound {
        /// The library.
        label: &'static str,
        /// The reason for each place, in one line.
        reasons: String,
    },
    /// The file lacks a function that every supported version has.
    #[error("{label} at {}: no function {symbol}", path.display())]
    Symbol {
        /// The library.
        label: &'static str,
        /// The file that was opened.
        path: PathBuf,
        /// The function.
        symbol: String,
    },
    /// The version of the file is not supported.
    #[error("{label} at {}: version {found} is not supported, only {wanted}", path.display())]
    Version {
        /// The library.
        label: &'static str,
        /// The file that was opened.
        path: PathBuf,
        /// The version of the file.
        found: String,
        /// The supported versions.
        wanted: &'static str,
    },
    /// The library does not report its version.
    #[error("{label}: {error}")]
    Silent {
        /// The library.
        label: &'static str,
        /// The failed call.
        error: CallError,
    },
}

/// A call of a library that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {text} (status {status})")]
pub struct CallError {
    /// The C function.
    pub call: &'static str,
    /// Its return value.
    pub status: i64,
    /// The library's text for that status.
    pub text: String,
}

impl CallError {
    /// The code in [`DeviceError::Call`] of a failure that a library reported, not the driver.
    pub(crate) const DEVICE_CODE: i32 = -1;
}

impl From<CallError> for DeviceError {
    fn from(error: CallError) -> Self {
        Self::Call {
            call: error.call.to_owned(),
            code: CallError::DEVICE_CODE,
            text: format!("{} (status {})", error.text, error.status),
        }
    }
}

/// An opened library. It stays loaded until the process ends: unloading would leave state of CUDA libraries in the
/// driver dangling.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    label: &'static str,
    path: &'static Path,
    handle: &'static Handle,
}

impl Library {
    /// Opens the first usable file of: the caller's folders, the folders of `SWATH_CUDA_LIBRARIES`, the folders that
    /// the program offers, the loader's path, the toolkit's usual folders.
    ///
    /// # Errors
    /// [`Absent::NotFound`] with the reason for each place.
    pub fn open(names: &Names, search: &Search) -> Result<Self, Absent> {
        let variable = std::env::var_os(FOLDERS_VARIABLE);
        let from_variable = variable.iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute());
        let offered = OFFERED.folders();
        let mut failures = Failures::default();
        for place in search.folders.iter().cloned().chain(from_variable).chain(offered) {
            for file in candidates(&place, names) {
                if let Some(library) = Self::try_file(names, &file, &mut failures) {
                    return Ok(library);
                }
            }
        }
        for name in names.files {
            if let Some(library) = Self::try_loader(names, name, &mut failures) {
                return Ok(library);
            }
        }
        for folder in TOOLKIT_FOLDERS {
            for name in names.files {
                if let Some(library) = Self::try_file(names, &Path::new(folder).join(name), &mut failures) {
                    return Ok(library);
                }
            }
        }
        Err(Absent::NotFound { label: names.label, reasons: failures.line(names) })
    }

    fn try_file(names: &Names, file: &Path, failures: &mut Failures) -> Option<Self> {
        if !file.is_file() {
            failures.missing(file);
            return None;
        }
        match load(file.as_os_str()) {
            Ok(handle) => Some(Self::keep(names.label, file.to_path_buf(), handle)),
            Err(reason) => {
                failures.refused(&file.display().to_string(), &reason);
                None
            }
        }
    }

    fn try_loader(names: &Names, name: &'static str, failures: &mut Failures) -> Option<Self> {
        match load(name.as_ref()) {
            Ok(handle) => {
                let path = loaded_path(&handle, names.landmark).unwrap_or_else(|| PathBuf::from(name));
                Some(Self::keep(names.label, path, handle))
            }
            // The loader's messages for "not on the path" and "a dependency is not on the path" differ only in the
            // name.
            Err(reason) if reason.starts_with(name) && reason.contains("No such file") => {
                failures.unknown_to_loader = true;
                None
            }
            Err(reason) => {
                failures.refused(name, &reason);
                None
            }
        }
    }

    fn keep(label: &'static str, path: PathBuf, handle: Handle) -> Self {
        Self { label, path: Box::leak(path.into_boxed_path()), handle: Box::leak(Box::new(handle)) }
    }

    /// Returns the file that was opened, or its bare name where the loader found it and the process's memory map does
    /// not show the path.
    #[must_use]
    pub fn path(&self) -> &'static Path {
        self.path
    }

    /// Returns the function `name`.
    ///
    /// # Errors
    /// [`Absent::Symbol`] if the library has no such function.
    ///
    /// # Safety
    /// `T` must be the function pointer type of `name` in every version of the library that the caller lets through.
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Result<T, Absent> {
        const { assert!(size_of::<T>() == size_of::<*const c_void>()) };
        // SAFETY: the caller guarantees the type; the function outlives the copy because the library is never closed.
        let found = unsafe { self.handle.get::<T>(name.to_bytes_with_nul()) };
        found.map(|symbol| *symbol).map_err(|_| Absent::Symbol {
            label: self.label,
            path: self.path.to_path_buf(),
            symbol: name.to_string_lossy().into_owned(),
        })
    }

    /// Returns the error for an unsupported version.
    pub(crate) fn wrong_version(&self, found: impl Into<String>, wanted: &'static str) -> Absent {
        Absent::Version { label: self.label, path: self.path.to_path_buf(), found: found.into(), wanted }
    }
}

/// Returns the files that `place` may mean: itself, a file in it, or a file in a wheel's folder below it.
fn candidates(place: &Path, names: &Names) -> Vec<PathBuf> {
    if names.files.iter().any(|name| place.ends_with(name)) {
        return vec![place.to_path_buf()];
    }
    let mut files: Vec<PathBuf> = names.files.iter().map(|name| place.join(name)).collect();
    for wheel in names.wheels {
        files.extend(names.files.iter().map(|name| place.join(wheel).join(name)));
    }
    files
}

fn load(name: &std::ffi::OsStr) -> Result<Handle, String> {
    // SAFETY: opening runs the library's initialisers; the names searched for are NVIDIA's own, and a user who can put
    // other files under those names in the caller's folders or on the loader's path already runs code in this process.
    let opened = unsafe { Handle::new(name) };
    opened.map_err(|error| {
        // The outer error only says that dlopen failed; its source has the text of dlerror.
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    })
}

/// Returns the full path of a library that the loader found by name. A link in the search path may lead to any other
/// name.
fn loaded_path(handle: &Handle, landmark: &CStr) -> Option<PathBuf> {
    // SAFETY: only the address is taken; nothing is called or read through it.
    let address = unsafe { handle.get::<*const c_void>(landmark.to_bytes_with_nul()) }.ok()?;
    mapped_file(&std::fs::read_to_string("/proc/self/maps").ok()?, *address as usize)
}

/// Returns the file that a process map shows at `address`.
fn mapped_file(maps: &str, address: usize) -> Option<PathBuf> {
    let covers = |line: &&str| {
        let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let bounds = bounds.and_then(|(from, to)| Some(number(from)?..number(to)?));
        bounds.is_some_and(|bounds| bounds.contains(&address))
    };
    let line = maps.lines().find(covers)?;
    line.get(line.find('/')?..).map(PathBuf::from)
}

/// Failed attempts, worded briefly: folders without the file are listed together.
#[derive(Debug, Default)]
struct Failures {
    folders_without: Vec<PathBuf>,
    unknown_to_loader: bool,
    refusals: Vec<String>,
}

impl Failures {
    fn missing(&mut self, file: &Path) {
        let Some(folder) = file.parent() else { return };
        if !self.folders_without.iter().any(|known| known == folder) {
            self.folders_without.push(folder.to_path_buf());
        }
    }

    fn refused(&mut self, what: &str, reason: &str) {
        // dlerror repeats the path in front of its reason.
        let reason = reason.strip_prefix(what).map_or(reason, |rest| rest.trim_start_matches([':', ' ']));
        self.refusals.push(format!("{what}: {}", reason.replace('\n', " ")));
    }

    fn line(&self, names: &Names) -> String {
        /// Most folders that are named; the others are counted.
        const NAMED: usize = 4;
        let mut line = self.refusals.join("; ");
        if !line.is_empty() {
            line.push_str("; ");
        }
        let _ = write!(line, "no {}", names.files.join(" or "));
        if self.unknown_to_loader {
            line.push_str(" on the loader's path");
        }
        // Wheel folders are not named: the folder above them is.
        let wheel_free = |folder: &&PathBuf| !names.wheels.iter().any(|wheel| folder.ends_with(wheel));
        let folders: Vec<&PathBuf> = self.folders_without.iter().filter(wheel_free).collect();
        for (index, folder) in folders.iter().take(NAMED).enumerate() {
            let joint = match index {
                0 if self.unknown_to_loader => " or in ",
                0 => " in ",
                _ => ", ",
            };
            let _ = write!(line, "{joint}{}", folder.display());
        }
        if folders.len() > NAMED {
            let _ = write!(line, " and {} more folders", folders.len() - NAMED);
        }
        line
    }
}

/// Declares a table of C functions and fills it from a [`Library`]. `optional` functions are `None` where a version
/// lacks them. The names are the C names, so that a table reads like the header it was checked against.
macro_rules! table {
    (
        $(#[$meta:meta])* $table:ident {
            $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*
        }
        optional {
            $(fn $maybe:ident($($maybe_arg:ident: $maybe_ty:ty),* $(,)?) $(-> $maybe_ret:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
            $(pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_arg: $maybe_ty),*) $(-> $maybe_ret)?>,)*
        }

        impl $table {
            pub(crate) fn load(library: &$crate::driver::libraries::load::Library) -> Result<Self, $crate::driver::libraries::load::Absent> {
                /// The name with the zero that `dlsym` expects.
                const fn c(name: &'static str) -> &'static std::ffi::CStr {
                    match std::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a function's name contains a NUL byte"),
                    }
                }
                Ok(Self {
                    // SAFETY: the field's type was checked against this function's declaration in the header of every
                    // major that the wrapper lets through.
                    $($name: unsafe { library.symbol(const { c(concat!(stringify!($name), "\0")) })? },)*
                    // SAFETY: as above.
                    $($maybe: unsafe { library.symbol(const { c(concat!(stringify!($maybe), "\0")) }).ok() },)*
                })
            }
        }
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names {
        label: "nothing",
        files: &["libswath_none.so.9", "libswath_none.so.8"],
        wheels: &["nvidia/none/lib"],
        landmark: c"none",
    };

    #[test]
    fn absence_is_one_line_that_names_every_place() {
        let search = Search { folders: vec!["/no/such/folder".into(), "/nor/this".into()] };
        let line = Library::open(&NAMES, &search).err().map(|absent| absent.to_string()).unwrap_or_default();
        assert!(line.starts_with("nothing was not found: no libswath_none.so.9 or libswath_none.so.8"), "{line}");
        assert!(line.contains("the loader's path or in /no/such/folder, /nor/this, /usr/local/cuda/lib64"), "{line}");
        assert!(!line.contains('\n') && !line.contains("nvidia/none"), "{line}");
    }

    #[test]
    fn a_file_that_is_no_library_is_reported_with_the_loaders_reason() {
        let folder = std::env::temp_dir().join(format!("swath-library-{}", std::process::id()));
        assert!(std::fs::create_dir_all(&folder).is_ok());
        let file = folder.join("libswath_none.so.8");
        assert!(std::fs::write(&file, b"not an ELF file").is_ok());
        let absent = Library::open(&NAMES, &Search { folders: vec![folder.clone()] });
        let line = absent.err().map(|absent| absent.to_string()).unwrap_or_default();
        assert!(line.contains("libswath_none.so.8: file too short") || line.contains("invalid ELF header"), "{line}");
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn offered_folders_are_kept_once_each_whichever_thread_adds_them() {
        let offered = Offered(OnceBox::new());
        offered.add("/first".into());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|number| offered.add(format!("/{number}").into())));
            }
        });
        let mut folders = offered.folders();
        assert_eq!(folders.first(), Some(&PathBuf::from("/first")));
        assert_eq!(folders.len(), 51);
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 51);
    }

    #[test]
    fn a_caller_may_name_the_file_itself() {
        let files = candidates(Path::new("/opt/x/libswath_none.so.8"), &NAMES);
        assert_eq!(files, [PathBuf::from("/opt/x/libswath_none.so.8")]);
    }

    #[test]
    fn a_site_packages_folder_is_searched_for_wheels() {
        let files = candidates(Path::new("/venv"), &NAMES);
        assert_eq!(files.len(), 4);
        assert!(files.contains(&PathBuf::from("/venv/nvidia/none/lib/libswath_none.so.9")));
    }

    #[test]
    fn the_file_at_an_address_is_found_whatever_its_name() {
        let maps = "7f00-7f10 r-xp 0 00:00 1  /usr/lib/libnvjpeg.so.13.0.1\n7f10-7f20 rw-p 0 00:00 0\n\
                    7f20-7f30 r-xp 0 00:00 2  /opt/a b/libcufile.so.1.15.1\n";
        assert_eq!(mapped_file(maps, 0x7f0f), Some(PathBuf::from("/usr/lib/libnvjpeg.so.13.0.1")));
        assert_eq!(mapped_file(maps, 0x7f20), Some(PathBuf::from("/opt/a b/libcufile.so.1.15.1")));
        assert_eq!(mapped_file(maps, 0x7f10), None);
        assert_eq!(mapped_file("gibberish", 0x7f30), None);
    }
}
