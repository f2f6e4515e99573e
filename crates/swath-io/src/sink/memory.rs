//! A file written to memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::sink::{Sink, SinkError, gaps::ranges_between};

/// Bytes of a page. Only pages that are written to take memory.
const PAGE: usize = 64 << 10;

/// Pages by their number in the file.
type Pages = BTreeMap<u64, Box<[u8; PAGE]>>;

/// A file written to memory. [`Memory`] gives access to its bytes.
#[derive(Debug)]
pub struct MemorySink {
    name: String,
    pages: Mutex<Pages>,
    out: Memory,
}

/// The bytes of a [`MemorySink`], once it is committed.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Option<Vec<u8>>>>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Memory").field(&lock(&self.0).as_ref().map(Vec::len)).finish()
    }
}

/// Ignores poisoning: after a panic in another thread the file is dropped anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Takes the bytes; `None` until the sink is committed, and after they were taken.
    pub fn take(&self) -> Option<Vec<u8>> {
        lock(&self.0).take()
    }
}

impl MemorySink {
    /// A sink called `name` in messages, and the handle to its bytes.
    pub fn new(name: impl Into<String>) -> (Self, Memory) {
        let out = Memory::default();
        (Self { name: name.into(), pages: Mutex::default(), out: out.clone() }, out)
    }
}

fn no_memory(source: io::Error) -> SinkError {
    SinkError::io("cannot keep the file in memory", source)
}

/// Returns a page of zeros.
fn new_page() -> Result<Box<[u8; PAGE]>, SinkError> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE).map_err(|error| no_memory(error.into()))?;
    page.resize(PAGE, 0);
    page.into_boxed_slice().try_into().map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))
}

/// Copies `bytes` to `offset`, page by page.
fn put(pages: &mut Pages, mut offset: u64, mut bytes: &[u8]) -> Result<(), SinkError> {
    while !bytes.is_empty() {
        let page = match pages.entry(offset / PAGE as u64) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(place) => place.insert(new_page()?),
        };
        let (_, room) = page.split_at_mut((offset % PAGE as u64) as usize);
        let (now, later) = bytes.split_at(bytes.len().min(room.len()));
        room.split_at_mut(now.len()).0.copy_from_slice(now);
        bytes = later;
        offset += now.len() as u64;
    }
    Ok(())
}

impl Sink for MemorySink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        put(&mut lock(&self.pages), offset, bytes)
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        let mut pages = lock(&self.pages);
        let Some(first) = gaps.first().map(|gap| gap.start) else { return Ok(()) };
        // The bytes before the first gap stay, also those in its page. All later bytes move to their new positions.
        let mut moved = pages.split_off(&(first / PAGE as u64));
        if let Some(page) = moved.remove(&(first / PAGE as u64)) {
            let number = first / PAGE as u64;
            let (before, _) = page.split_at((first % PAGE as u64) as usize);
            put(&mut pages, number * PAGE as u64, before)?;
            move_page(&mut pages, number, &page, gaps, size)?;
        }
        for (number, page) in moved {
            move_page(&mut pages, number, &page, gaps, size)?;
        }
        Ok(())
    }

    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let pages = self.pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        let size = usize::try_from(size).map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|error| no_memory(error.into()))?;
        for (number, page) in pages {
            // Pages that were never written are zero.
            let start = number.saturating_mul(PAGE as u64).min(size as u64) as usize;
            bytes.resize(start, 0);
            bytes.extend_from_slice(page.split_at(PAGE.min(size - start)).0);
        }
        bytes.resize(size, 0);
        *lock(&self.out.0) = Some(bytes);
        Ok(())
    }
}

/// Copies the bytes of a page outside the gaps to their new positions.
fn move_page(
    pages: &mut Pages,
    number: u64,
    page: &[u8; PAGE],
    gaps: &[Range<u64>],
    size: u64,
) -> Result<(), SinkError> {
    let (start, end) = (number * PAGE as u64, (number + 1) * PAGE as u64);
    for (range, target) in ranges_between(gaps, size) {
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let (_, bytes) = page.split_at((to - start) as usize).0.split_at((from - start) as usize);
            put(pages, target + (from - range.start), bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_memory_does_not_hold_is_an_error() {
        for size in [u64::MAX, 1 << 62] {
            let (sink, memory) = MemorySink::new("memory");
            sink.write_at(7, &[1; 9]).unwrap();
            let error = Box::new(sink).commit(size).unwrap_err();
            assert_eq!(error.io_kind(), io::ErrorKind::OutOfMemory, "{error}");
            assert_eq!(memory.take(), None);
        }
    }

    #[test]
    fn gaps_close_and_no_byte_beside_them_changes() {
        let len = 5 * PAGE + 77;
        let page = PAGE as u64;
        let mut expected: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        // Within a page, from page to page, whole pages, and to the end of one.
        let gaps = [10..20, page - 3..page + 3, 2 * page..3 * page, 4 * page - 1..4 * page, 5 * page..5 * page + 5];
        let (mut sink, memory) = MemorySink::new("memory");
        sink.write_at(0, &expected).unwrap();
        sink.remove(&gaps, len as u64).unwrap();
        for gap in gaps.iter().rev() {
            expected.drain(gap.start as usize..gap.end as usize);
        }
        Box::new(sink).commit(expected.len() as u64).unwrap();
        assert_eq!(memory.take(), Some(expected));
    }
}
