//! The area-weighted mean. Footprints of two by two whole pixels have loops of their own.

use super::axis::Span;
use super::kind::{Avoid, Class, Kind};
use super::scratch::ShrinkScratch;
use super::view::{View, validity};
use super::{ColumnMap, RowContext};
use crate::simd::{HotLoop, widest};
use std::ops::Range;

/// Computes a target row.
pub fn row<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    row: u32,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let span = context.span(row);
    let masked = context.nodata.is_some() || view.mask.is_some();
    let halves = matches!(context.shrink.columns, ColumnMap::Halves);
    let pairs = halves || matches!(context.shrink.columns, ColumnMap::Spans { pairs: true, .. });
    if span.len() == 2 && (halves || pairs && !masked) {
        let quads = Quads::<K>::new(context, view, span, out);
        match (context.nodata, view.mask) {
            (Some(nodata), _) => widest(ByNodata { quads, nodata }),
            (None, Some(_)) => widest(ByMask { quads, mask: mask_rows(view, span, &context.columns) }),
            (None, None) => widest(Plain { quads }),
        }
        return;
    }
    let ColumnMap::Spans { columns, .. } = &context.shrink.columns else { return };
    let columns = columns.get(context.columns.clone()).unwrap_or_default();
    if masked {
        weighted_valid(context, view, columns, span, out, scratch)
    } else {
        weighted(context, view, columns, span, out, scratch)
    }
}

/// Two source rows and the target row, cut to the columns asked for.
pub struct Quads<'a, K: Kind> {
    /// Upper source row.
    pub top: &'a [K::Raw],
    /// Lower source row.
    pub bottom: &'a [K::Raw],
    /// Target row.
    pub out: &'a mut [K::Raw],
    /// The value that results avoid.
    pub avoid: Avoid,
    /// Fill for pixels without valid samples.
    pub fill: K::Raw,
    /// Column of `out[0]` in the whole target.
    pub first: usize,
    /// Columns of the whole target.
    pub width: usize,
}

impl<'a, K: Kind> Quads<'a, K> {
    /// Cuts the two rows of `span`.
    pub fn new(context: &RowContext<'_, K>, view: &View<'a, K::Raw>, span: Span, out: &'a mut [K::Raw]) -> Self {
        let columns = context.columns.start * 2..context.columns.end * 2;
        let cut = |row: u32| view.row(row).get(columns.clone()).unwrap_or_default();
        let (top, bottom) = (cut(span.start), cut(span.start + 1));
        Self {
            top,
            bottom,
            out,
            avoid: context.avoid,
            fill: context.fill,
            first: context.first_column(),
            width: context.width(),
        }
    }
}

/// Returns the two mask rows of a span, cut to the columns asked for.
fn mask_rows<'a, T>(view: &View<'a, T>, span: Span, columns: &Range<usize>) -> [&'a [u8]; 2] {
    let columns = columns.start * 2..columns.end * 2;
    let cut = |row: u32| view.mask_row(row).and_then(|mask| mask.get(columns.clone())).unwrap_or_default();
    [cut(span.start), cut(span.start + 1)]
}

/// Computes each target pixel from the four below it and their validity. `make` must be branch-free to vectorise.
pub struct EachQuad<'a, K: Kind, F> {
    /// The source and target rows.
    pub quads: Quads<'a, K>,
    /// Validity of the source rows; `None` if all pixels are valid.
    pub valid: Option<[&'a [u8]; 2]>,
    /// Computes a target pixel.
    pub make: F,
}

impl<K: Kind, F: Fn([K::Raw; 4], [bool; 4]) -> K::Raw> HotLoop for EachQuad<'_, K, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quads { top, bottom, out, .. } = self.quads;
        let quads = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        let Some([upper, lower]) = self.valid else {
            for ((t, b), out) in quads.zip(out) {
                *out = (self.make)([t[0], t[1], b[0], b[1]], [true; 4]);
            }
            return;
        };
        let valid = upper.chunks_exact(2).zip(lower.chunks_exact(2));
        for (((t, b), (u, v)), out) in quads.zip(valid).zip(out) {
            *out = (self.make)([t[0], t[1], b[0], b[1]], [u[0] != 0, u[1] != 0, v[0] != 0, v[1] != 0]);
        }
    }
}

