//! The part of a write that a GPU does: rows stay on the device until their tiles are compressed.
//!
//! Each level has a ring of rows there. Whatever is complete goes on at once: tile rows are cut into the batch, overview rows
//! are made, level after level. A full batch is compressed and leaves for the outbox.

use std::{ops::Range, sync::Arc};

use swath_codec::{
    host::encode::HostEncoder,
    pre::{Arrangement, moments::Moments},
};
use swath_cuda::{
    DeviceError, Gpu,
    encode::{Batch, DeviceRows, EncodePlan, Encoder, LevelRule, Pressed, Shrinks, Slots},
    press::{Edge, Press, TileRule, choose_press},
};
use swath_tiff::SampleType;

use super::{
    Rows, SharedSink, Shrinks as LevelShrinks, Writer,
    lane::Lane,
    options::{Progress, Shape, WriteOptions},
    outbox::{IN_FLIGHT, Move, Outbox, Parcel, Tile, To, What},
    plan::{LevelPlan, Plan},
    rows::RowStore,
    step::{Pushed, alpha_band},
};
use crate::{
    device::{DeviceRaster, DeviceReport, Mode},
    error::{Error, ErrorKind},
    raster::Interleave,
    read::Cancel,
    schedule::cores,
};

/// Bytes of tiles that are compressed at a time, where memory allows: enough to fill a large device, and to make a copy of it
/// worth its while.
const BATCH: u64 = 64 << 20;
/// Bytes of rows of a level that are on the device at once, if its tile rows are smaller.
const LEVEL: u64 = 8 << 20;
/// Threads that bring bytes to the file, at most.
const THREADS: usize = 16;
/// Bytes of rows that are brought to the host at a time, where the CPU writes what is on a device.
const FETCH: u64 = 32 << 20;
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
    encoder: Encoder,
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

/// The kind of tiles of a level on the device.
fn tile_rule(level: &LevelPlan, plan: &Plan, press: Press, sparse: bool) -> TileRule {
    let host = &level.host;
    TileRule {
        spec: host.spec().clone(),
        press,
        edge: host.edge(),
        fill: sparse.then(|| plan.fill.clone()),
        frame: plan.frame > 0 && !matches!(press, Press::Host | Press::Jpeg(_) | Press::Jpeg2000(_)),
        rows: level.layout.tile_height,
        native: host.takes_native(),
        native_swapped: host.takes_swapped(),
    }
}

/// What a GPU's tiles of a level can become at most, and how many pieces they have.
pub(super) fn set_bounds(level: &mut LevelPlan, options: &WriteOptions) {
    let spec = level.host.spec();
    let press = choose_press(spec, &options.settings, options.nvcomp).unwrap_or(Press::Host);
    let rule = |host: &HostEncoder, press: Press, rows: u32| TileRule {
        spec: host.spec().clone(),
        press,
        edge: Edge::Zero,
        fill: None,
        frame: true,
        rows,
        native: host.takes_native(),
        native_swapped: false,
    };
    let image = rule(&level.host, press, level.layout.tile_height);
    level.device_whole = image.max_whole() as u64;
    level.pieces = if press.has_pieces() { image.pieces() } else { 0 };
    level.device_mask_whole = level
        .mask
        .as_ref()
        .map_or(0, |(layout, host)| rule(host, Press::Deflate(2), layout.tile_height).max_whole() as u64);
}

