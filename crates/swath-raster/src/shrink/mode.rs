//! The most frequent value, for classes and palettes. Of equally frequent values, the one that first reached the count in
//! reading order wins.

use super::average::{EachQuad, Quads};
use super::footprint::{Footprint, SourceRows};
use super::kind::Kind;
use super::scratch::ShrinkScratch;
use super::view::View;
use super::{ColumnMap, RowContext, Shrink};
use crate::simd::widest;

/// Computes a target row.
pub fn row<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    row: u32,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    // GDAL counts bytes in a histogram that ignores the mask; it skips nodata only.
    let bytes = size_of::<K::Raw>() == 1 && K::RANGE.0 == 0.0;
    let (mask, nodata) = if bytes { (None, context.declared) } else { (view.mask, context.nodata) };
    let view = View { mask, ..*view };
    let footprint = Footprint::of(context);
    let ShrinkScratch { valid, line, .. } = scratch;
    let rows = SourceRows::<K>::new(&view, nodata, &footprint, row, valid, line);
    let fill = fill::<K>(context.shrink, context.declared, context.fill);
    if matches!(context.shrink.columns, ColumnMap::Halves) {
        let quads = Quads::<K>::new(context, &view, rows.span, out);
        return widest(EachQuad { quads, valid: rows.pair(), make: |samples, ok| four::<K>(samples, ok, fill) });
    }
    let mut tally = Tally::new();
    for (at, out) in out.iter_mut().enumerate() {
        tally.clear();
        rows.each(footprint.column(at), |sample| tally.add(sample, alike::<K>));
        *out = tally.most().unwrap_or(fill);
    }
}

/// Returns the fill where no pixel is valid: `fill`, unless GDAL's quirk turns it into zero.
pub fn fill<K: Kind>(shrink: &Shrink, declared: Option<K::Raw>, fill: K::Raw) -> K::Raw {
    // GDAL checks nodata against the range of the unsigned type that it counts in; NaN is outside every range.
    let out_of_range = declared.is_some_and(|nodata| {
        let value = K::wide(nodata);
        value.is_nan() || K::WHOLE && size_of::<K::Raw>() > 1 && value < 0.0
    });
    if out_of_range && shrink.quirks { bytemuck::Zeroable::zeroed() } else { fill }
}

/// Whether two samples are the same value. All NaNs are the same value, and so are both zeros.
#[inline(always)]
pub fn alike<K: Kind>(a: K::Raw, b: K::Raw) -> bool {
    if K::WHOLE {
        return a == b;
    }
    let (a, b) = (K::wide(a), K::wide(b));
    (a == b) | (a.is_nan() & b.is_nan())
}

/// Counts values. Footprints are small, so a list is faster than a hash table.
pub struct Tally<T> {
    seen: Vec<(T, u32)>,
    best: usize,
}

impl<T: Copy> Tally<T> {
    /// Creates an empty tally.
    pub fn new() -> Self {
        Self { seen: Vec::with_capacity(16), best: 0 }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.seen.clear();
        self.best = 0;
    }

    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, value: T, same: impl Fn(T, T) -> bool) {
        let most = self.seen.get(self.best).map_or(0, |entry| entry.1);
        match self.seen.iter_mut().enumerate().find(|(_, entry)| same(entry.0, value)) {
            Some((at, entry)) => {
                entry.1 += 1;
                if entry.1 > most {
                    self.best = at;
                }
            }
            None => self.seen.push((value, 1)),
        }
    }

    /// Returns the most frequent value.
    pub fn most(&self) -> Option<T> {
        self.seen.get(self.best).map(|entry| entry.0)
    }
}

/// Returns the mode of four: the value of the pair that reading order completes first, else the first valid pixel.
#[inline(always)]
fn four<K: Kind>([a, b, c, d]: [K::Raw; 4], [p, q, r, s]: [bool; 4], fill: K::Raw) -> K::Raw {
    let none = if s { d } else { fill };
    let none = if r { c } else { none };
    let none = if q { b } else { none };
    let none = if p { a } else { none };
    let late = if r & s & alike::<K>(c, d) { c } else { none };
    let late = if q & s & alike::<K>(b, d) { b } else { late };
    let late = if p & s & alike::<K>(a, d) { a } else { late };
    let late = if q & r & alike::<K>(b, c) { b } else { late };
    if p & ((q & alike::<K>(a, b)) | (r & alike::<K>(a, c))) { a } else { late }
}
