//! One step of a write: every complete tile row of every level is compressed, and every overview row that can be made is
//! made, all at once by all threads.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use swath_codec::{
    Scratch,
    pre::{Arrangement, Edge, Rows as Cuttable, cut, moments::TileBand},
    shrink::{ShrinkError, ShrinkScratch},
};
use swath_io::Sink;
use swath_tiff::{SampleType, Window};

use super::{
    Level, Writer,
    lane::{Encoded, Lane},
    options::Progress,
    plan::{LevelPlan, Plan},
    pushed::Pushed,
    rows::RowStore,
};
use crate::{error::Error, read::Cancel};

/// Overview rows that one thread makes at a time.
const SHRINK_ROWS: usize = 16;

/// What a thread keeps from tile to tile.
#[derive(Debug, Default)]
pub(super) struct Worker {
    scratch: Scratch,
    shrink: ShrinkScratch,
    tile: Vec<u8>,
    mask: Vec<u8>,
    /// Buffers of tiles that are written.
    spare: Vec<Vec<u8>>,
}

/// The rows of one level that are at hand.
pub(super) struct AtHand<'a> {
    pub planes: Vec<&'a [u8]>,
    pub arrangement: Arrangement,
    /// The first row, and the first column, that are there.
    pub first: u32,
    pub first_column: u32,
    /// Columns that are there.
    pub width: u32,
}

impl<'a> AtHand<'a> {
    /// Whole rows from `first` on.
    pub(super) fn rows(planes: Vec<&'a [u8]>, arrangement: Arrangement, first: u32, width: u32) -> Self {
        Self { planes, arrangement, first, first_column: 0, width }
    }
}

/// What a level does in this step.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub tile_rows: Range<u32>,
    /// Tiles of the first of them that are done already.
    position: u32,
    /// Rows of the next level.
    shrunk: Range<u32>,
}

pub(super) enum Job<'a> {
    Tile { level: usize, column: u32, row: u32, part: u32 },
    Shrink { level: usize, plane: usize, rows: Range<u32>, out: &'a mut [u8] },
}

impl Writer {
    /// Whether rows that are all there can be used where they are.
    pub(super) fn can_borrow(&self, pushed: &Pushed<'_>) -> bool {
        // Samples that are changed are copied first.
        let changed = super::changes(&self.options, self.shape, self.nodata.as_deref());
        !changed && (pushed.arrangement == Arrangement::Planes || self.levels.len() == 1)
    }

    /// Writes an image that is all there.
    pub(super) fn borrow_all(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let mut available = 0;
        while available < pushed.rows {
            available = (available + self.batch).min(pushed.rows);
            self.step(Some((pushed, available)))?;
        }
        // What is left to be made of the image has to be made before its memory goes.
        while self.lags(0, pushed.rows) {
            self.step(Some((pushed, available)))?;
        }
        if let Some(level) = self.levels.first_mut() {
            level.store.first = pushed.rows;
        }
        Ok(())
    }

    /// Copies rows to memory of our own, and writes what is complete.
    pub(super) fn copy_in(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        self.make_store(pushed)?;
        let mut done = 0;
        while done < pushed.rows {
            let Some(level) = self.levels.first_mut() else { return Ok(()) };
            let rows = level.store.room().min(pushed.rows - done);
            if rows > 0 {
                copy_rows(
                    pushed,
                    done..done + rows,
                    self.shape.width,
                    self.shape.bands,
                    self.shape.sample,
                    self.nodata.as_deref().filter(|_| self.options.nan_to_nodata),
                    &mut level.store,
                );
                level.store.grow(rows);
                done += rows;
            }
            while self.is_ready() {
                self.step(None)?;
            }
        }
        Ok(())
    }

    fn make_store(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let (Some(plan), Some(level)) = (self.plan.levels.first(), self.levels.first_mut()) else { return Ok(()) };
        if level.store.end() > 0 || level.store.room() > 0 {
            return Ok(());
        }
        let sample_row = self.shape.width as usize * self.shape.sample.size();
        // Pixels that stay together need not be taken apart, unless overviews are made of them band by band.
        let together = pushed.arrangement == Arrangement::Pixels && self.plan.levels.len() == 1;
        let bands = usize::from(self.shape.bands);
        let mut planes = if together { vec![sample_row * bands] } else { vec![sample_row; bands] };
        if plan.mask.is_some() {
            planes.push(self.shape.width as usize);
        }
        level.store = RowStore::new(planes, super::capacity(&self.plan, 0, self.batch))?;
        Ok(())
    }