/// How the device compresses the tiles of a plan. Where it cannot, the CPU does, of tiles that the device cut.
pub(super) fn press(
    gpu: &Gpu,
    level: &LevelPlan,
    levels: usize,
    options: &WriteOptions,
    notices: &mut Vec<String>,
) -> Result<Press, DeviceError> {
    let spec = level.host.spec();
    let wanted = choose_press(spec, &options.settings, options.nvcomp);
    let available = wanted.and_then(|press| {
        match press {
            Press::PackBits | Press::Jpeg(_) | Press::Jpeg2000(_) if !spec.tiled && levels > 1 => {
                let reason = "strips of overviews are narrower than those of the image";
                return Err(DeviceError::Declined(reason.into()));
            }
            Press::Jpeg(_) => gpu.has_nvjpeg()?,
            Press::Jpeg2000(_) => gpu.has_nvjpeg2000()?,
            Press::NvcompDeflate(_) | Press::NvcompZstd => gpu.has_nvcomp()?,
            _ => {}
        }
        Ok(press)
    });
    match available {
        Ok(press) => Ok(press),
        Err(DeviceError::Declined(reason)) => {
            notices.push(format!("tiles are compressed by the CPU: {reason}"));
            Ok(Press::Host)
        }
        Err(error) => Err(error),
    }
}

/// The plan of a write, as the device sees it.
fn encode_plan(
    plan: &Plan,
    shape: Shape,
    options: &WriteOptions,
    shrinks: &[Option<LevelShrinks>],
    nodata: Option<&[u8]>,
    press: Press,
) -> Result<EncodePlan, Error> {
    let Some(main) = plan.levels.first() else { return Err(Error::usage("there is no image to write")) };
    let mut levels = Vec::new();
    for (index, level) in plan.levels.iter().enumerate() {
        let layout = &level.layout;
        let row = (level.row_len() as u64).max(1);
        let wanted = (LEVEL / row).clamp(1, u32::MAX.into()) as u32;
        let rows = wanted.max(layout.tile_height).next_multiple_of(layout.tile_height.max(1));
        let capacity = rows.saturating_add(super::look_back(plan, index)).min(layout.height.max(1));
        levels.push(LevelRule {
            size: (layout.width, layout.height),
            tile: (layout.tile_width, layout.tile_height),
            capacity,
            shrink: shrinks
                .get(index)
                .and_then(Option::as_ref)
                .map(|shrinks| Shrinks { samples: shrinks.samples.clone(), mask: shrinks.mask.clone() }),
        });
    }
    let alpha = alpha_band(&main.layout);
    let mask = main.mask.as_ref().map(|(layout, host)| TileRule {
        spec: host.spec().clone(),
        press: Press::Deflate(2),
        edge: Edge::Zero,
        fill: options.sparse.then(|| vec![0]),
        frame: plan.frame > 0,
        rows: layout.tile_height,
        native: false,
        native_swapped: false,
    });
    Ok(EncodePlan {
        levels,
        bands: shape.bands,
        sample: shape.sample,
        image: tile_rule(main, plan, press, options.sparse),
        planes: main.grid.planes,
        mask,
        alpha: alpha.and_then(|band| u16::try_from(band).ok()),
        // Nodata counts before alpha.
        alpha_counts: nodata.is_none(),
        statistics: plan.statistics.then(|| nodata.map(<[u8]>::to_vec)),
        replace_nan: options.nan_to_nodata.then(|| nodata.map(<[u8]>::to_vec)).flatten(),
    })
}

