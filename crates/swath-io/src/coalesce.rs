//! Merges neighbouring ranges into one read.

use std::ops::Range;

/// How far apart ranges may be, and how long a merged read may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    /// Most bytes between two ranges that are read along with them.
    pub gap: u64,
    /// Longest merged read. A single longer range is still read as a whole.
    pub max_len: u64,
    /// Most unneeded bytes in a merged read, in percent.
    pub waste: u64,
}

/// A merged read and the ranges it serves, by their position in the caller's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The range to read.
    pub range: Range<u64>,
    /// The ranges inside it, by index, in order of their offset.
    pub members: Vec<usize>,
}

/// Merges ranges that overlap or nearly touch. Empty ranges are left out.
pub fn coalesce(ranges: &[Range<u64>], merge: Merge) -> Vec<Merged> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|index| !ranges[*index].is_empty()).collect();
    order.sort_by_key(|index| (ranges[*index].start, ranges[*index].end));
    let mut merged: Vec<Merged> = Vec::new();
    // Unneeded bytes of the last merged read.
    let mut unneeded = 0;
    for index in order {
        let range = &ranges[index];
        if let Some(last) = merged.last_mut() {
            let end = last.range.end.max(range.end);
            let between = range.start.saturating_sub(last.range.end);
            let len = end - last.range.start;
            // A few unneeded bytes cost nothing, whatever their share.
            let little_waste = u128::from(unneeded + between) * 100 <= u128::from(len) * u128::from(merge.waste);
            let near = between <= merge.gap && (little_waste || between <= 256);
            if near && (len <= merge.max_len || range.end <= last.range.end) {
                unneeded += between;
                last.range.end = end;
                last.members.push(index);
                continue;
            }
        }
        unneeded = 0;
        merged.push(Merged { range: range.clone(), members: vec![index] });
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_become_one_and_far_ones_do_not() {
        let merge = Merge { gap: 4, max_len: 100, waste: 100 };
        let merged = coalesce(&[20..30, 0..10, 12..18, 60..60, 70..80], merge);
        assert_eq!(
            merged,
            [Merged { range: 0..30, members: vec![1, 2, 0] }, Merged { range: 70..80, members: vec![4] }]
        );
    }

    #[test]
    fn length_is_bounded_unless_a_single_range_is_longer() {
        let merged = coalesce(&[0..60, 60..120, 120..400], Merge { gap: 0, max_len: 100, waste: 100 });
        assert_eq!(merged.len(), 3);
    }

    #[test]
    fn few_unneeded_bytes_are_read() {
        let merge = Merge { gap: 1 << 20, max_len: 1 << 20, waste: 10 };
        assert_eq!(coalesce(&[0..10_000, 11_000..20_000], merge).len(), 1);
        assert_eq!(coalesce(&[0..10_000, 13_000..20_000], merge).len(), 2);
        // Each gap is small, all together are not.
        let tiles: Vec<_> = (0..100).map(|tile| tile * 1500..tile * 1500 + 1000).collect();
        assert_eq!(coalesce(&tiles, merge).len(), 100);
    }

    #[test]
    fn ranges_inside_each_other_are_read_once() {
        let merged = coalesce(&[0..200, 10..20], Merge { gap: 0, max_len: 100, waste: 100 });
        assert_eq!(merged, [Merged { range: 0..200, members: vec![0, 1] }]);
    }
}
