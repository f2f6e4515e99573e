//! Runs a read: tiles are located, fetched and decoded by as many threads as are worth starting.
//!
//! Workers draw jobs from a [`Producer`], which cuts the output and looks tiles up as it goes, so neither the list of
//! tiles nor the list of output slices is ever complete in memory. A job is one read of neighbouring tiles: the thread
//! that reads the bytes decodes them while they are in its cache.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use swath_codec::{
    TileSpec,
    host::{Host, Take, Target},
};
use swath_io::{
    fork::Once,
    wrap::coalesce::{Merge, coalesce},
};
use swath_tiff::{Compression, Window, structure::Planar};

use crate::{
    arriving::Arriving,
    assemble::Canvas,
    cache::TileCache,
    error::{Error, ErrorKind},
    image::Image,
    job::{self, Flight, Job, Part, ScratchPool, Task, TileBytes},
    open::Fetch,
    raster::Interleave,
    read::Cancel,
    remarks::Remarks,
    strip::Positions,
};

/// Output slices that are cut ahead.
const SLICES: usize = 1 << 16;
/// Rows of uncompressed tiles are read in pieces of about this size, which stay in the second-level cache.
const PIECE: u64 = 256 << 10;
/// Below this many bytes to decode for each thread, starting the thread costs more than it brings.
const WORTH_A_THREAD: u64 = 128 << 10;
/// Rows of tiles whose tables are fetched at once, behind a network.
const ROWS_AHEAD: usize = 4096;
/// Bytes that are copied in the time that one is decoded.
const COPIED: usize = 8;

/// Everything about a read that does not change while it runs.
pub(crate) struct Order<'a> {
    pub(crate) fetch: &'a Fetch,
    pub(crate) image: &'a Image,
    pub(crate) host: &'a Host,
    pub(crate) window: Window,
    /// Samples to read, counted from 0.
    pub(crate) bands: &'a [u16],
    pub(crate) interleave: Interleave,
    /// One sample of what sparse tiles hold.
    pub(crate) fill: &'a [u8],
    /// Whether the output is known to hold zeros.
    pub(crate) zeroed: bool,
    pub(crate) threads: usize,
    /// Requests that it may have on their way, behind a network.
    pub(crate) in_flight: usize,
    pub(crate) cancel: Option<&'a Cancel>,
    pub(crate) pool: &'a ScratchPool,
    /// Where tiles that the window covers in part are looked for and kept.
    pub(crate) cache: &'a TileCache,
    /// Whether no other window is known to be read of this file, before or after this one.
    pub(crate) lone: bool,
    /// Tiles that other reads of the file are fetching.
    pub(crate) arriving: &'a Arriving,
    /// Where what is remarkable about tiles is told.
    pub(crate) remarks: &'a Remarks,
    /// How far earlier windows came in strips that are not kept.
    pub(crate) positions: &'a Positions,
}

impl Order<'_> {
    /// When neighbouring tiles are read together.
    pub(crate) fn merge(&self) -> Merge {
        let mut merge = self.fetch.access.merge;
        if !self.fetch.access.is_remote() {
            // Enough jobs for every thread to draw several, so that they end together.
            merge.max_len = (self.fetch.size() / (self.threads as u64 * 8)).clamp(32 << 10, merge.max_len);
        } else if self.image.layout.compression == Compression::None {
            // Rows of neighbouring tiles lie apart by those that nobody wants: cheaper along than each by itself.
            (merge.gap, merge.waste) = (1 << 20, 50);
        }
        merge
    }
}

impl Order<'_> {
    /// Whether decoded tiles of so many rows are kept for other windows.
    fn keeps(&self, rows: u32) -> bool {
        let len = self.host.native_len(rows);
        let image = &self.image.layout;
        let all = self.image.decoded_len(&Window::new(0, 0, image.width, image.height));
        if self.host.spec().compression == Compression::None || !self.cache.admits(len, all) {
            return false;
        }
        // The first window may be the only one: tiles are kept once a second shows that more are coming. Behind a network the
        // first is worth keeping too, and so is a strip so large that its memory would not be used again, if all of it has to be
        // decoded in any case.
        !self.lone || self.fetch.access.is_remote() || self.is_large(rows)
    }

    /// Whether a window of a strip may be decoded step by step, from where an earlier one ended: the strip is large, and its decoder
    /// one that stops anywhere.
    pub(crate) fn may_step(&self, rows: u32, inside: &Window) -> bool {
        let part = inside.height < rows && !self.image.layout.tiled && !self.fetch.access.is_remote();
        part && self.is_large(rows) && self.host.stream().is_some()
    }

    /// Whether a tile is decoded whole, however small the window, into memory of its own.
    pub(crate) fn is_large(&self, rows: u32) -> bool {
        self.host.native_len(rows) > job::KEEP && self.host.rows_to_decode(rows, 1) == rows
    }
}

