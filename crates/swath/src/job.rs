//! Reads what one job needs and decodes it.

use std::{
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use swath_codec::{
    Scratch,
    host::{Take, Target},
    memory::Buffer,
};
use swath_io::{ReadInto, SourceError, fork::PerProcess, wrap::coalesce::coalesce};
use swath_tiff::{Place, Window};

use crate::{
    assemble,
    error::{Error, ErrorKind},
    read::Cancel,
    schedule::{Order, cancelled, cores},
    strip,
};

/// Bytes that may be on their way at once behind a network, or wait to be decoded.
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// One tile of one plane.
pub(crate) struct Part {
    pub(crate) index: u64,
    pub(crate) bytes: TileBytes,
    pub(crate) take: Arc<Take>,
}

/// Where a tile's samples come from.
#[derive(Clone)]
pub(crate) enum TileBytes {
    /// Nowhere: it is sparse.
    Sparse,
    /// This range of the file; `keep` says to keep the decoded tile.
    At { range: Range<u64>, keep: bool },
    /// This range of the file, of which only what leads to the window is decoded.
    InSteps(Range<u64>),
    /// An earlier read decoded it.
    Cached(Arc<Buffer>),
}

impl Part {
    pub(crate) fn range(&self) -> Option<&Range<u64>> {
        match &self.bytes {
            TileBytes::At { range, .. } => Some(range),
            _ => None,
        }
    }
}

/// One piece of the output and the tiles that fill it.
pub(crate) struct Task<'a> {
    pub(crate) parts: Vec<Part>,
    pub(crate) rows: u32,
    pub(crate) inside: Window,
    pub(crate) target: Target<'a>,
}

impl Task<'_> {
    pub(crate) fn tiles_to_decode(&self) -> u64 {
        let is_decoded = |part: &&Part| matches!(part.bytes, TileBytes::At { .. } | TileBytes::InSteps(_));
        self.parts.iter().filter(is_decoded).count() as u64
    }
}

/// One read, and the tasks whose bytes it brings. Tasks of several parts bring reads of their own.
pub(crate) struct Job<'a> {
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) tasks: Vec<Task<'a>>,
}

/// Tiles to be kept, by their numbers: only once the read that brought them is known to be sound.
type Kept = Vec<(u64, Arc<Buffer>)>;

impl Order<'_> {
    fn keep(&self, tiles: Kept) {
        tiles.into_iter().for_each(|(index, tile)| self.cache.insert((self.image.index, index), tile));
    }
}

/// Buffers that threads keep are no longer than this: a file of one huge strip must not make us keep its memory, nor (a part of
/// this) one behind a network that of all who waited.
pub(crate) const KEEP: usize = 16 << 20;

/// What threads keep between reads of one file.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool(PerProcess<Mutex<Vec<Worker>>>);

/// One thread's codec contexts and buffers.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    scratch: Scratch,
    bytes: Buffer,
}

impl ScratchPool {
    pub(crate) fn take(&self) -> Worker {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut worker: Worker, remote: bool) {
        if worker.bytes.len() > if remote { KEEP / 16 } else { KEEP } {
            worker.bytes = Buffer::default();
        }
        worker.scratch.shrink(KEEP);
        let mut kept = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        // Where memory is short, none is spent on keeping what can be made again.
        if (!remote || kept.len() < cores()) && kept.try_reserve(1).is_ok() {
            kept.push(worker);
        }
    }
}

/// Bytes that are on their way: those who want more wait until others are done.
#[derive(Default)]
pub(crate) struct Flight {
    bytes: Mutex<u64>,
    landed: Condvar,
}

/// A part of [`Flight`]'s bytes, given back when dropped.
struct Boarding<'a> {
    flight: &'a Flight,
    len: u64,
}

impl Flight {
    /// Waits for room. Whoever is alone may take more than there is: a tile is as large as it is.
    fn board(&self, len: u64) -> Boarding<'_> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *bytes > 0 && bytes.saturating_add(len) > MOST_IN_FLIGHT {
            bytes = self.landed.wait(bytes).unwrap_or_else(PoisonError::into_inner);
        }
        *bytes = bytes.saturating_add(len);
        Boarding { flight: self, len }
    }
}

impl Drop for Boarding<'_> {
    fn drop(&mut self) {
        let mut bytes = self.flight.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *bytes = bytes.saturating_sub(self.len);
        self.flight.landed.notify_all();
    }
}

