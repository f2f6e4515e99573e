//! Memory of dropped tiles and rasters, which the next ones of the same size take over.
//!
//! The system clears each page before a process gets it. For a loop of small windows that can take longer than decoding.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use swath_io::fork::{self, PerProcess};
use swath_raster::memory::Buffer;

use super::cache;

/// Shorter buffers come from the heap, which keeps their pages by itself.
const SHORTEST: usize = 32 << 10;
/// Spare memory that was not used for this long goes back to the system.
const IDLE: Duration = Duration::from_secs(1);
/// Spare memory is at most the tile cache's budget, divided by this number. The cache frees as much at a time.
const SHARE: usize = 8;

static SPARE: PerProcess<Mutex<Spare>> = PerProcess::new();

/// Memory for the samples of a tile or raster, aligned for every sample type. When it is dropped, the next buffer of its length takes
/// the memory over; it goes back to the system if there is none within a second.
#[derive(Debug)]
pub struct SampleBuffer {
    buffer: Buffer,
    zeroed: bool,
}

impl SampleBuffer {
    /// Allocates `len` bytes of unspecified content. Returns `None` when the system has no memory for them.
    pub fn new(len: usize) -> Option<Self> {
        if let Some(buffer) = Spare::take(len) {
            return Some(Self { buffer, zeroed: false });
        }
        let buffer = Buffer::zeroed(len).or_else(|| {
            Spare::clear();
            Buffer::zeroed(len)
        })?;
        Some(Self { buffer, zeroed: true })
    }

    /// Whether the bytes were zero at first.
    pub(crate) fn was_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

impl Drop for SampleBuffer {
    fn drop(&mut self) {
        if self.buffer.len() >= SHORTEST {
            Spare::give(std::mem::take(&mut self.buffer));
        }
    }
}

/// The spare buffers of this process, and when each was dropped; the newest is last.
#[derive(Debug, Default)]
struct Spare {
    buffers: VecDeque<(Instant, Buffer)>,
    bytes: usize,
    /// Whether a thread waits to free them.
    has_cleaner: bool,
}

impl Spare {
    fn lock() -> MutexGuard<'static, Self> {
        SPARE.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(len: usize) -> Option<Buffer> {
        if len < SHORTEST {
            return None;
        }
        let mut spare = Self::lock();
        let found = spare.buffers.iter().rposition(|(_, buffer)| buffer.len() == len)?;
        let (_, buffer) = spare.buffers.remove(found)?;
        spare.bytes -= len;
        Some(buffer)
    }

    fn give(buffer: Buffer) {
        let most = cache::shared_budget() / SHARE;
        let mut spare = Self::lock();
        // Where memory is short, the buffer is freed at once.
        if buffer.len() > most || spare.buffers.try_reserve(1).is_err() {
            return;
        }
        spare.free_idle();
        while spare.bytes + buffer.len() > most {
            spare.free_oldest();
        }
        spare.bytes += buffer.len();
        spare.buffers.push_back((Instant::now(), buffer));
        let needs_cleaner = !std::mem::replace(&mut spare.has_cleaner, true);
        drop(spare);
        if needs_cleaner && fork::starting(|| std::thread::Builder::new().spawn(Self::clean)).is_err() {
            // Without the thread, later reads free idle memory.
            Self::lock().has_cleaner = false;
        }
    }

    /// Frees idle memory until there is none left.
    fn clean() {
        loop {
            std::thread::sleep(IDLE);
            let mut spare = Self::lock();
            spare.free_idle();
            if spare.buffers.is_empty() {
                spare.has_cleaner = false;
                return;
            }
        }
    }

    fn clear() {
        let mut spare = Self::lock();
        while !spare.buffers.is_empty() {
            spare.free_oldest();
        }
    }

    fn free_idle(&mut self) {
        while self.buffers.front().is_some_and(|(dropped, _)| dropped.elapsed() >= IDLE) {
            self.free_oldest();
        }
    }

    fn free_oldest(&mut self) {
        if let Some((_, buffer)) = self.buffers.pop_front() {
            self.bytes -= buffer.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length that no other test of this process uses.
    const LEN: usize = (1 << 20) + 8 * 12345;

    fn spare_of_len() -> usize {
        Spare::lock().buffers.iter().filter(|(_, buffer)| buffer.len() == LEN).count()
    }

    #[test]
    fn a_dropped_buffer_serves_the_next_of_its_size_until_it_was_idle() {
        let mut first = SampleBuffer::new(LEN).unwrap();
        assert!(first.was_zeroed() && first.bytes().iter().all(|byte| *byte == 0));
        first.bytes_mut().fill(7);
        let place = first.bytes().as_ptr();
        drop(first);
        let second = SampleBuffer::new(LEN).unwrap();
        assert_eq!((second.bytes().as_ptr(), second.was_zeroed(), second.len()), (place, false, LEN));
        let third = SampleBuffer::new(LEN).unwrap();
        assert!(third.was_zeroed());
        drop((second, third));
        assert_eq!(spare_of_len(), 2);
        let limit = Instant::now() + 20 * IDLE;
        while spare_of_len() > 0 && Instant::now() < limit {
            std::thread::sleep(IDLE / 4);
        }
        assert_eq!(spare_of_len(), 0, "idle memory goes back to the system");
    }

    #[test]
    fn short_and_very_long_buffers_are_freed() {
        for len in [0, SHORTEST - 1, cache::shared_budget() / SHARE + 1] {
            drop(SampleBuffer::new(len).unwrap());
            assert!(Spare::take(len).is_none());
        }
    }

    #[test]
    fn spare_memory_is_bounded() {
        let most = cache::shared_budget() / SHARE;
        let many: Vec<_> = (0..5).map(|_| SampleBuffer::new(most / 4).unwrap()).collect();
        drop(many);
        let spare = Spare::lock();
        let bytes: usize = spare.buffers.iter().map(|(_, buffer)| buffer.len()).sum();
        assert!(spare.bytes <= most && spare.bytes == bytes);
    }
}
