//! Converts stored samples to native ones: packed bits, 24-bit numbers, foreign byte order, reversed bits.
//!
//! Every function is a plain loop over one row, `#[inline(always)]` so that a [`HotLoop`](swath_raster::simd::HotLoop) can call it for
//! all rows of a tile. All stop at the end of the shorter row.

use swath_tiff::structure::ByteOrder;

/// Unpacks samples of `bits` (1 to 8) bits, most significant bit first, whatever the byte order of the file.
#[inline(always)]
pub fn unpack_u8(src: &[u8], dst: &mut [u8], bits: u32) {
    match bits {
        1 => {
            let done = groups(src, dst, |[byte]| {
                // Eight copies, nine bits apart: bit 7 - k of the byte lands in the top bit of byte k, and no two copies overlap.
                let spread = (u64::from(byte).wrapping_mul(0x8040_2010_0804_0201) >> 7) & 0x0101_0101_0101_0101;
                spread.to_le_bytes()
            });
            any_bits(src, dst, done, 1, |v| v as u8);
        }
        2 => {
            let done = groups(src, dst, |[byte]| {
                let spread = ((u64::from(byte) * 0x4010_0401) >> 6) as u32 & 0x0303_0303;
                spread.to_le_bytes()
            });
            any_bits(src, dst, done, 2, |v| v as u8);
        }
        4 => {
            let done = groups(src, dst, |[byte]| [byte >> 4, byte & 15]);
            any_bits(src, dst, done, 4, |v| v as u8);
        }
        8 => {
            let n = src.len().min(dst.len());
            dst[..n].copy_from_slice(&src[..n]);
        }
        3 | 5..=7 => any_bits(src, dst, 0, bits, |v| v as u8),
        _ => {}
    }
}

/// Unpacks samples of `bits` (1 to 16) bits, most significant bit first, whatever the byte order of the file.
///
/// 16 bits are whole bytes and so follow the file's byte order: use [`swap_copy`].
#[inline(always)]
pub fn unpack_u16(src: &[u8], dst: &mut [u16], bits: u32) {
    match bits {
        12 => {
            let done = groups(src, dst, |[a, b, c]| {
                let [a, b, c] = [a, b, c].map(u16::from);
                [a << 4 | b >> 4, (b & 15) << 8 | c]
            });
            any_bits(src, dst, done, 12, |v| v as u16);
        }
        1..=16 => any_bits(src, dst, 0, bits, |v| v as u16),
        _ => {}
    }
}

/// Unpacks samples of `bits` (1 to 32) bits, most significant bit first, whatever the byte order of the file.
///
/// For 24 bits, which are whole bytes and so follow the file's byte order, use [`unpack_u24`].
#[inline(always)]
pub fn unpack_u32(src: &[u8], dst: &mut [u32], bits: u32) {
    if let 1..=32 = bits {
        any_bits(src, dst, 0, bits, |v| v as u32);
    }
}

/// Converts whole groups of `BYTES` bytes to `SAMPLES` samples; returns how many samples it wrote.
#[inline(always)]
fn groups<T, const BYTES: usize, const SAMPLES: usize>(
    src: &[u8],
    dst: &mut [T],
    each: impl Fn([u8; BYTES]) -> [T; SAMPLES],
) -> usize {
    let (ins, outs) = (src.as_chunks().0, dst.as_chunks_mut().0);
    for (bytes, samples) in ins.iter().zip(outs.iter_mut()) {
        *samples = each(*bytes);
    }
    ins.len().min(outs.len()) * SAMPLES
}

/// Unpacks the samples from index `done` on, each from a word of eight bytes.
#[inline(always)]
fn any_bits<T>(src: &[u8], dst: &mut [T], done: usize, bits: u32, narrow: impl Fn(u64) -> T) {
    let width = bits as usize;
    let samples = dst.len().min(src.len().saturating_mul(8) / width);
    for (i, out) in dst.iter_mut().enumerate().take(samples).skip(done) {
        let bit = i * width;
        let rest = &src[bit / 8..];
        let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            bytes
        });
        *out = narrow(u64::from_be_bytes(bytes) << (bit % 8) >> (64 - bits));
    }
}

