//! Device buffers, pinned chunks, streams and marks: what a read holds, pooled from read to read.
//!
//! Nothing here can be freed or reused while the device works on it: streams keep the buffers that their work names until they
//! were waited for, and a pinned chunk comes back only when the copy out of it is done.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ffi::{CString, c_void},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        driver::{Address, Context, Handle},
        libraries::Libraries,
    },
};

/// Bytes of a pinned chunk. A copy of this size takes 80 microseconds on PCIe 5, long against what starting it costs.
pub(crate) const CHUNK: usize = 4 << 20;
/// Pinned memory that is ever taken: enough that no reader waits for the bus, little enough to leave the host alone.
const MOST_PINNED: usize = 64 * CHUNK;
/// How long a reader sleeps that finds every chunk in flight: a fraction of one copy.
const NAP: Duration = Duration::from_micros(20);

/// A context and all that is pooled in it.
pub(crate) struct Memory {
    pub(crate) context: Context,
    device: Mutex<DevicePool>,
    pinned: Mutex<PinnedPool>,
    handles: Mutex<Handles>,
    /// What keeps states for our streams, and so has to be told before one is destroyed.
    pub(crate) libraries: Libraries,
    /// Free device memory that is kept for the next read.
    keep: u64,
}

#[derive(Default)]
struct DevicePool {
    /// Free blocks by size. The flag says that someone outside was given the address and may still have work under way on it.
    free: BTreeMap<usize, Vec<(Address, bool)>>,
    free_bytes: u64,
}

#[derive(Default)]
struct PinnedPool {
    free: Vec<Pinned>,
    /// Chunks that are being copied from, and the event that ends each copy.
    busy: VecDeque<(Pinned, Handle)>,
    /// Chunks there are.
    count: usize,
    /// Chunks there may be; less than the limit once the system refused one.
    most: usize,
}

// SAFETY: chunks are plain memory with one owner, and events may be used from any thread.
unsafe impl Send for PinnedPool {}

struct Pinned(*mut u8);

// SAFETY: plain memory that has one owner at a time.
unsafe impl Send for Pinned {}

#[derive(Default)]
struct Handles {
    streams: Vec<Handle>,
    events: Vec<Handle>,
    modules: HashMap<&'static str, Handle>,
    functions: HashMap<&'static str, Function>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Handles {}

/// A kernel that is ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    raw: Handle,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Blocks that the whole device holds at once.
    pub(crate) resident: u32,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("context", &self.context).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a buffer of `len` bytes takes: sizes are rounded up by at most an eighth, so that a read of nearly the same size finds
/// the blocks of the last one.
pub(crate) fn rounded(len: usize) -> usize {
    const LEAST: usize = 64 << 10;
    let grain = len.checked_next_power_of_two().map_or(1 << 60, |power| power / 16).max(LEAST);
    len.max(1).checked_next_multiple_of(grain).unwrap_or(len)
}

impl Memory {
    pub(crate) fn new(context: Context, libraries: Libraries) -> Arc<Self> {
        let keep = context.facts.memory / 4;
        let pinned = PinnedPool { most: MOST_PINNED / CHUNK, ..PinnedPool::default() };
        Arc::new(Self {
            context,
            device: Mutex::default(),
            pinned: Mutex::new(pinned),
            handles: Mutex::default(),
            libraries,
            keep,
        })
    }

    /// Memory that a read could take: free on the device, or free in the pool.
    pub(crate) fn available(&self) -> Result<u64, DeviceError> {
        let (free, _) = self.context.memory()?;
        Ok(free + lock(&self.device).free_bytes)
    }

    /// A buffer of `len` bytes whose content is whatever was there.
    pub(crate) fn buffer(self: &Arc<Self>, len: usize, meter: &Arc<Meter>) -> Result<DeviceBuffer, DeviceError> {
        let size = rounded(len);
        let found = {
            let mut pool = lock(&self.device);
            let block = pool.free.get_mut(&size).and_then(Vec::pop);
            if block.is_some() {
                pool.free_bytes -= size as u64;
            }
            block
        };
        let address = match found {
            Some((address, foreign)) => {
                if foreign {
                    // Whoever had it may have queued work that is not done; nothing else tells.
                    meter.synchronisation();
                    self.context.synchronize()?;
                }
                address
            }
            None => {
                let address = match self.context.allocate(size) {
                    Err(error) if error.is_out_of_memory() => {
                        self.trim();
                        self.context.allocate(size)?
                    }
                    other => other?,
                };
                meter.allocation(size as u64);
                address
            }
        };
        meter.hold(size as u64);
        let inner = Allocation {
            memory: self.clone(),
            address,
            size,
            len,
            meter: meter.clone(),
            foreign: AtomicBool::new(false),
        };
        Ok(DeviceBuffer(Arc::new(inner)))
    }

