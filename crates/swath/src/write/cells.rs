//! Works on the complete cells of a file that is written from blocks: encodes their tiles and makes pixels of the next level, level
//! after level.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use swath_codec::pre::Arrangement;
use swath_raster::{memory, shrink::ShrinkError};
use swath_tiff::Window;

use super::{
    canvas::{Axis, Canvas, CellPosition, Patch, PlanarPixels, split},
    input::Pushed,
    rectangles::area,
    step::{EncodeBuffers, LevelRows, StepContext, shrink_plane},
    writer::{FromBlocks, Writer},
};
use crate::error::Error;

/// Jobs that each thread gets at a time.
const JOBS: usize = 8;

/// Work that the pixels in memory allow.
#[derive(Debug, Clone, Copy)]
enum CellJob {
    Tile(usize, CellPosition),
    Patch(usize, Patch),
}

/// Pixels of the next level: of which level they were made, and as which patch.
type Made = (usize, Patch, Vec<u8>);

impl Writer {
    /// Encodes the tiles of complete cells and makes the pixels of the next level that need no others, level after level.
    pub(super) fn work(&mut self, blocks: &mut FromBlocks, complete: Vec<(usize, CellPosition)>) -> Result<(), Error> {
        let mut complete = complete;
        while !complete.is_empty() {
            let mut jobs = Vec::new();
            let mut known = HashSet::new();
            for (level, at) in complete.drain(..) {
                jobs.push(CellJob::Tile(level, at));
                let canvas = blocks.canvases.at(level)?;
                let patches = canvas.ready_patches(at).into_iter().filter(|patch| known.insert((level, patch.home)));
                jobs.extend(patches.map(|patch| CellJob::Patch(level, patch)));
            }
            for jobs in jobs.chunks(self.host.memory.threads * JOBS) {
                complete.extend(self.run_blocks(blocks, jobs)?);
                self.make_room(blocks)?;
            }
        }
        self.make_room(blocks)
    }

    /// Does some jobs; returns the cells that they completed.
    fn run_blocks(&mut self, blocks: &mut FromBlocks, jobs: &[CellJob]) -> Result<Vec<(usize, CellPosition)>, Error> {
        self.stop_if_cancelled()?;
        blocks.now += 1;
        for job in jobs {
            let (CellJob::Tile(level, _) | CellJob::Patch(level, _)) = job;
            let canvas = blocks.canvases.at_mut(*level)?;
            match job {
                CellJob::Tile(_, at) => canvas.load(*at, &blocks.spill)?,
                CellJob::Patch(_, patch) => canvas.load_source(patch, &blocks.spill)?,
            }
        }
        if blocks.gpu.is_some() {
            self.encode_cells_by_device(blocks, jobs)?;
        }
        let made = self.run_by_threads(blocks, jobs)?;
        let mut complete = Vec::new();
        for job in jobs {
            if let CellJob::Tile(level, at) = job {
                blocks.canvases.at_mut(*level)?.set_encoded(*at, &blocks.spill)?;
            }
        }
        for (level, patch, pixels) in made {
            let below = blocks.canvases.at_mut(level + 1)?;
            let planes = split(&pixels, below.planes(), area(patch.target))?;
            let found = below.put(&PlanarPixels { part: patch.target, planes }, &blocks.spill, blocks.now)?;
            complete.extend(found.into_iter().map(|at| (level + 1, at)));
            blocks.canvases.at_mut(level)?.set_shrunk(&patch, &blocks.spill)?;
        }
        Ok(complete)
    }

