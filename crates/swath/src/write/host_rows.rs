//! Rows that the CPU encodes: each step encodes every complete tile row of every level, and makes every overview row whose
//! rows are there.

use std::ops::Range;

use swath_codec::pre::Arrangement;

use super::{
    input::Pushed,
    level_writer::LevelWriter,
    levels::Levels,
    memory::capacity,
    options::{Progress, changes},
    progress::LevelSize,
    row_store::RowStore,
    step::{LevelRows, StepContext, StepJob, copy_rows, shrink_jobs},
    writer::{LevelState, Writer},
};
use crate::error::Error;

/// The work of one level in one step.
#[derive(Debug, Clone)]
pub(super) struct LevelWork {
    pub tile_rows: Range<u32>,
    /// Tiles of the first tile row that are encoded already.
    column: u32,
    /// Rows of the next level.
    shrunk: Range<u32>,
}

impl Writer {
    /// Whether the rows of a whole image can be used without a copy.
    pub(super) fn can_borrow(&self, pushed: &Pushed<'_>) -> bool {
        // Samples that are changed are copied first.
        let changed = changes(&self.options, self.shape, self.nodata.as_deref());
        !changed && (pushed.arrangement == Arrangement::Planes || !self.levels.has_overviews())
    }

    /// Writes an image that was pushed whole, without copying its rows.
    pub(super) fn borrow_all(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let mut available = 0;
        while available < pushed.rows {
            available = (available + self.host.memory.rows_at_once).min(pushed.rows);
            self.levels.main.progress.rows = available;
            self.step(Some(pushed))?;
        }
        // The caller may free the rows when this function returns, so all work that reads them ends before.
        while self.main_has_work() {
            self.step(Some(pushed))?;
        }
        Ok(())
    }

