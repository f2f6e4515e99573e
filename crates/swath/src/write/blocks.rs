//! Writes an image from blocks, rectangles of it that come in any order, in memory that does not grow with its width.
//!
//! Tiles are encoded as soon as their pixels are there. A file has its tiles in the order of rows, so tiles that come before
//! their turn wait, in memory or on disk ([`Waiting`]); so do pixels of tiles that are not complete ([`Canvas`]). The file is
//! the one that rows would have given, byte for byte.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use swath_codec::{
    pre::{Arrangement, moments::Moments},
    shrink::ColumnShrink,
};
use swath_cuda::{DeviceError, Gpu};
use swath_io::{Sink, Spill};
use swath_tiff::{SampleType, Window};

use super::{
    BATCH, DeviceSamples, Level, Memory, Rows, SharedSink, Writer,
    bands::BandEncoder,
    canvas::{At, Canvas, Patch, Piece, Step, area, split},
    device::DeviceSide,
    encoded::EncodedBand,
    lane::{Encoded, Waiting},
    nodata_of,
    options::{Progress, Shape, WriteOptions},
    plan::{LevelPlan, Plan},
    pushed::Pushed,
    rows::RowStore,
    step::{AtHand, Crew, Worker, copy_rows, shrink_plane},
};
use crate::{
    device::Mode,
    error::{Error, ErrorKind},
    location,
    metadata::Metadata,
    read::Cancel,
    schedule::cores,
};

/// Target columns at which all kernels that make overviews can begin anew: they take at most so many at a time.
const LANES: u32 = 32;
/// Cells that must fit into memory for each level, or every pixel would go by the disk.
const LEAST_CELLS: u64 = 4;
/// Jobs that are handed out to each thread at a time.
const JOBS: usize = 8;

/// What a file that is made of blocks has in flight.
#[derive(Debug)]
pub(super) struct FromBlocks {
    canvases: Vec<Canvas>,
    spill: Arc<Spill>,
    /// Bytes of pixels that may be in memory.
    budget: u64,
    /// Counts what was done, to tell what was not used for long.
    now: u64,
    gpu: Option<Arc<Gpu>>,
    /// Pixels of the image that were pushed.
    pixels: u64,
}

/// What can be done with the pixels that are there.
#[derive(Debug, Clone, Copy)]
enum Job {
    Tile(usize, At),
    Patch(usize, Patch),
}

/// Pixels of the next level: of which level they were made, and as which patch.
type Made = (usize, Patch, Vec<u8>);

/// Memory of a write from blocks.
struct Shares {
    threads: usize,
    cells: u64,
    waiting: u64,
}

impl Shares {
    /// Bytes that are always there, those of a thread, and of the fewest cells.
    fn costs(plan: &Plan) -> [u64; 3] {
        let (_, thread) = Memory::costs(plan);
        let fixed: u64 = plan.levels.iter().map(Canvas::fixed_len).sum();
        let cells: u64 = plan.levels.iter().map(|level| Canvas::cell_len(level) * LEAST_CELLS).sum();
        [Memory::always(plan).saturating_add(fixed), thread, cells]
    }

    fn least(plan: &Plan) -> u64 {
        Self::costs(plan).into_iter().fold(0, u64::saturating_add)
    }

    fn fit(plan: &Plan, options: &WriteOptions) -> Result<Self, Error> {
        let budget = options.max_memory as u64;
        let [always, thread, cells] = Self::costs(plan);
        let least = Self::least(plan);
        if least > budget {
            let (width, height) = plan.levels.first().map_or((0, 0), |main| (main.layout.width, main.layout.height));
            return Err(Error::new(ErrorKind::Limit(format!(
                "writing {width} x {height} pixels from blocks takes {least} bytes of memory, {budget} are allowed; use \
                 smaller tiles or raise max_memory"
            ))));
        }
        let wish = options.threads.unwrap_or_else(cores).max(1);
        let left = budget - always - cells;
        // Half of what is left for threads at most: pixels and tiles that wait need room too.
        let threads = usize::try_from(left / 2 / thread.max(1)).unwrap_or(usize::MAX).clamp(1, wish);
        let left = left.saturating_sub(thread * threads as u64);
        Ok(Self { threads, cells: cells + left / 2, waiting: left / 2 })
    }
}

