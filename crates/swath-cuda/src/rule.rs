//! How a directory's tiles are decoded on the device, and how their bytes become samples there.

use swath_codec::TileSpec;
use swath_tiff::{
    Compression, SampleFormat,
    structure::{ByteOrder, Predictor},
};

use crate::{
    error::DeviceError,
    ffi::kernels::{Decoding, Form, PlaceRule},
};

pub use crate::ffi::nvcomp::Codec;

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
    /// Compressed bytes are uploaded and decoded by nvCOMP. Only for input that is trusted.
    Nvcomp(Codec),
    /// The CPU decodes tiles into pinned memory.
    Host,
}

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
            Compression::Zstd => Ok(Self::Nvcomp(Codec::Zstd)),
            Compression::Lz4 => Ok(Self::Nvcomp(Codec::Lz4)),
            Compression::Deflate => Ok(Self::Nvcomp(Codec::Deflate)),
            other => Err(DeviceError::Declined(format!("nvCOMP does not read {other}"))),
        }
    }

    /// Whether a tile's status is on the device when all kernels are done.
    pub(crate) fn has_statuses(self) -> bool {
        self.kernel(false).is_some() || matches!(self, Self::Nvcomp(_))
    }

    /// Whether a library wants to be told addresses and lengths.
    pub(crate) fn has_chunks(self) -> bool {
        matches!(self, Self::Nvcomp(_))
    }

    /// Bytes before each stream, so that what nvCOMP is handed begins at a multiple of 16: it takes Deflate without zlib's
    /// two bytes of header.
    pub(crate) fn lead(self) -> usize {
        if self == Self::Nvcomp(Codec::Deflate) { 14 } else { 0 }
    }

    /// Temporary memory, as a multiple of the decoded bytes in eighths, that is set aside: nvCOMP's Zstd takes 3.2 times.
    pub(crate) fn temporary_eighths(self) -> u64 {
        match self {
            Self::Nvcomp(Codec::Zstd) => 30,
            Self::Nvcomp(_) => 2,
            _ => 0,
        }
    }

    /// Whether compressed (or stored) bytes are uploaded; otherwise decoded samples are.
    pub fn uploads_streams(self) -> bool {
        self != Self::Host
    }

    /// Whether decoded bytes need room of their own.
    pub(crate) fn decodes_apart(self) -> bool {
        !matches!(self, Self::Raw)
    }

    pub(crate) fn kernel(self, few: bool) -> Option<Decoding> {
        match self {
            Self::PackBits => Some(Decoding::PackBits),
            Self::Lzw => Some(Decoding::Lzw),
            Self::Deflate => Some(Decoding::Inflate { few }),
            Self::Raw | Self::Nvcomp(_) | Self::Host => None,
        }
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

/// Samples that the placing kernel can count in a row of a tile.
const MOST_ROW_SAMPLES: u32 = 0x3fff_ffff;

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
        // The kernel counts the samples of a row in 30 bits. Wider tiles than that are hostile; their first columns are served.
        tile_width: spec.width.min(MOST_ROW_SAMPLES / u32::from(spec.samples.max(1))),
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
