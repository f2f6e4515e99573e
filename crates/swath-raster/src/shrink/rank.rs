//! Minimum, maximum and median of the pixels that an average would cover. GDAL has no such overviews, so the rules are our
//! own: pixels count whole, and invalid pixels and NaN do not count.

use super::average::{EachQuad, Quads};
use super::footprint::{Footprint, SourceRows};
use super::kind::{Avoid, Kind};
use super::scratch::ShrinkScratch;
use super::view::View;
use super::{ColumnMap, Resampling, RowContext};
use crate::simd::widest;
use std::ops::Range;

/// Computes a target row.
pub fn row<K: Kind>(
    context: &RowContext<'_, K>,
    method: Resampling,
    view: &View<'_, K::Raw>,
    row: u32,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let footprint = Footprint::of(context);
    let ShrinkScratch { valid, line, .. } = scratch;
    let rows = SourceRows::<K>::new(view, context.nodata, &footprint, row, valid, line);
    if matches!(context.shrink.columns, ColumnMap::Halves) {
        let (quads, valid, fill) = (Quads::<K>::new(context, view, rows.span, out), rows.pair(), context.fill);
        match method {
            Resampling::Min => widest(EachQuad { quads, valid, make: |s, ok| extreme::<K>(s, ok, fill, less::<K>) }),
            Resampling::Max => widest(EachQuad { quads, valid, make: |s, ok| extreme::<K>(s, ok, fill, more::<K>) }),
            _ => widest(EachQuad { quads, valid, make: |s, ok| middle_of_four::<K>(s, ok, fill, context.avoid) }),
        }
        return;
    }
    let most = (0..out.len()).map(|at| footprint.column(at).len()).max().unwrap_or(0) * rows.span.len();
    let mut found = vec![context.fill; most];
    for (at, out) in out.iter_mut().enumerate() {
        let columns = footprint.column(at);
        *out = match method {
            Resampling::Min => best::<K>(&rows, columns, context.fill, less::<K>),
            Resampling::Max => best::<K>(&rows, columns, context.fill, more::<K>),
            _ if K::WHOLE && rows.span.len() == 3 && columns.len() == 3 && rows.pair().is_none() => {
                let (mut nine, mut filled) = ([context.fill; 9], 0..9);
                rows.each(columns, |sample| nine[filled.next().unwrap_or(0)] = sample);
                middle_of_nine::<K>(nine)
            }
            _ => {
                let mut sorted = Sorted::new(&mut found);
                rows.each(columns, |sample| sorted.add::<K>(sample));
                sorted.middle::<K>(context.fill, context.avoid)
            }
        };
    }
}

#[inline(always)]
fn is_nan<K: Kind>(sample: K::Raw) -> bool {
    !K::WHOLE && K::wide(sample).is_nan()
}

#[inline(always)]
fn less<K: Kind>(a: K::Raw, b: K::Raw) -> bool {
    if K::WHOLE { a < b } else { K::wide(a) < K::wide(b) }
}

#[inline(always)]
fn more<K: Kind>(a: K::Raw, b: K::Raw) -> bool {
    less::<K>(b, a)
}

/// Returns the extreme of the valid samples among four, or NaN where all of them are NaN.
#[inline(always)]
fn extreme<K: Kind>(
    samples: [K::Raw; 4],
    ok: [bool; 4],
    fill: K::Raw,
    better: impl Fn(K::Raw, K::Raw) -> bool,
) -> K::Raw {
    let (mut best, mut otherwise, mut some) = (samples[0], fill, false);
    for at in 0..4 {
        let (sample, nan) = (samples[at], is_nan::<K>(samples[at]));
        otherwise = if ok[at] & nan { sample } else { otherwise };
        let take = ok[at] & !nan & (!some | better(sample, best));
        best = if take { sample } else { best };
        some |= take;
    }
    if some { best } else { otherwise }
}

