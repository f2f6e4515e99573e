//! Writes to files in memory (tmpfs) through shared mappings. `pwrite` calls on such a file wait for each other; copies do not.
//!
//! Running out of memory must be an error and not SIGBUS. So a range is populated before it is touched (`MADV_POPULATE_WRITE`,
//! Linux 5.14): its pages then belong to the file and stay, whatever else fills the file system. Where the kernel refuses, the
//! bytes are written with `pwrite`, which reports why. Pages are released after each copy, so that the file does not count as
//! memory of the process. Only a truncation between the two steps could still raise SIGBUS. This process truncates only when no
//! thread writes, and no other process has a reason to touch the file: it is locked, hidden and ours. A process that truncates
//! it anyway kills this one, and does no other harm.
#![allow(unsafe_code, reason = "memory that is mapped from a file")]

use std::{
    collections::VecDeque,
    ffi::c_void,
    fs::File,
    io,
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{FallocateFlags, fallocate, fstatfs},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
    param::page_size,
};

use crate::position::write_all_at;

/// The number of tmpfs in `fstatfs`.
const TMPFS: u64 = 0x0102_1994;
/// Bytes of one mapping. Mapping stalls all threads of a process, so it should be rare.
const WINDOW: usize = 256 << 20;
/// Most mapped windows that are kept.
const WINDOWS: usize = 16;

/// The mappings of a file in memory.
#[derive(Debug)]
pub(super) struct Mapped {
    page: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The most recently used window is at the back.
    windows: VecDeque<(u64, Arc<Window>)>,
    /// Ranges of the file that threads are copying.
    busy: Vec<Range<u64>>,
}

impl Mapped {
    /// The mappings of `file`; `None` if it is not on tmpfs.
    pub fn of(file: &File) -> Option<Self> {
        let kind = fstatfs(file).ok()?.f_type;
        (kind as u64 == TMPFS).then(|| Self { page: page_size(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `bytes` at `offset`. A single thread is faster with an ordinary write, which does not clear pages first.
    pub fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(range) = range(offset, bytes.len()) else { return write_all_at(file, bytes, offset) };
        let claim = Claim::new(self, [range]);
        let done = if claim.others { self.copy_in(&claim, file, offset, bytes) } else { 0 };
        match bytes.get(done..) {
            Some(left) if !left.is_empty() => write_all_at(file, left, offset + done as u64),
            _ => Ok(()),
        }
    }

    /// Copies as many of `bytes` as possible to the file, and returns their number.
    fn copy_in(&self, claim: &Claim<'_, 1>, file: &File, offset: u64, bytes: &[u8]) -> usize {
        let Some(range) = range(offset, bytes.len()).filter(|range| claim.holds(range)) else { return 0 };
        // Allocating the last byte makes the file long enough, and never shorter, whatever others write beyond it.
        if range.is_empty() || fallocate(file, FallocateFlags::empty(), range.end - 1, 1).is_err() {
            return 0;
        }
        let mut done = 0;
        while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
            let Some(position) = self.locate(file, offset + done as u64) else { break };
            let len = left.len().min(position.room());
            let Some(target) = position.populate(len, Advice::LinuxPopulateWrite, self.page) else { break };
            // SAFETY: `target` is `len` mapped and populated bytes of the file. No other thread copies from or to them, because the
            // claim is exclusive. There are no references to mapped memory, so `left` does not overlap.
            unsafe { left.as_ptr().copy_to_nonoverlapping(target.start.as_ptr(), len) };
            done += len;
        }
        done
    }

    /// Copies up to `len` bytes from `from` down to `to`, starting with the first, and returns how many. The ranges may overlap.
    pub fn shift(&self, file: &File, from: u64, to: u64, len: usize) -> usize {
        let (Some(source), Some(target)) = (range(from, len), range(to, len)) else { return 0 };
        let claim = Claim::new(self, [source.clone(), target.clone()]);
        if !claim.holds(&source) || !claim.holds(&target) {
            return 0;
        }
        let mut done = 0;
        while done < len {
            let Some(source) = self.locate(file, from + done as u64) else { break };
            let Some(target) = self.locate(file, to + done as u64) else { break };
            let step = (len - done).min(source.room()).min(target.room());
            let Some(source) = source.populate(step, Advice::LinuxPopulateRead, self.page) else { break };
            let Some(target) = target.populate(step, Advice::LinuxPopulateWrite, self.page) else { break };
            // SAFETY: both are `step` mapped and populated bytes of the file. No other thread copies from or to them, because the
            // claim is exclusive. If they overlap, they lie in one window, and `copy_to` allows overlap.
            unsafe { source.start.as_ptr().copy_to(target.start.as_ptr(), step) };
            done += step;
        }
        done
    }

    /// The mapped position of `offset`.
    fn locate(&self, file: &File, offset: u64) -> Option<MappedPosition> {
        let (number, inside) = (offset / WINDOW as u64, (offset % WINDOW as u64) as usize);
        let mut state = self.lock();
        let known = state.windows.iter().position(|(known, _)| *known == number);
        let window = match known.and_then(|index| state.windows.remove(index)) {
            Some((_, window)) => window,
            None => Arc::new(Window::new(file, number * WINDOW as u64)?),
        };
        state.windows.push_back((number, Arc::clone(&window)));
        let oldest = if state.windows.len() > WINDOWS { state.windows.pop_front() } else { None };
        drop(state);
        drop(oldest);
        Some(MappedPosition { window, inside })
    }
}

fn range(offset: u64, len: usize) -> Option<Range<u64>> {
    Some(offset..offset.checked_add(len as u64)?)
}

/// Ranges that a thread copies while this lives.
struct Claim<'a, const N: usize> {
    mapped: &'a Mapped,
    ranges: [Range<u64>; N],
    /// No other thread copies any part of them.
    exclusive: bool,
    /// Other threads copy other ranges.
    others: bool,
}

impl<'a, const N: usize> Claim<'a, N> {
    fn new(mapped: &'a Mapped, ranges: [Range<u64>; N]) -> Self {
        let mut state = mapped.lock();
        let meets = |range: &Range<u64>| state.busy.iter().any(|busy| busy.start < range.end && range.start < busy.end);
        let (exclusive, others) = (!ranges.iter().any(meets), !state.busy.is_empty());
        state.busy.extend_from_slice(&ranges);
        drop(state);
        Self { mapped, ranges, exclusive, others }
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        self.exclusive && self.ranges.contains(range)
    }
}

impl<const N: usize> Drop for Claim<'_, N> {
    fn drop(&mut self) {
        let mut state = self.mapped.lock();
        for range in &self.ranges {
            if let Some(index) = state.busy.iter().position(|busy| busy == range) {
                state.busy.swap_remove(index);
            }
        }
    }
}

