//! An upload in progress: sends parts in the background, a few at a time, and aborts the upload if it is not completed.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Notify, OnceCell},
    task::JoinHandle,
};

use super::{
    super::{failure::Failure, runtime},
    parts::{Completion, Limits, PartRanges, Parts},
};
use crate::{fault::RemoteFault, fork::PerProcess, sink::Stop, traffic::Traffic};

/// Most parts in flight.
const MAX_IN_FLIGHT: usize = 4;
/// Longest time that a caller waits for an abandoned upload to be aborted.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which an upload that had parts in flight is aborted once more.
const ABORT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The upload operations of a store. Nothing appears under the object's name before [`Upload::complete`].
pub(super) trait Upload: Send + Sync + 'static {
    /// The limits of the store on parts.
    fn limits(&self) -> Limits;

    /// Begins an upload and returns its ID.
    fn begin(&self) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Sends a part and returns the store's tag for it.
    fn put_part(&self, upload: &str, number: u32, bytes: Bytes)
    -> impl Future<Output = Result<String, Failure>> + Send;

    /// Assembles the object of `size` bytes from parts in the order of their numbers.
    fn complete(
        &self,
        upload: &str,
        parts: &[(u32, String)],
        size: u64,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Creates the object in one request.
    fn put_whole(&self, bytes: Bytes) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Aborts an upload and deletes its parts.
    fn abort(&self, upload: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The network traffic so far.
    fn traffic(&self) -> Traffic;
}

/// An upload, its parts, and their state.
pub(super) struct Uploading<U> {
    store: U,
    runtime: Handle,
    /// The process that began it: a forked child has a copy of this value and must not touch the upload.
    process: u32,
    /// The upload's ID in the store; requested with the first part.
    begun: OnceCell<Result<String, Failure>>,
    state: Mutex<State>,
    changed: Condvar,
    /// As `changed`, for the task that aborts the upload.
    ended: Notify,
    /// Whether the caller has cancelled.
    stop: OnceLock<Stop>,
}

struct State {
    parts: Parts,
    in_flight: usize,
    /// Numbers and tags of the stored parts.
    stored: Vec<(u32, String)>,
    /// The first failure.
    failure: Option<Failure>,
    tasks: Vec<JoinHandle<()>>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The upload is being aborted.
    Cleaning,
    /// The object is complete, or the upload is aborted.
    Over,
}

/// Uploads of this process that are neither complete nor aborted.
static LIVE: PerProcess<Mutex<Vec<Weak<dyn Abandon>>>> = PerProcess::new();

/// An upload to any store that can be abandoned.
trait Abandon: Send + Sync {
    /// Starts to abort the upload.
    fn give_up(self: Arc<Self>);
    /// Waits until the upload is aborted, or until `limit`.
    fn wait_cleaned(&self, limit: Instant);
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts every incomplete upload of this process. For a process that exits without dropping its sinks.
pub(super) fn abandon_all() {
    let uploads: Vec<_> = lock(LIVE.get()).drain(..).filter_map(|upload| upload.upgrade()).collect();
    for upload in &uploads {
        Arc::clone(upload).give_up();
    }
    let limit = Instant::now() + CLEANUP_TIMEOUT;
    for upload in uploads {
        upload.wait_cleaned(limit);
    }
}

/// A part that is being sent. Dropping it records the outcome, however the sending ends.
struct PartInFlight<U: Upload> {
    uploading: Arc<Uploading<U>>,
    outcome: Result<(u32, String), Failure>,
}

impl<U: Upload> PartInFlight<U> {
    fn new(uploading: &Arc<Uploading<U>>) -> Self {
        let outcome = Err(Failure::new(RemoteFault::Cancelled, "the upload of a part ended early"));
        Self { uploading: Arc::clone(uploading), outcome }
    }

    fn end(mut self, outcome: Result<(u32, String), Failure>) {
        self.outcome = outcome;
    }
}

impl<U: Upload> Drop for PartInFlight<U> {
    fn drop(&mut self) {
        let failed = {
            let mut state = self.uploading.lock();
            state.in_flight -= 1;
            match &mut self.outcome {
                Ok((number, tag)) => state.stored.push((*number, std::mem::take(tag))),
                Err(failure) => state.failure = state.failure.take().or_else(|| Some(failure.clone())),
            }
            state.failure.is_some()
        };
        self.uploading.changed.notify_all();
        self.uploading.ended.notify_one();
        if failed {
            Arc::clone(&self.uploading).give_up();
        }
    }
}

impl<U: Upload> Uploading<U> {
    pub(super) fn new(store: U) -> Result<Arc<Self>, Failure> {
        let runtime = runtime::handle()?;
        let state = State {
            parts: Parts::new(store.limits()),
            in_flight: 0,
            stored: Vec::new(),
            failure: None,
            tasks: Vec::new(),
            stage: Stage::Open,
        };
        let uploading = Arc::new(Self {
            store,
            runtime,
            process: std::process::id(),
            begun: OnceCell::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            ended: Notify::new(),
            stop: OnceLock::new(),
        });
        let weak: Weak<Self> = Arc::downgrade(&uploading);
        let mut live = lock(LIVE.get());
        live.retain(|upload| upload.strong_count() > 0);
        live.push(weak);
        drop(live);
        Ok(uploading)
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.store.traffic()
    }

    /// Bytes in memory that are not in flight.
    pub(super) fn unsent_len(&self) -> u64 {
        self.lock().parts.unsent_len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// The state, if there is no failure so far and this process owns the upload.
    fn checked_state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        if self.process != std::process::id() {
            return Err(setup("the upload belongs to the process that began it; write the object there"));
        }
        let mut state = self.lock();
        if state.failure.is_none() && self.is_stopped() {
            state.failure = Some(Failure::new(RemoteFault::Cancelled, "the upload was stopped"));
        }
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state),
        }
    }

    pub(super) fn stop_when(&self, stop: Stop) {
        // A sink has one writer, which sets this once.
        let _ = self.stop.set(stop);
    }

    fn is_stopped(&self) -> bool {
        self.stop.get().is_some_and(|stop| stop())
    }

    /// Waits for a change, or until it is time to check for cancellation.
    fn wait(&self, state: MutexGuard<'_, State>) {
        drop(self.changed.wait_timeout(state, runtime::POLL));
    }

    /// Changes the parts. An error fails the upload.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Parts) -> Result<T, String>) -> Result<T, Failure> {
        let mut state = self.checked_state()?;
        let result = change(&mut state.parts).map_err(setup);
        state.failure = result.as_ref().err().cloned();
        result
    }

    /// Sends the parts that are ready; waits while too many are in flight.
    pub(super) fn send_ready(self: &Arc<Self>) -> Result<(), Failure> {
        while self.send(Parts::ready)? {}
        Ok(())
    }

    /// Sends the part that `choose` returns, once no more than the limit are in flight. Returns whether there was one.
    fn send(
        self: &Arc<Self>,
        choose: impl Fn(&mut Parts) -> Result<Option<PartRanges>, String>,
    ) -> Result<bool, Failure> {
        let (part, in_flight) = loop {
            let mut state = self.checked_state()?;
            match choose(&mut state.parts) {
                Ok(None) => return Ok(false),
                Ok(Some(cut)) if state.in_flight < MAX_IN_FLIGHT => {
                    state.in_flight += 1;
                    break (state.parts.take(&cut), PartInFlight::new(self));
                }
                Ok(Some(_)) => self.wait(state),
                Err(detail) => {
                    let failure = setup(detail);
                    state.failure = Some(failure.clone());
                    return Err(failure);
                }
            }
        };
        let number = part.number;
        let bytes = Bytes::from(part.into_bytes());
        let task = self.runtime.spawn(async move {
            let uploading = &in_flight.uploading;
            let sent = match uploading.upload().await {
                Ok(upload) => match uploading.failure() {
                    None => uploading.store.put_part(upload, number, bytes).await,
                    Some(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            in_flight.end(sent.map(|tag| (number, tag)));
        });
        let mut state = self.lock();
        state.tasks.retain(|task| !task.is_finished());
        match state.stage {
            Stage::Open => state.tasks.push(task),
            // The task may be beginning the upload. It must finish, or the ID to abort would stay unknown.
            Stage::Cleaning | Stage::Over if self.begun.initialized() => task.abort(),
            Stage::Cleaning | Stage::Over => {}
        }
        Ok(true)
    }

    /// The upload's ID; begins the upload if necessary.
    async fn upload(&self) -> Result<&str, Failure> {
        let begin = || async {
            match self.failure() {
                Some(failure) => Err(failure),
                None => self.store.begin().await,
            }
        };
        match self.begun.get_or_init(begin).await {
            Ok(upload) => Ok(upload),
            Err(failure) => Err(failure.clone()),
        }
    }

    /// Completes the object of `size` bytes.
    pub(super) fn commit(self: &Arc<Self>, size: u64) -> Result<(), Failure> {
        match self.change(|parts| parts.completion(size))? {
            Completion::Whole(cut) => {
                let bytes = Bytes::from(self.checked_state()?.parts.take(&cut).into_bytes());
                let uploading = Arc::clone(self);
                let put = std::iter::once(async move { uploading.store.put_whole(bytes).await });
                runtime::each(put, Some(&|| self.is_stopped()), |_, sent| sent)?;
            }
            Completion::Parts(cuts) => {
                for cut in cuts {
                    self.send(|_| Ok(Some(cut.clone())))?;
                }
                let parts = self.all_stored()?;
                let uploading = Arc::clone(self);
                let complete = std::iter::once(async move {
                    let upload = uploading.upload().await?;
                    uploading.store.complete(upload, &parts, size).await
                });
                // If this is cancelled, the object may still be completed.
                runtime::each(complete, Some(&|| self.is_stopped()), |_, completed| completed)?;
            }
        }
        self.lock().stage = Stage::Over;
        Ok(())
    }

    /// Waits until every part is stored; returns their numbers and tags, in order.
    fn all_stored(&self) -> Result<Vec<(u32, String)>, Failure> {
        let mut state = self.checked_state()?;
        while state.in_flight > 0 {
            self.wait(state);
            state = self.checked_state()?;
        }
        let mut stored = std::mem::take(&mut state.stored);
        stored.sort_unstable();
        Ok(stored)
    }

    /// Aborts the upload.
    async fn clean(&self, tasks: Vec<JoinHandle<()>>) {
        // A task that is just beginning the upload must finish, or the ID to abort would stay unknown.
        let begun = self.upload().await;
        let stopped = tasks.iter().filter(|task| !task.is_finished()).count();
        for task in &tasks {
            task.abort();
        }
        while self.lock().in_flight > 0 {
            self.ended.notified().await;
        }
        if let Ok(upload) = begun {
            let dropped = self.store.abort(upload).await;
            // A part in flight may have arrived after the first abort.
            if dropped.is_ok() && stopped > 0 {
                tokio::time::sleep(ABORT_AGAIN_AFTER).await;
                let _ = self.store.abort(upload).await;
            }
        }
        self.lock().stage = Stage::Over;
        self.changed.notify_all();
    }

    /// Abandons the upload and waits for a limited time until it is aborted.
    pub(super) fn close(self: &Arc<Self>) {
        Arc::clone(self).give_up();
        // A store that has not even begun the upload may never respond.
        let budget = if self.begun.initialized() { CLEANUP_TIMEOUT } else { CLEANUP_TIMEOUT / 10 };
        self.wait_cleaned(Instant::now() + budget);
    }
}

impl<U: Upload> Abandon for Uploading<U> {
    fn give_up(self: Arc<Self>) {
        if self.process != std::process::id() {
            return;
        }
        let tasks = {
            let mut state = self.lock();
            if state.stage != Stage::Open {
                return;
            }
            state.stage = Stage::Cleaning;
            let given_up = || Failure::new(RemoteFault::Cancelled, "the upload was aborted");
            state.failure.get_or_insert_with(given_up);
            std::mem::take(&mut state.tasks)
        };
        self.changed.notify_all();
        let runtime = self.runtime.clone();
        runtime.spawn(async move { self.clean(tasks).await });
    }

    fn wait_cleaned(&self, limit: Instant) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.lock();
        while state.stage != Stage::Over {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn setup(detail: impl Into<String>) -> Failure {
    Failure::new(RemoteFault::Setup, detail)
}
