//! Reads the bytes of one job and decodes its tiles.

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
};
use swath_io::{ReadInto, SourceError, coalesce::coalesce};
use swath_raster::memory::Buffer;
use swath_tiff::{Place, Window};

use super::{
    arriving, assemble,
    context::ReadContext,
    strip,
    task::{ReadJob, Task, TileBytes, TilePart},
};
use crate::{
    cancel::{Cancel, cancelled},
    error::{Error, ErrorKind},
    state::{scratch::ReadBuffers, spare::SampleBuffer},
};

/// Most bytes of a remote file that may be in flight at once, or wait to be decoded.
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// Decoded tiles to keep, by number, once the read that brought them has succeeded.
type NewTiles = Vec<(u64, Arc<SampleBuffer>)>;

impl ReadContext<'_> {
    fn keep(&self, tiles: NewTiles) {
        tiles.into_iter().for_each(|(index, tile)| self.cache.insert((self.image.index, index), tile));
    }
}

/// The bytes in flight. A thread that needs more waits until others are done.
#[derive(Default)]
pub(crate) struct BytesInFlight {
    bytes: Mutex<u64>,
    landed: Condvar,
}

/// Reserved bytes of [`BytesInFlight`], returned when dropped.
struct Reservation<'a> {
    flight: &'a BytesInFlight,
    len: u64,
}

impl BytesInFlight {
    /// Waits for room. A single reservation may exceed the limit, because a tile cannot be split.
    fn reserve(&self, len: u64) -> Reservation<'_> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *bytes > 0 && bytes.saturating_add(len) > MOST_IN_FLIGHT {
            bytes = self.landed.wait(bytes).unwrap_or_else(PoisonError::into_inner);
        }
        *bytes = bytes.saturating_add(len);
        Reservation { flight: self, len }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut bytes = self.flight.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *bytes = bytes.saturating_sub(self.len);
        self.flight.landed.notify_all();
    }
}

/// Reads the bytes of a job and decodes them. An error comes with its tile's number, so that the first of several is reported.
pub(crate) fn run(
    context: &ReadContext<'_>,
    job: ReadJob<'_>,
    buffers: &mut ReadBuffers,
    flight: &BytesInFlight,
    stop: &AtomicBool,
) -> Result<(), (u64, Error)> {
    let ReadJob { reads, tasks } = job;
    let given_up = || stop.load(Ordering::Relaxed) || context.cancel.is_some_and(Cancel::is_cancelled);
    let first = tasks.first().and_then(|task| task.parts.first()).map_or(0, |part| part.index);
    let failed = |first: u64, error: SourceError| {
        // The caller cancelled the read, or another tile failed: this tile has no fault.
        if context.cancel.is_some_and(Cancel::is_cancelled) {
            return (first, Error::new(ErrorKind::Cancelled));
        }
        if stop.load(Ordering::Relaxed) {
            return (u64::MAX, Error::from(error));
        }
        let place = Place { offset: reads.first().map(|range| range.start), ..context.image.place_of(first) };
        (first, Error::from(error).at(&place))
    };
    let remote = context.fetch.access.is_remote();
    // Tiles that are slow to fetch or decode, and are kept afterwards, are done once for all threads that need them.
    let slow = |task: &Task<'_>| match &*task.parts {
        [TilePart { bytes: TileBytes::At { keep, .. }, .. }] => remote || (*keep && context.is_large(task.rows)),
        parts => remote && parts.len() == 1,
    };
    if reads.len() == 1 && tasks.iter().all(slow) {
        return run_arriving(context, tasks, buffers, flight, &given_up, &failed);
    }
    let total: u64 = reads.iter().map(|range| range.end - range.start).sum();
    let _reservation = (remote && total > 0).then(|| flight.reserve(total));
    let mut rest = room(&mut buffers.bytes, total, first)?;
    let mut reads_into = Vec::with_capacity(reads.len());
    for range in &reads {
        let (head, tail) = rest.split_at_mut_checked((range.end - range.start) as usize).unwrap_or_default();
        reads_into.push(ReadInto { offset: range.start, buffer: head });
        rest = tail;
    }
    context.fetch.source.read_many_unless(&mut reads_into, &given_up).map_err(|error| failed(first, error))?;
    let loaded: Vec<(u64, &[u8])> = reads_into.iter().map(|read| (read.offset, &*read.buffer)).collect();
    let mut own_reads = &*loaded;
    let mut new_tiles = NewTiles::new();
    for task in tasks {
        // A task of several parts brings a read for each; the tasks of a merged read share one.
        let stored = task.parts.iter().filter(|part| part.range().is_some()).count();
        let several = task.parts.len() > 1;
        let found = if several { own_reads.get(..stored).unwrap_or_default() } else { &*loaded };
        run_task(context, task, found, &mut buffers.scratch, &mut new_tiles)?;
        if several {
            own_reads = own_reads.get(stored..).unwrap_or_default();
        }
    }
    context.keep(new_tiles);
    Ok(())
}