/// A mapping of [`WINDOW`] bytes of a file. Bytes beyond the end of the file must not be touched.
#[derive(Debug)]
struct Window(NonNull<c_void>);

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Window {}
// SAFETY: only `copy_in` and `shift` touch the mapped memory, in the one thread that claimed it.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `file` from `offset`, a multiple of [`WINDOW`].
    fn new(file: &File, offset: u64) -> Option<Self> {
        // SAFETY: the kernel chooses the address, so existing mappings stay unchanged.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                WINDOW,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset,
            )
        };
        let start = NonNull::new(start.ok()?)?;
        // Some mounts give huge pages on request.
        // SAFETY: these bytes were just mapped, and the kind of page does not change their content.
        let _ = unsafe { madvise(start.as_ptr(), WINDOW, Advice::LinuxHugepage) };
        Some(Self(start))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly these bytes, and every user of them holds an `Arc` of the window.
        let _ = unsafe { munmap(self.0.as_ptr(), WINDOW) };
    }
}

/// A byte of the file in a mapping.
struct MappedPosition {
    window: Arc<Window>,
    /// Less than [`WINDOW`].
    inside: usize,
}

impl MappedPosition {
    /// Bytes from here to the end of the window.
    fn room(&self) -> usize {
        WINDOW - self.inside
    }

    /// Populates the pages of `len` bytes from here, until the result is dropped.
    fn populate(self, len: usize, populate: Advice, page: usize) -> Option<Populated> {
        if len > self.room() {
            return None;
        }
        let first = self.inside / page * page;
        let pages = (self.inside + len).next_multiple_of(page).min(WINDOW) - first;
        // SAFETY: `first` and `inside` lie in the window.
        let (first, start) = unsafe { (self.window.0.byte_add(first), self.window.0.byte_add(self.inside).cast()) };
        // SAFETY: the pages lie in the window; populating them changes no byte of the file.
        unsafe { madvise(first.as_ptr(), pages, populate) }.ok()?;
        Some(Populated { first, pages, start, _window: self.window })
    }
}

/// Mapped bytes whose pages are populated.
struct Populated {
    first: NonNull<c_void>,
    pages: usize,
    start: NonNull<u8>,
    _window: Arc<Window>,
}