/// Cores this process may use; asking the system takes longer than opening a file, so it is asked once.
pub(crate) fn cores() -> usize {
    static CORES: Once<usize> = Once::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

struct Producer<'a, 'o> {
    order: &'o Order<'o>,
    /// Bytes that the tasks cut so far decode to, or an equivalent: what tells whether threads are worth starting.
    decoding: u64,
    canvas: Canvas<'a>,
    columns: Range<u32>,
    rows: Range<u32>,
    takes: Vec<Arc<Take>>,
    queue: VecDeque<Job<'a>>,
    merge: Merge,
}

/// Reads the window into `out`, which has exactly its size.
pub(crate) fn run(order: &Order<'_>, out: &mut [u8]) -> Result<(), Error> {
    let mut producer = Producer::new(order, out);
    let jobs = producer.look_ahead()?;
    let helpers = if producer.rows.is_empty() {
        let worth = (producer.decoding / WORTH_A_THREAD).max(1) as usize;
        order.threads.min(worth).min(jobs).saturating_sub(1)
    } else {
        // There is more than could be cut ahead, whatever the first rows were like.
        order.threads.saturating_sub(1)
    };
    // Where reads wait for a network, threads are there to wait.
    let helpers = match order.fetch.access.is_remote() {
        true if producer.rows.is_empty() => order.in_flight.min(jobs).saturating_sub(1),
        true => order.in_flight.saturating_sub(1),
        false => helpers,
    };
    let producer = Mutex::new(producer);
    let flight = Flight::default();
    let stop = AtomicBool::new(false);
    let first_error: Mutex<Option<(u64, Error)>> = Mutex::new(None);
    let work = || {
        let mut worker = order.pool.take();
        loop {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let outcome = match cancelled(order.cancel) {
                Some(error) => Err((0, error)),
                None => {
                    let next = producer.lock().unwrap_or_else(PoisonError::into_inner).next();
                    match next {
                        Ok(Some(job)) => job::run(order, job, &mut worker, &flight, &stop),
                        Ok(None) => break,
                        Err(error) => Err((0, error)),
                    }
                }
            };
            if let Err((index, error)) = outcome {
                stop.store(true, Ordering::Relaxed);
                let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(known, _)| index < *known) {
                    *first = Some((index, error));
                }
            }
        }
        order.pool.give_back(worker, order.fetch.access.is_remote());
    };
    if helpers == 0 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                // A system that gives no more threads gives a slower read, not a failed one.
                if swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
    }
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

pub(crate) fn cancelled(cancel: Option<&Cancel>) -> Option<Error> {
    cancel.is_some_and(Cancel::is_cancelled).then(|| Error::new(ErrorKind::Cancelled))
}

impl<'a, 'o> Producer<'a, 'o> {
    fn new(order: &'o Order<'o>, out: &'a mut [u8]) -> Self {
        let size = order.image.layout.sample.size();
        let samples = order.bands.len() as u16;
        let (strands, row_samples) = match order.interleave {
            Interleave::Band => (usize::from(samples), 1),
            Interleave::Pixel => (1, usize::from(samples)),
        };
        let separate = order.image.layout.planar == Planar::Separate;
        let takes = match (separate, order.interleave) {
            (false, Interleave::Band) => vec![Take::Bands(order.bands.to_vec())],
            (false, Interleave::Pixel) => {
                vec![Take::Pixels { samples: order.bands.to_vec(), slot: 0, step: samples }]
            }
            (true, Interleave::Band) => vec![Take::Bands(vec![0]); usize::from(samples)],
            (true, Interleave::Pixel) => {
                (0..samples).map(|slot| Take::Pixels { samples: vec![0], slot, step: samples }).collect()
            }
        };
        let (columns, rows) = order.image.grid.span(&order.window);
        let row_len = order.window.width as usize * row_samples * size;
        Self {
            order,
            decoding: 0,
            canvas: Canvas::new(out, strands, row_len),
            columns,
            rows,
            takes: takes.into_iter().map(Arc::new).collect(),
            queue: VecDeque::new(),
            merge: order.merge(),
        }
    }