/// Reads three-byte unsigned integers in the given byte order.
#[inline(always)]
pub fn unpack_u24(src: &[u8], dst: &mut [u32], order: ByteOrder) {
    match order {
        ByteOrder::Little => groups(src, dst, |[a, b, c]| [u32::from_le_bytes([a, b, c, 0])]),
        ByteOrder::Big => groups(src, dst, |[a, b, c]| [u32::from_be_bytes([0, a, b, c])]),
    };
}

/// Reads three-byte floats in the given byte order, as `f32`.
#[inline(always)]
pub fn unpack_f24(src: &[u8], dst: &mut [f32], order: ByteOrder) {
    match order {
        ByteOrder::Little => groups(src, dst, |[a, b, c]| [widen_f24(u32::from_le_bytes([a, b, c, 0]))]),
        ByteOrder::Big => groups(src, dst, |[a, b, c]| [widen_f24(u32::from_be_bytes([0, a, b, c]))]),
    };
}

/// Converts a 24-bit float (a sign, seven bits of exponent with bias 63, sixteen bits of mantissa) to `f32`, exactly.
///
/// A NaN keeps its sign and its mantissa, as in GDAL.
#[inline(always)]
#[must_use]
pub fn widen_f24(bits: u32) -> f32 {
    let sign = (bits & 0x0080_0000) << 8;
    let exponent = bits & 0x007f_0000;
    let rest = (bits & 0x007f_ffff) << 7;
    // Branch-free, so that rows vectorise.
    let normal = rest + ((127 - 63) << 23);
    let infinite = rest | 0xff << 23;
    // A subnormal (or zero) is its mantissa times 2^-62 / 2^16, which is a normal number in `f32`.
    let subnormal = ((bits & 0xffff) as f32 * f32::from_bits((127 - 78) << 23)).to_bits();
    let magnitude = match exponent {
        0 => subnormal,
        0x007f_0000 => infinite,
        _ => normal,
    };
    f32::from_bits(sign | magnitude)
}

/// Reverses the bytes of each sample of `sample_len` (2, 4 or 8) bytes; does nothing for other lengths.
#[inline(always)]
pub fn swap_in_place(row: &mut [u8], sample_len: usize) {
    match sample_len {
        2 => row
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|bytes| *bytes = u16::from_ne_bytes(*bytes).swap_bytes().to_ne_bytes()),
        4 => row
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|bytes| *bytes = u32::from_ne_bytes(*bytes).swap_bytes().to_ne_bytes()),
        8 => row
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|bytes| *bytes = u64::from_ne_bytes(*bytes).swap_bytes().to_ne_bytes()),
        _ => {}
    }
}

/// Copies a row, reversing the bytes of each sample of `sample_len` (2, 4 or 8) bytes; other lengths are copied as they are.
#[inline(always)]
pub fn swap_copy(src: &[u8], dst: &mut [u8], sample_len: usize) {
    match sample_len {
        2 => _ = groups(src, dst, |bytes| u16::from_ne_bytes(bytes).swap_bytes().to_ne_bytes()),
        4 => _ = groups(src, dst, |bytes| u32::from_ne_bytes(bytes).swap_bytes().to_ne_bytes()),
        8 => _ = groups(src, dst, |bytes| u64::from_ne_bytes(bytes).swap_bytes().to_ne_bytes()),
        _ => {
            let n = src.len().min(dst.len());
            dst[..n].copy_from_slice(&src[..n]);
        }
    }
}

