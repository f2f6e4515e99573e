//! Runs a read on a GPU: threads read tiles into pinned memory and start copies, the caller's thread launches kernels behind
//! them, and the host waits once, at the end.

use std::{ops::Range, panic::AssertUnwindSafe};

use swath_cuda::{
    CHUNK_LEN, DeviceError, TileStatus,
    decode::{DecodeBatch, DecodePath, DecodePlan, Decoder},
};

use super::{
    board::{Board, ChunkTask, ChunkWork, Closing},
    context::{DeviceReadContext, Refused},
    loader::TileLoader,
    plan::{Batches, RowUnits, Unit},
    storage,
};
use crate::{
    cancel::Cancel,
    error::{Error, ErrorKind},
};

/// Least bytes of a task: for fewer, starting a copy costs more than the copy.
const LEAST_TASK: usize = 256 << 10;
/// Groups that a read is launched in: each waits for its own copies only. Four beat two, eight and sixteen on an H200:
/// with fewer, kernels begin late; with more, each launch has too few tiles to fill the device.
const GROUPS: u64 = 4;
/// Least decoded bytes of a group: smaller launches leave the device idle between them.
const LEAST_GROUP: u64 = 32 << 20;

/// Most bytes that are copied back for refused tiles.
const MOST_BROUGHT_BACK: usize = 64 << 20;

/// A batch that is on its way.
struct Started {
    batch: DecodeBatch,
    half: usize,
    /// Number of its first group in the whole read.
    first_group: usize,
}

/// Runs the read. Returns the tiles that the device refused.
pub(super) fn run<'a>(
    context: &DeviceReadContext<'_>,
    decoder: &Decoder,
    plan: &DecodePlan,
    rows: &'a [RowUnits],
    batches: &Batches,
) -> Result<Vec<Refused<'a>>, Error> {
    let units: Vec<&Unit> = rows.iter().flat_map(|row| &row.units).collect();
    let board = Board::default();
    // Threads share reading by stored bytes, decoding by decoded bytes.
    let made = !plan.path.uploads_streams();
    let work = |unit: &&Unit| if made { unit.decoded_len as u64 } else { unit.stream_len() };
    let total: u64 = units.iter().map(work).sum();
    // Threads that read a remote file mostly wait, so there are as many as requests in flight.
    let wish = context.threads.max(context.fetch.access.in_flight);
    // Each batch that cuFile reads has a thread that waits for it.
    let least = if context.direct.is_some() { batches.halves } else { 1 };
    let threads = wish.min((total / LEAST_TASK as u64 + 1) as usize).max(least);
    let mut last: Vec<Option<Started>> = Vec::new();
    let work = || {
        let mut loader = TileLoader::default();
        while let Some(task) = board.next() {
            let first = units.get(task.first_unit()).map_or(0, |unit| unit.index);
            let group = task.group;
            let task = match (task.work, context.direct) {
                (ChunkWork::Batch(tasks), Some(direct)) => {
                    let uploader = decoder.uploader();
                    let run = || storage::read_batch(context, direct, uploader, &units, &board, &mut loader, tasks);
                    if std::panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
                        loader = TileLoader::default();
                        board.done(group, Err((first, Error::internal("a thread that reads panicked"))));
                    }
                    continue;
                }
                (work, _) => ChunkTask { work, ..task },
            };
            let result = if context.cancel.is_some_and(Cancel::is_cancelled) {
                Err((first, Error::new(ErrorKind::Cancelled)))
            } else {
                // The thread that waits for the task has to learn its result, even if a decoder panics.
                let run = AssertUnwindSafe(|| loader.run(context, decoder.uploader(), &units, task));
                std::panic::catch_unwind(run).unwrap_or_else(|_| {
                    loader = TileLoader::default();
                    Err((first, Error::internal("a decoder panicked on this tile")))
                })
            };
            board.done(group, result);
        }
    };
    let launched = std::thread::scope(|scope| {
        let _closing = Closing(&board);
        for started in 0..threads {
            // If the system has no more threads, the others do the work.
            if let Err(error) = swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)) {
                if started == 0 {
                    return Err(Error::memory(format!("no thread could be started: {error}")));
                }
                break;
            }
        }
        launch_all(context, decoder, plan, rows, batches, &board, &mut last, threads)
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
        // Only our Zstd kernel has a status of its own for sound streams that it does not support.
        let damaged = plan.path == DecodePath::Zstd && status == TileStatus::Corrupt;
        refused.push((number, Refused { unit, stream: None, reason, damaged }));
    }
    if !refused.is_empty() && batches.ranges.len() == 1 && plan.path.uploads_streams() {
        bring_back(decoder, &last, &mut refused)?;
    }
    Ok(refused.into_iter().map(|(_, refused)| refused).collect())
}

