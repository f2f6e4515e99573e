//! A file on a local file system, which appears under its name only when it is whole.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::position::{read_exact_at, write_all_at};

use super::{BLOCK, Sink, SinkError, gap_len, pieces, stream::StreamSink};

/// Bytes that are moved at a time where the file system cannot take a range out.
const STEP: usize = 4 << 20;

/// A file in the making: a sibling of the final one, locked as long as its writer lives, renamed when it is whole.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    name: String,
    target: PathBuf,
    /// The sibling; `None` once it has become the target.
    part: Option<PathBuf>,
}

impl FileSink {
    /// Begins a file that will be called `path`. What earlier, killed writers of the same file left behind is removed.
    ///
    /// # Errors
    /// When `path` is a folder, or no file can be made beside it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, SinkError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        // A link stays a link: the file it names is replaced, or made.
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(_) => follow(path).map_err(|source| SinkError::io("cannot follow the link", source))?,
        };
        let existing = fs::metadata(&target).ok();
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            let source = io::Error::new(io::ErrorKind::IsADirectory, "this is a folder");
            return Err(SinkError::io("cannot write the file", source));
        }
        if existing.as_ref().is_some_and(|metadata| metadata.permissions().readonly()) {
            let source = io::Error::new(io::ErrorKind::PermissionDenied, "the file there is read-only");
            return Err(SinkError::io("cannot replace the file", source));
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let mark = mark(&target);
        remove_leftovers(&folder, &mark);
        let (file, part) = create_part(&folder, &mark)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        alive().push(part.clone());
        let sink = Self { file, name, target, part: Some(part) };
        if let (Some(metadata), Some(part)) = (existing, &sink.part) {
            // Who may read a file does not change because it was written again; a file system without modes may refuse.
            let _ = fs::set_permissions(part, metadata.permissions());
        }
        Ok(sink)
    }

    /// Begins a file in the folder for temporary files that never gets a name: where the system allows, not even a killed
    /// writer leaves it behind, and nobody can put a link in its place.
    pub(super) fn spool() -> Result<Self, SinkError> {
        let folder = std::env::temp_dir();
        remove_leftovers(&folder, SPOOL);
        let (file, part) = create_part(&folder, SPOOL)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let unnamed = cfg!(unix) && fs::remove_file(&part).is_ok();
        let name = part.display().to_string();
        Ok(Self { file, name, target: part.clone(), part: (!unnamed).then_some(part) })
    }

    /// Copies its first `size` bytes to a stream.
    pub(super) fn copy_to(&self, size: u64, stream: &mut impl Write) -> io::Result<()> {
        self.file.set_len(size)?;
        let mut file = &self.file;
        file.rewind()?;
        let copied = io::copy(&mut file.take(size), stream)?;
        stream.flush()?;
        if copied == size { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Moves what follows `gaps` down, by reading and writing it.
    fn move_down(&self, gaps: &[Range<u64>], size: u64) -> io::Result<()> {
        let mut buffer = vec![0; STEP];
        for (piece, mut target) in pieces(gaps, size) {
            let mut from = piece.start;
            while from < piece.end {
                let len = (piece.end - from).min(STEP as u64) as usize;
                let step = buffer.get_mut(..len).unwrap_or_default();
                read_exact_at(&self.file, step, from)?;
                write_all_at(&self.file, step, target)?;
                from += len as u64;
                target += len as u64;
            }
        }
        self.file.set_len(size - gap_len(gaps))
    }
}

/// Parts that are being written by this process.
static ALIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn alive() -> MutexGuard<'static, Vec<PathBuf>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process has begun and not finished, for one that ends in the middle of it and drops nothing.
pub fn abandon_unfinished() {
    for part in alive().drain(..) {
        let _ = fs::remove_file(part);
    }
}

/// Either kind of sink for a path: an ordinary file is made aside and renamed; a pipe or a device gets the bytes in order
/// at the end.
///
/// # Errors
/// As [`FileSink::create`].
pub fn create(path: impl AsRef<Path>) -> Result<Box<dyn Sink>, SinkError> {
    let path = path.as_ref();
    let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if special {
        let open = OpenOptions::new().write(true).open(path);
        let file = open.map_err(|source| SinkError::io("cannot open the output", source))?;
        return Ok(Box::new(StreamSink::new(path.display().to_string(), file)?));
    }
    Ok(Box::new(FileSink::create(path)?))
}

/// The file that a link names, though there is none yet.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&target) else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::other("links lead in a circle"))
}

/// What the siblings of a target have in their names. Of fixed length, so that a long name does not become too long.
fn mark(target: &Path) -> String {
    // FNV-1a: the next version of this library has to find the same name.
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!(".swath-{hash:016x}-")
}

/// The end of their names.
const PART: &str = ".part";
/// How the names of files begin that are made for a stream.
const SPOOL: &str = ".swath-spool-";

