//! Device buffers and pinned chunks, pooled from read to read.
//!
//! No memory is freed or reused while the device works on it. Streams keep the buffers that their work names until they
//! have been waited for, and a pinned chunk returns to the pool when the copy out of it is done.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    counters::Meter,
    driver::{
        context::Context,
        cuda::{Address, Handle},
        libraries::registry::Libraries,
        memory::{
            kernels::{Function, LoadedKernels},
            pinned::{Pinned, PinnedBlockPool, PinnedPool},
        },
    },
    error::DeviceError,
    kernel_code::KernelCode,
};

/// Bytes of a pinned chunk. A copy of this size takes 80 microseconds on PCIe 5, long compared with the cost of
/// starting it.
pub(crate) const CHUNK_LEN: usize = 4 << 20;
/// Most pinned memory for chunks: enough that no reader waits for the bus, little enough for the host.
const MOST_PINNED: usize = 64 * CHUNK_LEN;
/// How long a reader sleeps when every chunk is in flight: a fraction of one copy.
pub(in crate::driver) const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// A context and the memory, streams, events and kernels that are pooled in it.
pub(crate) struct Memory {
    pub(crate) context: Context,
    device: Mutex<DevicePool>,
    pub(in crate::driver) pinned: Mutex<PinnedPool>,
    pub(in crate::driver) large: Mutex<PinnedBlockPool>,
    pub(in crate::driver) handles: Mutex<Handles>,
    kernels: Mutex<LoadedKernels>,
    /// Libraries with states for our streams: they must forget a stream before it is destroyed.
    pub(crate) libraries: Libraries,
    /// Most free device memory to keep for the next read.
    keep: u64,
}

/// Idle streams and events.
#[derive(Default)]
pub(in crate::driver) struct Handles {
    pub(in crate::driver) streams: Vec<Handle>,
    pub(in crate::driver) events: Vec<Handle>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Handles {}

impl Memory {
    pub(crate) fn new(context: Context, libraries: Libraries, code: KernelCode) -> Arc<Self> {
        let keep = context.facts.memory / 4;
        let pinned = PinnedPool { most: MOST_PINNED / CHUNK_LEN, ..PinnedPool::default() };
        Arc::new(Self {
            context,
            device: Mutex::default(),
            pinned: Mutex::new(pinned),
            large: Mutex::default(),
            handles: Mutex::default(),
            kernels: Mutex::new(LoadedKernels::new(code)),
            libraries,
            keep,
        })
    }

    /// Returns the bytes that a read could take: free on the device, or free in the pool.
    pub(crate) fn available(&self) -> Result<u64, DeviceError> {
        let (free, _) = self.context.memory()?;
        Ok(free + lock(&self.device).free_bytes)
    }