    /// Whether a step is due before more rows are taken.
    fn is_ready(&self) -> bool {
        let (Some(plan), Some(level)) = (self.plan.levels.first(), self.levels.first()) else { return false };
        let height = self.shape.height;
        let end = level.store.end();
        let waiting = end - (level.tile_rows * plan.layout.tile_height).min(end);
        let complete = end == height && level.tile_rows < plan.grid.down;
        waiting >= self.batch || complete || (level.store.room() == 0 && end < height)
    }

    /// Whether a level whose rows up to `end` are there has something left to do.
    fn lags(&self, index: usize, end: u32) -> bool {
        let (Some(plan), Some(level)) = (self.plan.levels.get(index), self.levels.get(index)) else { return false };
        let below = self.plan.levels.get(index + 1);
        let shrinks = below.is_some_and(|below| level.shrunk < below.layout.height);
        end == plan.layout.height && (level.tile_rows < plan.grid.down || shrinks)
    }

    /// Does what is left when every row is there.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        while (0..self.levels.len()).any(|index| {
            self.plan
                .levels
                .get(index)
                .zip(self.levels.get(index))
                .is_some_and(|(plan, level)| level.tile_rows < plan.grid.down)
        }) {
            self.step(None)?;
        }
        Ok(())
    }

    /// What each level can do with the rows that are there.
    pub(super) fn due(&self, available: Option<u32>) -> Vec<Due> {
        let mut due = Vec::with_capacity(self.levels.len());
        for (index, (plan, level)) in self.plan.levels.iter().zip(&self.levels).enumerate() {
            let end = if index == 0 { available.unwrap_or(level.store.end()) } else { level.store.end() };
            let complete = end == plan.layout.height;
            let tile_rows = if complete { plan.grid.down } else { end / plan.layout.tile_height };
            let mut until = level.shrunk;
            if let (Some(shrink), Some(below), Some(next)) =
                (&level.shrink, self.plan.levels.get(index + 1), self.levels.get(index + 1))
            {
                let most = level.shrunk + next.store.room().min(below.layout.height - level.shrunk);
                while until < most && shrink.needs(until).end <= end {
                    until += 1;
                }
            }
            let tile_rows = level.tile_rows..tile_rows.max(level.tile_rows);
            due.push(Due { tile_rows, position: level.position, shrunk: level.shrunk..until });
        }
        due
    }

    /// One step. With `image`, the image's rows up to the given one are there rather than in a store.
    pub(super) fn step(&mut self, image: Option<(&Pushed<'_>, u32)>) -> Result<(), Error> {
        let due = self.due(image.map(|(_, available)| available));
        if due.iter().all(|due| due.tile_rows.is_empty() && due.shrunk.is_empty()) {
            return Err(Error::usage("the writer has rows that lead nowhere; this is a fault in swath"));
        }
        self.run_jobs(&due, image.map(|(pushed, _)| pushed))?;
        for (index, due) in due.iter().enumerate() {
            if let Some(next) = self.levels.get_mut(index + 1) {
                next.store.grow(due.shrunk.end - due.shrunk.start);
            }
            let below = self.plan.levels.get(index + 1).map(|below| below.layout.height);
            let (Some(level), Some(plan)) = (self.levels.get_mut(index), self.plan.levels.get(index)) else { continue };
            level.tile_rows = due.tile_rows.end;
            level.position = if due.tile_rows.is_empty() { level.position } else { 0 };
            level.shrunk = due.shrunk.end;
            let tiles_from = level.tile_rows.saturating_mul(plan.layout.tile_height);
            let looks_back = match (&level.shrink, below) {
                (Some(shrink), Some(height)) if level.shrunk < height => shrink.needs(level.shrunk).start,
                _ => u32::MAX,
            };
            if index > 0 || image.is_none() {
                level.store.forget_before(tiles_from.min(looks_back));
            }
        }
        self.tell();
        Ok(())
    }

    /// Tells how far the write has come.
    pub(super) fn tell(&self) {
        if let (Some(report), Some(plan), Some(level)) =
            (&self.options.progress, self.plan.levels.first(), self.levels.first())
        {
            let rows = level.tile_rows.saturating_mul(plan.layout.tile_height).min(self.shape.height);
            let bytes = self.lanes.iter().map(Lane::len).sum();
            report(Progress { rows, of: self.shape.height, bytes });
        }
    }

    fn run_jobs(&mut self, due: &[Due], image: Option<&Pushed<'_>>) -> Result<(), Error> {
        let mut at_hand: Vec<AtHand<'_>> = Vec::new();
        let mut free: Vec<Vec<&mut [u8]>> = Vec::new();
        let mut shrinks = Vec::new();
        let bands = usize::from(self.shape.bands);
        for (index, level) in self.levels.iter_mut().enumerate() {
            let Level { store, shrink, .. } = level;
            let first = store.first;
            let width = self.plan.levels.get(index).map_or(0, |plan| plan.layout.width);
            let (planes, room) = store.split();
            shrinks.push(&*shrink);
            free.push(room);
            at_hand.push(match image {
                Some(pushed) if index == 0 => AtHand::rows(pushed.planes.clone(), pushed.arrangement, 0, width),
                _ => {
                    let masked = usize::from(self.plan.levels.get(index).is_some_and(|plan| plan.mask.is_some()));
                    let apart = planes.len() >= bands + masked;
                    let arrangement = if apart { Arrangement::Planes } else { Arrangement::Pixels };
                    AtHand::rows(planes, arrangement, first, width)
                }
            });
        }
        let mut jobs = Vec::new();
        for (index, (due, room)) in due.iter().zip(free.into_iter().skip(1)).enumerate() {
            let Some(below) = self.plan.levels.get(index + 1) else { continue };
            let width = below.layout.width as usize;
            for (plane, room) in room.into_iter().enumerate() {
                let row_len = if plane < bands { width * self.shape.sample.size() } else { width };
                let out = room.get_mut(..due.shrunk.len() * row_len).unwrap_or_default();
                jobs.extend(shrink_jobs(index, plane, due.shrunk.clone(), row_len, out));
            }
        }
        for (level, (due, plan)) in due.iter().zip(&self.plan.levels).enumerate() {
            for row in due.tile_rows.clone() {
                let done = if row == due.tile_rows.start { due.position } else { 0 };
                for column in done..plan.grid.across {
                    jobs.extend((0..plan.parts()).map(|part| Job::Tile { level, column, row, part }));
                }
            }
        }
        let crew = Crew {
            plan: &self.plan,
            lanes: &self.lanes,
            sink: &*self.sink.0,
            above: self.above,
            at_hand: &at_hand,
            shrinks: &shrinks,
            sample: self.shape.sample,
            nodata: self.nodata.as_deref(),
            cancel: self.options.cancel.as_ref(),
        };
        crew.run_all(jobs, self.threads, &self.workers)
    }
}