/// Reads what the job needs and decodes it. An error comes with its tile's number: of those that several threads meet, the
/// first is reported.
pub(crate) fn run(
    order: &Order<'_>,
    job: Job<'_>,
    worker: &mut Worker,
    flight: &Flight,
    stop: &AtomicBool,
) -> Result<(), (u64, Error)> {
    let Job { reads, tasks } = job;
    let given_up = || stop.load(Ordering::Relaxed) || order.cancel.is_some_and(Cancel::is_cancelled);
    let first = tasks.first().and_then(|task| task.parts.first()).map_or(0, |part| part.index);
    let failed = |first: u64, error: SourceError| {
        // The caller, or an error of another tile, ended this read: nothing is wrong with it.
        if order.cancel.is_some_and(Cancel::is_cancelled) {
            return (first, Error::new(ErrorKind::Cancelled));
        }
        if stop.load(Ordering::Relaxed) {
            return (u64::MAX, Error::from(error));
        }
        let place = Place { offset: reads.first().map(|range| range.start), ..order.image.place_of(first) };
        (first, Error::from(error).at(&place))
    };
    let remote = order.fetch.access.is_remote();
    // What takes long to bring, or to decode, and is kept then, is done once for all threads that want it.
    let slow = |task: &Task<'_>| match &*task.parts {
        [Part { bytes: TileBytes::At { keep, .. }, .. }] => remote || (*keep && order.is_large(task.rows)),
        parts => remote && parts.len() == 1,
    };
    if reads.len() == 1 && tasks.iter().all(slow) {
        return run_arriving(order, tasks, worker, flight, &given_up, &failed);
    }
    let total: u64 = reads.iter().map(|range| range.end - range.start).sum();
    let _boarding = (remote && total > 0).then(|| flight.board(total));
    let mut rest = room(&mut worker.bytes, total, first)?;
    let mut pieces = Vec::with_capacity(reads.len());
    for range in &reads {
        let (head, tail) = rest.split_at_mut_checked((range.end - range.start) as usize).unwrap_or_default();
        pieces.push(ReadInto { offset: range.start, buffer: head });
        rest = tail;
    }
    order.fetch.source.read_many_unless(&mut pieces, &given_up).map_err(|error| failed(first, error))?;
    let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|piece| (piece.offset, &*piece.buffer)).collect();
    let mut own_reads = &*pieces;
    let mut kept = Kept::new();
    for task in tasks {
        // A task of several parts brings a read for each; the tasks of a merged read share one.
        let stored = task.parts.iter().filter(|part| part.range().is_some()).count();
        let several = task.parts.len() > 1;
        let found = if several { own_reads.get(..stored).unwrap_or_default() } else { &*pieces };
        run_task(order, task, found, &mut worker.scratch, &mut kept)?;
        if several {
            own_reads = own_reads.get(stored..).unwrap_or_default();
        }
    }
    order.keep(kept);
    Ok(())
}

/// Room for the bytes of a read.
fn room(buffer: &mut Buffer, total: u64, first: u64) -> Result<&mut [u8], (u64, Error)> {
    let room = usize::try_from(total).ok().and_then(|len| buffer.room(len));
    room.ok_or_else(|| (first, Error::usage(format!("there is no memory for {total} bytes"))))
}

/// Tasks of one tile each, behind a network or of large strips: tiles are decoded while those behind them are still on their way, and those that
/// another read is fetching are waited for rather than fetched twice.
fn run_arriving(
    order: &Order<'_>,
    mut tasks: Vec<Task<'_>>,
    worker: &mut Worker,
    flight: &Flight,
    given_up: &(dyn Fn() -> bool + Sync),
    failed: &dyn Fn(u64, SourceError) -> (u64, Error),
) -> Result<(), (u64, Error)> {
    let mut waited = false;
    loop {
        let claim = order.arriving.claim(order, tasks, waited);
        for task in claim.at_hand {
            run_task(order, task, &[], &mut worker.scratch, &mut Kept::new())?;
        }
        let ranges: Vec<Range<u64>> =
            claim.mine.iter().filter_map(|task| task.parts.first()?.range().cloned()).collect();
        let mut mine: Vec<Option<Task<'_>>> = claim.mine.into_iter().map(Some).collect();
        for merged in coalesce(&ranges, order.merge()) {
            let members = merged.members.iter().filter_map(|member| mine.get_mut(*member)?.take()).collect();
            fetch(order, merged.range, members, worker, flight, given_up, failed)?;
        }
        drop(claim.held);
        if claim.late.is_empty() {
            return Ok(());
        }
        order.arriving.wait(order, &claim.late, given_up);
        if given_up() {
            // Where it was not the caller, an error of another tile is what is reported.
            return cancelled(order.cancel).map_or(Ok(()), |error| Err((0, error)));
        }
        (tasks, waited) = (claim.late, true);
    }
}

