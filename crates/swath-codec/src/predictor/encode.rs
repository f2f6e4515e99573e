//! Applies TIFF predictors 2 and 3.

use swath_raster::simd::{HotLoop, widest};

/// Applies predictor 2: each sample of `out` is the sample of `rows` minus the one a pixel to the left. `word` is the size of a
/// sample, `swap` writes the other byte order.
pub fn horizontal(rows: &[u8], out: &mut [u8], row_len: usize, samples: usize, word: usize, swap: bool) {
    match word {
        1 => widest(Horizontal::<1> { rows, out, row_len, samples, swap }),
        2 => widest(Horizontal::<2> { rows, out, row_len, samples, swap }),
        4 => widest(Horizontal::<4> { rows, out, row_len, samples, swap }),
        8 => widest(Horizontal::<8> { rows, out, row_len, samples, swap }),
        _ => {}
    }
}

struct Horizontal<'a, const WORD: usize> {
    rows: &'a [u8],
    out: &'a mut [u8],
    row_len: usize,
    samples: usize,
    swap: bool,
}

/// Implements [`Difference`] for each sample size.
struct Arithmetic;

macro_rules! differences {
    ($($word:literal $number:ty),*) => {$(
        impl Difference<$word> for Arithmetic {
            #[inline(always)]
            fn less(one: [u8; $word], other: [u8; $word], swap: bool) -> [u8; $word] {
                let value = <$number>::from_ne_bytes(one).wrapping_sub(<$number>::from_ne_bytes(other));
                if swap { value.swap_bytes().to_ne_bytes() } else { value.to_ne_bytes() }
            }
            #[inline(always)]
            fn same(one: [u8; $word], swap: bool) -> [u8; $word] {
                let value = <$number>::from_ne_bytes(one);
                if swap { value.swap_bytes().to_ne_bytes() } else { one }
            }
        }
    )*};
}

trait Difference<const WORD: usize> {
    fn less(one: [u8; WORD], other: [u8; WORD], swap: bool) -> [u8; WORD];
    fn same(one: [u8; WORD], swap: bool) -> [u8; WORD];
}

differences!(1 u8, 2 u16, 4 u32, 8 u64);

impl<const WORD: usize> HotLoop for Horizontal<'_, WORD>
where
    Arithmetic: Difference<WORD>,
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let row_len = self.row_len.max(1);
        for (row, out) in self.rows.chunks_exact(row_len).zip(self.out.chunks_exact_mut(row_len)) {
            let (row, out) = (row.as_chunks::<WORD>().0, out.as_chunks_mut::<WORD>().0);
            let (Some((head, tail)), Some(left)) =
                (out.split_at_mut_checked(self.samples), row.get(..row.len().saturating_sub(self.samples)))
            else {
                continue;
            };
            for (target, sample) in head.iter_mut().zip(row) {
                *target = Arithmetic::same(*sample, self.swap);
            }
            let here = row.get(self.samples..).unwrap_or_default();
            for ((target, sample), before) in tail.iter_mut().zip(here).zip(left) {
                *target = Arithmetic::less(*sample, *before, self.swap);
            }
        }
    }
}

/// Applies predictor 3: sorts the bytes of a row into planes, most significant first in either byte order, and stores the
/// difference of each from the one `samples` bytes before. `plane` is working memory for one row.
pub fn floating_point(rows: &[u8], out: &mut [u8], row_len: usize, samples: usize, word: usize, plane: &mut Vec<u8>) {
    plane.clear();
    plane.resize(row_len, 0);
    let row_len = row_len.max(1);
    for (row, out) in rows.chunks_exact(row_len).zip(out.chunks_exact_mut(row_len)) {
        match word {
            2 => widest(Split::<2> { row, plane }),
            4 => widest(Split::<4> { row, plane }),
            8 => widest(Split::<8> { row, plane }),
            _ => return,
        }
        widest(Horizontal::<1> { rows: plane, out, row_len, samples, swap: false });
    }
}

struct Split<'a, const WORD: usize> {
    row: &'a [u8],
    plane: &'a mut [u8],
}

impl<const WORD: usize> HotLoop for Split<'_, WORD> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let words = self.row.as_chunks::<WORD>().0;
        let mut planes = self.plane.chunks_exact_mut(words.len().max(1));
        for significance in 0..WORD {
            let index = if cfg!(target_endian = "little") { WORD - 1 - significance } else { significance };
            let Some(plane) = planes.next() else { return };
            for (target, word) in plane.iter_mut().zip(words) {
                *target = word[index];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_to_the_same_sample_of_the_pixel_before() {
        let mut out = [0; 6];
        horizontal(&[1, 10, 4, 30, 2, 255], &mut out, 6, 2, 1, false);
        assert_eq!(out, [1, 10, 3, 20, 254, 225]);
        let row: Vec<u8> = [5_u16, 3, 1000].iter().flat_map(|value| value.to_ne_bytes()).collect();
        horizontal(&row, &mut out, 6, 1, 2, true);
        let swapped: Vec<u8> = [5_u16, 65534, 997].iter().flat_map(|value| value.swap_bytes().to_ne_bytes()).collect();
        assert_eq!(out.to_vec(), swapped);
    }

    #[test]
    fn float_bytes_are_split_from_the_most_significant() {
        let row: Vec<u8> = [1.0_f32, 2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut out = [0; 8];
        floating_point(&row, &mut out, 8, 1, 4, &mut Vec::new());
        // Planes 3f 40 | 80 00 | 00 00 | 00 00, then differences.
        assert_eq!(out, [0x3f, 1, 0x40, 0x80, 0, 0, 0, 0]);
    }
}
