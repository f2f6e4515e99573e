//! A band whose tiles cuFile reads from the file to the device: all reads are submitted before the first is waited for.
//! What does not come whole is read again by way of pinned memory, tile by tile.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use swath_cuda::{FilePart, Flight, decode::Uploader, gpu::DirectFile};

use super::{
    board::{Board, Task},
    plan::Unit,
    run::Job,
    worker::Worker,
};
use crate::{
    error::{Error, ErrorKind},
    read::Cancel,
};

/// The usual way of bytes to the device, in words for a report.
pub(super) const PINNED: &str = "pinned copies";
/// Reads that fail before any comes, until the rest of the file is no longer tried.
const MOST_IN_VAIN: u64 = 8;

/// A file that cuFile reads.
pub(super) struct Direct {
    file: DirectFile,
    told: Mutex<Told>,
}

/// What became of its reads.
#[derive(Default)]
struct Told {
    came: u64,
    missed: u64,
    /// Why the first that did not come did not.
    reason: Option<String>,
    /// Why cuFile's best calls were not used.
    refused: Option<String>,
}

impl Direct {
    pub(super) fn new(file: DirectFile) -> Self {
        Self { file, told: Mutex::default() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn came(&self, reads: u64) {
        self.told().came += reads;
    }

    fn missed(&self, reason: String) {
        let mut told = self.told();
        told.missed += 1;
        told.reason.get_or_insert(reason);
    }

    /// Whether cuFile was tried often enough in vain.
    fn is_hopeless(&self) -> bool {
        let told = self.told();
        told.came == 0 && told.missed >= MOST_IN_VAIN
    }

    /// How the file's bytes got to the device.
    pub(super) fn storage(&self) -> &'static str {
        let told = self.told();
        if told.came == 0 && told.missed > 0 { PINNED } else { self.file.storage() }
    }

    /// What was done otherwise than asked, in one line for the whole read.
    pub(super) fn notice(&self) -> Option<String> {
        let told = self.told();
        let missed = told.reason.as_ref().map(|reason| {
            let which = if told.came > 0 { "some tiles" } else { "tiles" };
            format!("{which} were read by way of pinned memory: {reason}")
        });
        let refused = told.refused.as_ref().map(|refused| format!("cuFile: {refused}"));
        match (missed, refused) {
            (Some(missed), Some(refused)) => Some(format!("{missed}; {refused}")),
            (missed, refused) => missed.or(refused),
        }
    }

    /// Reads one tile, or a part of a large one, and waits for it; tells whether it came whole.
    pub(super) fn read(&self, uploader: Uploader<'_>, half: usize, range: &Range<u64>, at: usize) -> bool {
        if self.is_hopeless() {
            return false;
        }
        match uploader.read(half, &self.file, &FilePart { range: range.clone(), at }) {
            Ok(()) => self.came(1),
            Err(error) => {
                self.missed(error.to_string());
                return false;
            }
        }
        true
    }
}

/// Reads the tiles of a band. Every task is done, or given to the board for others to do, when this returns.
pub(super) fn read_band(
    job: &Job<'_>,
    direct: &Direct,
    uploader: Uploader<'_>,
    units: &[&Unit],
    board: &Board,
    worker: &mut Worker,
    tasks: Vec<Task>,
) {
    if direct.is_hopeless() {
        board.hand_back(tasks);
        return;
    }
    let fail = |task: &Task, error: Error| {
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
        direct.told().refused.get_or_insert(refused);
    }
    let Some(mut flight) = submission.flight else {
        let tasks = tasks.into_iter().map(Task::by_blocking_reads);
        if !direct.file.is_serial() {
            board.hand_back(tasks.collect());
            return;
        }
        for task in tasks {
            let group = task.group;
            board.done(group, worker.run(job, uploader, units, task));
        }
        return;
    };
    let mut part = 0;
    for (group, members) in tasks.chunk_by(|a, b| a.group == b.group).enumerate() {
        let Some(first) = members.first() else { continue };
        // What is under way cannot be called back: dropping the flight waits for it.
        if job.cancel.is_some_and(Cancel::is_cancelled) {
            fail(first, Error::new(ErrorKind::Cancelled));
            return;
        }
        if let Err(error) = take_group(direct, board, &mut flight, group, members, &mut part) {
            fail(first, error);
            return;
        }
    }
}

/// Waits for the reads of a group, and hands those that did not come whole to the board.
fn take_group(
    direct: &Direct,
    board: &Board,
    flight: &mut Flight,
    group: usize,
    members: &[Task],
    part: &mut usize,
) -> Result<(), Error> {
    let missed = flight.wait(group)?;
    let mut missing = missed.iter().peekable();
    for task in members {
        let mut again = Vec::new();
        for read in task.reads() {
            match missing.next_if(|missed| missed.part == *part) {
                Some(missed) => {
                    direct.missed(missed.reason.clone());
                    again.push(task.only(read));
                }
                None => direct.came(1),
            }
            *part += 1;
        }
        // First the new ones: the group is complete when nothing of it is left to do.
        board.add_again(again);
        board.done(task.group, Ok(Vec::new()));
    }
    Ok(())
}

/// The reads of all tasks, and which of them belong to a group.
fn parts_of(tasks: &[Task]) -> (Vec<FilePart>, Vec<Range<usize>>) {
    let (mut parts, mut groups) = (Vec::new(), Vec::new());
    for members in tasks.chunk_by(|a, b| a.group == b.group) {
        let start = parts.len();
        for task in members {
            parts.extend(task.reads().iter().map(|(_, range, at)| FilePart { range: range.clone(), at: task.at + at }));
        }
        groups.push(start..parts.len());
    }
    (parts, groups)
}
