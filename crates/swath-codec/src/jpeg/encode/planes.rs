//! Turns interleaved rows into the planes that are transformed: converts colours, subsamples chrominance, and repeats edges to fill whole blocks.
//! Every step rounds as libjpeg does, so that the coefficients are the same as libjpeg's.

use super::layout::{Layout, MAX_COMPONENTS};
use super::sample::Sample;
use swath_raster::{
    memory::{OutOfMemory, resize},
    simd::HotLoop,
};

/// The planes of one MCU row, reused between tiles.
#[derive(Debug, Default)]
pub(super) struct McuRow<S> {
    pub planes: [Vec<S>; MAX_COMPONENTS],
    /// Red, green and blue of one row. Splitting pixels first gives two simple loops that vectorise; a single loop would not.
    split_rgb: [Vec<S>; 3],
    /// Rows of chrominance before they are subsampled.
    full_chroma: [Vec<S>; 2],
}

impl<S: Sample> McuRow<S> {
    /// Makes room for the planes of an MCU row of this layout.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub fn fit(&mut self, layout: &Layout) -> Result<(), OutOfMemory> {
        for (plane, component) in self.planes.iter_mut().zip(layout.components()) {
            resize(plane, component.mcu_row_len())?;
        }
        let luma = layout.components().first().map_or(0, |component| component.stride);
        for row in &mut self.split_rgb {
            resize(row, layout.width)?;
        }
        for rows in &mut self.full_chroma {
            resize(rows, luma * layout.down)?;
        }
        Ok(())
    }
}

/// Fills the planes from at most as many rows as an MCU has.
pub(super) struct Fill<'t, S> {
    pub layout: &'t Layout,
    /// Whether to convert RGB to YCbCr.
    pub convert: bool,
    pub src: &'t [S],
    pub mcu_row_planes: &'t mut McuRow<S>,
}

impl<S: Sample> HotLoop for Fill<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layout, convert, src, mcu_row_planes } = self;
        let count = layout.components().len();
        let mut filled = 0;
        for (y, row) in src.chunks_exact((layout.width * count).max(1)).enumerate() {
            match count {
                3 if convert => ycbcr(layout, row, y, mcu_row_planes),
                1 => split::<S, 1>(layout, row, y, mcu_row_planes),
                2 => split::<S, 2>(layout, row, y, mcu_row_planes),
                3 => split::<S, 3>(layout, row, y, mcu_row_planes),
                _ => split::<S, 4>(layout, row, y, mcu_row_planes),
            }
            filled = y + 1;
        }
        if convert && !filled.is_multiple_of(layout.down) {
            // An odd last row is its own partner.
            for rows in &mut mcu_row_planes.full_chroma {
                let half = rows.len() / 2;
                rows.copy_within(..half, half);
            }
            subsample(layout, filled / layout.down, mcu_row_planes);
        }
        for (component, plane) in layout.components().iter().zip(&mut mcu_row_planes.planes) {
            // Counted after subsampling: repeating rows before it would average other samples.
            let rows = (filled * component.down).div_ceil(layout.down);
            let Some(last) = rows.checked_sub(1).map(|y| y * component.stride) else { return };
            for y in rows..8 * component.down {
                plane.copy_within(last..last + component.stride, y * component.stride);
            }
        }
    }
}

/// Splits the components of a row.
#[inline(always)]
fn split<S: Sample, const N: usize>(layout: &Layout, row: &[S], y: usize, mcu_row_planes: &mut McuRow<S>) {
    let (pixels, _) = row.as_chunks::<N>();
    for ((n, component), plane) in layout.components().iter().enumerate().zip(&mut mcu_row_planes.planes).take(N) {
        let Some(to) = plane.get_mut(y * component.stride..(y + 1) * component.stride) else { return };
        for (to, pixel) in to.iter_mut().zip(pixels) {
            *to = pixel[n];
        }
        draw_out(to, layout.width, component.blocks * 8);
    }
}

/// Converts a row of RGB to luminance and chrominance.
#[inline(always)]
fn ycbcr<S: Sample>(layout: &Layout, row: &[S], y: usize, mcu_row_planes: &mut McuRow<S>) {
    let &[luma, chroma, ..] = layout.components() else { return };
    let subsampled = layout.across > 1;
    let [planes_y, planes_cb, planes_cr, _] = &mut mcu_row_planes.planes;
    let [full_cb, full_cr] = &mut mcu_row_planes.full_chroma;
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
    for (n, to) in mcu_row_planes.split_rgb.iter_mut().enumerate() {
        for (to, pixel) in to.iter_mut().zip(pixels) {
            *to = pixel[n];
        }
    }
    let [r, g, b] = &mcu_row_planes.split_rgb;
    let rgb = r.iter().zip(g).zip(b);
    for ((((&r, &g), &b), y), (cb, cr)) in rgb.zip(to_y.iter_mut()).zip(to_cb.iter_mut().zip(to_cr.iter_mut())) {
        [*y, *cb, *cr] = S::ycbcr([r, g, b]);
    }
    draw_out(to_y, layout.width, luma.blocks * 8);
    let chroma_width = chroma.blocks * 8 * layout.across;
    draw_out(to_cb, layout.width, chroma_width);
    draw_out(to_cr, layout.width, chroma_width);
    if subsampled && (y + 1).is_multiple_of(layout.down) {
        subsample(layout, y / layout.down, mcu_row_planes);
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

/// Averages full rows into row `y` of the chrominance planes. Sums are alternately rounded down and up, which avoids bias.
#[inline(always)]
fn subsample<S: Sample>(layout: &Layout, y: usize, mcu_row_planes: &mut McuRow<S>) {
    let Some(component) = layout.components().get(1) else { return };
    for (plane, rows) in mcu_row_planes.planes.iter_mut().skip(1).zip(&mcu_row_planes.full_chroma) {
        let Some(to) = plane.get_mut(y * component.stride..(y + 1) * component.stride) else { return };
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
