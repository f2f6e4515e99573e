//! Cuts a file that is written in any order into numbered parts, none of which is too short.
//!
//! Stores assemble an object from parts in the order of their numbers, and accept them in any order. Every part except the last
//! has a minimum length, so fewer bytes than that must never remain between two sent parts. Gaps that are removed at the end
//! bring bytes together that were apart. So the first bytes of every stretch that does not follow a part are held back; at the
//! end they are joined with the bytes that then precede them.
//!
//! Positions are those before any gap is removed. The number of a part is computed from its position, so it does not depend on
//! the number of parts before it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use super::{gaps::Gaps, runs::Runs};

/// The limits of a store on parts, and the length we choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Least length of every part except the last.
    pub(super) min: u64,
    /// Greatest length of a part.
    pub(super) max: u64,
    /// Preferred length of a part.
    pub(super) part: u64,
    /// Highest part number.
    pub(super) numbers: u64,
    /// Objects up to this size are sent in one request, unless parts of them were sent before.
    pub(super) whole: u64,
}

/// Expected size of an object, unless the writer announces one.
const USUAL: u64 = 64 << 30;

/// A part that is ready to be sent.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u32,
    len: usize,
    buffers: Vec<(usize, Vec<u8>)>,
}

impl Part {
    /// Its bytes; those that were never written are zero.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if let [(0, buffer)] = self.buffers.as_mut_slice()
            && buffer.len() == self.len
        {
            return std::mem::take(buffer);
        }
        let mut bytes = Vec::with_capacity(self.len);
        for (start, buffer) in self.buffers {
            bytes.resize(start, 0);
            bytes.extend_from_slice(&buffer);
        }
        bytes.resize(self.len, 0);
        bytes
    }
}

/// The ranges of a part.
#[derive(Debug, Clone)]
pub(super) struct PartRanges {
    number: u32,
    ranges: Vec<Range<u64>>,
}

/// How an object is completed.
#[derive(Debug)]
pub(super) enum Completion {
    /// In one request.
    Whole(PartRanges),
    /// With these remaining parts.
    Parts(VecDeque<PartRanges>),
}

/// The written bytes, and which of them were sent.
#[derive(Debug)]
pub(super) struct Parts {
    limits: Limits,
    /// All writes end at or before this.
    bound: u64,
    /// Least length of every part except the last. No two parts get the same number.
    unit: u64,
    /// Usual length of a part.
    part: u64,
    runs: Runs,
    /// Start and end of the sent parts.
    sent: BTreeMap<u64, u64>,
    gaps: Gaps,
    /// Positions in stretches that may have become long enough for a part.
    grown: VecDeque<u64>,
}

impl Parts {
    pub(super) fn new(limits: Limits) -> Self {
        let mut parts = Self {
            limits,
            bound: 0,
            unit: 0,
            part: 0,
            runs: Runs::default(),
            sent: BTreeMap::new(),
            gaps: Gaps::default(),
            grown: VecDeque::new(),
        };
        parts.set_bound(USUAL);
        parts
    }

    fn set_bound(&mut self, bound: u64) {
        self.bound = bound;
        self.unit = bound.div_ceil(self.limits.numbers).max(self.limits.min);
        self.part = self.limits.part.max(self.unit);
    }

    /// Announces that all writes will end at or before `size`.
    pub(super) fn expect(&mut self, size: u64) -> Result<(), String> {
        if !self.sent.is_empty() {
            return Err("the size of an object cannot be set once a part of it was sent".to_owned());
        }
        self.set_bound(size);
        // A part that closes a hole can be as long as a usual part and a shortest part together.
        if self.unit + self.part > self.limits.max {
            return Err(format!("the object may have up to {size} bytes, more than the store accepts"));
        }
        Ok(())
    }

    /// Bytes in memory.
    pub(super) fn unsent_len(&self) -> u64 {
        self.runs.len()
    }

    /// Stores bytes that are written at `offset`.
    pub(super) fn write(&mut self, offset: u64, mut bytes: Cow<'_, [u8]>) -> Result<(), String> {
        let Some(end) = offset.checked_add(bytes.len() as u64) else {
            return Err(format!("{} bytes at offset {offset} are beyond any object", bytes.len()));
        };
        let ranges = self.gaps.before(offset..end);
        if let Some(range) = ranges.iter().find(|range| range.end > self.bound) {
            let (end, bound) = (range.end, self.bound);
            return Err(format!("bytes up to {end} were written where no more than {bound} were expected"));
        }
        if let Some(range) = ranges.iter().find(|range| self.is_sent(range)) {
            let (start, end) = (range.start, range.end);
            return Err(format!("bytes {start} to {end} were written after a part with some of them was sent"));
        }
        if let [range] = ranges.as_slice() {
            self.runs.put(range.start, bytes);
            self.grown.push_back(range.start);
            return Ok(());
        }
        for range in ranges {
            let later = bytes.to_mut().split_off((range.end - range.start) as usize);
            self.runs.put(range.start, std::mem::replace(&mut bytes, Cow::Owned(later)));
            self.grown.push_back(range.start);
        }
        Ok(())
    }

