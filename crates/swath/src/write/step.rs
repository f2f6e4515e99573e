//! Encodes tiles and makes overview rows, with all threads at once.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use swath_codec::{
    Scratch,
    pre::{Arrangement, Edge, ImageRows, cut},
};
use swath_io::Sink;
use swath_raster::{
    memory,
    moments::TileBand,
    shrink::{ShrinkError, ShrinkScratch},
};
use swath_tiff::{SampleType, Window};

use super::{
    input::Pushed,
    level_writer::{Encoded, LevelWriter},
    levels::Levels,
    plan::{LevelPlan, Plan},
    row_store::RowStore,
    shrinks::Shrinks,
};
use crate::{
    cancel::{Cancel, cancelled},
    error::Error,
};

/// Overview rows that one thread makes at a time.
const SHRINK_ROWS: usize = 16;

/// Buffers that a thread keeps from tile to tile.
#[derive(Debug, Default)]
pub(super) struct EncodeBuffers {
    scratch: Scratch,
    shrink: ShrinkScratch,
    tile: Vec<u8>,
    mask: Vec<u8>,
    /// Buffers of written tiles, for the next ones.
    spare: Vec<Vec<u8>>,
}

/// The rows of one level that are in memory.
pub(super) struct LevelRows<'a> {
    pub planes: Vec<&'a [u8]>,
    pub arrangement: Arrangement,
    /// The first row and the first column in memory.
    pub first: u32,
    pub first_column: u32,
    /// Columns in memory.
    pub width: u32,
}

impl<'a> LevelRows<'a> {
    /// Whole rows from `first` on.
    pub(super) fn rows(planes: Vec<&'a [u8]>, arrangement: Arrangement, first: u32, width: u32) -> Self {
        Self { planes, arrangement, first, first_column: 0, width }
    }
}

pub(super) enum StepJob<'a> {
    /// Encodes a tile; the plane after those of the bands is the mask.
    Tile {
        level: usize,
        column: u32,
        row: u32,
        plane: u32,
    },
    Shrink {
        level: usize,
        plane: usize,
        rows: Range<u32>,
        out: &'a mut [u8],
    },
}

/// Jobs that make rows of one plane of the level below `level`, some at a time.
pub(super) fn shrink_jobs<'a>(
    level: usize,
    plane: usize,
    rows: Range<u32>,
    row_len: usize,
    out: &'a mut [u8],
) -> impl Iterator<Item = StepJob<'a>> {
    out.chunks_mut((SHRINK_ROWS * row_len).max(1)).enumerate().map(move |(number, out)| {
        let start = rows.start + (number * SHRINK_ROWS) as u32;
        StepJob::Shrink { level, plane, rows: start..(start + SHRINK_ROWS as u32).min(rows.end), out }
    })
}

/// Copies pushed rows into the room of a store. With `nodata`, it replaces samples that are not a number by that value.
pub(super) fn copy_rows(
    pushed: &Pushed<'_>,
    rows: Range<u32>,
    width: u32,
    bands: u16,
    sample: SampleType,
    nodata: Option<&[u8]>,
    store: &mut RowStore,
) -> Result<(), Error> {
    let too_short = || Error::internal(format!("rows {rows:?} do not fit into the memory for them"));
    let count = rows.end - rows.start;
    let (_, free) = store.split();
    let view = ImageRows {
        planes: &pushed.planes,
        arrangement: pushed.arrangement,
        bands,
        size: sample.size(),
        width,
        first: 0,
    };
    // The mask is a plane of its own on both sides; two bands side by side and a mask are as many planes as two bands apart.
    let together = if pushed.arrangement == Arrangement::Planes { usize::from(bands) } else { 1 };
    let masked = pushed.planes.len().saturating_sub(together);
    let apart = free.len() >= usize::from(bands) + masked;
    let samples = if apart { bands } else { 1 };
    if free.len() != usize::from(samples) + masked {
        return Err(Error::internal("rows were pushed in other planes than there is memory for"));
    }
    for (plane, room) in free.into_iter().enumerate() {
        let take = match plane as u16 {
            // The mask is the last plane of both.
            plane if plane >= samples => {
                let from = rows.start as usize * width as usize;
                let len = count as usize * width as usize;
                let mask = pushed.planes.last().and_then(|mask| mask.get(from..from + len));
                let (mask, room) = mask.zip(room.get_mut(..len)).ok_or_else(too_short)?;
                room.copy_from_slice(mask);
                continue;
            }
            plane if apart => plane..plane + 1,
            _ => 0..bands,
        };
        let len = count as usize * width as usize * take.len() * sample.size();
        let room = room.get_mut(..len).ok_or_else(too_short)?;
        if !cut(&view, Window::new(0, rows.start, width, count), take, width, Edge::Zero, room) {
            return Err(no_whole_tile());
        }
        if let Some(nodata) = nodata {
            replace_nan(room, sample, nodata)?;
        }
    }
    Ok(())
}