/// Makes room for the bytes of a read.
fn room(buffer: &mut Buffer, total: u64, first: u64) -> Result<&mut [u8], (u64, Error)> {
    let room = usize::try_from(total).ok().and_then(|len| buffer.room(len));
    room.ok_or_else(|| (first, Error::no_memory(total)))
}

/// Runs tasks of one tile each, of a remote file or of large strips. Tiles are decoded while later ones are still in flight; for a tile
/// that another read is fetching, this one waits instead of fetching it twice.
fn run_arriving(
    context: &ReadContext<'_>,
    mut tasks: Vec<Task<'_>>,
    buffers: &mut ReadBuffers,
    flight: &BytesInFlight,
    given_up: &(dyn Fn() -> bool + Sync),
    failed: &dyn Fn(u64, SourceError) -> (u64, Error),
) -> Result<(), (u64, Error)> {
    let mut waited = false;
    loop {
        let claim = arriving::claim(context, tasks, waited);
        for task in claim.at_hand {
            run_task(context, task, &[], &mut buffers.scratch, &mut NewTiles::new())?;
        }
        let ranges: Vec<Range<u64>> =
            claim.mine.iter().filter_map(|task| task.parts.first()?.range().cloned()).collect();
        let mut mine: Vec<Option<Task<'_>>> = claim.mine.into_iter().map(Some).collect();
        for merged in coalesce(&ranges, context.merge()) {
            let members = merged.members.iter().filter_map(|member| mine.get_mut(*member)?.take()).collect();
            fetch(context, merged.range, members, buffers, flight, given_up, failed)?;
        }
        drop(claim.claimed);
        if claim.late.is_empty() {
            return Ok(());
        }
        arriving::wait(context, &claim.late, given_up);
        if given_up() {
            // If the caller did not cancel, another tile failed, and its error is reported.
            return cancelled(context.cancel).map_or(Ok(()), |error| Err((0, error)));
        }
        (tasks, waited) = (claim.late, true);
    }
}

/// Fetches one range and decodes its tiles as they arrive.
fn fetch(
    context: &ReadContext<'_>,
    range: Range<u64>,
    mut tasks: Vec<Task<'_>>,
    buffers: &mut ReadBuffers,
    flight: &BytesInFlight,
    given_up: &(dyn Fn() -> bool + Sync),
    failed: &dyn Fn(u64, SourceError) -> (u64, Error),
) -> Result<(), (u64, Error)> {
    let first = tasks.first().and_then(|task| task.parts.first()).map_or(0, |part| part.index);
    let total = range.end - range.start;
    let _reservation = context.fetch.access.is_remote().then(|| flight.reserve(total));
    let ReadBuffers { scratch, bytes } = buffers;
    let bytes = room(bytes, total, first)?;
    tasks.sort_by_key(|task| task.parts.first().and_then(|part| Some(part.range()?.end)));
    let mut waiting = tasks.into_iter().peekable();
    let (mut outcome, mut new_tiles) = (Ok(()), NewTiles::new());
    let mut arrived = |bytes: &[u8]| {
        let is_there = |task: &Task<'_>| {
            let end = task.parts.first().and_then(|part| part.range()).map_or(0, |range| range.end);
            end <= range.start + bytes.len() as u64
        };
        while outcome.is_ok()
            && let Some(task) = waiting.next_if(is_there)
        {
            outcome = run_task(context, task, &[(range.start, bytes)], scratch, &mut new_tiles);
        }
    };
    let read = context.fetch.source.read_streamed(range.start, bytes, given_up, &mut arrived);
    read.map_err(|error| failed(first, error))?;
    arrived(bytes);
    outcome?;
    context.keep(new_tiles);
    Ok(())
}