/// The rows of one plane of the level below `level`, some at a time.
pub(super) fn shrink_jobs<'a>(
    level: usize,
    plane: usize,
    rows: Range<u32>,
    row_len: usize,
    out: &'a mut [u8],
) -> impl Iterator<Item = Job<'a>> {
    out.chunks_mut((SHRINK_ROWS * row_len).max(1)).enumerate().map(move |(piece, out)| {
        let start = rows.start + (piece * SHRINK_ROWS) as u32;
        Job::Shrink { level, plane, rows: start..(start + SHRINK_ROWS as u32).min(rows.end), out }
    })
}

/// Copies rows of what was pushed into the room of a store. With `nodata`, that stands where samples are not a number.
pub(super) fn copy_rows(
    pushed: &Pushed<'_>,
    rows: Range<u32>,
    width: u32,
    bands: u16,
    sample: SampleType,
    nodata: Option<&[u8]>,
    store: &mut RowStore,
) {
    let count = rows.end - rows.start;
    let (_, free) = store.split();
    let view = Cuttable {
        planes: &pushed.planes,
        arrangement: pushed.arrangement,
        bands,
        size: sample.size(),
        width,
        first: 0,
        count: pushed.rows,
    };
    // The mask is a plane of its own on both sides; two bands side by side and a mask are as many planes as two bands apart.
    let together = if pushed.arrangement == Arrangement::Planes { usize::from(bands) } else { 1 };
    let masked = pushed.planes.len().saturating_sub(together);
    let apart = free.len() >= usize::from(bands) + masked;
    let samples = if apart { bands } else { 1 };
    for (plane, room) in free.into_iter().enumerate() {
        let take = match plane as u16 {
            // The mask is the last plane of both.
            plane if plane >= samples => {
                let from = rows.start as usize * width as usize;
                let len = count as usize * width as usize;
                let mask = pushed.planes.last().and_then(|mask| mask.get(from..from + len));
                if let (Some(mask), Some(room)) = (mask, room.get_mut(..len)) {
                    room.copy_from_slice(mask);
                }
                continue;
            }
            plane if apart => plane..plane + 1,
            _ => 0..bands,
        };
        let len = count as usize * width as usize * take.len() * sample.size();
        if let Some(room) = room.get_mut(..len) {
            cut(&view, Window::new(0, rows.start, width, count), take, width, Edge::Zero, room);
            if let Some(nodata) = nodata {
                replace_nan(room, sample, nodata);
            }
        }
    }
}

