//! Writing: rows in, a whole file out, in bounded memory.
//!
//! ```no_run
//! # fn main() -> Result<(), swath::Error> {
//! use swath::{Metadata, Rows, SampleType, Shape, WriteOptions, Writer};
//!
//! let shape = Shape { width: 4096, height: 4096, bands: 1, sample: SampleType::U16 };
//! let mut writer = Writer::create("out.tif", shape, &Metadata::default(), &WriteOptions::cog())?;
//! for _ in 0..4096 {
//!     writer.push(&Rows::pixels(&[0_u8; 4096 * 2]))?;
//! }
//! writer.finish()?;
//! # Ok(()) }
//! ```

mod bands;
mod blocks;
mod canvas;
mod cells;
mod device;
mod device_bands;
mod device_plan;
mod device_rows;
mod encoded;
mod join;
mod lane;
mod layout;
mod memory;
mod options;
mod outbox;
mod plan;
mod pushed;
mod rows;
mod step;
mod tags;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use swath_codec::shrink::{ColumnShrink, Shrink};
use swath_cuda::Gpu;
use swath_io::{Sink, Traffic, sink::BLOCK};
use swath_tiff::SampleType;

pub use bands::BandEncoder;
pub use encoded::EncodedBand;
pub use options::{Alpha, BigTiff, Blocks, OnProgress, Overviews, Progress, Shape, WriteOptions};

use crate::{
    device::{DeviceReport, Mode},
    error::Error,
    location,
    metadata::Metadata,
    raster::{Interleave, Raster},
};
use blocks::FromBlocks;
use canvas::Step;
use device::DeviceSide;
pub use device_rows::DeviceSamples;
use lane::Lane;
pub(crate) use memory::least_memory;
use memory::{BATCH, Memory, capacity, look_back, row_len};
use plan::Plan;
use pushed::Pushed;
use rows::RowStore;
use step::Worker;

/// Rows of a raster in memory: native samples without gaps between them.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    samples: &'a [u8],
    interleave: Interleave,
    mask: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Whole rows whose pixels lie one after the other, all bands of a pixel together.
    pub fn pixels(samples: &'a [u8]) -> Self {
        Self { samples, interleave: Interleave::Pixel, mask: None }
    }

    /// The same rows of the first band, then of the next.
    pub fn bands(samples: &'a [u8]) -> Self {
        Self { samples, interleave: Interleave::Band, mask: None }
    }

    /// With the mask of these rows: a byte for each pixel, 0 where there is no data.
    #[must_use]
    pub fn with_mask(mut self, mask: &'a [u8]) -> Self {
        self.mask = Some(mask);
        self
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes between the levels' tiles that hold nothing.
    pub padding: u64,
    /// Whether it is a BigTIFF.
    pub big: bool,
    /// Overviews it has.
    pub overviews: usize,
    /// What a GPU did, and what it was asked for and did not do; empty where none was asked for.
    pub device: DeviceReport,
    /// What was asked of the network, where the file went to one.
    pub traffic: Option<Traffic>,
}

/// A file in the making. Rows are pushed from the top; tiles are cut, compressed and written as soon as their rows are
/// there, overviews are made of the rows in flight, and the file appears under its name when [`Writer::finish`] returns.
/// Dropped before, it leaves nothing behind.
///
/// The bytes of the file depend on shape, samples, metadata and options, and on nothing else: not on threads, memory, or
/// how rows were pushed.
#[derive(Debug)]
pub struct Writer {
    plan: Arc<Plan>,
    sink: Arc<SharedSink>,
    shape: Shape,
    options: WriteOptions,
    levels: Vec<Level>,
    lanes: Arc<Vec<Lane>>,
    /// The part that a GPU does.
    device: Option<Box<DeviceSide>>,
    /// What GPUs did that are not at work any more, and notices of what they did not do.
    report: DeviceReport,
    /// Sizes of the pieces of each level's tiles, where they were compressed in pieces.
    pieces: Vec<Vec<u32>>,
    threads: usize,
    /// Rows of the image that are worked on at a time.
    batch: u32,
    /// Rows of the tile row that is being pushed tile by tile, and tiles of it that are there.
    tiles: Option<(Vec<u8>, u32)>,
    /// What threads keep between steps.
    workers: Mutex<Vec<Worker>>,
    nodata: Option<Vec<u8>>,
    /// What is in flight of a file that is made of blocks.
    blocks: Option<Box<FromBlocks>>,
    /// Whether bands that were encoded elsewhere are put together, rather than rows encoded here.
    from_bands: bool,
    /// Tile rows of the file above the first one here, where this writes a band of it.
    above: u32,
    failed: bool,
}

