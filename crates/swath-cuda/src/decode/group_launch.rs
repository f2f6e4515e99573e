//! The launch of one group of a batch: its tiles are decoded, then placed.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use crate::{
    decode::{
        batch::{DecodeBatch, Group},
        decoder::{COMPUTE_STREAMS, Decoder, Half},
        path::{DecodePath, jpeg_output, jpeg2000_components},
        placing::PlaneLayout,
        tables::{chunks_at, sample_table},
    },
    driver::{
        launch::{
            decode_batch::{DecodeLaunch, TileJob},
            inflate_pieces::{PieceJob, PieceNote, PieceRange, PiecesLaunch, launch_inflate_pieces},
            nvcomp::{DecompressLaunch, nvcomp_decompress, nvcomp_temp_len},
            nvjpeg::{has_jpeg_engine, jpeg_decode},
            nvjpeg2k::jpeg2000_decode,
            place::{PlaceLaunch, PlaceTile, launch_place},
            slice::BufferSlice,
            stream_threads::TilePlanes,
            streams_check::{launch_check, launch_reverse},
        },
        memory::{
            pool::DeviceBuffer,
            streams::{HostTile, HostTiles},
        },
    },
    error::DeviceError,
};

/// Most tiles that nvJPEG2000 decodes at once, and most bytes of them: the library takes about eight times as many
/// bytes itself.
const MOST_SESSIONS: usize = 64;
const MOST_IN_SESSIONS: usize = 256 << 20;

/// The status of a tile that a library refused on the host.
const REFUSED: u32 = 0x100;

impl Decoder {
    /// Decodes and places a group whose bytes were all given to [`Uploader::upload`](crate::decode::Uploader::upload).
    ///
    /// # Errors
    /// When a call fails.
    pub fn launch(&self, half: usize, batch: &DecodeBatch, group: usize) -> Result<(), DeviceError> {
        self.launch_group(half, batch, group, None)
    }

    /// Decodes and places a group whose compressed bytes are in host memory: one stream for each tile, in their order.
    /// An `Err` in place of a stream is the reason why its tile is refused.
    ///
    /// # Errors
    /// When a call fails. A tile that a library refuses is not an error: [`Decoder::finish`] reports it.
    pub fn launch_from_host(
        &self,
        half: usize,
        batch: &DecodeBatch,
        group: usize,
        bytes: Vec<HostTile>,
    ) -> Result<(), DeviceError> {
        self.launch_group(half, batch, group, Some(Arc::new(bytes)))
    }

