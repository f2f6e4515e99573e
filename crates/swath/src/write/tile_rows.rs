//! Encodes tile rows of a file where there is no file: in other threads, other processes, other machines.
//!
//! Every row of the first overview belongs to the tile row that holds the image row where it begins: row `r` of `h` to the one
//! with image row `floor(r * H / h)` of `H`. It may need rows of neighbouring tile rows, so tile rows are encoded from
//! [`TileRowEncoder::needed`] rows. The writer makes later overviews of the first.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use swath_codec::pre::Arrangement;
use swath_cuda::Gpu;
use swath_io::MemorySink;
use swath_raster::memory;

use super::{
    device::{
        overviews::{self, OverviewSource},
        samples::DeviceSamples,
    },
    encoded::{EncodedTileRows, sum},
    input::{Pushed, Rows},
    level_writer::{BufferedTiles, LevelWriter},
    levels::Levels,
    memory::Memory,
    options::{Shape, WriteOptions, changes, nodata_of},
    plan::Plan,
    row_store::RowStore,
    shared_sink::SharedSink,
    shrinks::{Shrinks, shrinks},
    step::{EncodeBuffers, LevelRows, StepContext, copy_rows, shrink_jobs},
    writer::Writer,
};
use crate::{
    device::{DeviceReport, Mode},
    error::Error,
    metadata::Metadata,
};

/// Encodes tile rows of a file that one [`Writer`] assembles, in any process that has the same shape, metadata and
/// options.
///
/// ```
/// # fn main() -> Result<(), swath::Error> {
/// use swath::{
///     Metadata, Rows, SampleType, Shape, WriteOptions, Writer,
///     io::MemorySink,
///     write::{EncodedTileRows, TileRowEncoder},
/// };
///
/// let shape = Shape { width: 700, height: 1100, bands: 1, sample: SampleType::U8 };
/// let (metadata, options) = (Metadata::default(), WriteOptions::cog());
/// let (sink, _memory) = MemorySink::new("out.tif");
/// let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), shape, &metadata, &options)?;
/// let encoder = TileRowEncoder::new(shape, &metadata, &options)?;
/// for tile_row in 0..encoder.tile_rows() {
///     let rows = encoder.needed(tile_row..tile_row + 1);
///     let samples = vec![7_u8; rows.len() * 700];
///     let encoded = encoder.encode(tile_row..tile_row + 1, rows.start, &Rows::pixels(&samples))?;
///     writer.push_encoded(&EncodedTileRows::from_bytes(&encoded.to_bytes())?)?;
/// }
/// writer.finish()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TileRowEncoder {
    plan: Plan,
    shape: Shape,
    options: WriteOptions,
    nodata: Option<Vec<u8>>,
    shrinks: Option<Shrinks>,
    gpu: Option<Arc<Gpu>>,
    report: Mutex<DeviceReport>,
    /// What threads keep between calls.
    buffers: Mutex<Vec<EncodeBuffers>>,
}

