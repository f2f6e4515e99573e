//! Codec contexts and buffers that threads keep between reads.

use std::sync::{Mutex, PoisonError};

use swath_codec::Scratch;
use swath_io::fork::PerProcess;
use swath_raster::memory::Buffer;

use crate::threads::cores;

/// Longest buffer that a thread keeps: a file of one huge strip must not make us keep its memory. Remote files, which more threads
/// read, keep a sixteenth of it.
pub(crate) const KEEP: usize = 16 << 20;

/// Buffers and codec contexts that threads keep between reads of one file.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool(PerProcess<Mutex<Vec<Worker>>>);

/// One thread's codec contexts and buffers.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    pub(crate) bytes: Buffer,
}

impl ScratchPool {
    pub(crate) fn take(&self) -> Worker {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut worker: Worker, remote: bool) {
        if worker.bytes.len() > if remote { KEEP / 16 } else { KEEP } {
            worker.bytes = Buffer::default();
        }
        worker.scratch.shrink(KEEP);
        let mut kept = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        // Where memory is short, buffers that can be made again are dropped.
        if (!remote || kept.len() < cores()) && kept.try_reserve(1).is_ok() {
            kept.push(worker);
        }
    }
}
