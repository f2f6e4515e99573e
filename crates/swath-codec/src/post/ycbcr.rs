//! Converts YCbCr to RGB (TIFF 6.0, section 21).

use swath_tiff::structure::layout::YCbCr;

use crate::spec::TileSpec;

/// Converts pixels by the file's coefficients and reference levels.
struct Convert {
    luma: [f64; 2],
    chroma: [[f64; 2]; 2],
    coefficients: [f64; 3],
    /// Factors of red chroma in red and green and of blue chroma in green and blue, where the coefficients cannot be weights.
    limited: Option<[f64; 4]>,
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
        let (luma, chroma) = (scale(y0, y1, 255.0), [scale(b0, b1, 127.0), scale(r0, r1, 127.0)]);
        Self { luma, chroma, coefficients, limited: limited(coefficients) }
    }

    fn rgb(&self, luma: u8, blue: u8, red: u8) -> [u8; 3] {
        let y = self.luma[0] * f64::from(luma) + self.luma[1];
        let cb = self.chroma[0][0] * f64::from(blue) + self.chroma[0][1];
        let cr = self.chroma[1][0] * f64::from(red) + self.chroma[1][1];
        let rgb = match self.limited {
            None => {
                let [weight_red, weight_green, weight_blue] = self.coefficients;
                let r = y + cr * (2.0 - 2.0 * weight_red);
                let b = y + cb * (2.0 - 2.0 * weight_blue);
                [r, (y - weight_red * r - weight_blue * b) / weight_green, b]
            }
            Some([red, green_red, green_blue, blue]) => {
                [y + cr * red, y - cr * green_red - cb * green_blue, y + cb * blue]
            }
        };
        // `as` saturates, and takes NaN (from absurd reference levels) to 0.
        rgb.map(|value| (value + 0.5).floor() as u8)
    }
}

/// The factors of chroma, limited to 0 to 2 as libtiff limits them; `None` where the coefficients are weights, which add up to 1.
fn limited([weight_red, weight_green, weight_blue]: [f64; 3]) -> Option<[f64; 4]> {
    let (red, blue) = (2.0 - 2.0 * weight_red, 2.0 - 2.0 * weight_blue);
    let green = |weight: f64, factor: f64| if weight_green == 0.0 { 0.0 } else { weight * factor / weight_green };
    let factors = [red, green(weight_red, red), green(weight_blue, blue), blue];
    let total = weight_red + weight_green + weight_blue;
    let sound =
        (total - 1.0).abs() < 1e-3 && weight_green != 0.0 && factors.iter().all(|factor| (0.0..=2.0).contains(factor));
    (!sound).then(|| factors.map(|factor| if factor.is_nan() { 0.0 } else { factor.clamp(0.0, 2.0) }))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb(coefficients: [f64; 3], pixel: [u8; 3]) -> [u8; 3] {
        let reference = [0.0, 255.0, 128.0, 255.0, 128.0, 255.0];
        let mut pixel = pixel;
        pixels_to_rgb(&YCbCr { subsampling: (1, 1), coefficients, reference }, &mut pixel);
        pixel
    }

    #[test]
    fn damaged_coefficients_are_limited_as_in_libtiff() {
        // Values of GDAL 3.12 for these coefficients in `ycbcr_lzw_bt709.tif`.
        assert_eq!(rgb([1063.0, 5000.0, 447.0], [191, 128, 200]), [191, 191, 191]);
        assert_eq!(rgb([1.5e-42, 7e-42, 6e-43], [191, 128, 128]), [191, 191, 191]);
        // Coefficients of nothing leave luma, and do not divide by zero.
        assert_eq!(rgb([0.3, 0.0, 0.1], [100, 128, 200])[1], 100);
        assert_eq!(rgb([f64::NAN; 3], [100, 7, 200]), [100, 100, 100]);
    }

    #[test]
    fn sound_coefficients_are_not_limited() {
        for coefficients in [[0.299, 0.587, 0.114], [0.2126, 0.7152, 0.0722], [0.2627, 0.678, 0.0593]] {
            assert_eq!(limited(coefficients), None);
        }
    }
}