/// Copies the streams of refused tiles back from the device, with one copy.
fn bring_back(
    decoder: &Decoder,
    last: &[Option<Started>],
    refused: &mut [(usize, Refused<'_>)],
) -> Result<(), DeviceError> {
    let Some(Some(started)) = last.first() else { return Ok(()) };
    let streams: Vec<Range<usize>> =
        refused.iter().map(|(number, _)| started.batch.stream_of(*number).unwrap_or_default()).collect();
    let start = streams.iter().map(|stream| stream.start).min().unwrap_or(0);
    let end = streams.iter().map(|stream| stream.end).max().unwrap_or(0);
    // Streams that lie far apart are read from the file again: one copy would bring all bytes between them.
    if end.saturating_sub(start) > MOST_BROUGHT_BACK {
        return Ok(());
    }
    let bytes = decoder.bring_back(started.half, start..end)?;
    for ((_, refused), stream) in refused.iter_mut().zip(streams) {
        refused.stream = bytes.get(stream.start - start..stream.end - start).map(<[u8]>::to_vec);
    }
    Ok(())
}

/// Lays out all batches, posts their tasks on the board, and launches each group when its tasks are done. Puts the last batch in `last`.
#[allow(clippy::too_many_arguments)]
fn launch_all(
    context: &DeviceReadContext<'_>,
    decoder: &Decoder,
    plan: &DecodePlan,
    rows: &[RowUnits],
    batches: &Batches,
    board: &Board,
    last: &mut Vec<Option<Started>>,
    threads: usize,
) -> Result<(), Error> {
    let (mut first_unit, mut first_group) = (0, 0);
    let mut start = |number: usize| -> Result<Started, Error> {
        let members = batches.ranges.get(number).cloned().unwrap_or_default();
        let half = number % batches.halves;
        let rows = rows.get(members).unwrap_or_default();
        // For a remote file, few long reads are faster than many short ones.
        let least = if context.fetch.access.is_remote() { CHUNK_LEN } else { LEAST_TASK };
        let (batch, tasks) = build(plan, rows, half, first_unit, first_group, threads, least);
        decoder.begin(half, &batch)?;
        let started = Started { half, first_group, batch };
        first_unit += started.batch.tiles();
        first_group += started.batch.groups();
        if context.direct.is_some() {
            board.add_batch(started.batch.groups(), tasks);
        } else {
            board.add(started.batch.groups(), tasks);
        }
        Ok(started)
    };
    let complete = |started: &Started| -> Result<bool, Error> {
        for group in 0..started.batch.groups() {
            if !board.wait_for(started.first_group + group) {
                return Ok(false);
            }
            if plan.path.decodes_from_host() {
                let bytes = board.take(started.batch.numbers(group));
                decoder.launch_from_host(started.half, &started.batch, group, bytes)?;
            } else {
                decoder.launch(started.half, &started.batch, group)?;
            }
            if context.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
        }
        decoder.end(started.half)?;
        Ok(true)
    };
    let count = batches.ranges.len();
    let mut current = if count > 0 { Some(start(0)?) } else { None };
    let mut number = 0;
    while let Some(batch) = current {
        // With two halves the next batch's reads begin before this one's kernels are launched.
        let ahead = if batches.halves > 1 && number + 1 < count { Some(start(number + 1)?) } else { None };
        if !complete(&batch)? {
            return Ok(());
        }
        number += 1;
        let next = if ahead.is_none() && number < count { Some(start(number)?) } else { ahead };
        if next.is_none() {
            last.push(Some(batch));
        }
        current = next;
    }
    Ok(())
}

/// Lays a batch out on the device and cuts its bytes into tasks.
fn build(
    plan: &DecodePlan,
    rows: &[RowUnits],
    half: usize,
    first_unit: usize,
    first_group: usize,
    threads: usize,
    least: usize,
) -> (DecodeBatch, Vec<ChunkTask>) {
    let mut batch = DecodeBatch::new(plan, first_unit);
    let units = || rows.iter().flat_map(|row| &row.units);
    let decoded: u64 = units().map(|unit| unit.decoded_len as u64).sum();
    // nvCOMP gives a warp to a tile, so it needs many tiles at once.
    let groups = if plan.path == DecodePath::Lz4 { 2 } else { GROUPS };
    let group_len = if plan.timed { u64::MAX } else { (decoded / groups).max(LEAST_GROUP) };
    let uploaded =
        |unit: &Unit| if plan.path == DecodePath::Host { unit.decoded_len as u64 } else { unit.stream_len() };
    let bytes: u64 = units().map(uploaded).sum();
    let most = usize::try_from(bytes / (threads as u64 * 4)).unwrap_or(CHUNK_LEN).clamp(least, CHUNK_LEN);
    let mut tasks: Vec<ChunkTask> = Vec::new();
    let (mut in_group, mut number) = (0, first_unit);
    // The task that is still growing: only units of one group, side by side on the device, share one.
    let mut open: Option<ChunkTask> = None;
    for row in rows {
        for placement in &row.sparse {
            batch.place_sparse(placement);
        }
        for unit in &row.units {
            let len = uploaded(unit) as usize;
            let at = batch.tile(unit.stream_len() as usize, unit.decoded_len);
            if let Some((piece_len, sizes)) = &unit.piece_sizes {
                batch.set_pieces(*piece_len, sizes);
            }
            for placement in unit.decoded_placements() {
                batch.place(&placement);
            }
            let group = first_group + batch.groups();
            add_unit(plan.path, &mut open, &mut tasks, unit, number, half, group, at, len, most);
            number += 1;
            in_group += unit.decoded_len as u64;
            if in_group >= group_len {
                batch.end_group();
                tasks.extend(open.take());
                in_group = 0;
            }
        }
    }
    batch.end_group();
    tasks.extend(open);
    (batch, tasks)
}

#[allow(clippy::too_many_arguments)]
fn add_unit(
    path: DecodePath,
    open: &mut Option<ChunkTask>,
    tasks: &mut Vec<ChunkTask>,
    unit: &Unit,
    number: usize,
    half: usize,
    group: usize,
    at: usize,
    len: usize,
    most: usize,
) {
    let task = |at, len, work| ChunkTask { half, group, at, len, work };
    if path.decodes_from_host() {
        match open {
            Some(ChunkTask { len: sum, work: ChunkWork::Prefetch(units), .. }) if *sum + len <= most => {
                units.push(number);
                *sum += len;
            }
            _ => tasks.extend(open.replace(task(0, len, ChunkWork::Prefetch(vec![number])))),
        }
        return;
    }
    if len > CHUNK_LEN {
        tasks.extend(open.take());
        if !path.uploads_streams() {
            tasks.push(task(at, len, ChunkWork::DecodeLarge(number)));
            return;
        }
        for start in (0..len).step_by(CHUNK_LEN) {
            let end = (start + CHUNK_LEN).min(len);
            let range = unit.range.start + start as u64..unit.range.start + end as u64;
            tasks.push(task(at + start, end - start, ChunkWork::Read(vec![(number, range, 0)])));
        }
        return;
    }
    if let Some(growing) = open {
        let inside = at - growing.at;
        if inside + len <= most {
            growing.len = inside + len;
            match &mut growing.work {
                ChunkWork::Read(reads) => reads.push((number, unit.range.clone(), inside)),
                ChunkWork::Decode(units) => units.push((number, inside)),
                ChunkWork::DecodeLarge(_) | ChunkWork::Prefetch(_) | ChunkWork::ReadDirect(_) | ChunkWork::Batch(_) => {
                }
            }
            return;
        }
    }
    tasks.extend(open.take());
    let work = if path.uploads_streams() {
        ChunkWork::Read(vec![(number, unit.range.clone(), 0)])
    } else {
        ChunkWork::Decode(vec![(number, 0)])
    };
    *open = Some(task(at, len, work));
}
