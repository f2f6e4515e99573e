//! The area-weighted root mean square, for amplitudes. An integer result is the one whose square is closest to the mean.

use super::average::{EachQuad, Quads, row_weight};
use super::axis::Span;
use super::footprint::{Footprint, SourceRows};
use super::kind::{Avoid, Class, Kind};
use super::scratch::ShrinkScratch;
use super::view::{View, validity};
use super::{ColumnMap, RowContext};
use crate::simd::{HotLoop, widest};

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
    let pairs = match &context.shrink.columns {
        ColumnMap::Spans { pairs, .. } => *pairs,
        _ => true,
    };
    if span.len() == 2 && pairs && !masked {
        return widest(Plain { quads: Quads::<K>::new(context, view, span, out) });
    }
    if let ColumnMap::Spans { columns, .. } = &context.shrink.columns {
        return weighted(
            context,
            view,
            columns.get(context.columns.clone()).unwrap_or_default(),
            span,
            out,
            scratch,
            masked,
        );
    }
    let footprint = Footprint::of(context);
    let ShrinkScratch { valid, line, .. } = scratch;
    let rows = SourceRows::<K>::new(view, context.nodata, &footprint, row, valid, line);
    let (avoid, fill) = (context.avoid, context.fill);
    let make = |samples: [K::Raw; 4], ok: [bool; 4]| {
        let term = |at: usize| if ok[at] { K::wide(samples[at]) * K::wide(samples[at]) } else { 0.0 };
        let count = u32::from(ok[0]) + u32::from(ok[1]) + u32::from(ok[2]) + u32::from(ok[3]);
        let mean = ((term(0) + term(1)) + (term(2) + term(3))) / f64::from(count.max(1));
        if count == 0 { fill } else { root::<K>(mean, 1.0, avoid) }
    };
    widest(EachQuad { quads: Quads::<K>::new(context, view, span, out), valid: rows.pair(), make });
}

fn weighted<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    columns: &[Span],
    span: Span,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
    masked: bool,
) {
    let ShrinkScratch { valid, line, .. } = scratch;
    let from = columns.first().map_or(0, |column| column.start as usize);
    let reach = from..columns.last().map_or(0, |column| column.end as usize).max(from);
    valid.clear();
    for at in span.start..span.end {
        if let Some(row) = validity::<K>(view, context.nodata, at, reach.clone(), line) {
            valid.extend_from_slice(row);
        }
    }
    for (column, out) in columns.iter().zip(out) {
        let samples = |row: u32| view.row(row).get(column.start as usize..column.end as usize).unwrap_or_default();
        if !masked {
            let peak = if K::CLASS == Class::Unsigned {
                0.0
            } else {
                let all = (span.start..span.end).flat_map(samples);
                all.fold(0.0f64, |peak, &sample| peak.max(K::wide(sample).abs()))
            };
            // Squares of large numbers overflow, so samples are scaled by the largest.
            let scale = if peak > 0.0 && peak.is_finite() { 1.0 / peak } else { 1.0 };
            let mut sum = 0.0;
            for at in span.start..span.end {
                let square = |sample: &K::Raw| (K::wide(*sample) * scale) * (K::wide(*sample) * scale);
                let line = match samples(at) {
                    [only] => square(only) * column.left,
                    [first, middle @ .., last] => {
                        let body = middle.iter().fold(square(first) * column.left, |sum, s| sum + square(s));
                        body + square(last) * column.right
                    }
                    [] => 0.0,
                };
                sum += line * row_weight(span, at);
            }
            *out = root::<K>(sum / (column.total * span.total), peak, context.avoid);
            continue;
        }
        let (mut sum, mut weight, mut count) = (0.0, 0.0, 0u32);
        for (nth, at) in (span.start..span.end).enumerate() {
            let samples = samples(at);
            let from = nth * reach.len() + column.start as usize - reach.start;
            let valid = valid.get(from..from + samples.len()).unwrap_or_default();
            let (mut line, mut line_weight) = (0.0, 0.0);
            for (i, (&sample, _)) in samples.iter().zip(valid).enumerate().filter(|(_, (_, ok))| **ok != 0) {
                let share = if i == 0 {
                    column.left
                } else if i + 1 == samples.len() {
                    column.right
                } else {
                    1.0
                };
                count += 1;
                line += K::wide(sample) * K::wide(sample) * share;
                line_weight += share;
            }
            sum += line * row_weight(span, at);
            weight += line_weight * row_weight(span, at);
        }
        *out = if count == 0 { context.fill } else { root::<K>(sum / weight, 1.0, context.avoid) };
    }
}

/// Returns the word for the root of a mean square. Small unsigned integers are rounded by comparing squares, not roots.
#[inline(always)]
fn root<K: Kind>(mean: f64, scale: f64, avoid: Avoid) -> K::Raw {
    if K::CLASS == Class::Unsigned {
        return K::store_avoiding(whole_root(mean), avoid);
    }
    K::store_avoiding(scale * mean.sqrt(), avoid)
}

#[inline(always)]
fn whole_root(mean: f64) -> f64 {
    let low = mean.sqrt().trunc();
    if 2.0 * low * (low + 1.0) + 1.0 < 2.0 * mean { low + 1.0 } else { low }
}

struct Plain<'a, K: Kind> {
    quads: Quads<'a, K>,
}

impl<K: Kind> HotLoop for Plain<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quads { top, bottom, out, first, width, .. } = self.quads;
        let fours = (width & !3).saturating_sub(first).min(out.len());
        let (head, tail) = out.split_at_mut(fours);
        let mut quads = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        for (out, (t, b)) in head.iter_mut().zip(&mut quads) {
            *out = four::<K>([t[0], t[1], b[0], b[1]], |s| (s[0] + s[1]) + (s[2] + s[3]));
        }
        for (out, (t, b)) in tail.iter_mut().zip(&mut quads) {
            *out = four::<K>([t[0], t[1], b[0], b[1]], |s| s[0] + s[1] + s[2] + s[3]);
        }
    }
}

/// Returns the root mean square of four pixels of weight one, in GDAL's precision and with GDAL's scaling.
#[inline(always)]
fn four<K: Kind>(samples: [K::Raw; 4], add: impl Fn([f32; 4]) -> f32) -> K::Raw {
    let wide = samples.map(K::wide);
    match K::CLASS {
        Class::Unsigned => {
            let sum = (wide[0] * wide[0] + wide[1] * wide[1]) + (wide[2] * wide[2] + wide[3] * wide[3]);
            K::store(whole_root(sum * 0.25))
        }
        Class::Single => {
            let size = wide.map(|value| value.abs() as f32);
            let peak = size[0].max(size[1]).max(size[2].max(size[3]));
            let scale = if peak == 0.0 { 0.0 } else { 1.0 / peak };
            let root = peak * (add(size.map(|value| (value * scale) * (value * scale))) * 0.25).sqrt();
            K::store(f64::from(if peak == f32::INFINITY { peak } else { root }))
        }
        Class::Double => {
            let size = wide.map(f64::abs);
            let peak = size[0].max(size[1]).max(size[2].max(size[3]));
            if peak == 0.0 {
                return K::store(0.0);
            }
            if peak == f64::INFINITY {
                return K::store((wide[0] + wide[1] + wide[2] + wide[3]).abs());
            }
            let scale = 1.0 / peak;
            let square = size.map(|value| (value * scale) * (value * scale));
            K::store(peak * (0.25 * (square[0] + square[1] + square[2] + square[3])).sqrt())
        }
    }
}
