//! The source rows of a call, addressed by their number in the image.

use super::kind::Kind;
use std::ops::Range;

/// Rows of one band.
pub struct View<'a, T> {
    /// Samples, or parts of complex samples.
    pub words: &'a [T],
    /// Mask bytes of the same pixels.
    pub mask: Option<&'a [u8]>,
    /// Words per row.
    pub width: usize,
    /// Pixels per row.
    pub pixels: usize,
    /// Number of the first row.
    pub first: u32,
}

impl<'a, T> View<'a, T> {
    /// Returns a row. It is empty if the view lacks it, which `Shrink::check` has excluded.
    #[inline]
    pub fn row(&self, at: u32) -> &'a [T] {
        let from = (at - self.first.min(at)) as usize * self.width;
        self.words.get(from..from + self.width).unwrap_or_default()
    }

    /// Returns a row of the mask.
    #[inline]
    pub fn mask_row(&self, at: u32) -> Option<&'a [u8]> {
        let from = (at - self.first.min(at)) as usize * self.pixels;
        self.mask.map(|mask| mask.get(from..from + self.pixels).unwrap_or_default())
    }
}

/// Returns the validity of some columns of a row, from the mask or by comparing with nodata; `None` if all are valid. Kernels
/// use the bytes as weights: 255 for pixels that are not nodata.
#[inline]
pub fn validity<'a, K: Kind>(
    view: &View<'a, K::Raw>,
    nodata: Option<K::Raw>,
    row: u32,
    columns: Range<usize>,
    spare: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let Some(nodata) = nodata else {
        return view.mask_row(row).map(|mask| mask.get(columns).unwrap_or_default());
    };
    let samples = view.row(row).get(columns).unwrap_or_default();
    spare.clear();
    spare.resize(samples.len(), 0);
    crate::simd::widest(Test::<K> { samples, nodata, out: spare });
    Some(spare)
}

struct Test<'a, K: Kind> {
    samples: &'a [K::Raw],
    nodata: K::Raw,
    out: &'a mut [u8],
}

impl<K: Kind> crate::simd::HotLoop for Test<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&sample, out) in self.samples.iter().zip(self.out) {
            *out = if K::is_nodata(sample, self.nodata) { 0 } else { 255 };
        }
    }
}
