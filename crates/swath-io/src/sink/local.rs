//! A local file that is written at any position, and from which ranges can be removed.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::fork::starting;
use crate::{
    position::{read_exact_at, write_all_at},
    sink::{
        error::SinkError,
        gaps::{gap_len, ranges_between},
        mapped::Mapped,
    },
};

/// Chunks into which long writes are divided, so that several threads can share them.
pub(super) const CHUNK: usize = 4 << 20;
/// Bytes that are copied at a time, where the file system cannot remove a range.
pub(super) const STEP: usize = 2 << 20;
/// Most threads that copy bytes; more of them only wait for memory.
const MOVERS: u64 = 16;
/// From this length on, writes to a file in memory go through a mapping, so that threads do not wait for each other.
pub(super) const LONG: usize = 1 << 20;

/// An open file of this process.
#[derive(Debug)]
pub(super) struct LocalFile {
    file: File,
    /// For a file in memory (tmpfs).
    mapped: Option<Mapped>,
    /// Largest size that the system allows (`ulimit -f`). A write beyond it kills a process that does not ignore the signal.
    limit: u64,
}

impl LocalFile {
    pub(super) fn new(file: File) -> Self {
        let mapped = Mapped::of(&file);
        Self { file, mapped, limit: limit() }
    }

    /// Writes `bytes` at `offset`.
    pub(super) fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_size(offset.saturating_add(bytes.len() as u64))?;
        match &self.mapped {
            Some(mapped) if bytes.len() >= LONG => {
                // In chunks, so that a write that starts meanwhile does not wait for all of it.
                bytes.chunks(CHUNK).enumerate().try_for_each(|(number, chunk)| {
                    mapped.write(&self.file, offset.saturating_add((number * CHUNK) as u64), chunk)
                })
            }
            _ => write_all_at(&self.file, bytes, offset),
        }
    }

    /// Fails if a file of `size` bytes is larger than the system allows.
    pub(super) fn check_size(&self, size: u64) -> io::Result<()> {
        if size <= self.limit { Ok(()) } else { Err(too_large()) }
    }

    /// The file itself.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Copies the first `size` bytes to a stream.
    pub(super) fn copy_to(&mut self, size: u64, stream: &mut impl Write) -> io::Result<()> {
        self.check_size(size)?;
        self.file.set_len(size)?;
        let mut file = &self.file;
        file.rewind()?;
        // Long writes, since each call on a stream may be expensive. A write that failed is not repeated.
        let mut buffer = Vec::new();
        let len = STEP.min(usize::try_from(size).unwrap_or(STEP));
        buffer.try_reserve_exact(len)?;
        buffer.resize(len, 0);
        let mut remaining = size;
        while remaining > 0 {
            // Only the last round is shorter.
            buffer.truncate(usize::try_from(remaining).unwrap_or(usize::MAX));
            file.read_exact(&mut buffer)?;
            stream.write_all(&buffer)?;
            remaining -= buffer.len() as u64;
        }
        stream.flush()
    }

    /// Removes `gaps` from a file of `size` bytes; see [`crate::Sink::remove`].
    pub(super) fn remove(&mut self, gaps: &[Range<u64>], mut size: u64) -> Result<(), SinkError> {
        let mut remaining = gaps;
        // The last gap first, so that the positions of the earlier ones stay valid.
        while let Some((gap, earlier)) = remaining.split_last() {
            if !collapse(&self.file, gap) {
                break;
            }
            size -= gap.end - gap.start;
            remaining = earlier;
        }
        if remaining.is_empty() {
            return Ok(());
        }
        self.move_down(remaining, size).map_err(|source| SinkError::io("cannot move tiles to their place", source))
    }

    /// Moves the bytes after `gaps` down by copying them.
    fn move_down(&mut self, gaps: &[Range<u64>], size: u64) -> io::Result<()> {
        for (range, target) in ranges_between(gaps, size) {
            self.move_range(range, target)?;
        }
        self.file.set_len(size - gap_len(gaps))
    }

    fn move_range(&self, range: Range<u64>, target: u64) -> io::Result<()> {
        let distance = range.start - target;
        let threads = match &self.mapped {
            Some(_) => std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(MOVERS),
            None => 1,
        };
        // With fewer than a few steps of a wave each, starting the threads costs more than it gains.
        let threads = threads.min(distance / (2 * STEP as u64));
        if threads < 2 {
            return self.move_steps(&AtomicU64::new(range.start), &range, distance);
        }
        for wave in waves(&range, distance) {
            let next = AtomicU64::new(wave.start);
            std::thread::scope(|scope| {
                let mover = || self.move_steps(&next, &wave, distance);
                // If a thread cannot be started, the others do its work.
                let movers: Vec<_> = (1..threads)
                    .filter_map(|_| starting(|| std::thread::Builder::new().spawn_scoped(scope, mover)).ok())
                    .collect();
                let own = mover();
                movers.into_iter().fold(own, |result, mover| {
                    result.and(mover.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
                })
            })?;
        }
        Ok(())
    }

    /// Moves the steps of `run` down by `distance`, in order. `next` is the start of the first step that no thread has taken.
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
                buffer.clear();
                buffer.try_reserve_exact(len - done)?;
                buffer.resize(len - done, 0);
                read_exact_at(&self.file, &mut buffer, from + done as u64)?;
                write_all_at(&self.file, &buffer, from + done as u64 - distance)?;
            }
        }
    }
}

/// Splits `range` into waves no longer than the distance they move. Within a wave, steps can be moved in any order, because none
/// overwrites bytes that another still has to read.
pub(super) fn waves(range: &Range<u64>, distance: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let next = move |wave: &Range<u64>| Some(wave.end..end.min(wave.end.saturating_add(distance)));
    std::iter::successors(next(&(range.start..range.start)), next).take_while(|wave| !wave.is_empty())
}

/// The largest file that the system allows this process to write.
#[cfg(all(unix, not(feature = "portable")))]
fn limit() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

#[cfg(all(unix, not(feature = "portable")))]
fn too_large() -> io::Error {
    rustix::io::Errno::FBIG.into()
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn limit() -> u64 {
    u64::MAX
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn too_large() -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

/// Removes a range by moving extents instead of bytes. Returns whether the file system can do that (ext4 and XFS).
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn collapse(file: &File, gap: &Range<u64>) -> bool {
    use crate::sink::gaps::BLOCK;
    use rustix::fs::{FallocateFlags, fallocate};
    if !gap.start.is_multiple_of(BLOCK) || !gap.end.is_multiple_of(BLOCK) {
        return false;
    }
    fallocate(file, FallocateFlags::COLLAPSE_RANGE, gap.start, gap.end - gap.start).is_ok()
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
fn collapse(_: &File, _: &Range<u64>) -> bool {
    false
}
