//! Runs a read on a GPU: threads read tiles into pinned memory and start copies, the caller's thread launches kernels behind
//! them, and the host waits once, at the end.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use swath_codec::{Scratch, host::Host, memory::Buffer};
use swath_cuda::{
    CHUNK, DeviceError, TileStatus,
    decode::{Band, Decoder, Plan, Uploader},
    rule::Way,
};
use swath_io::{
    ReadInto,
    wrap::coalesce::{Merge, coalesce},
};
use swath_tiff::Place;

use super::plan::{Bands, Row, Unit};
use crate::{
    error::{Error, ErrorKind},
    image::Image,
    open::Fetch,
    read::Cancel,
};

/// Below this, neighbouring tiles are read together and dealt out: a call for each would cost more than its bytes.
const SMALL: u64 = 32 << 10;
/// Small tiles this far apart are read along.
const GAP: u64 = 16 << 10;
/// Least bytes of a task: below, starting a copy costs more than the copy.
const LEAST_TASK: usize = 256 << 10;
/// Groups that a read is launched in: each waits for its own copies only, so kernels begin after an eighth of them.
const GROUPS: u64 = 8;
/// Least decoded bytes of a group: smaller launches leave the device idle between them.
const LEAST_GROUP: u64 = 32 << 20;

/// Everything about a read that does not change while it runs.
pub(super) struct Job<'a> {
    pub(super) fetch: &'a Fetch,
    pub(super) image: &'a Image,
    pub(super) host: &'a Host,
    pub(super) threads: usize,
    pub(super) cancel: Option<&'a Cancel>,
}

/// Tiles that the device refused, and the bytes it had of them.
pub(super) struct Refused<'a> {
    pub(super) unit: &'a Unit,
    pub(super) status: TileStatus,
    pub(super) stream: Option<Vec<u8>>,
}

/// One pinned chunk's worth of work.
struct Task {
    half: usize,
    /// Number of the group in the whole read.
    group: usize,
    /// Where the chunk goes on the device.
    at: usize,
    len: usize,
    work: Work,
}

enum Work {
    /// Reads of (unit, part of the file, place in the chunk).
    Read(Vec<(usize, Range<u64>, usize)>),
    /// Units that the CPU decodes, each to its place in the chunk.
    Decode(Vec<(usize, usize)>),
    /// A unit that the CPU decodes and that is larger than a chunk.
    DecodeLarge(usize),
}

impl Task {
    fn first_unit(&self) -> usize {
        match &self.work {
            Work::Read(reads) => reads.first().map_or(0, |(unit, ..)| *unit),
            Work::Decode(units) => units.first().map_or(0, |(unit, _)| *unit),
            Work::DecodeLarge(unit) => *unit,
        }
    }
}

/// What the threads and the one that launches share.
struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Tasks of each group that are not done.
    pending: Vec<usize>,
    closed: bool,
    /// The error of the first tile that has one.
    error: Option<(u64, Error)>,
}

impl Board {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, groups: usize, tasks: Vec<Task>) {
        let mut state = self.lock();
        let known = state.pending.len();
        state.pending.resize(known + groups, 0);
        for task in &tasks {
            if let Some(pending) = state.pending.get_mut(task.group) {
                *pending += 1;
            }
        }
        state.tasks.extend(tasks);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.error.is_some() {
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, group: usize, result: Result<(), (u64, Error)>) {
        let mut state = self.lock();
        if let Some(pending) = state.pending.get_mut(group) {
            *pending = pending.saturating_sub(1);
        }
        if let Err((index, error)) = result
            && state.error.as_ref().is_none_or(|(first, _)| index < *first)
        {
            state.error = Some((index, error));
        }
        self.changed.notify_all();
    }

