//! Cuts the output of a read into jobs, and looks up their tiles, as threads draw them.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use swath_codec::{
    TileSpec,
    host::{Take, Target},
};
use swath_io::coalesce::{Merge, coalesce};
use swath_tiff::{Compression, Window, structure::Planar};

use super::{
    assemble::OutputRows,
    context::ReadContext,
    decode_time,
    task::{ReadJob, Task, TileBytes, TilePart},
};
use crate::{error::Error, raster::Interleave};

/// Output slices that are planned ahead.
const SLICES: usize = 1 << 16;
/// A task reads about this many bytes of an uncompressed tile, which stay in the second-level cache.
const RAW_TASK_LEN: u64 = 256 << 10;
/// Tile rows of a remote file whose tables are fetched at once.
const ROWS_AHEAD: usize = 4096;
/// Tiles of a local file are read and decoded together until they have this many bytes.
const JOB_LEN: u64 = 128 << 10;

pub(super) struct Planner<'a, 'o> {
    context: &'o ReadContext<'o>,
    /// Nanoseconds that one thread would take for the tasks so far.
    pub(super) nanoseconds: u64,
    output: OutputRows<'a>,
    columns: Range<u32>,
    pub(super) rows: Range<u32>,
    takes: Vec<Arc<Take>>,
    queue: VecDeque<ReadJob<'a>>,
    merge: Merge,
}

impl<'a, 'o> Planner<'a, 'o> {
    pub(super) fn new(context: &'o ReadContext<'o>, out: &'a mut [u8]) -> Self {
        let size = context.image.layout.sample.size();
        let samples = context.bands.len() as u16;
        let (output_planes, row_samples) = match context.interleave {
            Interleave::Band => (usize::from(samples), 1),
            Interleave::Pixel => (1, usize::from(samples)),
        };
        let separate = context.image.layout.planar == Planar::Separate;
        let takes = match (separate, context.interleave) {
            (false, Interleave::Band) => vec![Take::Bands(context.bands.to_vec())],
            (false, Interleave::Pixel) => {
                vec![Take::Pixels { samples: context.bands.to_vec(), first: 0, stride: samples }]
            }
            (true, Interleave::Band) => vec![Take::Bands(vec![0]); usize::from(samples)],
            (true, Interleave::Pixel) => {
                (0..samples).map(|first| Take::Pixels { samples: vec![0], first, stride: samples }).collect()
            }
        };
        let (columns, rows) = context.image.grid.span(&context.window);
        let row_len = context.window.width as usize * row_samples * size;
        Self {
            context,
            nanoseconds: 0,
            output: OutputRows::new(out, output_planes, row_len),
            columns,
            rows,
            takes: takes.into_iter().map(Arc::new).collect(),
            queue: VecDeque::new(),
            merge: context.merge(),
        }
    }

    /// Prepares the first jobs. Returns their number, a lower bound for the whole read.
    pub(super) fn look_ahead(&mut self) -> Result<usize, Error> {
        if self.queue.is_empty() && !self.rows.is_empty() {
            self.prepare()?;
        }
        Ok(self.queue.len())
    }

