//! Writes an image from blocks, rectangles of it that come in any order, in memory that does not grow with its width.
//!
//! The writer encodes a tile as soon as its pixels are there. The file holds tiles in row order, so tiles that come before their turn
//! wait in memory or on disk ([`Waiting`]), and so do pixels of incomplete tiles ([`Canvas`]). The file has the bytes that the same rows
//! would have given.

use std::{path::Path, sync::Arc};

use swath_codec::pre::Arrangement;
use swath_cuda::DeviceError;
use swath_io::Sink;
use swath_raster::{memory, moments::Moments};
use swath_tiff::Window;

use super::{
    canvas::{Canvas, CellPosition, PlanarPixels, split},
    device::{DeviceSide, samples::DeviceSamples},
    encoded::EncodedTileRows,
    input::{Pushed, Rows},
    level_writer::{Encoded, LevelWriter, Waiting},
    levels::Levels,
    memory::{Memory, ROWS_LEN},
    options::{Progress, Shape, WriteOptions, changes, nodata_of},
    plan::Plan,
    predictor::{ChoiceState, PredictorChoice, choice_len},
    rectangles::area,
    row_store::RowStore,
    shared_sink::SharedSink,
    shrinks::level_shrinks,
    step::copy_rows,
    tile_rows::TileRowEncoder,
    writer::{FromBlocks, LevelState, Side, Writer},
};
use crate::{
    cancel::cancelled,
    device::Mode,
    error::{Error, ErrorKind},
    metadata::Metadata,
    threads::cores,
};

/// Most target columns that an overview kernel takes at a time; every kernel can start again after them.
const LANES: u32 = 32;
/// Least cells of each level in memory: with fewer, every pixel would go through the disk.
const LEAST_CELLS: u64 = 4;

/// Memory of a write from blocks.
struct Shares {
    threads: usize,
    cells: u64,
    waiting: u64,
    /// Bytes of cells while the predictor is chosen, which needs memory too.
    cells_at_first: u64,
}

impl Shares {
    /// Bytes that are always there, those of a thread, and of the fewest cells.
    fn costs(plan: &Plan, options: &WriteOptions) -> [u64; 3] {
        let (_, thread) = Memory::costs(plan, options);
        let fixed: u64 = plan.levels.iter().map(Canvas::fixed_len).sum();
        let cells: u64 = plan.levels.iter().map(|level| Canvas::cell_len(level) * LEAST_CELLS).sum();
        [Memory::always(plan).saturating_add(fixed), thread, cells]
    }

    fn least(plan: &Plan, options: &WriteOptions) -> u64 {
        let [always, thread, cells] = Self::costs(plan, options);
        let choice = choice_len(&plan.levels.main.layout, options);
        [always, thread, cells, choice].into_iter().fold(0, u64::saturating_add)
    }

