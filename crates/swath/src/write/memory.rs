//! How much memory a write takes, and how many threads and rows at a time fit into its limit.

use super::{
    options::{Shape, WriteOptions},
    plan::Plan,
    predictor::{choice_len, portion_len},
};
use crate::{error::Error, metadata::Metadata, threads::cores};

/// The threads and rows that fit into the memory limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub threads: usize,
    /// Rows of the image that are worked on at a time.
    pub rows_at_once: u32,
}

/// Bytes of rows that are worked on at a time, where the memory allows: enough for all threads to be busy, and small enough
/// to stay near the caches.
pub(super) const ROWS_LEN: usize = 32 << 20;

/// Bytes of memory that a write takes at the very least: one thread, one row of tiles at a time.
pub(crate) fn least_memory(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<u64, Error> {
    let plan = Plan::new(shape, metadata, options, false)?;
    let (with_rows, thread) = Memory::costs(&plan, options);
    Ok(with_rows(1).saturating_add(thread))
}

impl Memory {
    /// All threads and one tile row at a time, without measuring: for a CPU that only works if the GPU fails.
    pub(super) fn unmeasured(plan: &Plan, options: &WriteOptions) -> Self {
        Self { threads: options.threads.unwrap_or_else(cores).max(1), rows_at_once: rows_of(plan, 1) }
    }

    /// Bytes that every write needs: the tables of tiles and the head of the file.
    pub(super) fn always(plan: &Plan) -> u64 {
        let tables: u64 = plan.levels.iter().map(|level| level.grid.count() * 48).sum();
        tables + plan.head_len() * 2 + (8 << 20)
    }

    /// Returns the bytes for a number of tile rows at a time, and the bytes for each thread. The former include fixed memory. The rows that
    /// wait for the choice of the predictor are in memory before the tile rows; what does not fit beside those goes to disk.
    pub(super) fn costs(plan: &Plan, options: &WriteOptions) -> (impl Fn(u32) -> u64, u64) {
        let always = Self::always(plan);
        let layout = &plan.levels.main.layout;
        let (waiting, portion) = (choice_len(layout, options), portion_len(layout, options));
        // A thread holds a tile, what it becomes, and one that waits for its turn.
        let main = &plan.levels.main;
        let codec = if options.counts_codecs { main.host.working_len(main.layout.tile_height) as u64 } else { 0 };
        let thread = main.thread_len() as u64 * 2 + codec;
        let with_rows = move |tile_rows: u32| {
            let of = |index| u64::from(capacity(plan, index, rows_of(plan, tile_rows))) * row_len(plan, index);
            let rows = (0..plan.levels.len()).map(of).fold(0, u64::saturating_add);
            always.saturating_add(portion).saturating_add(rows.max(waiting))
        };
        (with_rows, thread)
    }

    /// Whether so many further bytes fit beside these threads and rows.
    pub(super) fn has_room_for(self, more: u64, plan: &Plan, options: &WriteOptions) -> bool {
        let (with_rows, thread) = Self::costs(plan, options);
        let tile_rows = self.rows_at_once.div_ceil(plan.levels.main.layout.tile_height.max(1));
        let all = with_rows(tile_rows).saturating_add(thread * self.threads as u64).saturating_add(more);
        all <= options.max_memory as u64
    }

    /// Finds the most threads and rows at a time that fit.
    pub(super) fn fit(plan: &Plan, options: &WriteOptions) -> Result<Self, Error> {
        let main = &plan.levels.main;
        let budget = options.max_memory as u64;
        let wish = options.threads.unwrap_or_else(cores).max(1);
        let tile_row = (main.row_len() as u64 * u64::from(main.layout.tile_height)).max(1);
        let asked =
            options.batch.unwrap_or_else(|| (ROWS_LEN as u64 / tile_row).clamp(1, u32::MAX.into()) as u32).max(1);
        let (with_rows, thread) = Self::costs(plan, options);
        let smallest = with_rows(1).saturating_add(thread);
        if smallest > budget {
            return Err(Error::over(
                "max_memory",
                format!(
                    "writing {} x {} pixels in tiles of {} x {} takes {smallest} bytes of memory, {budget} are allowed; \
                 use smaller tiles",
                    main.layout.width, main.layout.height, main.layout.tile_width, main.layout.tile_height
                ),
            ));
        }
        // Rows that wait for the choice of the predictor stay in memory beside at least one tile row where that fits, because writing them
        // to disk takes longer than working on fewer rows at a time, and there may be no folder for temporary files.
        let waiting = choice_len(&main.layout, options);
        let budget = if smallest.saturating_add(waiting) <= budget { budget - waiting } else { budget };
        // One tile row fits. Bisection finds the most, because callers may ask for any number.
        let (mut tile_rows, mut too_many) = (1, asked.saturating_add(1));
        while too_many - tile_rows > 1 {
            let middle = tile_rows + (too_many - tile_rows) / 2;
            if with_rows(middle).saturating_add(thread) <= budget { tile_rows = middle } else { too_many = middle }
        }
        let fitting = (budget - with_rows(tile_rows).min(budget)) / thread.max(1);
        let threads = usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, wish);
        Ok(Self { threads, rows_at_once: rows_of(plan, tile_rows) })
    }
}

pub(super) fn row_len(plan: &Plan, index: usize) -> u64 {
    plan.levels.get(index).map_or(0, |level| level.row_len() as u64)
}

/// Rows of the image that so many tile rows hold.
fn rows_of(plan: &Plan, tile_rows: u32) -> u32 {
    let main = &plan.levels.main;
    let height = main.layout.height;
    main.layout.tile_height.saturating_mul(tile_rows).min(height.max(1))
}

/// Rows of a level that can be in memory at once: an incomplete tile row, the rows being worked on, the rows that arrive meanwhile, and
/// those that overviews still need.
pub(super) fn capacity(plan: &Plan, index: usize, rows_at_once: u32) -> u32 {
    let Some(level) = plan.levels.get(index) else { return 0 };
    let height = level.layout.height;
    if index == 0 {
        return rows_at_once.saturating_add(look_back(plan, index)).min(height);
    }
    let full = plan.levels.main.layout.height.max(1);
    let incoming = (u64::from(rows_at_once) * u64::from(height)).div_ceil(full.into()) + 1;
    let rows = u64::from(level.layout.tile_height) + 2 * incoming + u64::from(look_back(plan, index));
    rows.min(height.into()) as u32
}

/// Rows that the next level may need, around the ones it is made of: three times the step each way for the widest
/// kernel, and a little more for sides that do not divide.
pub(super) fn look_back(plan: &Plan, index: usize) -> u32 {
    let height = |index: usize| plan.levels.get(index).map(|level| level.layout.height.max(1));
    match (height(index), height(index + 1)) {
        (Some(this), Some(next)) => this.div_ceil(next).saturating_mul(6).saturating_add(8),
        _ => 0,
    }
}