    pub(super) fn next(&mut self) -> Result<Option<ReadJob<'a>>, Error> {
        while self.queue.is_empty() && !self.rows.is_empty() {
            self.prepare()?;
        }
        Ok(self.queue.pop_front())
    }

    /// Plans the next tile rows.
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

    /// Fetches the tables of the next tile rows of a remote file.
    fn fetch_tables(&self) -> Result<(), Error> {
        if !self.context.fetch.access.is_remote() {
            return Ok(());
        }
        let (context, grid) = (self.context, &self.context.image.grid);
        let planes: Vec<u32> = match context.image.layout.planar {
            Planar::Contig => vec![0],
            Planar::Separate => context.bands.iter().map(|band| u32::from(*band)).collect(),
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
        context.image.fetch_tables(&slices, context.fetch, context.cancel)
    }

    /// Adds the tasks of a tile row. Returns the number of output slices that they take.
    fn prepare_row(&mut self, row: u32, tasks: &mut Vec<Task<'a>>) -> Result<usize, Error> {
        let (context, image) = (self.context, self.context.image);
        let grid = &image.grid;
        let cells: Vec<_> = self.columns.clone().filter_map(|column| grid.cell(&context.window, column, row)).collect();
        let Some(first) = cells.first().copied() else { return Ok(0) };
        let height = first.inside.height as usize;
        let bands = self.output.take_rows(height);
        // The tiles of this row, by plane.
        let planes: Vec<u32> = match image.layout.planar {
            Planar::Contig => vec![0],
            Planar::Separate => context.bands.iter().map(|band| u32::from(*band)).collect(),
        };
        let mut located = Vec::with_capacity(planes.len());
        for plane in &planes {
            let start = grid.index(self.columns.start, row, *plane);
            located.push((start, image.locate(start..start + cells.len() as u64, context.fetch)?));
        }
        let spec = context.host.spec();
        let tile_len = context.host.native_len(first.rows);
        let add_time = |sum: u64, task: &Task<'_>| {
            // Of an uncompressed tile, only the rows of the window are read.
            let rows = if spec.compression == Compression::None { task.inside.height } else { task.rows };
            let decoded = context.host.native_len(rows) as u64;
            task.ranges_to_decode().fold(sum, |sum, range| {
                sum.saturating_add(decode_time::nanoseconds(spec.compression, range.end - range.start, decoded))
            })
        };
        let cache = Some(context.cache).filter(|_| context.keeps(first.rows));
        // Tiles of a remote file are worth keeping even if the window covers them wholly, unless they are too many.
        let keep_all = context.fetch.access.is_remote()
            && cache.is_some_and(|cache| cache.admits_window(context.image.decoded_len(&context.window)));
        let may_continue = context.may_continue(first.rows, &first.inside);
        let part = |plane: usize, position: usize| -> TilePart {
            let (start, ranges) = &located[plane];
            let index = start + position as u64;
            let cell = &cells[position];
            let partial = (cell.inside.width, cell.inside.height) != grid.visible(cell.column, cell.row);
            let cache = cache.filter(|_| partial || keep_all);
            let key = (image.index, index);
            let worthwhile = || context.positions.are_worth_continuing(key, cell.inside.y, cell.rows);
            let is_continued =
                || may_continue && (cache.is_none() || (!context.cache.takes_easily(tile_len) && worthwhile()));
            let bytes = match (&ranges[position], cache.and_then(|cache| cache.get(key))) {
                (None, _) => TileBytes::Sparse,
                (Some(_), Some(tile)) => TileBytes::Cached(tile),
                (Some(range), None) if is_continued() => TileBytes::Continued(range.clone()),
                (Some(range), None) => TileBytes::At { range: range.clone(), keep: cache.is_some() },
            };
            TilePart { index, bytes, take: self.takes[plane].clone() }
        };
        let full_width = cells.len() == 1 && first.inside.width == grid.tile_width && first.inside.y == 0;
        let one_plane = self.takes.len() == 1 && self.output.planes() == 1;
        let in_order = context.bands.iter().copied().eq(0..context.host.spec().samples);
        if full_width && one_plane && in_order && context.host.decodes_in_place() && first.inside.height == first.rows {
            if let Some(whole) = bands.into_iter().next() {
                let task = Task {
                    parts: vec![part(0, 0)],
                    rows: first.rows,
                    inside: first.inside,
                    target: Target::Whole(whole),
                };
                self.nanoseconds = add_time(self.nanoseconds, &task);
                push_split(spec, task, tasks);
            }
            return Ok(1);
        }
        let sample = image.layout.sample.size();
        let pixel = match context.interleave {
            Interleave::Band => sample,
            Interleave::Pixel => sample * context.bands.len(),
        };
        let widths: Vec<usize> = cells.iter().map(|cell| cell.inside.width as usize * pixel).collect();
        let slices = cells.len() * height * self.output.planes();
        for (position, (cell, mut rows)) in cells.iter().zip(self.output.cut(bands, &widths)).enumerate() {
            if self.takes.len() > 1 && context.interleave == Interleave::Band {
                // The planes are apart in the file and in the output: each is a task of its own.
                for plane in 0..self.takes.len() {
                    let rest = rows.split_off(height.min(rows.len()));
                    let target = Target::Rows(std::mem::replace(&mut rows, rest));
                    let task =
                        Task { parts: vec![part(plane, position)], rows: cell.rows, inside: cell.inside, target };
                    self.nanoseconds = add_time(self.nanoseconds, &task);
                    push_split(spec, task, tasks);
                }
            } else {
                let parts = (0..self.takes.len()).map(|plane| part(plane, position)).collect();
                let task = Task { parts, rows: cell.rows, inside: cell.inside, target: Target::Rows(rows) };
                self.nanoseconds = add_time(self.nanoseconds, &task);
                push_split(spec, task, tasks);
            }
        }
        Ok(slices)
    }

    /// Groups tasks into jobs: tasks without a read into one, the others in file order, neighbours together.
    fn enqueue(&mut self, tasks: Vec<Task<'a>>) {
        let mut at_hand = Vec::new();
        let mut single: Vec<Option<Task<'a>>> = Vec::new();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let remote = self.context.fetch.access.is_remote();
        // Bytes of the last job whose tasks have several parts; so large at first that no task joins a job before it.
        let mut together = u64::MAX / 2;
        for task in tasks {
            match &*task.parts {
                [TilePart { bytes: TileBytes::At { range, .. }, .. }] => {
                    ranges.push(range.clone());
                    single.push(Some(task));
                }
                [TilePart { bytes: TileBytes::Continued(_), .. }] => {
                    self.queue.push_back(ReadJob { reads: Vec::new(), tasks: vec![task] });
                }
                [_] => at_hand.push(task),
                parts => {
                    let reads: Vec<Range<u64>> = parts.iter().filter_map(|part| part.range().cloned()).collect();
                    let len: u64 = reads.iter().map(|range| range.end - range.start).sum();
                    // In a remote file the planes of neighbouring tiles are read together: one request for each plane.
                    match self.queue.back_mut().filter(|_| remote && together + len <= self.merge.max_len) {
                        Some(job) => {
                            together += len;
                            job.reads.extend(reads);
                            job.tasks.push(task);
                        }
                        None => {
                            together = len;
                            self.queue.push_back(ReadJob { reads, tasks: vec![task] });
                        }
                    }
                }
            }
        }
        if !at_hand.is_empty() {
            self.queue.push_back(ReadJob { reads: Vec::new(), tasks: at_hand });
        }
        let mut jobs: Vec<Option<ReadJob<'a>>> = Vec::new();
        // Few tiles that compress well would make one short read, and one thread would decode all of them.
        let fair = ranges.len().div_ceil(self.context.threads.max(1) * 8);
        let tile_len = self.context.image.tile_len().max(1);
        let most = match self.context.fetch.access.is_remote() {
            true => usize::MAX,
            false => fair.max((JOB_LEN / tile_len) as usize).max(1),
        };
        for merged in coalesce(&ranges, self.merge) {
            for members in merged.members.chunks(most) {
                let ends = members.iter().filter_map(|member| ranges.get(*member));
                let start = ends.clone().map(|range| range.start).min().unwrap_or_default();
                let read = start..ends.map(|range| range.end).max().unwrap_or_default();
                let tasks = members.iter().filter_map(|member| single.get_mut(*member)?.take()).collect();
                jobs.push(Some(ReadJob { reads: vec![read], tasks }));
            }
        }
        // Threads that take jobs in turn get parts of the output that lie apart. On neighbouring tiles they would wait for each
        // other while the system clears the huge page that both write to first.
        let part = jobs.len().div_ceil(self.context.threads.max(1)).max(1);
        for offset in 0..part {
            for index in (offset..jobs.len()).step_by(part) {
                self.queue.extend(jobs.get_mut(index).and_then(Option::take));
            }
        }
        // An empty range (a tile of no bytes) is in no merged read, but its task has to run.
        for task in single.into_iter().flatten() {
            self.queue.push_back(ReadJob { reads: Vec::new(), tasks: vec![task] });
        }
    }
}

