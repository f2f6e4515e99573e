//! A shrink whose tables are built for a few target columns at a time, for images too wide to hold the tables of all.

use super::axis::{Axis, Span};
use super::kernel::{Tap, Taps};
use super::{ColumnMap, Resampling, Shrink, ShrinkError, reach};
use std::ops::Range;
use swath_tiff::SampleType;

/// A [`Shrink`] without its per-column tables, which [`ColumnShrink::columns`] builds.
#[derive(Debug, Clone)]
pub struct ColumnShrink {
    x: Axis,
    y: Axis,
    sample: SampleType,
    method: Resampling,
    nodata: Option<Vec<u8>>,
    quirks: bool,
    /// Whether every target column covers two neighbouring columns, checked once over the whole axis.
    pairs: bool,
}

impl ColumnShrink {
    /// Creates it as [`Shrink::new`] does, but [without quirks](Shrink::without_quirks).
    ///
    /// # Errors
    /// When a side grows or is empty, or the method is not defined for the sample type.
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

    /// Returns width and height of the target.
    pub fn target(&self) -> (u32, u32) {
        (self.x.target, self.y.target)
    }

    /// Whether every target pixel is computed from exactly the two by two source pixels under it.
    pub fn is_halves(&self) -> bool {
        let kernel = matches!(self.method, Resampling::Bilinear | Resampling::Cubic | Resampling::Lanczos);
        !kernel && self.x.is_half() && self.y.is_half()
    }

    /// Returns the source columns that target columns are computed from.
    pub fn needed_columns(&self, columns: &Range<u32>) -> Range<u32> {
        self.needed(self.x, columns)
    }

    /// Returns the source rows that target rows are computed from.
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

    /// Returns the shrink for target columns `columns`. Its source rows hold only the source columns `source`, which must include
    /// the [needed](Self::needed_columns) ones. It numbers its source and target columns from zero. Its pixels equal those
    /// of the shrink for all columns.
    ///
    /// # Errors
    /// When the target has no such columns, or `source` lacks needed ones.
    pub fn columns(&self, columns: Range<u32>, source: &Range<u32>) -> Result<Shrink, ShrinkError> {
        let needed = self.needed_columns(&columns);
        let halves = self.is_halves();
        let covers = source.start <= needed.start && needed.end <= source.end && source.end <= self.x.source;
        if columns.is_empty() || columns.end > self.x.target || !covers || (halves && source.start != needed.start) {
            return Err(ShrinkError::Size);
        }
        let (x, from) = (self.x, source.start);
        let column_map = match self.method {
            _ if halves && !self.takes_whole_samples() => ColumnMap::Halves,
            Resampling::Nearest => ColumnMap::Picks(columns.clone().map(|at| x.nearest(at) - from).collect()),
            Resampling::Bilinear | Resampling::Cubic | Resampling::Lanczos => {
                let mut taps = Taps::across(x, self.method, columns.clone());
                taps.columns.iter_mut().for_each(|Tap { start, .. }| *start -= from);
                ColumnMap::Taps(taps)
            }
            _ if self.takes_whole_samples() => {
                let span = |at| x.whole_span(at);
                ColumnMap::Whole(columns.clone().map(span).map(|(start, end)| (start - from, end - from)).collect())
            }
            _ => {
                let moved = |span: Span| Span { start: span.start - from, end: span.end - from, ..span };
                ColumnMap::Spans { columns: columns.clone().map(|at| moved(x.span(at))).collect(), pairs: self.pairs }
            }
        };
        Ok(Shrink {
            x: Axis::new(source.end - source.start, columns.end - columns.start),
            y: self.y,
            sample: self.sample,
            method: self.method,
            nodata: self.nodata.clone(),
            columns: column_map,
            quirks: self.quirks,
            first_column: columns.start,
            whole_width: self.x.target,
        })
    }

    /// Whether the method averages complex samples, which count whole.
    fn takes_whole_samples(&self) -> bool {
        matches!(self.method, Resampling::Average | Resampling::Rms) && self.sample.is_complex()
    }
}
