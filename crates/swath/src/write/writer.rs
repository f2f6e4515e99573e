//! `Writer`: a file that is being written.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use swath_cuda::Gpu;
use swath_io::{Sink, Spill, Traffic, sink::BLOCK};
use swath_raster::memory;
use swath_tiff::structure::Predictor;

use super::{
    canvas::{Canvas, CellPosition},
    device::{DeviceSide, samples::DeviceSamples},
    input::{Pushed, Rows},
    level_writer::{LevelWriter, Waiting},
    levels::Levels,
    memory::{Memory, capacity},
    options::{Shape, WriteOptions, nodata_of},
    plan::Plan,
    predictor::{ChoiceState, PredictorChoice},
    progress::LevelProgress,
    row_store::RowStore,
    shared_sink::SharedSink,
    shrinks::{Shrinks, shrinks},
    step::EncodeBuffers,
};
use crate::{
    device::{DeviceReport, Mode},
    error::Error,
    metadata::Metadata,
    open::location,
    raster::{Interleave, Raster},
    sample::{Sample, bytes_of},
};

/// The result of a write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Bytes of the file.
    pub size: u64,
    /// Unused bytes between the tiles of the levels.
    pub padding: u64,
    /// Whether it is a BigTIFF.
    pub big: bool,
    /// Overviews it has.
    pub overviews: usize,
    /// Predictor of its tiles.
    pub predictor: Predictor,
    /// Whether the samples decided the predictor: it was compared with others on them.
    pub predictor_by_samples: bool,
    /// The report of the GPU, with notices of fallbacks; empty where no GPU was requested.
    pub device: DeviceReport,
    /// Requests and bytes, for a remote file.
    pub traffic: Option<Traffic>,
}

/// A file that is being written. The caller pushes rows from the top. The writer cuts, compresses and writes tiles as soon as their rows are
/// there, and makes overviews of the rows in flight. The file appears under its name when [`Writer::finish`] returns; a writer that is
/// dropped before leaves nothing behind.
///
/// The bytes of the file depend on shape, samples, metadata and options, and on nothing else: not on threads, memory, or
/// how rows were pushed.
///
/// ```
/// # fn main() -> Result<(), swath::Error> {
/// use swath::{Compression, Metadata, Rows, SampleType, Shape, WriteOptions, Writer};
/// # let path = std::env::temp_dir().join(format!("swath-writer-{}.tif", std::process::id()));
///
/// let shape = Shape { width: 300, height: 200, bands: 3, sample: SampleType::U8 };
/// let options = WriteOptions::cog().with_compression(Compression::Zstd);
/// let mut writer = Writer::create(&path, shape, &Metadata::default(), &options)?;
/// for y in 0..shape.height {
///     let row: Vec<u8> = (0..shape.width).flat_map(|x| [x as u8, y as u8, 0]).collect();
///     writer.push(&Rows::pixels(&row))?;
/// }
/// let written = writer.finish()?;
/// assert_eq!(written.size, std::fs::metadata(&path).map(|file| file.len()).unwrap_or(0));
/// # std::fs::remove_file(&path).ok();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Writer {
    pub(super) plan: Arc<Plan>,
    pub(super) sink: Arc<SharedSink>,
    pub(super) shape: Shape,
    pub(super) options: WriteOptions,
    pub(super) levels: Levels<LevelState>,
    pub(super) level_writers: Arc<Levels<LevelWriter>>,
    pub(super) side: Side,
    /// The choice of the predictor; no tile is encoded before it is made.
    pub(super) choice: ChoiceState,
    /// Work of GPUs that no longer take part, and notices.
    pub(super) report: DeviceReport,
    /// Sizes of the pieces of each level's tiles; `None` where the CPU encodes all tiles, which then have none.
    pub(super) pieces: Option<Vec<Vec<u32>>>,
    /// What the CPU encodes with, also where a GPU does so at first.
    pub(super) host: HostSide,
    /// The tile row that is being pushed tile by tile.
    pub(super) tile_row: Option<TileRow>,
    pub(super) nodata: Option<Vec<u8>>,
    /// Number of the first tile row that this writer encodes; 0 unless it encodes some tile rows of a file only.
    pub(super) first_tile_row: u32,
    /// Whether an error left the file incomplete.
    pub(super) failed: bool,
}

