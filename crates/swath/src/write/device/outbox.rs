//! Brings the GPU's batches to the file: threads wait for their bytes and write them, while the GPU works on the next batch.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::AssertUnwindSafe,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use swath_codec::Scratch;
use swath_cuda::{PinnedBytes, Readback};
use swath_raster::moments::Moments;

use crate::error::Error;
use crate::write::{
    level_writer::{Encoded, LevelWriter},
    levels::Levels,
    plan::Plan,
    shared_sink::SharedSink,
};

/// Batches whose bytes can be in host memory: one that is received and one that is written.
pub(in crate::write) const IN_FLIGHT: usize = 2;

/// Bytes of a batch that are written to one place as they are.
#[derive(Debug)]
pub(in crate::write) struct PackedWrite {
    pub range: Range<usize>,
    pub to: Destination,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::write) enum Destination {
    /// An offset of the file.
    File(u64),
    /// An offset in a buffered level.
    Level(usize, u64),
}

/// A tile that its level writes when its turn comes.
#[derive(Debug)]
pub(in crate::write) struct Tile {
    pub level: usize,
    pub number: u64,
    pub content: Content,
    pub moments: Vec<(u16, Moments)>,
}

/// The content of a tile, before it is written.
#[derive(Debug)]
pub(in crate::write) enum Content {
    /// The bytes for the file, frame included; empty for a tile that is left out.
    Whole(Vec<u8>),
    /// Bytes of the batch that go to the file as they are.
    Packed(Range<usize>),
    /// Bytes of the batch that the codec of the image or of its mask still has to compress: rows of the tile.
    Raw { range: Range<usize>, rows: u32, mask: bool },
}

/// What a batch gives: its bytes on their way to the host, and where they go.
#[derive(Debug, Default)]
pub(in crate::write) struct BatchOutput {
    pub readback: Option<Readback>,
    pub writes: Vec<PackedWrite>,
    pub tiles: Vec<Tile>,
}

#[derive(Debug)]
enum OutboxJob {
    /// Wait for the bytes of a batch.
    Receive(BatchOutput),
    Write {
        batch: Arc<ReceivedBatch>,
        range: Range<usize>,
        to: Destination,
    },
    Tile {
        batch: Arc<ReceivedBatch>,
        tile: Tile,
    },
}

/// A batch, with its bytes in pinned memory. When it is dropped, the next batch may come.
#[derive(Debug)]
struct ReceivedBatch {
    bytes: Option<PinnedBytes>,
    shared: Arc<Shared>,
}

impl ReceivedBatch {
    /// A part of the batch's bytes.
    fn part(&self, range: Range<usize>) -> Result<&[u8], Error> {
        let bytes = self.bytes.as_ref().map_or(&[][..], PinnedBytes::bytes);
        let missing = || Error::internal(format!("bytes {range:?} of a batch of {} did not come back", bytes.len()));
        bytes.get(range.clone()).ok_or_else(missing)
    }
}

impl Drop for ReceivedBatch {
    fn drop(&mut self) {
        self.shared.lock().in_flight -= 1;
        self.shared.changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<OutboxJob>,
    /// Jobs that a thread works on.
    active: usize,
    in_flight: usize,
    failure: Option<Error>,
    /// Whether anything has failed, even if the error was reported already.
    failed: bool,
    closed: bool,
}

impl State {
    /// Returns the first error so far.
    fn outcome(&mut self) -> Result<(), Error> {
        match (self.failure.take(), self.failed) {
            (Some(failure), _) => Err(failure),
            (None, true) => Err(Error::internal("an earlier tile could not be written")),
            (None, false) => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    sink: Arc<SharedSink>,
    level_writers: Arc<Levels<LevelWriter>>,
    plan: Arc<Plan>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, jobs: impl IntoIterator<Item = OutboxJob>) {
        self.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }
}

/// Threads that bring batches to the file.
#[derive(Debug)]
pub(in crate::write) struct Outbox {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Outbox {
    pub(in crate::write) fn new(
        sink: Arc<SharedSink>,
        level_writers: Arc<Levels<LevelWriter>>,
        plan: Arc<Plan>,
        threads: usize,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), sink, level_writers, plan });
        let mut started = Vec::new();
        for _ in 0..threads.max(1) {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("swath-write".into());
            match swath_io::fork::starting(|| thread.spawn(move || work(&shared))) {
                Ok(thread) => started.push(thread),
                Err(error) if started.is_empty() => {
                    return Err(Error::memory(format!("no thread can be started: {error}")));
                }
                // Those that are there do the work.
                Err(_) => break,
            }
        }
        Ok(Self { shared, threads: started })
    }

    /// Waits until another batch may be sent.
    ///
    /// # Errors
    /// When one before could not be written.
    pub(in crate::write) fn wait_for_room(&self) -> Result<(), Error> {
        let mut state = self.shared.lock();
        while state.in_flight >= IN_FLIGHT && !state.failed {
            state = self.shared.wait(state);
        }
        state.outcome()
    }