    /// Waits until all tasks of a group are done; tells whether none failed.
    fn wait_for(&self, group: usize) -> bool {
        let mut state = self.lock();
        while state.error.is_none() && state.pending.get(group).is_some_and(|pending| *pending > 0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error.is_none()
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// A band that is on its way.
struct Started {
    band: Band,
    half: usize,
    /// Number of its first group in the whole read.
    first_group: usize,
}

/// Runs the read; tells which tiles the device refused.
pub(super) fn run<'a>(
    job: &Job<'_>,
    decoder: &Decoder,
    plan: &Plan,
    rows: &'a [Row],
    bands: &Bands,
) -> Result<Vec<Refused<'a>>, Error> {
    let units: Vec<&Unit> = rows.iter().flat_map(|row| &row.units).collect();
    let board = Board { state: Mutex::default(), changed: Condvar::new() };
    let total: u64 = units.iter().map(|unit| unit.stream_len()).sum();
    let threads = job.threads.min(units.len()).min((total / LEAST_TASK as u64 + 1) as usize).max(1);
    let mut last: Vec<Option<Started>> = Vec::new();
    let launched = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = Worker::default();
                while let Some(task) = board.next() {
                    let group = task.group;
                    let first = units.get(task.first_unit()).map_or(0, |unit| unit.index);
                    let result = if job.cancel.is_some_and(Cancel::is_cancelled) {
                        Err((first, Error::new(ErrorKind::Cancelled)))
                    } else {
                        worker.run(job, decoder.uploader(), &units, task)
                    };
                    board.done(group, result);
                }
            });
        }
        let result = launch_all(job, decoder, plan, rows, bands, &board, &mut last, threads);
        board.close();
        result
    });
    let failed = board.lock().error.take();
    if let Some((_, error)) = failed {
        return Err(error);
    }
    launched?;
    let statuses = decoder.finish()?;
    let mut refused = Vec::new();
    for (number, (unit, status)) in units.iter().zip(statuses).enumerate() {
        if status == TileStatus::Ok {
            continue;
        }
        refused.push((number, Refused { unit, status, stream: None }));
    }
    if !refused.is_empty() && bands.bands.len() == 1 {
        bring_back(decoder, &last, &mut refused)?;
    }
    Ok(refused.into_iter().map(|(_, refused)| refused).collect())
}