struct Plain<'a, K: Kind> {
    quads: Quads<'a, K>,
}

impl<K: Kind> HotLoop for Plain<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quads { top, bottom, out, first, width, .. } = self.quads;
        K::halve(top, bottom, out, first, width);
    }
}

struct ByNodata<'a, K: Kind> {
    quads: Quads<'a, K>,
    nodata: K::Raw,
}

impl<K: Kind> HotLoop for ByNodata<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quads { top, bottom, out, avoid, fill, .. } = self.quads;
        for ((t, b), out) in top.chunks_exact(2).zip(bottom.chunks_exact(2)).zip(out) {
            let ok = |sample: K::Raw| !K::is_nodata(sample, self.nodata);
            *out = quarter::<K>([t[0], t[1], b[0], b[1]], [ok(t[0]), ok(t[1]), ok(b[0]), ok(b[1])], avoid, fill);
        }
    }
}

/// Not an [`EachQuad`], because this loop is twice as fast for bytes.
struct ByMask<'a, K: Kind> {
    quads: Quads<'a, K>,
    mask: [&'a [u8]; 2],
}

impl<K: Kind> HotLoop for ByMask<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quads { top, bottom, out, avoid, fill, .. } = self.quads;
        let mask = self.mask[0].chunks_exact(2).zip(self.mask[1].chunks_exact(2));
        for (((t, b), (u, v)), out) in top.chunks_exact(2).zip(bottom.chunks_exact(2)).zip(mask).zip(out) {
            let ok = [u[0] != 0, u[1] != 0, v[0] != 0, v[1] != 0];
            *out = quarter::<K>([t[0], t[1], b[0], b[1]], ok, avoid, fill);
        }
    }
}

/// Returns the mean of the valid samples among four. Branch-free, so that it vectorises.
#[inline(always)]
fn quarter<K: Kind>(samples: [K::Raw; 4], ok: [bool; 4], avoid: Avoid, fill: K::Raw) -> K::Raw {
    let term = |at: usize| if ok[at] { K::term(samples[at]) } else { K::Sum::default() };
    let sum = (term(0) + term(1)) + (term(2) + term(3));
    let count = u32::from(ok[0]) + u32::from(ok[1]) + u32::from(ok[2]) + u32::from(ok[3]);
    let mean = K::quarter(sum, count.max(1), avoid);
    if count == 0 { fill } else { mean }
}

/// Returns the weight of source row `at` in a span.
pub fn row_weight(span: Span, at: u32) -> f64 {
    match at {
        _ if at == span.start => span.left,
        _ if at + 1 == span.end => span.right,
        _ => 1.0,
    }
}

/// The weighted mean where all pixels are valid.
fn weighted<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    columns: &[Span],
    span: Span,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let sums = &mut scratch.sums;
    sums.clear();
    sums.resize(out.len(), 0.0);
    for at in span.start..span.end {
        let line = Line::<K> { row: view.row(at), columns, sums, weight: row_weight(span, at), rows: span.len() };
        widest(line);
    }
    for ((&sum, column), out) in sums.iter().zip(columns).zip(out) {
        let mean = sum / (column.total * span.total);
        *out = K::store_avoiding(
            if scales::<K>() { (span.len() * column.len()) as f64 * mean } else { mean },
            context.avoid,
        );
    }
}

/// Whether samples are divided by the count before they are added, against overflow: floats, and integers that GDAL averages
/// as floats.
#[inline(always)]
fn scales<K: Kind>() -> bool {
    K::CLASS != Class::Unsigned
}

/// Adds one source row to the sums of a target row.
struct Line<'a, K: Kind> {
    row: &'a [K::Raw],
    columns: &'a [Span],
    sums: &'a mut [f64],
    weight: f64,
    rows: usize,
}

