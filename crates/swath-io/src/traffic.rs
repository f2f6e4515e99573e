//! Counts the requests and bytes of a source or sink.

#[cfg(feature = "remote")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and bytes so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests sent, including retries and redirects.
    pub requests: u64,
    /// Requests that were sent again after a failure.
    pub retries: u64,
    /// Bytes of received bodies.
    pub received: u64,
    /// Bytes of sent bodies.
    pub sent: u64,
}

/// The counters behind [`Traffic`].
#[cfg(feature = "remote")]
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

#[cfg(feature = "remote")]
impl Meter {
    pub(crate) fn read(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            requests: of(&self.requests),
            retries: of(&self.retries),
            received: of(&self.received),
            sent: of(&self.sent),
        }
    }
}