/// Fetches the streams of refused tiles from the device: they are there, and one copy is all it takes.
fn bring_back(
    decoder: &Decoder,
    last: &[Option<Started>],
    refused: &mut [(usize, Refused<'_>)],
) -> Result<(), DeviceError> {
    let Some(Some(started)) = last.first() else { return Ok(()) };
    let streams: Vec<Range<usize>> =
        refused.iter().map(|(number, _)| started.band.stream_of(*number).unwrap_or_default()).collect();
    let start = streams.iter().map(|stream| stream.start).min().unwrap_or(0);
    let end = streams.iter().map(|stream| stream.end).max().unwrap_or(0);
    let bytes = decoder.bring_back(started.half, start..end)?;
    for ((_, refused), stream) in refused.iter_mut().zip(streams) {
        refused.stream = bytes.get(stream.start - start..stream.end - start).map(<[u8]>::to_vec);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn launch_all(
    job: &Job<'_>,
    decoder: &Decoder,
    plan: &Plan,
    rows: &[Row],
    bands: &Bands,
    board: &Board,
    last: &mut Vec<Option<Started>>,
    threads: usize,
) -> Result<(), Error> {
    let (mut first_unit, mut first_group) = (0, 0);
    let mut start = |number: usize| -> Result<Started, Error> {
        let members = bands.bands.get(number).cloned().unwrap_or_default();
        let half = number % bands.halves;
        let rows = rows.get(members).unwrap_or_default();
        let (band, tasks) = build(plan, rows, half, first_unit, first_group, threads);
        decoder.begin(half, &band)?;
        let started = Started { half, first_group, band };
        first_unit += started.band.tiles();
        first_group += started.band.groups();
        board.add(started.band.groups(), tasks);
        Ok(started)
    };
    let complete = |started: &Started| -> Result<bool, Error> {
        for group in 0..started.band.groups() {
            if !board.wait_for(started.first_group + group) {
                return Ok(false);
            }
            decoder.launch(started.half, &started.band, group)?;
            if job.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
        }
        decoder.end(started.half)?;
        Ok(true)
    };
    let count = bands.bands.len();
    let mut current = if count > 0 { Some(start(0)?) } else { None };
    let mut number = 0;
    while let Some(band) = current {
        // With two halves the next band's reads begin before this one's kernels are launched.
        let ahead = if bands.halves > 1 && number + 1 < count { Some(start(number + 1)?) } else { None };
        if !complete(&band)? {
            return Ok(());
        }
        number += 1;
        let next = if ahead.is_none() && number < count { Some(start(number)?) } else { ahead };
        if next.is_none() {
            last.push(Some(band));
        }
        current = next;
    }
    Ok(())
}

/// Lays a band out on the device and cuts its bytes into tasks.
fn build(
    plan: &Plan,
    rows: &[Row],
    half: usize,
    first_unit: usize,
    first_group: usize,
    threads: usize,
) -> (Band, Vec<Task>) {
    let mut band = Band::new(plan.way, first_unit);
    let units = || rows.iter().flat_map(|row| &row.units);
    let decoded: u64 = units().map(|unit| unit.decoded_len as u64).sum();
    let group_len = if plan.timed { u64::MAX } else { (decoded / GROUPS).max(LEAST_GROUP) };
    let uploaded = |unit: &Unit| if plan.way.uploads_streams() { unit.stream_len() } else { unit.decoded_len as u64 };
    let bytes: u64 = units().map(uploaded).sum();
    let most = usize::try_from(bytes / (threads as u64 * 4)).unwrap_or(CHUNK).clamp(LEAST_TASK, CHUNK);
    let mut tasks: Vec<Task> = Vec::new();
    let (mut in_group, mut number) = (0, first_unit);
    // The task that is still growing: only units of one group, side by side on the device, share one.
    let mut open: Option<Task> = None;
    for row in rows {
        for placement in &row.sparse {
            band.place_sparse(placement);
        }
        for unit in &row.units {
            let len = uploaded(unit) as usize;
            let at = band.tile(unit.stream_len() as usize, unit.decoded_len);
            band.place(&unit.placement);
            let group = first_group + band.groups();
            add_unit(plan.way, &mut open, &mut tasks, unit, number, half, group, at, len, most);
            number += 1;
            in_group += unit.decoded_len as u64;
            if in_group >= group_len {
                band.end_group();
                tasks.extend(open.take());
                in_group = 0;
            }
        }
    }
    band.end_group();
    tasks.extend(open);
    (band, tasks)
}

#[allow(clippy::too_many_arguments)]
fn add_unit(
    way: Way,
    open: &mut Option<Task>,
    tasks: &mut Vec<Task>,
    unit: &Unit,
    number: usize,
    half: usize,
    group: usize,
    at: usize,
    len: usize,
    most: usize,
) {
    let task = |at, len, work| Task { half, group, at, len, work };
    if len > CHUNK {
        tasks.extend(open.take());
        if !way.uploads_streams() {
            tasks.push(task(at, len, Work::DecodeLarge(number)));
            return;
        }
        for start in (0..len).step_by(CHUNK) {
            let end = (start + CHUNK).min(len);
            let range = unit.range.start + start as u64..unit.range.start + end as u64;
            tasks.push(task(at + start, end - start, Work::Read(vec![(number, range, 0)])));
        }
        return;
    }
    if let Some(growing) = open {
        let inside = at - growing.at;
        if inside + len <= most {
            growing.len = inside + len;
            match &mut growing.work {
                Work::Read(reads) => reads.push((number, unit.range.clone(), inside)),
                Work::Decode(units) => units.push((number, inside)),
                Work::DecodeLarge(_) => {}
            }
            return;
        }
    }
    tasks.extend(open.take());
    let work = if way.uploads_streams() {
        Work::Read(vec![(number, unit.range.clone(), 0)])
    } else {
        Work::Decode(vec![(number, 0)])
    };
    *open = Some(task(at, len, work));
}

/// One thread's buffers.
#[derive(Default)]
struct Worker {
    scratch: Scratch,
    bytes: Buffer,
}

impl Worker {
    fn run(
        &mut self,
        job: &Job<'_>,
        uploader: Uploader<'_>,
        units: &[&Unit],
        task: Task,
    ) -> Result<(), (u64, Error)> {
        let index_of = |unit: usize| units.get(unit).map_or(0, |unit| unit.index);
        let first = index_of(task.first_unit());
        if let Work::DecodeLarge(unit) = task.work {
            return match units.get(unit) {
                Some(unit) => self.decode_large(job, uploader, unit, task.half, task.at),
                None => Ok(()),
            };
        }
        let mut chunk = uploader.chunk().map_err(|error| (first, error.into()))?;
        match &task.work {
            Work::Read(reads) => self.read(job, units, reads, chunk.bytes_mut())?,
            Work::Decode(list) => {
                for (unit, at) in list {
                    let Some(unit) = units.get(*unit) else { continue };
                    let place = chunk.bytes_mut().get_mut(*at..*at + unit.decoded_len).unwrap_or_default();
                    self.decode(job, unit, place).map_err(|error| (unit.index, error))?;
                }
            }
            Work::DecodeLarge(_) => {}
        }
        uploader.upload(task.half, chunk, task.len, task.at).map_err(|error| (first, error.into()))
    }

    fn read(
        &mut self,
        job: &Job<'_>,
        units: &[&Unit],
        reads: &[(usize, Range<u64>, usize)],
        chunk: &mut [u8],
    ) -> Result<(), (u64, Error)> {
        let index_of = |unit: usize| units.get(unit).map_or(0, |unit| unit.index);
        let failed = |unit: usize, offset: u64| {
            let index = index_of(unit);
            move |error: swath_io::SourceError| {
                let place = Place { offset: Some(offset), ..job.image.place_of(index) };
                (index, Error::from(error).at(&place))
            }
        };
        let total: u64 = reads.iter().map(|(_, range, _)| range.end - range.start).sum();
        if reads.len() > 1 && total / (reads.len() as u64) < SMALL {
            let ranges: Vec<Range<u64>> = reads.iter().map(|(_, range, _)| range.clone()).collect();
            for merged in coalesce(&ranges, Merge { gap: GAP, max_len: CHUNK as u64 }) {
                let first = merged.members.first().and_then(|member| reads.get(*member)).map_or(0, |(unit, ..)| *unit);
                let buffer = self.bytes.at_least((merged.range.end - merged.range.start) as usize);
                job.fetch
                    .source
                    .read_at(merged.range.start, buffer)
                    .map_err(failed(first, merged.range.start))?;
                for (_, range, at) in merged.members.iter().filter_map(|member| reads.get(*member)) {
                    let from = (range.start - merged.range.start) as usize;
                    let len = (range.end - range.start) as usize;
                    if let (Some(found), Some(place)) = (buffer.get(from..from + len), chunk.get_mut(*at..*at + len)) {
                        place.copy_from_slice(found);
                    }
                }
            }
            return Ok(());
        }
        let mut pieces = Vec::with_capacity(reads.len());
        let (mut rest, mut done) = (chunk, 0);
        for (_, range, at) in reads {
            let (_, tail) = rest.split_at_mut_checked(at - done).unwrap_or_default();
            let len = (range.end - range.start) as usize;
            let (buffer, tail) = tail.split_at_mut_checked(len).unwrap_or_default();
            pieces.push(ReadInto { offset: range.start, buffer });
            (rest, done) = (tail, at + len);
        }
        let (unit, offset) = reads.first().map_or((0, 0), |(unit, range, _)| (*unit, range.start));
        job.fetch.source.read_many(&mut pieces).map_err(failed(unit, offset))
    }

    /// Reads a tile and decodes its wanted rows.
    fn decode(&mut self, job: &Job<'_>, unit: &Unit, place: &mut [u8]) -> Result<(), Error> {
        let at = Place { offset: Some(unit.range.start), ..job.image.place_of(unit.index) };
        let len = usize::try_from(unit.stream_len())
            .map_err(|_| Error::malformed("a tile is larger than the address space").at(&at))?;
        let stream = self.bytes.at_least(len);
        job.fetch.source.read_at(unit.range.start, stream).map_err(|error| Error::from(error).at(&at))?;
        decode_rows(job.host, unit, stream, place, &mut self.scratch).map_err(|error| error.at(&at))
    }

    fn decode_large(
        &mut self,
        job: &Job<'_>,
        uploader: Uploader<'_>,
        unit: &Unit,
        half: usize,
        at: usize,
    ) -> Result<(), (u64, Error)> {
        let here = |error: Error| (unit.index, error);
        let mut tile = Buffer::zeroed(unit.decoded_len)
            .ok_or_else(|| here(Error::usage(format!("there is no memory for {} bytes", unit.decoded_len))))?;
        self.decode(job, unit, tile.bytes_mut()).map_err(here)?;
        for (number, piece) in tile.bytes().chunks(CHUNK).enumerate() {
            let mut chunk = uploader.chunk().map_err(|error| here(error.into()))?;
            if let Some(place) = chunk.bytes_mut().get_mut(..piece.len()) {
                place.copy_from_slice(piece);
            }
            uploader.upload(half, chunk, piece.len(), at + number * CHUNK).map_err(|error| here(error.into()))?;
        }
        Ok(())
    }
}

/// Decodes the wanted rows of a tile on the CPU: whole samples in native order.
pub(super) fn decode_rows(
    host: &Host,
    unit: &Unit,
    stream: &[u8],
    place: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(), Error> {
    Ok(host.decode_rows(unit.rows, unit.wanted.clone(), stream, place, scratch)?)
}

/// Decodes a tile that the device refused on the CPU: its rows, or the error in the words that users know.
pub(super) fn decode_refused(job: &Job<'_>, refused: &Refused<'_>) -> Result<Arc<Vec<u8>>, Error> {
    let unit = refused.unit;
    let at = Place { offset: Some(unit.range.start), ..job.image.place_of(unit.index) };
    let mut read;
    let stream = match &refused.stream {
        Some(stream) if !job.host.spec().bits_reversed => stream,
        _ => {
            read = vec![0; usize::try_from(unit.stream_len()).unwrap_or(usize::MAX)];
            job.fetch.source.read_at(unit.range.start, &mut read).map_err(|error| Error::from(error).at(&at))?;
            &read
        }
    };
    let len = job.host.spec().native_row_len() * unit.wanted.len();
    let mut tile = vec![0; len];
    decode_rows(job.host, unit, stream, &mut tile, &mut Scratch::default()).map_err(|error| error.at(&at))?;
    Ok(Arc::new(tile))
}