impl TileRowEncoder {
    /// Plans the file. With [`Mode::Auto`] it is the plan of a GPU where one can be opened, else the CPU's. Tile rows of the two
    /// cannot be mixed, so callers that encode on several machines ask for [`Mode::Cuda`] or [`Mode::Cpu`].
    ///
    /// With default options the sample type decides the predictor, as with [`PredictorRule::BySampleType`](crate::write::PredictorRule): an
    /// encoder may not see the first rows. [`PredictorChoice`](crate::write::PredictorChoice) makes the choice by the samples.
    ///
    /// # Errors
    /// When the options contradict the shape, or there is no GPU where one has to be.
    pub fn new(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<Self, Error> {
        let mut options = options.by_sample_type();
        // The writer reports how far the file has come.
        options.progress = None;
        let (gpu, missing) = options.device.open_if_wanted()?;
        let notices = missing.map(|error| format!("the CPU encodes: {error}")).into_iter().collect();
        let report = DeviceReport { notices, ..DeviceReport::default() };
        let plan = Plan::new(shape, metadata, &options, gpu.is_some())?;
        let nodata = nodata_of(metadata, shape);
        let shrinks = shrinks(&plan, shape.sample, nodata.as_deref())?.main;
        let report = Mutex::new(report);
        Ok(Self { plan, shape, options, nodata, shrinks, gpu, report, buffers: Mutex::default() })
    }

    /// The encoder of an image of its own, of a size that a part of a raster like `shape` has.
    pub(super) fn of_plan(
        plan: Plan,
        shape: Shape,
        (width, height): (u32, u32),
        options: WriteOptions,
        nodata: Option<Vec<u8>>,
        gpu: Option<Arc<Gpu>>,
    ) -> Result<Self, Error> {
        let shrinks = shrinks(&plan, shape.sample, nodata.as_deref())?.main;
        let shape = Shape { width, height, ..shape };
        let options = WriteOptions { progress: None, ..options };
        Ok(Self { plan, shape, options, nodata, shrinks, gpu, report: Mutex::default(), buffers: Mutex::default() })
    }

    /// Tile rows of the image.
    pub fn tile_rows(&self) -> u32 {
        self.plan.levels.main.grid.down
    }

    /// The image rows that these tile rows hold.
    pub fn rows_of(&self, tile_rows: Range<u32>) -> Range<u32> {
        rows_of(&self.plan, &tile_rows)
    }

    /// The rows of the first overview that belong to these tile rows; none where the file has no overviews.
    pub fn overview_rows(&self, tile_rows: Range<u32>) -> Range<u32> {
        overview_rows(&self.plan, &tile_rows)
    }

    /// The image rows that these tile rows are encoded from: their own, and those that their overview rows need.
    pub fn needed(&self, tile_rows: Range<u32>) -> Range<u32> {
        let own = self.rows_of(tile_rows.clone());
        let overview = self.overview_rows(tile_rows);
        match &self.shrinks {
            Some(shrinks) if !overview.is_empty() => {
                let looks_at = shrinks.needs(overview.start).start..shrinks.needs(overview.end - 1).end;
                own.start.min(looks_at.start)..own.end.max(looks_at.end)
            }
            _ => own,
        }
    }

    /// The work of GPUs so far, and why the CPU did some of it.
    pub fn device_report(&self) -> DeviceReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Encodes tile rows. `rows` are rows of the image that begin at `first_row` and include all that are
    /// [needed](Self::needed). Any number of threads may encode at once, in any order.
    ///
    /// # Errors
    /// When rows are missing, or cannot be encoded.
    pub fn encode(&self, tile_rows: Range<u32>, first_row: u32, rows: &Rows<'_>) -> Result<EncodedTileRows, Error> {
        let pushed = Pushed::new(rows, self.shape, self.is_masked())?;
        let needed = self.check(&tile_rows, first_row, pushed.rows)?;
        self.encode_rows(tile_rows, &pushed.part(needed.start - first_row..needed.end - first_row, self.shape)?)
    }

    /// The same, of exactly the rows that are needed.
    pub(super) fn encode_rows(
        &self,
        tile_rows: Range<u32>,
        needed_part: &Pushed<'_>,
    ) -> Result<EncodedTileRows, Error> {
        let needed = self.needed(tile_rows.clone());
        let own = self.rows_of(tile_rows.clone());
        let own_part = own.start - needed.start..own.end - needed.start;
        let mut writer = self.writer(&tile_rows)?;
        // Overviews are made band by band, of the samples that are written.
        let apart = needed_part.arrangement == Arrangement::Planes;
        let changed = changes(&self.options, self.shape, self.nodata.as_deref());
        if self.shrinks.is_none() || (apart && !changed) {
            writer.push_all(&needed_part.part(own_part, self.shape)?, changed)?;
            let overview = self.shrink(&needed_part.planes, needed.start, &tile_rows, writer.host.memory.threads)?;
            return self.finish(writer, tile_rows, overview);
        }
        let mut store = self.copy(needed_part)?;
        let (planes, _) = store.split();
        let copied = Pushed { planes, arrangement: Arrangement::Planes, rows: needed_part.rows };
        writer.push_all(&copied.part(own_part, self.shape)?, false)?;
        let overview = self.shrink(&copied.planes, needed.start, &tile_rows, writer.host.memory.threads)?;
        self.finish(writer, tile_rows, overview)
    }

    /// The same, of rows in the memory of a GPU, which makes the overview rows too. They are read when this returns.
    /// Where the CPU encodes, they are brought to the host.
    ///
    /// # Errors
    /// As [`TileRowEncoder::encode`], and when the device fails.
    pub fn encode_device(
        &self,
        tile_rows: Range<u32>,
        first_row: u32,
        samples: &DeviceSamples<'_>,
    ) -> Result<EncodedTileRows, Error> {
        samples.check(self.shape, self.is_masked(), self.gpu.as_ref())?;
        let needed = self.check(&tile_rows, first_row, samples.count())?;
        let fetch = || samples.fetch(&self.options.device, needed.start - first_row..needed.end - first_row);
        let Some(gpu) = &self.gpu else { return self.encode(tile_rows, needed.start, &fetch()?.rows()) };
        let own = self.rows_of(tile_rows.clone());
        let mut writer = self.writer(&tile_rows)?;
        writer.take_device(samples, own.start - first_row..own.end - first_row)?;
        // Gives the device's memory back before overviews take theirs.
        writer.finish_device()?;
        let rows = self.overview_rows(tile_rows.clone());
        let overview = match rows.is_empty() {
            true => Some(Vec::new()),
            false => self.shrink_on_device(gpu, rows, first_row, samples)?,
        };
        let overview = match overview {
            Some(overview) => overview,
            None => {
                let fetched = fetch()?;
                let pushed = Pushed::new(&fetched.rows(), self.shape, self.is_masked())?;
                self.shrink(&self.copy(&pushed)?.split().0, needed.start, &tile_rows, writer.host.memory.threads)?
            }
        };
        self.finish(writer, tile_rows, overview)
    }

    /// Makes overview rows of `samples`, whose first row is `first_row` of the image. `None` where the GPU cannot make them and
    /// the CPU may.
    fn shrink_on_device(
        &self,
        gpu: &Arc<Gpu>,
        rows: Range<u32>,
        first_row: u32,
        samples: &DeviceSamples<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(shrinks) = &self.shrinks else { return Ok(Some(Vec::new())) };
        let (shape, nodata) = (self.shape, self.nodata.as_deref());
        let source =
            OverviewSource { plan: &self.plan, shape, options: &self.options, nodata, shrinks, samples, first_row };
        match overviews::make_rows(gpu, &source, rows) {
            Ok((made, counters)) => {
                self.add_report(&DeviceReport { counters, ..DeviceReport::default() });
                Ok(Some(made))
            }
            Err(error) if error.is_device() && self.options.device.mode == Some(Mode::Auto) => {
                let notice = format!("overviews are made by the CPU: {error}");
                self.add_report(&DeviceReport { notices: vec![notice], ..DeviceReport::default() });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies rows band by band, as they are written.
    fn copy(&self, pushed: &Pushed<'_>) -> Result<RowStore, Error> {
        let mut store = RowStore::new(self.plan.levels.main.plane_row_lens(), pushed.rows)?;
        let Shape { width, bands, sample, .. } = self.shape;
        let nodata = self.nodata.as_deref().filter(|_| self.options.nan_to_nodata);
        copy_rows(pushed, 0..pushed.rows, width, bands, sample, nodata, &mut store)?;
        store.grow(pushed.rows)?;
        Ok(store)
    }

    fn add_report(&self, report: &DeviceReport) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).add(report);
    }

    fn is_masked(&self) -> bool {
        self.plan.levels.main.mask.is_some()
    }

    /// The rows that are needed, if they are among those that are there.
    fn check(&self, tile_rows: &Range<u32>, first_row: u32, count: u32) -> Result<Range<u32>, Error> {
        let down = self.tile_rows();
        if tile_rows.is_empty() || tile_rows.end > down {
            return Err(Error::usage(format!("there are no tile rows {tile_rows:?}; the image has {down}")));
        }
        let needed = self.needed(tile_rows.clone());
        let end = u64::from(first_row) + u64::from(count);
        if first_row > needed.start || end < needed.end.into() {
            return Err(Error::usage(format!(
                "tile rows {tile_rows:?} are encoded from rows {needed:?}; rows {first_row}..{end} were given"
            )));
        }
        Ok(needed)
    }

    /// A writer of these tile rows alone, whose tiles stay in memory.
    fn writer(&self, tile_rows: &Range<u32>) -> Result<Writer, Error> {
        let rows = self.rows_of(tile_rows.clone());
        let height = rows.end - rows.start;
        let plan = self.plan.of_part(0, (self.shape.width, height), false, &self.options)?;
        let shape = Shape { height, ..self.shape };
        let sink = Arc::new(SharedSink(Box::new(MemorySink::new("tile rows").0)));
        let memory = match self.gpu {
            Some(_) => Memory::unmeasured(&plan, &self.options),
            None => Memory::fit(&plan, &self.options)?,
        };
        let mut writer = Writer::with(plan, sink, shape, &self.options, memory, self.nodata.clone())?;
        writer.level_writers =
            Arc::new(Levels { main: LevelWriter::without_file(self.plan.frame), overviews: Vec::new() });
        writer.first_tile_row = tile_rows.start;
        if let Some(gpu) = &self.gpu
            && let Err(error) = writer.take_gpu(gpu)
        {
            if self.options.device.mode != Some(Mode::Auto) || !error.is_about_device() {
                return Err(error);
            }
            let memory = Memory::fit(&writer.plan, &self.options)?;
            writer.host.memory = memory;
            writer.report.notices.push(format!("the CPU encodes: {error}"));
        }
        Ok(writer)
    }

    /// Makes the overview rows of these tile rows, of planes whose first row is `first`.
    fn shrink(&self, planes: &[&[u8]], first: u32, tile_rows: &Range<u32>, threads: usize) -> Result<Vec<u8>, Error> {
        let rows = self.overview_rows(tile_rows.clone());
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let row_lens = self.plan.levels.at(1)?.plane_row_lens();
        let mut out: Vec<u8> = memory::zeroed(row_lens.iter().sum::<usize>() * rows.len())?;
        let mut jobs = Vec::new();
        let mut rest = &mut out[..];
        for (plane, row_len) in row_lens.into_iter().enumerate() {
            let cut = rest.split_at_mut_checked(row_len * rows.len());
            let (here, later) = cut.ok_or_else(|| Error::internal("the overview rows have no room"))?;
            rest = later;
            jobs.extend(shrink_jobs(0, plane, rows.clone(), row_len, here));
        }
        let context = StepContext {
            plan: &self.plan,
            level_writers: None,
            sink: &MemorySink::new("tile rows").0,
            first_tile_row: 0,
            at_hand: &[LevelRows::rows(planes.to_vec(), Arrangement::Planes, first, self.shape.width)],
            shrinks: &[&self.shrinks],
            sample: self.shape.sample,
            nodata: self.nodata.as_deref(),
            cancel: self.options.cancel.as_ref(),
        };
        context.run_all(jobs, threads, &self.buffers)?;
        Ok(out)
    }

    /// The encoded tile rows, when all rows were pushed.
    fn finish(&self, mut writer: Writer, tile_rows: Range<u32>, overview: Vec<u8>) -> Result<EncodedTileRows, Error> {
        writer.finish_device()?;
        writer.drain()?;
        self.add_report(&writer.report);
        let expected = writer.plan.levels.main.piece_sizes(tile_rows.len() as u32);
        let pieces = match writer.pieces {
            Some(pieces) if expected > 0 => pieces.into_iter().next().unwrap_or_default(),
            _ => memory::zeroed(expected)?,
        };
        if pieces.len() != expected {
            let detail = format!("tile rows have {} sizes of pieces where their tiles have {expected}", pieces.len());
            return Err(Error::internal(detail));
        }
        let level = Arc::into_inner(writer.level_writers);
        let level = level.ok_or_else(|| Error::internal("the tiles are still in use"))?.main;
        let BufferedTiles { lens, bytes, moments } = level.into_tiles()?;
        let plan = digest(&self.plan, self.shape, &self.options, self.nodata.as_deref());
        let overview_rows = self.overview_rows(tile_rows.clone());
        Ok(EncodedTileRows { plan, tile_rows, overview_rows, lens, pieces, moments, overview, bytes })
    }
}

impl Writer {
    /// Takes all rows; `copy` says that their samples are changed first.
    fn push_all(&mut self, pushed: &Pushed<'_>, copy: bool) -> Result<(), Error> {
        match self.is_on_device() {
            true => self.push_by_device(pushed),
            false if copy => self.copy_in(pushed),
            false => self.borrow_all(pushed),
        }
    }
}

/// The image rows of tile rows.
pub(super) fn rows_of(plan: &Plan, tile_rows: &Range<u32>) -> Range<u32> {
    let main = &plan.levels.main;
    let row = |tile_row: u32| tile_row.saturating_mul(main.layout.tile_height).min(main.layout.height);
    row(tile_rows.start)..row(tile_rows.end)
}

/// The rows of the first overview that belong to tile rows.
pub(super) fn overview_rows(plan: &Plan, tile_rows: &Range<u32>) -> Range<u32> {
    let Some(below) = plan.levels.overviews.first() else { return 0..0 };
    let [full, reduced] = [&plan.levels.main, below].map(|level| u64::from(level.layout.height.max(1)));
    // The first that begins at this row of the image or below.
    let first = |row: u32| (u64::from(row) * reduced).div_ceil(full) as u32;
    let rows = rows_of(plan, tile_rows);
    first(rows.start)..first(rows.end)
}

/// Returns a digest of everything that the bytes of tile rows depend on. A file takes tile rows with its own digest only.
pub(super) fn digest(plan: &Plan, shape: Shape, options: &WriteOptions, nodata: Option<&[u8]>) -> u64 {
    let WriteOptions { settings, nan_to_nodata, nvcomp, .. } = options;
    let Plan { levels, on_device, frame, resampling, statistics, fill, sparse, .. } = plan;
    let layouts: Vec<_> =
        levels.iter().map(|level| (&level.layout, level.mask.as_ref().map(|(layout, _)| layout))).collect();
    let pieces: Vec<u32> = levels.iter().map(|level| level.pieces).collect();
    let order = if cfg!(target_endian = "big") { "big" } else { "little" };
    let text = format!(
        "{} {order} {shape:?} {layouts:?} {settings:?} {frame} {resampling:?} {statistics} {fill:?} {nodata:?} \
         {sparse} {nan_to_nodata} {on_device} {nvcomp} {pieces:?}",
        env!("CARGO_PKG_VERSION")
    );
    sum(text.as_bytes())
}