    fn launch_group(
        &self,
        half: usize,
        batch: &DecodeBatch,
        group: usize,
        bytes: Option<HostTiles>,
    ) -> Result<(), DeviceError> {
        let number = match self.plan.path {
            // Each half has temporary memory for nvCOMP, or two groups where there is one half. Groups that share it
            // run one after the other.
            DecodePath::Lz4 if self.halves.len() > 1 => half,
            DecodePath::Lz4 => group % 2,
            _ => self.next_stream.fetch_add(1, Ordering::Relaxed) % self.compute,
        };
        let group = batch.groups.get(group).cloned().unwrap_or_default();
        let stream = self.halves.len() + number;
        let uploaded = self.streams.record(half)?;
        self.streams.wait(stream, &uploaded)?;
        let (streams, working) = (&self.streams, self.half(half)?);
        let started = self.plan.timed.then(|| streams.record_timed(stream)).transpose()?;
        let compressed = BufferSlice { buffer: &working.compressed, offset: 0, len: working.compressed.len() };
        let samples = sample_table(&self.placed_samples).len();
        let tiles_at = samples;
        let places_at = samples + batch.tiles.len() * size_of::<TileJob>();
        let count = group.tiles.len();
        if self.plan.spec.bits_reversed && self.plan.path.uploads_streams() {
            let len = group.compressed.len();
            launch_reverse(
                streams,
                stream,
                BufferSlice { buffer: &working.compressed, offset: group.compressed.start, len },
            )?;
        }
        let kernel = self.plan.path.kernel();
        if let (Some(kernel), Some(decoded), true) = (kernel, &working.decoded, count > 0) {
            let launch = DecodeLaunch {
                compressed,
                decoded: BufferSlice { buffer: decoded, offset: 0, len: decoded.len() },
                tiles: BufferSlice {
                    buffer: &working.tables,
                    offset: tiles_at + group.tiles.start * size_of::<TileJob>(),
                    len: count * size_of::<TileJob>(),
                },
                status: BufferSlice {
                    buffer: &self.statuses,
                    offset: (batch.first_status + group.tiles.start) * size_of::<u32>(),
                    len: count * size_of::<u32>(),
                },
                scratch: self.scratch_of(working, number, &group),
                count: count as u32,
                longest: batch.longest(&group),
                largest: self.plan.largest,
                at_once: batch.tiles.len(),
            };
            kernel.launch(streams, stream, &launch)?;
        }
        if let (true, Some(decoded), true) = (self.plan.path.has_pieces(), &working.decoded, count > 0) {
            self.inflate_pieces(stream, working, decoded, batch, &group)?;
        }
        if let (DecodePath::Lz4, Some(decoded), true) = (self.plan.path, &working.decoded, count > 0) {
            self.decompress(stream, number, working, decoded, batch, &group)?;
        }
        if let (Some(bytes), Some(decoded), true) = (&bytes, &working.decoded, count > 0) {
            self.decode_planes(half, stream, decoded, batch, &group, bytes)?;
        }
        let decoded = self.plan.timed.then(|| streams.record_timed(stream)).transpose()?;
        let source = match &working.decoded {
            Some(decoded) => BufferSlice { buffer: decoded, offset: 0, len: decoded.len() },
            None => compressed,
        };
        let placed = PlaceLaunch {
            source,
            output: &self.output,
            tiles: BufferSlice {
                buffer: &working.tables,
                offset: places_at + group.placements.start * size_of::<PlaceTile>(),
                len: group.placements.len() * size_of::<PlaceTile>(),
            },
            status: self.plan.path.has_statuses().then_some(BufferSlice {
                buffer: &self.statuses,
                offset: 0,
                len: self.statuses.len(),
            }),
            samples: BufferSlice { buffer: &working.tables, offset: 0, len: samples },
            count: group.placements.len() as u32,
            rows: group.rows,
        };
        launch_place(streams, stream, &self.stored, &placed)?;
        if let (Some(started), Some(decoded)) = (started, decoded) {
            let ended = streams.record_timed(stream)?;
            self.timing.lock().unwrap_or_else(PoisonError::into_inner).push([started, decoded, ended]);
        }
        Ok(())
    }

    /// Returns the scratch of a group's kernels: its stream's, or its tiles'.
    fn scratch_of<'a>(&'a self, working: &'a Half, number: usize, group: &Group) -> Option<BufferSlice<'a>> {
        if let Some(buffer) = &working.scratch {
            let each = self.plan.path.tile_scratch(self.plan.largest);
            return Some(BufferSlice { buffer, offset: group.tiles.start * each, len: group.tiles.len() * each });
        }
        let buffer = self.scratch.as_ref()?;
        let len = buffer.len() / COMPUTE_STREAMS;
        Some(BufferSlice { buffer, offset: number * len, len })
    }

    /// Decodes the tiles of a group in pieces.
    fn inflate_pieces(
        &self,
        stream: usize,
        working: &Half,
        decoded: &DeviceBuffer,
        batch: &DecodeBatch,
        group: &Group,
    ) -> Result<(), DeviceError> {
        let count = group.tiles.len();
        let table = |offset, len| BufferSlice { buffer: &working.tables, offset, len };
        let tiles_at = sample_table(&self.placed_samples).len();
        let pieces_at = chunks_at(&self.placed_samples, batch);
        let ranges_at = pieces_at + batch.pieces.len() * size_of::<PieceJob>();
        let notes_at = ranges_at + batch.ranges.len() * size_of::<PieceRange>();
        let launch = PiecesLaunch {
            compressed: BufferSlice { buffer: &working.compressed, offset: 0, len: working.compressed.len() },
            decoded: BufferSlice { buffer: decoded, offset: 0, len: decoded.len() },
            tiles: table(tiles_at + group.tiles.start * size_of::<TileJob>(), count * size_of::<TileJob>()),
            ranges: table(ranges_at + group.tiles.start * size_of::<PieceRange>(), count * size_of::<PieceRange>()),
            pieces: table(pieces_at, ranges_at - pieces_at),
            notes: table(notes_at, batch.pieces.len() * size_of::<PieceNote>()),
            status: BufferSlice {
                buffer: &self.statuses,
                offset: (batch.first_status + group.tiles.start) * size_of::<u32>(),
                len: count * size_of::<u32>(),
            },
            count,
            own: group.pieces.clone(),
            at_once: batch.pieces.len(),
        };
        launch_inflate_pieces(&self.streams, stream, &launch)
    }

