//! What bounds reads and writes: the speed of memory, of the file and of the folder that is written to.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use swath::{
    Cancel,
    io::{Source, SourceError, fork},
};

use super::measure::TimeBudget;

/// Bytes that are read and written at a time.
const BLOCK: usize = 4 << 20;
/// Most bytes of a file that are read or written to measure a speed.
const MOST: u64 = 256 << 20;
/// Least bytes that are read to measure the speed of the page cache.
const LEAST: u64 = 64 << 20;
/// The fastest of this many copies counts.
const COPIES: u32 = 5;

/// The speed of something, with a number of threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Threads that worked.
    pub threads: usize,
    /// Bytes per second.
    pub best: f64,
    /// Bytes per second of the first pass, where that differs: the first pass over a file may come from its disk.
    pub first: Option<f64>,
}

/// Returns the highest speed that was measured with at most this many threads: more threads can do at least what fewer can.
pub fn with_threads(speeds: &[Speed], threads: usize) -> Option<f64> {
    speeds.iter().filter(|speed| speed.threads <= threads).map(|speed| speed.best).max_by(f64::total_cmp)
}

/// Runs work on some threads at once, the caller's among them. A thread that cannot be started is one less.
fn on_threads(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        let work = &work;
        for _ in 1..threads {
            let started = fork::starting(|| thread::Builder::new().spawn_scoped(scope, work));
            if started.is_err() {
                break;
            }
        }
        work();
    });
}

/// Measures how fast memory is copied: `len` bytes to as many others.
pub fn memory_copy(threads: usize, len: usize) -> Result<Speed> {
    let (from, mut to) = (zeroed(len)?, zeroed(len)?);
    let piece = len.div_ceil(threads.max(1)).max(1);
    let mut best = Duration::MAX;
    // The first copy touches memory that the system has not handed out yet.
    for run in 0..=COPIES {
        let pieces = Mutex::new(from.chunks(piece).zip(to.chunks_mut(piece)));
        let began = Instant::now();
        on_threads(threads, || {
            loop {
                let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((from, to)) = next else { break };
                to.copy_from_slice(std::hint::black_box(from));
                std::hint::black_box(to);
            }
        });
        if run > 0 {
            best = best.min(began.elapsed());
        }
    }
    Ok(Speed { threads, best: per_second(len as u64, best), first: None })
}

/// Returns zeroed memory, or an error where the system has none.
pub fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).with_context(|| format!("there is no memory for {len} bytes"))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Measures how fast the first bytes of a file arrive in memory, at most `most` of them. `passes` counts the passes after
/// the first. Those read a small file several times, or starting threads would take longer than reading it.
pub fn file_read(
    source: &dyn Source,
    threads: usize,
    most: u64,
    passes: u32,
    budget: TimeBudget,
    cancel: &Cancel,
) -> Result<Speed> {
    let size = source.size()?.min(most.min(MOST)).max(1);
    let first = read_pass(source, threads, size, size, budget, cancel)?;
    let mut best = if passes == 0 { first } else { 0.0 };
    for number in 0..passes {
        if number > 0 && budget.has_passed(0.5) {
            break;
        }
        best = read_pass(source, threads, size, size.max(LEAST), budget, cancel)?.max(best);
    }
    Ok(Speed { threads, best, first: Some(first) })
}

/// Reads the first `size` bytes again and again until `total` bytes are read. Returns bytes per second.
fn read_pass(
    source: &dyn Source,
    threads: usize,
    size: u64,
    total: u64,
    budget: TimeBudget,
    cancel: &Cancel,
) -> Result<f64> {
    let block_len = (BLOCK as u64).min(size);
    let blocks = size.div_ceil(block_len);
    let (next, read) = (AtomicU64::new(0), AtomicU64::new(0));
    let fault: Mutex<Option<SourceError>> = Mutex::new(None);
    let began = Instant::now();
    on_threads(threads, || {
        let Ok(mut block) = zeroed(block_len as usize) else { return };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // A slow file is not read to its end: the rate of its beginning is enough.
            let late = number > 0 && budget.has_passed(0.5);
            if number * block_len >= total || late || cancel.is_cancelled() {
                break;
            }
            let offset = number % blocks * block_len;
            let len = block_len.min(size - offset) as usize;
            let part = block.get_mut(..len).unwrap_or_default();
            match source.read_at(offset, part) {
                Ok(()) => read.fetch_add(len as u64, Ordering::Relaxed),
                Err(error) => {
                    fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    break;
                }
            };
        }
    });
    let elapsed = began.elapsed();
    match fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(per_second(read.into_inner(), elapsed)),
    }
}

/// Measures how fast a file of this size is written and brought to its disk, in bytes per second. Removes the file.
pub fn file_write(path: &Path, size: u64) -> Result<f64> {
    let size = size.clamp(1, MOST);
    // No two blocks of a file system that compresses are alike.
    let mut random = super::measure::Random::new(size);
    let block: Vec<u8> = (0..BLOCK / 4).flat_map(|_| random.up_to(u32::MAX).to_le_bytes()).collect();
    let write = |mut file: File| -> std::io::Result<Duration> {
        let began = Instant::now();
        let mut left = size;
        while let Some(part) = block.get(..left.min(BLOCK as u64) as usize).filter(|part| !part.is_empty()) {
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.sync_all()?;
        Ok(began.elapsed())
    };
    let mut best = Duration::MAX;
    for _ in 0..2 {
        let name = || path.display().to_string();
        let time = write(File::create_new(path).with_context(name)?);
        let removed = std::fs::remove_file(path);
        best = best.min(time.with_context(name)?);
        removed.with_context(name)?;
    }
    Ok(per_second(size, best))
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::measure::Pace;

    #[test]
    fn speeds_are_positive_whatever_the_number_of_threads() {
        for threads in [1, 2, 7] {
            assert!(memory_copy(threads, 100_001).unwrap().best > 0.0, "{threads} threads");
            let source = swath::io::MemorySource::new("memory", vec![7; 100_001]);
            let budget = Pace::new(Duration::from_secs(60), 1).next_budget();
            let speed = file_read(&source, threads, u64::MAX, 2, budget, &Cancel::new()).unwrap();
            assert!(speed.best > 0.0 && speed.first > Some(0.0), "{speed:?}");
        }
    }

    #[test]
    fn the_written_file_does_not_stay() {
        let path = std::env::temp_dir().join(format!("swath-bound-{}", std::process::id()));
        assert!(file_write(&path, 5 << 20).unwrap() > 0.0);
        assert!(!path.exists());
        std::fs::write(&path, b"mine").unwrap();
        assert!(file_write(&path, 1).is_err(), "a file of others is not replaced");
        std::fs::remove_file(&path).ok();
    }

    #[test]
    fn the_speed_of_the_number_of_threads_counts() {
        let speeds = [1, 4].map(|threads| Speed { threads, best: threads as f64, first: None });
        assert_eq!((with_threads(&speeds, 1), with_threads(&speeds, 4)), (Some(1.0), Some(4.0)));
        assert_eq!((with_threads(&speeds, 3), with_threads(&speeds, 9)), (Some(1.0), Some(4.0)));
        assert_eq!(with_threads(&[], 1), None);
    }
}
