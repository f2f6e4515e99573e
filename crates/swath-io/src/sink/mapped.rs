//! Files in memory (tmpfs): their own writes take turns, so threads that write at once copy to shared mappings.
//!
//! Memory that cannot be had must be an error and not SIGBUS. So a range is populated before it is touched
//! (`MADV_POPULATE_WRITE`, Linux 5.14): its pages then belong to the file and stay, whatever else fills the file
//! system. What the kernel refuses is left to `pwrite`, which says why. Pages are let go after each copy: the file's
//! memory is no part of the process's. Only a truncation between the two steps could still raise SIGBUS. This process
//! truncates only when nobody writes, and no other has a reason to touch the file: it is locked, hidden and ours. One
//! that truncates it all the same ends this one, and nothing else comes of it.
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

/// What `fstatfs` calls tmpfs.
const TMPFS: u64 = 0x0102_1994;
/// Bytes of the file that are mapped at once. Mapping makes all threads of a process wait, so it is done rarely.
const WINDOW: usize = 256 << 20;
/// Windows that are kept for the next writes.
const WINDOWS: usize = 16;

/// The mappings of a file in memory.
#[derive(Debug)]
pub(super) struct Mapped {
    page: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last one used is at the back.
    windows: VecDeque<(u64, Arc<Window>)>,
    /// Ranges of the file that threads are at work on.
    busy: Vec<Range<u64>>,
}

impl Mapped {
    /// The mappings of `file`; `None` where it is not in memory.
    pub fn of(file: &File) -> Option<Self> {
        let kind = fstatfs(file).ok()?.f_type;
        (kind as u64 == TMPFS).then(|| Self { page: page_size(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `bytes` at `offset`. A thread that is alone is faster with an ordinary write, which clears no pages.
    pub fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(range) = range(offset, bytes.len()) else { return write_all_at(file, bytes, offset) };
        let claim = Claim::new(self, [range]);
        let done = if claim.others { self.copy_in(&claim, file, offset, bytes) } else { 0 };
        match bytes.get(done..) {
            Some(left) if !left.is_empty() => write_all_at(file, left, offset + done as u64),
            _ => Ok(()),
        }
    }

    /// Copies `bytes` to the file as far as that can be done; returns how many were.
    fn copy_in(&self, claim: &Claim<'_, 1>, file: &File, offset: u64, bytes: &[u8]) -> usize {
        let Some(range) = range(offset, bytes.len()).filter(|range| claim.holds(range)) else { return 0 };
        // Its last byte makes the file long enough without making it shorter, whatever others write beyond it.
        if range.is_empty() || fallocate(file, FallocateFlags::empty(), range.end - 1, 1).is_err() {
            return 0;
        }
        let mut done = 0;
        while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
            let Some(place) = self.place(file, offset + done as u64) else { break };
            let len = left.len().min(place.room());
            let Some(target) = place.hold(len, Advice::LinuxPopulateWrite, self.page) else { break };
            // SAFETY: `target` stands for `len` mapped bytes of the file that are populated. No other thread copies
            // from or to them, for the claim holds them alone. Nothing refers to mapped memory, so `left` does not.
            unsafe { left.as_ptr().copy_to_nonoverlapping(target.start.as_ptr(), len) };
            done += len;
        }
        done
    }

    /// Copies `len` bytes at `from` down to `to` as far as that can be done, from the first on; returns how many were.
    /// The two ranges may overlap.
    pub fn shift(&self, file: &File, from: u64, to: u64, len: usize) -> usize {
        let (Some(source), Some(target)) = (range(from, len), range(to, len)) else { return 0 };
        let claim = Claim::new(self, [source.clone(), target.clone()]);
        if !claim.holds(&source) || !claim.holds(&target) {
            return 0;
        }
        let mut done = 0;
        while done < len {
            let Some(source) = self.place(file, from + done as u64) else { break };
            let Some(target) = self.place(file, to + done as u64) else { break };
            let step = (len - done).min(source.room()).min(target.room());
            let Some(source) = source.hold(step, Advice::LinuxPopulateRead, self.page) else { break };
            let Some(target) = target.hold(step, Advice::LinuxPopulateWrite, self.page) else { break };
            // SAFETY: both stand for `step` mapped bytes of the file that are populated. No other thread copies from or
            // to them, for the claim holds them alone. Where they overlap they lie in one window, and are seen to.
            unsafe { source.start.as_ptr().copy_to(target.start.as_ptr(), step) };
            done += step;
        }
        done
    }

    /// Where `offset` of the file is in memory.
    fn place(&self, file: &File, offset: u64) -> Option<Place> {
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
        Some(Place { window, inside })
    }
}

fn range(offset: u64, len: usize) -> Option<Range<u64>> {
    Some(offset..offset.checked_add(len as u64)?)
}

/// Ranges that a thread is at work on, as long as this lives.
struct Claim<'a, const N: usize> {
    mapped: &'a Mapped,
    ranges: [Range<u64>; N],
    /// Nobody else is at work on any part of them.
    alone: bool,
    /// Somebody else is at work on other ranges.
    others: bool,
}

impl<'a, const N: usize> Claim<'a, N> {
    fn new(mapped: &'a Mapped, ranges: [Range<u64>; N]) -> Self {
        let mut state = mapped.lock();
        let meets = |range: &Range<u64>| state.busy.iter().any(|busy| busy.start < range.end && range.start < busy.end);
        let (alone, others) = (!ranges.iter().any(meets), !state.busy.is_empty());
        state.busy.extend_from_slice(&ranges);
        drop(state);
        Self { mapped, ranges, alone, others }
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        self.alone && self.ranges.contains(range)
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

/// [`WINDOW`] bytes of a file, mapped; those beyond its end must not be touched.
#[derive(Debug)]
struct Window(NonNull<c_void>);

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Window {}
// SAFETY: what is at its address is touched in `copy_in` and `shift` only, by the one thread that claimed it.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `file` from `offset`, a multiple of [`WINDOW`].
    fn new(file: &File, offset: u64) -> Option<Self> {
        // SAFETY: the kernel chooses the address, so nothing that is mapped changes.
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
        // Mounts that give huge pages to those who ask give them then.
        // SAFETY: these are the bytes that were just mapped; which pages hold them changes nothing in them.
        let _ = unsafe { madvise(start.as_ptr(), WINDOW, Advice::LinuxHugepage) };
        Some(Self(start))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly these bytes, and whoever uses them holds the window.
        let _ = unsafe { munmap(self.0.as_ptr(), WINDOW) };
    }
}

/// A byte of a file in memory.
struct Place {
    window: Arc<Window>,
    /// Less than [`WINDOW`].
    inside: usize,
}

impl Place {
    /// Bytes from here to the end of the window.
    fn room(&self) -> usize {
        WINDOW - self.inside
    }

