//! An upload in the making: parts go out in the background, a few at a time, and are dropped if it comes to nothing.

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
    super::Stop,
    parts::{Cut, Limits, Parts, Rest},
};
use crate::{
    fork::PerProcess,
    remote::{RemoteFault, Traffic, client::Failure, runtime},
};

/// Parts that may be on their way at once.
const ON_THE_WAY: usize = 4;
/// Longest time that is spent on dropping the parts of an upload that came to nothing, before whoever waits goes on.
const CLEANING: Duration = Duration::from_secs(5);
/// Time after which an upload whose parts were still under way is dropped once more.
const AGAIN: Duration = Duration::from_millis(200);
/// How often those who wait look whether they still should.
const LOOK: Duration = Duration::from_millis(50);

/// What a store does for an upload. Nothing can be seen under the object's name before [`Upload::complete`].
pub(super) trait Upload: Send + Sync + 'static {
    /// What the store asks of parts.
    fn limits(&self) -> Limits;

    /// Begins an upload; returns its name.
    fn begin(&self) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Sends a part; returns what the store knows it by.
    fn put_part(&self, upload: &str, number: u32, bytes: Bytes)
    -> impl Future<Output = Result<String, Failure>> + Send;

    /// Makes the object of `size` bytes out of parts, whose numbers rise.
    fn complete(
        &self,
        upload: &str,
        parts: &[(u32, String)],
        size: u64,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Makes the object in one go.
    fn put_whole(&self, bytes: Bytes) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Drops an upload and its parts.
    fn abort(&self, upload: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// What was asked of the network so far.
    fn traffic(&self) -> Traffic;
}

/// An upload, its parts, and what became of them.
pub(super) struct Uploading<U> {
    store: U,
    runtime: Handle,
    /// The process that began it: one that was forked from it has a copy of everything, and must not touch the upload.
    process: u32,
    /// The upload's name in the store; made with the first part.
    begun: OnceCell<Result<String, Failure>>,
    state: Mutex<State>,
    changed: Condvar,
    /// As `changed`, for whoever drops the parts.
    ended: Notify,
    /// Whether the caller wants no more.
    stop: OnceLock<Stop>,
}

struct State {
    parts: Parts,
    on_the_way: usize,
    /// What the store knows the parts by that it has.
    stored: Vec<(u32, String)>,
    /// The first thing that went wrong.
    failure: Option<Failure>,
    tasks: Vec<JoinHandle<()>>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// What was sent is being dropped.
    Cleaning,
    /// The object is there, or nothing of it is left.
    Over,
}

/// Uploads of this process that are neither complete nor dropped.
static LIVE: PerProcess<Mutex<Vec<Weak<dyn Abandon>>>> = PerProcess::new();

/// An upload to any store that can be given up.
trait Abandon: Send + Sync {
    /// Begins to drop what was sent.
    fn give_up(self: Arc<Self>);
    /// Waits until nothing of it is left, or until `limit`.
    fn wait_gone(&self, limit: Instant);
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops every upload of this process that is not complete, for one that ends in the middle of it and drops nothing.
pub(super) fn abandon_all() {
    let uploads: Vec<_> = lock(LIVE.get()).drain(..).filter_map(|upload| upload.upgrade()).collect();
    for upload in &uploads {
        Arc::clone(upload).give_up();
    }
    let limit = Instant::now() + CLEANING;
    for upload in uploads {
        upload.wait_gone(limit);
    }
}

/// A place among the parts on their way; given back however the sending ends.
struct Place<U: Upload> {
    uploading: Arc<Uploading<U>>,
    outcome: Result<(u32, String), Failure>,
}

impl<U: Upload> Place<U> {
    fn new(uploading: &Arc<Uploading<U>>) -> Self {
        let outcome = Err(Failure::new(RemoteFault::Cancelled, "the upload of a part ended before its time"));
        Self { uploading: Arc::clone(uploading), outcome }
    }

    fn end(mut self, outcome: Result<(u32, String), Failure>) {
        self.outcome = outcome;
    }
}

impl<U: Upload> Drop for Place<U> {
    fn drop(&mut self) {
        let failed = {
            let mut state = self.uploading.lock();
            state.on_the_way -= 1;
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
            on_the_way: 0,
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

    /// Bytes in memory that are not on their way.
    pub(super) fn held(&self) -> u64 {
        self.lock().parts.held()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// The state, if nothing went wrong so far and this is the process that may go on.
    fn sound(&self) -> Result<MutexGuard<'_, State>, Failure> {
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
        // A sink has one writer, who says so once.
        let _ = self.stop.set(stop);
    }

    fn is_stopped(&self) -> bool {
        self.stop.get().is_some_and(|stop| stop())
    }

    /// Waits for something to change, or long enough to look whether the caller still wants it.
    fn wait(&self, state: MutexGuard<'_, State>) {
        drop(self.changed.wait_timeout(state, LOOK));
    }

    /// Does something to the parts; what goes wrong there is the end of the upload.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Parts) -> Result<T, String>) -> Result<T, Failure> {
        let mut state = self.sound()?;
        let result = change(&mut state.parts).map_err(setup);
        state.failure = result.as_ref().err().cloned();
        result
    }

    /// Sends the parts that are ready; waits where too many are on their way.
    pub(super) fn send_ready(self: &Arc<Self>) -> Result<(), Failure> {
        while self.send(Parts::ready)? {}
        Ok(())
    }

    /// Sends the part that `choose` chooses once another one may go on its way. Whether there was one.
    fn send(self: &Arc<Self>, choose: impl Fn(&mut Parts) -> Result<Option<Cut>, String>) -> Result<bool, Failure> {
        let (part, place) = loop {
            let mut state = self.sound()?;
            match choose(&mut state.parts) {
                Ok(None) => return Ok(false),
                Ok(Some(cut)) if state.on_the_way < ON_THE_WAY => {
                    state.on_the_way += 1;
                    break (state.parts.take(&cut), Place::new(self));
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
            let uploading = &place.uploading;
            let sent = match uploading.upload().await {
                Ok(upload) => match uploading.failure() {
                    None => uploading.store.put_part(upload, number, bytes).await,
                    Some(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            place.end(sent.map(|tag| (number, tag)));
        });
        let mut state = self.lock();
        state.tasks.retain(|task| !task.is_finished());
        match state.stage {
            Stage::Open => state.tasks.push(task),
            // One that may be beginning the upload goes on: else nobody knows the name of what is to be dropped.
            Stage::Cleaning | Stage::Over if self.begun.initialized() => task.abort(),
            Stage::Cleaning | Stage::Over => {}
        }
        Ok(true)
    }

    /// The upload's name; begins it if nobody did.
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

    /// Makes the object of `size` bytes.
    pub(super) fn commit(self: &Arc<Self>, size: u64) -> Result<(), Failure> {
        match self.change(|parts| parts.rest(size))? {
            Rest::Whole(cut) => {
                let bytes = Bytes::from(self.sound()?.parts.take(&cut).into_bytes());
                let uploading = Arc::clone(self);
                let put = std::iter::once(async move { uploading.store.put_whole(bytes).await });
                runtime::each(put, Some(&|| self.is_stopped()), |_, sent| sent)?;
            }
            Rest::Parts(cuts) => {
                for cut in cuts {
                    self.send(|_| Ok(Some(cut.clone())))?;
                }
                let parts = self.all_stored()?;
                let uploading = Arc::clone(self);
                let complete = std::iter::once(async move {
                    let upload = uploading.upload().await?;
                    uploading.store.complete(upload, &parts, size).await
                });
                // Stopped in the middle of it, the object may be there all the same, and whole.
                runtime::each(complete, Some(&|| self.is_stopped()), |_, completed| completed)?;
            }
        }
        self.lock().stage = Stage::Over;
        Ok(())
    }

    /// Waits until the store has every part; what it knows them by, in the order of their numbers.
    fn all_stored(&self) -> Result<Vec<(u32, String)>, Failure> {
        let mut state = self.sound()?;
        while state.on_the_way > 0 {
            self.wait(state);
            state = self.sound()?;
        }
        let mut stored = std::mem::take(&mut state.stored);
        stored.sort_unstable();
        Ok(stored)
    }

    /// Drops what was sent.
    async fn clean(&self, tasks: Vec<JoinHandle<()>>) {
        // Whoever begins the upload just now has to be let: else nobody knows the name of what is to be dropped.
        let begun = self.upload().await;
        let stopped = tasks.iter().filter(|task| !task.is_finished()).count();
        for task in &tasks {
            task.abort();
        }
        while self.lock().on_the_way > 0 {
            self.ended.notified().await;
        }
        if let Ok(upload) = begun {
            let dropped = self.store.abort(upload).await;
            // A part that was under way may have arrived behind the first request.
            if dropped.is_ok() && stopped > 0 {
                tokio::time::sleep(AGAIN).await;
                let _ = self.store.abort(upload).await;
            }
        }
        self.lock().stage = Stage::Over;
        self.changed.notify_all();
    }

    /// Gives the upload up and waits a while until nothing of it is left.
    pub(super) fn close(self: &Arc<Self>) {
        Arc::clone(self).give_up();
        // A store that has not even begun the upload may never answer.
        let patience = if self.begun.initialized() { CLEANING } else { CLEANING / 10 };
        self.wait_gone(Instant::now() + patience);
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
            let given_up = || Failure::new(RemoteFault::Cancelled, "the upload was given up");
            state.failure.get_or_insert_with(given_up);
            std::mem::take(&mut state.tasks)
        };
        self.changed.notify_all();
        let runtime = self.runtime.clone();
        runtime.spawn(async move { self.clean(tasks).await });
    }

    fn wait_gone(&self, limit: Instant) {
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
