//! A file on a local file system, which appears under its name only when it is whole.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::position::{read_exact_at, write_all_at};

use super::{
    BLOCK, CHUNK, Sink, SinkError,
    beside::Beside,
    gap_len,
    mapped::Mapped,
    part::{self, Placing, SPOOL, alive},
    pieces,
    spill::Spill,
    stream::StreamSink,
    target,
};

/// Bytes that are moved at a time where the file system cannot take a range out.
const STEP: usize = 2 << 20;
/// The same where memory is short.
const SHORT_STEP: usize = 8 << 10;
/// Threads that move bytes; more only wait for the memory.
const MOVERS: u64 = 16;
/// Writes to a file in memory that are at least as long as this need not take turns.
const LONG: usize = 1 << 20;

/// A file in the making: a sibling of the final one, locked as long as its writer lives, renamed when it is whole.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    name: String,
    /// Its own name is the last; the others are links to it.
    names: Vec<PathBuf>,
    /// Files by other names that describe what is replaced.
    also: Vec<PathBuf>,
    /// The sibling; `None` once it has become the target.
    part: Option<PathBuf>,
    /// The process that began it: one that was forked from it has a copy of everything, and must not remove the file.
    process: u32,
    /// For a file in memory.
    mapped: Option<Mapped>,
    /// Size that the system allows files (`ulimit -f`): a byte beyond it ends the process unless that ignores the signal.
    limit: u64,
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
        let names = target::names(path).map_err(|source| SinkError::io("cannot follow the link", source))?;
        let target = names.last().map_or(path, PathBuf::as_path);
        let existing = fs::metadata(target).ok();
        let refuse = |action: &str, kind, why: &str| Err(SinkError::io(action, io::Error::new(kind, why)));
        match &existing {
            Some(found) if found.is_dir() => {
                return refuse("cannot write the file", io::ErrorKind::IsADirectory, "this is a folder");
            }
            Some(found) if !found.is_file() => {
                return refuse("cannot replace this", io::ErrorKind::InvalidInput, "it is no ordinary file");
            }
            Some(found) if found.permissions().readonly() => {
                let why = "the file there is read-only";
                return refuse("cannot replace the file", io::ErrorKind::PermissionDenied, why);
            }
            _ => {}
        }
        let folder = folder_of(target);
        let mark = part::mark(target);
        part::remove_leftovers(folder, &mark, existing.as_ref());
        let (file, part) = part::create(folder, &mark)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let process = std::process::id();
        alive().push(part.clone());
        let mapped = Mapped::of(&file);
        let sink = Self { file, name, names, also: Vec::new(), part: Some(part), process, mapped, limit: limit() };
        if let Some(metadata) = existing {
            sink.take_after(&metadata);
        }
        Ok(sink)
    }

    /// Owner and mode of a file do not change because it was written again. Who may not give files away owns what he
    /// writes, and a file system without modes may refuse.
    fn take_after(&self, old: &fs::Metadata) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            if fchown(&self.file, Some(old.uid()), Some(old.gid())).is_err() {
                let _ = fchown(&self.file, None, Some(old.gid()));
            }
        }
        let _ = self.file.set_permissions(old.permissions());
    }

    /// Begins a file in the folder for temporary files that never gets a name: where the system allows, not even a killed
    /// writer leaves it behind, and nobody can put a link in its place.
    pub(super) fn spool() -> Result<Self, SinkError> {
        Self::spool_in(&std::env::temp_dir())
    }

    /// The same in any folder.
    pub(super) fn spool_in(folder: &Path) -> Result<Self, SinkError> {
        part::remove_leftovers(folder, SPOOL, None);
        let (file, part) = part::create(folder, SPOOL)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let unnamed = cfg!(unix) && fs::remove_file(&part).is_ok();
        let name = part.display().to_string();
        let mapped = Mapped::of(&file);
        let (part, names) = ((!unnamed).then(|| part.clone()), vec![part]);
        Ok(Self { file, name, names, also: Vec::new(), part, process: std::process::id(), mapped, limit: limit() })
    }

    /// The file's own name.
    fn target(&self) -> &Path {
        self.names.last().map_or(Path::new(""), PathBuf::as_path)
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_size(offset.saturating_add(bytes.len() as u64))?;
        match &self.mapped {
            Some(mapped) if bytes.len() >= LONG => {
                // In chunks, so that one that comes meanwhile is not kept waiting.
                bytes.chunks(CHUNK).enumerate().try_for_each(|(number, chunk)| {
                    mapped.write(&self.file, offset.saturating_add((number * CHUNK) as u64), chunk)
                })
            }
            _ => write_all_at(&self.file, bytes, offset),
        }
    }

    /// Refuses a file that would be larger than the system allows.
    pub(super) fn check_size(&self, size: u64) -> io::Result<()> {
        if size <= self.limit { Ok(()) } else { Err(too_large()) }
    }

    /// The file itself.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Copies its first `size` bytes to a stream.
    pub(super) fn copy_to(&mut self, size: u64, stream: &mut impl Write) -> io::Result<()> {
        self.check_size(size)?;
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

/// Either kind of sink for a path: an ordinary file is made aside and renamed; a pipe, a device or a file that is open
/// already gets the bytes in order at the end. The files in `also` describe what is replaced, and go with it.
///
/// # Errors
/// As [`FileSink::create`].
pub fn create(path: impl AsRef<Path>, also: Vec<PathBuf>) -> Result<Box<dyn Sink>, SinkError> {
    let path = path.as_ref();
    match target::stream(path).map_err(|source| SinkError::io("cannot open the output", source))? {
        Some(stream) => Ok(Box::new(StreamSink::new(path.display().to_string(), stream)?)),
        None => {
            let mut sink = FileSink::create(path)?;
            sink.also = also;
            Ok(Box::new(sink))
        }
    }
}

/// Makes a file of what `fill` writes, whole or not at all; a pipe, a device or a file that is open already gets the
/// bytes as they come.
///
/// # Errors
/// As [`FileSink::create`], and when `fill` fails or the bytes cannot be taken.
pub fn write(path: impl AsRef<Path>, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), SinkError> {
    let path = path.as_ref();
    let failed = |source| SinkError::io("cannot write the file", source);
    let filled = |out: &mut dyn Write| {
        // A long buffer is better, but no reason to fail.
        let long = Vec::<u8>::new().try_reserve_exact(STEP).is_ok();
        let mut out = BufWriter::with_capacity(if long { STEP } else { SHORT_STEP }, out);
        fill(&mut out).and_then(|()| out.flush()).map_err(failed)
    };
    if let Some(mut stream) = target::stream(path).map_err(|source| SinkError::io("cannot open the output", source))? {
        return filled(&mut stream);
    }
    let sink = Box::new(FileSink::create(path)?);
    let mut rest = InOrder { sink: &sink, end: 0 };
    filled(&mut rest)?;
    let size = rest.end;
    sink.commit(size)
}

/// Writes a file from its first byte to its last.
struct InOrder<'a> {
    sink: &'a FileSink,
    end: u64,
}