/// Fetches one range and decodes its tiles as they come.
fn fetch(
    order: &Order<'_>,
    range: Range<u64>,
    mut tasks: Vec<Task<'_>>,
    worker: &mut Worker,
    flight: &Flight,
    given_up: &(dyn Fn() -> bool + Sync),
    failed: &dyn Fn(u64, SourceError) -> (u64, Error),
) -> Result<(), (u64, Error)> {
    let first = tasks.first().and_then(|task| task.parts.first()).map_or(0, |part| part.index);
    let total = range.end - range.start;
    let _boarding = order.fetch.access.is_remote().then(|| flight.board(total));
    let Worker { scratch, bytes } = worker;
    let bytes = room(bytes, total, first)?;
    tasks.sort_by_key(|task| task.parts.first().and_then(|part| Some(part.range()?.end)));
    let mut waiting = tasks.into_iter().peekable();
    let (mut outcome, mut kept) = (Ok(()), Kept::new());
    let mut arrived = |bytes: &[u8]| {
        let is_there = |task: &Task<'_>| {
            let end = task.parts.first().and_then(|part| part.range()).map_or(0, |range| range.end);
            end <= range.start + bytes.len() as u64
        };
        while outcome.is_ok()
            && let Some(task) = waiting.next_if(is_there)
        {
            outcome = run_task(order, task, &[(range.start, bytes)], scratch, &mut kept);
        }
    };
    let read = order.fetch.source.read_streamed(range.start, bytes, given_up, &mut arrived);
    read.map_err(|error| failed(first, error))?;
    arrived(bytes);
    outcome?;
    order.keep(kept);
    Ok(())
}

/// Decodes a task whose bytes are there: in one piece, or in one for each of its parts that are stored.
fn run_task(
    order: &Order<'_>,
    mut task: Task<'_>,
    pieces: &[(u64, &[u8])],
    scratch: &mut Scratch,
    kept: &mut Kept,
) -> Result<(), (u64, Error)> {
    let several = task.parts.len() > 1;
    let mut own = pieces.iter();
    for part in &task.parts {
        let piece = match part.range() {
            Some(_) if several => own.next(),
            Some(_) => pieces.first(),
            None => None,
        };
        let src = piece.zip(part.range()).and_then(|((offset, bytes), range)| {
            let start = usize::try_from(range.start.checked_sub(*offset)?).ok()?;
            bytes.get(start..start.checked_add((range.end - range.start) as usize)?)
        });
        let src = src.unwrap_or_default();
        decode_part(order, part, task.rows, task.inside, &mut task.target, src, scratch, kept).map_err(|error| {
            let place = Place { offset: part.range().map(|range| range.start), ..order.image.place_of(part.index) };
            (part.index, error.at(&place))
        })?;
        if let Some(detail) = scratch.take_remark() {
            order.remarks.add(order.image, part.index, detail);
            // A tile from the cache would not be remarked on, and every read has to be.
            kept.retain(|(index, _)| *index != part.index);
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn decode_part(
    order: &Order<'_>,
    part: &Part,
    rows: u32,
    inside: Window,
    target: &mut Target<'_>,
    src: &[u8],
    scratch: &mut Scratch,
    kept: &mut Kept,
) -> Result<(), Error> {
    match &part.bytes {
        TileBytes::Sparse => fill_sparse(order, part, target),
        TileBytes::InSteps(range) => strip::decode(order, part, range, rows, inside, target, scratch)?,
        TileBytes::Cached(tile) => order.host.place_native(tile.bytes(), inside, &part.take, target, scratch)?,
        TileBytes::At { keep: false, .. } => {
            order.host.decode(rows, src, inside, &part.take, target, scratch)?;
        }
        TileBytes::At { keep: true, range } => {
            let len = order.host.native_len(rows);
            let mut tile =
                Buffer::zeroed(len).ok_or_else(|| Error::usage(format!("there is no memory for {len} bytes")))?;
            if order.host.decode_native(rows, src, tile.bytes_mut(), scratch).is_err() {
                // The rows that are wanted may come before the damage: the verdict must not hang on what is kept.
                if order.may_step(rows, &inside) {
                    return strip::decode(order, part, range, rows, inside, target, scratch);
                }
                return Ok(order.host.decode(rows, src, inside, &part.take, target, scratch)?);
            }
            order.host.place_native(tile.bytes(), inside, &part.take, target, scratch)?;
            kept.push((part.index, Arc::new(tile)));
        }
    }
    Ok(())
}

fn fill_sparse(order: &Order<'_>, part: &Part, target: &mut Target<'_>) {
    // Untouched pages of a fresh buffer stay unmapped: an empty raster costs no memory.
    if order.zeroed && order.fill.iter().all(|byte| *byte == 0) {
        return;
    }
    let size = order.fill.len();
    match &*part.take {
        Take::Bands(_) => assemble::fill(target, order.fill, 0, size),
        Take::Pixels { samples, slot, step } => {
            for position in 0..samples.len() {
                assemble::fill(target, order.fill, (usize::from(*slot) + position) * size, usize::from(*step) * size);
            }
        }
    }
}
