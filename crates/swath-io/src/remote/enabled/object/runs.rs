//! Bytes that are written but not sent yet.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

/// Consecutive short writes are joined in buffers of up to this length.
const BUFFER_LEN: usize = 1 << 20;

/// Written bytes by position.
#[derive(Debug, Default)]
pub(super) struct Runs {
    buffers: BTreeMap<u64, Vec<u8>>,
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
        if bytes.len() >= BUFFER_LEN && !self.overlaps(offset..end) {
            self.len += bytes.len() as u64;
            self.buffers.insert(offset, bytes.into_owned());
            return;
        }
        let (mut at, mut rest) = (offset, &bytes[..]);
        while !rest.is_empty() {
            let mut len = self.overwrite(at, rest);
            if len == 0 {
                let next = self.buffers.range(at..end).next().map_or(end, |(start, _)| *start);
                len = ((next - at) as usize).min(rest.len());
                self.append(at, rest.split_at(len).0);
            }
            at += len as u64;
            rest = rest.split_at(len).1;
        }
    }

    fn overlaps(&self, range: Range<u64>) -> bool {
        let before = self.buffers.range(..range.end).next_back();
        before.is_some_and(|(start, buffer)| start + buffer.len() as u64 > range.start)
    }

    /// Overwrites the buffer that contains `at`; returns how many bytes fitted.
    fn overwrite(&mut self, at: u64, bytes: &[u8]) -> usize {
        let Some((start, buffer)) = self.buffers.range_mut(..=at).next_back() else { return 0 };
        let Some(old) = buffer.get_mut((at - start) as usize..) else { return 0 };
        let len = old.len().min(bytes.len());
        for (old, new) in old.iter_mut().zip(bytes) {
            *old = *new;
        }
        len
    }

    /// Adds bytes where there are none yet.
    fn append(&mut self, at: u64, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let before = self.buffers.range_mut(..at).next_back();
        match before {
            Some((start, buffer)) if start + buffer.len() as u64 == at && buffer.len() + bytes.len() <= BUFFER_LEN => {
                buffer.extend_from_slice(bytes);
            }
            _ => {
                self.buffers.insert(at, bytes.to_vec());
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
        while let Some(start) = self.buffers.range(range.clone()).next().map(|(start, _)| *start) {
            if let Some(buffer) = self.buffers.remove(&start) {
                self.len -= buffer.len() as u64;
                taken.push((start, buffer));
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

    /// Splits the buffer that contains `position`, so that a buffer begins there.
    fn split(&mut self, position: u64) {
        if let Some((start, buffer)) = self.buffers.range_mut(..position).next_back()
            && start + (buffer.len() as u64) > position
        {
            let later = buffer.split_off((position - start) as usize);
            buffer.shrink_to_fit();
            self.buffers.insert(position, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_any_order_are_taken_in_order() {
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
        for (start, buffer) in &taken {
            bytes[*start as usize..*start as usize + buffer.len()].copy_from_slice(buffer);
        }
        assert_eq!(bytes[..17], [9; 17]);
        assert_eq!(bytes[17..], [2; 3]);
        assert_eq!((runs.len(), runs.around(0)), (0, None));
    }

    #[test]
    fn long_writes_are_not_copied() {
        let mut runs = Runs::default();
        runs.put(0, Cow::Owned(vec![1; BUFFER_LEN]));
        runs.put(BUFFER_LEN as u64, Cow::Borrowed(&[2; 3]));
        runs.put(BUFFER_LEN as u64 + 3, Cow::Borrowed(&[3; 3]));
        assert_eq!(runs.around(0), Some(0..BUFFER_LEN as u64 + 6));
        assert_eq!(runs.take(0..u64::MAX).len(), 2);
    }
}
