//! The part of a write that a GPU does: rows stay on the device until their tiles are compressed.
//!
//! Each level has a ring of rows there. Whatever is complete goes on at once: tile rows are cut into the batch, overview rows
//! are made, level after level. A full batch is compressed and leaves for the outbox.

use std::{ops::Range, sync::Arc};

use swath_codec::pre::moments::Moments;
use swath_cuda::{
    DeviceError, Gpu,
    encode::{Batch, DeviceRows, Encoder, Pressed},
    press::Press,
};

use super::{
    SharedSink, Shrinks as LevelShrinks, device_plan,
    lane::Lane,
    options::{Progress, Shape, WriteOptions},
    outbox::{Move, Outbox, Parcel, Tile, To, What},
    plan::{LevelPlan, Plan},
};
use crate::{
    device::DeviceReport,
    error::{Error, ErrorKind},
    read::Cancel,
};

/// Share of the free device memory that a write may use unless told otherwise.
const SHARE: (u64, u64) = (4, 5);

/// What a level has done.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    /// Rows that were made.
    end: u32,
    /// The tile row that is next, and the positions of it that are done.
    tile_row: u32,
    position: u32,
    /// Rows of the next level that were made.
    shrunk: u32,
}

/// Positions of a level's grid that are in the batch.
#[derive(Debug, Clone, Copy)]
struct Segment {
    level: usize,
    tile_row: u32,
    position: u32,
    count: u32,
}

/// What is known of a level when the CPU goes on with it.
#[derive(Debug)]
pub(super) struct Left {
    pub rows: Range<u32>,
    /// The bands one after the other, then the mask.
    pub planes: Vec<Vec<u8>>,
    pub tile_row: u32,
    pub position: u32,
    pub shrunk: u32,
}

