//! How a directory's tiles are decoded on the device, and how their bytes become samples there.

use swath_codec::TileSpec;
use swath_tiff::{
    Compression, SampleFormat, SampleType,
    structure::{ByteOrder, Predictor},
    words::photometric::Photometric,
};

use crate::{
    error::DeviceError,
    ffi::{
        kernels::{Decoding, Form, PlaceRule},
        libraries::{Expected, Picture, Sample},
        zstd,
    },
};

/// How tiles get from the file to samples on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Stored bytes are uploaded and placed.
    Raw,
    /// Compressed bytes are uploaded and decoded by a kernel of ours.
    PackBits,
    /// As above.
    Lzw,
    /// As above.
    Deflate,
    /// As above, where the file says how tiles are cut into pieces: these are decoded side by side.
    DeflatePieces,
    /// Compressed bytes are uploaded and decoded by kernels of ours, which have scratch for each tile.
    Zstd,
    /// Compressed bytes are uploaded and decoded by nvCOMP. Only for input that is trusted.
    Lz4,
    /// Compressed bytes stay on the host, from where nvJPEG decodes them into planes on the device.
    Jpeg,
    /// As above, by nvJPEG2000.
    Jpeg2000,
    /// The CPU decodes tiles into pinned memory.
    Host,
}

/// Aperio's number for JPEG 2000 that holds YCbCr outside of the code stream's own transform.
const APERIO_YCBCR: u16 = 33003;
/// Columns from which on nvJPEG and the CPU smooth colours alike: libjpeg does not where there are fewer.
const LEAST_COLUMNS: u32 = 5;
/// Components that nvJPEG2000 reads: a stream of five was refused, as its documentation says.
const MOST_COMPONENTS: u16 = 4;

impl Way {
    /// How tiles of this spec are decoded on the device by kernels of ours.
    ///
    /// # Errors
    /// When there is no kernel for them; the reason says what to do.
    pub fn on_device(spec: &TileSpec) -> Result<Self, DeviceError> {
        if spec.packed_subsampling.is_some() {
            return Err(DeviceError::Declined("subsampled YCbCr without JPEG is not decoded on the GPU".into()));
        }
        match spec.compression {
            Compression::None => Ok(Self::Raw),
            Compression::PackBits => Ok(Self::PackBits),
            Compression::Lzw => Ok(Self::Lzw),
            Compression::Deflate => Ok(Self::Deflate),
            Compression::Zstd => Ok(Self::Zstd),
            other => Err(DeviceError::Declined(format!("{} is not decoded on the GPU", other))),
        }
    }

    /// How tiles of this spec are decoded by NVIDIA's nvCOMP, which damaged input can hang or crash.
    ///
    /// # Errors
    /// When it does not decode them.
    pub fn by_nvcomp(spec: &TileSpec) -> Result<Self, DeviceError> {
        if spec.packed_subsampling.is_some() || spec.bits_reversed {
            return Err(DeviceError::Declined("nvCOMP does not read such tiles".into()));
        }
        match spec.compression {
            Compression::Lz4 => Ok(Self::Lz4),
            other => Err(DeviceError::Declined(format!("nvCOMP does not read {other}"))),
        }
    }

    /// How tiles of this spec are decoded by NVIDIA's libraries for pictures.
    ///
    /// # Errors
    /// When they do not decode them; the reason says why.
    pub fn by_picture_library(spec: &TileSpec) -> Result<Self, DeviceError> {
        let declined = |why: String| Err(DeviceError::Declined(why));
        let kind = spec.compression;
        if spec.bits_reversed || spec.packed_subsampling.is_some() {
            return declined(format!("{kind} with reversed bits or packed chroma is not decoded on the GPU"));
        }
        match kind {
            Compression::Jpeg if (spec.bits, spec.sample) != (8, SampleType::U8) => {
                declined(format!("JPEG of {} bits is not decoded on the GPU", spec.bits))
            }
            Compression::Jpeg if !matches!(spec.samples, 1 | 3) => {
                declined(format!("JPEG of {} samples is not decoded on the GPU", spec.samples))
            }
            Compression::Jpeg if spec.samples == 3 && spec.width < LEAST_COLUMNS => {
                declined(format!("JPEG of {} columns is not decoded on the GPU", spec.width))
            }
            Compression::Jpeg => Ok(Self::Jpeg),
            Compression::Jpeg2000 if spec.compression_code == APERIO_YCBCR => {
                declined("JPEG 2000 with Aperio's YCbCr is not decoded on the GPU".into())
            }
            Compression::Jpeg2000 if !(1..=MOST_COMPONENTS).contains(&spec.samples) => {
                declined(format!("JPEG 2000 of {} samples is not decoded on the GPU", spec.samples))
            }
            Compression::Jpeg2000 if components(spec).is_none() => {
                declined(format!("JPEG 2000 of {} samples is not decoded on the GPU", spec.sample))
            }
            Compression::Jpeg2000 => Ok(Self::Jpeg2000),
            other => declined(format!("{other} is not decoded on the GPU")),
        }
    }