/// What the CPU encodes with.
#[derive(Debug)]
pub(super) struct HostSide {
    /// Its threads, and rows of the image that they work on at a time.
    pub(super) memory: Memory,
    /// What threads keep between steps.
    pub(super) buffers: Mutex<Vec<EncodeBuffers>>,
}

/// The rows of one level that are in memory, and its progress.
#[derive(Debug, Default)]
pub(super) struct LevelState {
    pub(super) store: RowStore,
    pub(super) progress: LevelProgress,
    /// How the next level is computed from this one.
    pub(super) shrink: Option<Shrinks>,
}

/// Where the tiles of the image come from.
#[derive(Debug)]
pub(super) enum Side {
    /// The CPU encodes the rows that are pushed.
    Host,
    /// A GPU encodes the rows that are pushed.
    Device(Box<DeviceSide>),
    /// Other encoders made the tile rows.
    Encoded,
    /// Blocks of the image come in any order.
    Blocks(Box<FromBlocks>),
}

/// Pixels of a file that is written from blocks.
#[derive(Debug)]
pub(super) struct FromBlocks {
    pub(super) canvases: Levels<Canvas>,
    pub(super) spill: Arc<Spill>,
    /// Bytes of pixels that may be in memory.
    pub(super) budget: u64,
    /// Counts the operations, to find the cells that were unused for longest.
    pub(super) now: u64,
    pub(super) gpu: Option<Arc<Gpu>>,
    /// Pixels of the image that were pushed.
    pub(super) pixels: u64,
    /// Complete cells of the image that wait until the predictor is chosen.
    pub(super) undecided: Vec<CellPosition>,
    /// Bytes of pixels that may be in memory once the predictor is chosen.
    pub(super) budget_afterwards: u64,
    /// Where encoded tiles wait for their turn.
    pub(super) waiting: Arc<Waiting>,
}

/// The rows of a tile row whose tiles are pushed one by one.
#[derive(Debug, Default)]
pub(super) struct TileRow {
    samples: Vec<u8>,
    /// Tiles that were pushed.
    tiles: u32,
}

impl Writer {
    /// Begins a file at a path of this machine, or at an address (`s3://`, `gs://`, `az://`).
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
    pub(super) fn at_path(
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
        let mut writer = Self::to_shared_sink(Arc::new(SharedSink(sink)), shape, metadata, options, None)?;
        let mut choice = PredictorChoice::new(shape, metadata, options)?;
        choice.set_threads(writer.threads_on_host());
        writer.choice = ChoiceState::new(choice, metadata);
        Ok(writer)
    }

    /// Begins a file with the predictor that was chosen, that of the options, or the usual one.
    pub(super) fn to_shared_sink(
        sink: Arc<SharedSink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
        chosen: Option<Predictor>,
    ) -> Result<Self, Error> {
        let mode = options.device.mode.unwrap_or_default();
        let mut notice = None;
        if mode != Mode::Cpu {
            match Self::on_device(&sink, shape, metadata, options, chosen) {
                Err(error) if mode == Mode::Auto && error.is_about_device() => notice = Some(error),
                result => return result,
            }
        }
        let plan = Plan::new(shape, metadata, &options.with_chosen(chosen), false)?;
        let nodata = nodata_of(metadata, shape);
        let memory = Memory::fit(&plan, options)?;
        let mut writer = Self::with(plan, sink, shape, options, memory, nodata)?;
        writer.make_stores(&memory)?;
        writer.report.notices.extend(notice.map(|error| format!("the CPU writes: {error}")));
        Ok(writer)
    }

    /// Begins a file whose tiles a GPU makes.
    fn on_device(
        sink: &Arc<SharedSink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
        chosen: Option<Predictor>,
    ) -> Result<Self, Error> {
        let gpu = options.device.open()?;
        let plan = Plan::new(shape, metadata, &options.with_chosen(chosen), true)?;
        let nodata = nodata_of(metadata, shape);
        // The CPU's memory, in case it has to continue.
        let memory = Memory::unmeasured(&plan, options);
        let mut writer = Self::with(plan, sink.clone(), shape, options, memory, nodata)?;
        writer.take_gpu(&gpu)?;
        Ok(writer)
    }

