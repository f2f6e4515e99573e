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
pub(crate) struct ScratchPool(PerProcess<Mutex<Vec<ReadBuffers>>>);

/// One thread's codec contexts and buffers.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers {
    pub(crate) scratch: Scratch,
    pub(crate) bytes: Buffer,
}

impl ScratchPool {
    pub(crate) fn take(&self) -> ReadBuffers {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut buffers: ReadBuffers, remote: bool) {
        if buffers.bytes.len() > if remote { KEEP / 16 } else { KEEP } {
            buffers.bytes = Buffer::default();
        }
        buffers.scratch.shrink(KEEP);
        let mut pool = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        // Where memory is short, buffers that can be made again are dropped.
        if (!remote || pool.len() < cores()) && pool.try_reserve(1).is_ok() {
            pool.push(buffers);
        }
    }
}
