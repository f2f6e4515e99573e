//! One read on the device: its memory, its streams, and the batches that run through them.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{
    counters::{Counters, Meter},
    decode::{
        batch::{DecodeBatch, Placement},
        footprint::{Footprint, TABLE_HEAD},
        path::DecodePath,
        placing::{place_params, plane_params},
        plan::DecodePlan,
        status::TileStatus,
        tables::{chunk_tables, piece_tables, sample_table},
    },
    driver::{
        launch::{
            nvjpeg2k::DecodeSessions,
            place::{PlaceLaunch, PlaceParams, PlaceTile, launch_place},
            slice::BufferSlice,
        },
        memory::{
            pool::{DeviceBuffer, allocated_len},
            streams::{Event, Streams},
        },
    },
    error::DeviceError,
    gpu::Gpu,
};

/// Streams that kernels run on: enough that the last blocks of one group run beside the first blocks of the next.
pub(super) const COMPUTE_STREAMS: usize = 4;
/// Streams that nvJPEG2000 works on: one tile fills only a small part of the device.
const IMAGE_STREAMS: usize = 16;

/// One half of the working memory.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) compressed: DeviceBuffer,
    pub(super) decoded: Option<DeviceBuffer>,
    pub(super) tables: DeviceBuffer,
    /// Kernel scratch, where each tile has its own.
    pub(super) scratch: Option<DeviceBuffer>,
    /// Events after the kernels of the last batch in this half.
    pub(super) last_batch_done: Mutex<Vec<Event>>,
    /// The same point, for a host that must wait for it. `None` before the second batch.
    pub(super) kernels_done: Mutex<Option<Event>>,
}

/// One read on the device.
#[derive(Debug)]
pub struct Decoder {
    pub(super) gpu: Arc<Gpu>,
    pub(super) plan: DecodePlan,
    pub(super) stored: PlaceParams,
    pub(super) native: PlaceParams,
    pub(super) streams: Streams,
    pub(super) meter: Arc<Meter>,
    pub(super) output: DeviceBuffer,
    pub(super) statuses: DeviceBuffer,
    pub(super) tiles: usize,
    /// Kernel scratch, where the launches on a stream share it.
    pub(super) scratch: Option<DeviceBuffer>,
    pub(super) halves: Vec<Half>,
    /// Number of streams that kernels run on.
    pub(super) compute: usize,
    pub(super) next_stream: AtomicUsize,
    pub(super) timing: Mutex<Vec<[Event; 3]>>,
    /// For each output band of a placement, the number of the sample.
    pub(super) placed_samples: Vec<u16>,
    pub(super) sessions: Mutex<DecodeSessions>,
    /// Why libraries refused tiles of the read, by tile number.
    pub(super) refusals: Mutex<HashMap<usize, String>>,
    pub(super) has_loss: AtomicBool,
    /// Temporary memory of libraries, by compute stream.
    pub(super) temporary: Mutex<HashMap<usize, Option<DeviceBuffer>>>,
}

/// Milliseconds that kernels took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KernelTimes {
    /// Time of the decoding kernels.
    pub decode_ms: f32,
    /// Time of the placing kernels.
    pub place_ms: f32,
}

