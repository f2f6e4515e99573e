//! Filter kernels: filters source rows horizontally, caches them while windows need them, and sums them vertically.
//!
//! Sums are doubles, but the order of additions shows in the last bit of floats, so the orders here are GDAL's. One is not:
//! the order that depends on how GDAL divides its work into chunks.

use super::RowContext;
use super::kernel::{self, Taps};
use super::kind::{Class, Kind};
use super::scratch::ShrinkScratch;
use super::view::{View, validity};
use crate::simd::{HotLoop, widest};
use std::marker::PhantomData;
use std::ops::Range;

/// Columns summed vertically at a time, few enough that their sums stay in registers or the first-level cache.
const BLOCK: usize = 32;

/// Computes a target row.
pub fn row<K: Kind>(
    context: &RowContext<'_, K>,
    view: &View<'_, K::Raw>,
    taps: &Taps,
    row: u32,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let shrink = context.shrink;
    let window = kernel::window(shrink.y, shrink.method, row);
    let masked = context.nodata.is_some() || view.mask.is_some();
    let width = out.len();
    // The windows of one shrink differ in length by one or two. With slots for the longest, each row is filtered once.
    let room = window.len().max(((6.0 * shrink.y.ratio()) as usize + 3).min(shrink.y.source as usize));
    if scratch.slots.is_empty() {
        scratch.slots.resize(room, None);
        scratch.filtered.resize(room * width, 0.0);
        scratch.filtered_valid.resize(room * width, 0);
    }
    let slots = scratch.slots.len();
    let reach = taps.reach(&context.columns);
    for at in window.clone() {
        let slot = at as usize % slots;
        if scratch.slots.get(slot) == Some(&Some(at)) {
            continue;
        }
        let range = slot * width..(slot + 1) * width;
        let (Some(to), Some(ok)) = (scratch.filtered.get_mut(range.clone()), scratch.filtered_valid.get_mut(range))
        else {
            return;
        };
        let samples = view.row(at).get(reach.clone()).unwrap_or_default();
        scratch.sums.resize(samples.len(), 0.0);
        let valid =
            if masked { validity::<K>(view, context.nodata, at, reach.clone(), &mut scratch.valid) } else { None };
        // Running count of invalid pixels: two lookups tell whether a window has any.
        scratch.counts.clear();
        scratch.counts.push(0);
        scratch.counts.extend(valid.unwrap_or_default().iter().scan(0, |gaps, &byte| {
            *gaps += u32::from(byte == 0);
            Some(*gaps)
        }));
        widest(Widen::<K> { samples, out: &mut scratch.sums });
        let across = Across::<K> {
            samples: &scratch.sums,
            from: reach.start,
            gaps: &scratch.counts,
            valid,
            taps,
            columns: context.columns.clone(),
            negative: kernel::has_negative(shrink.method),
            spread: shrink.quirks,
            to,
            ok,
            kind: PhantomData,
        };
        widest(across);
        if let Some(slot) = scratch.slots.get_mut(slot) {
            *slot = Some(at);
        }
    }
    kernel::down(shrink.y, shrink.method, row, !masked, &mut scratch.weights);
    let down = Down {
        context,
        window,
        slots,
        weights: &scratch.weights,
        rows: &scratch.filtered,
        ok: &scratch.filtered_valid,
        out,
    };
    if masked { widest(Masked(down)) } else { widest(Plain(down)) }
}

/// Widens a row to doubles, once for all kernels that reach it.
struct Widen<'a, K: Kind> {
    samples: &'a [K::Raw],
    out: &'a mut [f64],
}

impl<K: Kind> HotLoop for Widen<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&sample, out) in self.samples.iter().zip(self.out) {
            *out = K::wide(sample);
        }
    }
}

/// Filters one source row horizontally.
struct Across<'a, K> {
    samples: &'a [f64],
    from: usize,
    gaps: &'a [u32],
    valid: Option<&'a [u8]>,
    taps: &'a Taps,
    columns: Range<usize>,
    negative: bool,
    spread: bool,
    to: &'a mut [f64],
    ok: &'a mut [u8],
    kind: PhantomData<K>,
}

impl<K: Kind> HotLoop for Across<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((at, to), ok) in self.columns.zip(self.to).zip(self.ok) {
            let (start, weights) = self.taps.column(at, self.valid.is_none());
            let start = start - self.from.min(start);
            let range = start..start + weights.len();
            let samples = self.samples.get(range.clone()).unwrap_or_default();
            let Some(valid) = self.valid else {
                let sum = if K::CLASS == Class::Unsigned {
                    let step = if self.taps.narrow || weights.len() == 4 { 4 } else { 8 };
                    sum_lanes(samples, weights, step)
                } else {
                    sum_pairs(samples, weights)
                };
                *to = if self.negative && sum.is_nan() { infinite(samples.iter().copied(), sum) } else { sum };
                continue;
            };
            let valid = valid.get(range).unwrap_or_default();
            (*to, *ok) = (0.0, 0);
            let gaps = |at: usize| self.gaps.get(at).copied().unwrap_or(0);
            let whole = gaps(start) == gaps(start + weights.len());
            if self.negative && !whole && longest_run(valid.iter().map(|&byte| byte != 0)) < weights.len() / 2 {
                continue;
            }
            let (sum, weight) = if K::CLASS == Class::Unsigned {
                valid_lanes(samples, valid, weights)
            } else {
                valid_row(samples, valid, weights, self.spread)
            };
            if weight > 0.0 {
                (*to, *ok) = (sum / weight, 1);
            }
        }
    }
}