impl<K: Kind> HotLoop for Line<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (column, sum) in self.columns.iter().zip(self.sums) {
            let samples = self.row.get(column.start as usize..column.end as usize).unwrap_or_default();
            let scale = if scales::<K>() { 1.0 / (self.rows * samples.len()) as f64 } else { 1.0 };
            let line = match samples {
                // The common case for ratios slightly above two.
                &[a, b, c] => K::wide(a) * scale * column.left + K::wide(b) * scale + K::wide(c) * scale * column.right,
                [first, middle @ .., last] => {
                    let head = K::wide(*first) * scale * column.left;
                    let body = middle.iter().fold(head, |sum, &sample| sum + K::wide(sample) * scale);
                    body + K::wide(*last) * scale * column.right
                }
                [only] => K::wide(*only) * scale * column.left,
                [] => 0.0,
            };
            *sum += line * self.weight;
        }
    }
}

/// The weighted mean of the valid pixels.
fn weighted_valid<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    columns: &[Span],
    span: Span,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let ShrinkScratch { sums, weights, valid, counts, .. } = scratch;
    sums.clear();
    sums.resize(out.len(), 0.0);
    weights.clear();
    weights.resize(out.len(), 0.0);
    counts.clear();
    counts.resize(out.len(), 0);
    let from = columns.first().map_or(0, |column| column.start as usize);
    let to = columns.last().map_or(0, |column| column.end as usize);
    for at in span.start..span.end {
        let row = view.row(at).get(from..to).unwrap_or_default();
        let valid = validity::<K>(view, context.nodata, at, from..to, valid).unwrap_or_default();
        let weight = row_weight(span, at);
        widest(ValidLine::<K> { row, valid, from, columns, sums, weights, counts, weight });
    }
    for ((((&sum, &weight), &count), _), out) in sums.iter().zip(&*weights).zip(&*counts).zip(columns).zip(out) {
        *out = if count == 0 { context.fill } else { K::store_avoiding(sum / weight, context.avoid) };
    }
}

/// Adds the valid pixels of one source row to the sums of a target row.
struct ValidLine<'a, K: Kind> {
    row: &'a [K::Raw],
    valid: &'a [u8],
    from: usize,
    columns: &'a [Span],
    sums: &'a mut [f64],
    weights: &'a mut [f64],
    counts: &'a mut [u32],
    weight: f64,
}

impl<K: Kind> HotLoop for ValidLine<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let sums = self.sums.iter_mut().zip(self.weights).zip(self.counts);
        for (column, ((sum, weight), count)) in self.columns.iter().zip(sums) {
            let range = column.start as usize - self.from..column.end as usize - self.from;
            let samples = self.row.get(range.clone()).unwrap_or_default();
            let valid = self.valid.get(range).unwrap_or_default();
            if let (&[a, b, c], &[u, v, w]) = (samples, valid) {
                // The common case for ratios slightly above two, with selects instead of branches.
                let share = |ok: u8, share: f64| if ok != 0 { share } else { 0.0 };
                let part = |sample: K::Raw, ok: u8, share: f64| if ok != 0 { K::wide(sample) * share } else { 0.0 };
                let line = part(a, u, column.left) + part(b, v, 1.0) + part(c, w, column.right);
                *sum += line * self.weight;
                *weight += (share(u, column.left) + share(v, 1.0) + share(w, column.right)) * self.weight;
                *count += u32::from(u != 0) + u32::from(v != 0) + u32::from(w != 0);
                continue;
            }
            let (mut line, mut line_weight) = (0.0, 0.0);
            let last = samples.len().saturating_sub(1);
            for (at, (&sample, &ok)) in samples.iter().zip(valid).enumerate() {
                let share = if at == 0 {
                    column.left
                } else if at == last {
                    column.right
                } else {
                    1.0
                };
                let share = if ok != 0 { share } else { 0.0 };
                line += if ok != 0 { K::wide(sample) * share } else { 0.0 };
                line_weight += share;
                *count += u32::from(ok != 0);
            }
            *sum += line * self.weight;
            *weight += line_weight * self.weight;
        }
    }
}
