//! The accurate integer inverse DCT (Loeffler, Ligtenberg and Moschytz, 13-bit constants), bit for bit libjpeg's `JDCT_ISLOW`.
//!
//! Eight blocks are transformed at once, one per vector lane, so both passes are plain vertical arithmetic without transposes; the only transpose left is
//! that of the finished samples. All arithmetic wraps: on hostile coefficients the result is meaningless but defined.

use super::sample::Sample;
use crate::jpeg::dct::{CONST_BITS, Group, LANES};

/// One-dimensional transform whose outputs are shifted down by `shift` (of which 13 bits are the constants'), rounded.
///
/// With `LOW`, only the coefficients of the first four rows and columns are used. `work` holds the results of the first pass; the
/// caller reuses it because clearing it each time would be slow.
#[inline(always)]
fn transform<const LOW: bool>(mut s: [i32; 8], shift: u32) -> [i32; 8] {
    if LOW {
        s[4..].fill(0);
    }
    let mul = |a: i32, k: i32| a.wrapping_mul(k);
    let add = i32::wrapping_add;
    let sub = i32::wrapping_sub;

    let z1 = mul(add(s[2], s[6]), 4433);
    let t2 = sub(z1, mul(s[6], 15137));
    let t3 = add(z1, mul(s[2], 6270));
    // Every output has one of these in it, and with it the half for its rounding.
    let round = 1 << (shift - 1);
    let t0 = add(add(s[0], s[4]) << CONST_BITS, round);
    let t1 = add(sub(s[0], s[4]) << CONST_BITS, round);
    let (e0, e3, e1, e2) = (add(t0, t3), sub(t0, t3), add(t1, t2), sub(t1, t2));

    let z5 = mul(add(add(s[7], s[3]), add(s[5], s[1])), 9633);
    let z1 = mul(add(s[7], s[1]), -7373);
    let z2 = mul(add(s[5], s[3]), -20995);
    let z3 = add(mul(add(s[7], s[3]), -16069), z5);
    let z4 = add(mul(add(s[5], s[1]), -3196), z5);
    let o0 = add(mul(s[7], 2446), add(z1, z3));
    let o1 = add(mul(s[5], 16819), add(z2, z4));
    let o2 = add(mul(s[3], 25172), add(z2, z3));
    let o3 = add(mul(s[1], 12299), add(z1, z4));

    [add(e0, o3), add(e1, o2), add(e2, o1), add(e3, o0), sub(e3, o0), sub(e2, o1), sub(e1, o2), sub(e0, o3)]
        .map(|v| v >> shift)
}

/// Dequantises and transforms a group into samples at `at` of a plane, which must have room for 64 columns and 8 rows there.
/// Coefficients are ordered `[row][column][block]`, and samples `[column][row][block]` until they are stored.
///
/// With `LOW`, only the coefficients of the first four rows and columns are used. `work` holds the results of the first pass; the caller reuses it
/// because clearing it each time would be slow.
#[inline(always)]
pub(super) fn group<S: Sample, const LOW: bool>(
    coefs: &Group<i16>,
    quant: &[u16; 64],
    work: &mut Group<i32>,
    plane: &mut [S],
    at: usize,
    stride: usize,
) {
    // The inner loops run over lanes only; everything else indexes by constants, which is what lets them become vector code.
    for column in 0..if LOW { 4 } else { 8 } {
        let q: [u16; 8] = std::array::from_fn(|row| quant[row * 8 + column]);
        let out = &mut work[column * 64..column * 64 + 64];
        for lane in 0..LANES {
            let dequantised = |row| S::dequantise(coefs[(row * 8 + column) * LANES + lane], q[row]);
            let t = transform::<LOW>(std::array::from_fn(dequantised), CONST_BITS - S::PASS1_BITS);
            for row in 0..8 {
                out[row * LANES + lane] = t[row];
            }
        }
    }
    let mut samples = [S::default(); 64 * LANES];
    for row in 0..8 {
        for lane in 0..LANES {
            let inputs = std::array::from_fn(|column| work[(column * 8 + row) * LANES + lane]);
            let t = transform::<LOW>(inputs, CONST_BITS + S::PASS1_BITS + 3);
            for column in 0..8 {
                samples[(column * 8 + row) * LANES + lane] = S::level_shift(t[column]);
            }
        }
    }
    S::store(&samples, plane, at, stride);
}

/// The same for a group whose blocks have no AC coefficients.
#[inline(always)]
pub(super) fn flat_group<S: Sample>(coefs: &Group<i16>, quant: u16, plane: &mut [S], at: usize, stride: usize) {
    let mut row = [S::default(); 64];
    for (samples, &dc) in row.chunks_exact_mut(8).zip(coefs) {
        // The result of both passes when only the DC coefficient is there.
        samples.fill(S::level_shift(S::dequantise(dc, quant).wrapping_add(4) >> 3));
    }
    for to in plane.get_mut(at..).unwrap_or_default().chunks_mut(stride.max(1)).take(8) {
        if let Some(to) = to.get_mut(..64) {
            to.copy_from_slice(&row);
        }
    }
}