    /// Returns a buffer of `len` bytes with undefined content.
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
            Some(FreeBlock { address, foreign, .. }) => {
                if foreign {
                    // The previous user of the block may have queued work that is not done, and no event marks its end.
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

    /// Returns all free blocks, and the memory that libraries keep for idle streams, to the driver.
    pub(crate) fn trim(&self) {
        self.forget_idle_streams();
        let blocks = {
            let mut pool = lock(&self.device);
            pool.free_bytes = 0;
            std::mem::take(&mut pool.free)
        };
        for block in blocks.into_values().flatten() {
            // SAFETY: a free block has no owner, and this context allocated it.
            unsafe { self.context.free(block.address) };
        }
    }

    /// Makes libraries drop their states for the streams in the pool, which are all idle.
    fn forget_idle_streams(&self) {
        let Ok(_current) = self.context.enter() else { return };
        // Out of the pool meanwhile, so that no thread takes one.
        let idle = std::mem::take(&mut lock(&self.handles).streams);
        for stream in &idle {
            // SAFETY: the context is current and the stream is idle.
            unsafe { self.libraries.forget(*stream) };
        }
        lock(&self.handles).streams.extend(idle);
    }

    /// Returns a block to the pool. When the pool is too full, its oldest blocks go back to the driver: blocks of sizes
    /// that are no longer used must not displace those that are.
    fn give_back(&self, address: Address, size: usize, foreign: bool) {
        let mut surplus = Vec::new();
        {
            let mut pool = lock(&self.device);
            pool.returns += 1;
            let block = FreeBlock { address, foreign, returned: pool.returns };
            pool.free.entry(size).or_default().push(block);
            pool.free_bytes += size as u64;
            while pool.free_bytes > self.keep {
                let Some((size, block)) = pool.take_oldest() else { break };
                pool.free_bytes -= size as u64;
                surplus.push(block.address);
            }
        }
        for address in surplus {
            // SAFETY: it has no owner, and it is no longer in the pool.
            unsafe { self.context.free(address) };
        }
    }

    /// Returns a pinned chunk of [`CHUNK_LEN`] bytes. Waits where as many are in use as may be allocated.
    pub(crate) fn chunk(self: &Arc<Self>, meter: &Meter) -> Result<PinnedChunk, DeviceError> {
        loop {
            {
                let mut pool = lock(&self.pinned);
                self.reclaim(&mut pool)?;
                if let Some(pinned) = pool.free.pop() {
                    return Ok(PinnedChunk { memory: self.clone(), pinned: Some(pinned) });
                }
                if pool.count < pool.most {
                    pool.count += 1;
                    drop(pool);
                    match self.context.allocate_host(CHUNK_LEN) {
                        Ok(address) => {
                            // The driver does not promise what is in it.
                            // SAFETY: the chunk was allocated with this length and has no other owner.
                            unsafe { std::ptr::write_bytes(address, 0, CHUNK_LEN) };
                            meter.pinned_allocation();
                            return Ok(PinnedChunk { memory: self.clone(), pinned: Some(Pinned(address)) });
                        }
                        Err(error) => {
                            let mut pool = lock(&self.pinned);
                            pool.count -= 1;
                            pool.most = pool.count;
                            if pool.count == 0 {
                                pool.most = MOST_PINNED / CHUNK_LEN;
                                return Err(error);
                            }
                        }
                    }
                }
            }
            std::thread::sleep(POLL_INTERVAL);
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
                    // Copies of one stream end in order: those behind are probably not done either.
                    pool.busy.push_front((pinned, event));
                    return Ok(());
                }
                Err(error) => {
                    // A failed context runs nothing any more.
                    lock(&self.handles).events.push(event);
                    pool.free.push(pinned);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(in crate::driver) fn event(&self) -> Result<Handle, DeviceError> {
        let idle = lock(&self.handles).events.pop();
        idle.map_or_else(|| self.context.event_create(false), Ok)
    }

    /// Returns the form in which the device gets kernels.
    pub(crate) fn kernel_code(&self) -> KernelCode {
        lock(&self.kernels).code
    }

    /// Takes the notice that the driver refused machine code, if it did since the last call.
    pub(crate) fn take_notice(&self) -> Option<String> {
        lock(&self.kernels).refusal.take()
    }

    /// Returns the kernel `name` of a module. The module loads when one of its kernels is first used.
    pub(crate) fn function(
        &self,
        module: &'static str,
        ptx: &'static str,
        name: &'static str,
    ) -> Result<Function, DeviceError> {
        lock(&self.kernels).function(&self.context, module, ptx, name)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            // This process can free nothing of it, and a thread of the parent may have held its locks.
            std::mem::forget(std::mem::take(&mut self.libraries));
            return;
        }
        // No thread is left that waits for these copies; freeing pinned memory under one would be worse than waiting.
        let busy = std::mem::take(&mut lock(&self.pinned).busy);
        if !busy.is_empty() {
            let _ = self.context.synchronize();
        }
        self.trim();
        // Their handles belong to the context, which is about to be released.
        let libraries = std::mem::take(&mut self.libraries);
        match self.context.enter() {
            Ok(_current) => drop(libraries),
            Err(_) => std::mem::forget(libraries),
        }
        // SAFETY: they were allocated in this context.
        unsafe { lock(&self.large).clear(&self.context) };
        let mut pinned = lock(&self.pinned);
        for chunk in pinned.free.drain(..).chain(busy.into_iter().map(|(chunk, event)| {
            lock(&self.handles).events.push(event);
            chunk
        })) {
            // SAFETY: no copy is in flight, and it has no owner.
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
        // SAFETY: the modules were loaded in this context, and their kernels are reached through `self` only.
        unsafe { lock(&self.kernels).unload(&self.context) };
    }
}

#[derive(Default)]
struct DevicePool {
    /// Free blocks by size.
    free: BTreeMap<usize, Vec<FreeBlock>>,
    free_bytes: u64,
    /// Number of blocks returned so far.
    returns: u64,
}

/// A free block of device memory.
struct FreeBlock {
    address: Address,
    /// Other code has the address and may still have work on it.
    foreign: bool,
    /// The value of `returns` when the block was returned.
    returned: u64,
}

impl DevicePool {
    /// Takes out the oldest block, with its size.
    fn take_oldest(&mut self) -> Option<(usize, FreeBlock)> {
        // Blocks of one size are reused newest first, so the first of a list is its oldest.
        let oldest = self.free.iter().filter_map(|(size, blocks)| Some((blocks.first()?.returned, *size))).min();
        let (_, size) = oldest?;
        let blocks = self.free.get_mut(&size)?;
        let block = blocks.remove(0);
        if blocks.is_empty() {
            self.free.remove(&size);
        }
        Some((size, block))
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("context", &self.context).finish_non_exhaustive()
    }
}

pub(in crate::driver) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the size of the block for `len` bytes. Sizes are rounded up by at most an eighth, so that a read of nearly
/// the same size finds the blocks of the last one.
pub(crate) fn rounded(len: usize) -> usize {
    const LEAST: usize = 64 << 10;
    let grain = len.checked_next_power_of_two().map_or(usize::MAX / 16, |power| power / 16).max(LEAST);
    len.max(1).checked_next_multiple_of(grain).unwrap_or(len)
}

/// Returns the device memory that a buffer of `len` bytes takes.
pub(crate) fn allocated_len(len: u64) -> u64 {
    if len == 0 { 0 } else { usize::try_from(len).map_or(len, |len| rounded(len) as u64) }
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
        if self.memory.context.is_inherited() {
            return;
        }
        self.meter.release(self.size as u64);
        self.memory.give_back(self.address, self.size, self.foreign.load(Ordering::Acquire));
    }
}

/// Memory on the device. Clones share it; the last one returns it to the pool.
#[derive(Clone)]
pub struct DeviceBuffer(Arc<Allocation>);

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.0.len).finish_non_exhaustive()
    }
}

impl DeviceBuffer {
    /// Returns its bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the address for use by other code. From then on the pool reuses the memory only after it has waited for the
    /// whole device.
    pub fn export(&self) -> u64 {
        self.0.foreign.store(true, Ordering::Release);
        self.0.address
    }

