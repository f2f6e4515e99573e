//! Lets cuFile read the tiles of a batch from the file to the device. One thread submits all reads before it waits for the first.
//! The engine reads incomplete tiles again, one by one, through pinned memory.

use std::ops::Range;

use swath_cuda::{FileRead, ReadsInFlight, decode::Uploader};

use super::{
    board::{Board, ChunkTask},
    context::DeviceReadContext,
    direct::Direct,
    loader::TileLoader,
    plan::Unit,
};
use crate::{cancel::cancelled, error::Error};

/// Reads the tiles of a batch. When this returns, every task is done or back on the board for other threads.
pub(super) fn read_batch(
    context: &DeviceReadContext<'_>,
    direct: &Direct,
    uploader: Uploader<'_>,
    units: &[&Unit],
    board: &Board,
    loader: &mut TileLoader,
    tasks: Vec<ChunkTask>,
) {
    if direct.is_hopeless() {
        board.hand_back(tasks);
        return;
    }
    let fail = |task: &ChunkTask, error: Error| {
        let first = units.get(task.first_unit()).map_or(0, |unit| unit.index);
        board.done(task.group, Err((first, error)));
    };
    let Some(half) = tasks.first().map(|task| task.half) else { return };
    let (parts, groups) = parts_of(&tasks);
    let submission = match uploader.submit(half, &direct.file, parts, groups) {
        Ok(submission) => submission,
        Err(error) => {
            if let Some(task) = tasks.first() {
                fail(task, error.into());
            }
            return;
        }
    };
    if let Some(refused) = submission.refused {
        direct.log().refused.get_or_insert(refused);
    }
    let Some(mut flight) = submission.flight else {
        let tasks = tasks.into_iter().map(ChunkTask::by_blocking_reads);
        if !direct.file.is_serial() {
            board.hand_back(tasks.collect());
            return;
        }
        for task in tasks {
            let group = task.group;
            board.done(group, loader.run(context, uploader, units, task));
        }
        return;
    };
    let mut part = 0;
    for (group, members) in tasks.chunk_by(|a, b| a.group == b.group).enumerate() {
        let Some(first) = members.first() else { continue };
        // cuFile cannot cancel its reads: dropping the flight waits for them.
        if let Some(error) = cancelled(context.cancel) {
            fail(first, error);
            return;
        }
        if let Err(error) = take_group(direct, board, &mut flight, group, members, &mut part) {
            fail(first, error);
            return;
        }
    }
}

/// Waits for the reads of a group, and puts incomplete ones back on the board.
fn take_group(
    direct: &Direct,
    board: &Board,
    flight: &mut ReadsInFlight,
    group: usize,
    members: &[ChunkTask],
    part: &mut usize,
) -> Result<(), Error> {
    let missed = flight.wait(group)?;
    let mut missing = missed.iter().peekable();
    for task in members {
        let mut again = Vec::new();
        for read in task.reads() {
            match missing.next_if(|missed| missed.part == *part) {
                Some(missed) => {
                    direct.add_failure(missed.reason.clone());
                    again.push(task.only(read));
                }
                None => direct.add_successes(1),
            }
            *part += 1;
        }
        // Add the new tasks first: a group without open tasks counts as complete.
        board.add_again(again);
        board.done(task.group, Ok(Vec::new()));
    }
    Ok(())
}

/// The reads of all tasks, and which of them belong to a group.
fn parts_of(tasks: &[ChunkTask]) -> (Vec<FileRead>, Vec<Range<usize>>) {
    let (mut parts, mut groups) = (Vec::new(), Vec::new());
    for members in tasks.chunk_by(|a, b| a.group == b.group) {
        let start = parts.len();
        for task in members {
            parts.extend(task.reads().iter().map(|(_, range, at)| FileRead { range: range.clone(), at: task.at + at }));
        }
        groups.push(start..parts.len());
    }
    (parts, groups)
}
