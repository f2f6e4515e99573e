//! The streams of a read or a write, and events in them. The buffers that their work names stay alive until the streams
//! have been waited for.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    counters::Meter,
    driver::{
        cuda::Handle,
        memory::{
            kernels::Function,
            pool::{CHUNK_LEN, DeviceBuffer, Memory, POLL_INTERVAL, PinnedChunk, lock},
        },
    },
    error::DeviceError,
};

/// A point in a stream that the host and other streams can wait for.
pub struct Event {
    memory: Arc<Memory>,
    event: Handle,
    timing: bool,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Event")
    }
}

impl Event {
    /// Whether the stream has passed this point.
    pub(crate) fn is_done(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive as long as `self`.
        unsafe { self.memory.context.event_done(self.event) }
    }

    /// Sleeps until the stream has passed this point, while the device continues with all other work. For host memory
    /// that libraries use.
    pub(crate) fn poll(&self) -> Result<(), DeviceError> {
        while !self.is_done()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Event {
    /// Returns the driver's handle of the event, which is alive as long as `self`.
    pub fn raw(&self) -> *mut c_void {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.timing {
            // SAFETY: ours, and not used again.
            unsafe { self.memory.context.event_destroy(self.event) };
        } else {
            // A stream that waits for the event has noted its state: recording it again does not affect that stream.
            lock(&self.memory.handles).events.push(self.event);
        }
    }
}

/// A tile's stream in host memory, for a library that reads it there, or the reason why the library does not get it.
pub type HostTile = Result<Vec<u8>, String>;

/// The tiles of one library call.
pub(crate) type HostTiles = Arc<Vec<HostTile>>;

/// The streams of one read or write. Memory that their work uses is released only after the work is done.
pub(crate) struct Streams {
    memory: Arc<Memory>,
    meter: Arc<Meter>,
    raw: Vec<Handle>,
    kept: Mutex<Vec<DeviceBuffer>>,
    /// Host bytes that libraries read, each with the event after which they no longer do.
    held: Mutex<Vec<(Option<Event>, HostTiles)>>,
    busy: AtomicBool,
}

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Streams {}
// SAFETY: as above.
unsafe impl Sync for Streams {}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("count", &self.raw.len()).finish_non_exhaustive()
    }
}