    /// Makes patches, and where there is no GPU tiles, with all threads.
    fn run_by_threads(&self, blocks: &FromBlocks, jobs: &[CellJob]) -> Result<Vec<Made>, Error> {
        let by_device = blocks.gpu.is_some();
        let mine = jobs.iter().copied().filter(|job| !(by_device && matches!(job, CellJob::Tile(..))));
        let queue = Mutex::new(mine.collect::<Vec<_>>().into_iter());
        let done: Mutex<Result<Vec<Made>, Error>> = Mutex::new(Ok(Vec::new()));
        let context = StepContext {
            plan: &self.plan,
            level_writers: Some(&self.level_writers),
            sink: &*self.sink.0,
            first_tile_row: 0,
            at_hand: &[],
            shrinks: &[],
            sample: self.shape.sample,
            nodata: self.nodata.as_deref(),
            cancel: self.options.cancel.as_ref(),
        };
        let work = || {
            let lock = || self.host.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut buffers = lock().pop().unwrap_or_default();
            loop {
                let job = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(job) = job else { break };
                let made = match job {
                    CellJob::Tile(level, at) => {
                        self.encode_cell(&context, blocks, level, at, &mut buffers).map(|()| None)
                    }
                    CellJob::Patch(level, patch) => self
                        .shrink_patch(blocks, level, &patch, &mut buffers)
                        .map(|pixels| Some((level, patch, pixels))),
                };
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *done, made) {
                    (Ok(all), Ok(made)) => all.extend(made),
                    (Ok(_), Err(error)) => *done = Err(error),
                    // Another job failed.
                    (Err(_), _) => break,
                }
            }
            lock().push(buffers);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.host.memory.threads.min(jobs.len()) {
                // If the system has no more threads, the others do the work.
                if swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode_cell(
        &self,
        context: &StepContext<'_>,
        blocks: &FromBlocks,
        level: usize,
        at: CellPosition,
        buffers: &mut EncodeBuffers,
    ) -> Result<(), Error> {
        let pixels = blocks.canvases.at(level)?.cell_pixels(at)?;
        let at_hand = LevelRows {
            planes: pixels.planes,
            arrangement: Arrangement::Planes,
            first: pixels.part.y,
            first_column: pixels.part.x,
            width: pixels.part.width,
        };
        let per_position = self.plan.levels.at(level)?.tiles_per_position();
        (0..per_position).try_for_each(|plane| context.encode_tile(level, at, plane, &at_hand, buffers))
    }

    fn shrink_patch(
        &self,
        blocks: &FromBlocks,
        level: usize,
        patch: &Patch,
        buffers: &mut EncodeBuffers,
    ) -> Result<Vec<u8>, Error> {
        let (canvas, plan) = (blocks.canvases.at(level)?, self.plan.levels.at(level)?);
        let lost = || Error::internal(format!("overview {} has no room", level + 1));
        let level_shrink =
            canvas.level_shrink().ok_or_else(|| Error::internal(format!("there is no overview {}", level + 1)))?;
        let mut room = Vec::new();
        let source = canvas.source(patch, &mut room)?;
        let Window { x, y, width, height } = patch.target;
        let columns = patch.source.x..patch.source.x + patch.source.width;
        let failed = |error: ShrinkError| Error::internal(format!("overview {}: {error}", level + 1));
        let shrinks = level_shrink.columns(x..x + width, &columns).map_err(failed)?;
        let mut out: Vec<u8> = memory::zeroed(area(patch.target) as usize * canvas.planes().iter().sum::<usize>())?;
        let mut rest = &mut out[..];
        for (plane, size) in canvas.planes().iter().enumerate() {
            let (own, later) = rest.split_at_mut_checked(area(patch.target) as usize * size).ok_or_else(lost)?;
            rest = later;
            let has_nodata = self.nodata.is_some();
            let first = patch.source.y;
            shrink_plane(plan, &shrinks, &source.planes, plane, first, y..y + height, has_nodata, own, buffers)
                .map_err(failed)?;
        }
        Ok(out)
    }

    /// Has the GPU encode the tiles of cells, many at a time: as images of one tile's height or width.
    fn encode_cells_by_device(&mut self, blocks: &FromBlocks, jobs: &[CellJob]) -> Result<(), Error> {
        let mut groups: Vec<(usize, (u32, u32), Vec<CellPosition>)> = Vec::new();
        for job in jobs {
            let CellJob::Tile(level, at) = job else { continue };
            let part = blocks.canvases.at(*level)?.cell_part(*at);
            let size = (part.width, part.height);
            match groups.iter_mut().find(|(other, of, _)| other == level && *of == size) {
                Some((_, _, cells)) => cells.push(*at),
                None => groups.push((*level, size, vec![*at])),
            }
        }
        for (level, (width, height), cells) in groups {
            let layout = self.plan.levels.at(level)?.layout.clone();
            // Tiles that cross the right edge are placed below each other in a small image, so that they cross its right edge
            // too. Others are placed side by side, so that those at the lower edge cross it. A strip has an image of its own.
            let along = if width == layout.tile_width { Axis::X } else { Axis::Y };
            let corner = along == Axis::Y && height != layout.tile_height;
            let at_once = if !layout.tiled || corner { 1 } else { cells.len() };
            for cells in cells.chunks(at_once.max(1)) {
                let count = cells.len() as u32;
                let size = match along {
                    Axis::X => (width * count, height),
                    Axis::Y => (width, height * count),
                };
                let bytes = joined_pixels(blocks, level, cells, along)?;
                let planes = blocks.canvases.at(level)?.planes();
                let planes = split(&bytes, planes, u64::from(size.0) * u64::from(size.1))?;
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
    pub(super) fn make_room(&self, blocks: &mut FromBlocks) -> Result<(), Error> {
        let memory_len: u64 = blocks.canvases.iter().map(Canvas::memory_len).sum();
        if memory_len <= blocks.budget {
            return Ok(());
        }
        let cells = blocks.canvases.iter().enumerate();
        let mut cells: Vec<_> =
            cells.flat_map(|(level, canvas)| canvas.in_memory().map(move |cell| (cell, level))).collect();
        cells.sort_unstable();
        // Down to three quarters, so that this is not done again for every cell.
        let mut surplus = memory_len.saturating_sub(blocks.budget / 4 * 3);
        for ((_, len, at), level) in cells {
            if surplus == 0 {
                break;
            }
            blocks.canvases.at_mut(level)?.unload(at, &blocks.spill)?;
            surplus = surplus.saturating_sub(len);
        }
        Ok(())
    }
}

/// Joins cells of one size to an image, along a row or a column. Returns its pixels, plane after plane.
fn joined_pixels(blocks: &FromBlocks, level: usize, cells: &[CellPosition], along: Axis) -> Result<Vec<u8>, Error> {
    let lost = || Error::internal("the pixels of a cell are shorter than planned");
    let canvas = blocks.canvases.at(level)?;
    let planar: Vec<PlanarPixels<'_>> = cells.iter().map(|at| canvas.cell_pixels(*at)).collect::<Result<_, _>>()?;
    let len = planar.iter().flat_map(|cell| &cell.planes).map(|plane| plane.len()).sum::<usize>();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Error::no_memory(len))?;
    for (plane, size) in canvas.planes().iter().enumerate() {
        let planes = planar.iter().map(|cell| cell.planes.get(plane).copied().ok_or_else(lost));
        let planes = planes.collect::<Result<Vec<&[u8]>, Error>>()?;
        let row = planar.first().map_or(0, |cell| cell.part.width as usize * size).max(1);
        match along {
            Axis::Y => planes.iter().for_each(|plane| bytes.extend_from_slice(plane)),
            Axis::X => {
                let rows = planar.first().map_or(0, |cell| cell.part.height as usize);
                for y in 0..rows {
                    for plane in &planes {
                        bytes.extend_from_slice(plane.get(y * row..(y + 1) * row).ok_or_else(lost)?);
                    }
                }
            }
        }
    }
    Ok(bytes)
}
