//! Working memory that a thread keeps between calls, so that rows cost no allocations.

/// Working memory of [`Shrink::run`](super::Shrink::run); one per thread, for shrinks of any kind.
#[derive(Debug, Default)]
pub struct ShrinkScratch {
    /// Sums of a row.
    pub(super) sums: Vec<f64>,
    /// Weights of a row.
    pub(super) weights: Vec<f64>,
    /// Validity of source rows.
    pub(super) valid: Vec<u8>,
    /// Validity of one source row.
    pub(super) line: Vec<u8>,
    /// Valid pixels of each target column, or invalid pixels up to each source column.
    pub(super) counts: Vec<u32>,
    /// Horizontally filtered rows, by source row modulo the number of slots.
    pub(super) filtered: Vec<f64>,
    /// Which filtered samples are valid.
    pub(super) filtered_valid: Vec<u8>,
    /// The source row that each slot holds.
    pub(super) slots: Vec<Option<u32>>,
}

impl ShrinkScratch {
    /// Creates empty working memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops the cached rows of the last call, which may have had the same numbers but other pixels.
    pub(super) fn begin(&mut self) {
        self.slots.clear();
    }
}