/// Reverses the bits of each byte, for FillOrder 2.
#[inline(always)]
pub fn reverse_bits_in_place(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = byte.reverse_bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, mut seed: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .collect()
    }

    fn plain(src: &[u8], bits: usize, samples: usize) -> Vec<u32> {
        let bit = |i: usize| u32::from(src[i / 8] >> (7 - i % 8) & 1);
        (0..samples.min(src.len() * 8 / bits))
            .map(|i| (i * bits..(i + 1) * bits).fold(0, |all, i| all << 1 | bit(i)))
            .collect()
    }

    #[test]
    fn packed_bits_agree_with_the_plain_reading() {
        for bits in 1..=32 {
            for samples in [0usize, 1, 2, 3, 7, 8, 9, 31, 32, 33, 100, 513] {
                for cut in [0, 1] {
                    let src = noise((samples * bits).div_ceil(8).saturating_sub(cut), samples as u64);
                    let want = plain(&src, bits, samples);
                    let (mut a, mut b, mut c) = (vec![0u8; samples], vec![0u16; samples], vec![0u32; samples]);
                    unpack_u32(&src, &mut c, bits as u32);
                    assert_eq!(c[..want.len()], want, "{bits} bits, {samples} samples");
                    unpack_u16(&src, &mut b, bits as u32);
                    assert!(
                        bits > 16 || b.iter().map(|v| u32::from(*v)).take(want.len()).eq(want.iter().copied()),
                        "{bits}"
                    );
                    unpack_u8(&src, &mut a, bits as u32);
                    assert!(
                        bits > 8 || a.iter().map(|v| u32::from(*v)).take(want.len()).eq(want.iter().copied()),
                        "{bits}"
                    );
                }
            }
        }
    }

    #[test]
    fn three_byte_integers_follow_the_byte_order() {
        let mut out = [0; 2];
        unpack_u24(&[1, 2, 3, 4, 5, 6, 7], &mut out, ByteOrder::Little);
        assert_eq!(out, [0x03_02_01, 0x06_05_04]);
        unpack_u24(&[1, 2, 3, 4, 5, 6], &mut out, ByteOrder::Big);
        assert_eq!(out, [0x01_02_03, 0x04_05_06]);
    }

    /// The conversion step by step: shift a subnormal until its leading one appears.
    fn stepwise(bits: u32) -> u32 {
        let (sign, mut exponent, mut mantissa) = (bits >> 23 & 1, (bits >> 16 & 127) as i32, bits & 0xffff);
        if exponent == 127 {
            return sign << 31 | 0x7f80_0000 | mantissa << 7;
        }
        if exponent == 0 {
            if mantissa == 0 {
                return sign << 31;
            }
            exponent = 1;
            while mantissa & 0x1_0000 == 0 {
                mantissa <<= 1;
                exponent -= 1;
            }
            mantissa &= 0xffff;
        }
        sign << 31 | ((exponent + 64) as u32) << 23 | mantissa << 7
    }

    #[test]
    fn every_24_bit_float_is_widened_exactly() {
        for bits in 0..1 << 24 {
            assert_eq!(widen_f24(bits).to_bits(), stepwise(bits), "{bits:#08x}");
        }
        let mut out = [0.0; 2];
        unpack_f24(&[0x3f, 0, 0, 0xc0, 0x80, 0], &mut out, ByteOrder::Big);
        assert_eq!(out, [1.0, -3.0]);
        unpack_f24(&[0, 0, 0x3f, 0, 0x80, 0xc0], &mut out, ByteOrder::Little);
        assert_eq!(out, [1.0, -3.0]);
    }

    #[test]
    fn swaps_and_reversals() {
        for len in [2, 4, 8] {
            let row = noise(len * 33 + 1, 4);
            let want: Vec<u8> =
                row.chunks_exact(len).flat_map(|c| c.iter().rev().copied().collect::<Vec<_>>()).collect();
            let mut out = vec![0; want.len()];
            swap_copy(&row, &mut out, len);
            assert_eq!(out, want);
            let mut out = row.clone();
            swap_in_place(&mut out, len);
            assert_eq!(out[..want.len()], want);
            assert_eq!(out.last(), row.last());
        }
        let mut bytes = [0b1000_0000, 0b0110_0001, 0xff];
        reverse_bits_in_place(&mut bytes);
        assert_eq!(bytes, [1, 0b1000_0110, 0xff]);
    }
}