/// Returns the extreme of the valid samples of the columns, or NaN where all of them are NaN.
#[inline(always)]
fn best<K: Kind>(
    rows: &SourceRows<'_, K>,
    columns: Range<usize>,
    fill: K::Raw,
    better: impl Fn(K::Raw, K::Raw) -> bool,
) -> K::Raw {
    let (mut best, mut otherwise) = (None, fill);
    rows.each(columns, |sample| {
        if is_nan::<K>(sample) {
            otherwise = sample;
        } else if best.is_none_or(|best| better(sample, best)) {
            best = Some(sample);
        }
    });
    best.unwrap_or(otherwise)
}

/// Returns the median of two: for integers the lower one, so that it is a value of the data; for floats the mean, which avoids
/// nodata.
#[inline(always)]
fn between<K: Kind>(low: K::Raw, high: K::Raw, avoid: Avoid) -> K::Raw {
    if K::WHOLE {
        return low;
    }
    // Halves first, because the sum could overflow.
    K::store_avoiding(K::wide(low) * 0.5 + K::wide(high) * 0.5, avoid)
}

#[inline(always)]
fn middle_of_four<K: Kind>(samples: [K::Raw; 4], ok: [bool; 4], fill: K::Raw, avoid: Avoid) -> K::Raw {
    let nan = samples.iter().any(|&sample| is_nan::<K>(sample));
    if !ok.iter().all(|&ok| ok) || nan {
        let mut found = [fill; 4];
        let mut sorted = Sorted { found: &mut found, count: 0, nan: None };
        for (&sample, _) in samples.iter().zip(ok).filter(|(_, ok)| *ok) {
            sorted.add::<K>(sample);
        }
        return sorted.middle::<K>(fill, avoid);
    }
    let min = |a, b| if less::<K>(b, a) { b } else { a };
    let max = |a, b| if less::<K>(b, a) { a } else { b };
    let [a, b, c, d] = samples;
    let (low, high) = (max(min(a, b), min(c, d)), min(max(a, b), max(c, d)));
    between::<K>(min(low, high), max(low, high), avoid)
}

/// Returns the median of nine, the common case for ratios slightly above two, by the known network of nineteen exchanges.
#[inline(always)]
fn middle_of_nine<K: Kind>(mut nine: [K::Raw; 9]) -> K::Raw {
    const STEPS: [(usize, usize); 19] = [
        (1, 2),
        (4, 5),
        (7, 8),
        (0, 1),
        (3, 4),
        (6, 7),
        (1, 2),
        (4, 5),
        (7, 8),
        (0, 3),
        (5, 8),
        (4, 7),
        (3, 6),
        (1, 4),
        (2, 5),
        (4, 7),
        (4, 2),
        (6, 4),
        (4, 2),
    ];
    for (low, high) in STEPS {
        let (a, b) = (nine[low], nine[high]);
        let swap = less::<K>(b, a);
        nine[low] = if swap { b } else { a };
        nine[high] = if swap { a } else { b };
    }
    nine[4]
}

/// A few values, kept sorted by insertion.
struct Sorted<'a, T> {
    found: &'a mut [T],
    count: usize,
    /// A NaN among the values; the result where there is no other value.
    nan: Option<T>,
}

impl<'a, T: Copy> Sorted<'a, T> {
    fn new(found: &'a mut [T]) -> Self {
        Self { found, count: 0, nan: None }
    }

    #[inline(always)]
    fn add<K: Kind<Raw = T>>(&mut self, sample: T) {
        if is_nan::<K>(sample) {
            self.nan = Some(sample);
            return;
        }
        let Some(filled) = self.found.get_mut(..=self.count) else { return };
        let mut at = self.count;
        while at > 0 && less::<K>(sample, filled[at - 1]) {
            filled[at] = filled[at - 1];
            at -= 1;
        }
        filled[at] = sample;
        self.count += 1;
    }

    #[inline(always)]
    fn middle<K: Kind<Raw = T>>(&self, fill: T, avoid: Avoid) -> T {
        let low = self.found.get(self.count.saturating_sub(1) / 2).filter(|_| self.count > 0);
        match (low, self.found.get(self.count / 2)) {
            (Some(&low), Some(&high)) if self.count.is_multiple_of(2) => between::<K>(low, high, avoid),
            (Some(&low), _) => low,
            _ => self.nan.unwrap_or(fill),
        }
    }
}
