//! Copies from the device to pinned host memory.

use std::sync::Arc;

use crate::{
    driver::memory::{
        pinned::PinnedBlock,
        pool::{DeviceBuffer, Memory, lock},
        streams::{Event, Streams},
    },
    error::DeviceError,
};

/// Pinned blocks that are kept for the next write.
const MOST_KEPT: usize = 4;

/// Pinned memory for a copy from the device.
pub struct PinnedBuffer {
    memory: Arc<Memory>,
    pinned: Option<PinnedBlock>,
}

impl std::fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinnedBuffer")
    }
}

impl PinnedBuffer {
    /// Returns at least `len` bytes of pinned memory.
    pub(crate) fn new(memory: &Arc<Memory>, len: usize, meter: &crate::Meter) -> Result<Self, DeviceError> {
        let found = {
            let mut pool = lock(&memory.large);
            let fits = |pinned: &PinnedBlock| pinned.len >= len && pinned.len / 2 <= len;
            let at = pool.0.iter().position(fits);
            at.map(|at| pool.0.swap_remove(at))
        };
        let pinned = match found {
            Some(pinned) => pinned,
            None => {
                // Blocks of other sizes are unlikely to be needed again.
                let others = std::mem::take(&mut *lock(&memory.large));
                // SAFETY: they have no owner, and this context allocated them.
                unsafe { { others }.clear(&memory.context) };
                let len = crate::driver::memory::pool::rounded(len);
                let address = memory.context.allocate_host(len)?;
                // SAFETY: the memory was allocated with this length and has no other owner; the driver does not promise what
                // is in it.
                unsafe { std::ptr::write_bytes(address, 0, len) };
                meter.pinned_allocation();
                PinnedBlock { address, len }
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
            // SAFETY: it has no owner, and this context allocated it.
            unsafe { self.memory.context.free_host(oldest.address) };
        }
    }
}

/// A copy to pinned memory in flight. Its bytes cannot be read before it is done.
#[derive(Debug)]
pub struct Readback {
    buffer: Option<PinnedBuffer>,
    len: usize,
    done: Event,
}

impl Readback {
    /// Waits until the copy is done.
    ///
    /// # Errors
    /// When the device failed.
    pub fn wait(mut self) -> Result<PinnedBytes, DeviceError> {
        self.done.poll()?;
        let buffer = self.buffer.take();
        buffer
            .map(|buffer| PinnedBytes { buffer, len: self.len })
            .ok_or_else(|| DeviceError::Internal("a readback was waited for twice".into()))
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        // The buffer returns to the pool only when no copy can be in flight; a failed context reports that at once.
        if self.buffer.is_some() {
            let _ = self.done.poll();
        }
    }
}

/// Bytes that were copied to pinned memory.
#[derive(Debug)]
pub struct PinnedBytes {
    buffer: PinnedBuffer,
    len: usize,
}

impl PinnedBytes {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        let (address, len) = self.buffer.raw();
        if address.is_null() {
            return &[];
        }
        // SAFETY: the buffer owns `len` bytes that were written when it was allocated, and no copy is in flight.
        unsafe { std::slice::from_raw_parts(address, self.len.min(len)) }
    }
}

impl Streams {
    /// Starts one copy from a device buffer to pinned memory.
    pub(crate) fn read_back(
        &self,
        stream: usize,
        from: &DeviceBuffer,
        len: usize,
        to: PinnedBuffer,
    ) -> Result<Readback, DeviceError> {
        let address = from.address_at(0, len)?;
        let (place, room) = to.raw();
        if len > room {
            return Err(DeviceError::Internal(format!("{len} bytes are more than the {room} of the pinned buffer")));
        }
        self.keep(from);
        let copied = if len == 0 {
            Ok(())
        } else {
            // SAFETY: the streams keep the buffer until they have been waited for, and the readback keeps the pinned memory
            // until the event below is done.
            unsafe { self.memory().context.download(place, address, len, self.raw(stream)) }
        };
        if copied.is_ok() && len > 0 {
            self.meter().download(len as u64);
        }
        match copied.and_then(|()| self.record(stream)) {
            Ok(done) => Ok(Readback { buffer: Some(to), len, done }),
            Err(error) => {
                // Without the event it is unknown when the memory is free: wait here, once, before the error is returned.
                let _ = self.memory().context.synchronize();
                Err(error)
            }
        }
    }
}
