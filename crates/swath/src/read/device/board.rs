//! The tasks of a read and their progress, shared by the threads that read and the thread that launches kernels.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Condvar, Mutex, PoisonError},
};

use swath_cuda::HostTile;

use crate::error::Error;

/// Bytes that are read ahead for a library that takes them from the host.
const MOST_PREFETCHED: usize = 256 << 20;

/// Units with their streams, read for a library that takes them from host memory. A unit that must not reach the library has
/// the reason instead of a stream.
pub(super) type Prefetched = Vec<(usize, HostTile)>;

fn prefetched_len(tile: &HostTile) -> usize {
    tile.as_ref().map_or(0, Vec::len)
}

/// One pinned chunk's worth of work.
pub(super) struct ChunkTask {
    pub(super) half: usize,
    /// Number of the group in the whole read.
    pub(super) group: usize,
    /// Where the chunk goes on the device.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) work: ChunkWork,
}

/// A unit, a part of the file that belongs to it, and the place of that part in the chunk.
pub(super) type FilePart = (usize, Range<u64>, usize);

pub(super) enum ChunkWork {
    /// Parts that are read into the chunk.
    Read(Vec<FilePart>),
    /// Parts that cuFile reads to where the chunk would go, one blocking call each.
    ReadDirect(Vec<FilePart>),
    /// The tasks of a batch, all of them reads, that cuFile is given together.
    Batch(Vec<ChunkTask>),
    /// Units that the CPU decodes, each to its place in the chunk.
    Decode(Vec<(usize, usize)>),
    /// A unit that the CPU decodes and that is larger than a chunk.
    DecodeLarge(usize),
    /// Units that are read and kept for a library.
    Prefetch(Vec<usize>),
}

impl ChunkTask {
    pub(super) fn first_unit(&self) -> usize {
        match &self.work {
            ChunkWork::Read(reads) | ChunkWork::ReadDirect(reads) => reads.first().map_or(0, |(unit, ..)| *unit),
            ChunkWork::Batch(tasks) => tasks.first().map_or(0, Self::first_unit),
            ChunkWork::Decode(units) => units.first().map_or(0, |(unit, _)| *unit),
            ChunkWork::DecodeLarge(unit) => *unit,
            ChunkWork::Prefetch(units) => units.first().copied().unwrap_or(0),
        }
    }

    /// The reads of a task that only reads; empty for other tasks.
    pub(super) fn reads(&self) -> &[FilePart] {
        match &self.work {
            ChunkWork::Read(reads) | ChunkWork::ReadDirect(reads) => reads,
            _ => &[],
        }
    }

    /// The same reads by cuFile's blocking call.
    pub(super) fn by_blocking_reads(self) -> Self {
        match self.work {
            ChunkWork::Read(reads) => Self { work: ChunkWork::ReadDirect(reads), ..self },
            _ => self,
        }
    }

    /// A task that reads one of its parts through a pinned chunk.
    pub(super) fn only(&self, (unit, range, inside): &FilePart) -> Self {
        let len = (range.end - range.start) as usize;
        let work = ChunkWork::Read(vec![(*unit, range.clone(), 0)]);
        Self { half: self.half, group: self.group, at: self.at + inside, len, work }
    }
}

/// The shared list of tasks.
#[derive(Default)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

/// The state of the list.
#[derive(Default)]
pub(super) struct State {
    tasks: VecDeque<ChunkTask>,
    /// Tasks of each group that are not done.
    pending: Vec<usize>,
    /// Units that were read for a library and are not launched.
    prefetched: HashMap<usize, HostTile>,
    prefetched_bytes: usize,
    /// The group that is launched next: its tasks are never held back.
    awaited: usize,
    closed: bool,
    /// The error of the first tile that has one.
    pub(super) error: Option<(u64, Error)>,
}

impl State {
    /// Adds new groups and counts their tasks.
    fn expect_groups(&mut self, groups: usize, tasks: &[ChunkTask]) {
        self.pending.resize(self.pending.len() + groups, 0);
        self.expect(tasks);
    }

    /// Counts tasks that are pending.
    fn expect(&mut self, tasks: &[ChunkTask]) {
        for task in tasks {
            if let Some(pending) = self.pending.get_mut(task.group) {
                *pending += 1;
            }
        }
    }
}

impl Board {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds tasks of new groups.
    pub(super) fn add(&self, groups: usize, tasks: Vec<ChunkTask>) {
        let mut state = self.lock();
        state.expect_groups(groups, &tasks);
        state.tasks.extend(tasks);
        self.changed.notify_all();
    }

    /// Adds tasks of new groups. One thread submits all of them to cuFile and reports each when it is done.
    pub(super) fn add_batch(&self, groups: usize, tasks: Vec<ChunkTask>) {
        let mut state = self.lock();
        state.expect_groups(groups, &tasks);
        if let Some((half, group)) = tasks.first().map(|task| (task.half, task.group)) {
            state.tasks.push_back(ChunkTask { half, group, at: 0, len: 0, work: ChunkWork::Batch(tasks) });
        }
        self.changed.notify_all();
    }

    /// Adds tasks to groups that are under way, ahead of all other tasks.
    pub(super) fn add_again(&self, tasks: Vec<ChunkTask>) {
        self.lock().expect(&tasks);
        self.hand_back(tasks);
    }

    /// Returns tasks that a thread took and did not do, ahead of all other tasks.
    pub(super) fn hand_back(&self, tasks: Vec<ChunkTask>) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        for task in tasks.into_iter().rev() {
            state.tasks.push_front(task);
        }
        self.changed.notify_all();
    }

    pub(super) fn next(&self) -> Option<ChunkTask> {
        let mut state = self.lock();
        loop {
            if state.error.is_some() {
                return None;
            }
            let room = state.prefetched_bytes < MOST_PREFETCHED;
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

    pub(super) fn done(&self, group: usize, result: Result<Prefetched, (u64, Error)>) {
        let mut state = self.lock();
        if let Some(pending) = state.pending.get_mut(group) {
            *pending = pending.saturating_sub(1);
        }
        match result {
            Ok(prefetched) => {
                state.prefetched_bytes += prefetched.iter().map(|(_, tile)| prefetched_len(tile)).sum::<usize>();
                state.prefetched.extend(prefetched);
            }
            Err((index, error)) if state.error.as_ref().is_none_or(|(first, _)| index < *first) => {
                state.error = Some((index, error));
            }
            Err(_) => {}
        }
        self.changed.notify_all();
    }

    /// The streams of units that were all read.
    pub(super) fn take(&self, units: Range<usize>) -> Vec<HostTile> {
        let mut state = self.lock();
        let taken: Vec<HostTile> =
            units.map(|unit| state.prefetched.remove(&unit).unwrap_or_else(|| Err("not read".to_owned()))).collect();
        state.prefetched_bytes = state.prefetched_bytes.saturating_sub(taken.iter().map(prefetched_len).sum());
        self.changed.notify_all();
        taken
    }

    /// Waits until all tasks of a group are done. Returns false where a task failed.
    pub(super) fn wait_for(&self, group: usize) -> bool {
        let mut state = self.lock();
        state.awaited = group;
        self.changed.notify_all();
        while state.error.is_none() && state.pending.get(group).is_some_and(|pending| *pending > 0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error.is_none()
    }

    /// Ends the work: drops tasks that no thread has begun.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.tasks.clear();
        self.changed.notify_all();
    }
}

/// Ends the work of the threads when dropped.
pub(super) struct Closing<'a>(pub(super) &'a Board);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