    /// Lets a GPU make the tiles.
    pub(super) fn take_gpu(&mut self, gpu: &Arc<Gpu>) -> Result<(), Error> {
        let shrinks = self.levels.map(|level| level.shrink.clone());
        let (shape, options, nodata) = (self.shape, &self.options, self.nodata.as_deref());
        let side = DeviceSide::new(gpu, &self.plan, &self.level_writers, &self.sink, shape, options, shrinks, nodata)?;
        self.side = Side::Device(Box::new(side));
        Ok(())
    }

    pub(super) fn with(
        plan: Plan,
        sink: Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        memory: Memory,
        nodata: Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        let levels = shrinks(&plan, shape.sample, nodata.as_deref())?;
        let levels = levels.map(|shrink| LevelState { shrink: shrink.clone(), ..LevelState::default() });
        Ok(Self::with_levels(plan, sink, shape, options, memory, nodata, levels))
    }

    pub(super) fn with_levels(
        plan: Plan,
        sink: Arc<SharedSink>,
        shape: Shape,
        options: &WriteOptions,
        memory: Memory,
        nodata: Option<Vec<u8>>,
        levels: Levels<LevelState>,
    ) -> Self {
        let level_writers = plan.level_writers();
        sink.0.expect(plan.reach(&level_writers));
        if let Some(cancel) = options.cancel.clone() {
            sink.0.stop_when(Arc::new(move || cancel.is_cancelled()));
        }
        Self {
            level_writers: Arc::new(level_writers),
            plan: Arc::new(plan),
            sink,
            shape,
            options: options.clone(),
            levels,
            side: Side::Host,
            choice: ChoiceState::default(),
            report: DeviceReport::default(),
            pieces: None,
            host: HostSide { memory, buffers: Mutex::default() },
            tile_row: None,
            nodata,
            first_tile_row: 0,
            failed: false,
        }
    }

    /// Allocates memory for the rows of overviews. The image's own rows get theirs when they are first copied: an image that is pushed
    /// whole is never copied.
    pub(super) fn make_stores(&mut self, memory: &Memory) -> Result<(), Error> {
        for (index, level) in (1..).zip(&mut self.levels.overviews) {
            let planes = self.plan.levels.at(index)?.plane_row_lens();
            level.store = RowStore::new(planes, capacity(&self.plan, index, memory.rows_at_once))?;
        }
        Ok(())
    }

    /// The part that a GPU does, if one takes part.
    pub(super) fn device(&self) -> Option<&DeviceSide> {
        match &self.side {
            Side::Device(device) => Some(device),
            _ => None,
        }
    }

    /// Takes the GPU's part out; until it is put back, the CPU encodes.
    pub(super) fn detach_device(&mut self) -> Option<Box<DeviceSide>> {
        match std::mem::replace(&mut self.side, Side::Host) {
            Side::Device(device) => Some(device),
            side => {
                self.side = side;
                None
            }
        }
    }

    /// Takes the pixels of blocks out, to work on them.
    pub(super) fn detach_blocks(&mut self) -> Option<Box<FromBlocks>> {
        match std::mem::replace(&mut self.side, Side::Host) {
            Side::Blocks(blocks) => Some(blocks),
            side => {
                self.side = side;
                None
            }
        }
    }

    /// Whether the file has a mask.
    pub(super) fn is_masked(&self) -> bool {
        self.plan.levels.main.mask.is_some()
    }

    /// Whether the file leaves out tiles that hold nodata only.
    pub(crate) fn is_sparse(&self) -> bool {
        self.plan.sparse
    }

    /// Size and type of the raster.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Rows that were pushed.
    pub fn rows(&self) -> u32 {
        let waiting = self.choice.open().map_or(0, |undecided| undecided.choice.seen());
        waiting
            + match self.device() {
                Some(device) => device.rows(),
                None => self.levels.main.progress.rows,
            }
    }

    /// Whether a GPU makes the tiles at present.
    pub fn is_on_device(&self) -> bool {
        self.device().is_some()
    }

    /// The report of the GPUs for this write so far, with notices of fallbacks.
    pub fn device_report(&self) -> DeviceReport {
        let mut report = self.report.clone();
        if let Some(device) = self.device() {
            report.add(&device.report());
        }
        report
    }

    /// How many rows are best pushed at a time.
    pub fn batch_rows(&self) -> u32 {
        self.host.memory.rows_at_once
    }

