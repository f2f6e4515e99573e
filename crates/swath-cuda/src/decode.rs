//! One read on the device: tiles go in by bands, samples stand in one buffer at the end.
//!
//! A [`Band`] is some tiles with their placements, cut into groups. The caller uploads the bytes of a group in any order and from
//! any thread, then launches it; groups run on several streams, so the copies of one overlap the kernels of another. Two bands
//! at most are on the device at once, in the two halves of the working memory. The host waits once, in [`Decoder::finish`].

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use swath_codec::TileSpec;

use crate::{
    band::{Band, Footprint, Group, Placement, TABLE_HEAD, chunk_tables, chunks_at, held, piece_tables, sample_table},
    counters::{Counters, Meter},
    error::DeviceError,
    ffi::{
        kernels::{
            self, DecodeBatch, Part, PieceBatch, PieceJob, PieceNote, PieceRange, PlaceBatch, PlaceRule, PlaceTile,
            TileJob,
        },
        libraries::{self, Lanes, Planes},
        memory::{Chunk, DeviceBuffer},
        storage::{self, FilePart, Submission},
        streams::{HostBytes, HostTile, Mark, Streams},
    },
    gpu::{DirectFile, Gpu},
    rule::{Output, PlaneLayout, Way, components, picture, place_rule, plane_rule},
    status::TileStatus,
};

/// Streams that kernels run on: enough that the last blocks of one group run beside the first of the next.
const COMPUTE: usize = 4;
/// Streams that nvJPEG2000 works on: a single tile of its fills a small part of the device.
const PICTURE_COMPUTE: usize = 16;
/// Tiles that nvJPEG2000 has under way, and bytes of them: it keeps about eight times as many for itself.
const MOST_LANES: usize = 64;
const MOST_IN_LANES: usize = 256 << 20;

/// The status of a tile that a library on the host refused.
const REFUSED: u32 = 0x100;

/// What all tiles of a read have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What the tiles are like.
    pub spec: Arc<TileSpec>,
    /// How they are decoded.
    pub way: Way,
    /// Where the samples go.
    pub output: Output,
    /// For each output band that a tile fills, which sample of the tile it is.
    pub samples: Vec<u16>,
    /// One output sample of what sparse tiles hold.
    pub fill: Vec<u8>,
    /// Decoded bytes of the largest tile that such a file has: scratch of kernels is as long for all tiles of a read.
    pub largest: usize,
    /// Whether kernels are timed; then they all run after the last copy.
    pub timed: bool,
}

/// One of the two halves of the working memory.
#[derive(Debug)]
struct Half {
    compressed: DeviceBuffer,
    decoded: Option<DeviceBuffer>,
    tables: DeviceBuffer,
    /// Scratch of kernels, where each tile has some of its own.
    scratch: Option<DeviceBuffer>,
    /// When the kernels of the band that was here last are done.
    free: Mutex<Vec<Mark>>,
    /// The same point for a host that is to wait for it, where a band was here before.
    clear: Mutex<Option<Mark>>,
}

/// One read on the device.
#[derive(Debug)]
pub struct Decoder {
    gpu: Arc<Gpu>,
    plan: Plan,
    stored: PlaceRule,
    native: PlaceRule,
    streams: Streams,
    meter: Arc<Meter>,
    output: DeviceBuffer,
    statuses: DeviceBuffer,
    tiles: usize,
    /// Scratch of kernels, where the launches on a stream share some.
    scratch: Option<DeviceBuffer>,
    halves: Vec<Half>,
    /// Streams that kernels run on.
    compute: usize,
    next_stream: AtomicUsize,
    timing: Mutex<Vec<[Mark; 3]>>,
    /// Which sample each output band of a placement is.
    placed_samples: Vec<u16>,
    lanes: Mutex<Lanes>,
    /// What libraries on the host said against tiles of the read, by their number.
    refusals: Mutex<HashMap<usize, String>>,
    has_loss: AtomicBool,
    /// Temporary memory of libraries, by compute stream.
    temporary: Mutex<HashMap<usize, Option<DeviceBuffer>>>,
}

