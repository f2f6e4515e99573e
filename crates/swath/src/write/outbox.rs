//! What comes from a GPU on its way to the file: threads wait for bytes to land and write them, while the device goes on.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::AssertUnwindSafe,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use swath_codec::{Scratch, pre::moments::Moments};
use swath_cuda::{Landed, Landing};

use super::{
    SharedSink,
    lane::{Encoded, Lane},
    plan::Plan,
};
use crate::error::Error;

/// Batches whose bytes can be in host memory: one that lands and one that is written.
pub(super) const IN_FLIGHT: usize = 2;

/// Bytes of a batch that go to one place.
#[derive(Debug)]
pub(super) struct Move {
    pub range: Range<usize>,
    pub to: To,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// An offset of the file.
    File(u64),
    /// An offset of a level that is held.
    Level(usize, u64),
}

/// A tile that goes to its level in turn.
#[derive(Debug)]
pub(super) struct Tile {
    pub level: usize,
    pub number: u64,
    pub what: What,
    pub moments: Vec<(u16, Moments)>,
}

/// What a tile is, before it is written.
#[derive(Debug)]
pub(super) enum What {
    /// As it shall be in the file, frame included; nothing for one that is left out.
    Whole(Vec<u8>),
    /// Bytes of the batch that are as they shall be.
    Landed(Range<usize>),
    /// Bytes of the batch that the codec of the image or of its mask still has to compress: rows of the tile.
    Raw { range: Range<usize>, rows: u32, mask: bool },
}

/// Everything about one batch.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    pub landing: Option<Landing>,
    pub moves: Vec<Move>,
    pub tiles: Vec<Tile>,
}

#[derive(Debug)]
enum Job {
    Land(Parcel),
    Write { batch: Arc<Carried>, range: Range<usize>, to: To },
    Tile { batch: Arc<Carried>, tile: Tile },
}

/// A batch, with its bytes in pinned memory where it has any; once nobody needs it the next may come.
#[derive(Debug)]
struct Carried {
    landed: Option<Landed>,
    shared: Arc<Shared>,
}

impl Carried {
    fn bytes(&self) -> &[u8] {
        self.landed.as_ref().map_or(&[], Landed::bytes)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.shared.lock().in_flight -= 1;
        self.shared.changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Jobs that a thread works on.
    active: usize,
    in_flight: usize,
    failure: Option<Error>,
    /// Whether anything has failed, told or not.
    failed: bool,
    closed: bool,
}

impl State {
    /// What became of everything so far.
    fn outcome(&mut self) -> Result<(), Error> {
        match (self.failure.take(), self.failed) {
            (Some(failure), _) => Err(failure),
            (None, true) => Err(Error::usage("tiles that came before could not be written")),
            (None, false) => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    sink: Arc<SharedSink>,
    lanes: Arc<Vec<Lane>>,
    plan: Arc<Plan>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.lock().jobs.extend(jobs);
        self.changed.notify_all();
    }
}

/// Threads that bring batches to the file.
#[derive(Debug)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Outbox {
    pub(super) fn new(
        sink: Arc<SharedSink>,
        lanes: Arc<Vec<Lane>>,
        plan: Arc<Plan>,
        threads: usize,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), sink, lanes, plan });
        let mut started = Vec::new();
        for _ in 0..threads.max(1) {
            let shared = shared.clone();
            match std::thread::Builder::new().name("swath-write".into()).spawn(move || work(&shared)) {
                Ok(thread) => started.push(thread),
                Err(error) if started.is_empty() => {
                    return Err(Error::usage(format!("no thread can be started: {error}")));
                }
                // Those that are there do the work.
                Err(_) => break,
            }
        }
        Ok(Self { shared, threads: started })
    }

    /// Waits until another batch may be on its way.
    ///
    /// # Errors
    /// When one before could not be written.
    pub(super) fn wait_for_room(&self) -> Result<(), Error> {
        let mut state = self.shared.lock();
        while state.in_flight >= IN_FLIGHT && !state.failed {
            state = self.shared.wait(state);
        }
        state.outcome()
    }

    /// Takes a batch.
    pub(super) fn send(&self, parcel: Parcel) {
        self.shared.lock().in_flight += 1;
        self.shared.push([Job::Land(parcel)]);
    }

    /// Writes bytes at once.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.shared.sink.0.write_at(offset, bytes)?)
    }

    /// Waits until everything is in the file.
    ///
    /// # Errors
    /// When something could not be written.
    pub(super) fn drain(&self) -> Result<(), Error> {
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
        // Outside of the lock: bytes that nobody needs any more take it.
        drop(jobs);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // One of them may have dealt out a batch meanwhile.
        let jobs = std::mem::take(&mut self.shared.lock().jobs);
        drop(jobs);
    }
}

