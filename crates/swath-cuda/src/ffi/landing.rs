//! Bytes on their way from the device to pinned memory, and there.

use std::sync::Arc;

use crate::{
    error::DeviceError,
    ffi::{
        memory::{DeviceBuffer, Memory, lock},
        streams::{Mark, Streams},
    },
};

/// A pinned buffer of some length.
pub(crate) struct LargePinned {
    address: *mut u8,
    len: usize,
}

// SAFETY: plain memory that has one owner at a time.
unsafe impl Send for LargePinned {}
// SAFETY: shared references only read.
unsafe impl Sync for LargePinned {}

/// Pinned buffers that are kept for the next write.
const MOST_KEPT: usize = 4;

/// Pinned buffers that nobody uses.
#[derive(Default)]
pub(super) struct LargePool(Vec<LargePinned>);

impl LargePool {
    /// Gives all of them back to the system.
    ///
    /// # Safety
    /// The context is the one that they were allocated in.
    pub(super) unsafe fn clear(&mut self, context: &super::driver::Context) {
        for pinned in self.0.drain(..) {
            // SAFETY: nobody holds it; the rest as the caller promises.
            unsafe { context.free_host(pinned.address) };
        }
    }
}

/// Pinned memory for a copy from the device.
pub struct PinnedBuffer {
    memory: Arc<Memory>,
    pinned: Option<LargePinned>,
}

impl std::fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinnedBuffer")
    }
}

impl PinnedBuffer {
    /// At least `len` bytes of pinned memory.
    pub(crate) fn new(memory: &Arc<Memory>, len: usize, meter: &crate::Meter) -> Result<Self, DeviceError> {
        let found = {
            let mut pool = lock(&memory.large);
            let fits = |pinned: &LargePinned| pinned.len >= len && pinned.len / 2 <= len;
            let at = pool.0.iter().position(fits);
            at.map(|at| pool.0.swap_remove(at))
        };
        let pinned = match found {
            Some(pinned) => pinned,
            None => {
                // Of another size: nobody is likely to want them again.
                let others = std::mem::take(&mut *lock(&memory.large));
                // SAFETY: nobody holds them, and they were allocated in this context.
                unsafe { { others }.clear(&memory.context) };
                let len = super::memory::rounded(len);
                let address = memory.context.allocate_host(len)?;
                // SAFETY: the memory was allocated with this length and is nobody else's; the driver does not promise what
                // is in it.
                unsafe { std::ptr::write_bytes(address, 0, len) };
                meter.pinned_allocation();
                LargePinned { address, len }
            }
        };
        Ok(Self { memory: memory.clone(), pinned: Some(pinned) })
    }

    fn raw(&self) -> (*mut u8, usize) {
        self.pinned.as_ref().map_or((std::ptr::null_mut(), 0), |pinned| (pinned.address, pinned.len))
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        let mut pool = lock(&self.memory.large);
        pool.0.push(pinned);
        if pool.0.len() > MOST_KEPT {
            let oldest = pool.0.remove(0);
            drop(pool);
            // SAFETY: nobody holds it, and it was allocated in this context.
            unsafe { self.memory.context.free_host(oldest.address) };
        }
    }
}

/// Bytes on their way to pinned memory. Nobody can look at them before they are there.
#[derive(Debug)]
pub struct Landing {
    buffer: Option<PinnedBuffer>,
    len: usize,
    done: Mark,
}

impl Landing {
    /// Waits until the bytes are there.
    ///
    /// # Errors
    /// When the device failed.
    pub fn wait(mut self) -> Result<Landed, DeviceError> {
        self.done.poll()?;
        let buffer = self.buffer.take();
        buffer.map(|buffer| Landed { buffer, len: self.len }).ok_or_else(|| DeviceError::Usage("waited twice".into()))
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // The buffer goes back to the pool only when no copy can be under way; a context that failed says so at once.
        if self.buffer.is_some() {
            let _ = self.done.poll();
        }
    }
}

/// Bytes in pinned memory.
#[derive(Debug)]
pub struct Landed {
    buffer: PinnedBuffer,
    len: usize,
}

impl Landed {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let (address, len) = self.buffer.raw();
        if address.is_null() {
            return &[];
        }
        // SAFETY: the buffer owns `len` bytes that were written when it was allocated, and no copy is under way.
        unsafe { std::slice::from_raw_parts(address, self.len.min(len)) }
    }
}

impl Streams {
    /// Starts one copy of bytes of a device buffer to pinned memory.
    pub(crate) fn land(
        &self,
        stream: usize,
        from: &DeviceBuffer,
        len: usize,
        to: PinnedBuffer,
    ) -> Result<Landing, DeviceError> {
        let address = from.part(0, len)?;
        let (place, room) = to.raw();
        if len > room {
            return Err(DeviceError::Usage(format!("{len} bytes are more than the {room} of the pinned buffer")));
        }
        self.keep(from);
        let copied = if len == 0 {
            Ok(())
        } else {
            // SAFETY: the buffer is kept until the streams were waited for, the pinned memory by the landing until the mark,
            // below, was reached.
            unsafe { self.memory().context.download(place, address, len, self.raw(stream)) }
        };
        if copied.is_ok() && len > 0 {
            self.meter().download(len as u64);
        }
        match copied.and_then(|()| self.mark(stream)) {
            Ok(done) => Ok(Landing { buffer: Some(to), len, done }),
            Err(error) => {
                // Without the mark nobody knows when the memory is free: wait here, once, on the way to an error.
                let _ = self.memory().context.synchronize();
                Err(error)
            }
        }
    }
}