/// Milliseconds that kernels took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KernelTimes {
    /// Decoding.
    pub decode_ms: f32,
    /// Placing.
    pub place_ms: f32,
}

impl Decoder {
    /// Takes the memory for a read of `tiles` tiles in bands of at most `room`, `halves` (1 or 2) of them at once.
    ///
    /// # Errors
    /// When the device has not that much memory, or a kernel cannot be loaded.
    pub fn new(gpu: &Arc<Gpu>, plan: Plan, tiles: usize, room: Footprint, halves: usize) -> Result<Self, DeviceError> {
        let meter = Arc::new(Meter::default());
        let memory = &gpu.memory;
        let len = plan.output.len().ok_or_else(|| DeviceError::Usage("the output is larger than memory".into()))?;
        let halves = halves.clamp(1, 2);
        let compute = if plan.way == Way::Jpeg2000 { PICTURE_COMPUTE } else { COMPUTE };
        let streams = Streams::new(memory.clone(), meter.clone(), halves + compute)?;
        let output = memory.buffer(len, &meter)?;
        let statuses = memory.buffer(tiles.max(1) * size_of::<u32>(), &meter)?;
        let scratch = match scratch_len(plan.way) {
            0 => None,
            len => Some(memory.buffer(len, &meter)?),
        };
        let tables = usize::try_from(room.tables + TABLE_HEAD).unwrap_or(usize::MAX);
        // Bands of nothing but sparse tiles need none.
        let tile_scratch = if plan.way.has_tile_scratch() { room.temporary } else { 0 };
        let mut halves_taken = Vec::with_capacity(halves);
        for _ in 0..halves {
            let buffer = |len: u64| memory.buffer(usize::try_from(len).unwrap_or(usize::MAX), &meter);
            halves_taken.push(Half {
                compressed: buffer(room.compressed.max(u64::from(!plan.way.uploads_streams())))?,
                decoded: if plan.way.decodes_apart() { Some(buffer(room.decoded)?) } else { None },
                tables: memory.buffer(tables, &meter)?,
                scratch: if tile_scratch > 0 { Some(buffer(tile_scratch)?) } else { None },
                free: Mutex::default(),
                clear: Mutex::default(),
            });
        }
        // No kernel has reached any tile yet.
        streams.fill(0, &statuses, 0, statuses.len(), 0xff)?;
        let ready = streams.mark(0)?;
        for stream in 1..halves + compute {
            streams.wait(stream, &ready)?;
        }
        let rule = |stored| place_rule(&plan.spec, stored, &plan.output, plan.samples.len(), &plan.fill);
        let planes = plan.way.decodes_from_host();
        let native = rule(false);
        let stored = match plan.way {
            _ if planes => plane_rule(&plan.spec, &plan.output, &plan.fill),
            way => rule(way.uploads_streams()),
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
            lanes: Mutex::default(),
            refusals: Mutex::default(),
            has_loss: AtomicBool::new(false),
            temporary: Mutex::default(),
        })
    }

    /// What a read takes besides its bands: output, statuses and the scratch of kernels.
    pub fn fixed_bytes(plan: &Plan, tiles: u64) -> u64 {
        let output = plan.output.len().map_or(u64::MAX, |len| len as u64);
        held(output).saturating_add(held(tiles.max(1) * 4)).saturating_add(held(scratch_len(plan.way) as u64))
    }

    /// Starts a band in one half of the working memory: its tables go ahead, and copies of its tiles wait until the band that
    /// was there before is done.
    ///
    /// # Errors
    /// When the band is larger than the half, or a call fails.
    pub fn begin(&self, half: usize, band: &Band) -> Result<(), DeviceError> {
        let place = self.half(half)?;
        let free = std::mem::take(&mut *place.free.lock().unwrap_or_else(PoisonError::into_inner));
        let (compressed, decoded) = (place.compressed.len(), place.decoded.as_ref().map_or(0, DeviceBuffer::len));
        let scratch = place.scratch.as_ref().map_or(0, DeviceBuffer::len);
        let wanted = band.tiles.len().saturating_mul(self.plan.way.tile_scratch(self.plan.largest));
        if band.compressed > compressed || band.decoded > decoded || wanted > scratch {
            return Err(DeviceError::Usage("a band is larger than its half of the memory".into()));
        }
        for mark in &free {
            self.streams.wait(half, mark)?;
        }
        let clear = if free.is_empty() { None } else { Some(self.streams.mark(half)?) };
        *place.clear.lock().unwrap_or_else(PoisonError::into_inner) = clear;
        let mut tables = sample_table(&self.placed_samples);
        tables.extend_from_slice(bytemuck::cast_slice(&band.tiles));
        tables.extend_from_slice(bytemuck::cast_slice(&band.placements));
        if let (true, Some(decoded)) = (band.chunks, &place.decoded) {
            tables.extend_from_slice(&chunk_tables(band, place.compressed.address(), decoded.address()));
        }
        tables.extend_from_slice(&piece_tables(band));
        self.streams.upload_bytes(half, &tables, &place.tables, 0)
    }

    fn half(&self, half: usize) -> Result<&Half, DeviceError> {
        self.halves.get(half).ok_or_else(|| DeviceError::Usage("there is no such half".into()))
    }

    /// What threads upload with while the owner launches.
    pub fn uploader(&self) -> Uploader<'_> {
        Uploader(self)
    }

    /// Decodes and places a group whose bytes were all given to [`Uploader::upload`].
    ///
    /// # Errors
    /// When a call fails.
    pub fn launch(&self, half: usize, band: &Band, group: usize) -> Result<(), DeviceError> {
        self.launch_group(half, band, group, None)
    }

    /// Decodes and places a group whose compressed bytes are here, on the host: one stream for each tile, in their
    /// order. A tile without one is refused for the reason it comes with.
    ///
    /// # Errors
    /// When a call fails. What a library refuses is no error: [`Decoder::finish`] tells.
    pub fn launch_from_host(
        &self,
        half: usize,
        band: &Band,
        group: usize,
        bytes: Vec<HostTile>,
    ) -> Result<(), DeviceError> {
        self.launch_group(half, band, group, Some(Arc::new(bytes)))
    }

    fn launch_group(
        &self,
        half: usize,
        band: &Band,
        group: usize,
        bytes: Option<HostBytes>,
    ) -> Result<(), DeviceError> {
        let number = match self.plan.way {
            // nvCOMP's temporary memory is set aside for each half, or for two groups of a single one; groups that share it run
            // one after the other.
            Way::Lz4 if self.halves.len() > 1 => half,
            Way::Lz4 => group % 2,
            _ => self.next_stream.fetch_add(1, Ordering::Relaxed) % self.compute,
        };
        let group = band.groups.get(group).cloned().unwrap_or_default();
        let stream = self.halves.len() + number;
        let uploaded = self.streams.mark(half)?;
        self.streams.wait(stream, &uploaded)?;
        let (streams, place) = (&self.streams, self.half(half)?);
        let begun = self.plan.timed.then(|| streams.timed_mark(stream)).transpose()?;
        let compressed = Part { buffer: &place.compressed, offset: 0, len: place.compressed.len() };
        let samples = sample_table(&self.placed_samples).len();
        let tiles_at = samples;
        let places_at = samples + band.tiles.len() * size_of::<TileJob>();
        let count = group.tiles.len();
        if self.plan.spec.bits_reversed && self.plan.way.uploads_streams() {
            let len = group.compressed.len();
            kernels::reverse(streams, stream, Part { buffer: &place.compressed, offset: group.compressed.start, len })?;
        }
        let kernel = self.plan.way.kernel();
        if let (Some(kernel), Some(decoded), true) = (kernel, &place.decoded, count > 0) {
            let batch = DecodeBatch {
                compressed,
                decoded: Part { buffer: decoded, offset: 0, len: decoded.len() },
                tiles: Part {
                    buffer: &place.tables,
                    offset: tiles_at + group.tiles.start * size_of::<TileJob>(),
                    len: count * size_of::<TileJob>(),
                },
                status: Part {
                    buffer: &self.statuses,
                    offset: (band.first_status + group.tiles.start) * size_of::<u32>(),
                    len: count * size_of::<u32>(),
                },
                scratch: self.scratch_of(place, number, &group),
                count: count as u32,
                longest: band.longest(&group),
                largest: self.plan.largest,
                at_once: band.tiles.len(),
            };
            kernel.launch(streams, stream, &batch)?;
        }
        if let (true, Some(decoded), true) = (self.plan.way.has_pieces(), &place.decoded, count > 0) {
            self.inflate_pieces(stream, place, decoded, band, &group)?;
        }
        if let (Way::Lz4, Some(decoded), true) = (self.plan.way, &place.decoded, count > 0) {
            self.decompress(stream, number, place, decoded, band, &group)?;
        }
        if let (Some(bytes), Some(decoded), true) = (&bytes, &place.decoded, count > 0) {
            self.decode_planes(half, stream, decoded, band, &group, bytes)?;
        }
        let decoded = self.plan.timed.then(|| streams.timed_mark(stream)).transpose()?;
        let source = match &place.decoded {
            Some(decoded) => Part { buffer: decoded, offset: 0, len: decoded.len() },
            None => compressed,
        };
        let placed = PlaceBatch {
            source,
            output: &self.output,
            tiles: Part {
                buffer: &place.tables,
                offset: places_at + group.placements.start * size_of::<PlaceTile>(),
                len: group.placements.len() * size_of::<PlaceTile>(),
            },
            status: self.plan.way.has_statuses().then_some(Part {
                buffer: &self.statuses,
                offset: 0,
                len: self.statuses.len(),
            }),
            samples: Part { buffer: &place.tables, offset: 0, len: samples },
            count: group.placements.len() as u32,
            rows: group.rows,
        };
        kernels::place(streams, stream, &self.stored, &placed)?;
        if let (Some(begun), Some(decoded)) = (begun, decoded) {
            let ended = streams.timed_mark(stream)?;
            self.timing.lock().unwrap_or_else(PoisonError::into_inner).push([begun, decoded, ended]);
        }
        Ok(())
    }

    /// The scratch of a group's kernels: that of its stream, or that of its tiles.
    fn scratch_of<'a>(&'a self, place: &'a Half, number: usize, group: &Group) -> Option<Part<'a>> {
        if let Some(buffer) = &place.scratch {
            let each = self.plan.way.tile_scratch(self.plan.largest);
            return Some(Part { buffer, offset: group.tiles.start * each, len: group.tiles.len() * each });
        }
        let buffer = self.scratch.as_ref()?;
        let len = buffer.len() / COMPUTE;
        Some(Part { buffer, offset: number * len, len })
    }

    /// Decodes the tiles of a group by their pieces.
    fn inflate_pieces(
        &self,
        stream: usize,
        place: &Half,
        decoded: &DeviceBuffer,
        band: &Band,
        group: &Group,
    ) -> Result<(), DeviceError> {
        let count = group.tiles.len();
        let table = |offset, len| Part { buffer: &place.tables, offset, len };
        let tiles_at = sample_table(&self.placed_samples).len();
        let pieces_at = chunks_at(&self.placed_samples, band);
        let ranges_at = pieces_at + band.pieces.len() * size_of::<PieceJob>();
        let notes_at = ranges_at + band.ranges.len() * size_of::<PieceRange>();
        let batch = PieceBatch {
            compressed: Part { buffer: &place.compressed, offset: 0, len: place.compressed.len() },
            decoded: Part { buffer: decoded, offset: 0, len: decoded.len() },
            tiles: table(tiles_at + group.tiles.start * size_of::<TileJob>(), count * size_of::<TileJob>()),
            ranges: table(ranges_at + group.tiles.start * size_of::<PieceRange>(), count * size_of::<PieceRange>()),
            pieces: table(pieces_at, ranges_at - pieces_at),
            notes: table(notes_at, band.pieces.len() * size_of::<PieceNote>()),
            status: Part {
                buffer: &self.statuses,
                offset: (band.first_status + group.tiles.start) * size_of::<u32>(),
                len: count * size_of::<u32>(),
            },
            count,
            own: group.pieces.clone(),
            at_once: band.pieces.len(),
        };
        kernels::inflate_pieces(&self.streams, stream, &batch)
    }

    /// Hands a group to a library that reads host bytes. What it says of tiles is known here and goes to the statuses,
    /// so that tiles it refused are not placed.
    fn decode_planes(
        &self,
        half: usize,
        stream: usize,
        decoded: &DeviceBuffer,
        band: &Band,
        group: &Group,
        bytes: &HostBytes,
    ) -> Result<(), DeviceError> {
        let (spec, streams) = (&self.plan.spec, &self.streams);
        let layout = PlaneLayout::new(spec);
        let jobs = band.tiles.get(group.tiles.clone()).unwrap_or_default();
        let tiles: Vec<Planes> = jobs
            .iter()
            .map(|job| Planes {
                width: spec.width,
                height: layout.rows(job.dst_len as usize) as u32,
                at: job.dst as usize,
                pitch: layout.pitch,
                plane_len: layout.plane_len(job.dst_len as usize),
            })
            .collect();
        let largest = jobs.iter().map(|job| job.dst_len as usize).max().unwrap_or(0);
        let lanes = (MOST_IN_LANES / largest.max(1)).clamp(1, MOST_LANES);
        let first = self.halves.len();
        let over = match self.plan.way {
            Way::Jpeg if libraries::has_jpeg_engine(streams)? => stream..stream + 1,
            Way::Jpeg => first..first + self.compute,
            _ => first..first + self.compute.min(lanes),
        };
        let lanes_each = lanes / over.len().max(1);
        let free = streams.mark(half)?;
        for other in over.clone().filter(|other| *other != stream) {
            streams.wait(other, &free)?;
        }
        let results = if self.plan.way == Way::Jpeg {
            libraries::jpeg_decode(streams, over.clone(), picture(spec), decoded, &tiles, bytes)?
        } else {
            let expected = components(spec).ok_or_else(|| DeviceError::Usage("such samples are not decoded".into()))?;
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let (results, has_loss) = libraries::jpeg2000_decode(
                streams,
                over.clone(),
                &mut lanes,
                lanes_each,
                expected,
                decoded,
                &tiles,
                bytes,
            )?;
            self.has_loss.fetch_or(has_loss, Ordering::Relaxed);
            results
        };
        for other in over.filter(|other| *other != stream) {
            let done = streams.mark(other)?;
            streams.wait(stream, &done)?;
        }
        let first = band.first_status + group.tiles.start;
        let mut statuses = vec![REFUSED; jobs.len()];
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (status, result)) in (first..).zip(statuses.iter_mut().zip(results)) {
            match result {
                Ok(()) => *status = 0,
                Err(reason) => drop(refusals.insert(number, reason)),
            }
        }
        streams.upload_bytes(stream, bytemuck::cast_slice(&statuses), &self.statuses, first * size_of::<u32>())?;
        streams.hold_until(stream)
    }

    /// What a library said against a tile of the read.
    pub fn refusal(&self, tile: usize) -> Option<String> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).get(&tile).cloned()
    }

    /// Whether tiles were met whose samples a library may round otherwise than the CPU does.
    pub fn has_loss(&self) -> bool {
        self.has_loss.load(Ordering::Relaxed)
    }

    /// Hands a group to nvCOMP, whose statuses become ours: 0 is success there too.
    fn decompress(
        &self,
        stream: usize,
        number: usize,
        place: &Half,
        decoded: &DeviceBuffer,
        band: &Band,
        group: &Group,
    ) -> Result<(), DeviceError> {
        let jobs = band.tiles.get(group.tiles.clone()).unwrap_or_default();
        let longest = jobs.iter().map(|job| job.dst_len).max().unwrap_or(0) as usize;
        let total = jobs.iter().map(|job| job.dst_len).sum::<u64>() as usize;
        let nvcomp = self.gpu.nvcomp()?;
        let temp_len = libraries::nvcomp_temp_len(nvcomp, &self.streams, stream, jobs.len(), longest, total)?;
        let temp = {
            let mut kept = self.temporary.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = kept.entry(number).or_insert(None);
            match slot {
                Some(buffer) if buffer.len() >= temp_len => buffer.clone(),
                _ => slot.insert(self.gpu.memory.buffer(temp_len, &self.meter)?).clone(),
            }
        };
        let entry = |array: usize, size: usize| Part {
            buffer: &place.tables,
            offset: chunks_at(&self.placed_samples, band) + (array * band.tiles.len() + group.tiles.start) * size,
            len: jobs.len() * size,
        };
        let batch = libraries::NvcompBatch {
            inputs: entry(0, 8),
            input_lens: entry(1, 8),
            outputs: entry(2, 8),
            capacities: entry(3, 8),
            output_lens: entry(4, 8),
            statuses: Part {
                buffer: &self.statuses,
                offset: (band.first_status + group.tiles.start) * size_of::<u32>(),
                len: jobs.len() * size_of::<u32>(),
            },
            compressed: &place.compressed,
            decoded,
            temp: &temp,
            temp_len,
        };
        libraries::nvcomp_decompress(nvcomp, &self.streams, stream, jobs.len(), &batch)?;
        // A sound stream may still be too short for its tile.
        kernels::check(&self.streams, stream, batch.output_lens, batch.capacities, batch.statuses, jobs.len())
    }

    /// Ends a band: its half is free when the kernels that were launched so far are done.
    ///
    /// # Errors
    /// When a call fails.
    pub fn end(&self, half: usize) -> Result<(), DeviceError> {
        let first = self.halves.len();
        let marks = (first..first + self.compute).map(|stream| self.streams.mark(stream)).collect::<Result<_, _>>()?;
        *self.half(half)?.free.lock().unwrap_or_else(PoisonError::into_inner) = marks;
        Ok(())
    }

    /// Waits for the device, once, and tells what became of each tile.
    ///
    /// # Errors
    /// When the device failed.
    pub fn finish(&self) -> Result<Vec<TileStatus>, DeviceError> {
        if !self.plan.way.has_statuses() || self.tiles == 0 {
            self.streams.synchronize()?;
            return Ok(vec![TileStatus::Ok; self.tiles]);
        }
        let mut bytes = vec![0; self.tiles * size_of::<u32>()];
        self.streams.finish(&self.statuses, 0, &mut bytes)?;
        let statuses = bytes.as_chunks::<4>().0.iter().map(|status| u32::from_ne_bytes(*status));
        Ok(statuses.map(TileStatus::from_device).collect())
    }

    /// Brings bytes of a half's compressed buffer back, in one copy.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn bring_back(&self, half: usize, range: Range<usize>) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; range.len()];
        self.streams.finish(&self.half(half)?.compressed, range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Puts a tile that the CPU decoded, whole samples in native order, in its place.
    ///
    /// # Errors
    /// When memory or a call fails.
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
        let batch = PlaceBatch {
            source: Part { buffer: &source, offset: 0, len: tile.len() },
            output: &self.output,
            tiles: Part { buffer: &tables, offset: samples, len: bytes.len() - samples },
            status: None,
            samples: Part { buffer: &tables, offset: 0, len: samples },
            count: entries.len() as u32,
            rows: placements.iter().map(|placement| placement.size.1).max().unwrap_or(0),
        };
        kernels::place(&self.streams, 0, &self.native, &batch)?;
        self.streams.synchronize()
    }

    /// What the kernels took, where that was asked for. The device was waited for.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn times(&self) -> Result<KernelTimes, DeviceError> {
        let mut times = KernelTimes::default();
        for [begun, decoded, ended] in &*self.timing.lock().unwrap_or_else(PoisonError::into_inner) {
            times.decode_ms += self.streams.elapsed(begun, decoded)?;
            times.place_ms += self.streams.elapsed(decoded, ended)?;
        }
        Ok(times)
    }

    /// What the read cost so far.
    pub fn counters(&self) -> Counters {
        self.meter.counters()
    }

    /// The samples, an event after the read that streams of others may wait for, and what it cost.
    ///
    /// # Errors
    /// When the event cannot be had.
    pub fn into_output(self) -> Result<(DeviceBuffer, Mark, Counters), DeviceError> {
        let ready = self.streams.mark(0)?;
        Ok((self.output.clone(), ready, self.meter.counters()))
    }
}

