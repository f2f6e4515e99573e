//! The part of a write that a GPU does: rows stay on the device until their tiles are compressed.
//!
//! Each level has a ring of rows on the device. As soon as rows are complete, the GPU cuts them into tiles of the current batch
//! and makes overview rows of them, level after level. A full batch is compressed and leaves for the outbox.

mod outbox;
pub(super) mod overviews;
mod plan;
pub(super) mod samples;

use std::sync::Arc;

use swath_cuda::{
    DeviceError, Gpu,
    encode::{DeviceRows, EncodePath, EncodedBatch, EncodedTile, Encoder},
};
use swath_raster::moments::Moments;

use self::{
    outbox::{BatchOutput, Content, Destination, Outbox, PackedWrite, Tile},
    plan as device_plan,
};
use super::{
    level_writer::LevelWriter,
    levels::Levels,
    options::{Progress, Shape, WriteOptions},
    plan::{LevelPlan, Plan},
    progress::{LevelProgress, LevelSize},
    shared_sink::SharedSink,
    shrinks::{Shrinks, shrinks},
};
use crate::{cancel::cancelled, device::DeviceReport, error::Error};

/// Positions of a level's grid that are in the batch.
#[derive(Debug, Clone, Copy)]
struct Segment {
    level: usize,
    tile_row: u32,
    position: u32,
    count: u32,
}

/// The state of a level when the CPU continues its work.
#[derive(Debug)]
pub(super) struct LeftBehind {
    pub progress: LevelProgress,
    /// The first row that is still needed.
    pub first_row: u32,
    /// The rows from there on: the bands one after the other, then the mask.
    pub planes: Vec<Vec<u8>>,
}

/// The part of a write that a GPU does.
#[derive(Debug)]
pub(super) struct DeviceSide {
    pub(super) encoder: Encoder,
    plan: Arc<Plan>,
    level_writers: Arc<Levels<LevelWriter>>,
    shrinks: Levels<Option<Shrinks>>,
    levels: Levels<LevelProgress>,
    segments: Vec<Segment>,
    /// Whether tiles whose place in the file is set may not have reached it: then the CPU cannot continue.
    broken: bool,
    /// Whether batches go to the file as they are: one tile at each position, compressed by the device.
    direct: bool,
    outbox: Outbox,
    /// For progress and cancelling.
    options: WriteOptions,
    report: DeviceReport,
    /// Sizes of the pieces of each level's tiles.
    pieces: Vec<Vec<u32>>,
}

/// Rows on their way in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Incoming<'a> {
    /// On the device, and their mask.
    Device(&'a DeviceRows, Option<&'a DeviceRows>),
    /// On the host: planes, and the bytes of a row of each; the mask last.
    Host(&'a [&'a [u8]], &'a [usize]),
}

