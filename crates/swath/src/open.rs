//! Opening a file: one or two reads.

use std::{
    collections::HashMap,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use swath_codec::Registry;
use swath_cuda::Gpu;
use swath_io::{Access, ReadInto, RemoteOptions, Source, fork::PerProcess, wrap::coalesce::coalesce};
use swath_tiff::{
    Limits, Place, TiffError,
    structure::{Bytes, Header, Ifd, Lack, Layout},
};

use crate::{
    dataset::Dataset,
    device::{DeviceOptions, Mode},
    error::Error,
    image::Image,
    location,
    read::Cancel,
};

/// Most bytes that are fetched around something that parsing wants, behind a network.
const MOST_PREFETCH: u64 = 1 << 20;
/// How often one place is read while one thing is parsed.
const MOST_TIMES: u32 = 8;
/// Bytes of the file that stay at hand.
const MAX_KNOWN: usize = 2 << 20;

/// How to open a file.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    limits: Limits,
    registry: Option<Arc<Registry>>,
    threads: Option<usize>,
    tile_cache: Option<usize>,
    ifd: usize,
    device: DeviceOptions,
    remote: RemoteOptions,
}

impl OpenOptions {
    /// How much the file may ask for.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Decoders other than the default ones.
    pub fn with_registry(mut self, registry: Arc<Registry>) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Threads a read may use; all cores unless said otherwise.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Memory of this file's own for decoded tiles that several windows share, 0 for none. Unless it is given, all files share a
    /// twentieth of the machine's memory (256 MiB at least). It fills from the second read of a handle on, with tiles that a
    /// window covers in part.
    pub fn with_tile_cache(mut self, bytes: usize) -> Self {
        self.tile_cache = Some(bytes);
        self
    }

    /// The directory to open as the image, as [`Dataset::images`] counts them; the first unless said otherwise. Other
    /// pages have the overviews and masks of their own SubIFDs, and no side files.
    pub fn with_ifd(mut self, index: usize) -> Self {
        self.ifd = index;
        self
    }

    /// Who decodes where a read does not say: the CPU, a GPU, or whichever there is.
    pub fn with_device(mut self, mode: Mode) -> Self {
        self.device.mode = Some(mode);
        self
    }

    /// The GPU to use; the first unless said otherwise.
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.device.gpu = Some(gpu);
        self
    }

    /// Device memory a read may use where it does not say.
    pub fn with_max_device_memory(mut self, bytes: u64) -> Self {
        self.device.max_memory = Some(bytes);
        self
    }

    /// Says that the file is known to be sound; see [`ReadOptions::with_trust_input`](crate::ReadOptions::with_trust_input).
    pub fn with_trust_input(mut self, trusted: bool) -> Self {
        self.device.trust_input = Some(trusted);
        self
    }

    pub(crate) fn with_device_options(mut self, device: DeviceOptions) -> Self {
        self.device = device;
        self
    }

    /// How servers and stores are asked.
    pub fn with_remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Opens a file: a path of this machine, or an address (`https://`, `s3://`, `gs://`, `az://`).
    ///
    /// # Errors
    /// When it cannot be opened or is not a TIFF file we understand.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Dataset, Error> {
        let path = path.as_ref();
        let name = location::shown(path);
        let source = location::source(path, &self.remote).map_err(|error| Error::from(error).in_source(&name))?;
        // Only local files have files beside them: asking a server for those that may be there costs a request each.
        let beside = location::address(path).is_none().then_some(path);
        self.open_named(source, name, beside)
    }

    /// Opens any source.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_source(&self, source: Arc<dyn Source>) -> Result<Dataset, Error> {
        let name: Arc<str> = source.name().into();
        self.open_named(source, name, None)
    }

    fn open_named(&self, source: Arc<dyn Source>, name: Arc<str>, path: Option<&Path>) -> Result<Dataset, Error> {
        let open = || {
            let fetch = Fetch::new(source)?;
            let header = fetch.parse(Header::parse)?;
            if header.first_ifd == 0 {
                return Err(Error::malformed("the header names no directory"));
            }
            let parse = |bytes: &Bytes| {
                let ifd = Ifd::parse(bytes, &header, header.first_ifd)?;
                let layout = Layout::parse(&ifd, bytes, &header, &self.limits)?;
                Ok((ifd, layout))
            };
            let (ifd, layout) = fetch.parse(parse).map_err(|error| error.in_ifd(0))?;
            let main = Image::new(0, ifd, layout, &self.limits)?;
            let dataset = Dataset::new(
                fetch,
                name.clone(),
                path.map(Path::to_path_buf),
                header,
                main,
                self.limits.clone(),
                self.registry.clone().unwrap_or_default(),
                self.threads,
                self.tile_cache,
                self.device.clone(),
            );
            if self.ifd == 0 { Ok(dataset) } else { dataset.with_main(self.ifd) }
        };
        open().map_err(|error: Error| error.in_source(&name))
    }
}

/// Gives parsers the bytes they lack, and keeps what it fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) access: Access,
    size: u64,
    known: PerProcess<Mutex<Known>>,
}

