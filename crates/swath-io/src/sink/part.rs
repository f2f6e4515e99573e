//! Files in the making: their names, their locks, and what is left of those whose writers are no more.

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

/// What this process is writing; a forked child writes nothing of what its parent does.
static UNFINISHED: PerProcess<Unfinished> = PerProcess::new();

#[derive(Default)]
struct Unfinished {
    /// Parts that are being written.
    alive: Mutex<Vec<PathBuf>>,
    /// Files that are getting their names.
    placing: AtomicU32,
}

pub(super) fn alive() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.get().alive.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the thread that abandons parts waits for files that are getting their names.
const PATIENCE: Duration = Duration::from_secs(1);

/// As long as this lives, a part is about to take the place of a file and of what describes that.
pub(super) struct Placing(());

impl Placing {
    /// From here on the part is not abandoned any more.
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

/// Removes what this process has begun and not finished, for one that ends in the middle of it and drops nothing.
pub fn abandon_unfinished() {
    for part in alive().drain(..) {
        let _ = fs::remove_file(part);
    }
    let began = Instant::now();
    while UNFINISHED.get().placing.load(Ordering::SeqCst) > 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the siblings of a target have in their names. Of fixed length, so that a long name does not become too long.
pub(super) fn mark(target: &Path) -> String {
    // FNV-1a: the next version of this library has to find the same name.
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!(".swath-{hash:016x}-")
}

/// The end of their names.
pub(super) const PART: &str = ".part";
/// How the names of files begin that are made for a stream.
pub(super) const SPOOL: &str = ".swath-spool-";

pub(super) fn create(folder: &Path, mark: &str) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{mark}{}-{number}{PART}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&part) {
            Ok(file) => match file.try_lock() {
                // Another writer took it for a leftover in the moment before it was locked.
                Err(TryLockError::WouldBlock) => {}
                Ok(()) if !part.exists() => {}
                // The lock tells other writers that this part is alive. Where there are no locks, leftovers stay.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok((file, part)),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the parts of writers that have ended: no process holds their lock. Those of other users stay, and so does what is no
/// file: anybody may have put a pipe under such a name. A part that was to replace a file belongs to `replaced`'s owner.
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

/// Whether a file is this user's, or belongs to the owner of the file that is replaced.
#[cfg(unix)]
fn is_own(file: &File, replaced: Option<&Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owners = [Some(rustix::process::geteuid().as_raw()), replaced.map(MetadataExt::uid)];
    file.metadata().is_ok_and(|found| owners.contains(&Some(found.uid())))
}

#[cfg(not(unix))]
fn is_own(_: &File, _: Option<&Metadata>) -> bool {
    true
}
