//! The code that differs between the two sample widths.

use crate::jpeg::dct::{Group, LANES};
use crate::jpeg::transpose::transpose;

/// A sample: `u8` in 8-bit frames, `u16` in 12-bit ones.
pub(super) trait Sample: Copy + Default + Send + Sync + 'static {
    /// Fractional bits that the first pass of the transform keeps; fewer for wider samples.
    const PASS1_BITS: u32;
    /// Mid grey.
    const CENTRE: i32;

    /// Converts to a number that the frame can hold.
    fn wide(self) -> i32;
    fn narrow(value: i32) -> Self;
    /// Copies blocks of a plane (64 columns, 8 rows) into the order of a group.
    fn gather(plane: &[Self], at: usize, stride: usize, group: &mut Group<Self>);

    /// Full-range BT.601 in libjpeg's 16-bit fixed point. Chrominance is rounded by a hair less than a
    /// half, so that pure blue and pure red do not become one more than the largest sample.
    #[inline(always)]
    fn ycbcr(rgb: [Self; 3]) -> [Self; 3] {
        const HALF: i32 = 1 << 15;
        let [r, g, b] = rgb.map(Self::wide);
        let offset = (Self::CENTRE << 16) + HALF - 1;
        [
            19595 * r + 38470 * g + 7471 * b + HALF,
            -11059 * r - 21709 * g + 32768 * b + offset,
            32768 * r - 27439 * g - 5329 * b + offset,
        ]
        .map(|v| Self::narrow(v >> 16))
    }
}

impl Sample for u8 {
    const PASS1_BITS: u32 = 2;
    const CENTRE: i32 = 128;

    #[inline(always)]
    fn wide(self) -> i32 {
        i32::from(self)
    }

    #[inline(always)]
    fn narrow(value: i32) -> Self {
        value as u8
    }

    /// An 8 x 8 byte transpose for each row, in 64-bit words.
    #[inline(always)]
    fn gather(plane: &[u8], at: usize, stride: usize, group: &mut Group<u8>) {
        let mut words = [0u64; 64];
        for row in 0..8 {
            let Some(from) = plane.get(at + row * stride..).and_then(|p| p.first_chunk::<64>()) else { return };
            let (blocks, _) = from.as_chunks::<8>();
            for block in 0..8 {
                words[block * 8 + row] = u64::from_le_bytes(blocks[block]);
            }
        }
        let (columns, _) = group.as_chunks_mut::<8>();
        // The rows are independent and adjacent in `words`: this loop is the one that becomes vector code.
        for row in 0..8 {
            let mut w: [u64; 8] = std::array::from_fn(|block| words[block * 8 + row]);
            transpose(&mut w);
            for column in 0..8 {
                words[column * 8 + row] = w[column];
            }
        }
        for row in 0..8 {
            for column in 0..8 {
                columns[row * 8 + column] = words[column * 8 + row].to_le_bytes();
            }
        }
    }
}

impl Sample for u16 {
    const PASS1_BITS: u32 = 1;
    const CENTRE: i32 = 2048;

    /// Clamped, because a raster of 16-bit words may hold values beyond 12 bits.
    #[inline(always)]
    fn wide(self) -> i32 {
        i32::from(self.min(4095))
    }

    #[inline(always)]
    fn narrow(value: i32) -> Self {
        value as u16
    }

    #[inline(always)]
    fn gather(plane: &[u16], at: usize, stride: usize, group: &mut Group<u16>) {
        for (row, group) in group.chunks_exact_mut(8 * LANES).enumerate() {
            let Some(from) = plane.get(at + row * stride..).and_then(|p| p.first_chunk::<64>()) else { return };
            for (i, to) in group.iter_mut().enumerate() {
                *to = from[i % LANES * 8 + i / LANES];
            }
        }
    }
}