/// As many slots as memory allows, on the device and on the host.
fn fit(gpu: &Arc<Gpu>, plan: &Plan, encode: &EncodePlan, options: &WriteOptions, budget: u64) -> Result<Slots, Error> {
    let planes = encode.planes.max(1);
    let slots = |positions: u32| Slots { image: positions * planes, mask: positions };
    let tile = (encode.image.max_whole() as u64 * u64::from(planes)).max(1);
    let positions: u64 =
        plan.levels.iter().map(|level| u64::from(level.grid.across) * u64::from(level.grid.down)).sum();
    let across = plan.levels.first().map_or(1, |level| u64::from(level.grid.across));
    let wished = options.batch.map_or(BATCH / tile, |tile_rows| u64::from(tile_rows.max(1)) * across);
    let most = wished.clamp(1, positions.clamp(1, 1 << 16)) as u32;
    let fits = |positions: u32| -> Result<bool, Error> {
        let device = encode.device_bytes(gpu, slots(positions), true)?;
        Ok(device <= budget && host_bytes(plan, encode, slots(positions), options) <= options.max_memory as u64)
    };
    if !fits(1)? {
        let required = encode.device_bytes(gpu, slots(1), true)?;
        let host = host_bytes(plan, encode, slots(1), options);
        if host > options.max_memory as u64 {
            return Err(Error::new(ErrorKind::Limit(format!(
                "writing by way of the GPU takes {host} bytes of host memory, {} are allowed; use smaller tiles or raise \
                 max_memory",
                options.max_memory
            ))));
        }
        return Err(DeviceError::Memory {
            what: "writing one row of tiles".into(),
            required,
            available: budget,
            hint: "; use smaller tiles or a narrower image, or raise max_device_memory",
        }
        .into());
    }
    // One position fits; the most that do are found by halving.
    let (mut found, mut too_many) = (1, most.saturating_add(1));
    while too_many - found > 1 {
        let middle = found + (too_many - found) / 2;
        if fits(middle)? { found = middle } else { too_many = middle }
    }
    Ok(slots(found))
}

/// Bytes of host memory that a write by way of a device takes.
fn host_bytes(plan: &Plan, encode: &EncodePlan, slots: Slots, options: &WriteOptions) -> u64 {
    let (with_rows, thread) = super::Memory::costs(plan);
    let tables = with_rows(0);
    let parcels = encode.parcel_len(slots) as u64 * IN_FLIGHT as u64;
    // A codec on the host has what it makes of each tile of a batch in memory until its turn comes.
    let codec = match encode.image.press {
        Press::Host => thread * threads(options) as u64 + encode.parcel_len(slots) as u64,
        _ if encode.mask.is_some() => encode.parcel_len(slots) as u64,
        _ => 0,
    };
    tables.saturating_add(parcels).saturating_add(codec)
}