    /// Makes sure that the pages of `len` bytes from here are there until the result is dropped.
    fn hold(self, len: usize, populate: Advice, page: usize) -> Option<Held> {
        if len > self.room() {
            return None;
        }
        let first = self.inside / page * page;
        let pages = (self.inside + len).next_multiple_of(page).min(WINDOW) - first;
        // SAFETY: `first` and `inside` lie in the window.
        let (first, start) = unsafe { (self.window.0.byte_add(first), self.window.0.byte_add(self.inside).cast()) };
        // SAFETY: the pages lie in the window; populating them changes no byte of the file.
        unsafe { madvise(first.as_ptr(), pages, populate) }.ok()?;
        Some(Held { first, pages, start, _window: self.window })
    }
}

/// Bytes of a file in memory whose pages are there.
struct Held {
    first: NonNull<c_void>,
    pages: usize,
    start: NonNull<u8>,
    _window: Arc<Window>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the pages lie in the window that is held. In a shared mapping this takes them out of the process
        // only: the file keeps them, and a thread at work on another part of one gets it back when it touches it.
        let _ = unsafe { madvise(self.first.as_ptr(), self.pages, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a claim may be of one range")]
mod tests {
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
            eprintln!("skipped: /dev/shm is no tmpfs");
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
        // Six copies, of which the first two share their pages; a mount may give huge pages at each end.
        assert!(metadata.blocks() * 512 < 6 * (bytes.len() as u64 + (4 << 20)), "{} blocks", metadata.blocks());
        assert!(mapped.lock().busy.is_empty() && mapped.lock().windows.len() <= WINDOWS);
    }

    #[test]
    fn windows_are_given_back() {
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
    fn claims_that_meet_are_not_alone() {
        let Some((file, mapped)) = memory_file() else { return };
        let first = Claim::new(&mapped, [10..20]);
        assert!(first.alone && !first.others);
        let (apart, meets) = (Claim::new(&mapped, [0..10, 20..30]), Claim::new(&mapped, [40..50, 19..21]));
        assert!(apart.alone && apart.others && !meets.alone);
        assert_eq!(mapped.shift(&file, 15, 5, 3), 0);
        drop((first, apart, meets));
        assert!(mapped.lock().busy.is_empty());
    }

    #[test]
    fn writers_of_the_same_bytes_do_not_meet_in_memory() {
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
