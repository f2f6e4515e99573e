//! Where tiles are: slices of the file's tables, fetched when a window needs them.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use swath_io::fork::PerProcess;
use swath_tiff::structure::Table;

use crate::{error::Error, fetch::Fetch};

/// Entries that are fetched and kept together.
const PAGE: u64 = 1024;
/// Pages kept for each table: 8 MiB. A file whose windows touch more starts over.
const MAX_PAGES: usize = 1024;
/// Pages that are fetched ahead of a read.
const MOST_AHEAD: usize = 256;

type Pages = PerProcess<Mutex<HashMap<u64, Arc<[u64]>>>>;

/// One table of a directory, and its pages that were fetched.
#[derive(Debug)]
pub(crate) struct CachedTable {
    table: Table,
    /// Entries that belong to a tile. A table may have more, and they may lie beyond the file.
    len: u64,
    pages: Pages,
}

impl CachedTable {
    pub(crate) fn new(table: Table, tiles: u64) -> Self {
        let len = table.len().min(tiles);
        Self { table, len, pages: Pages::default() }
    }

    /// Checks that the file holds the entry of tile `last`; the error says why not.
    pub(crate) fn check(&self, last: u64, size: u64) -> Result<(), String> {
        if last >= self.len {
            return Err(format!("the table of tiles has {} entries, too few for this tile", self.len));
        }
        let end = self.table.byte_range(last..last + 1).end;
        if end > size {
            return Err(format!("the table of tiles runs beyond the end of the file ({size} bytes)"));
        }
        Ok(())
    }

    /// Reads entries that the table has, without keeping them: a walk over every table of a file must not fill memory.
    pub(crate) fn read_once(&self, entries: Range<u64>, fetch: &Fetch) -> Result<Vec<u64>, Error> {
        let wanted = entries.end.saturating_sub(entries.start);
        let found = self.table.decode(&fetch.bytes(self.table.byte_range(entries))?);
        if found.len() as u64 == wanted {
            return Ok(found);
        }
        Err(Error::malformed("the table of tiles is shorter than its stated length"))
    }

    /// Returns the pages of these entries that are not in memory, as runs.
    pub(crate) fn missing(&self, entries: &[Range<u64>]) -> Vec<Range<u64>> {
        let pages = self.pages.get().lock().unwrap_or_else(PoisonError::into_inner);
        let of = |entries: &Range<u64>| entries.start / PAGE..entries.end.min(self.len).div_ceil(PAGE);
        let wanted: BTreeSet<u64> =
            entries.iter().flat_map(of).filter(|page| !pages.contains_key(page)).take(MOST_AHEAD).collect();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in wanted {
            match runs.last_mut().filter(|run| run.end == page) {
                Some(run) => run.end += 1,
                None => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// The byte range of a run of pages.
    pub(crate) fn place_of(&self, run: &Range<u64>) -> Range<u64> {
        self.table.byte_range(run.start * PAGE..(run.end * PAGE).min(self.len))
    }

    /// Keeps the bytes of a run of pages.
    pub(crate) fn keep(&self, run: &Range<u64>, bytes: &[u8]) {
        let decoded = self.table.decode(bytes);
        let mut pages = self.pages.get().lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= MAX_PAGES {
            pages.clear();
        }
        for (page, chunk) in run.clone().zip(decoded.chunks(PAGE as usize)) {
            pages.insert(page, chunk.into());
        }
    }

    /// Appends the entries to `out`; the table must have them.
    pub(crate) fn extend(&self, entries: Range<u64>, fetch: &Fetch, out: &mut Vec<u64>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let wanted = entries.start / PAGE..entries.end.div_ceil(PAGE);
        let mut have: Vec<Option<Arc<[u64]>>> = {
            let pages = self.pages.get().lock().unwrap_or_else(PoisonError::into_inner);
            wanted.clone().map(|page| pages.get(&page).cloned()).collect()
        };
        // One read from the first missing page to the last: gaps are rare, and cheaper than a second read.
        let first = have.iter().position(Option::is_none);
        if let (Some(first), Some(last)) = (first, have.iter().rposition(Option::is_none)) {
            let missing = wanted.start + first as u64..wanted.start + last as u64 + 1;
            let range = self.table.byte_range(missing.start * PAGE..(missing.end * PAGE).min(self.len));
            let decoded = self.table.decode(&fetch.bytes(range)?);
            let mut pages = self.pages.get().lock().unwrap_or_else(PoisonError::into_inner);
            if pages.len() >= MAX_PAGES {
                pages.clear();
            }
            for (slot, chunk) in have.iter_mut().skip(first).zip(decoded.chunks(PAGE as usize)) {
                let page: Arc<[u64]> = chunk.into();
                *slot = Some(page);
            }
            for (page, found) in wanted.clone().zip(&have) {
                if let Some(found) = found {
                    pages.entry(page).or_insert_with(|| found.clone());
                }
            }
        }
        for (page, found) in wanted.zip(&have) {
            let start = entries.start.saturating_sub(page * PAGE).min(PAGE) as usize;
            let end = (entries.end - page * PAGE).min(PAGE) as usize;
            match found.as_ref().and_then(|found| found.get(start..end)) {
                Some(found) => out.extend_from_slice(found),
                None => return Err(Error::malformed("the table of tiles is shorter than its stated length")),
            }
        }
        Ok(())
    }
}
