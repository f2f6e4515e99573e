//! Visits the pixels under a target pixel one by one, for methods that count or compare instead of adding.

use super::axis::{Axis, Span};
use super::kind::Kind;
use super::view::{View, validity};
use super::{ColumnMap, RowContext};
use std::ops::Range;

/// The columns of a target row and the source columns under each.
pub struct Footprint<'a> {
    /// Source columns of each target column.
    pub column_map: &'a ColumnMap,
    /// The vertical axis.
    pub y: Axis,
    /// Target columns.
    pub columns: Range<usize>,
}

impl<'a> Footprint<'a> {
    /// Returns the footprint of a target row.
    pub fn of<K: Kind>(context: &RowContext<'a, K>) -> Self {
        Self { column_map: &context.shrink.columns, y: context.shrink.y, columns: context.columns.clone() }
    }

    /// Returns the source columns under the `at`th target column.
    #[inline(always)]
    pub fn column(&self, at: usize) -> Range<usize> {
        match self.column_map {
            ColumnMap::Spans { columns, .. } => match columns.get(self.columns.start + at) {
                Some(span) => span.start as usize..span.end as usize,
                None => 0..0,
            },
            _ => (self.columns.start + at) * 2..(self.columns.start + at) * 2 + 2,
        }
    }

    /// Returns the source columns under all target columns.
    pub fn reach(&self) -> Range<usize> {
        self.column(0).start..self.column(self.columns.len().saturating_sub(1)).end
    }
}

/// Source rows together with the validity of their pixels.
pub struct SourceRows<'a, K: Kind> {
    view: &'a View<'a, K::Raw>,
    /// Source rows under the target row.
    pub span: Span,
    /// Validity of the pixels in `reach`, row by row; empty if all are valid.
    valid: &'a [u8],
    reach: Range<usize>,
}

impl<'a, K: Kind> SourceRows<'a, K> {
    /// Finds the rows under target row `row` and computes into `spare` which of their pixels are valid, by nodata or the mask.
    pub fn new(
        view: &'a View<'a, K::Raw>,
        nodata: Option<K::Raw>,
        footprint: &Footprint<'_>,
        row: u32,
        spare: &'a mut Vec<u8>,
        line: &mut Vec<u8>,
    ) -> Self {
        let span = footprint.y.span(row);
        let reach = footprint.reach();
        spare.clear();
        for at in span.start..span.end {
            match validity::<K>(view, nodata, at, reach.clone(), line) {
                Some(valid) => spare.extend_from_slice(valid),
                None => break,
            }
        }
        Self { view, span, valid: spare, reach }
    }

    /// Returns the validity of the two rows of a pair; `None` if all pixels are valid.
    pub fn pair(&self) -> Option<[&'a [u8]; 2]> {
        let (upper, lower) = self.valid.split_at_checked(self.reach.len()).filter(|_| !self.valid.is_empty())?;
        Some([upper, lower])
    }

    /// Calls `take` for each valid sample of the columns, in reading order.
    #[inline(always)]
    pub fn each(&self, columns: Range<usize>, mut take: impl FnMut(K::Raw)) {
        let width = self.reach.len();
        for (at, row) in (self.span.start..self.span.end).enumerate() {
            let samples = self.view.row(row).get(columns.clone()).unwrap_or_default();
            if self.valid.is_empty() {
                samples.iter().for_each(|&sample| take(sample));
            } else {
                let from = at * width + columns.start - self.reach.start;
                let valid = self.valid.get(from..from + samples.len()).unwrap_or_default();
                for (&sample, &ok) in samples.iter().zip(valid) {
                    if ok != 0 {
                        take(sample);
                    }
                }
            }
        }
    }
}