    fn fit(plan: &Plan, options: &WriteOptions) -> Result<Self, Error> {
        let budget = options.max_memory as u64;
        let [always, thread, cells] = Self::costs(plan, options);
        let choice = choice_len(&plan.levels.main.layout, options);
        let least = Self::least(plan, options);
        if least > budget {
            let (width, height) = (plan.levels.main.layout.width, plan.levels.main.layout.height);
            return Err(Error::over(
                "max_memory",
                format!(
                    "writing {width} x {height} pixels from blocks takes {least} bytes of memory, {budget} are allowed; use \
                 smaller tiles"
                ),
            ));
        }
        let wish = options.threads.unwrap_or_else(cores).max(1);
        let left = budget - always - cells;
        // At most half of the rest for threads: waiting pixels and tiles need room too. No tile waits before the predictor is chosen, so
        // the rows of the choice take that room first.
        let for_threads = (left / 2).min(left - choice);
        let threads = usize::try_from(for_threads / thread.max(1)).unwrap_or(usize::MAX).clamp(1, wish);
        let left = left - thread * threads as u64;
        let cells_at_first = cells + (left / 2).min(left - choice);
        Ok(Self { threads, cells: cells + left / 2, waiting: left / 2, cells_at_first })
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
        Self::at_path(path.as_ref(), options, |sink| Self::to_sink_from_blocks(sink, shape, metadata, options))
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
        let (gpu, missing) = options.device.open_if_wanted()?;
        let plan = Plan::new(shape, metadata, options, gpu.is_some())?;
        let shares = Shares::fit(&plan, options)?;
        let mut choice = PredictorChoice::new(shape, metadata, options)?;
        choice.set_threads(shares.threads);
        let nodata = nodata_of(metadata, shape);
        let shrinks = level_shrinks(&plan, shape.sample, nodata.as_deref())?;
        let canvases = plan.levels.try_map(|index, level| Ok(Canvas::new(level, shrinks.at(index)?.clone())))?;
        let memory = Memory { threads: shares.threads, rows_at_once: 1 };
        let spill = Arc::new(sink.spill());
        let levels = plan.levels.map(|_| LevelState::default());
        let sink = Arc::new(SharedSink(sink));
        let mut writer = Self::with_levels(plan, sink, shape, options, memory, nodata, levels);
        let waiting = Arc::new(Waiting::new(spill.clone(), shares.waiting));
        writer.choice = ChoiceState::new(choice, metadata);
        writer.level_writers = waiting_writers(&writer.plan, &waiting);
        writer.report.notices.extend(missing.map(|error| format!("the CPU writes: {error}")));
        if gpu.is_some() {
            writer.pieces = Some(writer.plan.no_pieces()?);
        }
        let blocks = FromBlocks {
            canvases,
            spill,
            budget: if writer.choice.open().is_some() { shares.cells_at_first } else { shares.cells },
            budget_afterwards: shares.cells,
            now: 0,
            gpu,
            pixels: 0,
            undecided: Vec::new(),
            waiting,
        };
        writer.side = Side::Blocks(Box::new(blocks));
        Ok(writer)
    }