    /// Whether a tile's status is on the device when all kernels are done.
    pub(crate) fn has_statuses(self) -> bool {
        self.kernel().is_some() || self.has_pieces() || self.has_chunks() || self.decodes_from_host()
    }

    /// Whether a library reads the compressed bytes from host memory and leaves planes on the device.
    pub fn decodes_from_host(self) -> bool {
        matches!(self, Self::Jpeg | Self::Jpeg2000)
    }

    /// Whether tiles are decoded in pieces.
    pub(crate) fn has_pieces(self) -> bool {
        self == Self::DeflatePieces
    }

    /// Whether a library wants to be told addresses and lengths.
    pub(crate) fn has_chunks(self) -> bool {
        self == Self::Lz4
    }

    /// Whether kernels have scratch for each tile.
    pub(crate) fn has_tile_scratch(self) -> bool {
        self == Self::Zstd
    }

    /// Scratch of each tile of a read, where the largest has `largest` decoded bytes.
    pub(crate) fn tile_scratch(self, largest: usize) -> usize {
        if self.has_tile_scratch() { zstd::scratch_len(largest) } else { 0 }
    }

    /// Temporary memory, as a multiple of the decoded bytes in eighths, that is set aside for libraries.
    pub(crate) fn temporary_eighths(self) -> u64 {
        match self {
            Self::Lz4 => 2,
            // Coefficients of 16 bits and components before they are full size.
            Self::Jpeg => 32,
            // Coefficients of 32 bits, twice, for samples of one byte or two.
            Self::Jpeg2000 => 64,
            _ => 0,
        }
    }

    /// Whether compressed (or stored) bytes are uploaded by us.
    pub fn uploads_streams(self) -> bool {
        self != Self::Host && !self.decodes_from_host()
    }

    /// Whether decoded bytes need room of their own.
    pub(crate) fn decodes_apart(self) -> bool {
        !matches!(self, Self::Raw)
    }

    pub(crate) fn kernel(self) -> Option<Decoding> {
        match self {
            Self::PackBits => Some(Decoding::PackBits),
            Self::Lzw => Some(Decoding::Lzw),
            Self::Deflate => Some(Decoding::Inflate),
            Self::Zstd => Some(Decoding::Zstd),
            Self::Raw | Self::DeflatePieces | Self::Lz4 | Self::Jpeg | Self::Jpeg2000 | Self::Host => None,
        }
    }
}

/// What nvJPEG makes of tiles of this spec: what the CPU hands out, in planes.
pub(crate) fn picture(spec: &TileSpec) -> Picture {
    match (spec.samples, spec.photometric) {
        (1, _) => Picture::Grey,
        (_, Some(Photometric::YCbCr)) => Picture::RgbPlanar,
        _ => Picture::StoredPlanar,
    }
}

/// What nvJPEG2000 makes of tiles of this spec, if it can.
pub(crate) fn components(spec: &TileSpec) -> Option<Expected> {
    let sample = match spec.sample {
        SampleType::U8 => Sample::U8,
        SampleType::U16 => Sample::U16,
        SampleType::I16 => Sample::I16,
        _ => return None,
    };
    Some(Expected { sample, components: spec.samples.into() })
}

/// How a tile lies on the device where a library decodes it: one plane for each sample, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneLayout {
    /// Bytes from row to row: whole vectors, so that rows are read by vectors.
    pub pitch: usize,
    /// Planes.
    pub planes: usize,
}

impl PlaneLayout {
    /// The layout of tiles of this spec.
    pub fn new(spec: &TileSpec) -> Self {
        const VECTOR: usize = 16;
        let row = spec.width as usize * spec.sample.size();
        Self { pitch: row.next_multiple_of(VECTOR), planes: usize::from(spec.samples) }
    }