/// A sink that the threads of a write share.
#[derive(Debug)]
struct SharedSink(Box<dyn Sink>);

/// What is in flight of one level.
#[derive(Debug, Default)]
struct Level {
    store: RowStore,
    /// Tile rows that are done.
    tile_rows: u32,
    /// Tiles of the next one that are done.
    position: u32,
    /// How the next level is made of this one.
    shrink: Option<Shrinks>,
    /// Rows of the next level that were made.
    shrunk: u32,
}

#[derive(Debug, Clone)]
struct Shrinks {
    samples: Shrink,
    /// For the mask, and for alpha.
    mask: Shrink,
}

impl Shrinks {
    /// The rows that a row of the next level is made of. Where sides do not divide, complex samples look at other rows than
    /// their mask.
    fn needs(&self, row: u32) -> std::ops::Range<u32> {
        let samples = self.samples.needs(row..row + 1);
        let mask = self.mask.needs(row..row + 1);
        samples.start.min(mask.start)..samples.end.max(mask.end)
    }
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// When the options contradict the shape, the memory is too small, or no file can be made.
    pub fn create(
        path: impl AsRef<Path>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        Self::at_path(path.as_ref(), options, |sink| Self::to_sink(sink, shape, metadata, options))
    }

    /// Begins a file at a path or address; errors name it.
    fn at_path(
        path: &Path,
        options: &WriteOptions,
        begin: impl FnOnce(Box<dyn Sink>) -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let sink = location::sink(path, &options.remote).map_err(Error::from);
        sink.and_then(begin).map_err(|error| error.in_source(&location::shown(path)))
    }

