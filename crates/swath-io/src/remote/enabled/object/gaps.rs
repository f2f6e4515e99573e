//! Converts positions before and after gaps are removed from an object. Sent bytes cannot move, so positions are converted instead.

use std::ops::Range;

/// The removed ranges, as positions before any removal: sorted, and not touching.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// The positions of the bytes of `range` before any removal.
    pub(super) fn before(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let (mut start, mut left) = (range.start, range.end.saturating_sub(range.start));
        for gap in &self.0 {
            if gap.start <= start {
                start += gap.end - gap.start;
                continue;
            }
            let len = left.min(gap.start - start);
            if len == 0 {
                break;
            }
            ranges.push(start..start + len);
            start = gap.end;
            left -= len;
        }
        if left > 0 {
            ranges.push(start..start.saturating_add(left));
        }
        ranges
    }

    /// Removes `gaps`, given as present positions; returns their positions before any removal.
    pub(super) fn remove(&mut self, gaps: &[Range<u64>]) -> Vec<Range<u64>> {
        let new: Vec<_> = gaps.iter().flat_map(|gap| self.before(gap.clone())).collect();
        let mut all: Vec<_> = self.0.drain(..).chain(new.iter().cloned()).collect();
        all.sort_by_key(|gap| gap.start);
        for gap in all {
            match self.0.last_mut() {
                Some(last) if last.end >= gap.start => last.end = last.end.max(gap.end),
                _ => self.0.push(gap),
            }
        }
        new
    }

    /// The ranges within `range` that are still part of the object, as positions before any removal.
    pub(super) fn remaining(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut start = range.start;
        let ends = self.0.iter().map(|gap| (gap.start, gap.end)).chain([(u64::MAX, u64::MAX)]);
        ends.filter_map(move |(gap_start, gap_end)| {
            let part = start..gap_start.min(range.end);
            start = start.max(gap_end);
            (part.start < part.end).then_some(part)
        })
    }

    /// Bytes of `range` that are still part of the object.
    pub(super) fn remaining_len(&self, range: Range<u64>) -> u64 {
        self.remaining(range).map(|part| part.end - part.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_agree_with_bytes_that_were_really_moved() {
        // Every byte holds the place it had at first.
        let mut bytes: Vec<u64> = (0..400).collect();
        let mut gaps = Gaps::default();
        let all = [vec![(10, 20), (50, 80)], vec![(0, 3), (9, 12), (100, 101)], vec![(5, 200)], vec![(0, 1)]];
        for removed in all {
            let removed: Vec<_> = removed.into_iter().map(|(start, end)| start..end).collect();
            gaps.remove(&removed);
            for gap in removed.iter().rev() {
                bytes.drain(gap.start as usize..gap.end as usize);
            }
            let kept: Vec<u64> = gaps.remaining(0..400).flatten().collect();
            assert_eq!(kept, bytes);
            assert_eq!(gaps.remaining_len(0..400), bytes.len() as u64);
            for start in 0..bytes.len() {
                let end = (start + 60).min(bytes.len());
                let before: Vec<u64> = gaps.before(start as u64..end as u64).into_iter().flatten().collect();
                assert_eq!(before, bytes[start..end]);
            }
        }
        assert!(gaps.remaining(7..7).next().is_none());
    }
}