    /// Prepares the first jobs and tells how many there are: a lower bound for the whole read.
    fn look_ahead(&mut self) -> Result<usize, Error> {
        if self.queue.is_empty() && !self.rows.is_empty() {
            self.prepare()?;
        }
        Ok(self.queue.len())
    }

    fn next(&mut self) -> Result<Option<Job<'a>>, Error> {
        while self.queue.is_empty() && !self.rows.is_empty() {
            self.prepare()?;
        }
        Ok(self.queue.pop_front())
    }

    /// Cuts the next rows of tiles.
    fn prepare(&mut self) -> Result<(), Error> {
        let mut tasks = Vec::new();
        let mut slices = 0;
        self.fetch_tables()?;
        while slices < SLICES
            && let Some(row) = self.rows.next()
        {
            slices += self.prepare_row(row, &mut tasks)?;
        }
        self.enqueue(tasks);
        Ok(())
    }

    /// Has the tables of the next rows of tiles at hand.
    fn fetch_tables(&self) -> Result<(), Error> {
        if !self.order.fetch.access.is_remote() {
            return Ok(());
        }
        let (order, grid) = (self.order, &self.order.image.grid);
        let planes: Vec<u32> = match order.image.layout.planar {
            Planar::Contig => vec![0],
            Planar::Separate => order.bands.iter().map(|band| u32::from(*band)).collect(),
        };
        let width = self.columns.len() as u64;
        let slice = |row: u32, plane: u32| {
            let start = grid.index(self.columns.start, row, plane);
            start..start + width
        };
        let slices: Vec<Range<u64>> = self
            .rows
            .clone()
            .take(ROWS_AHEAD)
            .flat_map(|row| planes.iter().map(move |plane| slice(row, *plane)))
            .collect();
        order.image.fetch_tables(&slices, order.fetch, order.cancel)
    }

    fn prepare_row(&mut self, row: u32, tasks: &mut Vec<Task<'a>>) -> Result<usize, Error> {
        let (order, image) = (self.order, self.order.image);
        let grid = &image.grid;
        let cells: Vec<_> = self.columns.clone().filter_map(|column| grid.cell(&order.window, column, row)).collect();
        let Some(first) = cells.first().copied() else { return Ok(0) };
        let height = first.inside.height as usize;
        let bands = self.canvas.take_rows(height);
        // The tiles of this row, by plane.
        let planes: Vec<u32> = match image.layout.planar {
            Planar::Contig => vec![0],
            Planar::Separate => order.bands.iter().map(|band| u32::from(*band)).collect(),
        };
        let mut located = Vec::with_capacity(planes.len());
        for plane in &planes {
            let start = grid.index(self.columns.start, row, *plane);
            located.push((start, image.locate(start..start + cells.len() as u64, order.fetch)?));
        }
        let spec = order.host.spec();
        let tile_len = order.host.native_len(first.rows);
        let work = match spec.compression {
            // Only rows of the window are read, and there is little to do with them.
            Compression::None => order.host.native_len(first.inside.height) / COPIED,
            _ => tile_len,
        } as u64;
        let cache = Some(order.cache).filter(|_| order.keeps(first.rows));
        // What came over a network is worth keeping, wholly covered or not, unless it is more than can be kept.
        let keep_all = order.fetch.access.is_remote()
            && cache.is_some_and(|cache| cache.admits_window(order.image.decoded_len(&order.window)));
        let may_step = order.may_step(first.rows, &first.inside);
        let part = |slot: usize, position: usize| -> Part {
            let (start, ranges) = &located[slot];
            let index = start + position as u64;
            let cell = &cells[position];
            let partial = (cell.inside.width, cell.inside.height) != grid.visible(cell.column, cell.row);
            let cache = cache.filter(|_| partial || keep_all);
            let key = (image.index, index);
            let leads = || order.positions.lead_to(key, cell.inside.y, cell.rows);
            let in_steps = || may_step && (cache.is_none() || (!order.cache.takes_easily(tile_len) && leads()));
            let bytes = match (&ranges[position], cache.and_then(|cache| cache.get(key))) {
                (None, _) => TileBytes::Sparse,
                (Some(_), Some(tile)) => TileBytes::Cached(tile),
                (Some(range), None) if in_steps() => TileBytes::InSteps(range.clone()),
                (Some(range), None) => TileBytes::At { range: range.clone(), keep: cache.is_some() },
            };
            Part { index, bytes, take: self.takes[slot].clone() }
        };
        let mut decoding = 0;
        let full_width = cells.len() == 1 && first.inside.width == grid.tile_width && first.inside.y == 0;
        let one_strand = self.takes.len() == 1 && self.canvas.strands() == 1;
        let in_order = order.bands.iter().copied().eq(0..order.host.spec().samples);
        if full_width && one_strand && in_order && order.host.decodes_in_place() && first.inside.height == first.rows {
            if let Some(whole) = bands.into_iter().next() {
                let task = Task {
                    parts: vec![part(0, 0)],
                    rows: first.rows,
                    inside: first.inside,
                    target: Target::Whole(whole),
                };
                push_pieces(spec, task, tasks);
            }
            self.decoding += work;
            return Ok(1);
        }
        let sample = image.layout.sample.size();
        let pixel = match order.interleave {
            Interleave::Band => sample,
            Interleave::Pixel => sample * order.bands.len(),
        };
        let widths: Vec<usize> = cells.iter().map(|cell| cell.inside.width as usize * pixel).collect();
        let slices = cells.len() * height * self.canvas.strands();
        for (position, (cell, mut rows)) in cells.iter().zip(self.canvas.cut(bands, &widths)).enumerate() {
            if self.takes.len() > 1 && order.interleave == Interleave::Band {
                // Planes apart in the file and in the output: every one is a task of its own.
                for slot in 0..self.takes.len() {
                    let rest = rows.split_off(height.min(rows.len()));
                    let target = Target::Rows(std::mem::replace(&mut rows, rest));
                    let task = Task { parts: vec![part(slot, position)], rows: cell.rows, inside: cell.inside, target };
                    decoding += task.tiles_to_decode();
                    push_pieces(spec, task, tasks);
                }
            } else {
                let parts = (0..self.takes.len()).map(|slot| part(slot, position)).collect();
                let task = Task { parts, rows: cell.rows, inside: cell.inside, target: Target::Rows(rows) };
                decoding += task.tiles_to_decode();
                push_pieces(spec, task, tasks);
            }
        }
        self.decoding += decoding * work;
        Ok(slices)
    }

    /// What needs no read goes into one job; the rest in file order, neighbours together.
    fn enqueue(&mut self, tasks: Vec<Task<'a>>) {
        let mut at_hand = Vec::new();
        let mut single: Vec<Option<Task<'a>>> = Vec::new();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let remote = self.order.fetch.access.is_remote();
        // Bytes of the last job of tasks of several parts; none can be added to yet.
        let mut together = u64::MAX / 2;
        for task in tasks {
            match &*task.parts {
                [Part { bytes: TileBytes::At { range, .. }, .. }] => {
                    ranges.push(range.clone());
                    single.push(Some(task));
                }
                [Part { bytes: TileBytes::InSteps(_), .. }] => {
                    self.queue.push_back(Job { reads: Vec::new(), tasks: vec![task] });
                }
                [_] => at_hand.push(task),
                parts => {
                    let reads: Vec<Range<u64>> = parts.iter().filter_map(|part| part.range().cloned()).collect();
                    let len: u64 = reads.iter().map(|range| range.end - range.start).sum();
                    // Behind a network the planes of neighbouring tiles come together: each plane's are one request then.
                    match self.queue.back_mut().filter(|_| remote && together + len <= self.merge.max_len) {
                        Some(job) => {
                            together += len;
                            job.reads.extend(reads);
                            job.tasks.push(task);
                        }
                        None => {
                            together = len;
                            self.queue.push_back(Job { reads, tasks: vec![task] });
                        }
                    }
                }
            }
        }
        if !at_hand.is_empty() {
            self.queue.push_back(Job { reads: Vec::new(), tasks: at_hand });
        }
        let mut jobs: Vec<Option<Job<'a>>> = Vec::new();
        // Few tiles that compress well would make one short read, and one thread would decode them all.
        let fair = ranges.len().div_ceil(self.order.threads.max(1) * 8);
        let tile_len = self.order.image.tile_len().max(1);
        let most = match self.order.fetch.access.is_remote() {
            true => usize::MAX,
            false => fair.max((WORTH_A_THREAD / tile_len) as usize).max(1),
        };
        for merged in coalesce(&ranges, self.merge) {
            for members in merged.members.chunks(most) {
                let ends = members.iter().filter_map(|member| ranges.get(*member));
                let start = ends.clone().map(|range| range.start).min().unwrap_or_default();
                let read = start..ends.map(|range| range.end).max().unwrap_or_default();
                let tasks = members.iter().filter_map(|member| single.get_mut(*member)?.take()).collect();
                jobs.push(Some(Job { reads: vec![read], tasks }));
            }
        }
        // Threads that draw in turn get parts of the file, and so of the output, that lie apart: on neighbouring tiles they
        // would wait for each other while the system clears the huge page that both write to first.
        let part = jobs.len().div_ceil(self.order.threads.max(1)).max(1);
        for offset in 0..part {
            for index in (offset..jobs.len()).step_by(part) {
                self.queue.extend(jobs.get_mut(index).and_then(Option::take));
            }
        }
        // An empty range (a tile of no bytes) belongs to no merged read, yet its task has to be told.
        for task in single.into_iter().flatten() {
            self.queue.push_back(Job { reads: Vec::new(), tasks: vec![task] });
        }
    }
}