    /// Gives a group to a library that reads host bytes. The host knows the library's results and uploads them as
    /// statuses, so that refused tiles are not placed.
    fn decode_planes(
        &self,
        half: usize,
        stream: usize,
        decoded: &DeviceBuffer,
        batch: &DecodeBatch,
        group: &Group,
        bytes: &HostTiles,
    ) -> Result<(), DeviceError> {
        let (spec, streams) = (&self.plan.spec, &self.streams);
        let layout = PlaneLayout::new(spec);
        let jobs = batch.tiles.get(group.tiles.clone()).unwrap_or_default();
        let tiles: Vec<TilePlanes> = jobs
            .iter()
            .map(|job| TilePlanes {
                width: spec.width,
                height: layout.rows(job.dst_len as usize) as u32,
                at: job.dst as usize,
                pitch: layout.pitch,
                plane_len: layout.plane_len(job.dst_len as usize),
            })
            .collect();
        let largest = jobs.iter().map(|job| job.dst_len as usize).max().unwrap_or(0);
        let sessions = (MOST_IN_SESSIONS / largest.max(1)).clamp(1, MOST_SESSIONS);
        let first = self.halves.len();
        let over = match self.plan.path {
            DecodePath::Jpeg if has_jpeg_engine(streams)? => stream..stream + 1,
            DecodePath::Jpeg => first..first + self.compute,
            _ => first..first + self.compute.min(sessions),
        };
        let sessions_each = sessions / over.len().max(1);
        let free = streams.record(half)?;
        for other in over.clone().filter(|other| *other != stream) {
            streams.wait(other, &free)?;
        }
        let results = if self.plan.path == DecodePath::Jpeg {
            jpeg_decode(streams, over.clone(), jpeg_output(spec), decoded, &tiles, bytes)?
        } else {
            let expected = jpeg2000_components(spec)
                .ok_or_else(|| DeviceError::Internal("nvJPEG2000 does not decode such samples".into()))?;
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let (results, has_loss) =
                jpeg2000_decode(streams, over.clone(), &mut sessions, sessions_each, expected, decoded, &tiles, bytes)?;
            self.has_loss.fetch_or(has_loss, Ordering::Relaxed);
            results
        };
        for other in over.filter(|other| *other != stream) {
            let done = streams.record(other)?;
            streams.wait(stream, &done)?;
        }
        let first = batch.first_status + group.tiles.start;
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

    /// Gives a group to nvCOMP. Its statuses are used as ours: 0 is success there too.
    fn decompress(
        &self,
        stream: usize,
        number: usize,
        working: &Half,
        decoded: &DeviceBuffer,
        batch: &DecodeBatch,
        group: &Group,
    ) -> Result<(), DeviceError> {
        let jobs = batch.tiles.get(group.tiles.clone()).unwrap_or_default();
        let longest = jobs.iter().map(|job| job.dst_len).max().unwrap_or(0) as usize;
        let total = jobs.iter().map(|job| job.dst_len).sum::<u64>() as usize;
        let nvcomp = self.gpu.nvcomp()?;
        let temp_len = nvcomp_temp_len(nvcomp, &self.streams, stream, jobs.len(), longest, total)?;
        let temp = {
            let mut kept = self.temporary.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = kept.entry(number).or_insert(None);
            match slot {
                Some(buffer) if buffer.len() >= temp_len => buffer.clone(),
                _ => slot.insert(self.gpu.memory.buffer(temp_len, &self.meter)?).clone(),
            }
        };
        let entry = |array: usize, size: usize| BufferSlice {
            buffer: &working.tables,
            offset: chunks_at(&self.placed_samples, batch) + (array * batch.tiles.len() + group.tiles.start) * size,
            len: jobs.len() * size,
        };
        let launch = DecompressLaunch {
            inputs: entry(0, 8),
            input_lens: entry(1, 8),
            outputs: entry(2, 8),
            capacities: entry(3, 8),
            output_lens: entry(4, 8),
            statuses: BufferSlice {
                buffer: &self.statuses,
                offset: (batch.first_status + group.tiles.start) * size_of::<u32>(),
                len: jobs.len() * size_of::<u32>(),
            },
            compressed: &working.compressed,
            decoded,
            temp: &temp,
            temp_len,
        };
        nvcomp_decompress(nvcomp, &self.streams, stream, jobs.len(), &launch)?;
        // A valid stream may still be too short for its tile.
        launch_check(&self.streams, stream, launch.output_lens, launch.capacities, launch.statuses, jobs.len())
    }
}