impl Streams {
    pub(crate) fn new(memory: Arc<Memory>, meter: Arc<Meter>, count: usize) -> Result<Self, DeviceError> {
        let mut streams = Self {
            memory,
            meter,
            raw: Vec::new(),
            kept: Mutex::default(),
            held: Mutex::default(),
            busy: AtomicBool::new(false),
        };
        for _ in 0..count {
            let idle = lock(&streams.memory.handles).streams.pop();
            let raw = idle.map_or_else(|| streams.memory.context.stream_create(), Ok)?;
            streams.raw.push(raw);
        }
        Ok(streams)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Makes later work of the stream wait for all work queued so far on a stream of other code.
    ///
    /// # Safety
    /// `other` is a live stream of this context, or null for the default one.
    pub(crate) unsafe fn wait_foreign(&self, stream: usize, other: *mut c_void) -> Result<(), DeviceError> {
        let event = Event { memory: self.memory.clone(), event: self.memory.event()?, timing: false };
        // SAFETY: the event is ours, the stream alive as the caller promises.
        unsafe { self.memory.context.event_record(event.event, other) }?;
        self.wait(stream, &event)
    }

    /// Copies bytes of a buffer to the host after all work queued on stream 0, and waits for that stream alone.
    /// Releases the buffers kept for its work: the caller keeps alive what other streams use.
    pub(crate) fn fetch(&self, from: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.download(from, offset, to)?;
        lock(&self.kept).clear();
        Ok(())
    }

    /// Sleeps until stream 0 has done all queued work, and releases its buffers; as [`Streams::fetch`].
    pub(crate) fn wait_for_first(&self) -> Result<(), DeviceError> {
        self.record(0)?.poll()?;
        lock(&self.kept).clear();
        Ok(())
    }

    /// Returns the driver's handle of a stream, for libraries.
    pub(crate) fn raw(&self, stream: usize) -> Handle {
        self.raw.get(stream).copied().unwrap_or(std::ptr::null_mut())
    }

    /// Keeps a buffer alive until the streams have been waited for.
    pub(crate) fn keep(&self, buffer: &DeviceBuffer) {
        self.busy.store(true, Ordering::Release);
        lock(&self.kept).push(buffer.clone());
    }

    /// Keeps host bytes alive until the event of [`Streams::hold_until`], or until the streams have been waited for.
    pub(crate) fn hold(&self, bytes: &HostTiles) {
        self.busy.store(true, Ordering::Release);
        let mut held = lock(&self.held);
        held.retain(|(event, _)| !event.as_ref().is_some_and(|event| event.is_done().unwrap_or(false)));
        held.push((None, bytes.clone()));
    }

    /// Releases the bytes held so far once the stream has done all work queued so far.
    pub(crate) fn hold_until(&self, stream: usize) -> Result<(), DeviceError> {
        for (event, _) in lock(&self.held).iter_mut().filter(|(event, _)| event.is_none()) {
            *event = Some(self.record(stream)?);
        }
        Ok(())
    }

    /// Copies the first `len` bytes of a chunk. The chunk returns to the pool when the copy is done.
    pub(crate) fn upload(
        &self,
        stream: usize,
        mut chunk: PinnedChunk,
        len: usize,
        to: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let address = to.address_at(offset, len)?;
        let event = self.memory.event()?;
        let Some(pinned) = chunk.pinned.take().filter(|_| len <= CHUNK_LEN) else {
            return Err(DeviceError::Internal(format!("{len} bytes are more than a pinned chunk holds")));
        };
        self.keep(to);
        let raw = self.raw(stream);
        let context = &self.memory.context;
        // SAFETY: the buffer is kept until the streams were waited for; no other code gets the chunk until the event below is done.
        let copied = unsafe { context.upload(address, pinned.0, len, raw) };
        // SAFETY: both are alive.
        let recorded = copied.and_then(|()| unsafe { context.event_record(event, raw) });
        if recorded.is_err() {
            // Without the event it is unknown when the chunk is free: wait here, once, before the error is returned.
            // SAFETY: the stream is alive.
            let _ = unsafe { context.stream_synchronize(raw) };
            lock(&self.memory.handles).events.push(event);
            lock(&self.memory.pinned).free.push(pinned);
            return recorded;
        }
        self.meter.upload(len as u64);
        lock(&self.memory.pinned).busy.push_back((pinned, event));
        Ok(())
    }

    /// Copies bytes that are not pinned, through pinned chunks.
    pub(crate) fn upload_bytes(
        &self,
        stream: usize,
        bytes: &[u8],
        to: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), DeviceError> {
        for (number, part) in bytes.chunks(CHUNK_LEN).enumerate() {
            let mut chunk = self.memory.chunk(&self.meter)?;
            if let Some(place) = chunk.bytes_mut().get_mut(..part.len()) {
                place.copy_from_slice(part);
            }
            self.upload(stream, chunk, part.len(), to, offset + number * CHUNK_LEN)?;
        }
        Ok(())
    }

    /// Sets bytes of a buffer.
    pub(crate) fn fill(
        &self,
        stream: usize,
        buffer: &DeviceBuffer,
        offset: usize,
        len: usize,
        byte: u8,
    ) -> Result<(), DeviceError> {
        let address = buffer.address_at(offset, len)?;
        self.keep(buffer);
        // SAFETY: the buffer is kept until the streams were waited for.
        unsafe { self.memory.context.fill(address, byte, len, self.raw(stream)) }
    }

    /// Records an event after all work queued on the stream so far.
    pub(crate) fn record(&self, stream: usize) -> Result<Event, DeviceError> {
        self.record_into(stream, self.memory.event()?, false)
    }

    /// Records an event that can measure the time to another one.
    pub(crate) fn record_timed(&self, stream: usize) -> Result<Event, DeviceError> {
        self.record_into(stream, self.memory.context.event_create(true)?, true)
    }

    fn record_into(&self, stream: usize, raw: Handle, timing: bool) -> Result<Event, DeviceError> {
        let event = Event { memory: self.memory.clone(), event: raw, timing };
        // SAFETY: both are alive.
        unsafe { self.memory.context.event_record(raw, self.raw(stream)) }?;
        Ok(event)
    }

    /// Returns the milliseconds between two timed events. The caller has waited for the streams.
    pub(crate) fn elapsed(&self, start: &Event, end: &Event) -> Result<f32, DeviceError> {
        // SAFETY: both are alive; the driver refuses events that were created without timing.
        unsafe { self.memory.context.event_elapsed(start.event, end.event) }
    }

    /// Makes later work of the stream wait for the event.
    pub(crate) fn wait(&self, stream: usize, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        unsafe { self.memory.context.stream_wait(self.raw(stream), event.event) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `argument` is the kernel's parameter, and the addresses in it lie in `buffers`, with the lengths it states.
    pub(crate) unsafe fn launch<A: bytemuck::Pod>(
        &self,
        stream: usize,
        function: Function,
        blocks: u32,
        argument: &A,
        buffers: &[&DeviceBuffer],
    ) -> Result<(), DeviceError> {
        for buffer in buffers {
            self.keep(buffer);
        }
        let mut argument = *argument;
        let pointer: *mut c_void = (&raw mut argument).cast();
        // SAFETY: the buffers are kept until the streams were waited for; the rest as the caller promises.
        unsafe { self.memory.context.launch(function.raw, blocks, function.threads, pointer, self.raw(stream)) }?;
        self.meter.launch();
        Ok(())
    }

    /// Copies bytes of a buffer to the host and waits for all streams: one copy, one wait.
    pub(crate) fn finish(&self, buffer: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.join()?;
        self.download(buffer, offset, to)?;
        self.release_all();
        Ok(())
    }

    /// Makes stream 0 wait for all others.
    fn join(&self) -> Result<(), DeviceError> {
        for stream in 1..self.raw.len() {
            let event = self.record(stream)?;
            self.wait(0, &event)?;
        }
        Ok(())
    }

    /// Copies bytes of a buffer to the host after all work queued on stream 0, and waits for it.
    fn download(&self, from: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let address = from.address_at(offset, to.len())?;
        self.keep(from);
        // A small copy goes through a pinned chunk: with other memory the driver would wait twice.
        if to.len() <= CHUNK_LEN {
            let mut chunk = self.memory.chunk(&self.meter)?;
            let place = chunk.bytes_mut().as_mut_ptr();
            // SAFETY: the buffer is kept; the chunk is ours and not looked at before the wait below.
            unsafe { self.memory.context.download(place, address, to.len(), self.raw(0)) }?;
            self.meter.download(to.len() as u64);
            if let Err(error) = self.wait_here() {
                // The chunk returns to the pool only when no copy can be in flight; a failed context reports that at
                // once.
                let _ = self.memory.context.synchronize();
                return Err(error);
            }
            if let Some(found) = chunk.bytes_mut().get(..to.len()) {
                to.copy_from_slice(found);
            }
            return Ok(());
        }
        // SAFETY: the buffer is kept; `to` is borrowed until the wait below, and the context waits even where the copy fails.
        let copied = unsafe { self.memory.context.download(to.as_mut_ptr(), address, to.len(), self.raw(0)) };
        self.meter.download(to.len() as u64);
        let waited = self.wait_here();
        copied.and(waited)
    }

    /// Waits for stream 0, and so for all that it waits for.
    fn wait_here(&self) -> Result<(), DeviceError> {
        self.meter.synchronisation();
        // SAFETY: the stream is alive.
        unsafe { self.memory.context.stream_synchronize(self.raw(0)) }
    }

    /// Waits for all streams.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.join()?;
        self.wait_here()?;
        self.release_all();
        Ok(())
    }

    /// Releases the buffers. Only to be called after a wait for stream 0 that followed [`Streams::join`].
    fn release_all(&self) {
        self.busy.store(false, Ordering::Release);
        lock(&self.kept).clear();
        lock(&self.held).clear();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.busy.load(Ordering::Acquire) {
            for stream in &self.raw {
                // SAFETY: the stream is alive. A failure means that nothing runs any more.
                let _ = unsafe { self.memory.context.stream_synchronize(*stream) };
            }
        }
        lock(&self.kept).clear();
        lock(&self.held).clear();
        // In reverse, so that the next read gets them in the same order: libraries keep states for some of them.
        lock(&self.memory.handles).streams.extend(self.raw.drain(..).rev());
    }
}
