//! Sends a body and tracks its progress, to distinguish a slow connection from a stalled one.

use std::{
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

/// Bytes that are given to a connection at a time.
const FRAME_LEN: usize = 64 << 10;
/// Bytes that systems buffer: accepted, but perhaps not yet sent.
const BUFFERED: u64 = 4 << 20;
/// Bytes per second at which the buffer empties on a slow connection, and on one that accepted a whole body at once.
const SLOWEST: u64 = 64 << 10;
const USUAL: u64 = 256 << 10;
/// Longest time in which a slow connection accepts no bytes: a system accepts bytes again when a third of its buffer is empty. If
/// nothing leaves that buffer, the system itself ends the connection; only it can know.
const GRAIN: Duration = Duration::from_secs(BUFFERED / 3 / SLOWEST);

/// Progress of the body of a request, over all attempts.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// When this attempt began.
    begun: Instant,
    /// When the connection last accepted bytes.
    moved: Instant,
    /// When it last accepted bytes that no earlier attempt had sent.
    gained: Instant,
    furthest: u64,
    /// Extra time, beyond the stall timeout and beyond the deadline, in which buffered bytes may still be sent.
    leaving: (Duration, Duration),
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let leaving = (Duration::ZERO, Duration::ZERO);
        Self(Arc::new(Mutex::new(State { begun: now, moved: now, gained: now, furthest: 0, leaving })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an attempt.
    pub(crate) fn begin(&self) {
        let now = Instant::now();
        let mut state = self.state();
        (state.begun, state.moved, state.leaving) = (now, now, (Duration::ZERO, Duration::ZERO));
    }

    /// Resets the progress, after a response or a broken connection: the next attempt makes progress from its first byte on.
    pub(crate) fn forget(&self) {
        self.state().furthest = 0;
    }

    fn took(&self, sent: u64, whole: bool) {
        let now = Instant::now();
        let mut state = self.state();
        state.moved = now;
        if sent > state.furthest {
            (state.furthest, state.gained) = (sent, now);
        }
        state.leaving = if whole {
            let buffered = sent.min(BUFFERED);
            let slowest = Duration::from_secs(buffered.div_ceil(SLOWEST));
            // A connection that was slow so far stays slow.
            let slow = slowest.min(now.saturating_duration_since(state.begun).saturating_mul(4));
            (slowest, slow.max(Duration::from_secs(buffered.div_ceil(USUAL))))
        } else {
            (GRAIN, GRAIN)
        };
    }

    /// When this attempt counts as stalled, unless it makes progress.
    pub(crate) fn stalls_at(&self, stall: Duration) -> Instant {
        let state = *self.state();
        later(state.moved, stall.saturating_add(state.leaving.0))
    }

    /// When the deadline passes, unless the body makes progress.
    pub(crate) fn ends_at(&self, deadline: Duration) -> Instant {
        let state = *self.state();
        later(state.gained, deadline.saturating_add(state.leaving.1))
    }

    /// Whether there was no progress for the duration of the deadline.
    pub(crate) fn is_over(&self, deadline: Duration) -> bool {
        later(self.state().gained, deadline) <= Instant::now()
    }
}

/// `start + wait`. A duration that overflows the clock means no limit, for which a century will do.
fn later(start: Instant, wait: Duration) -> Instant {
    start.checked_add(wait).unwrap_or_else(|| start + Duration::from_secs(3_000_000_000))
}

/// A body that is sent in frames.
#[derive(Debug)]
pub(crate) struct Outgoing {
    rest: Bytes,
    sent: u64,
    progress: Progress,
}

impl Outgoing {
    pub(crate) fn new(body: &Bytes, progress: &Progress) -> Self {
        Self { rest: body.clone(), sent: 0, progress: progress.clone() }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len().min(FRAME_LEN);
        let frame = self.rest.split_to(len);
        self.sent += len as u64;
        self.progress.took(self.sent, self.rest.is_empty());
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Runs `work` until the time that `until` returns, which may advance meanwhile; `None` on timeout.
pub(crate) async fn within<T>(until: impl Fn() -> Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let end = until();
        match timeout_at(end, work.as_mut()).await {
            Ok(done) => return Some(done),
            Err(_) if until() > end => {}
            Err(_) => return None,
        }
    }
}