    /// Begins a file in any sink.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn to_sink(
        sink: Box<dyn Sink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let sink = Arc::new(SharedSink(sink));
        let mode = options.device.mode.unwrap_or_default();
        let mut notice = None;
        if mode != Mode::Cpu {
            match Self::on_device(&sink, shape, metadata, options) {
                Err(error) if mode == Mode::Auto && error.is_about_device() => notice = Some(error),
                result => return result,
            }
        }
        let plan = Plan::new(shape, metadata, options, false)?;
        let nodata = nodata_of(metadata, shape);
        let memory = Memory::fit(&plan, options)?;
        let mut writer = Self::with(plan, sink, shape, options, memory, nodata)?;
        writer.make_stores(&memory)?;
        let told = notice.map(|error| format!("the CPU writes: {error}"));
        writer.report.notices.extend(told);
        Ok(writer)
    }

    /// Begins a file whose tiles a GPU makes.
    fn on_device(
        sink: &Arc<SharedSink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let gpu = options.device.open()?;
        let plan = Plan::new(shape, metadata, options, true)?;
        let nodata = nodata_of(metadata, shape);
        // What the CPU would do, should it have to go on.
        let memory = Memory::unmeasured(&plan, options);
        let mut writer = Self::with(plan, sink.clone(), shape, options, memory, nodata)?;
        writer.take_gpu(&gpu)?;
        Ok(writer)
    }

    /// Lets a GPU make the tiles.
    fn take_gpu(&mut self, gpu: &Arc<Gpu>) -> Result<(), Error> {
        let shrinks: Vec<_> = self.levels.iter().map(|level| level.shrink.clone()).collect();
        let (shape, options, nodata) = (self.shape, &self.options, self.nodata.as_deref());
        let side = DeviceSide::new(gpu, &self.plan, &self.lanes, &self.sink, shape, options, &shrinks, nodata)?;
        self.device = Some(Box::new(side));
        Ok(())
    }

    fn with(
        plan: Plan,
        sink: Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        memory: Memory,
        nodata: Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        let levels = levels(&plan, shape.sample, nodata.as_deref())?;
        Ok(Self::with_levels(plan, sink, shape, options, memory, nodata, levels))
    }

    fn with_levels(
        plan: Plan,
        sink: Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        memory: Memory,
        nodata: Option<Vec<u8>>,
        levels: Vec<Level>,
    ) -> Self {
        let lanes = plan.lanes();
        sink.0.expect(plan.reach(&lanes));
        if let Some(cancel) = options.cancel.clone() {
            sink.0.stop_when(Arc::new(move || cancel.is_cancelled()));
        }
        Self {
            lanes: Arc::new(lanes),
            plan: Arc::new(plan),
            sink,
            shape,
            options: options.clone(),
            levels,
            device: None,
            report: DeviceReport::default(),
            pieces: Vec::new(),
            threads: memory.threads,
            batch: memory.batch,
            tiles: None,
            workers: Mutex::default(),
            nodata,
            blocks: None,
            from_bands: false,
            above: 0,
            failed: false,
        }
    }

    /// Memory for the rows of overviews. The image's own rows get theirs when they are first copied: a whole array is never
    /// copied.
    fn make_stores(&mut self, memory: &Memory) -> Result<(), Error> {
        for (index, level) in self.levels.iter_mut().enumerate().skip(1) {
            let planes = store_planes(&self.plan, index);
            level.store = RowStore::new(planes, capacity(&self.plan, index, memory.batch))?;
        }
        Ok(())
    }

    /// Size and type of the raster.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Rows that were pushed.
    pub fn rows(&self) -> u32 {
        match &self.device {
            Some(device) => device.rows(),
            None => self.levels.first().map_or(0, |level| level.store.end()),
        }
    }

    /// Whether a GPU makes the tiles, as things stand.
    pub fn is_on_device(&self) -> bool {
        self.device.is_some()
    }

    /// What GPUs did for this write so far, and what they were asked for and did not do.
    pub fn device_report(&self) -> DeviceReport {
        let mut report = self.report.clone();
        if let Some(device) = &self.device {
            report.add(&device.report());
        }
        report
    }

    /// How many rows are best pushed at a time.
    pub fn batch_rows(&self) -> u32 {
        self.batch
    }

    /// Adds rows below those that were pushed before; any number of them.
    ///
    /// # Errors
    /// When they are no whole rows or too many, or when they cannot be encoded or written. After an error of the latter
    /// kind the file can only be dropped.
    pub fn push(&mut self, rows: &Rows<'_>) -> Result<(), Error> {
        if self.tiles.is_some() {
            return Err(Error::usage("rows cannot be pushed in the middle of a row of tiles"));
        }
        let pushed = self.check(rows)?;
        if self.device.is_some() {
            let result = self.push_by_device(&pushed);
            return self.named(result);
        }
        // Rows that are all there need no copy of their own.
        let whole = self.rows() == 0 && pushed.rows == self.shape.height && self.can_borrow(&pushed);
        let result = if whole { self.borrow_all(&pushed) } else { self.copy_in(&pushed) };
        self.named(result)
    }

    /// Adds a raster below the rows that were pushed before.
    ///
    /// # Errors
    /// As [`Writer::push`], and when the raster is of another width, type or number of bands.
    pub fn push_raster(&mut self, raster: &Raster) -> Result<(), Error> {
        let Shape { width, bands, sample, .. } = self.shape;
        if (raster.width(), raster.bands(), raster.sample()) != (width, bands.into(), sample) {
            return Err(Error::usage(format!(
                "a raster of {} bands, {} columns and {} samples where {bands} bands, {width} columns and {sample} belong",
                raster.bands(),
                raster.width(),
                raster.sample()
            )));
        }
        let (samples, interleave) = (raster.bytes(), raster.interleave());
        self.push(&Rows { samples, interleave, mask: None })
    }

    /// Adds rows that are in the memory of a GPU below those that were pushed before; any number of them. They are read when
    /// this returns. Where the CPU writes, they are brought to the host, some at a time.
    ///
    /// # Errors
    /// As [`Writer::push`], and when the device fails.
    pub fn push_device(&mut self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        if self.tiles.is_some() {
            return Err(Error::usage("rows cannot be pushed in the middle of a row of tiles"));
        }
        self.check_device(samples)?;
        let result = self.take_device(samples, 0..samples.count());
        self.named(result)
    }

    /// Adds the next tile, from left to right, row of tiles by row of tiles: its part inside the image, pixel by pixel.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn push_tile(&mut self, samples: &[u8]) -> Result<(), Error> {
        self.may_push()?;
        let Some(level) = self.plan.levels.first() else { return Ok(()) };
        if level.mask.is_some() {
            return Err(Error::usage("a file with a mask takes rows, not tiles"));
        }
        let (tile_width, tile_height) = (level.layout.tile_width, level.layout.tile_height);
        let (across, row) = (level.grid.across, self.rows() / tile_height);
        let pixel = self.shape.sample.size() * usize::from(self.shape.bands);
        let (mut band, column) = self.tiles.take().unwrap_or_default();
        let (columns, rows) = level.grid.visible(column, row);
        if !self.rows().is_multiple_of(tile_height) {
            return Err(Error::usage(format!("{} rows were pushed: no row of tiles begins there", self.rows())));
        }
        if self.rows() >= self.shape.height || samples.len() != columns as usize * rows as usize * pixel {
            self.tiles = (!band.is_empty()).then_some((band, column));
            return Err(Error::usage(format!(
                "tile ({column}, {row}) has {columns} x {rows} pixels of {pixel} bytes, not {} bytes",
                samples.len()
            )));
        }
        let row_len = self.shape.width as usize * pixel;
        band.resize(row_len * rows as usize, 0);
        let start = column as usize * tile_width as usize * pixel;
        let len = columns as usize * pixel;
        for (target, source) in band.chunks_exact_mut(row_len).zip(samples.chunks_exact(len.max(1))) {
            if let Some(target) = target.get_mut(start..start + len) {
                target.copy_from_slice(source);
            }
        }
        if column + 1 < across {
            self.tiles = Some((band, column + 1));
            return Ok(());
        }
        self.push(&Rows::pixels(&band))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// When rows are missing, or the file cannot be completed.
    pub fn finish(self) -> Result<Written, Error> {
        if self.failed {
            return Err(Error::usage("the file cannot be completed after an error"));
        }
        let (rows, height) = (self.rows(), self.shape.height);
        if self.blocks.is_none() && (rows != height || self.tiles.is_some()) {
            return Err(Error::usage(format!("{rows} of {height} rows were pushed")));
        }
        let name: std::sync::Arc<str> = self.sink.0.name().into();
        self.complete().map_err(|error| error.in_source(&name))
    }

    fn named(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.failed |= result.is_err();
        result.map_err(|error| error.in_source(&self.sink.0.name().into()))
    }

    /// Whether rows can be pushed at all.
    fn may_push(&self) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        if self.from_bands {
            let detail = "the file is put together from encoded bands: its rows cannot be pushed too";
            return Err(Error::usage(detail));
        }
        if self.blocks.is_some() {
            return Err(Error::usage("the file is made of blocks: its rows cannot be pushed too"));
        }
        Ok(())
    }

    /// The rows that are pushed, if they are whole rows that are still missing.
    fn check<'a>(&self, rows: &Rows<'a>) -> Result<Pushed<'a>, Error> {
        self.may_push()?;
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        let pushed = Pushed::new(rows, self.shape, masked)?;
        let (count, height, left) = (pushed.rows, self.shape.height, self.shape.height - self.rows());
        if count > left {
            return Err(Error::usage(format!("{count} rows were pushed where {left} of {height} are missing")));
        }
        Ok(pushed)
    }

    fn complete(mut self) -> Result<Written, Error> {
        self.finish_blocks()?;
        self.finish_device()?;
        self.drain()?;
        let starts = self.close_gaps()?;
        let mut end = self.plan.head_len();
        for (lane, start) in self.lanes.iter().zip(&starts) {
            if lane.is_held() {
                self.sink.0.write_at(*start, &lane.take_kept())?;
            }
            end = end.max(start + lane.len());
        }
        let tiles: Vec<Vec<(u64, u32)>> =
            self.lanes.iter().zip(&starts).map(|(lane, start)| lane.tiles(*start)).collect();
        let moments = self.lanes.first().map(Lane::moments).unwrap_or_default();
        let head = self.plan.head(&tiles, &self.pieces, &moments);
        self.sink.0.write_at(0, &head)?;
        let used = head.len() as u64 + self.lanes.iter().map(Lane::len).sum::<u64>();
        let mut written = Written {
            size: end,
            padding: end - used,
            big: self.plan.style.big,
            overviews: self.levels.len() - 1,
            device: self.report.clone(),
            traffic: None,
        };
        let sink = Arc::into_inner(self.sink).ok_or_else(|| Error::usage("the sink is still in use"))?;
        let traffic = sink.0.traffic();
        sink.0.commit(end)?;
        written.traffic = traffic.map(|read| read());
        Ok(written)
    }

    /// Takes the room that levels did not need out of the file; returns where each level then begins.
    fn close_gaps(&mut self) -> Result<Vec<u64>, Error> {
        let used = self.plan.head_len() + self.lanes.iter().map(Lane::len).sum::<u64>();
        // In a small file even a block would be waste, and moving what there is costs nothing.
        let unit = if used <= PACKED || self.levels.len() == 1 { 1 } else { BLOCK };
        let mut starts = vec![0; self.lanes.len()];
        let mut gaps = Vec::new();
        let mut removed = 0;
        // As the levels lie in the file: the smallest first. Those that were held follow each other without a gap.
        let mut position = self.plan.head_len();
        for (lane, start) in self.lanes.iter().zip(&mut starts).rev() {
            if !lane.is_held() {
                let from = position.next_multiple_of(unit);
                if from < lane.start() {
                    gaps.push(from..lane.start());
                    removed += lane.start() - from;
                }
                position = lane.start();
            }
            *start = position - removed;
            position += lane.len();
        }
        if !gaps.is_empty() {
            let sink = Arc::get_mut(&mut self.sink).ok_or_else(|| Error::usage("the sink is still in use"))?;
            sink.0.remove(&gaps, position)?;
        }
        Ok(starts)
    }
}