/// The part of a write that a GPU does.
#[derive(Debug)]
pub(super) struct DeviceSide {
    pub(super) encoder: Encoder,
    plan: Arc<Plan>,
    lanes: Arc<Vec<Lane>>,
    shrinks: Vec<Option<LevelShrinks>>,
    levels: Vec<Ready>,
    segments: Vec<Segment>,
    /// Whether tiles that have their place in the file may not have reached it: then nobody can go on.
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
        lanes: &Arc<Vec<Lane>>,
        sink: &Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        shrinks: &[Option<LevelShrinks>],
        nodata: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let mut report = DeviceReport { device: gpu.facts().name.clone(), ..DeviceReport::default() };
        let Some(main) = plan.levels.first() else { return Err(Error::usage("there is no image to write")) };
        let press = device_plan::press(gpu, main, plan.with_overviews, options, &mut report.notices)?;
        let encode = device_plan::encode_plan(plan, shape, options, shrinks, nodata, press)?;
        let slots = device_plan::fit(gpu, plan, &encode, options, budget(gpu, options)?)?;
        let direct = encode.mask.is_none() && !matches!(press, Press::Host | Press::Jpeg(_) | Press::Jpeg2000(_));
        let encoder = Encoder::new(gpu, encode, slots, true).map_err(|error| error.during("taking device memory"))?;
        let outbox = Outbox::new(sink.clone(), lanes.clone(), plan.clone(), device_plan::threads(options))?;
        report.storage = "pinned copies";
        Ok(Self {
            encoder,
            shrinks: shrinks.to_vec(),
            broken: false,
            levels: vec![Ready::default(); plan.levels.len()],
            segments: Vec::new(),
            direct,
            outbox,
            options: options.clone(),
            pieces: vec![Vec::new(); plan.levels.len()],
            plan: plan.clone(),
            lanes: lanes.clone(),
            report,
        })
    }

    /// Whether the memory that the options allow is enough for a write of whole rows.
    pub(super) fn fits(gpu: &Arc<Gpu>, plan: &Plan, shape: Shape, options: &WriteOptions) -> Result<(), Error> {
        let Some(main) = plan.levels.first() else { return Err(Error::usage("there is no image to write")) };
        let press = device_plan::press(gpu, main, plan.with_overviews, options, &mut Vec::new())?;
        let levels = super::levels(plan, shape.sample, None)?;
        let shrinks: Vec<_> = levels.into_iter().map(|level| level.shrink).collect();
        let encode = device_plan::encode_plan(plan, shape, options, &shrinks, None, press)?;
        device_plan::fit(gpu, plan, &encode, options, budget(gpu, options)?).map(|_| ())
    }

    /// Rows of the image that were taken.
    pub(super) fn rows(&self) -> u32 {
        self.levels.first().map_or(0, |level| level.end)
    }

    /// Rows of the image whose tiles are cut.
    fn rows_done(&self) -> u32 {
        let height = self.plan.levels.first().map_or(0, |level| level.layout.tile_height);
        self.levels.first().map_or(0, |level| level.tile_row.saturating_mul(height))
    }

    /// The first row of a level that is still needed.
    fn needed(&self, index: usize) -> u32 {
        let (Some(ready), Some(plan)) = (self.levels.get(index), self.plan.levels.get(index)) else { return 0 };
        let tiles = ready.tile_row.saturating_mul(plan.layout.tile_height);
        let below = self.plan.levels.get(index + 1).map(|below| below.layout.height);
        let looks_back = match (self.shrinks.get(index).and_then(Option::as_ref), below) {
            (Some(shrinks), Some(height)) if ready.shrunk < height => shrinks.needs(ready.shrunk).start,
            _ => u32::MAX,
        };
        tiles.min(looks_back).min(ready.end)
    }

    fn room(&self, index: usize) -> u32 {
        let capacity = self.encoder.capacity(index);
        let held = self.levels.get(index).map_or(0, |ready| ready.end - self.needed(index));
        capacity.saturating_sub(held)
    }

    /// Takes `count` rows and does what can be done with them. Whatever comes of it, nothing reads the rows afterwards.
    pub(super) fn push(&mut self, rows: Incoming<'_>, count: u32, taken: &mut u32) -> Result<(), Error> {
        let result = self.take(rows, count, taken);
        if let Incoming::Device(..) = rows {
            let settled = self.encoder.settle().map_err(|error| error.during("taking rows to the device"));
            return result.and(settled.map_err(Error::from));
        }
        result
    }

    fn take(&mut self, rows: Incoming<'_>, count: u32, taken: &mut u32) -> Result<(), Error> {
        while *taken < count {
            let room = self.room(0).min(count - *taken);
            if room == 0 {
                return Err(Error::usage("the writer has rows that lead nowhere; this is a fault in swath"));
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
                    let cut: Vec<&[u8]> = planes
                        .iter()
                        .zip(row_lens)
                        .map(|(plane, len)| {
                            let range = *taken as usize * len..(*taken + room) as usize * len;
                            plane.get(range).unwrap_or_default()
                        })
                        .collect();
                    let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
                    match cut.split_last() {
                        Some((mask, samples)) if masked => {
                            self.encoder.take_host(samples, first).map_err(stage)?;
                            self.encoder.take_host_mask(mask, first).map_err(stage)?;
                        }
                        _ => self.encoder.take_host(&cut, first).map_err(stage)?,
                    }
                }
            }
            *taken += room;
            if let Some(level) = self.levels.first_mut() {
                level.end += room;
            }
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

    /// Puts the complete tile rows of a level into the batch.
    fn cut(&mut self, index: usize) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            let (Some(plan), Some(ready)) = (self.plan.levels.get(index), self.levels.get(index)) else {
                return Ok(moved);
            };
            let complete = ready.end == plan.layout.height;
            let until = if complete { plan.grid.down } else { ready.end / plan.layout.tile_height };
            if ready.tile_row >= until {
                return Ok(moved);
            }
            let free = self.encoder.free();
            let count = (plan.grid.across - ready.position).min(free.image / plan.grid.planes.max(1)).min(free.mask);
            if count == 0 {
                self.flush()?;
                continue;
            }
            let (tile_row, position) = (ready.tile_row, ready.position);
            let cut = self.encoder.cut(index, tile_row, position, count);
            cut.map_err(|error| error.during("cutting tiles"))?;
            self.segments.push(Segment { level: index, tile_row, position, count });
            let across = plan.grid.across;
            if let Some(ready) = self.levels.get_mut(index) {
                ready.position += count;
                if ready.position == across {
                    (ready.tile_row, ready.position) = (ready.tile_row + 1, 0);
                }
            }
            moved = true;
        }
    }

    /// Makes what rows of the next level can be made.
    fn shrink(&mut self, index: usize) -> Result<bool, Error> {
        let (Some(Some(shrink)), Some(below), Some(ready)) =
            (self.shrinks.get(index), self.plan.levels.get(index + 1), self.levels.get(index))
        else {
            return Ok(false);
        };
        let most = ready.shrunk + self.room(index + 1).min(below.layout.height - ready.shrunk);
        let mut until = ready.shrunk;
        while until < most && shrink.needs(until).end <= ready.end {
            until += 1;
        }
        let rows = ready.shrunk..until;
        if rows.is_empty() {
            return Ok(false);
        }
        self.encoder.shrink(index, rows).map_err(|error| error.during("making overviews"))?;
        if let Some(ready) = self.levels.get_mut(index) {
            ready.shrunk = until;
        }
        if let Some(next) = self.levels.get_mut(index + 1) {
            next.end = until;
        }
        Ok(true)
    }

    /// Compresses the batch and sends it off.
    fn flush(&mut self) -> Result<(), Error> {
        if self.options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        if self.encoder.is_empty() {
            return Ok(());
        }
        self.outbox.wait_for_room().inspect_err(|_| self.broken = true)?;
        let batch = self.encoder.submit().map_err(|error| error.during("compressing tiles"))?;
        self.report.bands += 1;
        self.report.notices.extend(self.encoder.gpu().take_notice());
        let segments = std::mem::take(&mut self.segments);
        let parcel = self.deal(&segments, batch).inspect_err(|_| self.broken = true)?;
        self.outbox.send(parcel);
        if let (Some(report), Some(main)) = (&self.options.progress, self.plan.levels.first()) {
            let of = main.layout.height;
            report(Progress { rows: self.rows_done().min(of), of, bytes: self.lanes.iter().map(Lane::len).sum() });
        }
        Ok(())
    }

    /// Says where everything of a batch goes.
    fn deal(&mut self, segments: &[Segment], batch: Batch) -> Result<Parcel, Error> {
        let plan = self.plan.clone();
        let lanes = self.lanes.clone();
        let bands = self.levels.first().map_or(0, |_| plan.levels.first().map_or(0, |level| level.layout.samples));
        let mut parcel = Parcel { landing: batch.landing, ..Parcel::default() };
        let (mut image, mut mask) = (batch.image.into_iter(), batch.mask.into_iter());
        let mut moments = batch.moments.chunks(usize::from(bands).max(1));
        let each = if batch.pieces.is_empty() { 0 } else { self.encoder.pieces() as usize };
        let mut pieces = batch.pieces.chunks(each.max(1));
        let (mut slot, mut mask_slot) = (0_u32, 0_u32);
        for segment in segments {
            let (Some(level), Some(lane)) = (plan.levels.get(segment.level), lanes.get(segment.level)) else {
                continue;
            };
            let rows = level.grid.stored_rows(segment.tile_row);
            let first = u64::from(segment.tile_row) * u64::from(level.grid.across) + u64::from(segment.position);
            for position in first..first + u64::from(segment.count) {
                let statistics = match segment.level {
                    0 => moments.next().unwrap_or_default(),
                    _ => &[],
                };
                for part in 0..level.grid.planes {
                    let found = image.next().unwrap_or(Pressed::Nothing);
                    if each > 0
                        && let (Some(list), Some(sizes)) = (self.pieces.get_mut(segment.level), pieces.next())
                    {
                        let whole = matches!(found, Pressed::At(_));
                        // Strips of an overview are narrower, and have fewer pieces than there is room for.
                        let sizes = sizes.iter().take(level.pieces as usize);
                        list.extend(sizes.map(|size| if whole { *size } else { 0 }));
                    }
                    let number = position * u64::from(level.parts()) + u64::from(part);
                    let statistics = if part == 0 { statistics } else { &[] };
                    self.report.device_tiles += 1;
                    if self.direct {
                        self.deal_direct(&mut parcel, segment.level, lane, slot, rows, found, statistics)?;
                    } else {
                        let what = self.what(found, level, slot, rows, false)?;
                        let moments = (0..).zip(statistics.iter().copied()).collect();
                        parcel.tiles.push(Tile { level: segment.level, number, what, moments });
                    }
                    slot += 1;
                }
                if level.mask.is_some() {
                    let found = mask.next().unwrap_or(Pressed::Nothing);
                    let number = position * u64::from(level.parts()) + u64::from(level.grid.planes);
                    let what = self.what(found, level, mask_slot, rows, true)?;
                    parcel.tiles.push(Tile { level: segment.level, number, what, moments: Vec::new() });
                    mask_slot += 1;
                }
            }
        }
        Ok(parcel)
    }

    #[allow(clippy::too_many_arguments)]
    fn deal_direct(
        &mut self,
        parcel: &mut Parcel,
        index: usize,
        lane: &Lane,
        slot: u32,
        rows: u32,
        found: Pressed,
        moments: &[Moments],
    ) -> Result<(), Error> {
        let place = |offset: u64| match lane.is_held() {
            true => To::Level(index, offset),
            false => To::File(lane.start() + offset),
        };
        match found {
            Pressed::Nothing => {
                lane.admit(0, moments);
            }
            Pressed::At(range) => {
                let to = place(lane.admit(range.len() as u64, moments));
                // Tiles of a level lie one after the other, here and there.
                match parcel.moves.last_mut() {
                    Some(last) if last.range.end == range.start && follows(last.to, last.range.len(), to) => {
                        last.range.end = range.end;
                    }
                    _ => parcel.moves.push(Move { range, to }),
                }
            }
            Pressed::Host(_) | Pressed::Refused(_) => {
                let plan = self.plan.clone();
                let Some(level) = plan.levels.get(index) else { return Ok(()) };
                let What::Whole(bytes) = self.what(found, level, slot, rows, false)? else { return Ok(()) };
                match place(lane.admit(bytes.len() as u64, moments)) {
                    To::File(offset) => self.outbox.write(offset, &bytes)?,
                    To::Level(_, offset) => lane.keep(offset, &bytes),
                }
            }
        }
        Ok(())
    }

    /// What is to be done with a tile that goes to its level in turn.
    fn what(&mut self, found: Pressed, level: &LevelPlan, slot: u32, rows: u32, mask: bool) -> Result<What, Error> {
        Ok(match found {
            Pressed::Nothing => What::Whole(Vec::new()),
            Pressed::At(range) if !mask && self.encoder.press() == Press::Host => {
                self.report.device_tiles -= 1;
                self.report.host_tiles += 1;
                What::Raw { range, rows, mask }
            }
            Pressed::At(range) => What::Landed(range),
            Pressed::Host(stream) => {
                let mut bytes = Vec::new();
                self.plan.framed(&mut bytes, |bytes| {
                    bytes.extend_from_slice(&stream);
                    Ok(())
                })?;
                What::Whole(bytes)
            }
            Pressed::Refused(reason) => {
                if !mask {
                    self.report.device_tiles -= 1;
                    self.report.host_tiles += 1;
                }
                let notice = format!("tiles are compressed by the CPU: {reason}");
                if !self.report.notices.contains(&notice) {
                    self.report.notices.push(notice);
                }
                What::Whole(self.by_host(level, slot, rows, mask)?)
            }
        })
    }

    /// Compresses a tile of the last batch on the CPU.
    fn by_host(&self, level: &LevelPlan, slot: u32, rows: u32, mask: bool) -> Result<Vec<u8>, Error> {
        let host = match (&level.mask, mask) {
            (Some((_, host)), true) => host,
            _ => &level.host,
        };
        let raw = self.encoder.tile_bytes(mask, slot, level.layout.tile_width, rows);
        let raw = raw.map_err(|error| error.during("bringing tiles back"))?;
        let mut bytes = Vec::new();
        self.plan.framed(&mut bytes, |bytes| Ok(host.compress(rows, &raw, bytes, &mut Default::default())?))?;
        Ok(bytes)
    }

    /// Does what is left when every row is there, and waits until it is in the file.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.advance()?;
        self.flush()?;
        self.outbox.drain().inspect_err(|_| self.broken = true)
    }

    /// What it did, and what that cost.
    pub(super) fn report(&self) -> DeviceReport {
        DeviceReport { counters: self.encoder.counters(), ..self.report.clone() }
    }

    /// Sizes of the pieces of each level's tiles, in the order they were numbered.
    pub(super) fn pieces(&mut self) -> Vec<Vec<u32>> {
        std::mem::take(&mut self.pieces)
    }

    /// Brings to the host what is needed to go on without the device: tiles that were cut and are in no file yet go to their
    /// levels, compressed by the CPU; then the rows of each level.
    ///
    /// # Errors
    /// When the device does not give them back; the write has then failed.
    pub(super) fn step_down(&mut self, failure: Error) -> Result<Vec<Left>, Error> {
        if self.broken {
            return Err(failure);
        }
        self.outbox.drain()?;
        let plan = self.plan.clone();
        let segments = std::mem::take(&mut self.segments);
        let pending = self.encoder.pending().map_err(|error| error.during("bringing tiles back"))?;
        let bands = plan.levels.first().map_or(1, |level| usize::from(level.layout.samples).max(1));
        let mut statistics = pending.moments.chunks(bands);
        let (mut slot, mut mask_slot) = (0, 0);
        let mut tiles = Vec::new();
        for segment in &segments {
            let Some(level) = plan.levels.get(segment.level) else { continue };
            let rows = level.grid.stored_rows(segment.tile_row);
            let first = u64::from(segment.tile_row) * u64::from(level.grid.across) + u64::from(segment.position);
            for position in first..first + u64::from(segment.count) {
                for part in 0..level.parts() {
                    let mask = part >= level.grid.planes;
                    let (slot, used) = if mask { (&mut mask_slot, &pending.mask) } else { (&mut slot, &pending.image) };
                    let number = position * u64::from(level.parts()) + u64::from(part);
                    let bytes = match used.get(*slot as usize) {
                        Some(true) => self.by_host(level, *slot, rows, mask)?,
                        _ => Vec::new(),
                    };
                    *slot += 1;
                    let moments = match (segment.level, part) {
                        (0, 0) => (0..).zip(statistics.next().unwrap_or_default().iter().copied()).collect(),
                        _ => Vec::new(),
                    };
                    if let Some(list) = self.pieces.get_mut(segment.level).filter(|_| !mask) {
                        list.extend(std::iter::repeat_n(0, level.pieces as usize));
                    }
                    tiles.push(Tile { level: segment.level, number, what: What::Whole(bytes), moments });
                }
            }
        }
        self.report.host_tiles += tiles.len() as u64;
        let mut left = Vec::new();
        for (index, ready) in self.levels.clone().into_iter().enumerate() {
            let rows = self.needed(index)..ready.end;
            let planes = self.encoder.rows(index, rows.clone()).map_err(|error| error.during("bringing rows back"))?;
            let Ready { tile_row, position, shrunk, .. } = ready;
            left.push(Left { rows, planes, tile_row, position, shrunk });
        }
        self.outbox.send(Parcel { tiles, ..Parcel::default() });
        self.outbox.drain()?;
        Ok(left)
    }
}

/// Bytes of device memory that a write may take, as things stand.
pub(super) fn budget(gpu: &Gpu, options: &WriteOptions) -> Result<u64, DeviceError> {
    let available = gpu.available()?;
    Ok(match options.device.max_memory {
        Some(bytes) => bytes.min(available),
        None => available / SHARE.1 * SHARE.0,
    })
}

fn follows(before: To, len: usize, next: To) -> bool {
    match (before, next) {
        (To::File(before), To::File(next)) => before + len as u64 == next,
        (To::Level(level, before), To::Level(other, next)) => level == other && before + len as u64 == next,
        _ => false,
    }
}