impl Decoder {
    /// Allocates the memory for a read of `tiles` tiles in batches of at most `room`. `halves` (1 or 2) of them are on
    /// the device at once.
    ///
    /// # Errors
    /// When the device has too little memory, or a kernel cannot be loaded.
    pub fn new(
        gpu: &Arc<Gpu>,
        plan: DecodePlan,
        tiles: usize,
        room: Footprint,
        halves: usize,
    ) -> Result<Self, DeviceError> {
        let meter = Arc::new(Meter::default());
        let memory = &gpu.memory;
        let len = plan.output.len().ok_or_else(|| DeviceError::Usage("the output is larger than memory".into()))?;
        let halves = halves.clamp(1, 2);
        let compute = if plan.path == DecodePath::Jpeg2000 { IMAGE_STREAMS } else { COMPUTE_STREAMS };
        let streams = Streams::new(memory.clone(), meter.clone(), halves + compute)?;
        let output = memory.buffer(len, &meter)?;
        let statuses = memory.buffer(tiles.max(1) * size_of::<u32>(), &meter)?;
        let scratch = match scratch_len(plan.path) {
            0 => None,
            len => Some(memory.buffer(len, &meter)?),
        };
        let tables = usize::try_from(room.tables + TABLE_HEAD).unwrap_or(usize::MAX);
        // Batches of sparse tiles only need no scratch.
        let tile_scratch = if plan.path.has_tile_scratch() { room.temporary } else { 0 };
        let mut halves_taken = Vec::with_capacity(halves);
        for _ in 0..halves {
            let buffer = |len: u64| memory.buffer(usize::try_from(len).unwrap_or(usize::MAX), &meter);
            halves_taken.push(Half {
                compressed: buffer(room.compressed.max(u64::from(!plan.path.uploads_streams())))?,
                decoded: if plan.path.decodes_apart() { Some(buffer(room.decoded)?) } else { None },
                tables: memory.buffer(tables, &meter)?,
                scratch: if tile_scratch > 0 { Some(buffer(tile_scratch)?) } else { None },
                last_batch_done: Mutex::default(),
                kernels_done: Mutex::default(),
            });
        }
        // All statuses start as "not reached".
        streams.fill(0, &statuses, 0, statuses.len(), 0xff)?;
        let ready = streams.record(0)?;
        for stream in 1..halves + compute {
            streams.wait(stream, &ready)?;
        }
        let params = |stored| place_params(&plan.spec, stored, &plan.output, plan.samples.len(), &plan.fill);
        let planes = plan.path.decodes_from_host();
        let native = params(false);
        let stored = match plan.path {
            _ if planes => plane_params(&plan.spec, &plan.output, &plan.fill),
            path => params(path.uploads_streams()),
        };
        let placed_samples = if planes { vec![0] } else { plan.samples.clone() };
        Ok(Self {
            gpu: gpu.clone(),
            stored,
            native,
            plan,
            streams,
            meter,
            output,
            statuses,
            tiles,
            scratch,
            halves: halves_taken,
            compute,
            next_stream: AtomicUsize::new(0),
            timing: Mutex::default(),
            placed_samples,
            sessions: Mutex::default(),
            refusals: Mutex::default(),
            has_loss: AtomicBool::new(false),
            temporary: Mutex::default(),
        })
    }

    /// Returns the bytes that a read takes besides its batches: output, statuses and shared kernel scratch.
    pub fn fixed_bytes(plan: &DecodePlan, tiles: u64) -> u64 {
        let output = plan.output.len().map_or(u64::MAX, |len| len as u64);
        allocated_len(output)
            .saturating_add(allocated_len(tiles.max(1) * 4))
            .saturating_add(allocated_len(scratch_len(plan.path) as u64))
    }

    /// Starts a batch in one half of the working memory. Uploads its tables; copies of its tiles wait until the
    /// previous batch in this half is done.
    ///
    /// # Errors
    /// When the batch is larger than the half, or a call fails.
    pub fn begin(&self, half: usize, batch: &DecodeBatch) -> Result<(), DeviceError> {
        let working = self.half(half)?;
        let previous = std::mem::take(&mut *working.last_batch_done.lock().unwrap_or_else(PoisonError::into_inner));
        let (compressed, decoded) = (working.compressed.len(), working.decoded.as_ref().map_or(0, DeviceBuffer::len));
        let scratch = working.scratch.as_ref().map_or(0, DeviceBuffer::len);
        let needed_scratch = batch.tiles.len().saturating_mul(self.plan.path.tile_scratch(self.plan.largest));
        if batch.compressed > compressed || batch.decoded > decoded || needed_scratch > scratch {
            return Err(DeviceError::Internal("a batch is larger than its half of the working memory".into()));
        }
        for event in &previous {
            self.streams.wait(half, event)?;
        }
        let kernels_done = if previous.is_empty() { None } else { Some(self.streams.record(half)?) };
        *working.kernels_done.lock().unwrap_or_else(PoisonError::into_inner) = kernels_done;
        let mut tables = sample_table(&self.placed_samples);
        tables.extend_from_slice(bytemuck::cast_slice(&batch.tiles));
        tables.extend_from_slice(bytemuck::cast_slice(&batch.placements));
        if let (true, Some(decoded)) = (batch.chunks, &working.decoded) {
            tables.extend_from_slice(&chunk_tables(batch, working.compressed.address(), decoded.address()));
        }
        tables.extend_from_slice(&piece_tables(batch));
        self.streams.upload_bytes(half, &tables, &working.tables, 0)
    }

    pub(super) fn half(&self, half: usize) -> Result<&Half, DeviceError> {
        self.halves.get(half).ok_or_else(|| DeviceError::Internal("the working memory has two halves only".into()))
    }

