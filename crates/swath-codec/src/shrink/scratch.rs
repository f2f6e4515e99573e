//! Memory that a thread keeps from call to call, so that rows cost no allocations.

/// Working memory of [`Shrink::run`](super::Shrink::run); one per thread, for steps of any kind.
#[derive(Debug, Default)]
pub struct ShrinkScratch {
    /// Sums of a row.
    pub(super) sums: Vec<f64>,
    /// Weights of a row.
    pub(super) weights: Vec<f64>,
    /// Validity of source rows.
    pub(super) valid: Vec<u8>,
    /// Validity of one of them.
    pub(super) line: Vec<u8>,
    /// Valid pixels so far.
    pub(super) counts: Vec<u32>,
    /// Horizontally filtered rows, by source row modulo the number of slots.
    pub(super) filtered: Vec<f64>,
    /// Which of them hold a value.
    pub(super) filtered_valid: Vec<u8>,
    /// Which source row a slot holds.
    pub(super) slots: Vec<Option<u32>>,
}

impl ShrinkScratch {
    /// Empty working memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what the last call left, whose rows may have had the same numbers and other pixels.
    pub(super) fn begin(&mut self) {
        self.slots.clear();
    }
}