    /// Bytes of a tile of `rows` rows.
    pub fn tile_len(&self, rows: u32) -> usize {
        (self.pitch * self.planes).saturating_mul(rows as usize)
    }

    /// Rows of a tile of that many bytes.
    pub(crate) fn rows(&self, tile_len: usize) -> usize {
        tile_len / (self.pitch * self.planes).max(1)
    }

    /// Bytes of a plane of such a tile.
    pub(crate) fn plane_len(&self, tile_len: usize) -> usize {
        tile_len / self.planes.max(1)
    }
}

/// The output of a read.
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
    /// Whether the bands of a pixel lie side by side; otherwise each band is apart.
    pub pixel_interleaved: bool,
}

impl Output {
    /// Bytes of it, if there can be so many.
    pub fn len(&self) -> Option<usize> {
        (self.width as usize)
            .checked_mul(self.height as usize)?
            .checked_mul(self.bands as usize)?
            .checked_mul(self.sample_len)
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Bytes from row to row, from pixel to pixel and from band to band.
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

/// Columns of a tile that the placing kernel can count.
fn most_columns(spec: &TileSpec) -> u32 {
    MOST_ROW_SAMPLES / u32::from(spec.samples.max(1))
}

/// Refuses tiles so wide that the placing kernel would not reach the columns before `end`. Only hostile files have them; where
/// their first columns are wanted, and no predictor needs the others, they are served.
///
/// # Errors
/// When it would not.
pub fn check_columns(spec: &TileSpec, end: u32) -> Result<(), DeviceError> {
    let most = most_columns(spec);
    if end > most || (spec.width > most && spec.predictor != Predictor::None) {
        return Err(DeviceError::Declined(format!("tiles of {} columns are not placed on the GPU", spec.width)));
    }
    Ok(())
}

/// Decoded bytes of the largest tile that the kernels for Zstd take.
pub const MOST_ZSTD_TILE: usize = 1 << 30;

/// Samples that the placing kernel can count in a row of a tile.
const MOST_ROW_SAMPLES: u32 = 0x3fff_ffff;

/// The rule for one plane of a tile that a library decoded.
pub(crate) fn plane_rule(spec: &TileSpec, output: &Output, fill: &[u8]) -> PlaceRule {
    PlaceRule {
        stored_row: PlaneLayout::new(spec).pitch as u64,
        tile_width: spec.width.min(MOST_ROW_SAMPLES),
        tile_samples: 1,
        ..place_rule(spec, false, output, 1, fill)
    }
}

/// The rule for bytes as the codec leaves them (`stored`), or for whole samples in native order.
pub(crate) fn place_rule(spec: &TileSpec, stored: bool, output: &Output, takes: usize, fill: &[u8]) -> PlaceRule {
    let sample_len = spec.sample.size() as u32;
    let [row_step, pixel_step, band_step] = output.steps();
    let mut sample_fill = [0; 16];
    for (place, byte) in sample_fill.iter_mut().zip(fill) {
        *place = *byte;
    }
    let mut rule = PlaceRule {
        row_step,
        pixel_step,
        band_step,
        stored_row: spec.native_row_len() as u64,
        tile_width: spec.width.min(most_columns(spec)),
        tile_samples: spec.samples.into(),
        takes: takes as u32,
        form: Form::Whole,
        bits: sample_len * 8,
        sample_len,
        word: spec.sample.word() as u32,
        swap: false,
        predictor: 0,
        fill: sample_fill,
    };
    if !stored {
        return rule;
    }
    rule.stored_row = spec.stored_row_len() as u64;
    rule.bits = spec.bits.into();
    rule.swap = spec.order.is_foreign() && spec.sample.word() > 1;
    match (spec.predictor, spec.bits, spec.format) {
        (Predictor::Horizontal, bits, _) => {
            rule.predictor = 2;
            rule.word = u32::from(bits) / 8;
        }
        // Predictor 3 has an order of its own: what it leaves is native.
        (Predictor::FloatingPoint, 24, _) => {
            rule.predictor = 3;
            rule.form = Form::Float24Little;
            rule.swap = false;
        }
        (Predictor::FloatingPoint, ..) => {
            rule.predictor = 3;
            rule.swap = false;
        }
        (Predictor::None, 24, SampleFormat::Float) => {
            rule.form = if spec.order == ByteOrder::Little { Form::Float24Little } else { Form::Float24Big };
        }
        // Read against the byte order of the file, as GDAL does and as our CPU does.
        (Predictor::None, 24, _) => {
            rule.form = if spec.order == ByteOrder::Little { Form::UInt24Big } else { Form::UInt24Little };
        }
        (Predictor::None, bits, _) if u32::from(bits) != sample_len * 8 => rule.form = Form::Packed,
        (Predictor::None, ..) => {}
    }
    rule
}

#[cfg(test)]
pub(crate) mod tests {
    use swath_tiff::Limits;

    use super::*;

    /// Tiles of 40 columns.
    pub(crate) fn spec(compression: Compression, sample: SampleType, samples: u16) -> TileSpec {
        TileSpec {
            compression,
            compression_code: 0,
            predictor: Predictor::None,
            bits: sample.size() as u16 * 8,
            format: sample.format(),
            sample,
            samples,
            width: 40,
            height: 24,
            one_strip: false,
            tiled: true,
            order: ByteOrder::Little,
            bits_reversed: false,
            photometric: None,
            ycbcr: None,
            packed_subsampling: None,
            t4_options: 0,
            lerc: Vec::new(),
            extra_samples: Vec::new(),
            jpeg_tables: None,
            limits: Limits::none(),
        }
    }

    #[test]
    fn pictures_that_libraries_do_not_read_are_declined_with_a_reason() {
        let (jpeg, jpeg2000) = (Compression::Jpeg, Compression::Jpeg2000);
        let way = |spec: &TileSpec| Way::by_picture_library(spec).map_err(|error| error.to_string());
        for samples in [1, 3] {
            assert_eq!(way(&spec(jpeg, SampleType::U8, samples)), Ok(Way::Jpeg));
        }
        for sample in [SampleType::U8, SampleType::U16, SampleType::I16] {
            assert_eq!(way(&spec(jpeg2000, sample, 4)), Ok(Way::Jpeg2000));
        }
        for declined in [
            spec(jpeg, SampleType::U8, 4),
            spec(jpeg, SampleType::U16, 1),
            TileSpec { width: 4, ..spec(jpeg, SampleType::U8, 3) },
            TileSpec { bits_reversed: true, ..spec(jpeg, SampleType::U8, 1) },
            spec(jpeg2000, SampleType::U8, 5),
            spec(jpeg2000, SampleType::I8, 1),
            spec(jpeg2000, SampleType::U32, 1),
            TileSpec { compression_code: APERIO_YCBCR, ..spec(jpeg2000, SampleType::U8, 3) },
            spec(Compression::WebP, SampleType::U8, 3),
        ] {
            let reason = way(&declined).err().unwrap_or_default();
            assert!(reason.contains("is not decoded on the GPU"), "{reason}");
        }
    }

    #[test]
    fn colour_is_what_the_cpu_hands_out() {
        let of = |samples, photometric| {
            picture(&TileSpec { photometric, ..spec(Compression::Jpeg, SampleType::U8, samples) })
        };
        assert_eq!(of(1, Some(Photometric::YCbCr)), Picture::Grey);
        assert_eq!(of(3, Some(Photometric::YCbCr)), Picture::RgbPlanar);
        assert_eq!(of(3, Some(Photometric::Rgb)), Picture::StoredPlanar);
        assert_eq!(of(3, None), Picture::StoredPlanar);
    }

    #[test]
    fn rows_of_planes_begin_at_whole_vectors() {
        let layout = PlaneLayout::new(&spec(Compression::Jpeg2000, SampleType::U16, 3));
        assert_eq!((layout.pitch, layout.planes), (80, 3));
        let layout = PlaneLayout::new(&spec(Compression::Jpeg, SampleType::U8, 3));
        assert_eq!(layout.pitch, 48);
        let len = layout.tile_len(10);
        assert_eq!((len, layout.rows(len), layout.plane_len(len)), (48 * 3 * 10, 10, 480));
        let output = Output { width: 9, height: 9, bands: 2, sample_len: 1, pixel_interleaved: true };
        let rule = plane_rule(&spec(Compression::Jpeg, SampleType::U8, 3), &output, &[]);
        assert_eq!((rule.stored_row, rule.tile_width, rule.tile_samples, rule.takes), (48, 40, 1, 1));
        assert_eq!((rule.row_step, rule.pixel_step, rule.band_step), (18, 2, 1));
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
