//! A file written to memory.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::sink::{Sink, SinkError, gaps::ranges_between};

/// Bytes of a page. Only pages that are written to take memory.
const PAGE: u64 = 64 << 10;

/// A file written to memory. [`Memory`] gives access to its bytes.
#[derive(Debug)]
pub struct MemorySink {
    name: String,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
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

/// Copies `bytes` to `offset`, page by page.
fn put(pages: &mut BTreeMap<u64, Vec<u8>>, mut offset: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let inside = (offset % PAGE) as usize;
        let len = bytes.len().min(PAGE as usize - inside);
        let (now, later) = bytes.split_at(len);
        let page = pages.entry(offset / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
        if let Some(target) = page.get_mut(inside..inside + len) {
            target.copy_from_slice(now);
        }
        bytes = later;
        offset += len as u64;
    }
}

impl Sink for MemorySink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        put(&mut lock(&self.pages), offset, bytes);
        Ok(())
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        let mut pages = lock(&self.pages);
        let Some(first) = gaps.first().map(|gap| gap.start) else { return Ok(()) };
        // The page in which the first gap begins stays. The bytes of later pages move to their new positions.
        let later = pages.split_off(&first.div_ceil(PAGE));
        let tail = match first % PAGE {
            0 => None,
            inside => pages.get_mut(&(first / PAGE)).map(|page| (inside as usize, page.clone())),
        };
        if let Some((inside, page)) = &tail {
            if let Some(cleared) = pages.get_mut(&(first / PAGE)).and_then(|page| page.get_mut(*inside..)) {
                cleared.fill(0);
            }
            move_page(&mut pages, first / PAGE, page, gaps, size);
        }
        for (number, page) in later {
            move_page(&mut pages, number, &page, gaps, size);
        }
        Ok(())
    }

    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let pages = self.pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = vec![0; size as usize];
        for (number, page) in pages {
            let start = (number * PAGE) as usize;
            let end = (start + page.len()).min(bytes.len());
            if let Some(target) = bytes.get_mut(start..end) {
                target.copy_from_slice(page.get(..end - start).unwrap_or_default());
            }
        }
        *lock(&self.out.0) = Some(bytes);
        Ok(())
    }
}

/// Copies the bytes of a page outside the gaps to their new positions.
fn move_page(pages: &mut BTreeMap<u64, Vec<u8>>, number: u64, page: &[u8], gaps: &[Range<u64>], size: u64) {
    let (start, end) = (number * PAGE, (number + 1) * PAGE);
    for (range, target) in ranges_between(gaps, size) {
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let bytes = page.get((from - start) as usize..(to - start) as usize).unwrap_or_default();
            put(pages, target + (from - range.start), bytes);
        }
    }
}