    /// Adds rows below those that were pushed before; any number of them.
    ///
    /// # Errors
    /// When these are not whole rows, or too many: the file is then unchanged. When they cannot be encoded or written: the
    /// file can then only be dropped.
    pub fn push(&mut self, rows: &Rows<'_>) -> Result<(), Error> {
        if self.tile_row.is_some() {
            return Err(Error::usage("rows cannot be pushed in the middle of a row of tiles"));
        }
        let pushed = self.check(rows)?;
        let result = self.choose_and_take(&pushed);
        self.named(result)
    }

    /// Encodes rows, here or on the GPU.
    pub(super) fn take_rows(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        if pushed.rows == 0 {
            return Ok(());
        }
        if self.is_on_device() {
            return self.push_by_device(pushed);
        }
        // Rows that are all there need no copy of their own.
        let whole = self.rows() == 0 && pushed.rows == self.shape.height && self.can_borrow(pushed);
        if whole { self.borrow_all(pushed) } else { self.copy_in(pushed) }
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
        self.push(&Rows::from_bytes(raster.bytes(), raster.interleave()))
    }

    /// Adds rows that are in the memory of a GPU below those that were pushed before; any number of them. The writer no longer reads
    /// them when this returns. Where the CPU writes, it copies them to the host, some at a time.
    ///
    /// # Errors
    /// As [`Writer::push`], and when the device fails.
    pub fn push_device(&mut self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        if self.tile_row.is_some() {
            return Err(Error::usage("rows cannot be pushed in the middle of a row of tiles"));
        }
        self.check_device(samples)?;
        let result = self.choose_and_take_device(samples);
        self.named(result)
    }

