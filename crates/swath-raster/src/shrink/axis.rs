//! Computes which source samples a target sample covers along one axis.
//!
//! Boundaries are doubles with the rounding guard that GDAL uses, because a difference in the last bit of a boundary changes
//! pixels. All callers share this arithmetic, so results do not depend on how an image is divided into calls.

/// Absorbs the rounding error of `k * ratio` next to a whole number.
const GUARD: f64 = 1e-8;

/// One axis of a shrink.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Samples of the source.
    pub source: u32,
    /// Samples of the target.
    pub target: u32,
    ratio: f64,
}

/// The source samples `start..end` under a target sample, and how much of the first and the last one it covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// First source sample.
    pub start: u32,
    /// One past the last.
    pub end: u32,
    /// Weight of the first.
    pub left: f64,
    /// Weight of the last, unless it is also the first.
    pub right: f64,
    /// Sum of all weights.
    pub total: f64,
}

impl Span {
    /// Returns the number of source samples.
    #[inline(always)]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

impl Axis {
    /// Creates an axis of `source` samples shrunk to `target`; both at least one.
    pub fn new(source: u32, target: u32) -> Self {
        Self { source, target, ratio: f64::from(source) / f64::from(target) }
    }

    /// Returns the source samples per target sample.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Whether every target sample covers exactly two whole source samples.
    pub fn is_half(&self) -> bool {
        u64::from(self.target) * 2 == u64::from(self.source)
    }

    /// Returns the source sample that nearest neighbour picks.
    pub fn nearest(&self, at: u32) -> u32 {
        ((0.5 + f64::from(at) * self.ratio) as u32).min(self.source - 1)
    }

    /// Returns the span that an average covers, with fractions at both ends.
    pub fn span(&self, at: u32) -> Span {
        let from = f64::from(at) * self.ratio;
        let to = (f64::from(at) + 1.0) * self.ratio;
        let start = ((from + GUARD) as u32).min(self.source - 1);
        let mut end = (to - GUARD).ceil() as u32;
        if end == start {
            end += 1;
        }
        let end = end.clamp(start + 1, self.source);
        let left = if end == start + 1 { 1.0 } else { 1.0 - (from - f64::from(start)) };
        let right = 1.0 - (f64::from(end) - to);
        let mut total = left;
        if start + 1 < end {
            total += f64::from(end - start - 2);
            total += right;
        }
        Span { start, end, left, right, total }
    }

    /// Returns the samples that an average of complex samples covers: whole samples, with rounded boundaries.
    pub fn whole_span(&self, at: u32) -> (u32, u32) {
        let mut start = (0.5 + f64::from(at) * self.ratio) as u32;
        let mut end = (0.5 + (f64::from(at) + 1.0) * self.ratio) as u32;
        if end == start {
            end += 1;
        }
        if end > self.source || at + 1 == self.target {
            start = start.min(self.source - 1);
            end = self.source;
        }
        (start, end.max(start + 1))
    }

    /// Whether all spans are pairs of neighbours. Plain averages then give all four pixels the same weight, as GDAL does.
    pub fn is_pairs(&self) -> bool {
        if self.is_half() {
            return true;
        }
        let mut last = None;
        (0..self.target).all(|at| {
            let span = self.span(at);
            let fits = span.len() == 2 && last.is_none_or(|end| end == span.start);
            last = Some(span.end);
            fits
        })
    }
}