/// Sums in four lanes and the remainder one by one, the order of GDAL's vectors of doubles.
#[inline(always)]
fn sum_lanes(samples: &[f64], weights: &[f64], step: usize) -> f64 {
    let whole = samples.len() / step * step;
    let mut lanes = [0.0; 4];
    let (head, tail) = samples.split_at(whole);
    for (fours, weights) in head.chunks_exact(4).zip(weights.chunks_exact(4)) {
        for ((lane, &sample), &weight) in lanes.iter_mut().zip(fours).zip(weights) {
            *lane += sample * weight;
        }
    }
    let sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    let weights = weights.get(whole..).unwrap_or_default();
    tail.iter().zip(weights).fold(sum, |sum, (&sample, &weight)| sum + sample * weight)
}

/// Sums alternating pairs in two sums, and adds the remainder to the first.
#[inline(always)]
fn sum_pairs(samples: &[f64], weights: &[f64]) -> f64 {
    let (mut one, mut two) = (0.0, 0.0);
    let (fours, quads) = (samples.chunks_exact(4), weights.chunks_exact(4));
    let tail = fours.remainder().iter().zip(quads.remainder());
    for (s, w) in fours.zip(quads) {
        one += s[0] * w[0];
        one += s[1] * w[1];
        two += s[2] * w[2];
        two += s[3] * w[3];
    }
    for (&sample, &weight) in tail {
        one += sample * weight;
    }
    one + two
}

/// Returns the sum and the total weight of samples weighted by validity, added in lanes.
#[inline(always)]
fn valid_lanes(samples: &[f64], valid: &[u8], weights: &[f64]) -> (f64, f64) {
    let (mut sums, mut shares) = ([0.0; 4], [0.0; 4]);
    let (fours, bytes, quads) = (samples.chunks_exact(4), valid.chunks_exact(4), weights.chunks_exact(4));
    let tail = fours.remainder().iter().zip(bytes.remainder()).zip(quads.remainder());
    for ((s, v), w) in fours.zip(bytes).zip(quads) {
        for lane in 0..4 {
            let share = w[lane] * f64::from(v[lane]);
            sums[lane] += s[lane] * share;
            shares[lane] += share;
        }
    }
    let mut sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    let mut weight = (shares[0] + shares[2]) + (shares[1] + shares[3]);
    for ((&sample, &byte), &tap) in tail {
        let share = tap * f64::from(byte);
        sum += sample * share;
        weight += share;
    }
    (sum, weight)
}

/// Returns the sum and the total weight of samples weighted by validity, added one by one. Invalid pixels may be NaN: with
/// `spread` they are multiplied by zero, which gives NaN; without it they are skipped.
#[inline(always)]
fn valid_row(samples: &[f64], valid: &[u8], weights: &[f64], spread: bool) -> (f64, f64) {
    let (mut sum, mut weight) = (0.0, 0.0);
    let (fours, bytes, quads) = (samples.chunks_exact(4), valid.chunks_exact(4), weights.chunks_exact(4));
    let tail = fours.remainder().iter().zip(bytes.remainder()).zip(quads.remainder());
    for ((s, v), w) in fours.zip(bytes).zip(quads) {
        let mut shares = [0.0; 4];
        for lane in 0..4 {
            shares[lane] = w[lane] * f64::from(v[lane]);
            sum += if v[lane] == 0 && !spread { 0.0 } else { s[lane] * shares[lane] };
        }
        weight += shares[0] + shares[1] + shares[2] + shares[3];
    }
    for ((&sample, &byte), &tap) in tail {
        let share = tap * f64::from(byte);
        sum += if byte == 0 && !spread { 0.0 } else { sample * share };
        weight += share;
    }
    (sum, weight)
}

