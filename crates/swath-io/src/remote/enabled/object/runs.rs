//! Bytes that are written but not sent yet.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

/// Consecutive short writes are joined to pieces of up to this length.
const PIECE: usize = 1 << 20;

/// Written bytes by position.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Start and end of every stretch without a hole.
    stretches: BTreeMap<u64, u64>,
    len: u64,
}

impl Runs {
    /// Number of bytes in memory.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The stretch without holes that contains a position.
    pub(super) fn around(&self, position: u64) -> Option<Range<u64>> {
        let (start, end) = self.stretches.range(..=position).next_back()?;
        (position < *end).then_some(*start..*end)
    }

    /// Stores bytes at a position, replacing earlier ones.
    pub(super) fn put(&mut self, offset: u64, bytes: Cow<'_, [u8]>) {
        let end = offset + bytes.len() as u64;
        if bytes.is_empty() {
            return;
        }
        self.join(offset..end);
        if bytes.len() >= PIECE && !self.touches(offset..end) {
            self.len += bytes.len() as u64;
            self.pieces.insert(offset, bytes.into_owned());
            return;
        }
        let mut at = offset;
        while at < end {
            let rest = bytes.get((at - offset) as usize..).unwrap_or_default();
            let len = self.overwrite(at, rest);
            if len > 0 {
                at += len as u64;
                continue;
            }
            let next = self.pieces.range(at..end).next().map_or(end, |(start, _)| *start);
            self.append(at, rest.get(..(next - at) as usize).unwrap_or_default());
            at = next;
        }
    }

    fn touches(&self, range: Range<u64>) -> bool {
        let before = self.pieces.range(..range.end).next_back();
        before.is_some_and(|(start, piece)| start + piece.len() as u64 > range.start)
    }

    /// Overwrites the piece that contains `at`; returns how many bytes fitted.
    fn overwrite(&mut self, at: u64, bytes: &[u8]) -> usize {
        let Some((start, piece)) = self.pieces.range_mut(..=at).next_back() else { return 0 };
        let Some(old) = piece.get_mut((at - start) as usize..) else { return 0 };
        let len = old.len().min(bytes.len());
        for (old, new) in old.iter_mut().zip(bytes) {
            *old = *new;
        }
        len
    }

    /// Adds bytes where there are none yet.
    fn append(&mut self, at: u64, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let before = self.pieces.range_mut(..at).next_back();
        match before {
            Some((start, piece)) if start + piece.len() as u64 == at && piece.len() + bytes.len() <= PIECE => {
                piece.extend_from_slice(bytes);
            }
            _ => {
                self.pieces.insert(at, bytes.to_vec());
            }
        }
    }

    /// Records that `range` is filled.
    fn join(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some((before, before_end)) = self.stretches.range(..=start).next_back()
            && *before_end >= start
        {
            (start, end) = (*before, end.max(*before_end));
        }
        while let Some((next, next_end)) = self.stretches.range(start..=end).next() {
            let next = *next;
            end = end.max(*next_end);
            self.stretches.remove(&next);
        }
        self.stretches.insert(start, end);
    }

    /// Removes and returns the bytes in `range`.
    pub(super) fn take(&mut self, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        if range.is_empty() {
            return Vec::new();
        }
        self.split(range.start);
        self.split(range.end);
        let mut taken = Vec::new();
        while let Some(start) = self.pieces.range(range.clone()).next().map(|(start, _)| *start) {
            if let Some(piece) = self.pieces.remove(&start) {
                self.len -= piece.len() as u64;
                taken.push((start, piece));
            }
        }
        while let Some((start, end)) = self.stretches.range(..range.end).next_back()
            && *end > range.start
        {
            let (start, end) = (*start, *end);
            self.stretches.remove(&start);
            if start < range.start {
                self.stretches.insert(start, range.start);
            }
            if end > range.end {
                self.stretches.insert(range.end, end);
            }
        }
        taken
    }

    /// Splits the piece that contains `position`, so that a piece begins there.
    fn split(&mut self, position: u64) {
        if let Some((start, piece)) = self.pieces.range_mut(..position).next_back()
            && start + (piece.len() as u64) > position
        {
            let later = piece.split_off((position - start) as usize);
            piece.shrink_to_fit();
            self.pieces.insert(position, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_put_in_any_order_are_taken_in_order() {
        let mut runs = Runs::default();
        runs.put(30, Cow::Borrowed(&[3; 10]));
        runs.put(10, Cow::Borrowed(&[1; 10]));
        assert_eq!((runs.around(10), runs.around(20), runs.len()), (Some(10..20), None, 20));
        runs.put(20, Cow::Borrowed(&[2; 10]));
        assert_eq!(runs.around(25), Some(10..40));
        let taken: Vec<u8> = runs.take(15..35).into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(taken, [[1; 5].as_slice(), &[2; 10], &[3; 5]].concat());
        assert_eq!((runs.around(14), runs.around(15), runs.around(35)), (Some(10..15), None, Some(35..40)));
        assert_eq!(runs.len(), 10);
    }

    #[test]
    fn later_bytes_win() {
        let mut runs = Runs::default();
        runs.put(5, Cow::Borrowed(&[1; 5]));
        runs.put(15, Cow::Borrowed(&[2; 5]));
        runs.put(0, Cow::Owned(vec![9; 17]));
        let taken = runs.take(0..100);
        let mut bytes = [0; 20];
        for (start, piece) in &taken {
            bytes[*start as usize..*start as usize + piece.len()].copy_from_slice(piece);
        }
        assert_eq!(bytes[..17], [9; 17]);
        assert_eq!(bytes[17..], [2; 3]);
        assert_eq!((runs.len(), runs.around(0)), (0, None));
    }

    #[test]
    fn long_pieces_are_kept_apart() {
        let mut runs = Runs::default();
        runs.put(0, Cow::Owned(vec![1; PIECE]));
        runs.put(PIECE as u64, Cow::Borrowed(&[2; 3]));
        runs.put(PIECE as u64 + 3, Cow::Borrowed(&[3; 3]));
        assert_eq!(runs.around(0), Some(0..PIECE as u64 + 6));
        assert_eq!(runs.take(0..u64::MAX).len(), 2);
    }
}
