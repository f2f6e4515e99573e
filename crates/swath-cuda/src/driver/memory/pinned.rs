//! Idle pinned host memory: chunks of one size, and blocks of any size.

use std::collections::VecDeque;

use crate::driver::{context::Context, cuda::Handle};

#[derive(Default)]
pub(in crate::driver) struct PinnedPool {
    pub(in crate::driver) free: Vec<Pinned>,
    /// Chunks with a copy in flight, and the event after each copy.
    pub(in crate::driver) busy: VecDeque<(Pinned, Handle)>,
    /// Number of chunks that were allocated.
    pub(super) count: usize,
    /// Most chunks to allocate; lower than the limit after the system refused one.
    pub(super) most: usize,
}

// SAFETY: chunks are plain memory with one owner, and events may be used from any thread.
unsafe impl Send for PinnedPool {}

pub(in crate::driver) struct Pinned(pub(in crate::driver) *mut u8);

// SAFETY: plain memory that has one owner at a time.
unsafe impl Send for Pinned {}

/// A pinned block of any size.
pub(crate) struct PinnedBlock {
    pub(super) address: *mut u8,
    pub(super) len: usize,
}

// SAFETY: plain memory that has one owner at a time.
unsafe impl Send for PinnedBlock {}
// SAFETY: shared references only read.
unsafe impl Sync for PinnedBlock {}

/// Idle pinned blocks.
#[derive(Default)]
pub(in crate::driver) struct PinnedBlockPool(pub(super) Vec<PinnedBlock>);

impl PinnedBlockPool {
    /// Frees all blocks.
    ///
    /// # Safety
    /// The blocks were allocated in this context.
    pub(in crate::driver) unsafe fn clear(&mut self, context: &Context) {
        for pinned in self.0.drain(..) {
            // SAFETY: it has no owner; the rest as the caller promises.
            unsafe { context.free_host(pinned.address) };
        }
    }
}
