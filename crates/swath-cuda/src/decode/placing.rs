//! Where decoded samples go: the output of a read, and the parameters of the kernel that places them there.

use swath_codec::TileSpec;
use swath_tiff::{
    SampleFormat,
    structure::{ByteOrder, Predictor},
};

use crate::{
    driver::launch::place::{PlaceParams, SampleForm},
    error::DeviceError,
};

/// How a tile lies on the device after a library decoded it: one plane for each sample, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneLayout {
    /// Bytes from row to row: a multiple of the vector length, so that kernels read rows by vectors.
    pub pitch: usize,
    /// Planes.
    pub planes: usize,
}

impl PlaneLayout {
    /// Returns the layout of tiles of this spec.
    pub fn new(spec: &TileSpec) -> Self {
        const VECTOR: usize = 16;
        let row = spec.width as usize * spec.sample.size();
        Self { pitch: row.next_multiple_of(VECTOR), planes: usize::from(spec.samples) }
    }

    /// Returns the bytes of a tile of `rows` rows.
    pub fn tile_len(&self, rows: u32) -> usize {
        (self.pitch * self.planes).saturating_mul(rows as usize)
    }

    /// Returns the rows of a tile of `tile_len` bytes.
    pub(crate) fn rows(&self, tile_len: usize) -> usize {
        tile_len / (self.pitch * self.planes).max(1)
    }

    /// Returns the bytes of a plane of such a tile.
    pub(crate) fn plane_len(&self, tile_len: usize) -> usize {
        tile_len / self.planes.max(1)
    }
}

/// The shape of a read's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bands.
    pub bands: u32,
    /// Bytes of a sample.
    pub sample_len: usize,
    /// Whether the bands of a pixel lie side by side. Otherwise each band is a plane.
    pub pixel_interleaved: bool,
}

impl Output {
    /// Returns the bytes of the output, or `None` where they overflow.
    pub fn len(&self) -> Option<usize> {
        (self.width as usize)
            .checked_mul(self.height as usize)?
            .checked_mul(self.bands as usize)?
            .checked_mul(self.sample_len)
    }

    /// Whether the output has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the bytes from row to row, from pixel to pixel and from band to band.
    pub fn steps(&self) -> [u64; 3] {
        let [width, height, bands, sample] =
            [self.width.into(), self.height.into(), self.bands.into(), self.sample_len as u64];
        if self.pixel_interleaved {
            [width * bands * sample, bands * sample, sample]
        } else {
            [width * sample, sample, width * height * sample]
        }
    }
}

/// Most samples in a row of a tile that the placing kernel can count.
const MOST_ROW_SAMPLES: u32 = 0x3fff_ffff;

/// Returns the most columns of a tile that the placing kernel can count.
fn most_columns(spec: &TileSpec) -> u32 {
    MOST_ROW_SAMPLES / u32::from(spec.samples.max(1))
}

/// Declines tiles that are so wide that the placing kernel would not reach the columns before `end`. Only hostile files
/// have such tiles. The kernel still places their first columns where no predictor needs the others.
///
/// # Errors
/// When the kernel would not reach them.
pub fn check_columns(spec: &TileSpec, end: u32) -> Result<(), DeviceError> {
    let most = most_columns(spec);
    if end > most || (spec.width > most && spec.predictor != Predictor::None) {
        return Err(DeviceError::Declined(format!("tiles of {} columns are not placed on the GPU", spec.width)));
    }
    Ok(())
}

/// Returns the parameters for placing one plane of a tile that a library decoded.
pub(crate) fn plane_params(spec: &TileSpec, output: &Output, fill: &[u8]) -> PlaceParams {
    PlaceParams {
        stored_row: PlaneLayout::new(spec).pitch as u64,
        tile_width: spec.width.min(MOST_ROW_SAMPLES),
        tile_samples: 1,
        ..place_params(spec, false, output, 1, fill)
    }
}