/// Files up to this size have no padding at all.
const PACKED: u64 = 8 << 20;

/// How each level but the last becomes the next.
fn steps(plan: &Plan, sample: SampleType, nodata: Option<&[u8]>) -> Result<Vec<Option<Step>>, Error> {
    let mut steps = Vec::new();
    for (index, level) in plan.levels.iter().enumerate() {
        let Some(next) = plan.levels.get(index + 1) else {
            steps.push(None);
            continue;
        };
        let from = (level.layout.width, level.layout.height);
        let to = (next.layout.width, next.layout.height);
        // As in GDAL, a mask counts before nodata.
        let nodata = nodata.filter(|_| level.mask.is_none());
        let step = |sample, nodata| {
            // Where GDAL puts zeros into holes, or lets them grow, we do not (DESIGN.md): no quirks.
            let step = ColumnShrink::new(from, to, sample, plan.resampling, nodata);
            step.map_err(|error| Error::usage(error.to_string()))
        };
        steps.push(Some(Step { samples: step(sample, nodata)?, mask: step(SampleType::U8, None)? }));
    }
    Ok(steps)
}

/// Every level before its first row, without memory for any.
fn levels(plan: &Plan, sample: SampleType, nodata: Option<&[u8]>) -> Result<Vec<Level>, Error> {
    let mut levels = Vec::new();
    for (step, level) in steps(plan, sample, nodata)?.into_iter().zip(&plan.levels) {
        let whole = |step: Step| {
            let (width, _) = step.samples.target();
            step.columns(0..width, &(0..level.layout.width)).map_err(|error| Error::usage(error.to_string()))
        };
        let shrink = step.map(whole).transpose()?;
        levels.push(Level { shrink, ..Level::default() });
    }
    Ok(levels)
}

/// Bytes of a row of each plane of a level: its bands, then its mask.
fn store_planes(plan: &Plan, index: usize) -> Vec<usize> {
    let Some(level) = plan.levels.get(index) else { return Vec::new() };
    let width = level.layout.width as usize;
    let mut planes = vec![width * level.layout.sample.size(); level.layout.samples.into()];
    if level.mask.is_some() {
        planes.push(width);
    }
    planes
}

/// Whether samples are written otherwise than they come.
fn changes(options: &WriteOptions, shape: Shape, nodata: Option<&[u8]>) -> bool {
    options.nan_to_nodata && nodata.is_some() && shape.sample.is_float()
}

fn nodata_of(metadata: &Metadata, shape: Shape) -> Option<Vec<u8>> {
    metadata.bands.first().and_then(|band| band.nodata_sample(shape.sample))
}