impl Drop for Populated {
    fn drop(&mut self) {
        // SAFETY: the pages lie in the held window. In a shared mapping this removes them only from the process: the file keeps
        // them, and a thread that copies another part of a page gets it back when it touches it.
        let _ = unsafe { madvise(self.first.as_ptr(), self.pages, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "a claim may have one range")]

    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::position::read_exact_at;

    /// A file in memory without a name, where the system has that.
    fn memory_file() -> Option<(File, Mapped)> {
        let name = format!("/dev/shm/swath-io-mapped-{:?}-{}", std::thread::current().id(), std::process::id());
        let file = File::options().read(true).write(true).create_new(true).open(&name).ok()?;
        std::fs::remove_file(name).unwrap();
        let mapped = Mapped::of(&file);
        if mapped.is_none() {
            eprintln!("skipped: /dev/shm is not a tmpfs");
        }
        Some((file, mapped?))
    }

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32).map(|value| (value.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect()
    }

    fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        read_exact_at(file, &mut bytes, offset).unwrap();
        bytes
    }

    #[test]
    fn copies_reach_the_file_across_windows_and_leave_holes() {
        let Some((file, mapped)) = memory_file() else { return };
        let bytes = noise((2 << 20) + 4097);
        let border = WINDOW as u64;
        for offset in [0, 4095, border - 1, border - 4096, border * 3 - 1_000_001, border * 40 + 1] {
            let claim = Claim::new(&mapped, [range(offset, bytes.len()).unwrap()]);
            assert_eq!(mapped.copy_in(&claim, &file, offset, &bytes), bytes.len(), "at {offset}");
            drop(claim);
            assert!(read(&file, offset, bytes.len()) == bytes, "at {offset}");
        }
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), border * 40 + 1 + bytes.len() as u64);
        // Six copies; the first two share their pages; a mount may give huge pages at each end.
        assert!(metadata.blocks() * 512 < 6 * (bytes.len() as u64 + (4 << 20)), "{} blocks", metadata.blocks());
        assert!(mapped.lock().busy.is_empty() && mapped.lock().windows.len() <= WINDOWS);
    }

    #[test]
    fn windows_are_unmapped() {
        let Some((file, mapped)) = memory_file() else { return };
        for number in 0..WINDOWS as u64 * 2 {
            let offset = number * WINDOW as u64 + 5;
            let claim = Claim::new(&mapped, [range(offset, 3).unwrap()]);
            assert_eq!(mapped.copy_in(&claim, &file, offset, b"abc"), 3);
        }
        assert_eq!(mapped.lock().windows.len(), WINDOWS);
        assert_eq!(read(&file, 5, 3), b"abc");
    }

    #[test]
    fn claims_that_overlap_are_not_exclusive() {
        let Some((file, mapped)) = memory_file() else { return };
        let first = Claim::new(&mapped, [10..20]);
        assert!(first.exclusive && !first.others);
        let (apart, meets) = (Claim::new(&mapped, [0..10, 20..30]), Claim::new(&mapped, [40..50, 19..21]));
        assert!(apart.exclusive && apart.others && !meets.exclusive);
        assert_eq!(mapped.shift(&file, 15, 5, 3), 0);
        drop((first, apart, meets));
        assert!(mapped.lock().busy.is_empty());
    }

    #[test]
    fn writers_of_the_same_bytes_do_not_race() {
        let Some((file, mapped)) = memory_file() else { return };
        let bytes = noise(3 << 20);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..8).for_each(|_| mapped.write(&file, 77, &bytes).unwrap()));
            }
        });
        assert!(read(&file, 77, bytes.len()) == bytes);
    }

    #[test]
    fn shift_moves_down_by_any_distance() {
        let Some((file, mapped)) = memory_file() else { return };
        let bytes = noise(200_000);
        for start in [9_000_000, WINDOW as u64 - 100_000, WINDOW as u64 + 50_000] {
            for distance in [1, 13, 4096, 100_000, 199_999, 200_000, 8_000_000] {
                write_all_at(&file, &bytes, start).unwrap();
                assert_eq!(mapped.shift(&file, start, start - distance, bytes.len()), bytes.len());
                assert!(read(&file, start - distance, bytes.len()) == bytes, "{start} down by {distance}");
            }
        }
        // Nothing is touched beyond the end of the file.
        let end = file.metadata().unwrap().len();
        assert_eq!(mapped.shift(&file, end + (1 << 20), 0, 10), 0);
    }
}
