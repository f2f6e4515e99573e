//! A level step that is worked out for some target columns at a time, for images too wide to hold the tables of all.

use super::axis::{Axis, Span};
use super::kernel::{Tap, Taps};
use super::{Plan, Resampling, Shrink, ShrinkError, reach};
use std::ops::Range;
use swath_tiff::SampleType;

/// One level step of one band, without what each column needs: [`ColumnShrink::columns`] works that out.
#[derive(Debug, Clone)]
pub struct ColumnShrink {
    x: Axis,
    y: Axis,
    sample: SampleType,
    method: Resampling,
    nodata: Option<Vec<u8>>,
    quirks: bool,
    /// Whether every column is two neighbours. It is looked at over the whole axis, once.
    pairs: bool,
}

impl ColumnShrink {
    /// As [`Shrink::new`], but [without quirks](Shrink::without_quirks).
    ///
    /// # Errors
    /// When a side grows or has no pixel, or the method does not exist for such samples.
    pub fn new(
        source: (u32, u32),
        target: (u32, u32),
        sample: SampleType,
        resampling: Resampling,
        nodata: Option<&[u8]>,
    ) -> Result<Self, ShrinkError> {
        if target.0 == 0 || target.1 == 0 || target.0 > source.0 || target.1 > source.1 {
            return Err(ShrinkError::Size);
        }
        if !resampling.supports(sample) {
            return Err(ShrinkError::Undefined(resampling, sample));
        }
        let (x, y) = (Axis::new(source.0, target.0), Axis::new(source.1, target.1));
        let nodata = nodata.and_then(|bytes| bytes.get(..sample.word())).map(<[u8]>::to_vec);
        let pairs = x.is_pairs();
        Ok(Self { x, y, sample, method: resampling, nodata, quirks: false, pairs })
    }

    pub(super) fn with_quirks(mut self) -> Self {
        self.quirks = true;
        self
    }

    /// Width and height of the target.
    pub fn target(&self) -> (u32, u32) {
        (self.x.target, self.y.target)
    }

    /// Whether every target pixel is made of the two by two source pixels under it and of no other.
    pub fn is_halves(&self) -> bool {
        let kernel = matches!(self.method, Resampling::Bilinear | Resampling::Cubic | Resampling::Lanczos);
        !kernel && self.x.is_half() && self.y.is_half()
    }

    /// The source columns that target columns are made of.
    pub fn needed_columns(&self, columns: &Range<u32>) -> Range<u32> {
        self.needed(self.x, columns)
    }

    /// The source rows that target rows are made of.
    pub fn needed_rows(&self, rows: &Range<u32>) -> Range<u32> {
        self.needed(self.y, rows)
    }

    fn needed(&self, axis: Axis, targets: &Range<u32>) -> Range<u32> {
        let targets = targets.start..targets.end.min(axis.target);
        if targets.is_empty() {
            return 0..0;
        }
        if self.is_halves() {
            return targets.start * 2..targets.end * 2;
        }
        let of = |at| reach(axis, self.method, self.sample, at);
        of(targets.start).start..of(targets.end - 1).end
    }

    /// The step for target columns `columns`, of rows that hold the source columns `source` alone: those that are
    /// [needed](Self::needed_columns), and maybe more. It counts columns from the first of either. The pixels are those of
    /// the whole step.
    ///
    /// # Errors
    /// When there are no such columns, or others are needed.
    pub fn columns(&self, columns: Range<u32>, source: &Range<u32>) -> Result<Shrink, ShrinkError> {
        let needed = self.needed_columns(&columns);
        let halves = self.is_halves();
        let held = source.start <= needed.start && needed.end <= source.end && source.end <= self.x.source;
        if columns.is_empty() || columns.end > self.x.target || !held || (halves && source.start != needed.start) {
            return Err(ShrinkError::Size);
        }
        let (x, from) = (self.x, source.start);
        let plan = match self.method {
            _ if halves && !self.takes_whole_samples() => Plan::Halves,
            Resampling::Nearest => Plan::Picks(columns.clone().map(|at| x.nearest(at) - from).collect()),
            Resampling::Bilinear | Resampling::Cubic | Resampling::Lanczos => {
                let mut taps = Taps::across(x, self.method, columns.clone());
                taps.columns.iter_mut().for_each(|Tap { start, .. }| *start -= from);
                Plan::Taps(taps)
            }
            _ if self.takes_whole_samples() => {
                let span = |at| x.whole_span(at);
                Plan::Whole(columns.clone().map(span).map(|(start, end)| (start - from, end - from)).collect())
            }
            _ => {
                let moved = |span: Span| Span { start: span.start - from, end: span.end - from, ..span };
                Plan::Spans { columns: columns.clone().map(|at| moved(x.span(at))).collect(), pairs: self.pairs }
            }
        };
        Ok(Shrink {
            x: Axis::new(source.end - source.start, columns.end - columns.start),
            y: self.y,
            sample: self.sample,
            method: self.method,
            nodata: self.nodata.clone(),
            plan,
            quirks: self.quirks,
            first_column: columns.start,
            whole_width: self.x.target,
        })
    }

    /// Averages of complex samples weigh no part of a sample.
    fn takes_whole_samples(&self) -> bool {
        matches!(self.method, Resampling::Average | Resampling::Rms) && self.sample.is_complex()
    }
}
