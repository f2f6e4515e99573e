//! Takes one pixel of many; no arithmetic, so only the size of a sample matters.

use crate::simd::{Task, widest};
use bytemuck::Pod;

/// A target row: every other word of `pairs` without `picks`, else the words of `row` that they name.
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

impl<T: Pod> Task for EveryOther<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (pair, out) in self.pairs.chunks_exact(2).zip(self.out) {
            *out = pair[0];
        }
    }
}
