//! Runs a read on a GPU: threads read tiles into pinned memory and start copies, the caller's thread launches kernels behind
//! them, and the host waits once, at the end.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    panic::AssertUnwindSafe,
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError},
};

use swath_codec::{Scratch, host::Host, memory::Buffer};
use swath_cuda::{
    CHUNK, DeviceError, TileStatus,
    band::Band,
    decode::{Decoder, Plan, Uploader},
    gpu::DirectFile,
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
/// Groups that a read is launched in: each waits for its own copies only. Four beat two, eight and sixteen on an H200:
/// with fewer, kernels begin late; with more, each launch has too few tiles to fill the device.
const GROUPS: u64 = 4;
/// Least decoded bytes of a group: smaller launches leave the device idle between them.
const LEAST_GROUP: u64 = 32 << 20;

/// Bytes that come back from the device with refused tiles.
const MOST_BROUGHT_BACK: usize = 64 << 20;
/// Bytes that are read ahead for a library that takes them from the host.
const MOST_SHELVED: usize = 256 << 20;

/// Everything about a read that does not change while it runs.
pub(super) struct Job<'a> {
    pub(super) fetch: &'a Fetch,
    pub(super) image: &'a Image,
    pub(super) host: &'a Host,
    pub(super) threads: usize,
    pub(super) cancel: Option<&'a Cancel>,
    /// The file, where the device reads it itself.
    pub(super) direct: Option<&'a Direct>,
    /// What goes into each tile behind its first marker, for libraries that want whole JPEG streams.
    pub(super) jpeg_tables: Vec<u8>,
}

/// A file that the device reads itself, until it does not.
pub(super) struct Direct {
    pub(super) file: DirectFile,
    /// A read of it failed, so that the rest goes the usual way.
    pub(super) failed: OnceLock<String>,
}

/// Units with their bytes, read for a library that takes them on the host.
type Shelved = Vec<(usize, Vec<u8>)>;

/// Tiles that the device refused, and the bytes it had of them.
pub(super) struct Refused<'a> {
    pub(super) unit: &'a Unit,
    pub(super) stream: Option<Vec<u8>>,
    /// Why, in words.
    pub(super) reason: String,
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
    /// Units that are read and kept for a library.
    Shelve(Vec<usize>),
}

