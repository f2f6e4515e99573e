//! Means of two by two floats, added in GDAL's order. (Integer sums do not depend on the order.)

use super::kind::{Kind, NAN_SINGLE};

/// Halves a row of singles. GDAL takes four columns at a time and adds each column first; the last one to three columns of the
/// image it adds in reading order. Scaling before adding avoids overflow.
#[inline(always)]
pub fn halve_single(top: &[f32], bottom: &[f32], out: &mut [f32], first: usize, width: usize) {
    let fours = (width & !3).saturating_sub(first).min(out.len());
    let (out, tail) = out.split_at_mut(fours);
    let mut quads = top.chunks_exact(2).zip(bottom.chunks_exact(2));
    for (out, (t, b)) in out.iter_mut().zip(&mut quads) {
        *out = one_nan((t[0] * 0.25 + b[0] * 0.25) + (t[1] * 0.25 + b[1] * 0.25));
    }
    for (out, (t, b)) in tail.iter_mut().zip(&mut quads) {
        *out = one_nan(t[0] * 0.25 + t[1] * 0.25 + b[0] * 0.25 + b[1] * 0.25);
    }
}

/// Gives every NaN the same bits, as [`Kind::store`] does.
#[inline(always)]
fn one_nan(mean: f32) -> f32 {
    if mean.is_nan() { NAN_SINGLE } else { mean }
}

/// Halves a row as [`halve_single`] does, but two columns at a time.
#[inline(always)]
pub fn halve_double<K: Kind>(top: &[K::Raw], bottom: &[K::Raw], out: &mut [K::Raw], first: usize, width: usize) {
    let twos = (width & !1).saturating_sub(first).min(out.len());
    let (out, tail) = out.split_at_mut(twos);
    let mut quads = top.chunks_exact(2).zip(bottom.chunks_exact(2));
    for (out, (t, b)) in out.iter_mut().zip(&mut quads) {
        let left = K::wide(t[0]) * 0.25 + K::wide(b[0]) * 0.25;
        *out = K::store(left + (K::wide(t[1]) * 0.25 + K::wide(b[1]) * 0.25));
    }
    for (out, (t, b)) in tail.iter_mut().zip(&mut quads) {
        let row = K::wide(t[0]) * 0.25 + K::wide(t[1]) * 0.25;
        *out = K::store(row + K::wide(b[0]) * 0.25 + K::wide(b[1]) * 0.25);
    }
}