/// Replaces samples that are not a number by nodata.
fn replace_nan(samples: &mut [u8], sample: SampleType, nodata: &[u8]) -> Result<(), Error> {
    fn each<const N: usize>(samples: &mut [u8], nodata: &[u8], is_nan: impl Fn([u8; N]) -> bool) -> Result<(), Error> {
        let too_short = || Error::internal("the nodata value is shorter than a sample");
        let nodata = nodata.first_chunk::<N>().ok_or_else(too_short)?;
        for found in samples.as_chunks_mut::<N>().0 {
            if is_nan(*found) {
                *found = *nodata;
            }
        }
        Ok(())
    }
    match sample {
        SampleType::F16 => each(samples, nodata, |raw: [u8; 2]| u16::from_ne_bytes(raw) & 0x7fff > 0x7c00),
        SampleType::F32 => each(samples, nodata, |raw: [u8; 4]| f32::from_ne_bytes(raw).is_nan()),
        SampleType::F64 => each(samples, nodata, |raw: [u8; 8]| f64::from_ne_bytes(raw).is_nan()),
        _ => Ok(()),
    }
}

/// The error for a tile that was to be cut from rows that are not all there.
pub(super) fn no_whole_tile() -> Error {
    Error::internal("the rows in memory do not hold a whole tile")
}

/// What the threads of a step share.
pub(super) struct StepContext<'a> {
    pub plan: &'a Plan,
    /// Where tiles go; `None` where only overview rows are made.
    pub level_writers: Option<&'a Levels<LevelWriter>>,
    pub sink: &'a dyn Sink,
    /// Number in the file of the first tile row here, for error messages.
    pub first_tile_row: u32,
    pub at_hand: &'a [LevelRows<'a>],
    pub shrinks: &'a [&'a Option<Shrinks>],
    pub sample: SampleType,
    pub nodata: Option<&'a [u8]>,
    pub cancel: Option<&'a Cancel>,
}

/// Jobs of a step, and the first error.
struct Queue<'a> {
    jobs: Mutex<std::vec::IntoIter<StepJob<'a>>>,
    failure: Mutex<Option<Error>>,
    stop: AtomicBool,
}

