//! Unfinished files: their names, their locks, and the removal of those whose writers have died.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{fork::PerProcess, ordinary};

/// The unfinished files of this process. A forked child does not inherit its parent's.
static UNFINISHED: PerProcess<Unfinished> = PerProcess::new();

#[derive(Default)]
struct Unfinished {
    /// Files that are being written.
    alive: Mutex<Vec<PathBuf>>,
    /// Number of files that are being renamed.
    placing: AtomicU32,
}

pub(super) fn alive() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.get().alive.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long [`abandon_unfinished`] waits for renames in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// While this lives, an unfinished file is replacing a file and its side files.
pub(super) struct Placing(());

impl Placing {
    /// From here on, the file is not abandoned any more.
    pub fn begin(part: &Path) -> Self {
        UNFINISHED.get().placing.fetch_add(1, Ordering::SeqCst);
        alive().retain(|known| known != part);
        Self(())
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        UNFINISHED.get().placing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Removes the unfinished files of this process. For a process that exits without dropping its sinks.
pub fn abandon_unfinished() {
    for part in alive().drain(..) {
        let _ = fs::remove_file(part);
    }
    let began = Instant::now();
    while UNFINISHED.get().placing.load(Ordering::SeqCst) > 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The prefix of unfinished files of `target`. Its length is fixed, so that a long name does not become too long.
pub(super) fn mark(target: &Path) -> String {
    // FNV-1a, because later versions of this library must compute the same name.
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!(".swath-{hash:016x}-")
}

/// Suffix of unfinished files.
pub(super) const PART: &str = ".part";
/// Prefix of temporary files.
pub(super) const TEMPORARY: &str = ".swath-spool-";

/// Creates an unfinished file; a `private` one can be opened by this user only. The default permissions would let others open it before
/// it gets those of the file that it replaces, or before it loses its name, and read all that is written to it later.
pub(super) fn create(folder: &Path, mark: &str, private: bool) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{mark}{}-{number}{PART}", std::process::id()));
        match options.open(&part) {
            Ok(file) => match file.try_lock() {
                // Another writer mistook it for a leftover before it was locked.
                Err(TryLockError::WouldBlock) => {}
                Ok(()) if !part.exists() => {}
                // The lock tells other writers that this file is in use. On file systems without locks, leftovers stay.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok((file, part)),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the unfinished files whose lock no process holds. Files of other users stay, except those of the owner of `replaced`, to
/// whom an unfinished replacement belongs. Anything but a regular file stays too: any user may have created a pipe under such a name.
pub(super) fn remove_leftovers(folder: &Path, mark: &str, replaced: Option<&Metadata>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(mark) || !name.ends_with(PART) {
            continue;
        }
        let Ok(file) = ordinary::open_own(&entry.path(), true) else { continue };
        if is_own(&file, replaced) && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file belongs to this user, or to the owner of the replaced file.
#[cfg(all(unix, not(feature = "portable")))]
fn is_own(file: &File, replaced: Option<&Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owners = [Some(rustix::process::geteuid().as_raw()), replaced.map(MetadataExt::uid)];
    file.metadata().is_ok_and(|found| owners.contains(&Some(found.uid())))
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn is_own(_: &File, _: Option<&Metadata>) -> bool {
    true
}