    /// Whether [`Self::export`] gave the address to other code.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.foreign.load(Ordering::Acquire)
    }

    /// Returns the address for use by our own kernels.
    pub(crate) fn address(&self) -> Address {
        self.0.address
    }

    /// Returns the address at `offset`, if the buffer has `len` bytes from there on.
    pub(crate) fn address_at(&self, offset: usize, len: usize) -> Result<Address, DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.0.len => Ok(self.0.address + offset as u64),
            _ => Err(DeviceError::Internal(format!(
                "{len} bytes at {offset} are outside a device buffer of {} bytes",
                self.0.len
            ))),
        }
    }
}

/// A chunk of pinned memory with one owner.
pub struct PinnedChunk {
    memory: Arc<Memory>,
    pub(in crate::driver) pinned: Option<Pinned>,
}

impl std::fmt::Debug for PinnedChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinnedChunk")
    }
}

impl PinnedChunk {
    /// Returns its bytes, with whatever content they had.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &self.pinned {
            // SAFETY: the chunk owns CHUNK_LEN bytes that were zeroed when it was allocated, and no copy is in flight.
            Some(pinned) => unsafe { std::slice::from_raw_parts_mut(pinned.0, CHUNK_LEN) },
            None => &mut [],
        }
    }
}

impl Drop for PinnedChunk {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            lock(&self.memory.pinned).free.push(pinned);
        }
    }
}
