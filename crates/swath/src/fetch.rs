//! Gives parsers the bytes they lack.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use swath_io::{Access, ReadInto, Source, coalesce::coalesce, fork::PerProcess};
use swath_raster::memory;
use swath_tiff::{
    Place, TiffError,
    structure::{Bytes, ParseStop},
};

use crate::{cancel::Cancel, error::Error};

/// Most bytes of a remote file that are fetched ahead of what a parser asks for.
const MOST_PREFETCH: u64 = 1 << 20;
/// How often one range is read for one parser.
const MOST_TIMES: u32 = 8;
/// Bytes of the file that stay in memory.
const MAX_KNOWN: usize = 2 << 20;

/// Gives parsers the bytes they lack, and keeps them for the next parser.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) access: Access,
    size: u64,
    known: PerProcess<Mutex<LoadedBytes>>,
}

/// Bytes of the file that are in memory.
#[derive(Debug)]
struct LoadedBytes {
    bytes: Bytes,
    len: usize,
    /// Bytes to fetch with the next range.
    prefetch: u64,
}

impl Fetch {
    pub(crate) fn new(source: Arc<dyn Source>) -> Result<Self, Error> {
        let size = source.size()?;
        let access = source.access();
        Ok(Self { source, access, size, known: PerProcess::new() })
    }

    fn known(&self) -> MutexGuard<'_, LoadedBytes> {
        let nothing = || LoadedBytes { bytes: Bytes::new(self.size), len: 0, prefetch: self.access.prefetch };
        self.known.get_or(|| Mutex::new(nothing())).lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Runs a parser until it lacks nothing.
    pub(crate) fn parse<T>(&self, parser: impl Fn(&Bytes) -> Result<T, ParseStop>) -> Result<T, Error> {
        self.load_and_parse(|bytes| match parser(bytes) {
            Ok(value) => Ok(Ok(value)),
            Err(ParseStop::Fault(error)) => Ok(Err(Error::from(error))),
            Err(ParseStop::NotLoaded(range)) => Err(range),
        })?
    }

    /// Calls a parser that returns its value or the range it lacks, and loads that range, until the parser returns a value.
    pub(crate) fn load_and_parse<T>(
        &self,
        mut parser: impl FnMut(&Bytes) -> Result<T, Range<u64>>,
    ) -> Result<T, Error> {
        let (mut asked, mut started_over) = (HashMap::new(), false);
        loop {
            // The lock is free while this thread waits for a disk or a network.
            let (range, prefetch) = {
                let known = self.known();
                match parser(&known.bytes) {
                    Ok(value) => return Ok(value),
                    Err(range) => (range, known.prefetch),
                }
            };
            // A parser that needs more at once than stays in memory would ask forever. Other threads may make it start over.
            let times = asked.entry(range.start).or_insert(0_u32);
            *times += 1;
            if *times > MOST_TIMES {
                let detail = "the directories of the file are too long or too scattered";
                return Err(TiffError::malformed(detail).at_offset(range.start).into());
            }
            let end = range.start.saturating_add(prefetch).min(self.size).max(range.end);
            let loaded = self.read(range.start..end)?;
            let mut known = self.known();
            if known.len > MAX_KNOWN {
                // A hostile chain of directories must not make us keep the whole file. The parser asks again for what it needs.
                (known.bytes, known.len, known.prefetch) = (Bytes::new(self.size), 0, self.access.prefetch);
                started_over = true;
            }
            if self.access.is_remote() && !started_over {
                // Directories that are longer than the first guess are probably much longer.
                known.prefetch = (known.prefetch * 4).min(MOST_PREFETCH);
            }
            known.len += loaded.len();
            known.bytes.insert(range.start, loaded);
        }
    }

    /// Returns the bytes of a range, from memory or from the file. It does not keep them.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let len = range.end.saturating_sub(range.start);
        {
            let known = self.known();
            match known.bytes.get(range.start, len) {
                Ok(found) => return Ok(memory::copied(found)?),
                Err(ParseStop::Fault(error)) => return Err(error.into()),
                Err(ParseStop::NotLoaded(_)) => {}
            }
        }
        self.read(range)
    }

    /// Returns the bytes of several ranges, which are requested at once.
    pub(crate) fn bytes_of(&self, ranges: &[Range<u64>], cancel: Option<&Cancel>) -> Result<Vec<Vec<u8>>, Error> {
        let mut found: Vec<Option<Vec<u8>>> = {
            let known = self.known();
            let at_hand = |range: &Range<u64>| known.bytes.get(range.start, range.end.saturating_sub(range.start)).ok();
            ranges.iter().map(|range| at_hand(range).map(memory::copied).transpose()).collect::<Result<_, _>>()?
        };
        let missing: Vec<usize> =
            (0..ranges.len()).filter(|index| found.get(*index).is_some_and(Option::is_none)).collect();
        let wanted: Vec<Range<u64>> = missing.iter().filter_map(|index| ranges.get(*index).cloned()).collect();
        let merged = coalesce(&wanted, self.access.merge);
        let len = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut buffers: Vec<Vec<u8>> =
            merged.iter().map(|read| memory::zeroed(len(&read.range))).collect::<Result<_, _>>()?;
        let mut reads: Vec<ReadInto<'_>> = merged
            .iter()
            .zip(&mut buffers)
            .map(|(read, buffer)| ReadInto { offset: read.range.start, buffer })
            .collect();
        let first = wanted.first().map(|range| range.start);
        let failed = |error| Error::from(error).at(&Place { offset: first, ..Place::default() });
        let given_up = || cancel.is_some_and(Cancel::is_cancelled);
        self.source.read_many_unless(&mut reads, &given_up).map_err(failed)?;
        for (read, buffer) in merged.iter().zip(&buffers) {
            for member in &read.members {
                let (Some(index), Some(range)) = (missing.get(*member), wanted.get(*member)) else { continue };
                let start = (range.start - read.range.start) as usize;
                let bytes = buffer.get(start..start + len(range));
                if let Some(place) = found.get_mut(*index) {
                    *place = bytes.map(memory::copied).transpose()?;
                }
            }
        }
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let mut bytes = memory::zeroed(usize::try_from(range.end - range.start).unwrap_or(usize::MAX))?;
        self.source
            .read_at(range.start, &mut bytes)
            .map_err(|error| Error::from(error).at(&Place { offset: Some(range.start), ..Place::default() }))?;
        self.source.check()?;
        Ok(bytes)
    }
}