    /// Adds the next tile, from left to right, tile row by tile row: its part inside the image, pixel by pixel.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn push_tile<T: Sample>(&mut self, samples: &[T]) -> Result<(), Error> {
        let sample = self.shape.sample;
        if T::TYPE != sample {
            return Err(Error::usage(format!(
                "a tile of {} samples where the file has {sample}: convert them, or give bytes to push_tile_bytes",
                T::TYPE
            )));
        }
        self.push_tile_bytes(bytes_of(samples))
    }

    /// The same, of bytes in native order, for programs that learn the sample type when they run.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn push_tile_bytes(&mut self, samples: &[u8]) -> Result<(), Error> {
        self.may_push()?;
        let level = &self.plan.levels.main;
        if level.mask.is_some() {
            return Err(Error::usage("a file with a mask takes rows, not tiles"));
        }
        let (tile_width, tile_height) = (level.layout.tile_width, level.layout.tile_height);
        let (across, row) = (level.grid.across, self.rows() / tile_height);
        let pixel = self.shape.sample.size() * usize::from(self.shape.bands);
        let TileRow { samples: mut rows_so_far, tiles: column } = self.tile_row.take().unwrap_or_default();
        let (columns, rows) = level.grid.visible(column, row);
        if !self.rows().is_multiple_of(tile_height) {
            return Err(Error::usage(format!("{} rows were pushed: no row of tiles begins there", self.rows())));
        }
        if self.rows() >= self.shape.height || samples.len() != columns as usize * rows as usize * pixel {
            self.tile_row = (column > 0).then_some(TileRow { samples: rows_so_far, tiles: column });
            return Err(Error::usage(format!(
                "tile ({column}, {row}) has {columns} x {rows} pixels of {pixel} bytes, not {} bytes",
                samples.len()
            )));
        }
        let row_len = self.shape.width as usize * pixel;
        memory::resize(&mut rows_so_far, row_len * rows as usize)?;
        let start = column as usize * tile_width as usize * pixel;
        let len = columns as usize * pixel;
        for (target, source) in rows_so_far.chunks_exact_mut(row_len).zip(samples.chunks_exact(len.max(1))) {
            let target = target.get_mut(start..start + len);
            target.ok_or_else(|| Error::internal("a tile does not fit into its tile row"))?.copy_from_slice(source);
        }
        if column + 1 < across {
            self.tile_row = Some(TileRow { samples: rows_so_far, tiles: column + 1 });
            return Ok(());
        }
        self.push(&Rows::from_bytes(&rows_so_far, Interleave::Pixel))
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
        if !matches!(self.side, Side::Blocks(_)) && (rows != height || self.tile_row.is_some()) {
            return Err(Error::usage(format!("{rows} of {height} rows were pushed")));
        }
        let name: Arc<str> = self.sink.0.name().into();
        self.complete().map_err(|error| error.in_source(&name))
    }

    pub(super) fn named(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.failed |= result.is_err();
        result.map_err(|error| error.in_source(&self.sink.0.name().into()))
    }

    /// Checks that the file takes rows, and that no error has occurred.
    pub(super) fn may_push(&self) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        match self.side {
            Side::Host | Side::Device(_) => Ok(()),
            Side::Encoded => {
                Err(Error::usage("the file is assembled from encoded tile rows: its rows cannot be pushed too"))
            }
            Side::Blocks(_) => Err(Error::usage("the file is made of blocks: its rows cannot be pushed too")),
        }
    }

    /// Checks that `rows` are whole rows, and no more than the image still lacks.
    fn check<'a>(&self, rows: &Rows<'a>) -> Result<Pushed<'a>, Error> {
        self.may_push()?;
        let pushed = Pushed::new(rows, self.shape, self.is_masked())?;
        self.check_count(pushed.rows)?;
        Ok(pushed)
    }

    /// Checks that at least `count` rows are missing.
    pub(super) fn check_count(&self, count: u32) -> Result<(), Error> {
        let (height, missing) = (self.shape.height, self.shape.height - self.rows());
        if count > missing {
            return Err(Error::usage(format!("{count} rows were pushed where {missing} of {height} are missing")));
        }
        Ok(())
    }

    fn complete(mut self) -> Result<Written, Error> {
        self.finish_blocks()?;
        self.finish_device()?;
        self.drain()?;
        let starts = self.close_gaps()?;
        let mut end = self.plan.head_len();
        for (level, start) in self.level_writers.iter().zip(starts.iter()) {
            if level.is_buffered() {
                self.sink.0.write_at(*start, &level.take_buffer())?;
            }
            end = end.max(start + level.len());
        }
        let tiles = self.level_writers.try_map(|index, level| Ok(level.tiles(*starts.at(index)?)))?;
        let head = self.plan.head(&tiles, self.pieces.as_deref(), &self.level_writers.main.moments())?;
        self.sink.0.write_at(0, &head)?;
        let used = head.len() as u64 + self.level_writers.iter().map(LevelWriter::len).sum::<u64>();
        let mut written = Written {
            size: end,
            padding: end - used,
            big: self.plan.style.big,
            overviews: self.levels.overviews.len(),
            predictor: self.plan.levels.main.layout.predictor,
            predictor_by_samples: self.choice.is_by_samples(),
            device: self.report.clone(),
            traffic: None,
        };
        let sink = Arc::into_inner(self.sink).ok_or_else(|| Error::internal("the sink is still in use"))?;
        let traffic = sink.0.traffic();
        sink.0.commit(end)?;
        written.traffic = traffic.map(|read| read());
        Ok(written)
    }

    /// Removes the room that levels did not need from the file. Returns where each level then begins.
    fn close_gaps(&mut self) -> Result<Levels<u64>, Error> {
        let used = self.plan.head_len() + self.level_writers.iter().map(LevelWriter::len).sum::<u64>();
        // In a small file, gaps of a block would be waste, and moving all tiles costs nothing.
        let unit = if used <= PACKED || !self.levels.has_overviews() { 1 } else { BLOCK };
        let mut starts = self.level_writers.map(|_| 0);
        let mut gaps = Vec::new();
        let mut removed = 0;
        // In the order of the file: the smallest first. Buffered levels follow each other without a gap.
        let mut position = self.plan.head_len();
        for (level, start) in self.level_writers.iter().rev().zip(starts.iter_mut().rev()) {
            if !level.is_buffered() {
                let from = position.next_multiple_of(unit);
                if from < level.start() {
                    gaps.push(from..level.start());
                    removed += level.start() - from;
                }
                position = level.start();
            }
            *start = position - removed;
            position += level.len();
        }
        if !gaps.is_empty() {
            let sink = Arc::get_mut(&mut self.sink).ok_or_else(|| Error::internal("the sink is still in use"))?;
            sink.0.remove(&gaps, position)?;
        }
        Ok(starts)
    }
}

/// Files up to this size have no padding at all.
const PACKED: u64 = 8 << 20;