    /// Takes a batch.
    pub(in crate::write) fn send(&self, output: BatchOutput) {
        self.shared.lock().in_flight += 1;
        self.shared.push([OutboxJob::Receive(output)]);
    }

    /// Writes bytes at once.
    pub(in crate::write) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.shared.sink.0.write_at(offset, bytes)?)
    }

    /// Waits until everything is in the file.
    ///
    /// # Errors
    /// When something could not be written.
    pub(in crate::write) fn drain(&self) -> Result<(), Error> {
        let mut state = self.shared.lock();
        while (!state.jobs.is_empty() || state.active > 0) && !state.failed {
            state = self.shared.wait(state);
        }
        state.outcome()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let jobs = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.shared.changed.notify_all();
        // Outside of the lock: dropping a batch takes the lock.
        drop(jobs);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // One of them may have received a batch meanwhile and added its jobs.
        let jobs = std::mem::take(&mut self.shared.lock().jobs);
        drop(jobs);
    }
}

fn work(shared: &Arc<Shared>) {
    let mut buffers = ThreadBuffers::default();
    loop {
        let job = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                match state.jobs.pop_front() {
                    Some(job) => {
                        state.active += 1;
                        break job;
                    }
                    None => state = shared.wait(state),
                }
            }
        };
        // `drain` would wait for ever for a thread that is gone.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(shared, job, &mut buffers)))
            .unwrap_or_else(|_| Err(Error::internal("a thread that writes panicked")));
        let abandoned = {
            let mut state = shared.lock();
            state.active -= 1;
            match result {
                Ok(()) => VecDeque::new(),
                Err(error) => {
                    state.failed = true;
                    state.failure.get_or_insert(error);
                    std::mem::take(&mut state.jobs)
                }
            }
        };
        shared.changed.notify_all();
        drop(abandoned);
    }
}

/// The buffers that a thread keeps from tile to tile.
#[derive(Default)]
struct ThreadBuffers {
    scratch: Scratch,
    spare: Vec<Vec<u8>>,
}

fn run(shared: &Arc<Shared>, job: OutboxJob, buffers: &mut ThreadBuffers) -> Result<(), Error> {
    match job {
        OutboxJob::Receive(output) => receive(shared, output),
        OutboxJob::Write { batch, range, to } => {
            let bytes = batch.part(range)?;
            match to {
                Destination::File(offset) => shared.sink.0.write_at(offset, bytes)?,
                Destination::Level(level, offset) => shared.level_writers.at(level)?.buffer(offset, bytes)?,
            }
            Ok(())
        }
        OutboxJob::Tile { batch, tile } => put(shared, &batch, tile, buffers),
    }
}

/// Waits for the bytes of a batch, and adds a job for each range and each tile that threads write.
fn receive(shared: &Arc<Shared>, output: BatchOutput) -> Result<(), Error> {
    let bytes = match output.readback.map(Readback::wait).transpose() {
        Ok(bytes) => bytes,
        Err(error) => {
            shared.lock().in_flight -= 1;
            return Err(error.during("bringing compressed tiles to the host").into());
        }
    };
    let batch = Arc::new(ReceivedBatch { bytes, shared: shared.clone() });
    let mut jobs = Vec::new();
    for PackedWrite { range, to } in output.writes {
        let Destination::File(offset) = to else {
            jobs.push(OutboxJob::Write { batch: batch.clone(), range, to });
            continue;
        };
        // Cut at the positions where the file can be written fastest.
        let chunk = shared.sink.0.write_chunk().max(1) as u64;
        let (mut start, mut offset) = (range.start, offset);
        while start < range.end {
            let len = ((chunk - offset % chunk) as usize).min(range.end - start);
            jobs.push(OutboxJob::Write {
                batch: batch.clone(),
                range: start..start + len,
                to: Destination::File(offset),
            });
            start += len;
            offset += len as u64;
        }
    }
    jobs.extend(output.tiles.into_iter().map(|tile| OutboxJob::Tile { batch: batch.clone(), tile }));
    shared.push(jobs);
    Ok(())
}

/// Gives a tile to the writer of its level.
fn put(shared: &Shared, batch: &ReceivedBatch, tile: Tile, buffers: &mut ThreadBuffers) -> Result<(), Error> {
    let level = shared.plan.levels.at(tile.level)?;
    let bytes = match tile.content {
        Content::Whole(bytes) => bytes,
        Content::Packed(range) => batch.part(range)?.to_vec(),
        Content::Raw { range, rows, mask } => {
            let host = level.host_of(mask)?;
            let raw = batch.part(range)?;
            let mut bytes = buffers.spare.pop().unwrap_or_default();
            shared.plan.framed(&mut bytes, |bytes| Ok(host.compress(rows, raw, bytes, &mut buffers.scratch)?))?;
            bytes
        }
    };
    shared.level_writers.at(tile.level)?.put(
        tile.number,
        Encoded { bytes, moments: tile.moments },
        &*shared.sink.0,
        &mut buffers.spare,
    )
}