fn threads(options: &WriteOptions) -> usize {
    options.threads.unwrap_or_else(cores).clamp(1, THREADS)
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
        let press = press(gpu, main, plan.levels.len(), options, &mut report.notices)?;
        let encode = encode_plan(plan, shape, options, shrinks, nodata, press)?;
        let available = gpu.available()?;
        let budget = match options.device.max_memory {
            Some(bytes) => bytes.min(available),
            None => available / SHARE.1 * SHARE.0,
        };
        let slots = fit(gpu, plan, &encode, options, budget)?;
        let direct = encode.mask.is_none() && !matches!(press, Press::Host | Press::Jpeg(_) | Press::Jpeg2000(_));
        let encoder = Encoder::new(gpu, encode, slots, true).map_err(|error| error.during("taking device memory"))?;
        let outbox = Outbox::new(sink.clone(), lanes.clone(), plan.clone(), threads(options))?;
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

    /// Takes `count` rows and does what can be done with them.
    pub(super) fn push(&mut self, rows: Incoming<'_>, count: u32, taken: &mut u32) -> Result<(), Error> {
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
        if let Incoming::Device(..) = rows {
            // Afterwards the memory is the caller's again.
            self.encoder.settle().map_err(|error| error.during("taking rows to the device"))?;
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
                        list.extend(sizes.iter().map(|size| if whole { *size } else { 0 }));
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
        self.outbox.drain()
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
                        list.extend(std::iter::repeat_n(0, self.encoder.pieces() as usize));
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

fn follows(before: To, len: usize, next: To) -> bool {
    match (before, next) {
        (To::File(before), To::File(next)) => before + len as u64 == next,
        (To::Level(level, before), To::Level(other, next)) => level == other && before + len as u64 == next,
        _ => false,
    }
}

/// Rows of a raster in the memory of a GPU: samples in native byte order, and where they lie.
#[derive(Debug, Clone)]
pub struct DeviceSamples<'a> {
    rows: DeviceRows,
    count: u32,
    width: u32,
    bands: u16,
    sample: SampleType,
    mask: Option<DeviceRows>,
    gpu: Option<&'a Arc<Gpu>>,
}

impl<'a> DeviceSamples<'a> {
    /// The rows of a raster that was read to a GPU.
    ///
    /// # Errors
    /// When it has no samples.
    pub fn of_raster(raster: &'a DeviceRaster) -> Result<Self, Error> {
        let size = raster.sample().size();
        let (width, bands) = (raster.width() as usize, raster.bands() as usize);
        let steps = match raster.interleave() {
            Interleave::Band => [width * size, size, width * size * raster.height() as usize],
            Interleave::Pixel => [width * size * bands, size * bands, size],
        };
        let counts = [raster.height(), raster.width(), raster.bands()];
        Ok(Self {
            rows: DeviceRows::of_buffer(raster.buffer(), steps, counts, size)?,
            count: raster.height(),
            width: raster.width(),
            bands: u16::try_from(bands).map_err(|_| Error::usage("there are more bands than a file can have"))?,
            sample: raster.sample(),
            mask: None,
            gpu: Some(raster.gpu()),
        })
    }

    /// Rows of someone else's array: `shape` is rows, columns and bands. This is how an array of CuPy or PyTorch is handed in,
    /// by the CUDA array interface or DLPack.
    ///
    /// # Errors
    /// When there are more rows, columns or bands than a file can have.
    pub fn of_rows(rows: DeviceRows, shape: [usize; 3], sample: SampleType) -> Result<Self, Error> {
        let too_large = || Error::usage(format!("an array of {shape:?} is larger than a file can be"));
        let [count, columns, bands] = shape;
        Ok(Self {
            rows,
            count: u32::try_from(count).map_err(|_| too_large())?,
            width: u32::try_from(columns).map_err(|_| too_large())?,
            bands: u16::try_from(bands).map_err(|_| too_large())?,
            sample,
            mask: None,
            gpu: None,
        })
    }

    /// With the mask of these rows, one byte a pixel, 0 where there is no data.
    #[must_use]
    pub fn with_mask(mut self, rows: DeviceRows) -> Self {
        self.mask = Some(rows);
        self
    }

    /// With the mask of these rows in a raster of one band of bytes.
    ///
    /// # Errors
    /// When it is of another kind or size.
    pub fn with_mask_raster(mut self, mask: &'a DeviceRaster) -> Result<Self, Error> {
        let found = (mask.width(), mask.height(), mask.bands(), mask.sample());
        if found != (self.width, self.count, 1, SampleType::U8) {
            return Err(Error::usage("a mask has one byte for each pixel"));
        }
        self.mask = Some(Self::of_raster(mask)?.rows);
        Ok(self)
    }
}

impl Writer {
    /// Whether rows on a device are rows that are missing.
    pub(super) fn check_device(&self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        let Shape { width, height, bands, sample } = self.shape;
        if (samples.width, samples.bands, samples.sample) != (width, bands, sample) {
            return Err(Error::usage(format!(
                "an array of {} bands, {} columns and {} samples where {bands} bands, {width} columns and {sample} belong",
                samples.bands, samples.width, samples.sample
            )));
        }
        let left = height - self.rows();
        if samples.count > left {
            let count = samples.count;
            return Err(Error::usage(format!("{count} rows were pushed where {left} of {height} are missing")));
        }
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        if masked != samples.mask.is_some() {
            let detail = if masked {
                "the file has a mask, but the rows come without"
            } else {
                "rows come with a mask that the file does not have"
            };
            return Err(Error::usage(detail));
        }
        Ok(())
    }

    /// Takes rows that are on a device.
    pub(super) fn take_device(&mut self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        let mut taken = 0;
        if let Some(mut device) = self.device.take() {
            if samples.gpu.is_some_and(|gpu| !Arc::ptr_eq(gpu, device.encoder.gpu())) {
                self.device = Some(device);
                return Err(Error::usage("the raster is on another GPU than the one that writes"));
            }
            let incoming = Incoming::Device(&samples.rows, samples.mask.as_ref());
            let result = device.push(incoming, samples.count, &mut taken);
            self.settle_device(device, result)?;
        }
        // What the device did not take, the CPU does, some at a time.
        let gpu = samples.gpu.cloned().map_or_else(|| self.options.device.open(), Ok)?;
        let row = (self.plan.levels.first().map_or(1, LevelPlan::row_len) as u64).max(1);
        let at_once = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
        while taken < samples.count {
            let count = at_once.min(samples.count - taken);
            let fetch = |rows: &DeviceRows, bands: u16, size: usize| {
                swath_cuda::encode::fetch(&gpu, rows, taken, count, (self.shape.width, bands, size))
                    .map_err(|error| error.during("bringing rows to the host"))
            };
            let bytes = fetch(&samples.rows, samples.bands, samples.sample.size())?;
            let mask = samples.mask.as_ref().map(|mask| fetch(mask, 1, 1)).transpose()?;
            let rows = Rows::bands(&bytes);
            let rows = mask.as_ref().map_or(rows, |mask| rows.with_mask(mask));
            let pushed = self.check(&rows)?;
            self.copy_in(&pushed)?;
            taken += count;
        }
        Ok(())
    }

    /// Takes rows of the host to the device.
    pub(super) fn push_by_device(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        let size = self.shape.sample.size() * self.shape.width as usize;
        let bands = usize::from(self.shape.bands);
        let mut row_lens = match pushed.arrangement {
            Arrangement::Planes => vec![size; bands],
            Arrangement::Pixels => vec![size * bands],
        };
        row_lens.resize(pushed.planes.len().max(row_lens.len()), self.shape.width as usize);
        let mut taken = 0;
        let result = device.push(Incoming::Host(&pushed.planes, &row_lens), pushed.rows, &mut taken);
        self.settle_device(device, result)?;
        if taken < pushed.rows {
            let planes = pushed.planes.iter().zip(&row_lens);
            let rest = Pushed {
                planes: planes.map(|(plane, len)| plane.get(taken as usize * len..).unwrap_or_default()).collect(),
                arrangement: pushed.arrangement,
                rows: pushed.rows - taken,
            };
            return self.copy_in(&rest);
        }
        Ok(())
    }

    /// Does the rest of what the device does.
    pub(super) fn finish_device(&mut self) -> Result<(), Error> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        let result = device.finish();
        self.settle_device(device, result)?;
        // Its threads share the sink, which is about to be ours alone.
        if let Some(mut device) = self.device.take() {
            self.report.add(&device.report());
            self.pieces = device.pieces();
            for (level, plan) in self.levels.iter_mut().zip(&self.plan.levels) {
                level.tile_rows = plan.grid.down;
            }
        }
        Ok(())
    }

    /// Goes on with the device, or without it where it failed and that is allowed.
    fn settle_device(&mut self, mut device: Box<DeviceSide>, result: Result<(), Error>) -> Result<(), Error> {
        let Err(failure) = result else {
            self.device = Some(device);
            return Ok(());
        };
        if self.options.device.mode != Some(Mode::Auto) || !matches!(failure.kind(), ErrorKind::Device(_)) {
            return Err(failure);
        }
        let row = device.rows();
        let notice = format!("from row {row} on the CPU writes: {failure}");
        let left = device.step_down(failure)?;
        for (index, (level, left)) in self.levels.iter_mut().zip(left).enumerate() {
            let planes = super::store_planes(&self.plan, index);
            let capacity = super::capacity(&self.plan, index, self.batch);
            let count = left.rows.end - left.rows.start;
            level.store = RowStore::with_rows(planes, capacity, left.rows.start, count, &left.planes)?;
            (level.tile_rows, level.position, level.shrunk) = (left.tile_row, left.position, left.shrunk);
        }
        self.report.add(&device.report());
        self.report.notices.push(notice);
        self.pieces = device.pieces();
        Ok(())
    }
}