fn work(shared: &Arc<Shared>) {
    let mut tools = Tools::default();
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
        // A thread that is gone would be waited for for ever.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(shared, job, &mut tools)))
            .unwrap_or_else(|_| Err(Error::usage("a thread that writes has failed; this is a fault in swath")));
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

/// What a thread keeps from tile to tile.
#[derive(Default)]
struct Tools {
    scratch: Scratch,
    spare: Vec<Vec<u8>>,
}

fn run(shared: &Arc<Shared>, job: Job, tools: &mut Tools) -> Result<(), Error> {
    match job {
        Job::Land(parcel) => land(shared, parcel),
        Job::Write { batch, range, to } => {
            let bytes = batch.bytes().get(range).unwrap_or_default();
            match to {
                To::File(offset) => shared.sink.0.write_at(offset, bytes)?,
                To::Level(level, offset) => {
                    if let Some(lane) = shared.lanes.get(level) {
                        lane.keep(offset, bytes);
                    }
                }
            }
            Ok(())
        }
        Job::Tile { batch, tile } => put(shared, batch.bytes(), tile, tools),
    }
}

/// Waits for the bytes of a batch, and deals out what is to be done with them.
fn land(shared: &Arc<Shared>, parcel: Parcel) -> Result<(), Error> {
    let landed = match parcel.landing.map(Landing::wait).transpose() {
        Ok(landed) => landed,
        Err(error) => {
            shared.lock().in_flight -= 1;
            return Err(error.during("bringing compressed tiles to the host").into());
        }
    };
    let batch = Arc::new(Carried { landed, shared: shared.clone() });
    let mut jobs = Vec::new();
    for Move { range, to } in parcel.moves {
        let To::File(offset) = to else {
            jobs.push(Job::Write { batch: batch.clone(), range, to });
            continue;
        };
        // Cut where the file likes it best.
        let chunk = shared.sink.0.write_chunk().max(1) as u64;
        let (mut start, mut offset) = (range.start, offset);
        while start < range.end {
            let len = ((chunk - offset % chunk) as usize).min(range.end - start);
            jobs.push(Job::Write { batch: batch.clone(), range: start..start + len, to: To::File(offset) });
            start += len;
            offset += len as u64;
        }
    }
    jobs.extend(parcel.tiles.into_iter().map(|tile| Job::Tile { batch: batch.clone(), tile }));
    shared.push(jobs);
    Ok(())
}

fn put(shared: &Shared, landed: &[u8], tile: Tile, tools: &mut Tools) -> Result<(), Error> {
    let (Some(lane), Some(level)) = (shared.lanes.get(tile.level), shared.plan.levels.get(tile.level)) else {
        return Ok(());
    };
    let bytes = match tile.what {
        What::Whole(bytes) => bytes,
        What::Landed(range) => landed.get(range).unwrap_or_default().to_vec(),
        What::Raw { range, rows, mask } => {
            let host = match (&level.mask, mask) {
                (Some((_, host)), true) => host,
                _ => &level.host,
            };
            let raw = landed.get(range).unwrap_or_default();
            let mut bytes = tools.spare.pop().unwrap_or_default();
            shared.plan.framed(&mut bytes, |bytes| Ok(host.compress(rows, raw, bytes, &mut tools.scratch)?))?;
            bytes
        }
    };
    lane.put(tile.number, Encoded { bytes, moments: tile.moments }, &*shared.sink.0, &mut tools.spare)
}