impl StepContext<'_> {
    /// Runs all jobs, with up to `threads` threads.
    pub(super) fn run_all(
        &self,
        jobs: Vec<StepJob<'_>>,
        threads: usize,
        pool: &Mutex<Vec<EncodeBuffers>>,
    ) -> Result<(), Error> {
        let threads = threads.min(jobs.len()).max(1);
        let jobs = Mutex::new(jobs.into_iter());
        let queue = Queue { jobs, failure: Mutex::new(None), stop: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If the system has no more threads, the others do the work.
                if swath_io::fork::starting(|| {
                    std::thread::Builder::new().spawn_scoped(scope, || self.work(&queue, pool))
                })
                .is_err()
                {
                    break;
                }
            }
            self.work(&queue, pool);
        });
        queue.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn work(&self, queue: &Queue<'_>, pool: &Mutex<Vec<EncodeBuffers>>) {
        let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = lock().pop().unwrap_or_default();
        while !queue.stop.load(Ordering::Relaxed) {
            let job = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { break };
            if let Err(error) = self.run(job, &mut buffers) {
                queue.stop.store(true, Ordering::Relaxed);
                queue.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
        lock().push(buffers);
    }

    fn run(&self, job: StepJob<'_>, buffers: &mut EncodeBuffers) -> Result<(), Error> {
        if let Some(error) = cancelled(self.cancel) {
            return Err(error);
        }
        match job {
            StepJob::Tile { level, column, row, plane } => {
                let rows = self.at_hand.get(level);
                let rows = rows.ok_or_else(|| Error::internal(format!("level {level} has no rows in memory")))?;
                self.encode_tile(level, (column, row), plane, rows, buffers)
            }
            StepJob::Shrink { level, plane, rows, out } => self.shrink(level, plane, rows, out, buffers),
        }
    }

    /// Encodes a tile and writes it to its place.
    pub(super) fn encode_tile(
        &self,
        level: usize,
        (column, row): (u32, u32),
        plane: u32,
        rows: &LevelRows<'_>,
        buffers: &mut EncodeBuffers,
    ) -> Result<(), Error> {
        let plan = self.plan.levels.at(level)?;
        let writers = self.level_writers.ok_or_else(|| Error::internal("tiles are encoded without a file"))?;
        let position = u64::from(row) * u64::from(plan.grid.across) + u64::from(column);
        let number = position * u64::from(plan.tiles_per_position()) + u64::from(plane);
        let encoded = self.encode(level, plan, rows, (column, row), plane, buffers).map_err(|error| {
            error.at(&swath_tiff::Place { tile: Some((column, row + self.first_tile_row)), ..Default::default() })
        })?;
        writers.at(level)?.put(number, encoded, self.sink, &mut buffers.spare)
    }

    fn encode(
        &self,
        level: usize,
        plan: &LevelPlan,
        at_hand: &LevelRows<'_>,
        (column, row): (u32, u32),
        plane: u32,
        buffers: &mut EncodeBuffers,
    ) -> Result<Encoded, Error> {
        let layout = &plan.layout;
        let (columns, rows) = plan.grid.visible(column, row);
        let beside = || Error::internal("the columns in memory begin to the right of a tile");
        let x = (column * layout.tile_width).checked_sub(at_hand.first_column).ok_or_else(beside)?;
        let visible = Window::new(x, row * layout.tile_height, columns, rows);
        let stored = plan.grid.stored_rows(row);
        let EncodeBuffers { scratch, tile, mask, spare, .. } = buffers;
        let mask_plane = match (&plan.mask, at_hand.planes.last()) {
            (Some(_), None) => return Err(Error::internal("the rows of a level have no mask")),
            (Some(_), Some(plane)) => Some(*plane),
            (None, _) => None,
        };
        let cut_mask = |plane: &[u8], out: &mut Vec<u8>| {
            memory::resize(out, layout.tile_width as usize * stored as usize)?;
            let planes = [plane];
            let arrangement = Arrangement::Planes;
            let view = ImageRows {
                planes: &planes,
                arrangement,
                bands: 1,
                size: 1,
                width: at_hand.width,
                first: at_hand.first,
            };
            let is_whole = cut(&view, visible, 0..1, layout.tile_width, Edge::Zero, out);
            if is_whole { Ok(()) } else { Err(no_whole_tile()) }
        };
        let mut encoded = Encoded { bytes: spare.pop().unwrap_or_default(), moments: Vec::new() };
        encoded.bytes.clear();
        if plane >= plan.grid.planes {
            let host = plan.host_of(true)?;
            let plane = mask_plane.ok_or_else(|| Error::internal("the rows of a level have no mask"))?;
            cut_mask(plane, tile)?;
            if self.plan.sparse && tile.iter().all(|byte| *byte == 0) {
                return Ok(encoded);
            }
            self.plan.framed(&mut encoded.bytes, |bytes| Ok(host.encode(stored, tile, bytes, scratch)?))?;
        } else {
            let bands = if plan.grid.planes > 1 { plane as u16..plane as u16 + 1 } else { 0..layout.samples };
            let spec = plan.host.spec();
            memory::resize(tile, spec.native_row_len() * stored as usize)?;
            let view = ImageRows {
                planes: &at_hand.planes,
                arrangement: at_hand.arrangement,
                bands: layout.samples,
                size: layout.sample.size(),
                width: at_hand.width,
                first: at_hand.first,
            };
            if !cut(&view, visible, bands.clone(), layout.tile_width, plan.host.edge(), tile) {
                return Err(no_whole_tile());
            }
            if level == 0 && self.plan.statistics {
                if let Some(plane) = mask_plane {
                    cut_mask(plane, mask)?;
                }
                let samples = bands.len();
                for (sample, band) in bands.enumerate() {
                    let of = TileBand {
                        tile: &*tile,
                        width: layout.tile_width,
                        visible: Window::new(0, 0, columns, rows),
                        samples,
                        sample,
                        kind: self.sample,
                        nodata: self.nodata,
                        mask: mask_plane.map(|_| &mask[..]),
                    };
                    encoded.moments.extend(of.moments().map(|moments| (band, moments)));
                }
            }
            if self.plan.sparse
                && self.is_empty(tile, spec.native_row_len(), columns as usize * usize::from(spec.samples), rows)
            {
                return Ok(encoded);
            }
            self.plan.framed(&mut encoded.bytes, |bytes| Ok(plan.host.encode(stored, tile, bytes, scratch)?))?;
        }
        Ok(encoded)
    }

    /// Whether the first `samples` samples of the first `rows` rows all equal the value that readers use for a tile that is left out.
    fn is_empty(&self, tile: &[u8], row_len: usize, samples: usize, rows: u32) -> bool {
        let fill = &self.plan.fill;
        tile.chunks_exact(row_len.max(1))
            .take(rows as usize)
            .all(|row| row.chunks_exact(fill.len().max(1)).take(samples).all(|found| found == fill))
    }

    fn shrink(
        &self,
        level: usize,
        plane: usize,
        rows: Range<u32>,
        out: &mut [u8],
        buffers: &mut EncodeBuffers,
    ) -> Result<(), Error> {
        let (Some(Some(shrinks)), Some(rows_at_hand)) = (self.shrinks.get(level), self.at_hand.get(level)) else {
            return Err(Error::internal(format!("level {level} has no rows to make overview {} of", level + 1)));
        };
        let plan = self.plan.levels.at(level)?;
        let (planes, first) = (&rows_at_hand.planes, rows_at_hand.first);
        shrink_plane(plan, shrinks, planes, plane, first, rows, self.nodata.is_some(), out, buffers)
            .map_err(|error| Error::internal(format!("overview {}: {error}", level + 1)))
    }
}

/// Makes rows of one plane of the next level from planes whose first row is `first`.
#[allow(clippy::too_many_arguments)]
pub(super) fn shrink_plane(
    plan: &LevelPlan,
    shrinks: &Shrinks,
    planes: &[&[u8]],
    plane: usize,
    first: u32,
    rows: Range<u32>,
    has_nodata: bool,
    out: &mut [u8],
    buffers: &mut EncodeBuffers,
) -> Result<(), ShrinkError> {
    let source = planes.get(plane).ok_or(ShrinkError::Buffer)?;
    let bands = usize::from(plan.layout.samples);
    let alpha = alpha_band(&plan.layout);
    let validity = match alpha {
        _ if plan.mask.is_some() => planes.last().copied(),
        // Nodata counts before alpha.
        Some(band) if !has_nodata => planes.get(band).copied(),
        _ => None,
    };
    let width = shrinks.samples.target().0;
    if plane >= bands || alpha == Some(plane) {
        let len = width as usize;
        shrinks.mask.shrink_mask(source, first, rows, 0..width, out, len, &mut buffers.shrink)
    } else {
        let len = width as usize * plan.layout.sample.size();
        shrinks.samples.run(source, validity, first, rows, 0..width, out, len, &mut buffers.shrink)
    }
}

/// The alpha band, where samples are bytes.
pub(super) fn alpha_band(layout: &swath_tiff::structure::Layout) -> Option<usize> {
    if layout.sample != SampleType::U8 {
        return None;
    }
    let position = layout.extra_samples.iter().position(|extra| *extra == 1 || *extra == 2)?;
    Some(usize::from(layout.samples) - layout.extra_samples.len() + position)
}
