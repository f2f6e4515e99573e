//! The streams of a read, and marks in them. What their work names is kept until they were waited for.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        driver::Handle,
        memory::{CHUNK, Chunk, DeviceBuffer, Function, Memory, NAP, lock},
    },
};

/// A point in a stream that others can wait for.
pub struct Mark {
    memory: Arc<Memory>,
    event: Handle,
    timing: bool,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mark")
    }
}

impl Mark {
    /// Whether the stream has come here.
    pub(crate) fn is_done(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive as long as `self`.
        unsafe { self.memory.context.event_done(self.event) }
    }

    /// Sleeps until the stream has come here. For what libraries use on the host and must not be touched before: the
    /// device goes on with all that it was given besides.
    pub(crate) fn poll(&self) -> Result<(), DeviceError> {
        while !self.is_done()? {
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}

impl Mark {
    /// The event as the driver knows it; it is alive as long as the mark.
    pub fn raw(&self) -> *mut c_void {
        self.event
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.timing {
            // SAFETY: ours, and not used again.
            unsafe { self.memory.context.event_destroy(self.event) };
        } else {
            // A stream that was told to wait took note of the event's state then: recording it again changes nothing there.
            lock(&self.memory.handles).events.push(self.event);
        }
    }
}

/// A tile's stream in host memory, for a library that reads it there, or why the library is not given it.
pub type HostTile = Result<Vec<u8>, String>;

/// The tiles of one call of a library.
pub(crate) type HostBytes = Arc<Vec<HostTile>>;

/// The streams of one read. Their work is done, or waited for, before what it uses is let go.
pub(crate) struct Streams {
    memory: Arc<Memory>,
    meter: Arc<Meter>,
    raw: Vec<Handle>,
    kept: Mutex<Vec<DeviceBuffer>>,
    /// Host bytes that libraries read, each with the point after which they do not.
    held: Mutex<Vec<(Option<Mark>, HostBytes)>>,
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

    /// Lets later work of the stream begin after what a stream of someone else was given so far.
    ///
    /// # Safety
    /// `other` is a live stream of this context, or null for the default one.
    pub(crate) unsafe fn wait_foreign(&self, stream: usize, other: *mut c_void) -> Result<(), DeviceError> {
        let mark = Mark { memory: self.memory.clone(), event: self.memory.event()?, timing: false };
        // SAFETY: the event is ours, the stream alive as the caller promises.
        unsafe { self.memory.context.event_record(mark.event, other) }?;
        self.wait(stream, &mark)
    }

    /// Copies bytes of a buffer to the host after all that was given to stream 0, and waits for that stream alone. What its
    /// work named is let go: whoever calls this owns what other streams work on.
    pub(crate) fn fetch(&self, from: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.download(from, offset, to)?;
        lock(&self.kept).clear();
        Ok(())
    }

    /// Sleeps until stream 0 has done all that it was given, and lets go of what that named; as [`Streams::fetch`].
    pub(crate) fn settle(&self) -> Result<(), DeviceError> {
        self.mark(0)?.poll()?;
        lock(&self.kept).clear();
        Ok(())
    }

    /// The driver's handle of a stream, for libraries.
    pub(crate) fn raw(&self, stream: usize) -> Handle {
        self.raw.get(stream).copied().unwrap_or(std::ptr::null_mut())
    }

    /// Keeps a buffer until the streams were waited for.
    pub(crate) fn keep(&self, buffer: &DeviceBuffer) {
        self.busy.store(true, Ordering::Release);
        lock(&self.kept).push(buffer.clone());
    }

    /// Keeps host bytes until [`Streams::hold_until`] says otherwise, or the streams were waited for.
    pub(crate) fn hold(&self, bytes: &HostBytes) {
        self.busy.store(true, Ordering::Release);
        let mut held = lock(&self.held);
        held.retain(|(mark, _)| !mark.as_ref().is_some_and(|mark| mark.is_done().unwrap_or(false)));
        held.push((None, bytes.clone()));
    }

    /// Lets go of the bytes held so far once the stream has done what it was given so far.
    pub(crate) fn hold_until(&self, stream: usize) -> Result<(), DeviceError> {
        for (mark, _) in lock(&self.held).iter_mut().filter(|(mark, _)| mark.is_none()) {
            *mark = Some(self.mark(stream)?);
        }
        Ok(())
    }

    /// Copies the first `len` bytes of a chunk; the chunk comes back to the pool when that is done.
    pub(crate) fn upload(
        &self,
        stream: usize,
        mut chunk: Chunk,
        len: usize,
        to: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let address = to.part(offset, len)?;
        let event = self.memory.event()?;
        let Some(pinned) = chunk.pinned.take().filter(|_| len <= CHUNK) else {
            return Err(DeviceError::Usage(format!("{len} bytes are more than a pinned chunk holds")));
        };
        self.keep(to);
        let raw = self.raw(stream);
        let context = &self.memory.context;
        // SAFETY: the buffer is kept until the streams were waited for; the chunk is nobody's until the event, below, is done.
        let copied = unsafe { context.upload(address, pinned.0, len, raw) };
        // SAFETY: both are alive.
        let recorded = copied.and_then(|()| unsafe { context.event_record(event, raw) });
        if recorded.is_err() {
            // Without the event nobody knows when the chunk is free: wait here, once, on the way to an error.
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

    /// Copies bytes that are not pinned, by way of chunks.
    pub(crate) fn upload_bytes(
        &self,
        stream: usize,
        bytes: &[u8],
        to: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), DeviceError> {
        for (number, piece) in bytes.chunks(CHUNK).enumerate() {
            let mut chunk = self.memory.chunk(&self.meter)?;
            if let Some(place) = chunk.bytes_mut().get_mut(..piece.len()) {
                place.copy_from_slice(piece);
            }
            self.upload(stream, chunk, piece.len(), to, offset + number * CHUNK)?;
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
        let address = buffer.part(offset, len)?;
        self.keep(buffer);
        // SAFETY: the buffer is kept until the streams were waited for.
        unsafe { self.memory.context.fill(address, byte, len, self.raw(stream)) }
    }

    /// A mark after everything that the stream was given so far.
    pub(crate) fn mark(&self, stream: usize) -> Result<Mark, DeviceError> {
        self.mark_with(stream, self.memory.event()?, false)
    }

    /// A mark that can tell the time to another one.
    pub(crate) fn timed_mark(&self, stream: usize) -> Result<Mark, DeviceError> {
        self.mark_with(stream, self.memory.context.event_create(true)?, true)
    }

    fn mark_with(&self, stream: usize, event: Handle, timing: bool) -> Result<Mark, DeviceError> {
        let mark = Mark { memory: self.memory.clone(), event, timing };
        // SAFETY: both are alive.
        unsafe { self.memory.context.event_record(event, self.raw(stream)) }?;
        Ok(mark)
    }

    /// Milliseconds between two timed marks; the streams were waited for.
    pub(crate) fn elapsed(&self, start: &Mark, end: &Mark) -> Result<f32, DeviceError> {
        // SAFETY: both are alive; the driver refuses those that were not made to tell times.
        unsafe { self.memory.context.event_elapsed(start.event, end.event) }
    }

    /// Lets later work of the stream begin after the mark.
    pub(crate) fn wait(&self, stream: usize, mark: &Mark) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        unsafe { self.memory.context.stream_wait(self.raw(stream), mark.event) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `argument` is what the kernel takes, and the addresses in it lie in `buffers`, with the lengths it gives.
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

    /// Waits for everything, after copying bytes of a buffer to the host: one copy, one wait.
    pub(crate) fn finish(&self, buffer: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.join()?;
        self.download(buffer, offset, to)?;
        self.settled();
        Ok(())
    }

    /// Lets stream 0 wait for all others.
    fn join(&self) -> Result<(), DeviceError> {
        for stream in 1..self.raw.len() {
            let mark = self.mark(stream)?;
            self.wait(0, &mark)?;
        }
        Ok(())
    }

    /// Copies bytes of a buffer to the host after all that was given to stream 0, and waits for that.
    fn download(&self, from: &DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let address = from.part(offset, to.len())?;
        self.keep(from);
        // A small answer comes through a pinned chunk: from other memory the driver would wait twice.
        if to.len() <= CHUNK {
            let mut chunk = self.memory.chunk(&self.meter)?;
            let place = chunk.bytes_mut().as_mut_ptr();
            // SAFETY: the buffer is kept; the chunk is ours and not looked at before the wait below.
            unsafe { self.memory.context.download(place, address, to.len(), self.raw(0)) }?;
            self.meter.download(to.len() as u64);
            if let Err(error) = self.wait_here() {
                // The chunk goes back to the pool only when no copy can be under way: a context that failed says so at once.
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

    /// Waits for stream 0, and so for all that it was made to wait for.
    fn wait_here(&self) -> Result<(), DeviceError> {
        self.meter.synchronisation();
        // SAFETY: the stream is alive.
        unsafe { self.memory.context.stream_synchronize(self.raw(0)) }
    }

    /// Waits for everything.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.join()?;
        self.wait_here()?;
        self.settled();
        Ok(())
    }

    /// Lets go of the buffers. Only to be called when stream 0 was waited for after [`Streams::join`].
    fn settled(&self) {
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
        // The first on top, so that the next read has each in the same part again: libraries keep states for some of them.
        lock(&self.memory.handles).streams.extend(self.raw.drain(..).rev());
    }
}
