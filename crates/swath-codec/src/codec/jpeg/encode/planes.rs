//! From interleaved rows to the planes that are transformed: colour conversion, subsampling, and edges drawn out to whole blocks, each rounded as
//! libjpeg does, so that the coefficients come out as its own.

use super::layout::{Layout, MAX_COMPONENTS};
use super::sample::Sample;
use crate::simd::Task;

/// The planes of one MCU row, kept between tiles.
#[derive(Debug, Default)]
pub(super) struct Band<S> {
    pub planes: [Vec<S>; MAX_COMPONENTS],
    /// A row's red, green and blue. Taking the pixels apart first leaves two simple loops where one would not become vector code.
    apart: [Vec<S>; 3],
    /// Rows of chrominance before they are subsampled.
    full: [Vec<S>; 2],
}

impl<S: Sample> Band<S> {
    /// Makes room for a band of this layout.
    pub fn fit(&mut self, layout: &Layout) {
        for (plane, part) in self.planes.iter_mut().zip(layout.parts()) {
            plane.resize(part.band(), S::default());
        }
        let luma = layout.parts().first().map_or(0, |part| part.stride);
        for row in &mut self.apart {
            row.resize(layout.width, S::default());
        }
        for rows in &mut self.full {
            rows.resize(luma * layout.down, S::default());
        }
    }
}

/// Fills a band from at most as many rows as an MCU has.
pub(super) struct Fill<'t, S> {
    pub layout: &'t Layout,
    /// Whether to convert RGB to YCbCr.
    pub convert: bool,
    pub src: &'t [S],
    pub band: &'t mut Band<S>,
}

impl<S: Sample> Task for Fill<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layout, convert, src, band } = self;
        let count = layout.parts().len();
        let mut filled = 0;
        for (y, row) in src.chunks_exact((layout.width * count).max(1)).enumerate() {
            match count {
                3 if convert => ycbcr(layout, row, y, band),
                1 => split::<S, 1>(layout, row, y, band),
                2 => split::<S, 2>(layout, row, y, band),
                3 => split::<S, 3>(layout, row, y, band),
                _ => split::<S, 4>(layout, row, y, band),
            }
            filled = y + 1;
        }
        if convert && !filled.is_multiple_of(layout.down) {
            // An odd last row is its own partner.
            for rows in &mut band.full {
                let half = rows.len() / 2;
                rows.copy_within(..half, half);
            }
            subsample(layout, filled / layout.down, band);
        }
        for (part, plane) in layout.parts().iter().zip(&mut band.planes) {
            // Counted after subsampling: drawing out the rows before it would average other samples.
            let rows = (filled * part.down).div_ceil(layout.down);
            let Some(last) = rows.checked_sub(1).map(|y| y * part.stride) else { return };
            for y in rows..8 * part.down {
                plane.copy_within(last..last + part.stride, y * part.stride);
            }
        }
    }
}

/// The components of a row as they are.
#[inline(always)]
fn split<S: Sample, const N: usize>(layout: &Layout, row: &[S], y: usize, band: &mut Band<S>) {
    let (pixels, _) = row.as_chunks::<N>();
    for ((n, part), plane) in layout.parts().iter().enumerate().zip(&mut band.planes).take(N) {
        let Some(to) = plane.get_mut(y * part.stride..(y + 1) * part.stride) else { return };
        for (to, pixel) in to.iter_mut().zip(pixels) {
            *to = pixel[n];
        }
        draw_out(to, layout.width, part.blocks * 8);
    }
}

/// A row of RGB into luminance and chrominance.
#[inline(always)]
fn ycbcr<S: Sample>(layout: &Layout, row: &[S], y: usize, band: &mut Band<S>) {
    let &[luma, chroma, ..] = layout.parts() else { return };
    let subsampled = layout.across > 1;
    let [planes_y, planes_cb, planes_cr, _] = &mut band.planes;
    let [full_cb, full_cr] = &mut band.full;
    let (cb, cr, at) = if subsampled {
        (full_cb, full_cr, y % layout.down * luma.stride)
    } else {
        (planes_cb, planes_cr, y * chroma.stride)
    };
    let at_luma = y * luma.stride;
    let (Some(to_y), Some(to_cb), Some(to_cr)) = (
        planes_y.get_mut(at_luma..at_luma + luma.stride),
        cb.get_mut(at..at + luma.stride),
        cr.get_mut(at..at + luma.stride),
    ) else {
        return;
    };
    let (pixels, _) = row.as_chunks::<3>();
    for (n, to) in band.apart.iter_mut().enumerate() {
        for (to, pixel) in to.iter_mut().zip(pixels) {
            *to = pixel[n];
        }
    }
    let [r, g, b] = &band.apart;
    let rgb = r.iter().zip(g).zip(b);
    for ((((&r, &g), &b), y), (cb, cr)) in rgb.zip(to_y.iter_mut()).zip(to_cb.iter_mut().zip(to_cr.iter_mut())) {
        [*y, *cb, *cr] = S::ycbcr([r, g, b]);
    }
    draw_out(to_y, layout.width, luma.blocks * 8);
    let chroma_width = chroma.blocks * 8 * layout.across;
    draw_out(to_cb, layout.width, chroma_width);
    draw_out(to_cr, layout.width, chroma_width);
    if subsampled && (y + 1).is_multiple_of(layout.down) {
        subsample(layout, y / layout.down, band);
    }
}

/// Repeats the last sample of the image to the end of its last block.
#[inline(always)]
fn draw_out<S: Sample>(row: &mut [S], width: usize, to: usize) {
    let Some(&last) = width.checked_sub(1).and_then(|x| row.get(x)) else { return };
    if let Some(rest) = row.get_mut(width..to) {
        rest.fill(last);
    }
}

/// Averages full rows into row `y` of the chrominance planes. The sums are rounded down and up by turns, so that the whole is not biased.
#[inline(always)]
fn subsample<S: Sample>(layout: &Layout, y: usize, band: &mut Band<S>) {
    let Some(part) = layout.parts().get(1) else { return };
    for (plane, rows) in band.planes.iter_mut().skip(1).zip(&band.full) {
        let Some(to) = plane.get_mut(y * part.stride..(y + 1) * part.stride) else { return };
        let (upper, lower) = rows.split_at(rows.len() / layout.down);
        let (upper, _) = upper.as_chunks::<2>();
        let (lower, _) = lower.as_chunks::<2>();
        let sum = |pair: &[S; 2]| pair[0].wide() as u16 + pair[1].wide() as u16;
        if layout.down == 1 {
            for (x, (to, pair)) in to.iter_mut().zip(upper).enumerate() {
                *to = S::narrow(i32::from((sum(pair) + (x as u16 & 1)) >> 1));
            }
        } else {
            for (x, ((to, upper), lower)) in to.iter_mut().zip(upper).zip(lower).enumerate() {
                *to = S::narrow(i32::from((sum(upper) + sum(lower) + 1 + (x as u16 & 1)) >> 2));
            }
        }
    }
}