impl Task {
    fn first_unit(&self) -> usize {
        match &self.work {
            Work::Read(reads) => reads.first().map_or(0, |(unit, ..)| *unit),
            Work::Decode(units) => units.first().map_or(0, |(unit, _)| *unit),
            Work::DecodeLarge(unit) => *unit,
            Work::Shelve(units) => units.first().copied().unwrap_or(0),
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
    /// Units that were read for a library and are not launched.
    shelf: HashMap<usize, Vec<u8>>,
    shelved: usize,
    /// The group that is launched next: its tasks are never held back.
    awaited: usize,
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
            let room = state.shelved < MOST_SHELVED;
            let may_begin = state.tasks.front().is_some_and(|task| room || task.group <= state.awaited);
            if may_begin {
                return state.tasks.pop_front();
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, group: usize, result: Result<Shelved, (u64, Error)>) {
        let mut state = self.lock();
        if let Some(pending) = state.pending.get_mut(group) {
            *pending = pending.saturating_sub(1);
        }
        match result {
            Ok(shelved) => {
                state.shelved += shelved.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                state.shelf.extend(shelved);
            }
            Err((index, error)) if state.error.as_ref().is_none_or(|(first, _)| index < *first) => {
                state.error = Some((index, error));
            }
            Err(_) => {}
        }
        self.changed.notify_all();
    }

    /// The bytes of units that were all read.
    fn take(&self, units: Range<usize>) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        let taken: Vec<Vec<u8>> = units.map(|unit| state.shelf.remove(&unit).unwrap_or_default()).collect();
        state.shelved = state.shelved.saturating_sub(taken.iter().map(Vec::len).sum());
        self.changed.notify_all();
        taken
    }

    /// Waits until all tasks of a group are done; tells whether none failed.
    fn wait_for(&self, group: usize) -> bool {
        let mut state = self.lock();
        state.awaited = group;
        self.changed.notify_all();
        while state.error.is_none() && state.pending.get(group).is_some_and(|pending| *pending > 0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error.is_none()
    }

    /// Ends the work: what nobody has begun is dropped.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.tasks.clear();
        self.changed.notify_all();
    }
}

/// Ends the work of the threads, however the one that launches leaves.
struct Closing<'a>(&'a Board);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
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
    // Reading is shared by bytes that are read, decoding by bytes that are made.
    let made = !plan.way.uploads_streams();
    let work = |unit: &&Unit| if made { unit.decoded_len as u64 } else { unit.stream_len() };
    let total: u64 = units.iter().map(work).sum();
    let threads = job.threads.min((total / LEAST_TASK as u64 + 1) as usize).max(1);
    let mut last: Vec<Option<Started>> = Vec::new();
    let work = || {
        let mut worker = Worker::default();
        while let Some(task) = board.next() {
            let first = units.get(task.first_unit()).map_or(0, |unit| unit.index);
            let group = task.group;
            let result = if job.cancel.is_some_and(Cancel::is_cancelled) {
                Err((first, Error::new(ErrorKind::Cancelled)))
            } else {
                // Whoever waits for the task has to be told, even if a decoder panics.
                let run = AssertUnwindSafe(|| worker.run(job, decoder.uploader(), &units, task));
                std::panic::catch_unwind(run).unwrap_or_else(|_| {
                    worker = Worker::default();
                    Err((first, Error::malformed("a decoder failed on this tile in a way it should not")))
                })
            };
            board.done(group, result);
        }
    };
    let launched = std::thread::scope(|scope| {
        let _closing = Closing(&board);
        for started in 0..threads {
            // A system that has no more threads to give may still have given some.
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                if started == 0 {
                    return Err(Error::usage(format!("no thread could be started: {error}")));
                }
                break;
            }
        }
        launch_all(job, decoder, plan, rows, bands, &board, &mut last, threads)
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
        let reason = decoder.refusal(number).unwrap_or_else(|| status.to_string());
        refused.push((number, Refused { unit, stream: None, reason }));
    }
    if !refused.is_empty() && bands.bands.len() == 1 && plan.way.uploads_streams() {
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
    // Far apart, they are read again instead: all that lies between would come along.
    if end.saturating_sub(start) > MOST_BROUGHT_BACK {
        return Ok(());
    }
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
            if plan.way.decodes_from_host() {
                let bytes = board.take(started.band.numbers(group));
                decoder.launch_from_host(started.half, &started.band, group, bytes)?;
            } else {
                decoder.launch(started.half, &started.band, group)?;
            }
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
    let mut band = Band::new(plan, first_unit);
    let units = || rows.iter().flat_map(|row| &row.units);
    let decoded: u64 = units().map(|unit| unit.decoded_len as u64).sum();
    // nvCOMP gives a warp to a tile: it wants as many at once as there are.
    let groups = if matches!(plan.way, Way::Nvcomp(_)) { 2 } else { GROUPS };
    let group_len = if plan.timed { u64::MAX } else { (decoded / groups).max(LEAST_GROUP) };
    let uploaded = |unit: &Unit| if plan.way == Way::Host { unit.decoded_len as u64 } else { unit.stream_len() };
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
    if way.decodes_from_host() {
        match open {
            Some(Task { len: sum, work: Work::Shelve(units), .. }) if *sum + len <= most => {
                units.push(number);
                *sum += len;
            }
            _ => tasks.extend(open.replace(task(0, len, Work::Shelve(vec![number])))),
        }
        return;
    }
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
                Work::DecodeLarge(_) | Work::Shelve(_) => {}
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
    tiles: Buffer,
}

impl Worker {
    fn run(
        &mut self,
        job: &Job<'_>,
        uploader: Uploader<'_>,
        units: &[&Unit],
        task: Task,
    ) -> Result<Shelved, (u64, Error)> {
        let index_of = |unit: usize| units.get(unit).map_or(0, |unit| unit.index);
        let first = index_of(task.first_unit());
        match &task.work {
            Work::DecodeLarge(unit) => {
                let Some(unit) = units.get(*unit) else { return Ok(Vec::new()) };
                return self.decode_large(job, uploader, unit, task.half, task.at).map(|()| Vec::new());
            }
            Work::Shelve(list) => return self.shelve(job, units, list),
            Work::Read(reads) if read_directly(job, uploader, &task, reads) => return Ok(Vec::new()),
            Work::Read(_) | Work::Decode(_) => {}
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
            Work::DecodeLarge(_) | Work::Shelve(_) => {}
        }
        uploader.upload(task.half, chunk, task.len, task.at).map_err(|error| (first, error.into()))?;
        Ok(Vec::new())
    }