    /// Whether a writer of rows, which holds a tile row of every level, fits into the memory that the options allow, on
    /// the host and on the GPU. Where it does not fit, [`Writer::create_from_blocks`] may.
    ///
    /// # Errors
    /// When the options contradict the shape, or the mode needs a GPU and there is none.
    pub fn can_take_rows(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<bool, Error> {
        let (gpu, _) = options.device.open_if_wanted()?;
        let plan = Plan::new(shape, metadata, options, gpu.is_some())?;
        let fits = match gpu {
            Some(gpu) => DeviceSide::fits(&gpu, &plan, shape, options),
            None => Memory::fit(&plan, options).map(|_| ()),
        };
        match fits {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::Limit(_) | ErrorKind::Device(DeviceError::Memory { .. }) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// The smallest limit ([`WriteOptions::with_max_memory`]) with which [`Writer::create_from_blocks`] works.
    ///
    /// # Errors
    /// When the options contradict the shape.
    pub fn least_memory_from_blocks(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<u64, Error> {
        let on_device = options.device.mode.unwrap_or_default() != Mode::Cpu;
        // A limit that is set counts what codecs need too.
        let limited = options.clone().with_max_memory(options.max_memory);
        Ok(Shares::least(&Plan::new(shape, metadata, options, on_device)?, &limited))
    }

    /// Adds the pixels of `part`, rows of its width. Blocks come in any order and are of any size; each pixel comes once.
    /// Blocks that begin and end where tiles do are fastest.
    ///
    /// # Errors
    /// When the block is not inside the image, overlaps an earlier block or does not have the size of its samples: the file is
    /// then unchanged. When it cannot be encoded or written: the file can then only be dropped.
    pub fn push_block(&mut self, part: Window, rows: &Rows<'_>) -> Result<(), Error> {
        let shape = self.check_block(part)?;
        let pushed = Pushed::new(rows, shape, self.is_masked())?;
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
        let gpu = match &self.side {
            Side::Blocks(blocks) => blocks.gpu.clone(),
            _ => None,
        };
        samples.check(shape, self.is_masked(), gpu.as_ref())?;
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
        let Side::Blocks(blocks) = &self.side else {
            return Err(Error::usage("begin the file with create_from_blocks to push blocks"));
        };
        blocks.canvases.main.check(part)?;
        Ok(Shape { width: part.width, height: part.height, ..self.shape })
    }

    fn take_block(&mut self, part: Window, pushed: &Pushed<'_>) -> Result<(), Error> {
        let shape = Shape { width: part.width, height: part.height, ..self.shape };
        self.take_slices(part, |writer, blocks, slice| {
            let rows = pushed.part(slice.y - part.y..slice.y + slice.height - part.y, shape)?;
            if writer.can_encode_at_once(blocks, slice) {
                return writer.encode_slice(blocks, slice, |encoder, tile_rows| encoder.encode_rows(tile_rows, &rows));
            }
            writer.copy_slice(blocks, slice, &rows)
        })
    }

    fn take_device_block(&mut self, part: Window, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        self.take_slices(part, |writer, blocks, slice| {
            let rows = slice.y - part.y..slice.y + slice.height - part.y;
            if writer.can_encode_at_once(blocks, slice) {
                let own = samples.rows_from(rows.start, slice.height);
                return writer
                    .encode_slice(blocks, slice, |encoder, tile_rows| encoder.encode_device(tile_rows, 0, &own));
            }
            let fetched = samples.fetch(&writer.options.device, rows)?;
            let shape = Shape { width: slice.width, height: slice.height, ..writer.shape };
            writer.copy_slice(blocks, slice, &Pushed::new(&fetched.rows(), shape, writer.is_masked())?)
        })
    }

    /// Gives `take` a block slice by slice, and reports progress.
    fn take_slices(
        &mut self,
        part: Window,
        mut take: impl FnMut(&mut Self, &mut FromBlocks, Window) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(mut blocks) = self.detach_blocks() else {
            return Err(Error::internal("the file is not written from blocks"));
        };
        let result = self.slices(part).into_iter().try_for_each(|slice| take(self, &mut blocks, slice));
        blocks.pixels += area(part);
        self.side = Side::Blocks(blocks);
        result?;
        self.report_block_progress();
        Ok(())
    }

    /// Cuts a block where tile rows end, into slices of a size that is worked on at a time.
    fn slices(&self, part: Window) -> Vec<Window> {
        let main = &self.plan.levels.main;
        let tile_height = main.layout.tile_height;
        let row = (main.row_len() as u64 * u64::from(part.width) / u64::from(self.shape.width.max(1))).max(1);
        let tile_rows = (ROWS_LEN as u64 / (row * u64::from(tile_height))).clamp(1, 1 << 20) as u32;
        let mut slices = Vec::new();
        let (mut y, end) = (part.y, part.y + part.height);
        while y < end {
            // Rows before the first whole tile row, and after the last, are slices of their own, so that the rest is aligned.
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

    /// Whether a part of the image can be encoded at once: it holds whole tiles, the pixels of the first overview that it makes need no
    /// others, and the predictor is chosen.
    fn can_encode_at_once(&self, blocks: &FromBlocks, part: Window) -> bool {
        if self.choice.open().is_some() {
            return false;
        }
        let (main, canvas) = (&self.plan.levels.main, &blocks.canvases.main);
        let Shape { width, height, .. } = self.shape;
        let (x_end, y_end) = (part.x + part.width, part.y + part.height);
        let whole = part.x.is_multiple_of(main.layout.tile_width)
            && part.y.is_multiple_of(main.layout.tile_height)
            && (x_end == width || x_end.is_multiple_of(main.layout.tile_width))
            && (y_end == height || y_end.is_multiple_of(main.layout.tile_height));
        let fits = |at: u32| at.is_multiple_of(2 * LANES);
        let apart = canvas.level_shrink().is_none_or(|shrink| {
            let halves = shrink.samples.is_halves() && shrink.mask.is_halves();
            halves && fits(part.x) && (x_end == width || fits(x_end))
        });
        whole && apart && canvas.is_free(part)
    }

    /// Encodes whole tiles, and makes the pixels of the first overview that belong to them.
    fn encode_slice(
        &mut self,
        blocks: &mut FromBlocks,
        part: Window,
        encode: impl FnOnce(&TileRowEncoder, std::ops::Range<u32>) -> Result<EncodedTileRows, Error>,
    ) -> Result<(), Error> {
        self.stop_if_cancelled()?;
        let size = (part.width, part.height);
        let encoder = self.part_encoder(blocks, 0, size, blocks.canvases.has_overviews())?;
        let encoded = encode(&encoder, 0..encoder.tile_rows())?;
        self.report.add(&encoder.device_report());
        let main = &self.plan.levels.main;
        let corner = (part.x / main.layout.tile_width, part.y / main.layout.tile_height);
        let across = part.width.div_ceil(main.layout.tile_width);
        let down = part.height.div_ceil(main.layout.tile_height);
        let cells: Vec<CellPosition> =
            (0..down).flat_map(|row| (0..across).map(move |column| (corner.0 + column, corner.1 + row))).collect();
        self.place(0, &cells, &encoded)?;
        blocks.now += 1;
        let now = blocks.now;
        let mut complete = Vec::new();
        if let Some(below) = blocks.canvases.overviews.first_mut() {
            let target = Window::new(part.x / 2, part.y / 2, part.width / 2, part.height / 2);
            let planes = split(&encoded.overview, below.planes(), area(target))?;
            complete = below.put(&PlanarPixels { part: target, planes }, &blocks.spill, now)?;
        }
        for at in cells {
            blocks.canvases.main.set_done(at)?;
        }
        self.work(blocks, complete.into_iter().map(|at| (1, at)).collect())
    }

    /// An encoder of an image of this size, with the tiles of a level.
    pub(super) fn part_encoder(
        &self,
        blocks: &FromBlocks,
        level: usize,
        size: (u32, u32),
        with_overview: bool,
    ) -> Result<TileRowEncoder, Error> {
        let mut options = self.options.clone();
        options.threads = Some(self.host.memory.threads);
        let plan = self.plan.of_part(level, size, with_overview, &options)?;
        TileRowEncoder::of_plan(plan, self.shape, size, options, self.nodata.clone(), blocks.gpu.clone())
    }

    /// Writes the encoded tiles of these cells to their positions in the file.
    pub(super) fn place(
        &mut self,
        index: usize,
        cells: &[CellPosition],
        encoded: &EncodedTileRows,
    ) -> Result<(), Error> {
        let (level, writer) = (self.plan.levels.at(index)?, self.level_writers.at(index)?);
        let missing = || Error::internal("an encoder returned fewer tiles than cells");
        let per_position = level.tiles_per_position() as usize;
        let mut rest = &encoded.bytes[..];
        let mut lens = encoded.lens.chunks(per_position.max(1));
        let mut moments = encoded.moments.chunks(usize::from(level.layout.samples).max(1));
        let pieces_per_position = level.listed_pieces() * level.grid.planes as usize;
        let mut pieces = encoded.pieces.chunks(pieces_per_position.max(1));
        let mut spare = Vec::new();
        for (column, row) in cells {
            let position = u64::from(*row) * u64::from(level.grid.across) + u64::from(*column);
            // Without statistics there are no moments at all.
            let has_moments = index == 0 && !encoded.moments.is_empty();
            let statistics: &[Moments] = if has_moments { moments.next().ok_or_else(missing)? } else { &[] };
            for (plane, len) in (0..).zip(lens.next().ok_or_else(missing)?) {
                let (bytes, later) = rest.split_at_checked(*len as usize).ok_or_else(missing)?;
                rest = later;
                let moments = if plane == 0 { (0..).zip(statistics.iter().copied()).collect() } else { Vec::new() };
                let tile = Encoded { bytes: memory::copied(bytes)?, moments };
                writer.put(position * per_position as u64 + plane, tile, &*self.sink.0, &mut spare)?;
            }
            if pieces_per_position > 0 {
                let sizes = pieces.next().filter(|sizes| sizes.len() == pieces_per_position).ok_or_else(missing)?;
                let start = position as usize * pieces_per_position;
                let list = self.pieces.as_mut().and_then(|pieces| pieces.get_mut(index));
                let list = list.and_then(|list| list.get_mut(start..start + pieces_per_position));
                list.ok_or_else(missing)?.copy_from_slice(sizes);
            }
        }
        Ok(())
    }

    /// Copies pixels to their cells, and works on those that are complete.
    fn copy_slice(&mut self, blocks: &mut FromBlocks, part: Window, pushed: &Pushed<'_>) -> Result<(), Error> {
        let canvas = &mut blocks.canvases.main;
        blocks.now += 1;
        let changed = changes(&self.options, self.shape, self.nodata.as_deref());
        let complete = if pushed.arrangement == Arrangement::Planes && !changed {
            canvas.put(&PlanarPixels { part, planes: pushed.planes.clone() }, &blocks.spill, blocks.now)?
        } else {
            let planes = canvas.planes().iter().map(|size| size * part.width as usize).collect();
            let mut store = RowStore::new(planes, part.height)?;
            let nodata = self.nodata.as_deref().filter(|_| self.options.nan_to_nodata);
            let Shape { bands, sample, .. } = self.shape;
            copy_rows(pushed, 0..part.height, part.width, bands, sample, nodata, &mut store)?;
            store.grow(part.height)?;
            canvas.put(&PlanarPixels { part, planes: store.split().0 }, &blocks.spill, blocks.now)?
        };
        if self.choice.open().is_some() {
            return self.choose_from_cells(blocks, complete);
        }
        self.work(blocks, complete.into_iter().map(|at| (0, at)).collect())
    }

    pub(super) fn stop_if_cancelled(&self) -> Result<(), Error> {
        cancelled(self.options.cancel.as_ref()).map_or(Ok(()), Err)
    }

    /// Whether every pixel came, and the tiles of all levels are made.
    pub(super) fn finish_blocks(&mut self) -> Result<(), Error> {
        let Some(blocks) = self.detach_blocks() else { return Ok(()) };
        let Some(canvas) = blocks.canvases.iter().find(|canvas| !canvas.is_done()) else {
            self.set_all_encoded();
            return Ok(());
        };
        let (x, y) = canvas.first_missing();
        let of = u64::from(self.shape.width) * u64::from(self.shape.height);
        Err(Error::usage(format!(
            "{} of {of} pixels were pushed: some are missing in the tile at column {x}, row {y}",
            blocks.pixels
        )))
    }

    fn report_block_progress(&self) {
        if let (Some(report), Side::Blocks(blocks)) = (&self.options.progress, &self.side) {
            let of = self.shape.height;
            let rows = (blocks.pixels / u64::from(self.shape.width.max(1))) as u32;
            let bytes = self.level_writers.iter().map(LevelWriter::len).sum();
            report(Progress { rows: rows.min(of), of, bytes });
        }
    }
}

/// Writers of all levels that keep tiles that come before their turn.
pub(super) fn waiting_writers(plan: &Plan, waiting: &Arc<Waiting>) -> Arc<Levels<LevelWriter>> {
    let mut writers = plan.level_writers();
    writers.iter_mut().for_each(|level| level.wait_in(waiting));
    Arc::new(writers)
}