    /// Gives all free blocks, and what libraries keep for streams that nobody uses, back to the driver.
    pub(crate) fn trim(&self) {
        self.forget_idle_streams();
        let blocks = {
            let mut pool = lock(&self.device);
            pool.free_bytes = 0;
            std::mem::take(&mut pool.free)
        };
        for (address, _) in blocks.into_values().flatten() {
            // SAFETY: a free block is nobody's, and it was allocated by this context.
            unsafe { self.context.free(address) };
        }
    }

    /// Lets libraries give up their states for the streams in the pool, which were all waited for.
    fn forget_idle_streams(&self) {
        let Ok(_current) = self.context.enter() else { return };
        // Out of the pool meanwhile, so that nobody takes one.
        let idle = std::mem::take(&mut lock(&self.handles).streams);
        for stream in &idle {
            // SAFETY: the context is current and the stream is idle.
            unsafe { self.libraries.forget(*stream) };
        }
        lock(&self.handles).streams.extend(idle);
    }

    fn give_back(&self, address: Address, size: usize, foreign: bool) {
        {
            let mut pool = lock(&self.device);
            if pool.free_bytes + size as u64 <= self.keep {
                pool.free_bytes += size as u64;
                pool.free.entry(size).or_default().push((address, foreign));
                return;
            }
        }
        // SAFETY: the last owner just let go of it.
        unsafe { self.context.free(address) };
    }

    /// A pinned chunk of [`CHUNK`] bytes; waits until one is free where there are as many as there may be.
    pub(crate) fn chunk(self: &Arc<Self>, meter: &Meter) -> Result<Chunk, DeviceError> {
        loop {
            {
                let mut pool = lock(&self.pinned);
                self.reclaim(&mut pool)?;
                if let Some(pinned) = pool.free.pop() {
                    return Ok(Chunk { memory: self.clone(), pinned: Some(pinned) });
                }
                if pool.count < pool.most {
                    pool.count += 1;
                    drop(pool);
                    match self.context.allocate_host(CHUNK) {
                        Ok(address) => {
                            // The driver does not promise what is in it.
                            // SAFETY: the chunk was allocated with this length and is nobody else's.
                            unsafe { std::ptr::write_bytes(address, 0, CHUNK) };
                            meter.pinned_allocation();
                            return Ok(Chunk { memory: self.clone(), pinned: Some(Pinned(address)) });
                        }
                        Err(error) => {
                            let mut pool = lock(&self.pinned);
                            pool.count -= 1;
                            pool.most = pool.count;
                            if pool.count == 0 {
                                pool.most = MOST_PINNED / CHUNK;
                                return Err(error);
                            }
                        }
                    }
                }
            }
            std::thread::sleep(NAP);
        }
    }