/// Decodes a task. `loaded` are its bytes, with their offsets in the file: one buffer for all parts, or one for each stored part.
fn run_task(
    context: &ReadContext<'_>,
    mut task: Task<'_>,
    loaded: &[(u64, &[u8])],
    scratch: &mut Scratch,
    new_tiles: &mut NewTiles,
) -> Result<(), (u64, Error)> {
    let several = task.parts.len() > 1;
    let mut own = loaded.iter();
    for part in &task.parts {
        let buffer = match part.range() {
            Some(_) if several => own.next(),
            Some(_) => loaded.first(),
            None => None,
        };
        let src = buffer.zip(part.range()).and_then(|((offset, bytes), range)| {
            let start = usize::try_from(range.start.checked_sub(*offset)?).ok()?;
            bytes.get(start..start.checked_add((range.end - range.start) as usize)?)
        });
        // No read loads a tile of no bytes; its decoder refuses it.
        let src = if part.range().is_some_and(Range::is_empty) { Some(&[][..]) } else { src };
        decode_part(context, part, task.rows, task.inside, &mut task.target, src, scratch, new_tiles).map_err(
            |error| {
                let place =
                    Place { offset: part.range().map(|range| range.start), ..context.image.place_of(part.index) };
                (part.index, error.at(&place))
            },
        )?;
        if let Some(detail) = scratch.take_warning() {
            context.warnings.add(context.image.index, part.index, context.image.place_of(part.index), detail);
            // A cached tile would lose its warning, which every read has to report.
            new_tiles.retain(|(index, _)| *index != part.index);
        }
    }
    Ok(())
}

/// Writes one tile of a task to the output: decodes it, copies it from the cache, or fills it where it is sparse.
#[allow(clippy::too_many_arguments)]
fn decode_part(
    context: &ReadContext<'_>,
    part: &TilePart,
    rows: u32,
    inside: Window,
    target: &mut Target<'_>,
    src: Option<&[u8]>,
    scratch: &mut Scratch,
    new_tiles: &mut NewTiles,
) -> Result<(), Error> {
    let not_read = || Error::internal("the bytes of a tile were not read");
    match &part.bytes {
        TileBytes::Sparse => fill_sparse(context, part, target),
        TileBytes::Continued(range) => strip::decode(context, part, range, rows, inside, target, scratch)?,
        TileBytes::Cached(tile) => context.host.place_native(tile.bytes(), inside, &part.take, target, scratch)?,
        TileBytes::At { keep: false, .. } => {
            context.host.decode(rows, src.ok_or_else(not_read)?, inside, &part.take, target, scratch)?;
        }
        TileBytes::At { keep: true, range } => {
            let src = src.ok_or_else(not_read)?;
            let len = context.host.native_len(rows);
            let mut tile = SampleBuffer::new(len).ok_or_else(|| Error::no_memory(len))?;
            if context.host.decode_native(rows, src, tile.bytes_mut(), scratch).is_err() {
                // The window may end before the damage. Whether it decodes must not depend on what the cache holds.
                if context.may_continue(rows, &inside) {
                    return strip::decode(context, part, range, rows, inside, target, scratch);
                }
                return Ok(context.host.decode(rows, src, inside, &part.take, target, scratch)?);
            }
            context.host.place_native(tile.bytes(), inside, &part.take, target, scratch)?;
            new_tiles.push((part.index, Arc::new(tile)));
        }
    }
    Ok(())
}

fn fill_sparse(context: &ReadContext<'_>, part: &TilePart, target: &mut Target<'_>) {
    // Untouched pages of a fresh buffer stay unmapped: an empty raster costs no memory.
    if context.zeroed && context.fill.iter().all(|byte| *byte == 0) {
        return;
    }
    let size = context.fill.len();
    match &*part.take {
        Take::Bands(_) => assemble::fill(target, context.fill, 0, size),
        Take::Pixels { samples, first, stride } => {
            for position in 0..samples.len() {
                assemble::fill(
                    target,
                    context.fill,
                    (usize::from(*first) + position) * size,
                    usize::from(*stride) * size,
                );
            }
        }
    }
}