/// Returns the parameters for placing bytes as the codec leaves them (`stored`), or whole samples in native order.
pub(crate) fn place_params(spec: &TileSpec, stored: bool, output: &Output, takes: usize, fill: &[u8]) -> PlaceParams {
    let sample_len = spec.sample.size() as u32;
    let [row_step, pixel_step, band_step] = output.steps();
    let mut sample_fill = [0; 16];
    for (place, byte) in sample_fill.iter_mut().zip(fill) {
        *place = *byte;
    }
    let mut params = PlaceParams {
        row_step,
        pixel_step,
        band_step,
        stored_row: spec.native_row_len() as u64,
        tile_width: spec.width.min(most_columns(spec)),
        tile_samples: spec.samples.into(),
        takes: takes as u32,
        form: SampleForm::Whole,
        bits: sample_len * 8,
        sample_len,
        word: spec.sample.word() as u32,
        swap: false,
        predictor: 0,
        fill: sample_fill,
    };
    if !stored {
        return params;
    }
    params.stored_row = spec.stored_row_len() as u64;
    params.bits = spec.bits.into();
    params.swap = spec.order.is_foreign() && spec.sample.word() > 1;
    match (spec.predictor, spec.bits, spec.format) {
        (Predictor::Horizontal, bits, _) => {
            params.predictor = 2;
            params.word = u32::from(bits) / 8;
        }
        // Predictor 3 has a byte order of its own: its samples come out in native order.
        (Predictor::FloatingPoint, 24, _) => {
            params.predictor = 3;
            params.form = SampleForm::Float24Little;
            params.swap = false;
        }
        (Predictor::FloatingPoint, ..) => {
            params.predictor = 3;
            params.swap = false;
        }
        (Predictor::None, 24, SampleFormat::Float) => {
            params.form =
                if spec.order == ByteOrder::Little { SampleForm::Float24Little } else { SampleForm::Float24Big };
        }
        // Read against the byte order of the file, as GDAL and our CPU decoder do.
        (Predictor::None, 24, _) => {
            params.form =
                if spec.order == ByteOrder::Little { SampleForm::UInt24Big } else { SampleForm::UInt24Little };
        }
        (Predictor::None, bits, _) if u32::from(bits) != sample_len * 8 => params.form = SampleForm::Packed,
        (Predictor::None, ..) => {}
    }
    params
}

#[cfg(test)]
mod tests {
    use swath_tiff::{Compression, SampleType};

    use super::*;
    use crate::decode::test_spec::spec;

    #[test]
    fn rows_of_planes_begin_at_whole_vectors() {
        let layout = PlaneLayout::new(&spec(Compression::Jpeg2000, SampleType::U16, 3));
        assert_eq!((layout.pitch, layout.planes), (80, 3));
        let layout = PlaneLayout::new(&spec(Compression::Jpeg, SampleType::U8, 3));
        assert_eq!(layout.pitch, 48);
        let len = layout.tile_len(10);
        assert_eq!((len, layout.rows(len), layout.plane_len(len)), (48 * 3 * 10, 10, 480));
        let output = Output { width: 9, height: 9, bands: 2, sample_len: 1, pixel_interleaved: true };
        let params = plane_params(&spec(Compression::Jpeg, SampleType::U8, 3), &output, &[]);
        assert_eq!((params.stored_row, params.tile_width, params.tile_samples, params.takes), (48, 40, 1, 1));
        assert_eq!((params.row_step, params.pixel_step, params.band_step), (18, 2, 1));
    }

    #[test]
    fn tiles_wider_than_the_kernel_counts_are_served_from_their_first_columns_or_refused() {
        let mut wide = spec(Compression::Deflate, SampleType::U8, 1);
        assert!(check_columns(&wide, 40).is_ok());
        wide.width = MOST_ROW_SAMPLES + 16;
        assert!(check_columns(&wide, 100).is_ok());
        assert!(check_columns(&wide, MOST_ROW_SAMPLES + 1).is_err());
        wide.predictor = Predictor::Horizontal;
        assert!(check_columns(&wide, 100).is_err());
    }
}
