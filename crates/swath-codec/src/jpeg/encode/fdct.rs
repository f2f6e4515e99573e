//! The accurate integer forward DCT (Loeffler, Ligtenberg and Moschytz, 13-bit constants) and quantisation, bit for bit libjpeg's `JDCT_ISLOW`.
//!
//! Eight blocks are transformed at once, one per vector lane, and their coefficients stay that way: the entropy coder fetches the few that are not zero,
//! so only the samples are ever transposed.

use super::sample::Sample;
use super::tables::Quant;
use crate::jpeg::dct::{CONST_BITS, Group, LANES};
use crate::jpeg::zigzag::ZIGZAG;
use swath_raster::simd::HotLoop;

/// One-dimensional transform, in which the sums without a factor are `plain` and the others are shifted down by `shift`, rounded.
///
/// The arithmetic wraps, because intermediate 12-bit sums exceed 32 bits; the results fit.
#[inline(always)]
fn transform(s: [i32; 8], plain: impl Fn(i32) -> i32, shift: u32) -> [i32; 8] {
    let mul = |a: i32, k: i32| a.wrapping_mul(k);
    let add = i32::wrapping_add;
    let sub = i32::wrapping_sub;
    let down = |v: i32| add(v, 1 << (shift - 1)) >> shift;

    let (a0, a1, a2, a3) = (add(s[0], s[7]), add(s[1], s[6]), add(s[2], s[5]), add(s[3], s[4]));
    let (b0, b1, b2, b3) = (sub(s[0], s[7]), sub(s[1], s[6]), sub(s[2], s[5]), sub(s[3], s[4]));

    let (sum0, sum1) = (add(a0, a3), add(a1, a2));
    let (dif0, dif1) = (sub(a0, a3), sub(a1, a2));
    let both = mul(add(dif0, dif1), 4433);

    let z5 = mul(add(add(b3, b1), add(b2, b0)), 9633);
    let z1 = mul(add(b3, b0), -7373);
    let z2 = mul(add(b2, b1), -20995);
    let z3 = add(mul(add(b3, b1), -16069), z5);
    let z4 = add(mul(add(b2, b0), -3196), z5);

    [
        plain(add(sum0, sum1)),
        down(add(mul(b0, 12299), add(z1, z4))),
        down(add(both, mul(dif0, 6270))),
        down(add(mul(b1, 25172), add(z2, z3))),
        plain(sub(sum0, sum1)),
        down(add(mul(b2, 16819), add(z2, z4))),
        down(sub(both, mul(dif1, 15137))),
        down(add(mul(b3, 2446), add(z1, z3))),
    ]
}

/// `value / divisor` rounded to the nearest, halves away from zero, where `reciprocal` is the divisor's.
///
/// Floating point does it exactly. The quarter lifts exact halves off the fence; all divisors being multiples of eight, nothing else comes nearer to one
/// than that, and for values under 2^20 (12-bit frames reach 2^17) the error of the product is smaller. Adding 2^23 rounds to a whole number and puts it
/// in the low bits, which is cheaper than a conversion that saturates.
#[inline(always)]
pub(super) fn quantise(value: i32, reciprocal: f32) -> i16 {
    let sign = value >> 31;
    let magnitude = (value ^ sign).wrapping_sub(sign);
    let whole = ((magnitude as f32 + 0.25) * reciprocal + 8_388_608.0).to_bits() as i32 & 0x7F_FFFF;
    (whole ^ sign).wrapping_sub(sign) as i16
}

/// Position of each coefficient of a block in the scan.
const PLACES: [usize; 64] = {
    let mut places = [0; 64];
    let mut n = 0;
    while n < 64 {
        places[ZIGZAG[n] as usize] = n;
        n += 1;
    }
    places
};

/// Transforms rows of blocks into quantised coefficients.
pub(super) struct Transform<'t, S> {
    /// Samples of the component, `stride` apart, a whole number of groups wide.
    pub plane: &'t [S],
    pub stride: usize,
    pub quant: &'t Quant,
    /// A group for each eight blocks of a row, row after row.
    pub coefs: &'t mut [i16],
    /// For each block, which of its coefficients are not zero, in scan order.
    pub masks: &'t mut [u64],
}

impl<S: Sample> HotLoop for Transform<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { plane, stride, quant, coefs, masks } = self;
        let per_row = (stride / (8 * LANES)).max(1);
        let mut samples = [S::default(); 64 * LANES];
        let mut work = [0; 64 * LANES];
        let (groups, _) = coefs.as_chunks_mut::<{ 64 * LANES }>();
        let (lanes, _) = masks.as_chunks_mut::<LANES>();
        for (n, (group, lanes)) in groups.iter_mut().zip(lanes).enumerate() {
            let at = n / per_row * 8 * stride + n % per_row * 8 * LANES;
            S::gather(plane, at, stride, &mut samples);
            blocks(&samples, quant, &mut work, group);
            *lanes = occupied(group);
        }
    }
}

/// Transforms a group: samples ordered `[row][column][block]` to coefficients ordered `[place in the scan][block]`.
#[inline(always)]
fn blocks<S: Sample>(samples: &Group<S>, quant: &Quant, work: &mut Group<i32>, coefs: &mut Group<i16>) {
    // The inner loops run over lanes only; everything else indexes by constants, which is what lets them become vector code.
    for row in 0..8 {
        let from = &samples[row * 64..row * 64 + 64];
        let to = &mut work[row * 64..row * 64 + 64];
        for lane in 0..LANES {
            let inputs = std::array::from_fn(|column| from[column * LANES + lane].wide() - S::CENTRE);
            let t = transform(inputs, |v| v << S::PASS1_BITS, CONST_BITS - S::PASS1_BITS);
            for column in 0..8 {
                to[column * LANES + lane] = t[column];
            }
        }
    }
    for column in 0..8 {
        let reciprocals: [f32; 8] = std::array::from_fn(|row| quant.reciprocals[row * 8 + column]);
        let mut out = [[0i16; LANES]; 8];
        for lane in 0..LANES {
            let inputs = std::array::from_fn(|row| work[(row * 8 + column) * LANES + lane]);
            let plain = |v: i32| v.wrapping_add(1 << (S::PASS1_BITS - 1)) >> S::PASS1_BITS;
            let t = transform(inputs, plain, CONST_BITS + S::PASS1_BITS);
            for row in 0..8 {
                out[row][lane] = quantise(t[row], reciprocals[row]);
            }
        }
        for row in 0..8 {
            let place = PLACES[row * 8 + column] * LANES;
            coefs[place..place + LANES].copy_from_slice(&out[row]);
        }
    }
}

/// Which coefficients of each block are not zero. Sixteen bits at a time, the width of the coefficients, so that no lane has to be widened.
#[inline(always)]
fn occupied(coefs: &Group<i16>) -> [u64; LANES] {
    let mut masks = [0u64; LANES];
    for part in 0..4 {
        let mut bits = [0u16; LANES];
        for n in 0..16 {
            for lane in 0..LANES {
                bits[lane] |= u16::from(coefs[(part * 16 + n) * LANES + lane] != 0) << n;
            }
        }
        for lane in 0..LANES {
            masks[lane] |= u64::from(bits[lane]) << (part * 16);
        }
    }
    masks
}