/// Puts nodata where samples are not a number.
fn replace_nan(samples: &mut [u8], sample: SampleType, nodata: &[u8]) {
    fn each<const N: usize>(samples: &mut [u8], nodata: &[u8], is_nan: impl Fn([u8; N]) -> bool) {
        let Some(nodata) = nodata.first_chunk::<N>() else { return };
        for found in samples.as_chunks_mut::<N>().0 {
            if is_nan(*found) {
                *found = *nodata;
            }
        }
    }
    match sample {
        SampleType::F16 => each(samples, nodata, |raw: [u8; 2]| u16::from_ne_bytes(raw) & 0x7fff > 0x7c00),
        SampleType::F32 => each(samples, nodata, |raw: [u8; 4]| f32::from_ne_bytes(raw).is_nan()),
        SampleType::F64 => each(samples, nodata, |raw: [u8; 8]| f64::from_ne_bytes(raw).is_nan()),
        _ => {}
    }
}

/// What the threads of a step share.
pub(super) struct Crew<'a> {
    pub plan: &'a Plan,
    pub lanes: &'a [Lane],
    pub sink: &'a dyn Sink,
    /// Tile rows of the file above the first one, for messages.
    pub above: u32,
    pub at_hand: &'a [AtHand<'a>],
    pub shrinks: &'a [&'a Option<super::Shrinks>],
    pub sample: SampleType,
    pub nodata: Option<&'a [u8]>,
    pub cancel: Option<&'a Cancel>,
}

/// What is to be done, and how it goes.
struct Queue<'a> {
    jobs: Mutex<std::vec::IntoIter<Job<'a>>>,
    failure: Mutex<Option<Error>>,
    stop: AtomicBool,
}