#[derive(Debug)]
struct Known {
    bytes: Bytes,
    len: usize,
    /// Bytes to fetch around the next thing that is wanted.
    prefetch: u64,
}

impl Fetch {
    pub(crate) fn new(source: Arc<dyn Source>) -> Result<Self, Error> {
        let size = source.size()?;
        let access = source.access();
        Ok(Self { source, access, size, known: PerProcess::new() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        let nothing = || Known { bytes: Bytes::new(self.size), len: 0, prefetch: self.access.prefetch };
        self.known.get_or(|| Mutex::new(nothing())).lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Runs a parser until it lacks nothing.
    pub(crate) fn parse<T>(&self, parser: impl Fn(&Bytes) -> Result<T, Lack>) -> Result<T, Error> {
        self.step(|bytes| match parser(bytes) {
            Ok(value) => Ok(Ok(value)),
            Err(Lack::Fault(error)) => Ok(Err(Error::from(error))),
            Err(Lack::Range(range)) => Err(range),
        })?
    }

    /// Runs a step until it no longer names a range it lacks.
    pub(crate) fn step<T>(&self, mut step: impl FnMut(&Bytes) -> Result<T, Range<u64>>) -> Result<T, Error> {
        let (mut asked, mut started_over) = (HashMap::new(), false);
        loop {
            // Nobody else waits while this one does for a disk or a network.
            let (range, prefetch) = {
                let known = self.known();
                match step(&known.bytes) {
                    Ok(value) => return Ok(value),
                    Err(range) => (range, known.prefetch),
                }
            };
            // A parser that needs more at once than stays at hand would ask in circles; other threads may have it start over.
            let times = asked.entry(range.start).or_insert(0_u32);
            *times += 1;
            if *times > MOST_TIMES {
                let detail = "what describes the file is too long, or lies in too many places";
                return Err(TiffError::malformed(detail).at_offset(range.start).into());
            }
            let end = range.start.saturating_add(prefetch).min(self.size).max(range.end);
            let piece = self.read(range.start..end)?;
            let mut known = self.known();
            if known.len > MAX_KNOWN {
                // A hostile chain of directories must not make us keep the file. The parser asks again for what it needs.
                (known.bytes, known.len, known.prefetch) = (Bytes::new(self.size), 0, self.access.prefetch);
                started_over = true;
            }
            if self.access.is_remote() && !started_over {
                // Directories that are longer than the first guess are probably much longer.
                known.prefetch = (known.prefetch * 4).min(MOST_PREFETCH);
            }
            known.len += piece.len();
            known.bytes.insert(range.start, piece);
        }
    }

    /// The bytes of a range: from what is at hand, or read for this once.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let len = range.end.saturating_sub(range.start);
        {
            let known = self.known();
            match known.bytes.get(range.start, len) {
                Ok(found) => return Ok(found.to_vec()),
                Err(Lack::Fault(error)) => return Err(error.into()),
                Err(Lack::Range(_)) => {}
            }
        }
        self.read(range)
    }

    /// The bytes of several ranges, all asked for at once.
    pub(crate) fn bytes_of(&self, ranges: &[Range<u64>], cancel: Option<&Cancel>) -> Result<Vec<Vec<u8>>, Error> {
        let mut found: Vec<Option<Vec<u8>>> = {
            let known = self.known();
            let at_hand = |range: &Range<u64>| known.bytes.get(range.start, range.end.saturating_sub(range.start)).ok();
            ranges.iter().map(|range| at_hand(range).map(<[u8]>::to_vec)).collect()
        };
        let missing: Vec<usize> =
            (0..ranges.len()).filter(|index| found.get(*index).is_some_and(Option::is_none)).collect();
        let wanted: Vec<Range<u64>> = missing.iter().filter_map(|index| ranges.get(*index).cloned()).collect();
        let merged = coalesce(&wanted, self.access.merge);
        let len = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut pieces: Vec<Vec<u8>> = merged.iter().map(|read| vec![0; len(&read.range)]).collect();
        let mut reads: Vec<ReadInto<'_>> = merged
            .iter()
            .zip(&mut pieces)
            .map(|(read, piece)| ReadInto { offset: read.range.start, buffer: piece })
            .collect();
        let first = wanted.first().map(|range| range.start);
        let failed = |error| Error::from(error).at(&Place { offset: first, ..Place::default() });
        let given_up = || cancel.is_some_and(Cancel::is_cancelled);
        self.source.read_many_unless(&mut reads, &given_up).map_err(failed)?;
        for (read, piece) in merged.iter().zip(&pieces) {
            for member in &read.members {
                let (Some(index), Some(range)) = (missing.get(*member), wanted.get(*member)) else { continue };
                let start = (range.start - read.range.start) as usize;
                let bytes = piece.get(start..start + len(range));
                if let Some(place) = found.get_mut(*index) {
                    *place = bytes.map(<[u8]>::to_vec);
                }
            }
        }
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let mut piece = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
        self.source
            .read_at(range.start, &mut piece)
            .map_err(|error| Error::from(error).at(&Place { offset: Some(range.start), ..Place::default() }))?;
        self.source.check()?;
        Ok(piece)
    }
}
