//! The two sample widths of lossy frames.

use crate::jpeg::dct::{Group, LANES};
use crate::jpeg::transpose::transpose;

/// A decoded sample: `u8` for 8-bit frames, `u16` for 12-bit ones.
pub(super) trait Sample: Copy + Default + Send + Sync + 'static {
    /// Fractional bits that the first pass of the transform keeps; fewer for wider samples.
    const PASS1_BITS: u32;
    /// Mid grey.
    const CENTRE: i32;
    /// Largest sample.
    const MAX: i32;
    /// Bytes in the destination.
    const BYTES: usize;

    fn wide(self) -> u16;
    fn narrow(value: u16) -> Self;
    fn dequantise(coef: i16, quant: u16) -> i32;
    /// Writes the rows of a finished group, in `[column][row][block]` order, to the plane.
    fn store(samples: &Group<Self>, plane: &mut [Self], at: usize, stride: usize);
    fn put(self, to: &mut [u8]);

    /// JFIF's YCbCr to RGB in libjpeg's 16-bit fixed point; its tables round in exactly this way.
    #[inline(always)]
    fn rgb(y: Self, cb: Self, cr: Self) -> [Self; 3] {
        let y = i32::from(y.wide());
        let (cb, cr) = (i32::from(cb.wide()) - Self::CENTRE, i32::from(cr.wide()) - Self::CENTRE);
        let r = y + ((91881 * cr + 32768) >> 16);
        let g = y + ((-22554 * cb - 46802 * cr + 32768) >> 16);
        let b = y + ((116130 * cb + 32768) >> 16);
        [r, g, b].map(Self::clamped)
    }

    #[inline(always)]
    fn clamped(value: i32) -> Self {
        Self::narrow(value.clamp(0, Self::MAX) as u16)
    }

    #[inline(always)]
    fn level_shift(value: i32) -> Self {
        Self::clamped(value.wrapping_add(Self::CENTRE))
    }
}

impl Sample for u8 {
    const PASS1_BITS: u32 = 2;
    const CENTRE: i32 = 128;
    const MAX: i32 = 255;
    const BYTES: usize = 1;

    #[inline(always)]
    fn wide(self) -> u16 {
        u16::from(self)
    }

    #[inline(always)]
    fn narrow(value: u16) -> Self {
        value as u8
    }

    /// Wraps in 16 bits like libjpeg-turbo's vector code, which shows in damaged data only.
    #[inline(always)]
    fn dequantise(coef: i16, quant: u16) -> i32 {
        i32::from(coef.wrapping_mul(quant as i16))
    }

    /// The shift that precedes this leaves 14 bits, so that sixteen hold the sum and the clamp becomes a saturating pack.
    #[inline(always)]
    fn level_shift(value: i32) -> u8 {
        (value as i16).wrapping_add(128).clamp(0, 255) as u8
    }

    /// An 8 x 8 byte transpose for each row, in 64-bit words: the loop over rows is the one that becomes vector code.
    #[inline(always)]
    fn store(samples: &Group<u8>, plane: &mut [u8], at: usize, stride: usize) {
        let mut words = [0u64; 64];
        let (columns, _) = samples.as_chunks::<8>();
        for row in 0..8 {
            let mut w: [u64; 8] = std::array::from_fn(|column| u64::from_le_bytes(columns[column * 8 + row]));
            transpose(&mut w);
            for block in 0..8 {
                words[block * 8 + row] = w[block];
            }
        }
        for row in 0..8 {
            if let Some(to) = plane.get_mut(at + row * stride..).and_then(|p| p.first_chunk_mut::<64>()) {
                let (blocks, _) = to.as_chunks_mut::<8>();
                for block in 0..8 {
                    blocks[block] = words[block * 8 + row].to_le_bytes();
                }
            }
        }
    }

    /// The same roundings in 16 bits: `k c / 65536` is split into a whole multiple of `c` and a remainder, whose product with `2 c` is rounded after taking
    /// its high half. Green has two products under one rounding and needs the 32.
    #[inline(always)]
    fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
        let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
        let part = |c: i16, k: i16| (((i32::from(2 * c) * i32::from(k)) >> 16) as i16 + 1) >> 1;
        let r = y + cr + part(cr, 26345);
        let b = y + 2 * cb + part(cb, -14942);
        let g = y - cr + ((-22554 * i32::from(cb) + 18734 * i32::from(cr) + 32768) >> 16) as i16;
        [r, g, b].map(|v| v.clamp(0, 255) as u8)
    }

    #[inline(always)]
    fn put(self, to: &mut [u8]) {
        if let Some(to) = to.first_mut() {
            *to = self;
        }
    }
}

impl Sample for u16 {
    const PASS1_BITS: u32 = 1;
    const CENTRE: i32 = 2048;
    const MAX: i32 = 4095;
    const BYTES: usize = 2;

    #[inline(always)]
    fn wide(self) -> u16 {
        self
    }

    #[inline(always)]
    fn narrow(value: u16) -> Self {
        value
    }

    #[inline(always)]
    fn dequantise(coef: i16, quant: u16) -> i32 {
        i32::from(coef).wrapping_mul(i32::from(quant))
    }

    #[inline(always)]
    fn store(samples: &Group<u16>, plane: &mut [u16], at: usize, stride: usize) {
        for row in 0..8 {
            if let Some(to) = plane.get_mut(at + row * stride..).and_then(|p| p.first_chunk_mut::<64>()) {
                for (x, to) in to.iter_mut().enumerate() {
                    *to = samples[(x % 8 * 8 + row) * LANES + x / 8];
                }
            }
        }
    }

    #[inline(always)]
    fn put(self, to: &mut [u8]) {
        if let Some(to) = to.first_chunk_mut::<2>() {
            *to = self.to_ne_bytes();
        }
    }
}