impl DeviceSide {
    /// Takes the memory of the device for a write.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        plan: &Arc<Plan>,
        level_writers: &Arc<Levels<LevelWriter>>,
        sink: &Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        shrinks: Levels<Option<Shrinks>>,
        nodata: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let mut report = DeviceReport { device: gpu.facts().name.clone(), ..DeviceReport::default() };
        let main = &plan.levels.main;
        let path = device_plan::encode_path(gpu, main, plan.with_overviews, options, &mut report.notices)?;
        let encode = device_plan::encode_plan(plan, shape, options, &shrinks, nodata, path)?;
        let slots = device_plan::fit(gpu, plan, &encode, options, options.device.memory_budget(gpu)?)?;
        let direct =
            encode.mask.is_none() && !matches!(path, EncodePath::Host | EncodePath::Jpeg(_) | EncodePath::Jpeg2000(_));
        let encoder = Encoder::new(gpu, encode, slots, true).map_err(|error| error.during("taking device memory"))?;
        let outbox = Outbox::new(sink.clone(), level_writers.clone(), plan.clone(), device_plan::threads(options))?;
        report.storage = "pinned copies";
        Ok(Self {
            encoder,
            shrinks,
            broken: false,
            levels: plan.levels.map(|_| LevelProgress::default()),
            segments: Vec::new(),
            direct,
            outbox,
            options: options.clone(),
            pieces: vec![Vec::new(); plan.levels.len()],
            plan: plan.clone(),
            level_writers: level_writers.clone(),
            report,
        })
    }

    /// Whether the memory that the options allow is enough for a write of whole rows.
    pub(super) fn fits(gpu: &Arc<Gpu>, plan: &Plan, shape: Shape, options: &WriteOptions) -> Result<(), Error> {
        let path = device_plan::encode_path(gpu, &plan.levels.main, plan.with_overviews, options, &mut Vec::new())?;
        let shrinks = shrinks(plan, shape.sample, None)?;
        let encode = device_plan::encode_plan(plan, shape, options, &shrinks, None, path)?;
        device_plan::fit(gpu, plan, &encode, options, options.device.memory_budget(gpu)?).map(|_| ())
    }

    /// Rows of the image that were taken.
    pub(super) fn rows(&self) -> u32 {
        self.levels.main.rows
    }

    /// The first row of a level that is still needed.
    fn first_needed(&self, index: usize) -> Result<u32, Error> {
        let progress = self.levels.at(index)?;
        let below = self.plan.levels.get(index + 1).map(|below| below.layout.height);
        let shrinks = self.shrinks.at(index)?.as_ref();
        let next = shrinks.zip(below).map(|(shrinks, height)| (move |row| shrinks.needs(row), height));
        Ok(progress.first_needed(LevelSize::of(self.plan.levels.at(index)?), next).min(progress.rows))
    }

    /// Rows of a level that the device has room for.
    fn room(&self, index: usize) -> Result<u32, Error> {
        let used = self.levels.at(index)?.rows - self.first_needed(index)?;
        Ok(self.encoder.capacity(index).saturating_sub(used))
    }

    /// Takes `count` rows, and encodes and shrinks what is complete. When it returns, even with an error, the GPU no longer reads
    /// the rows.
    pub(super) fn push(&mut self, rows: Incoming<'_>, count: u32, taken: &mut u32) -> Result<(), Error> {
        let result = self.take(rows, count, taken);
        if let Incoming::Device(..) = rows {
            let waited = self.encoder.wait_for_rows().map_err(|error| error.during("taking rows to the device"));
            return result.and(waited.map_err(Error::from));
        }
        result
    }

    fn take(&mut self, rows: Incoming<'_>, count: u32, taken: &mut u32) -> Result<(), Error> {
        while *taken < count {
            let room = self.room(0)?.min(count - *taken);
            if room == 0 {
                return Err(Error::internal("the writer can make no progress"));
            }
            let first = self.rows();
            let stage = |error: DeviceError| error.during("taking rows to the device");
            match rows {
                Incoming::Device(samples, mask) => {
                    self.encoder.take(samples, *taken, first, room).map_err(stage)?;
                    if let Some(mask) = mask {
                        self.encoder.take_mask(mask, *taken, first, room).map_err(stage)?;
                    }
                }
                Incoming::Host(planes, row_lens) => {
                    let cut = planes.iter().zip(row_lens).map(|(plane, len)| {
                        let range = *taken as usize * len..(*taken + room) as usize * len;
                        plane.get(range).ok_or_else(|| Error::internal("a plane has fewer rows than were pushed"))
                    });
                    let cut = cut.collect::<Result<Vec<&[u8]>, Error>>()?;
                    match cut.split_last() {
                        Some((mask, samples)) if self.plan.levels.main.mask.is_some() => {
                            self.encoder.take_host(samples, first).map_err(stage)?;
                            self.encoder.take_host_mask(mask, first).map_err(stage)?;
                        }
                        _ => self.encoder.take_host(&cut, first).map_err(stage)?,
                    }
                }
            }
            *taken += room;
            self.levels.main.rows += room;
            self.advance()?;
        }
        Ok(())
    }

    /// Cuts and shrinks what is complete, on all levels.
    fn advance(&mut self) -> Result<(), Error> {
        loop {
            let mut moved = false;
            for index in 0..self.levels.len() {
                moved |= self.cut(index)?;
                moved |= self.shrink(index)?;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Puts the complete tile rows of a level into the batch. Returns whether there were any.
    fn cut(&mut self, index: usize) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            let (plan, progress) = (self.plan.levels.at(index)?, *self.levels.at(index)?);
            let size = LevelSize::of(plan);
            if progress.complete_tile_rows(size).is_empty() {
                return Ok(moved);
            }
            let free = self.encoder.free();
            let count = (size.across - progress.column).min(free.image / plan.grid.planes.max(1)).min(free.mask);
            if count == 0 {
                self.flush()?;
                continue;
            }
            let (tile_row, position) = (progress.tile_row, progress.column);
            let cut = self.encoder.cut(index, tile_row, position, count);
            cut.map_err(|error| error.during("cutting tiles"))?;
            self.segments.push(Segment { level: index, tile_row, position, count });
            self.levels.at_mut(index)?.encode_tiles(count, size);
            moved = true;
        }
    }

    /// Makes the rows of the next level whose rows are there. Returns whether there were any.
    fn shrink(&mut self, index: usize) -> Result<bool, Error> {
        let (Some(shrink), Some(below)) = (self.shrinks.at(index)?, self.plan.levels.get(index + 1)) else {
            return Ok(false);
        };
        let room = self.room(index + 1)?;
        let rows = self.levels.at(index)?.rows_to_make(|row| shrink.needs(row), below.layout.height, room);
        if rows.is_empty() {
            return Ok(false);
        }
        self.encoder.shrink(index, rows.clone()).map_err(|error| error.during("making overviews"))?;
        self.levels.at_mut(index)?.shrunk = rows.end;
        self.levels.at_mut(index + 1)?.rows = rows.end;
        Ok(true)
    }

    /// Compresses the batch and sends it off.
    fn flush(&mut self) -> Result<(), Error> {
        if let Some(error) = cancelled(self.options.cancel.as_ref()) {
            return Err(error);
        }
        if self.encoder.is_empty() {
            return Ok(());
        }
        self.outbox.wait_for_room().inspect_err(|_| self.broken = true)?;
        let batch = self.encoder.submit().map_err(|error| error.during("compressing tiles"))?;
        self.report.batches += 1;
        self.report.notices.extend(self.encoder.gpu().take_notice());
        let segments = std::mem::take(&mut self.segments);
        let output = self.deal(&segments, batch).inspect_err(|_| self.broken = true)?;
        self.outbox.send(output);
        if let Some(report) = &self.options.progress {
            let size = LevelSize::of(&self.plan.levels.main);
            let bytes = self.level_writers.iter().map(LevelWriter::len).sum();
            report(Progress { rows: self.levels.main.rows_encoded(size), of: size.height, bytes });
        }
        Ok(())
    }

    /// Decides where each tile of a batch goes.
    fn deal(&mut self, segments: &[Segment], batch: EncodedBatch) -> Result<BatchOutput, Error> {
        let plan = self.plan.clone();
        let level_writers = self.level_writers.clone();
        let lost = || Error::internal("the GPU returned fewer tiles than were cut");
        let mut output = BatchOutput { readback: batch.readback, ..BatchOutput::default() };
        let (mut image, mut mask) = (batch.image.into_iter(), batch.mask.into_iter());
        let mut moments = batch.moments.chunks(usize::from(plan.levels.main.layout.samples).max(1));
        let each = if batch.pieces.is_empty() { 0 } else { self.encoder.pieces() as usize };
        let mut pieces = batch.pieces.chunks(each.max(1));
        let (mut slot, mut mask_slot) = (0_u32, 0_u32);
        for segment in segments {
            let (level, writer) = (plan.levels.at(segment.level)?, level_writers.at(segment.level)?);
            let rows = level.grid.stored_rows(segment.tile_row);
            let first = u64::from(segment.tile_row) * u64::from(level.grid.across) + u64::from(segment.position);
            for position in first..first + u64::from(segment.count) {
                let statistics = match segment.level {
                    0 if plan.statistics => moments.next().ok_or_else(lost)?,
                    _ => &[],
                };
                for plane in 0..level.grid.planes {
                    let found = image.next().ok_or_else(lost)?;
                    if each > 0 {
                        let list = self.pieces.get_mut(segment.level);
                        let (list, sizes) = list.zip(pieces.next()).ok_or_else(lost)?;
                        let whole = matches!(found, EncodedTile::Packed(_));
                        // Strips of an overview are narrower, and have fewer pieces than there is room for.
                        let sizes = sizes.iter().take(level.pieces as usize);
                        list.extend(sizes.map(|size| if whole { *size } else { 0 }));
                    }
                    let number = position * u64::from(level.tiles_per_position()) + u64::from(plane);
                    let statistics = if plane == 0 { statistics } else { &[] };
                    self.report.device_tiles += 1;
                    if self.direct {
                        self.deal_direct(&mut output, segment.level, writer, slot, rows, found, statistics)?;
                    } else {
                        let content = self.content(found, level, slot, rows, false)?;
                        let moments = (0..).zip(statistics.iter().copied()).collect();
                        output.tiles.push(Tile { level: segment.level, number, content, moments });
                    }
                    slot += 1;
                }
                if level.mask.is_some() {
                    let found = mask.next().ok_or_else(lost)?;
                    let number = position * u64::from(level.tiles_per_position()) + u64::from(level.grid.planes);
                    let content = self.content(found, level, mask_slot, rows, true)?;
                    output.tiles.push(Tile { level: segment.level, number, content, moments: Vec::new() });
                    mask_slot += 1;
                }
            }
        }
        Ok(output)
    }

    #[allow(clippy::too_many_arguments)]
    fn deal_direct(
        &mut self,
        output: &mut BatchOutput,
        index: usize,
        writer: &LevelWriter,
        slot: u32,
        rows: u32,
        found: EncodedTile,
        moments: &[Moments],
    ) -> Result<(), Error> {
        let place = |offset: u64| match writer.is_buffered() {
            true => Destination::Level(index, offset),
            false => Destination::File(writer.start() + offset),
        };
        match found {
            EncodedTile::Empty => {
                check_hole(&self.plan)?;
                writer.register(0, moments)?;
            }
            EncodedTile::Packed(range) => {
                let to = place(writer.register(range.len() as u64, moments)?);
                // Tiles of a level are contiguous both in the batch and in the file.
                match output.writes.last_mut() {
                    Some(last) if last.range.end == range.start && follows(last.to, last.range.len(), to) => {
                        last.range.end = range.end;
                    }
                    _ => output.writes.push(PackedWrite { range, to }),
                }
            }
            EncodedTile::OnHost(_) | EncodedTile::Refused(_) => {
                let plan = self.plan.clone();
                let Content::Whole(bytes) = self.content(found, plan.levels.at(index)?, slot, rows, false)? else {
                    return Err(Error::internal("a tile that the CPU compressed is not whole"));
                };
                match place(writer.register(bytes.len() as u64, moments)?) {
                    Destination::File(offset) => self.outbox.write(offset, &bytes)?,
                    Destination::Level(_, offset) => writer.buffer(offset, &bytes)?,
                }
            }
        }
        Ok(())
    }

    /// Returns the content of a tile, for the writer of its level.
    fn content(
        &mut self,
        found: EncodedTile,
        level: &LevelPlan,
        slot: u32,
        rows: u32,
        mask: bool,
    ) -> Result<Content, Error> {
        Ok(match found {
            EncodedTile::Empty => {
                check_hole(&self.plan)?;
                Content::Whole(Vec::new())
            }
            EncodedTile::Packed(range) if !mask && self.encoder.path() == EncodePath::Host => {
                self.report.device_tiles -= 1;
                self.report.host_tiles += 1;
                Content::Raw { range, rows, mask }
            }
            EncodedTile::Packed(range) => Content::Packed(range),
            EncodedTile::OnHost(stream) => {
                let mut bytes = Vec::new();
                self.plan.framed(&mut bytes, |bytes| {
                    bytes.extend_from_slice(&stream);
                    Ok(())
                })?;
                Content::Whole(bytes)
            }
            EncodedTile::Refused(reason) => {
                if !mask {
                    self.report.device_tiles -= 1;
                    self.report.host_tiles += 1;
                }
                let notice = format!("tiles are compressed by the CPU: {reason}");
                if !self.report.notices.contains(&notice) {
                    self.report.notices.push(notice);
                }
                Content::Whole(self.by_host(level, slot, rows, mask)?)
            }
        })
    }

    /// Compresses a tile of the last batch on the CPU.
    fn by_host(&self, level: &LevelPlan, slot: u32, rows: u32, mask: bool) -> Result<Vec<u8>, Error> {
        let host = level.host_of(mask)?;
        let raw = self.encoder.tile_bytes(mask, slot, level.layout.tile_width, rows);
        let raw = raw.map_err(|error| error.during("bringing tiles back"))?;
        let mut bytes = Vec::new();
        self.plan.framed(&mut bytes, |bytes| Ok(host.compress(rows, &raw, bytes, &mut Default::default())?))?;
        Ok(bytes)
    }

    /// Encodes the rest when every row is there, and waits until it is in the file.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.advance()?;
        self.flush()?;
        self.outbox.drain().inspect_err(|_| self.broken = true)
    }

    /// The report of this part.
    pub(super) fn report(&self) -> DeviceReport {
        DeviceReport { counters: self.encoder.counters(), ..self.report.clone() }
    }

    /// Sizes of the pieces of each level's tiles, in the order they were numbered.
    pub(super) fn pieces(&mut self) -> Vec<Vec<u32>> {
        std::mem::take(&mut self.pieces)
    }

    /// Brings to the host what the CPU needs to continue: first tiles that were cut but not written, which the CPU compresses and sends
    /// to their levels, then the rows of each level.
    ///
    /// # Errors
    /// When the device does not give them back; the write has then failed.
    pub(super) fn step_down(&mut self, failure: Error) -> Result<Levels<LeftBehind>, Error> {
        if self.broken {
            return Err(failure);
        }
        self.outbox.drain()?;
        let plan = self.plan.clone();
        let segments = std::mem::take(&mut self.segments);
        let pending = self.encoder.pending().map_err(|error| error.during("bringing tiles back"))?;
        let bands = usize::from(plan.levels.main.layout.samples).max(1);
        let lost = || Error::internal("the GPU returned fewer tiles than were cut");
        let mut statistics = pending.moments.chunks(bands);
        let (mut slot, mut mask_slot) = (0, 0);
        let mut tiles = Vec::new();
        for segment in &segments {
            let level = plan.levels.at(segment.level)?;
            let rows = level.grid.stored_rows(segment.tile_row);
            let first = u64::from(segment.tile_row) * u64::from(level.grid.across) + u64::from(segment.position);
            for position in first..first + u64::from(segment.count) {
                for plane in 0..level.tiles_per_position() {
                    let mask = plane >= level.grid.planes;
                    let (slot, used) = if mask { (&mut mask_slot, &pending.mask) } else { (&mut slot, &pending.image) };
                    let number = position * u64::from(level.tiles_per_position()) + u64::from(plane);
                    let bytes = match used.get(*slot as usize).ok_or_else(lost)? {
                        true => self.by_host(level, *slot, rows, mask)?,
                        false => {
                            check_hole(&plan)?;
                            Vec::new()
                        }
                    };
                    *slot += 1;
                    let moments = match (segment.level, plane) {
                        (0, 0) if plan.statistics => {
                            (0..).zip(statistics.next().ok_or_else(lost)?.iter().copied()).collect()
                        }
                        _ => Vec::new(),
                    };
                    if !mask {
                        let list = self.pieces.get_mut(segment.level).ok_or_else(lost)?;
                        list.extend(std::iter::repeat_n(0, level.pieces as usize));
                    }
                    tiles.push(Tile { level: segment.level, number, content: Content::Whole(bytes), moments });
                }
            }
        }
        self.report.host_tiles += tiles.len() as u64;
        let left_behind = self.levels.try_map(|index, progress| {
            let first_row = self.first_needed(index)?;
            let planes = self.encoder.rows(index, first_row..progress.rows);
            let planes = planes.map_err(|error| error.during("bringing rows back"))?;
            Ok(LeftBehind { progress: *progress, first_row, planes })
        })?;
        self.outbox.send(BatchOutput { tiles, ..BatchOutput::default() });
        self.outbox.drain()?;
        Ok(left_behind)
    }
}

/// Checks that the file may leave out a tile: a length that the GPU did not set must not become a hole.
fn check_hole(plan: &Plan) -> Result<(), Error> {
    match plan.sparse {
        true => Ok(()),
        false => Err(Error::internal("the GPU left out a tile of a file that leaves out none")),
    }
}

fn follows(before: Destination, len: usize, next: Destination) -> bool {
    match (before, next) {
        (Destination::File(before), Destination::File(next)) => before + len as u64 == next,
        (Destination::Level(level, before), Destination::Level(other, next)) => {
            level == other && before + len as u64 == next
        }
        _ => false,
    }
}