fn create_part(folder: &Path, mark: &str) -> io::Result<(File, PathBuf)> {
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

/// Removes the parts of writers that are no more: nobody holds their lock.
fn remove_leftovers(folder: &Path, mark: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(mark) || !name.ends_with(PART) {
            continue;
        }
        let Ok(file) = OpenOptions::new().write(true).open(entry.path()) else { continue };
        match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(entry.path());
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

/// Takes a range out where the file system can (ext4 and XFS): extents move, bytes do not.
#[cfg(target_os = "linux")]
fn collapse(file: &File, gap: &Range<u64>) -> bool {
    if !gap.start.is_multiple_of(BLOCK) || !gap.end.is_multiple_of(BLOCK) {
        return false;
    }
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(file, FallocateFlags::COLLAPSE_RANGE, gap.start, gap.end - gap.start).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn collapse(_: &File, _: &Range<u64>) -> bool {
    false
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        write_all_at(&self.file, bytes, offset)
            .map_err(|source| SinkError::io(format!("cannot write {} bytes at offset {offset}", bytes.len()), source))
    }

    fn remove(&mut self, gaps: &[Range<u64>], mut size: u64) -> Result<(), SinkError> {
        let mut left = gaps;
        // From the last, so that the earlier ones stay where they are.
        while let Some((gap, earlier)) = left.split_last() {
            if !collapse(&self.file, gap) {
                break;
            }
            size -= gap.end - gap.start;
            left = earlier;
        }
        if left.is_empty() {
            return Ok(());
        }
        self.move_down(left, size).map_err(|source| SinkError::io("cannot move tiles to their place", source))
    }

    fn commit(mut self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let fail = |action: &str| {
            let action = action.to_owned();
            move |source| SinkError::io(action, source)
        };
        self.file.set_len(size).map_err(fail("cannot set the size of the file"))?;
        self.file.sync_all().map_err(fail("cannot bring the file to the disk"))?;
        let Some(part) = &self.part else { return Ok(()) };
        fs::rename(part, &self.target).map_err(fail("cannot give the file its name"))?;
        alive().retain(|known| known != part);
        self.part = None;
        // The new name is on the disk once its folder is; some file systems know no such thing.
        #[cfg(unix)]
        if let Some(folder) = self.target.parent()
            && let Ok(folder) = File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(part);
            alive().retain(|known| known != part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("swath-io-sink-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn dropped_file_leaves_the_old_one_and_nothing_else() {
        let folder = folder("dropped");
        let path = folder.join("a.tif");
        fs::write(&path, b"old").unwrap();
        let sink = FileSink::create(&path).unwrap();
        sink.write_at(0, b"new").unwrap();
        assert_eq!(names(&folder).len(), 2);
        drop(sink);
        assert_eq!((names(&folder), fs::read(&path).unwrap()), (vec!["a.tif".to_owned()], b"old".to_vec()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
        let folder = folder("leftovers");
        let path = folder.join("a.tif");
        let dead = folder.join(format!("{}1-1{PART}", mark(&path)));
        let other = folder.join(format!("{}1-1{PART}", mark(&folder.join("b.tif"))));
        fs::write(&dead, b"half").unwrap();
        fs::write(&other, b"half").unwrap();
        let living = FileSink::create(&path).unwrap();
        assert!(!dead.exists() && other.exists());
        let second = Box::new(FileSink::create(&path).unwrap());
        second.write_at(0, b"2").unwrap();
        second.commit(1).unwrap();
        living.write_at(0, b"1").unwrap();
        Box::new(living).commit(1).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1");
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn link_stays_a_link_and_the_mode_stays() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = folder("link");
        let (real, link) = (folder.join("real.tif"), folder.join("link.tif"));
        fs::write(&real, b"old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        let sink = Box::new(FileSink::create(&link).unwrap());
        sink.write_at(0, b"new").unwrap();
        sink.commit(3).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn link_to_nothing_stays_a_link_and_gets_its_file() {
        let folder = folder("dangling");
        let link = folder.join("link.tif");
        std::os::unix::fs::symlink("real.tif", &link).unwrap();
        let sink = Box::new(FileSink::create(&link).unwrap());
        sink.write_at(0, b"new").unwrap();
        sink.commit(3).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(folder.join("real.tif")).unwrap(), b"new");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn longest_name_can_be_written() {
        let folder = folder("long");
        let path = folder.join("n".repeat(255));
        let sink = Box::new(FileSink::create(&path).unwrap());
        sink.write_at(0, b"x").unwrap();
        sink.commit(1).unwrap();
        assert_eq!(names(&folder), ["n".repeat(255)]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn folders_and_missing_folders_are_refused() {
        let folder = folder("refused");
        assert!(FileSink::create(&folder).unwrap_err().to_string().contains("folder"));
        assert_eq!(FileSink::create(folder.join("no/a.tif")).unwrap_err().io_kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(folder).unwrap();
    }
}
