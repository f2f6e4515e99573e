//! Ends work from another thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, ErrorKind};

/// A token that ends a read or a write from another thread.
///
/// ```
/// use swath::{Cancel, ReadOptions};
///
/// let cancel = Cancel::new();
/// let options = ReadOptions::default().with_cancel(cancel.clone());
/// // Another thread may call this at any time; the read then fails with ErrorKind::Cancelled.
/// cancel.cancel();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every read and write that has this token, before its next job.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the error of a cancelled operation, if `cancel` was cancelled.
pub(crate) fn cancelled(cancel: Option<&Cancel>) -> Option<Error> {
    cancel.is_some_and(Cancel::is_cancelled).then(|| Error::new(ErrorKind::Cancelled))
}