    /// Returns why a library refused a tile of the read, if it did.
    pub fn refusal(&self, tile: usize) -> Option<String> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).get(&tile).cloned()
    }

    /// Whether the read met tiles that a library may round differently from the CPU.
    pub fn has_loss(&self) -> bool {
        self.has_loss.load(Ordering::Relaxed)
    }

    /// Ends a batch. Its half is free when the kernels launched so far are done.
    ///
    /// # Errors
    /// When a call fails.
    pub fn end(&self, half: usize) -> Result<(), DeviceError> {
        let first = self.halves.len();
        let marks =
            (first..first + self.compute).map(|stream| self.streams.record(stream)).collect::<Result<_, _>>()?;
        *self.half(half)?.last_batch_done.lock().unwrap_or_else(PoisonError::into_inner) = marks;
        Ok(())
    }

    /// Waits for the device, once, and returns the status of each tile.
    ///
    /// # Errors
    /// When the device failed.
    pub fn finish(&self) -> Result<Vec<TileStatus>, DeviceError> {
        if !self.plan.path.has_statuses() || self.tiles == 0 {
            self.streams.synchronize()?;
            return Ok(vec![TileStatus::Ok; self.tiles]);
        }
        let mut bytes = vec![0; self.tiles * size_of::<u32>()];
        self.streams.finish(&self.statuses, 0, &mut bytes)?;
        let statuses = bytes.as_chunks::<4>().0.iter().map(|status| u32::from_ne_bytes(*status));
        Ok(statuses.map(TileStatus::from_device).collect())
    }

    /// Copies bytes of a half's compressed buffer to the host.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn bring_back(&self, half: usize, range: Range<usize>) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; range.len()];
        self.streams.finish(&self.half(half)?.compressed, range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Places a tile that the CPU decoded: whole samples in native order.
    ///
    /// # Errors
    /// When the device has too little memory, or a call fails.
    pub fn patch(&self, tile: &[u8], placements: &[Placement]) -> Result<(), DeviceError> {
        let memory = &self.gpu.memory;
        let source = memory.buffer(tile.len(), &self.meter)?;
        let entries: Vec<PlaceTile> =
            placements.iter().map(|placement| PlaceTile { src_len: tile.len() as u64, ..placement.entry() }).collect();
        let mut bytes = sample_table(&self.plan.samples);
        let samples = bytes.len();
        bytes.extend_from_slice(bytemuck::cast_slice(&entries));
        let tables = memory.buffer(bytes.len(), &self.meter)?;
        self.streams.upload_bytes(0, tile, &source, 0)?;
        self.streams.upload_bytes(0, &bytes, &tables, 0)?;
        let launch = PlaceLaunch {
            source: BufferSlice { buffer: &source, offset: 0, len: tile.len() },
            output: &self.output,
            tiles: BufferSlice { buffer: &tables, offset: samples, len: bytes.len() - samples },
            status: None,
            samples: BufferSlice { buffer: &tables, offset: 0, len: samples },
            count: entries.len() as u32,
            rows: placements.iter().map(|placement| placement.size.1).max().unwrap_or(0),
        };
        launch_place(&self.streams, 0, &self.native, &launch)?;
        self.streams.synchronize()
    }

    /// Returns the kernel times of a timed read. The caller has waited for the device.
    ///
    /// # Errors
    /// When the driver fails to report them.
    pub fn times(&self) -> Result<KernelTimes, DeviceError> {
        let mut times = KernelTimes::default();
        for [started, decoded, ended] in &*self.timing.lock().unwrap_or_else(PoisonError::into_inner) {
            times.decode_ms += self.streams.elapsed(started, decoded)?;
            times.place_ms += self.streams.elapsed(decoded, ended)?;
        }
        Ok(times)
    }

    /// Returns what the read cost so far.
    pub fn counters(&self) -> Counters {
        self.meter.counters()
    }

    /// Returns the samples, an event after the read for streams of other code, and the cost of the read.
    ///
    /// # Errors
    /// When the event cannot be created.
    pub fn into_output(self) -> Result<(DeviceBuffer, Event, Counters), DeviceError> {
        let ready = self.streams.record(0)?;
        Ok((self.output.clone(), ready, self.meter.counters()))
    }
}

/// Returns the bytes of scratch that the kernels on all streams share.
fn scratch_len(path: DecodePath) -> usize {
    path.kernel().map_or(0, |kernel| kernel.scratch_len() * COMPUTE_STREAMS)
}