    /// Copies rows to memory of our own, and writes what is complete.
    pub(super) fn copy_in(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        self.make_store(pushed)?;
        let mut done = 0;
        while done < pushed.rows {
            let level = &mut self.levels.main;
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
                )?;
                level.store.grow(rows)?;
                level.progress.rows += rows;
                done += rows;
            }
            while self.is_ready() {
                self.step(None)?;
            }
        }
        Ok(())
    }

    fn make_store(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        if self.levels.main.progress.rows > 0 || self.levels.main.store.room() > 0 {
            return Ok(());
        }
        // Pixels that stay together need not be taken apart, unless overviews are made of them band by band.
        let together = pushed.arrangement == Arrangement::Pixels && !self.plan.levels.has_overviews();
        let planes = if together {
            let pixel = self.shape.sample.size() * usize::from(self.shape.bands);
            let mut planes = vec![self.shape.width as usize * pixel];
            if self.is_masked() {
                planes.push(self.shape.width as usize);
            }
            planes
        } else {
            self.plan.levels.main.plane_row_lens()
        };
        self.levels.main.store = RowStore::new(planes, capacity(&self.plan, 0, self.host.memory.rows_at_once))?;
        Ok(())
    }

    /// Whether a step is due before more rows are taken.
    fn is_ready(&self) -> bool {
        let (size, level) = (LevelSize::of(&self.plan.levels.main), &self.levels.main);
        let rows = level.progress.rows;
        let waiting = rows - level.progress.rows_encoded(size).min(rows);
        let complete = level.progress.has_all_rows(size) && !level.progress.is_encoded(size);
        waiting >= self.host.memory.rows_at_once || complete || (level.store.room() == 0 && rows < size.height)
    }

    /// Whether the image, whose rows are all there, has tiles to encode or overview rows to make.
    fn main_has_work(&self) -> bool {
        let (size, progress) = (LevelSize::of(&self.plan.levels.main), self.levels.main.progress);
        let below = self.plan.levels.overviews.first();
        let shrinks = below.is_some_and(|below| progress.shrunk < below.layout.height);
        progress.has_all_rows(size) && (!progress.is_encoded(size) || shrinks)
    }

    /// Encodes everything that is left when every row is there.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        let is_encoded = |writer: &Self| {
            let mut levels = writer.plan.levels.iter().zip(writer.levels.iter());
            levels.all(|(plan, level)| level.progress.is_encoded(LevelSize::of(plan)))
        };
        while !is_encoded(self) {
            self.step(None)?;
        }
        Ok(())
    }

    /// What each level can do with the rows that are there.
    pub(super) fn due(&self) -> Result<Levels<LevelWork>, Error> {
        self.levels.try_map(|index, level| {
            let progress = level.progress;
            let shrunk = match (&level.shrink, self.plan.levels.get(index + 1), self.levels.get(index + 1)) {
                (Some(shrink), Some(below), Some(next)) => {
                    progress.rows_to_make(|row| shrink.needs(row), below.layout.height, next.store.room())
                }
                _ => progress.shrunk..progress.shrunk,
            };
            let tile_rows = progress.complete_tile_rows(LevelSize::of(self.plan.levels.at(index)?));
            Ok(LevelWork { tile_rows, column: progress.column, shrunk })
        })
    }

    /// Runs one step. With `image`, the image's rows are there rather than in a store.
    pub(super) fn step(&mut self, image: Option<&Pushed<'_>>) -> Result<(), Error> {
        let due = self.due()?;
        if due.iter().all(|due| due.tile_rows.is_empty() && due.shrunk.is_empty()) {
            return Err(Error::internal("the writer can make no progress"));
        }
        self.run_jobs(&due, image)?;
        for (index, due) in due.iter().enumerate() {
            let made = due.shrunk.end - due.shrunk.start;
            if let Some(next) = self.levels.get_mut(index + 1) {
                next.store.grow(made)?;
                next.progress.rows += made;
            }
            let size = LevelSize::of(self.plan.levels.at(index)?);
            let below = self.plan.levels.get(index + 1).map(|below| below.layout.height);
            let level = self.levels.at_mut(index)?;
            level.progress.encode_tile_rows(due.tile_rows.end);
            level.progress.shrunk = due.shrunk.end;
            if index > 0 || image.is_none() {
                let next =
                    level.shrink.as_ref().zip(below).map(|(shrink, height)| (move |row| shrink.needs(row), height));
                let needed = level.progress.first_needed(size, next);
                level.store.forget_before(needed);
            }
        }
        self.report_progress();
        Ok(())
    }

    /// Reports the progress of the write to the caller.
    pub(super) fn report_progress(&self) {
        if let Some(report) = &self.options.progress {
            let rows = self.levels.main.progress.rows_encoded(LevelSize::of(&self.plan.levels.main));
            let bytes = self.level_writers.iter().map(LevelWriter::len).sum();
            report(Progress { rows, of: self.shape.height, bytes });
        }
    }

    fn run_jobs(&mut self, due: &Levels<LevelWork>, image: Option<&Pushed<'_>>) -> Result<(), Error> {
        let mut at_hand: Vec<LevelRows<'_>> = Vec::new();
        let mut free: Vec<Vec<&mut [u8]>> = Vec::new();
        let mut shrinks = Vec::new();
        let bands = usize::from(self.shape.bands);
        for (index, (level, plan)) in self.levels.iter_mut().zip(self.plan.levels.iter()).enumerate() {
            let LevelState { store, shrink, .. } = level;
            let first = store.first;
            let width = plan.layout.width;
            let (planes, room) = store.split();
            shrinks.push(&*shrink);
            free.push(room);
            at_hand.push(match image {
                Some(pushed) if index == 0 => LevelRows::rows(pushed.planes.clone(), pushed.arrangement, 0, width),
                _ => {
                    let apart = planes.len() >= bands + usize::from(plan.mask.is_some());
                    let arrangement = if apart { Arrangement::Planes } else { Arrangement::Pixels };
                    LevelRows::rows(planes, arrangement, first, width)
                }
            });
        }
        let mut jobs = Vec::new();
        for (index, (due, room)) in due.iter().zip(free.into_iter().skip(1)).enumerate() {
            let no_room = || Error::internal(format!("overview {} has no room", index + 1));
            let row_lens = self.plan.levels.at(index + 1)?.plane_row_lens();
            if !due.shrunk.is_empty() && room.len() != row_lens.len() {
                return Err(no_room());
            }
            for (plane, (room, row_len)) in room.into_iter().zip(row_lens).enumerate() {
                let out = room.get_mut(..due.shrunk.len() * row_len).ok_or_else(no_room)?;
                jobs.extend(shrink_jobs(index, plane, due.shrunk.clone(), row_len, out));
            }
        }
        for (level, (due, plan)) in due.iter().zip(self.plan.levels.iter()).enumerate() {
            for row in due.tile_rows.clone() {
                let done = if row == due.tile_rows.start { due.column } else { 0 };
                for column in done..plan.grid.across {
                    jobs.extend((0..plan.tiles_per_position()).map(|plane| StepJob::Tile {
                        level,
                        column,
                        row,
                        plane,
                    }));
                }
            }
        }
        let context = StepContext {
            plan: &self.plan,
            level_writers: Some(&self.level_writers),
            sink: &*self.sink.0,
            first_tile_row: self.first_tile_row,
            at_hand: &at_hand,
            shrinks: &shrinks,
            sample: self.shape.sample,
            nodata: self.nodata.as_deref(),
            cancel: self.options.cancel.as_ref(),
        };
        context.run_all(jobs, self.host.memory.threads, &self.host.buffers)
    }
}