impl Write for InOrder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.put(self.end, bytes)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new name is on the disk once its folder is. Some file systems know no such thing, and not everyone may open folders.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    match folder.sync_all() {
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported | PermissionDenied) => Ok(()),
        result => result,
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The largest file that the system lets this process write.
#[cfg(target_os = "linux")]
fn limit() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

#[cfg(target_os = "linux")]
fn too_large() -> io::Error {
    rustix::io::Errno::FBIG.into()
}

#[cfg(not(target_os = "linux"))]
fn limit() -> u64 {
    u64::MAX
}

#[cfg(not(target_os = "linux"))]
fn too_large() -> io::Error {
    io::ErrorKind::FileTooLarge.into()
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
        self.put(offset, bytes)
            .map_err(|source| SinkError::io(format!("cannot write {} bytes at offset {offset}", bytes.len()), source))
    }

    fn spill(&self) -> Spill {
        // Beside the file, where there has to be room for it anyway.
        Spill::in_folder(folder_of(self.target()))
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
        let sized = self.check_size(size).and_then(|()| self.file.set_len(size));
        sized.map_err(fail("cannot set the size of the file"))?;
        self.file.sync_all().map_err(fail("cannot bring the file to the disk"))?;
        let Some(part) = self.part.take() else { return Ok(()) };
        let placing = Placing::begin(&part);
        let placed = self.place(&part);
        drop(placing);
        let synced = sync_folder(folder_of(self.target()));
        placed.and(synced.map_err(fail("the file is written, but its name may not outlive a power cut")))
    }
}

impl FileSink {
    /// Gives the part its name, in place of the old file and what describes that.
    fn place(&self, part: &Path) -> Result<(), SinkError> {
        let abandoned = |error| {
            let _ = fs::remove_file(part);
            error
        };
        if fs::symlink_metadata(self.target()).is_ok_and(|found| !found.is_file()) {
            let why =
                io::Error::new(io::ErrorKind::InvalidInput, "something that is no ordinary file has taken its name");
            return Err(abandoned(SinkError::io("cannot give the file its name", why)));
        }
        let beside = Beside::note(&self.names, &self.also).map_err(abandoned)?;
        if let Err(source) = fs::rename(part, self.target()) {
            beside.keep();
            return Err(abandoned(SinkError::io("cannot give the file its name", source)));
        }
        beside.remove()
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(part) = &self.part
            && self.process == std::process::id()
        {
            let _ = fs::remove_file(part);
            alive().retain(|known| known != part);
        }
    }
}

#[cfg(test)]
mod tests;
