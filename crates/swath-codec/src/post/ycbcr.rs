//! Converts YCbCr to RGB (TIFF 6.0, section 21).

use swath_tiff::structure::layout::YCbCr;

use crate::spec::TileSpec;

/// Converts pixels by the file's coefficients and reference levels.
struct Convert {
    luma: [f64; 2],
    chroma: [[f64; 2]; 2],
    coefficients: [f64; 3],
}

impl Convert {
    fn new(ycbcr: Option<&YCbCr>) -> Self {
        let (coefficients, reference) = match ycbcr {
            Some(ycbcr) => (ycbcr.coefficients, ycbcr.reference),
            None => ([0.299, 0.587, 0.114], [0.0, 255.0, 128.0, 255.0, 128.0, 255.0]),
        };
        // Black and white reference levels scale a code to the full range; chroma covers half the range.
        let scale = |black: f64, white: f64, range: f64| {
            let span = if white == black { 1.0 } else { white - black };
            [range / span, -black * range / span]
        };
        let [y0, y1, b0, b1, r0, r1] = reference;
        Self { luma: scale(y0, y1, 255.0), chroma: [scale(b0, b1, 127.0), scale(r0, r1, 127.0)], coefficients }
    }

    fn rgb(&self, luma: u8, blue: u8, red: u8) -> [u8; 3] {
        let [weight_red, weight_green, weight_blue] = self.coefficients;
        let y = self.luma[0] * f64::from(luma) + self.luma[1];
        let cb = self.chroma[0][0] * f64::from(blue) + self.chroma[0][1];
        let cr = self.chroma[1][0] * f64::from(red) + self.chroma[1][1];
        let r = y + cr * (2.0 - 2.0 * weight_red);
        let b = y + cb * (2.0 - 2.0 * weight_blue);
        let g = if weight_green == 0.0 { y } else { (y - weight_red * r - weight_blue * b) / weight_green };
        // `as` saturates, and takes NaN (from absurd reference levels) to 0.
        [r, g, b].map(|value| (value + 0.5).floor() as u8)
    }
}

/// Converts blocks of `across × down` luma samples and a chroma pair to RGB pixels. The spec gives the lengths of both buffers
/// for `rows` rows.
pub(crate) fn unpack_to_rgb(spec: &TileSpec, rows: u32, packed: &[u8], rgb: &mut [u8]) {
    let Some((across, down)) = spec.packed_subsampling else { return };
    let (across, down) = (usize::from(across), usize::from(down));
    let width = spec.width as usize;
    let block_len = across * down + 2;
    let blocks_across = width.div_ceil(across);
    let convert = Convert::new(spec.ycbcr.as_ref());
    for (index, block) in packed.chunks_exact(block_len).enumerate() {
        let (block_x, block_y) = (index % blocks_across * across, index / blocks_across * down);
        let Some((luma, &[blue, red])) = block.split_last_chunk::<2>() else { continue };
        for (position, value) in luma.iter().enumerate() {
            let (x, y) = (block_x + position % across, block_y + position / across);
            if x < width
                && y < rows as usize
                && let Some(pixel) = rgb.get_mut((y * width + x) * 3..).and_then(<[u8]>::first_chunk_mut::<3>)
            {
                *pixel = convert.rgb(*value, blue, red);
            }
        }
    }
}

/// Converts pixels of one luma and two chroma samples to RGB in place.
pub fn pixels_to_rgb(ycbcr: &YCbCr, pixels: &mut [u8]) {
    let convert = Convert::new(Some(ycbcr));
    for pixel in pixels.as_chunks_mut::<3>().0 {
        *pixel = convert.rgb(pixel[0], pixel[1], pixel[2]);
    }
}
