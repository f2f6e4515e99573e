//! A file on a local file system, which appears under its name only when it is whole.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use crate::position::{read_exact_at, write_all_at};

use super::{BLOCK, CHUNK, Sink, SinkError, gap_len, mapped::Mapped, pieces, spill::Spill, stream::StreamSink};

/// Bytes that are moved at a time where the file system cannot take a range out.
const STEP: usize = 2 << 20;
/// Threads that move bytes; more only wait for the memory.
const MOVERS: u64 = 16;
/// Writes to a file in memory that are at least as long as this need not take turns.
const LONG: usize = 1 << 20;

/// A file in the making: a sibling of the final one, locked as long as its writer lives, renamed when it is whole.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    name: String,
    target: PathBuf,
    /// The sibling; `None` once it has become the target.
    part: Option<PathBuf>,
    /// The process that began it: one that was forked from it has a copy of everything, and must not remove the file.
    process: u32,
    /// For a file in memory.
    mapped: Option<Mapped>,
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
        let process = std::process::id();
        alive().push((process, part.clone()));
        let mapped = Mapped::of(&file);
        let sink = Self { file, name, target, part: Some(part), process, mapped };
        if let (Some(metadata), Some(part)) = (existing, &sink.part) {
            // Who may read a file does not change because it was written again; a file system without modes may refuse.
            let _ = fs::set_permissions(part, metadata.permissions());
        }
        Ok(sink)
    }

    /// Begins a file in the folder for temporary files that never gets a name: where the system allows, not even a killed
    /// writer leaves it behind, and nobody can put a link in its place.
    pub(super) fn spool() -> Result<Self, SinkError> {
        Self::spool_in(&std::env::temp_dir())
    }

    /// The same in any folder.
    pub(super) fn spool_in(folder: &Path) -> Result<Self, SinkError> {
        remove_leftovers(folder, SPOOL);
        let (file, part) = create_part(folder, SPOOL)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let unnamed = cfg!(unix) && fs::remove_file(&part).is_ok();
        let name = part.display().to_string();
        let mapped = Mapped::of(&file);
        let (part, target) = ((!unnamed).then(|| part.clone()), part);
        Ok(Self { file, name, target, part, process: std::process::id(), mapped })
    }

    /// The file itself.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Copies its first `size` bytes to a stream.
    pub(super) fn copy_to(&mut self, size: u64, stream: &mut impl Write) -> io::Result<()> {
        self.file.set_len(size)?;
        let mut file = &self.file;
        file.rewind()?;
        // In long pieces, for streams to which every call is dear; and no piece is offered again to one that failed.
        let mut piece = vec![0; STEP.min(usize::try_from(size).unwrap_or(STEP))];
        let mut left = size;
        while left > 0 {
            let len = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = piece.get_mut(..len).unwrap_or_default();
            file.read_exact(piece)?;
            stream.write_all(piece)?;
            left -= len as u64;
        }
        stream.flush()
    }

    /// Moves what follows `gaps` down, by copying it.
    fn move_down(&mut self, gaps: &[Range<u64>], size: u64) -> io::Result<()> {
        for (piece, target) in pieces(gaps, size) {
            self.move_piece(piece, target)?;
        }
        self.file.set_len(size - gap_len(gaps))
    }

    fn move_piece(&self, piece: Range<u64>, target: u64) -> io::Result<()> {
        let distance = piece.start - target;
        let threads = match &self.mapped {
            Some(_) => std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(MOVERS),
            None => 1,
        };
        // Each thread gets several steps of a wave, or starting it costs more than it gives.
        let threads = threads.min(distance / (2 * STEP as u64));
        if threads < 2 {
            return self.move_steps(&AtomicU64::new(piece.start), &piece, distance);
        }
        for wave in waves(&piece, distance) {
            let next = AtomicU64::new(wave.start);
            std::thread::scope(|scope| {
                let mover = || self.move_steps(&next, &wave, distance);
                // A thread that cannot be had is one less: the others do its share.
                let movers: Vec<_> =
                    (1..threads).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, mover).ok()).collect();
                let own = mover();
                movers.into_iter().fold(own, |result, mover| {
                    result.and(mover.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
                })
            })?;
        }
        Ok(())
    }

    /// Moves the steps of `run` down by `distance` in order: `next` is where the first begins that nobody took.
    fn move_steps(&self, next: &AtomicU64, run: &Range<u64>, distance: u64) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let from = next.fetch_add(STEP as u64, Ordering::Relaxed);
            if from >= run.end {
                return Ok(());
            }
            let len = (run.end - from).min(STEP as u64) as usize;
            let done = self.mapped.as_ref().map_or(0, |mapped| mapped.shift(&self.file, from, from - distance, len));
            if done < len {
                buffer.resize(len - done, 0);
                read_exact_at(&self.file, &mut buffer, from + done as u64)?;
                write_all_at(&self.file, &buffer, from + done as u64 - distance)?;
            }
        }
    }
}