    fn reclaim(&self, pool: &mut PinnedPool) -> Result<(), DeviceError> {
        for _ in 0..pool.busy.len() {
            let Some((pinned, event)) = pool.busy.pop_front() else { break };
            // SAFETY: events in the list are alive.
            match unsafe { self.context.event_done(event) } {
                Ok(true) => {
                    lock(&self.handles).events.push(event);
                    pool.free.push(pinned);
                }
                Ok(false) => {
                    // Copies of one stream end in order: those behind are hardly done.
                    pool.busy.push_front((pinned, event));
                    return Ok(());
                }
                Err(error) => {
                    // A context that failed runs nothing any more.
                    lock(&self.handles).events.push(event);
                    pool.free.push(pinned);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn event(&self) -> Result<Handle, DeviceError> {
        let idle = lock(&self.handles).events.pop();
        idle.map_or_else(|| self.context.event_create(false), Ok)
    }

    /// The kernel `name` of the module `ptx`, loaded when first asked for.
    pub(crate) fn function(
        &self,
        module: &'static str,
        ptx: &'static str,
        name: &'static str,
    ) -> Result<Function, DeviceError> {
        let mut handles = lock(&self.handles);
        if let Some(function) = handles.functions.get(name) {
            return Ok(*function);
        }
        let text =
            |text: &str| CString::new(text).map_err(|_| DeviceError::Usage(format!("{module}: a zero in its text")));
        let loaded = match handles.modules.get(module) {
            Some(loaded) => *loaded,
            None => {
                let loaded = self.context.module_load(module, &text(ptx)?)?;
                handles.modules.insert(module, loaded);
                loaded
            }
        };
        let threads = threads_of(ptx, name).ok_or_else(|| {
            DeviceError::Usage(format!("{module}: its text does not say how many threads {name} has"))
        })?;
        // SAFETY: modules stay loaded as long as `self`.
        let raw = unsafe { self.context.module_function(loaded, &text(name)?) }?;
        // Placing has no shared memory and lives on the cache.
        if module != "place" {
            // SAFETY: as above.
            unsafe { self.context.prefer_shared(raw) }?;
        }
        // SAFETY: as above.
        let occupancy = unsafe { self.context.occupancy(raw, threads) }?;
        let resident = occupancy * self.context.facts.multiprocessors.max(1) as u32;
        let function = Function { raw, threads, resident };
        handles.functions.insert(name, function);
        Ok(function)
    }
}

/// Threads of a kernel's blocks, as the kernel's own text states them.
fn threads_of(ptx: &str, name: &str) -> Option<u32> {
    let entry = ptx.split(".entry ").find(|entry| {
        entry.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })?;
    let bounds = entry.split(".maxntid").nth(1)?;
    bounds.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Nobody is left who could wait for a copy; freeing pinned memory under one would be worse than waiting.
        let busy = std::mem::take(&mut lock(&self.pinned).busy);
        if !busy.is_empty() {
            let _ = self.context.synchronize();
        }
        self.trim();
        // Their handles belong to the context, which is about to go. In a forked process nothing of it can even be
        // freed.
        let libraries = std::mem::take(&mut self.libraries);
        match self.context.enter() {
            Ok(_current) => drop(libraries),
            Err(_) => std::mem::forget(libraries),
        }
        let mut pinned = lock(&self.pinned);
        for chunk in pinned.free.drain(..).chain(busy.into_iter().map(|(chunk, event)| {
            lock(&self.handles).events.push(event);
            chunk
        })) {
            // SAFETY: no copy is under way and nobody holds it.
            unsafe { self.context.free_host(chunk.0) };
        }
        let mut handles = lock(&self.handles);
        for stream in handles.streams.drain(..) {
            // SAFETY: idle, and ours.
            unsafe { self.context.stream_destroy(stream) };
        }
        for event in handles.events.drain(..) {
            // SAFETY: idle, and ours.
            unsafe { self.context.event_destroy(event) };
        }
        for (_, module) in handles.modules.drain() {
            // SAFETY: its functions are reached through `self` only.
            unsafe { self.context.module_unload(module) };
        }
    }
}

struct Allocation {
    memory: Arc<Memory>,
    address: Address,
    size: usize,
    len: usize,
    meter: Arc<Meter>,
    foreign: AtomicBool,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.meter.release(self.size as u64);
        self.memory.give_back(self.address, self.size, self.foreign.load(Ordering::Acquire));
    }
}

/// Memory on the device. Clones are the same memory; the last one gives it back to the pool.
#[derive(Clone)]
pub struct DeviceBuffer(Arc<Allocation>);

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.0.len).finish_non_exhaustive()
    }
}

impl DeviceBuffer {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Its address, for others to use. From then on its memory is reused only after the whole device was waited for.
    pub fn export(&self) -> u64 {
        self.0.foreign.store(true, Ordering::Release);
        self.0.address
    }

    /// Whether someone else was given its address.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.foreign.load(Ordering::Acquire)
    }

    /// Its address, for our own kernels.
    pub(crate) fn address(&self) -> Address {
        self.0.address
    }

    /// Address of the part from `offset` on, if the buffer has `len` bytes there.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<Address, DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.0.len => Ok(self.0.address + offset as u64),
            _ => Err(DeviceError::Usage(format!("{len} bytes at {offset} of a device buffer of {}", self.0.len))),
        }
    }
}

/// Pinned memory, one owner's.
pub struct Chunk {
    memory: Arc<Memory>,
    pinned: Option<Pinned>,
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chunk")
    }
}

impl Chunk {
    /// Its bytes; what was there before is still there.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &self.pinned {
            // SAFETY: the chunk owns CHUNK bytes that were zeroed when it was allocated, and no copy is under way.
            Some(pinned) => unsafe { std::slice::from_raw_parts_mut(pinned.0, CHUNK) },
            None => &mut [],
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            lock(&self.memory.pinned).free.push(pinned);
        }
    }
}

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

/// Bytes on the host that a library reads, one list for each tile.
pub(crate) type HostBytes = Arc<Vec<Vec<u8>>>;

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