/// Uploads tiles, from any thread.
#[derive(Debug, Clone, Copy)]
pub struct Uploader<'a>(&'a Decoder);

impl Uploader<'_> {
    /// A pinned chunk of [`CHUNK`](crate::CHUNK) bytes to fill; waits where all are in flight.
    ///
    /// # Errors
    /// When none can be had.
    pub fn chunk(&self) -> Result<Chunk, DeviceError> {
        self.0.gpu.memory.chunk(&self.0.meter)
    }

    /// Copies the first `len` bytes of the chunk to where [`Band::tile`] said.
    ///
    /// # Errors
    /// When that leaves the buffer, or the copy fails.
    pub fn upload(&self, half: usize, chunk: Chunk, len: usize, at: usize) -> Result<(), DeviceError> {
        let place = self.0.half(half)?;
        let buffer = match &place.decoded {
            Some(decoded) if !self.0.plan.way.uploads_streams() => decoded,
            _ => &place.compressed,
        };
        self.0.streams.upload(half, chunk, len, buffer, at)
    }

    /// Has cuFile read parts of a file to where [`Band::tile`] said, all of them before anything is waited for but the band
    /// that was in that half before. `groups` says which parts are waited for together.
    ///
    /// # Errors
    /// When a part leaves the buffer, or the driver fails. What cuFile refuses is no error.
    pub fn submit(
        &self,
        half: usize,
        file: &DirectFile,
        parts: Vec<FilePart>,
        groups: Vec<Range<usize>>,
    ) -> Result<Submission, DeviceError> {
        let place = self.0.half(half)?;
        // cuFile does not wait for kernels: the host does.
        let clear = place.clear.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(clear) = clear {
            clear.poll()?;
        }
        let (memory, meter) = (&self.0.gpu.memory, &self.0.meter);
        storage::submit(&file.file, file.way, memory, meter, &place.compressed, parts, groups)
    }

    /// Has cuFile read a part of a file to where [`Band::tile`] said, and waits for it. [`Uploader::submit`] was called for
    /// its band before, which waits until the half is free.
    ///
    /// # Errors
    /// When that leaves the buffer, or the part did not come whole.
    pub fn read(&self, half: usize, file: &DirectFile, part: &FilePart) -> Result<(), DeviceError> {
        let buffer = &self.0.half(half)?.compressed;
        storage::read(&file.file, &self.0.gpu.memory, &self.0.meter, buffer, part)
    }
}

/// Copies the samples of a finished read to the host, in one transfer.
///
/// # Errors
/// When the lengths differ or the copy fails.
pub fn to_host(gpu: &Arc<Gpu>, from: &DeviceBuffer, to: &mut [u8]) -> Result<Counters, DeviceError> {
    let meter = Arc::new(Meter::default());
    if from.len() != to.len() {
        return Err(DeviceError::Usage(format!("{} bytes on the device, {} on the host", from.len(), to.len())));
    }
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    if from.is_foreign() {
        // Others were given the address; what they have under way on it comes first.
        meter.synchronisation();
        gpu.memory.context.synchronize()?;
    }
    streams.finish(from, 0, to)?;
    Ok(meter.counters())
}

/// Scratch that the kernels on all streams share.
fn scratch_len(way: Way) -> usize {
    way.kernel().map_or(0, |kernel| kernel.scratch_len() * COMPUTE)
}