    fn is_sent(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.sent.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
    }

    /// A part that can be sent now, if any.
    pub(super) fn ready(&mut self) -> Result<Option<PartRanges>, String> {
        while let Some(position) = self.grown.front() {
            if let Some(range) = self.runs.around(*position).and_then(|stretch| self.cut(stretch)) {
                return Ok(Some(PartRanges { number: self.number(range.start)?, ranges: vec![range] }));
            }
            self.grown.pop_front();
        }
        Ok(None)
    }

    /// The range of a stretch that can be sent without leaving too few bytes before or after it.
    fn cut(&self, stretch: Range<u64>) -> Option<Range<u64>> {
        let follows = self.sent.range(..stretch.start).next_back().is_some_and(|(_, end)| *end == stretch.start);
        let start = if follows { stretch.start } else { stretch.start + self.unit };
        let len = stretch.end.checked_sub(start)?;
        // If the following part was sent, the stretch cannot grow any more.
        let closed = self.sent.contains_key(&stretch.end);
        match closed {
            true if (follows || len >= self.part) && len < self.part + self.unit => Some(start..stretch.end),
            _ => (len >= self.part).then(|| start..start + self.part),
        }
    }

    fn number(&self, start: u64) -> Result<u32, String> {
        let number = start / self.unit + 1;
        u32::try_from(number).ok().filter(|_| number <= self.limits.numbers).ok_or_else(|| {
            format!(
                "a part at offset {start} would have number {number}, but the store accepts numbers up to {}",
                self.limits.numbers
            )
        })
    }

    /// Removes and returns a part. Only the latest result of [`Parts::ready`] or [`Parts::completion`] can be taken.
    pub(super) fn take(&mut self, cut: &PartRanges) -> Part {
        let mut part = Part { number: cut.number, len: 0, buffers: Vec::new() };
        for range in &cut.ranges {
            for (start, buffer) in self.runs.take(range.clone()) {
                part.buffers.push((part.len + (start - range.start) as usize, buffer));
            }
            part.len += (range.end - range.start) as usize;
        }
        if let (Some(first), Some(last)) = (cut.ranges.first(), cut.ranges.last()) {
            self.sent.insert(first.start, last.end);
            // The bytes before and after it now end or begin at a part.
            self.grown.push_back(last.end);
            self.grown.extend(first.start.checked_sub(1));
        }
        part
    }

    /// Removes `gaps`, so that the bytes after them move down.
    pub(super) fn remove(&mut self, gaps: &[Range<u64>]) -> Result<(), String> {
        for gap in self.gaps.remove(gaps) {
            if self.is_sent(&gap) {
                let (start, end) = (gap.start, gap.end);
                return Err(format!("bytes {start} to {end} cannot be removed: some of them were sent already"));
            }
            self.runs.take(gap);
        }
        Ok(())
    }

    /// How to complete an object of `size` bytes.
    pub(super) fn completion(&mut self, size: u64) -> Result<Completion, String> {
        let end = self.gaps.before(0..size).last().map_or(0, |range| range.end);
        self.runs.take(end..u64::MAX);
        if self.sent.is_empty() && size <= self.limits.whole {
            return Ok(Completion::Whole(PartRanges { number: 1, ranges: self.gaps.remaining(0..end).collect() }));
        }
        if self.sent.values().any(|sent| *sent > end) {
            return Err(format!("the object cannot end at {size} bytes: bytes beyond that were sent already"));
        }
        let mut cuts = VecDeque::new();
        let mut start = 0;
        for (next, next_end) in &self.sent {
            self.cut_remainder(start..*next, false, &mut cuts)?;
            start = *next_end;
        }
        self.cut_remainder(start..end, true, &mut cuts)?;
        Ok(Completion::Parts(cuts))
    }

    /// Cuts the bytes within `range` that are still part of the object.
    fn cut_remainder(&self, range: Range<u64>, last: bool, cuts: &mut VecDeque<PartRanges>) -> Result<(), String> {
        let mut remaining = self.gaps.remaining_len(range.clone());
        if !last && remaining > 0 && remaining < self.unit {
            return Err(format!("only {remaining} bytes are left between two parts, fewer than the store accepts"));
        }
        let mut left = self.gaps.remaining(range);
        let mut next = left.next();
        while remaining > 0 {
            let mut len = match last {
                false if remaining < self.part + self.unit => remaining,
                _ => remaining.min(self.part),
            };
            remaining -= len;
            let mut ranges = Vec::new();
            while let Some(range) = next.clone().filter(|_| len > 0) {
                let taken = len.min(range.end - range.start);
                ranges.push(range.start..range.start + taken);
                len -= taken;
                next = if range.start + taken < range.end { Some(range.start + taken..range.end) } else { left.next() };
            }
            let start = ranges.first().map_or(0, |range| range.start);
            cuts.push_back(PartRanges { number: self.number(start)?, ranges });
        }
        Ok(())
    }
}