    /// Reads units as whole streams.
    fn shelve(&mut self, job: &Job<'_>, units: &[&Unit], list: &[usize]) -> Result<Shelved, (u64, Error)> {
        let (mut reads, mut end) = (Vec::with_capacity(list.len()), 0_usize);
        for (number, unit) in list.iter().filter_map(|number| Some((*number, units.get(*number)?))) {
            reads.push((number, unit.range.clone(), end));
            end = end.saturating_add(usize::try_from(unit.stream_len()).unwrap_or(usize::MAX));
        }
        let mut tiles = std::mem::take(&mut self.tiles);
        let read = self.read(job, units, &reads, tiles.at_least(end));
        let shelved = read.map(|()| {
            let bytes = tiles.at_least(end);
            let tile = |(number, range, at): &(usize, Range<u64>, usize)| {
                let tile = bytes.get(*at..*at + (range.end - range.start) as usize).unwrap_or_default();
                (*number, joined(&job.jpeg_tables, tile))
            };
            reads.iter().map(tile).collect()
        });
        self.tiles = tiles;
        shelved
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
                job.fetch.source.read_at(merged.range.start, buffer).map_err(failed(first, merged.range.start))?;
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

/// Has the device read a task's tiles from the file itself; tells whether it did. Where it cannot, the rest of the read
/// goes the usual way.
fn read_directly(job: &Job<'_>, uploader: Uploader<'_>, task: &Task, reads: &[(usize, Range<u64>, usize)]) -> bool {
    let Some(direct) = job.direct.filter(|direct| direct.failed.get().is_none()) else { return false };
    for (_, range, inside) in reads {
        if let Err(error) = uploader.read(task.half, &direct.file, range.clone(), task.at + inside) {
            let _ = direct.failed.set(error.to_string());
            return false;
        }
    }
    true
}

/// A JPEG tile with the directory's tables behind its first marker.
fn joined(tables: &[u8], tile: &[u8]) -> Vec<u8> {
    let (start, rest) = tile.split_at_checked(2).filter(|_| !tables.is_empty()).unwrap_or((tile, &[]));
    [start, if rest.is_empty() { &[] } else { tables }, rest].concat()
}

/// The definitions in a JPEGTables field: quantisation and Huffman tables, as segments. Nothing else in it counts.
pub(super) fn table_segments(field: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(field.len());
    let mut rest = field.get(2..).unwrap_or_default();
    while let [0xFF, marker, after @ ..] = rest {
        match marker {
            // Fill bytes before a marker.
            0xFF => rest = rest.get(1..).unwrap_or_default(),
            0xD9 => break,
            0x01 | 0xD0..=0xD8 => rest = after,
            _ => {
                let len = after.first_chunk().map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
                let Some(segment) = rest.get(..2 + len).filter(|_| len >= 2) else { break };
                if matches!(marker, 0xC4 | 0xDB) {
                    kept.extend_from_slice(segment);
                }
                rest = rest.get(2 + len..).unwrap_or_default();
            }
        }
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_go_behind_the_first_marker_and_only_definitions_do() {
        let quant = [0xFF, 0xDB, 0, 4, 1, 2];
        let huffman = [0xFF, 0xC4, 0, 3, 9];
        let restart = [0xFF, 0xDD, 0, 4, 0, 8];
        let field = [&[0xFF, 0xD8][..], &quant, &restart, &[0xFF], &huffman, &[0xFF, 0xD9, 7, 7]].concat();
        let tables = table_segments(&field);
        assert_eq!(tables, [&quant[..], &huffman].concat());
        assert_eq!(joined(&tables, &[0xFF, 0xD8, 5, 6]), [&[0xFF, 0xD8][..], &tables, &[5, 6]].concat());
        assert_eq!(joined(&[], &[0xFF, 0x4F, 5]), [0xFF, 0x4F, 5]);
        assert_eq!(joined(&tables, &[0xFF]), [0xFF]);
        for len in 0..field.len() {
            assert!(tables.starts_with(&table_segments(field.get(..len).unwrap_or_default())), "{len}");
        }
    }
}
