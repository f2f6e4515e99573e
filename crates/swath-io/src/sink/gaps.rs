//! Arithmetic on the gaps that a writer removes from a file.

use std::ops::Range;

/// File systems with blocks of this size can remove ranges that begin and end at its multiples without copying.
pub const BLOCK: u64 = 4096;

/// Total length of the gaps.
pub(crate) fn gap_len(gaps: &[Range<u64>]) -> u64 {
    gaps.iter().map(|gap| gap.end - gap.start).sum()
}

/// The ranges of a file of `size` bytes between and after the gaps, each with its offset once the gaps are removed.
pub(crate) fn ranges_between(gaps: &[Range<u64>], size: u64) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
    let mut removed = 0;
    gaps.iter().enumerate().map(move |(index, gap)| {
        removed += gap.end - gap.start;
        let end = gaps.get(index + 1).map_or(size, |next| next.start);
        (gap.end..end, gap.end - removed)
    })
}
