//! A file that cuFile reads, and how well that goes.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use swath_cuda::{FileRead, decode::Uploader, gpu::DirectFile};

/// How a report names the usual path of bytes to the device.
pub(super) const PINNED: &str = "pinned copies";
/// After this many failures without a success the engine stops using cuFile for the read.
const MAX_FAILURES: u64 = 8;

/// A file that cuFile reads.
pub(super) struct Direct {
    pub(super) file: DirectFile,
    log: Mutex<ReadLog>,
}

/// The results of its reads.
#[derive(Default)]
pub(super) struct ReadLog {
    succeeded: u64,
    failed: u64,
    /// Why the first of them failed.
    reason: Option<String>,
    /// Why cuFile's best calls were not used.
    pub(super) refused: Option<String>,
}

impl Direct {
    pub(super) fn new(file: DirectFile) -> Self {
        Self { file, log: Mutex::default() }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, ReadLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_successes(&self, reads: u64) {
        self.log().succeeded += reads;
    }

    pub(super) fn add_failure(&self, reason: String) {
        let mut log = self.log();
        log.failed += 1;
        log.reason.get_or_insert(reason);
    }

    /// Whether to stop using cuFile: all reads so far failed, and there were enough of them.
    pub(super) fn is_hopeless(&self) -> bool {
        let log = self.log();
        log.succeeded == 0 && log.failed >= MAX_FAILURES
    }

    /// How the file's bytes got to the device.
    pub(super) fn storage(&self) -> &'static str {
        let log = self.log();
        if log.succeeded == 0 && log.failed > 0 { PINNED } else { self.file.storage() }
    }

    /// One notice for the whole read, where cuFile did not do all of it in the best way.
    pub(super) fn notice(&self) -> Option<String> {
        let log = self.log();
        let failure = log.reason.as_ref().map(|reason| {
            let which = if log.succeeded > 0 { "some tiles" } else { "the tiles" };
            format!("the engine read {which} through pinned memory instead of cuFile: {reason}")
        });
        let refused = log.refused.as_ref().map(|refused| format!("cuFile: {refused}"));
        match (failure, refused) {
            (Some(failure), Some(refused)) => Some(format!("{failure}; {refused}")),
            (failure, refused) => failure.or(refused),
        }
    }

    /// Reads one tile, or a part of a large one, and waits for it; returns whether it is complete.
    pub(super) fn read(&self, uploader: Uploader<'_>, half: usize, range: &Range<u64>, at: usize) -> bool {
        if self.is_hopeless() {
            return false;
        }
        match uploader.read(half, &self.file, &FileRead { range: range.clone(), at }) {
            Ok(()) => self.add_successes(1),
            Err(error) => {
                self.add_failure(error.to_string());
                return false;
            }
        }
        true
    }
}