/// Returns the length of the longest run of valid pixels. Kernels with negative weights need half of their pixels in one run,
/// or they overshoot.
#[inline(always)]
fn longest_run(valid: impl Iterator<Item = bool>) -> usize {
    let (mut run, mut longest) = (0, 0);
    for ok in valid {
        run = if ok { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Replaces a NaN sum that came from infinite samples under weights of both signs: if all samples have the same sign, the
/// first sample is the result.
#[cold]
fn infinite(samples: impl Iterator<Item = f64>, sum: f64) -> f64 {
    let mut first = None;
    for sample in samples {
        let lead = *first.get_or_insert(sample);
        if sample.is_nan() || (sample >= 0.0) != (lead >= 0.0) {
            return sum;
        }
    }
    first.unwrap_or(sum)
}

/// Sums filtered rows vertically into a target row.
struct Down<'a, K: Kind> {
    context: &'a RowContext<'a, K>,
    window: Range<u32>,
    slots: usize,
    weights: &'a [f64],
    rows: &'a [f64],
    ok: &'a [u8],
    out: &'a mut [K::Raw],
}

impl<'a, K: Kind> Down<'a, K> {
    /// Returns the range of `rows` that holds a block of columns of a source row.
    #[inline(always)]
    fn block(&self, row: u32, from: usize, len: usize) -> Range<usize> {
        let at = row as usize % self.slots * self.out.len() + from;
        at..at + len
    }

    /// Sums a block of columns over the rows of the window. Rows of whole groups of four whose index has the bit `apart` set go
    /// to a second sum that is added last; with `apart` zero all rows are added in order.
    #[inline(always)]
    fn sum(&self, from: usize, len: usize, apart: usize) -> [f64; BLOCK] {
        let mut sums = [[0.0; BLOCK]; 2];
        let fours = self.window.len() & !3;
        for (nth, (row, &weight)) in self.window.clone().zip(self.weights).enumerate() {
            let values = self.rows.get(self.block(row, from, len)).unwrap_or_default();
            let sums = &mut sums[usize::from(nth < fours && nth & apart != 0)];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value * weight;
            }
        }
        let [mut one, two] = sums;
        for (one, two) in one.iter_mut().zip(two) {
            *one += two;
        }
        one
    }

    /// Converts a sum to a native word.
    #[inline(always)]
    fn finish(&self, value: f64) -> K::Raw {
        let value = if K::CLASS == Class::Double { value } else { f64::from(value as f32) };
        if self.context.declared.is_none() {
            return K::store(value);
        }
        // Kernels overshoot. Clamp first, because nodata may be the end of the range.
        let clamped = value.clamp(K::RANGE.0, K::RANGE.1);
        let near = if K::WHOLE { clamped.round() } else { clamped };
        K::store(if near == self.context.avoid.value { self.context.avoid.instead } else { clamped })
    }
}

struct Plain<'a, K: Kind>(Down<'a, K>);

impl<K: Kind> HotLoop for Plain<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let down = self.0;
        let negative = kernel::has_negative(down.context.shrink.method);
        let single = K::CLASS == Class::Unsigned || K::CLASS == Class::Single && !negative;
        // GDAL sums groups of eight columns in order. It sums the last columns of the image, and all columns where results are
        // scaled, in pairs.
        let ordered = if single { down.context.width() & !7 } else { 0 };
        let mut from = 0;
        while from < down.out.len() {
            let len = (down.out.len() - from).min(BLOCK);
            let head = ordered.saturating_sub(down.context.first_column() + from).min(len);
            // Only the block at the end of the image has both kinds of columns.
            let mut sums = if head > 0 { down.sum(from, len, 0) } else { [0.0; BLOCK] };
            if head < len {
                let pairs = down.sum(from, len, 2);
                for (sum, pair) in sums.iter_mut().zip(pairs).skip(head) {
                    *sum = pair;
                }
            }
            for (at, mut sum) in sums.into_iter().enumerate().take(len) {
                if !K::WHOLE && !single {
                    let most = if K::CLASS == Class::Single { f64::from(f32::MAX) } else { f64::MAX };
                    if sum.is_finite() {
                        sum = sum.clamp(-most, most);
                    } else if sum.is_nan() && negative {
                        let rows = down.window.clone();
                        let column = rows.filter_map(|row| down.rows.get(down.block(row, from + at, 1).start).copied());
                        sum = infinite(column, sum);
                    }
                }
                let word = down.finish(sum);
                if let Some(out) = down.out.get_mut(from + at) {
                    *out = word;
                }
            }
            from += len;
        }
    }
}

struct Masked<'a, K: Kind>(Down<'a, K>);

impl<K: Kind> HotLoop for Masked<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let down = self.0;
        let needed = if kernel::has_negative(down.context.shrink.method) { down.window.len() as u32 / 2 } else { 0 };
        let mut from = 0;
        while from < down.out.len() {
            let len = (down.out.len() - from).min(BLOCK);
            let (mut sums, mut shares) = ([0.0; BLOCK], [0.0; BLOCK]);
            let (mut runs, mut longest) = ([0u32; BLOCK], [0u32; BLOCK]);
            for (row, &weight) in down.window.clone().zip(down.weights) {
                let values = down.rows.get(down.block(row, from, len)).unwrap_or_default();
                let valid = down.ok.get(down.block(row, from, len)).unwrap_or_default();
                for (at, (value, &ok)) in values.iter().zip(valid).enumerate() {
                    let share = weight * f64::from(ok);
                    sums[at] += value * share;
                    shares[at] += share;
                    runs[at] = (runs[at] + 1) * u32::from(ok);
                    longest[at] = longest[at].max(runs[at]);
                }
            }
            for (at, ((sum, share), longest)) in sums.into_iter().zip(shares).zip(longest).enumerate().take(len) {
                let some = share > 0.0 && longest >= needed;
                let word = if some { down.finish(sum / share) } else { down.context.fill };
                if let Some(out) = down.out.get_mut(from + at) {
                    *out = word;
                }
            }
            from += len;
        }
    }
}