/// Splits a task of uncompressed rows: a strip as large as the image becomes many small tasks, and only the rows of the window are
/// read.
fn push_split<'a>(spec: &TileSpec, task: Task<'a>, tasks: &mut Vec<Task<'a>>) {
    let Task { parts, rows, inside, target } = task;
    let divisible = spec.compression == Compression::None && spec.packed_subsampling.is_none();
    let stored = parts.iter().any(|part| part.range().is_some());
    if !divisible || !stored {
        tasks.push(Task { parts, rows, inside, target });
        return;
    }
    let row_len = spec.stored_row_len() as u64;
    let step = (RAW_TASK_LEN / row_len.max(1)).max(1) as u32;
    let mut push_rows = |y: u32, height: u32, target: Target<'a>| {
        let cut = |part: &TilePart| {
            let bytes = match &part.bytes {
                TileBytes::At { range, .. } => {
                    let start = range.start + u64::from(inside.y + y) * row_len;
                    TileBytes::At { range: start..start + u64::from(height) * row_len, keep: false }
                }
                other => other.clone(),
            };
            TilePart { index: part.index, bytes, take: part.take.clone() }
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
                push_rows(number as u32 * step, height, Target::Whole(chunk));
            }
        }
        Target::Rows(rows) => {
            // All rows of the first band, then of the next: a task takes its rows from each.
            let mut rows = rows.into_iter();
            let mut bands = Vec::new();
            while rows.len() > 0 {
                bands.push(rows.by_ref().take(inside.height as usize).collect::<Vec<_>>().into_iter());
            }
            for y in (0..inside.height).step_by(step as usize) {
                let height = step.min(inside.height - y);
                let taken = bands.iter_mut().flat_map(|band| band.by_ref().take(height as usize)).collect();
                push_rows(y, height, Target::Rows(taken));
            }
        }
    }
}