impl Crew<'_> {
    /// Does all jobs, with so many threads.
    pub(super) fn run_all(
        &self,
        jobs: Vec<Job<'_>>,
        threads: usize,
        workers: &Mutex<Vec<Worker>>,
    ) -> Result<(), Error> {
        let threads = threads.min(jobs.len()).max(1);
        let jobs = Mutex::new(jobs.into_iter());
        let queue = Queue { jobs, failure: Mutex::new(None), stop: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Where the system has no further thread, those that are there do the work.
                if swath_io::fork::starting(|| {
                    std::thread::Builder::new().spawn_scoped(scope, || self.work(&queue, workers))
                })
                .is_err()
                {
                    break;
                }
            }
            self.work(&queue, workers);
        });
        queue.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn work(&self, queue: &Queue<'_>, workers: &Mutex<Vec<Worker>>) {
        let lock = || workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = lock().pop().unwrap_or_default();
        while !queue.stop.load(Ordering::Relaxed) {
            let job = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { break };
            if let Err(error) = self.run(job, &mut worker) {
                queue.stop.store(true, Ordering::Relaxed);
                queue.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
        lock().push(worker);
    }

    fn run(&self, job: Job<'_>, worker: &mut Worker) -> Result<(), Error> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(crate::error::ErrorKind::Cancelled));
        }
        match job {
            Job::Tile { level, column, row, part } => match self.at_hand.get(level) {
                Some(rows) => self.encode_tile(level, (column, row), part, rows, worker),
                None => Ok(()),
            },
            Job::Shrink { level, plane, rows, out } => self.shrink(level, plane, rows, out, worker),
        }
    }

    /// Encodes a tile and brings it to its place.
    pub(super) fn encode_tile(
        &self,
        level: usize,
        (column, row): (u32, u32),
        part: u32,
        rows: &AtHand<'_>,
        worker: &mut Worker,
    ) -> Result<(), Error> {
        let (Some(plan), Some(lane)) = (self.plan.levels.get(level), self.lanes.get(level)) else { return Ok(()) };
        let position = u64::from(row) * u64::from(plan.grid.across) + u64::from(column);
        let number = position * u64::from(plan.parts()) + u64::from(part);
        let encoded = self.encode(level, plan, rows, (column, row), part, worker).map_err(|error| {
            error.at(&swath_tiff::Place { tile: Some((column, row + self.above)), ..Default::default() })
        })?;
        lane.put(number, encoded, self.sink, &mut worker.spare)
    }

    fn encode(
        &self,
        level: usize,
        plan: &LevelPlan,
        at_hand: &AtHand<'_>,
        (column, row): (u32, u32),
        part: u32,
        worker: &mut Worker,
    ) -> Result<Encoded, Error> {
        let layout = &plan.layout;
        let (columns, rows) = plan.grid.visible(column, row);
        let x = column * layout.tile_width - at_hand.first_column.min(column * layout.tile_width);
        let visible = Window::new(x, row * layout.tile_height, columns, rows);
        let stored = plan.grid.stored_rows(row);
        let Worker { scratch, tile, mask, spare, .. } = worker;
        let mask_plane = plan.mask.as_ref().and_then(|_| at_hand.planes.last().copied());
        let cut_mask = |out: &mut Vec<u8>| {
            out.resize(layout.tile_width as usize * stored as usize, 0);
            let planes = [mask_plane.unwrap_or_default()];
            let arrangement = Arrangement::Planes;
            let view = Cuttable {
                planes: &planes,
                arrangement,
                bands: 1,
                size: 1,
                width: at_hand.width,
                first: at_hand.first,
                count: 0,
            };
            cut(&view, visible, 0..1, layout.tile_width, Edge::Zero, out);
        };
        let mut encoded = Encoded { bytes: spare.pop().unwrap_or_default(), moments: Vec::new() };
        encoded.bytes.clear();
        if part >= plan.grid.planes {
            let Some((_, host)) = &plan.mask else { return Ok(encoded) };
            cut_mask(tile);
            if self.plan.sparse && tile.iter().all(|byte| *byte == 0) {
                return Ok(encoded);
            }
            self.plan.framed(&mut encoded.bytes, |bytes| Ok(host.encode(stored, tile, bytes, scratch)?))?;
        } else {
            let bands = if plan.grid.planes > 1 { part as u16..part as u16 + 1 } else { 0..layout.samples };
            let spec = plan.host.spec();
            tile.resize(spec.native_row_len() * stored as usize, 0);
            let view = Cuttable {
                planes: &at_hand.planes,
                arrangement: at_hand.arrangement,
                bands: layout.samples,
                size: layout.sample.size(),
                width: at_hand.width,
                first: at_hand.first,
                count: 0,
            };
            cut(&view, visible, bands.clone(), layout.tile_width, plan.host.edge(), tile);
            if level == 0 && self.plan.statistics {
                if mask_plane.is_some() {
                    cut_mask(mask);
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

    /// Whether the first `samples` samples of the first `rows` rows are nothing but what a reader puts in place of a tile
    /// that is not there.
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
        worker: &mut Worker,
    ) -> Result<(), Error> {
        let (Some(Some(shrinks)), Some(rows_at_hand), Some(plan)) =
            (self.shrinks.get(level), self.at_hand.get(level), self.plan.levels.get(level))
        else {
            return Ok(());
        };
        let (planes, first) = (&rows_at_hand.planes, rows_at_hand.first);
        shrink_plane(plan, shrinks, planes, plane, first, rows, self.nodata.is_some(), out, worker)
            .map_err(|error| Error::usage(format!("overview {}: {error}", level + 1)))
    }
}

/// Makes rows of one plane of the next level, of planes whose first row is `first`.
#[allow(clippy::too_many_arguments)]
pub(super) fn shrink_plane(
    plan: &LevelPlan,
    shrinks: &super::Shrinks,
    planes: &[&[u8]],
    plane: usize,
    first: u32,
    rows: Range<u32>,
    has_nodata: bool,
    out: &mut [u8],
    worker: &mut Worker,
) -> Result<(), ShrinkError> {
    let Some(source) = planes.get(plane) else { return Ok(()) };
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
        shrinks.mask.shrink_mask(source, first, rows, 0..width, out, len, &mut worker.shrink)
    } else {
        let len = width as usize * plan.layout.sample.size();
        shrinks.samples.run(source, validity, first, rows, 0..width, out, len, &mut worker.shrink)
    }
}

/// The band whose samples say how opaque the others are, where they are bytes.
pub(super) fn alpha_band(layout: &swath_tiff::structure::Layout) -> Option<usize> {
    if layout.sample != SampleType::U8 {
        return None;
    }
    let position = layout.extra_samples.iter().position(|extra| *extra == 1 || *extra == 2)?;
    Some(usize::from(layout.samples) - layout.extra_samples.len() + position)
}
