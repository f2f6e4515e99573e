//! Walks the pixels under a target pixel one by one, for the methods that count or compare rather than add.

use super::axis::{Axis, Span};
use super::kind::Kind;
use super::view::{View, validity};
use super::{Plan, Step};
use std::ops::Range;

/// The columns of a target row and the source columns under each.
pub struct Footprint<'a> {
    /// Where columns come from.
    pub plan: &'a Plan,
    /// Rows.
    pub y: Axis,
    /// Target columns.
    pub columns: Range<usize>,
}

impl<'a> Footprint<'a> {
    /// That of a step.
    pub fn of<K: Kind>(step: &Step<'a, K>) -> Self {
        Self { plan: &step.shrink.plan, y: step.shrink.y, columns: step.columns.clone() }
    }

    /// Source columns under the `at`th target column.
    #[inline(always)]
    pub fn column(&self, at: usize) -> Range<usize> {
        match self.plan {
            Plan::Spans { columns, .. } => match columns.get(self.columns.start + at) {
                Some(span) => span.start as usize..span.end as usize,
                None => 0..0,
            },
            _ => (self.columns.start + at) * 2..(self.columns.start + at) * 2 + 2,
        }
    }

    /// Source columns under all of them.
    pub fn reach(&self) -> Range<usize> {
        self.column(0).start..self.column(self.columns.len().saturating_sub(1)).end
    }
}

/// Source rows with their validity, ready to be walked.
pub struct Rows<'a, K: Kind> {
    view: &'a View<'a, K::Raw>,
    /// Rows under the target row.
    pub span: Span,
    /// Validity of the columns in reach, row after row; empty if all is valid.
    valid: &'a [u8],
    reach: Range<usize>,
}

impl<'a, K: Kind> Rows<'a, K> {
    /// The rows under target row `row`. `nodata` and the mask say what is valid; `spare` holds it.
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

    /// Validity of two rows of pairs; `None` if all is valid.
    pub fn pair(&self) -> Option<[&'a [u8]; 2]> {
        let (upper, lower) = self.valid.split_at_checked(self.reach.len()).filter(|_| !self.valid.is_empty())?;
        Some([upper, lower])
    }

    /// Calls for each valid sample of the columns, in reading order.
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