/// Uncompressed rows can be read one by one: a strip as large as the image becomes many small tasks, and only the
/// rows of the window are read.
fn push_pieces<'a>(spec: &TileSpec, task: Task<'a>, tasks: &mut Vec<Task<'a>>) {
    let Task { parts, rows, inside, target } = task;
    let divisible = spec.compression == Compression::None && spec.packed_subsampling.is_none();
    let stored = parts.iter().any(|part| part.range().is_some());
    if !divisible || !stored {
        tasks.push(Task { parts, rows, inside, target });
        return;
    }
    let row_len = spec.stored_row_len() as u64;
    let step = (PIECE / row_len.max(1)).max(1) as u32;
    let mut piece = |y: u32, height: u32, target: Target<'a>| {
        let cut = |part: &Part| {
            let bytes = match &part.bytes {
                TileBytes::At { range, .. } => {
                    let start = range.start + u64::from(inside.y + y) * row_len;
                    TileBytes::At { range: start..start + u64::from(height) * row_len, keep: false }
                }
                other => other.clone(),
            };
            Part { index: part.index, bytes, take: part.take.clone() }
        };
        tasks.push(Task {
            parts: parts.iter().map(cut).collect(),
            rows: height,
            inside: Window::new(inside.x, 0, inside.width, height),
            target,
        });
    };
    match target {
        Target::Whole(whole) => {
            for (number, chunk) in whole.chunks_mut(step as usize * row_len as usize).enumerate() {
                let height = (chunk.len() as u64 / row_len.max(1)) as u32;
                piece(number as u32 * step, height, Target::Whole(chunk));
            }
        }
        Target::Rows(rows) => {
            // All rows of the first band, then of the next: a piece takes its rows from each.
            let mut rows = rows.into_iter();
            let mut bands = Vec::new();
            while rows.len() > 0 {
                bands.push(rows.by_ref().take(inside.height as usize).collect::<Vec<_>>().into_iter());
            }
            for y in (0..inside.height).step_by(step as usize) {
                let height = step.min(inside.height - y);
                let taken = bands.iter_mut().flat_map(|band| band.by_ref().take(height as usize)).collect();
                piece(y, height, Target::Rows(taken));
            }
        }
    }
}
