//! Nearest neighbour: copies one source pixel, so only the size of a sample matters.

use crate::simd::{HotLoop, widest};
use bytemuck::Pod;

/// Computes a target row: the words of `row` at the positions in `picks`, or every other word of `pairs` without `picks`.
pub fn row<T: Pod>(pairs: &[T], row: &[T], picks: Option<&[u32]>, out: &mut [T]) {
    match picks {
        None => widest(EveryOther { pairs, out }),
        Some(picks) => {
            for (&at, out) in picks.iter().zip(out) {
                if let Some(&word) = row.get(at as usize) {
                    *out = word;
                }
            }
        }
    }
}

struct EveryOther<'a, T> {
    pairs: &'a [T],
    out: &'a mut [T],
}

impl<T: Pod> HotLoop for EveryOther<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (pair, out) in self.pairs.chunks_exact(2).zip(self.out) {
            *out = pair[0];
        }
    }
}