/// Parts of `piece` that are no longer than the way they go down: nothing of such a part is overwritten while it is
/// moved, whatever the order of its steps.
fn waves(piece: &Range<u64>, distance: u64) -> impl Iterator<Item = Range<u64>> {
    let end = piece.end;
    let next = move |wave: &Range<u64>| Some(wave.end..end.min(wave.end.saturating_add(distance)));
    std::iter::successors(next(&(piece.start..piece.start)), next).take_while(|wave| !wave.is_empty())
}

/// Parts that are being written by this process.
static ALIVE: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

fn alive() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process has begun and not finished, for one that ends in the middle of it and drops nothing.
pub fn abandon_unfinished() {
    for (process, part) in alive().drain(..) {
        if process == std::process::id() {
            let _ = fs::remove_file(part);
        }
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
        let write = || match &self.mapped {
            Some(mapped) if bytes.len() >= LONG => {
                // In chunks, so that one that comes meanwhile is not kept waiting.
                bytes.chunks(CHUNK).enumerate().try_for_each(|(number, chunk)| {
                    mapped.write(&self.file, offset.saturating_add((number * CHUNK) as u64), chunk)
                })
            }
            _ => write_all_at(&self.file, bytes, offset),
        };
        write()
            .map_err(|source| SinkError::io(format!("cannot write {} bytes at offset {offset}", bytes.len()), source))
    }

    fn spill(&self) -> Spill {
        // Beside the file, where there has to be room for it anyway.
        Spill::in_folder(self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
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
        alive().retain(|(_, known)| known != part);
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
        if let Some(part) = &self.part
            && self.process == std::process::id()
        {
            let _ = fs::remove_file(part);
            alive().retain(|(_, known)| known != part);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of gaps may have one")]
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

    /// A folder for ordinary files, and one for files in memory where there is one.
    fn folders(name: &str) -> Vec<PathBuf> {
        let mut folders = vec![folder(name)];
        let memory = PathBuf::from(format!("/dev/shm/swath-io-sink-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&memory);
        match fs::create_dir(&memory) {
            Ok(()) => folders.push(memory),
            Err(error) => eprintln!("skipped in memory: /dev/shm: {error}"),
        }
        folders
    }

    /// Bytes that differ from place to place.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let word = |value: u64| (value ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(29).to_le_bytes();
        let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn many_threads_write_what_one_would() {
        for folder in folders("threads") {
            let path = folder.join("a.tif");
            // Ranges that touch each other, within pages and at their borders, some of them left out.
            let long = [LONG, CHUNK, CHUNK + LONG, 2 * CHUNK];
            let lens = long.iter().flat_map(|len| [len - 4096, len - 1, *len, len + 1, len + 4095]);
            let mut expected = Vec::new();
            let mut ranges = Vec::new();
            for (number, len) in [1, 4095, 4097].into_iter().chain(lens).enumerate() {
                let start = expected.len();
                if number % 5 == 3 {
                    expected.resize(start + len, 0);
                } else {
                    expected.extend(noise(number as u64, len));
                    ranges.push(start..start + len);
                }
            }
            let sink = Box::new(FileSink::create(&path).unwrap());
            let left = Mutex::new(ranges);
            // From the end, so that the file does not simply grow.
            let take = || left.lock().unwrap().pop();
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        while let Some(range) = take() {
                            sink.write_at(range.start as u64, &expected[range]).unwrap();
                        }
                    });
                }
            });
            sink.commit(expected.len() as u64).unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{}", folder.display());
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn gaps_of_every_size_are_taken_out() {
        const MIB: u64 = 1 << 20;
        let cases: [&[Range<u64>]; 10] = [
            &[0..1],
            &[5..4096, 4097..4099, 10_000..30_000],
            &[0..4096],
            &[MIB..2 * MIB + 1],
            &[3..STEP as u64 + 3, 5 * MIB..5 * MIB + 100],
            &[7 * MIB - 1..11 * MIB - 2],
            // Far enough for several threads, in one wave and in several.
            &[MIB..9 * MIB],
            &[0..8 * MIB - 7, 9 * MIB..9 * MIB + 1],
            &[100..17 * MIB + 5],
            &[2 * MIB..4 * MIB, 6 * MIB..13 * MIB, 13 * MIB + 1..14 * MIB, 20 * MIB..37 * MIB],
        ];
        let size = 43 * MIB + 77;
        for folder in folders("gaps") {
            let path = folder.join("a.tif");
            for gaps in cases {
                let mut bytes = noise(1, size as usize);
                let mut sink = Box::new(FileSink::create(&path).unwrap());
                let mut start = 0;
                for gap in gaps.iter().chain([&(size..size)]) {
                    sink.write_at(start, &bytes[start as usize..gap.start as usize]).unwrap();
                    start = gap.end;
                }
                sink.remove(gaps, size).unwrap();
                for gap in gaps.iter().rev() {
                    bytes.drain(gap.start as usize..gap.end as usize);
                }
                assert_eq!(sink.file.metadata().unwrap().len(), bytes.len() as u64);
                sink.commit(bytes.len() as u64).unwrap();
                assert!(fs::read(&path).unwrap() == bytes, "{gaps:?} in {}", folder.display());
            }
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn waves_do_not_overwrite_what_they_move() {
        for (piece, distance) in [(10..30, 10), (10..29, 7), (5..6, 1), (100..200, 1000), (8..8, 3)] {
            let waves: Vec<_> = waves(&piece, distance).collect();
            assert!(waves.iter().all(|wave| wave.end - distance.min(wave.end) <= wave.start), "{waves:?}");
            let bytes: Vec<u64> = waves.into_iter().flatten().collect();
            assert_eq!(bytes, piece.collect::<Vec<_>>());
        }
    }

    /// Where memory runs out in the middle of a copy, the process must live to say so.
    #[cfg(target_os = "linux")]
    #[test]
    fn full_memory_is_an_error() {
        const SMALL: &str = "SWATH_TEST_SMALL_TMPFS";
        if let Some(folder) = std::env::var_os(SMALL) {
            return fill(Path::new(&folder));
        }
        // This very test once more, where a tmpfs of 24 MiB is mounted that nobody else sees.
        let folder = folder("full");
        let script = "mount -t tmpfs -o size=24m none \"$0\" || exit 1; exec \"$@\"";
        let run = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(&folder)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "sink::file::tests::full_memory_is_an_error", "--nocapture"])
            .env(SMALL, &folder)
            .output();
        fs::remove_dir_all(folder).unwrap();
        match run {
            Ok(run) if run.status.code() == Some(1) => eprintln!("skipped: no tmpfs can be mounted"),
            Ok(run) => {
                let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
                assert!(run.status.success() && said.contains("1 passed"), "{}: {said}", run.status);
            }
            Err(error) => eprintln!("skipped: unshare: {error}"),
        }
    }

    #[cfg(target_os = "linux")]
    fn fill(folder: &Path) {
        const MIB: u64 = 1 << 20;
        let chunk = noise(0, CHUNK);
        for _ in 0..20 {
            let sink = FileSink::create(folder.join("a.tif")).unwrap();
            let failed = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (sink, chunk, failed) = (&sink, &chunk, &failed);
                    scope.spawn(move || {
                        for number in 0..3 {
                            let offset = (number * 4 + thread) * (CHUNK as u64 + 100);
                            if let Err(error) = sink.write_at(offset, chunk) {
                                failed.lock().unwrap().push(error);
                            }
                        }
                    });
                }
            });
            let failed = failed.into_inner().unwrap();
            assert!(!failed.is_empty() && failed.iter().all(|error| error.io_kind() == io::ErrorKind::StorageFull));
        }
        assert_eq!(names(folder), Vec::<String>::new());
        // 16 MiB cannot be moved into a hole of 16: there is no room for both.
        let mut sink = FileSink::create(folder.join("a.tif")).unwrap();
        let bytes = noise(1, 16 << 20);
        sink.write_at(16 * MIB, &bytes).unwrap();
        let error = sink.remove(&[0..16 * MIB], 32 * MIB).unwrap_err();
        assert_eq!(error.io_kind(), io::ErrorKind::StorageFull);
        drop(sink);
        // What is let go is free again, and a smaller move fits.
        let mut sink = Box::new(FileSink::create(folder.join("b.tif")).unwrap());
        sink.write_at(7 * MIB, &bytes).unwrap();
        sink.remove(&[0..7 * MIB], 23 * MIB).unwrap();
        sink.commit(16 * MIB).unwrap();
        assert!(fs::read(folder.join("b.tif")).unwrap() == bytes);
    }
}