impl Writer {
    /// Begins a file that is made of blocks: see [`Writer::push_block`].
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_from_blocks(
        path: impl AsRef<Path>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let begin = || Self::to_sink_from_blocks(location::sink(path, &options.remote)?, shape, metadata, options);
        begin().map_err(|error: Error| error.in_source(&location::shown(path)))
    }

    /// The same, in any sink.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn to_sink_from_blocks(
        sink: Box<dyn Sink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let mode = options.device.mode.unwrap_or_default();
        let mut notice = None;
        let gpu = match mode {
            Mode::Cpu => None,
            Mode::Cuda => Some(options.device.open()?),
            Mode::Auto => {
                let note = |error: &DeviceError| notice = Some(format!("the CPU writes: {error}"));
                options.device.open().inspect_err(note).ok()
            }
        };
        let plan = Plan::new(shape, metadata, options, gpu.is_some())?;
        let shares = Shares::fit(&plan, options)?;
        let nodata = nodata_of(metadata, shape);
        let canvases = canvases(&plan, shape.sample, nodata.as_deref())?;
        let memory = Memory { threads: shares.threads, batch: 1 };
        let spill = Arc::new(sink.spill()?);
        let levels = plan.levels.iter().map(|_| Level::default()).collect();
        let sink = Arc::new(SharedSink(sink));
        let mut writer = Self::with_levels(plan, sink, shape, options, memory, nodata, levels);
        let waiting = Arc::new(Waiting::new(spill.clone(), shares.waiting));
        let mut lanes = writer.plan.lanes();
        lanes.iter_mut().for_each(|lane| lane.wait_in(&waiting));
        writer.lanes = Arc::new(lanes);
        writer.report.notices.extend(notice);
        let of_level = |level: &LevelPlan| {
            let each = if level.pieces > 1 { level.pieces as usize } else { 0 };
            vec![0; level.grid.across as usize * level.grid.down as usize * level.grid.planes as usize * each]
        };
        if gpu.is_some() {
            writer.pieces = writer.plan.levels.iter().map(of_level).collect();
        }
        let blocks = FromBlocks { canvases, spill, budget: shares.cells, now: 0, gpu, pixels: 0 };
        writer.blocks = Some(Box::new(blocks));
        Ok(writer)
    }

    /// Whether a writer of rows, which holds a row of tiles of every level, gets by with the memory that the options allow, on
    /// the host and on the GPU. Where it does not, [`Writer::create_from_blocks`] may.
    ///
    /// # Errors
    /// When the options contradict the shape, or there is no GPU where one has to be.
    pub fn can_take_rows(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<bool, Error> {
        let fits = match options.device.mode.unwrap_or_default() {
            Mode::Cpu => Memory::fit(&Plan::new(shape, metadata, options, false)?, options).map(|_| ()),
            mode => match options.device.open() {
                Ok(gpu) => DeviceSide::fits(&gpu, &Plan::new(shape, metadata, options, true)?, shape, options),
                Err(_) if mode == Mode::Auto => {
                    Memory::fit(&Plan::new(shape, metadata, options, false)?, options).map(|_| ())
                }
                Err(error) => Err(error.into()),
            },
        };
        match fits {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::Limit(_) | ErrorKind::Device(DeviceError::Memory { .. }) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Bytes of memory that [`Writer::create_from_blocks`] takes at the very least.
    ///
    /// # Errors
    /// When the options contradict the shape.
    pub fn least_memory_from_blocks(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<u64, Error> {
        let on_device = options.device.mode.unwrap_or_default() != Mode::Cpu;
        Ok(Shares::least(&Plan::new(shape, metadata, options, on_device)?))
    }

    /// Adds the pixels of `part`, rows of its width. Blocks come in any order and are of any size; each pixel comes once.
    /// Those that begin and end where tiles do are fastest.
    ///
    /// # Errors
    /// When the block is not inside the image, overlaps one that came before or is of another size than its samples, which
    /// leaves the file as it was; or when it cannot be encoded or written, after which the file can only be dropped.
    pub fn push_block(&mut self, part: Window, rows: &Rows<'_>) -> Result<(), Error> {
        let shape = self.check_block(part)?;
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        let pushed = Pushed::new(rows, shape, masked)?;
        if pushed.rows != part.height {
            return Err(Error::usage(format!("{} rows were pushed as a block of {}", pushed.rows, part.height)));
        }
        let result = self.take_block(part, &pushed);
        self.named(result)
    }

    /// The same, of pixels in the memory of a GPU. They are read when this returns.
    ///
    /// # Errors
    /// As [`Writer::push_block`], and when the device fails.
    pub fn push_block_device(&mut self, part: Window, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        let shape = self.check_block(part)?;
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        let gpu = self.blocks.as_ref().and_then(|blocks| blocks.gpu.clone());
        samples.check(shape, masked, gpu.as_ref())?;
        if samples.count() != part.height {
            return Err(Error::usage(format!("{} rows were pushed as a block of {}", samples.count(), part.height)));
        }
        let result = self.take_device_block(part, samples);
        self.named(result)
    }

    /// The shape of a block that may be pushed.
    fn check_block(&self, part: Window) -> Result<Shape, Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        let Some(blocks) = &self.blocks else {
            return Err(Error::usage("begin the file with create_from_blocks to push blocks"));
        };
        blocks.canvases.first().map_or(Ok(()), |canvas| canvas.check(part))?;
        Ok(Shape { width: part.width, height: part.height, ..self.shape })
    }

    fn take_block(&mut self, part: Window, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(mut blocks) = self.blocks.take() else { return Ok(()) };
        let shape = Shape { width: part.width, height: part.height, ..self.shape };
        let result = self.slices(part).into_iter().try_for_each(|slice| {
            let rows = pushed.part(slice.y - part.y..slice.y + slice.height - part.y, shape);
            match self.is_aligned(&blocks, slice) {
                true => {
                    self.encode_slice(&mut blocks, slice, |encoder, tile_rows| encoder.encode_rows(tile_rows, &rows))
                }
                false => self.copy_slice(&mut blocks, slice, &rows),
            }
        });
        blocks.pixels += area(part);
        self.blocks = Some(blocks);
        result?;
        self.tell_blocks();
        Ok(())
    }

    fn take_device_block(&mut self, part: Window, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        let Some(mut blocks) = self.blocks.take() else { return Ok(()) };
        let result = self.slices(part).into_iter().try_for_each(|slice| {
            let rows = slice.y - part.y..slice.y + slice.height - part.y;
            if self.is_aligned(&blocks, slice) {
                let own = samples.rows_from(rows.start, slice.height);
                return self
                    .encode_slice(&mut blocks, slice, |encoder, tile_rows| encoder.encode_device(tile_rows, 0, &own));
            }
            let fetched = samples.fetch(&self.options.device, rows)?;
            let shape = Shape { width: slice.width, height: slice.height, ..self.shape };
            let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
            self.copy_slice(&mut blocks, slice, &Pushed::new(&fetched.rows(), shape, masked)?)
        });
        blocks.pixels += area(part);
        self.blocks = Some(blocks);
        result?;
        self.tell_blocks();
        Ok(())
    }

    /// Cuts a block where tile rows end, into slices of a size that is worked on at a time.
    fn slices(&self, part: Window) -> Vec<Window> {
        let Some(main) = self.plan.levels.first() else { return Vec::new() };
        let tile_height = main.layout.tile_height;
        let row = (main.row_len() as u64 * u64::from(part.width) / u64::from(self.shape.width.max(1))).max(1);
        let tile_rows = (BATCH as u64 / (row * u64::from(tile_height))).clamp(1, 1 << 20) as u32;
        let mut slices = Vec::new();
        let (mut y, end) = (part.y, part.y + part.height);
        while y < end {
            // What comes before the first whole tile row, and after the last, stands alone: the rest is aligned then.
            let next = match y.is_multiple_of(tile_height) {
                false => y.next_multiple_of(tile_height),
                true => {
                    let whole = if end == self.shape.height { end } else { end / tile_height * tile_height };
                    let most = y.saturating_add(tile_rows.saturating_mul(tile_height));
                    if whole > y { most.min(whole) } else { end }
                }
            };
            let until = next.min(end);
            slices.push(Window::new(part.x, y, part.width, until - y));
            y = until;
        }
        slices
    }

    /// Whether a part of the image holds whole tiles, and the pixels of the first overview that it makes need no others.
    fn is_aligned(&self, blocks: &FromBlocks, part: Window) -> bool {
        let (Some(main), Some(canvas)) = (self.plan.levels.first(), blocks.canvases.first()) else { return false };
        let Shape { width, height, .. } = self.shape;
        let (x_end, y_end) = (part.x + part.width, part.y + part.height);
        let whole = part.x.is_multiple_of(main.layout.tile_width)
            && part.y.is_multiple_of(main.layout.tile_height)
            && (x_end == width || x_end.is_multiple_of(main.layout.tile_width))
            && (y_end == height || y_end.is_multiple_of(main.layout.tile_height));
        let fits = |at: u32| at.is_multiple_of(2 * LANES);
        let apart = canvas.step().is_none_or(|step| {
            let halves = step.samples.is_halves() && step.mask.is_halves();
            halves && fits(part.x) && (x_end == width || fits(x_end))
        });
        whole && apart && canvas.is_free(part)
    }

    /// Encodes whole tiles, and makes the pixels of the first overview that belong to them.
    fn encode_slice(
        &mut self,
        blocks: &mut FromBlocks,
        part: Window,
        encode: impl FnOnce(&BandEncoder, std::ops::Range<u32>) -> Result<EncodedBand, Error>,
    ) -> Result<(), Error> {
        self.stop_if_cancelled()?;
        let size = (part.width, part.height);
        let encoder = self.part_encoder(blocks, 0, size, blocks.canvases.len() > 1)?;
        let encoded = encode(&encoder, 0..encoder.tile_rows())?;
        self.report.add(&encoder.device_report());
        let Some(main) = self.plan.levels.first() else { return Ok(()) };
        let corner = (part.x / main.layout.tile_width, part.y / main.layout.tile_height);
        let across = part.width.div_ceil(main.layout.tile_width);
        let down = part.height.div_ceil(main.layout.tile_height);
        let cells: Vec<At> =
            (0..down).flat_map(|row| (0..across).map(move |column| (corner.0 + column, corner.1 + row))).collect();
        self.place(0, &cells, &encoded)?;
        blocks.now += 1;
        let now = blocks.now;
        let mut complete = Vec::new();
        let [image, rest @ ..] = &mut blocks.canvases[..] else { return Ok(()) };
        if let Some(below) = rest.first_mut() {
            let target = Window::new(part.x / 2, part.y / 2, part.width / 2, part.height / 2);
            let planes = split(&encoded.overview, below.planes(), area(target));
            complete = below.put(&Piece { part: target, planes }, &blocks.spill, now)?;
        }
        for at in cells {
            image.set_done(at);
        }
        self.work(blocks, complete.into_iter().map(|at| (1, at)).collect())
    }

    /// An encoder of an image of this size, with the tiles of a level.
    fn part_encoder(
        &self,
        blocks: &FromBlocks,
        level: usize,
        size: (u32, u32),
        with_overview: bool,
    ) -> Result<BandEncoder, Error> {
        let mut options = self.options.clone();
        options.threads = Some(self.threads);
        let plan = self.plan.of_part(level, size, with_overview, &options)?;
        BandEncoder::of_plan(plan, self.shape, size, options, self.nodata.clone(), blocks.gpu.clone())
    }

    /// Brings encoded tiles to the places of these cells.
    fn place(&mut self, index: usize, cells: &[At], encoded: &EncodedBand) -> Result<(), Error> {
        let (Some(level), Some(lane)) = (self.plan.levels.get(index), self.lanes.get(index)) else { return Ok(()) };
        let parts = level.parts() as usize;
        let mut rest = &encoded.bytes[..];
        let mut lens = encoded.lens.chunks(parts.max(1));
        let mut moments = encoded.moments.chunks(usize::from(level.layout.samples).max(1));
        let planes = level.grid.planes as usize;
        let each = if level.pieces > 1 { level.pieces as usize } else { 0 };
        let mut pieces = encoded.pieces.chunks((each * planes).max(1));
        let mut spare = Vec::new();
        for (column, row) in cells {
            let position = u64::from(*row) * u64::from(level.grid.across) + u64::from(*column);
            let statistics: &[Moments] = if index == 0 { moments.next().unwrap_or_default() } else { &[] };
            for (part, len) in (0..).zip(lens.next().unwrap_or_default()) {
                let missing = || Error::usage("an encoded tile is shorter than it says; this is a fault in swath");
                let (bytes, later) = rest.split_at_checked(*len as usize).ok_or_else(missing)?;
                rest = later;
                let moments = if part == 0 { (0..).zip(statistics.iter().copied()).collect() } else { Vec::new() };
                let tile = Encoded { bytes: bytes.to_vec(), moments };
                lane.put(position * parts as u64 + part, tile, &*self.sink.0, &mut spare)?;
            }
            if each > 0
                && let (Some(list), Some(sizes)) = (self.pieces.get_mut(index), pieces.next())
            {
                let start = position as usize * planes * each;
                if let Some(place) = list.get_mut(start..start + sizes.len()) {
                    place.copy_from_slice(sizes);
                }
            }
        }
        Ok(())
    }

    /// Copies pixels to their cells, and works on those that are complete.
    fn copy_slice(&mut self, blocks: &mut FromBlocks, part: Window, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(canvas) = blocks.canvases.first_mut() else { return Ok(()) };
        blocks.now += 1;
        let changed = super::changes(&self.options, self.shape, self.nodata.as_deref());
        let complete = if pushed.arrangement == Arrangement::Planes && !changed {
            canvas.put(&Piece { part, planes: pushed.planes.clone() }, &blocks.spill, blocks.now)?
        } else {
            let planes = canvas.planes().iter().map(|size| size * part.width as usize).collect();
            let mut store = RowStore::new(planes, part.height)?;
            let nodata = self.nodata.as_deref().filter(|_| self.options.nan_to_nodata);
            let Shape { bands, sample, .. } = self.shape;
            copy_rows(pushed, 0..part.height, part.width, bands, sample, nodata, &mut store);
            store.grow(part.height);
            canvas.put(&Piece { part, planes: store.split().0 }, &blocks.spill, blocks.now)?
        };
        self.work(blocks, complete.into_iter().map(|at| (0, at)).collect())
    }

    /// Encodes the tiles of complete cells and makes what pixels of the next level can be made of them, level after level.
    fn work(&mut self, blocks: &mut FromBlocks, complete: Vec<(usize, At)>) -> Result<(), Error> {
        let mut complete = complete;
        while !complete.is_empty() {
            let mut jobs = Vec::new();
            let mut known = HashSet::new();
            for (level, at) in complete.drain(..) {
                jobs.push(Job::Tile(level, at));
                let Some(canvas) = blocks.canvases.get(level) else { continue };
                let patches = canvas.ready_patches(at).into_iter().filter(|patch| known.insert((level, patch.home)));
                jobs.extend(patches.map(|patch| Job::Patch(level, patch)));
            }
            for jobs in jobs.chunks(self.threads * JOBS) {
                complete.extend(self.run_blocks(blocks, jobs)?);
            }
            self.make_room(blocks)?;
        }
        self.make_room(blocks)
    }

    fn stop_if_cancelled(&self) -> Result<(), Error> {
        match self.options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            true => Err(Error::new(ErrorKind::Cancelled)),
            false => Ok(()),
        }
    }

    /// Does some jobs; returns the cells that they completed.
    fn run_blocks(&mut self, blocks: &mut FromBlocks, jobs: &[Job]) -> Result<Vec<(usize, At)>, Error> {
        self.stop_if_cancelled()?;
        blocks.now += 1;
        for job in jobs {
            let (Job::Tile(level, _) | Job::Patch(level, _)) = job;
            let Some(canvas) = blocks.canvases.get_mut(*level) else { continue };
            match job {
                Job::Tile(_, at) => canvas.load(*at, &blocks.spill)?,
                Job::Patch(_, patch) => canvas.load_source(patch, &blocks.spill)?,
            }
        }
        if blocks.gpu.is_some() {
            self.encode_cells_by_device(blocks, jobs)?;
        }
        let made = self.run_by_threads(blocks, jobs)?;
        let mut complete = Vec::new();
        for job in jobs {
            if let Job::Tile(level, at) = job
                && let Some(canvas) = blocks.canvases.get_mut(*level)
            {
                canvas.set_encoded(*at, &blocks.spill)?;
            }
        }
        for (level, patch, pixels) in made {
            if let Some(below) = blocks.canvases.get_mut(level + 1) {
                let planes = split(&pixels, below.planes(), area(patch.target));
                let found = below.put(&Piece { part: patch.target, planes }, &blocks.spill, blocks.now)?;
                complete.extend(found.into_iter().map(|at| (level + 1, at)));
            }
            if let Some(canvas) = blocks.canvases.get_mut(level) {
                canvas.set_shrunk(&patch, &blocks.spill)?;
            }
        }
        Ok(complete)
    }

    /// Makes patches, and where there is no GPU tiles, with all threads.
    fn run_by_threads(&self, blocks: &FromBlocks, jobs: &[Job]) -> Result<Vec<Made>, Error> {
        let by_device = blocks.gpu.is_some();
        let mine = jobs.iter().copied().filter(|job| !(by_device && matches!(job, Job::Tile(..))));
        let queue = Mutex::new(mine.collect::<Vec<_>>().into_iter());
        let done: Mutex<Result<Vec<Made>, Error>> = Mutex::new(Ok(Vec::new()));
        let crew = Crew {
            plan: &self.plan,
            lanes: &self.lanes,
            sink: &*self.sink.0,
            above: 0,
            at_hand: &[],
            shrinks: &[],
            sample: self.shape.sample,
            nodata: self.nodata.as_deref(),
            sparse: self.options.sparse,
            cancel: self.options.cancel.as_ref(),
        };
        let work = || {
            let lock = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut worker = lock().pop().unwrap_or_default();
            loop {
                let job = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(job) = job else { break };
                let made = match job {
                    Job::Tile(level, at) => self.encode_cell(&crew, blocks, level, at, &mut worker).map(|()| None),
                    Job::Patch(level, patch) => {
                        self.shrink_patch(blocks, level, &patch, &mut worker).map(|pixels| Some((level, patch, pixels)))
                    }
                };
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *done, made) {
                    (Ok(all), Ok(made)) => all.extend(made),
                    (Ok(_), Err(error)) => *done = Err(error),
                    // Nothing comes of the rest.
                    (Err(_), _) => break,
                }
            }
            lock().push(worker);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(jobs.len()) {
                // Where the system has no further thread, those that are there do the work.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode_cell(
        &self,
        crew: &Crew<'_>,
        blocks: &FromBlocks,
        level: usize,
        at: At,
        worker: &mut Worker,
    ) -> Result<(), Error> {
        let lost = || Error::usage("a cell is not in memory; this is a fault in swath");
        let piece = blocks.canvases.get(level).and_then(|canvas| canvas.piece(at)).ok_or_else(lost)?;
        let at_hand = AtHand {
            planes: piece.planes,
            arrangement: Arrangement::Planes,
            first: piece.part.y,
            first_column: piece.part.x,
            width: piece.part.width,
        };
        let parts = self.plan.levels.get(level).map_or(0, LevelPlan::parts);
        (0..parts).try_for_each(|part| crew.encode_tile(level, at, part, &at_hand, worker))
    }

    fn shrink_patch(
        &self,
        blocks: &FromBlocks,
        level: usize,
        patch: &Patch,
        worker: &mut Worker,
    ) -> Result<Vec<u8>, Error> {
        let lost = || Error::usage("cells of an overview are not in memory; this is a fault in swath");
        let canvas = blocks.canvases.get(level).ok_or_else(lost)?;
        let (Some(step), Some(plan)) = (canvas.step(), self.plan.levels.get(level)) else { return Err(lost()) };
        let mut room = Vec::new();
        let source = canvas.source(patch, &mut room).ok_or_else(lost)?;
        let Window { x, y, width, height } = patch.target;
        let columns = patch.source.x..patch.source.x + patch.source.width;
        let failed = |error: swath_codec::shrink::ShrinkError| Error::usage(format!("overview {}: {error}", level + 1));
        let shrinks = super::Shrinks {
            samples: step.samples.columns(x..x + width, &columns).map_err(failed)?,
            mask: step.mask.columns(x..x + width, &columns).map_err(failed)?,
        };
        let mut out = vec![0; area(patch.target) as usize * canvas.planes().iter().sum::<usize>()];
        let mut rest = &mut out[..];
        for (plane, size) in canvas.planes().iter().enumerate() {
            let (own, later) = rest.split_at_mut_checked(area(patch.target) as usize * size).ok_or_else(lost)?;
            rest = later;
            let has_nodata = self.nodata.is_some();
            let first = patch.source.y;
            shrink_plane(plan, &shrinks, &source.planes, plane, first, y..y + height, has_nodata, own, worker)
                .map_err(failed)?;
        }
        Ok(out)
    }

    /// Has the GPU encode the tiles of cells, many at a time: as images of one tile's height or width.
    fn encode_cells_by_device(&mut self, blocks: &FromBlocks, jobs: &[Job]) -> Result<(), Error> {
        let mut groups: Vec<(usize, (u32, u32), Vec<At>)> = Vec::new();
        for job in jobs {
            let Job::Tile(level, at) = job else { continue };
            let Some(part) = blocks.canvases.get(*level).map(|canvas| canvas.cell_part(*at)) else { continue };
            let size = (part.width, part.height);
            match groups.iter_mut().find(|(other, of, _)| other == level && *of == size) {
                Some((_, _, cells)) => cells.push(*at),
                None => groups.push((*level, size, vec![*at])),
            }
        }
        for (level, (width, height), cells) in groups {
            let Some(tile_width) = self.plan.levels.get(level).map(|plan| plan.layout.tile_width) else { continue };
            // Tiles that hang over the right edge do so in the image they are put into, below each other; others stand side
            // by side, so that those at the lower edge hang over it. A strip, which is its own width, stands alone.
            let strips = !self.plan.levels.get(level).is_some_and(|plan| plan.layout.tiled);
            let beside = width == tile_width;
            let corner = !beside && height != self.plan.levels.get(level).map_or(0, |plan| plan.layout.tile_height);
            let at_once = if strips || corner { 1 } else { cells.len() };
            for cells in cells.chunks(at_once.max(1)) {
                let count = cells.len() as u32;
                let size = if beside { (width * count, height) } else { (width, height * count) };
                let bytes = side_by_side(blocks, level, cells, beside)?;
                let planes = blocks.canvases.get(level).map_or(&[][..], Canvas::planes);
                let planes = split(&bytes, planes, u64::from(size.0) * u64::from(size.1));
                let pushed = Pushed { planes, arrangement: Arrangement::Planes, rows: size.1 };
                let encoder = self.part_encoder(blocks, level, size, false)?;
                let encoded = encoder.encode_rows(0..encoder.tile_rows(), &pushed)?;
                self.report.add(&encoder.device_report());
                self.place(level, cells, &encoded)?;
            }
        }
        Ok(())
    }

    /// Moves cells to the disk that were not used for longest, where there is no room for all.
    fn make_room(&self, blocks: &mut FromBlocks) -> Result<(), Error> {
        let held: u64 = blocks.canvases.iter().map(Canvas::held).sum();
        if held <= blocks.budget {
            return Ok(());
        }
        let cells = blocks.canvases.iter().enumerate();
        let mut cells: Vec<_> =
            cells.flat_map(|(level, canvas)| canvas.in_memory().map(move |cell| (cell, level))).collect();
        cells.sort_unstable();
        // Down to three quarters, so that this is not done again for every cell.
        let mut surplus = held.saturating_sub(blocks.budget / 4 * 3);
        for ((_, len, at), level) in cells {
            if surplus == 0 {
                break;
            }
            if let Some(canvas) = blocks.canvases.get_mut(level) {
                canvas.unload(at, &blocks.spill)?;
            }
            surplus = surplus.saturating_sub(len);
        }
        Ok(())
    }

    /// Whether every pixel came, and the tiles of all levels are made.
    pub(super) fn finish_blocks(&mut self) -> Result<(), Error> {
        let Some(blocks) = self.blocks.take() else { return Ok(()) };
        let Some(canvas) = blocks.canvases.iter().find(|canvas| !canvas.is_done()) else {
            for (level, plan) in self.levels.iter_mut().zip(&self.plan.levels) {
                level.tile_rows = plan.grid.down;
            }
            return Ok(());
        };
        let (x, y) = canvas.first_missing();
        let of = u64::from(self.shape.width) * u64::from(self.shape.height);
        Err(Error::usage(format!(
            "{} of {of} pixels were pushed: some are missing in the tile at column {x}, row {y}",
            blocks.pixels
        )))
    }

    fn tell_blocks(&self) {
        if let (Some(report), Some(blocks)) = (&self.options.progress, &self.blocks) {
            let of = self.shape.height;
            let rows = (blocks.pixels / u64::from(self.shape.width.max(1))) as u32;
            let bytes = self.lanes.iter().map(super::lane::Lane::len).sum();
            report(Progress { rows: rows.min(of), of, bytes });
        }
    }
}

/// The cells of every level, before the first pixel.
fn canvases(plan: &Plan, sample: SampleType, nodata: Option<&[u8]>) -> Result<Vec<Canvas>, Error> {
    let mut canvases = Vec::new();
    for (index, level) in plan.levels.iter().enumerate() {
        let step = match plan.levels.get(index + 1) {
            None => None,
            Some(next) => {
                let from = (level.layout.width, level.layout.height);
                let to = (next.layout.width, next.layout.height);
                let failed = |error: swath_codec::shrink::ShrinkError| Error::usage(error.to_string());
                // As in GDAL, a mask counts before nodata.
                let nodata = nodata.filter(|_| level.mask.is_none());
                Some(Step {
                    samples: ColumnShrink::new(from, to, sample, plan.resampling, nodata).map_err(failed)?,
                    mask: ColumnShrink::new(from, to, SampleType::U8, plan.resampling, None).map_err(failed)?,
                })
            }
        };
        canvases.push(Canvas::new(level, step));
    }
    Ok(canvases)
}

/// The pixels of cells of one size as one image, plane after plane: side by side, or below each other.
fn side_by_side(blocks: &FromBlocks, level: usize, cells: &[At], beside: bool) -> Result<Vec<u8>, Error> {
    let lost = || Error::usage("a cell is not in memory; this is a fault in swath");
    let canvas = blocks.canvases.get(level).ok_or_else(lost)?;
    let pieces: Vec<Piece<'_>> = cells.iter().map(|at| canvas.piece(*at).ok_or_else(lost)).collect::<Result<_, _>>()?;
    let mut bytes = Vec::new();
    for (plane, size) in canvas.planes().iter().enumerate() {
        let planes: Vec<&[u8]> =
            pieces.iter().map(|piece| piece.planes.get(plane).copied().unwrap_or_default()).collect();
        let row = pieces.first().map_or(0, |piece| piece.part.width as usize * size).max(1);
        match beside {
            false => planes.iter().for_each(|plane| bytes.extend_from_slice(plane)),
            true => {
                let rows = pieces.first().map_or(0, |piece| piece.part.height as usize);
                for y in 0..rows {
                    for plane in &planes {
                        bytes.extend_from_slice(plane.get(y * row..(y + 1) * row).unwrap_or_default());
                    }
                }
            }
        }
    }
    Ok(bytes)
}
