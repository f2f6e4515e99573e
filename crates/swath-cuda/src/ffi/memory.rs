//! Device buffers and pinned chunks: what a read holds, pooled from read to read.
//!
//! Nothing here can be freed or reused while the device works on it: streams keep the buffers that their work names until they
//! were waited for, and a pinned chunk comes back only when the copy out of it is done.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ffi::CString,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    code::KernelCode,
    counters::Meter,
    error::DeviceError,
    ffi::{
        driver::{Address, Context, Handle},
        landing::LargePool,
        libraries::Libraries,
    },
};

/// Bytes of a pinned chunk. A copy of this size takes 80 microseconds on PCIe 5, long against what starting it costs.
pub(crate) const CHUNK: usize = 4 << 20;
/// Pinned memory that is ever taken: enough that no reader waits for the bus, little enough to leave the host alone.
const MOST_PINNED: usize = 64 * CHUNK;
/// How long a reader sleeps that finds every chunk in flight: a fraction of one copy.
pub(super) const NAP: Duration = Duration::from_micros(20);

/// A context and all that is pooled in it.
pub(crate) struct Memory {
    pub(crate) context: Context,
    device: Mutex<DevicePool>,
    pub(super) pinned: Mutex<PinnedPool>,
    pub(super) large: Mutex<LargePool>,
    pub(super) handles: Mutex<Handles>,
    /// What keeps states for our streams, and so has to be told before one is destroyed.
    pub(crate) libraries: Libraries,
    /// Free device memory that is kept for the next read.
    keep: u64,
}

#[derive(Default)]
struct DevicePool {
    /// Free blocks by size.
    free: BTreeMap<usize, Vec<FreeBlock>>,
    free_bytes: u64,
    /// Blocks that were given back so far.
    returns: u64,
}

/// A free block of device memory.
struct FreeBlock {
    address: Address,
    /// Someone outside was given the address and may still have work under way on it.
    foreign: bool,
    /// When it was given back.
    returned: u64,
}

impl DevicePool {
    /// Takes the block out that was given back first, with its size.
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

#[derive(Default)]
pub(super) struct PinnedPool {
    pub(super) free: Vec<Pinned>,
    /// Chunks that are being copied from, and the event that ends each copy.
    pub(super) busy: VecDeque<(Pinned, Handle)>,
    /// Chunks there are.
    count: usize,
    /// Chunks there may be; less than the limit once the system refused one.
    most: usize,
}

// SAFETY: chunks are plain memory with one owner, and events may be used from any thread.
unsafe impl Send for PinnedPool {}

pub(super) struct Pinned(pub(super) *mut u8);

// SAFETY: plain memory that has one owner at a time.
unsafe impl Send for Pinned {}

pub(super) struct Handles {
    pub(super) streams: Vec<Handle>,
    pub(super) events: Vec<Handle>,
    modules: HashMap<&'static str, Handle>,
    functions: HashMap<&'static str, Function>,
    /// The form in which the next module is loaded.
    code: KernelCode,
    /// Why that is not the form that was chosen at first, until someone takes it for a report.
    refusal: Option<String>,
}

impl Handles {
    fn new(code: KernelCode) -> Self {
        Self {
            streams: Vec::new(),
            events: Vec::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            code,
            refusal: None,
        }
    }
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Handles {}

/// A kernel that is ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(super) raw: Handle,
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    pub(crate) fn new(context: Context, libraries: Libraries, code: KernelCode) -> Arc<Self> {
        let keep = context.facts.memory / 4;
        let pinned = PinnedPool { most: MOST_PINNED / CHUNK, ..PinnedPool::default() };
        Arc::new(Self {
            context,
            device: Mutex::default(),
            pinned: Mutex::new(pinned),
            large: Mutex::default(),
            handles: Mutex::new(Handles::new(code)),
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
            Some(FreeBlock { address, foreign, .. }) => {
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
        for block in blocks.into_values().flatten() {
            // SAFETY: a free block is nobody's, and it was allocated by this context.
            unsafe { self.context.free(block.address) };
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

    /// Takes a block into the pool. Those that were there longest go back to the driver where there would be too many: sizes that
    /// nobody asks for any more must not keep out those that are asked for.
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
            // SAFETY: nobody owns it, and nobody finds it in the pool any more.
            unsafe { self.context.free(address) };
        }
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

    pub(super) fn event(&self) -> Result<Handle, DeviceError> {
        let idle = lock(&self.handles).events.pop();
        idle.map_or_else(|| self.context.event_create(false), Ok)
    }

    /// The form in which the device gets kernels.
    pub(crate) fn kernel_code(&self) -> KernelCode {
        lock(&self.handles).code
    }

    /// Takes the notice that the driver refused machine code, where it did since the last call.
    pub(crate) fn take_notice(&self) -> Option<String> {
        lock(&self.handles).refusal.take()
    }

    /// The kernel `name` of a module, which is loaded when a kernel of it is first used.
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
        let loaded = match handles.modules.get(module) {
            Some(loaded) => *loaded,
            None => {
                let loaded = self.load(&mut handles, module, ptx)?;
                handles.modules.insert(module, loaded);
                loaded
            }
        };
        let threads = threads_of(ptx, name).ok_or_else(|| {
            DeviceError::Usage(format!("{module}: its text does not say how many threads {name} has"))
        })?;
        // SAFETY: modules stay loaded as long as `self`.
        let raw = unsafe { self.context.module_function(loaded, &ended(name)?) }?;
        // These have no shared memory and live on the cache.
        let on_cache = matches!(module, "place" | "take" | "cut" | "pack" | "adler") || module.starts_with("shrink");
        if !on_cache {
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

    /// Loads a module: machine code where there is some for this chip, else PTX. A driver that refuses machine code gets PTX
    /// from then on.
    fn load(&self, handles: &mut Handles, module: &'static str, ptx: &str) -> Result<Handle, DeviceError> {
        let mut refusal = None;
        if let Some(archive) = handles.code.archive() {
            let found = archive.module(module).map_err(DeviceError::Usage);
            // SAFETY: images in archives are whole cubins.
            match found.and_then(|image| unsafe { self.context.module_load(module, image) }) {
                Err(error) if !error.is_out_of_memory() => refusal = Some(error),
                result => return result,
            }
        }
        // SAFETY: the text ends with a zero.
        let loaded = unsafe { self.context.module_load(module, ended(ptx)?.as_bytes_with_nul()) }?;
        // Only now: a device that is lost refuses both.
        if let Some(error) = refusal {
            handles.refusal = Some(format!("the driver compiles the kernels: it refused {} ({error})", handles.code));
            handles.code = KernelCode::Ptx;
        }
        Ok(loaded)
    }
}

/// A text as the driver wants it.
fn ended(text: &str) -> Result<CString, DeviceError> {
    CString::new(text).map_err(|_| DeviceError::Usage("a kernel's text or name holds a zero".into()))
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
        if self.context.is_inherited() {
            // Nothing of it can be freed here, and a thread of the parent may have held its locks.
            std::mem::forget(std::mem::take(&mut self.libraries));
            return;
        }
        // Nobody is left who could wait for a copy; freeing pinned memory under one would be worse than waiting.
        let busy = std::mem::take(&mut lock(&self.pinned).busy);
        if !busy.is_empty() {
            let _ = self.context.synchronize();
        }
        self.trim();
        // Their handles belong to the context, which is about to go.
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
        if self.memory.context.is_inherited() {
            return;
        }
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
    pub(super) pinned: Option<Pinned>,
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
