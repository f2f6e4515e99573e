//! How tiles are compressed on the device, and what that takes.

use swath_codec::TileSpec;
use swath_tiff::{Compression, structure::Predictor};

use crate::{
    error::DeviceError,
    ffi::encoding::{CutRule, Encoding, Wrap},
    pictures,
};

/// Bytes of the pieces that tiles are cut into where a codec allows it: small enough that a few tiles fill a device, large
/// enough that a piece's own code tables cost little.
pub const PIECE: usize = 64 << 10;

/// How tiles are compressed on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Press {
    /// Not at all.
    None,
    /// Not on the device: the host compresses what was cut.
    Host,
    /// PackBits, by our kernel.
    PackBits,
    /// LZW, by our kernels.
    Lzw,
    /// Deflate in pieces, by our kernel: effort 1 to 3.
    Deflate(u32),
    /// Zstd in pieces, by our kernel: effort 1 to 3.
    Zstd(u32),
    /// Deflate, a whole tile at a time, by nvCOMP's algorithm with this number.
    NvcompDeflate(u32),
    /// Zstd, a whole tile at a time, by nvCOMP.
    NvcompZstd,
    /// JPEG by nvJPEG: quality.
    Jpeg(u32),
    /// JPEG 2000 by nvJPEG2000: quality, or every sample as it is.
    Jpeg2000(Option<u32>),
}

impl Press {
    pub(crate) fn encoding(self) -> Option<Encoding> {
        match self {
            Self::PackBits => Some(Encoding::PackBits),
            Self::Lzw => Some(Encoding::Lzw),
            Self::Deflate(_) => Some(Encoding::Deflate),
            Self::Zstd(_) => Some(Encoding::Zstd),
            _ => None,
        }
    }

    pub(crate) fn effort(self) -> u32 {
        match self {
            Self::Deflate(effort) | Self::Zstd(effort) => effort,
            _ => 0,
        }
    }

    /// Bytes of the pieces of a tile of `len` bytes.
    pub(crate) fn piece_len(self, len: usize) -> usize {
        match self {
            Self::Deflate(_) | Self::Zstd(_) => PIECE,
            _ => len,
        }
    }

    /// Whether a library hands the streams out in host memory.
    pub(crate) fn is_picture(self) -> bool {
        matches!(self, Self::Jpeg(_) | Self::Jpeg2000(_))
    }

    /// Streams that a library for pictures works on: a single tile fills a small part of the device, but each has states.
    pub(crate) fn picture_streams(self) -> usize {
        match self {
            Self::Jpeg(_) => 2,
            Self::Jpeg2000(_) => 8,
            _ => 0,
        }
    }

    /// Device memory that a library for pictures keeps for itself with tiles of so many bytes, as far as that was seen: four
    /// states of 20 MiB for each stream of nvJPEG, some sixteen times the tile for each of nvJPEG2000.
    pub(crate) fn picture_memory(self, tile_len: usize) -> usize {
        let each = match self {
            Self::Jpeg(_) => 4 * (20 << 20),
            Self::Jpeg2000(_) => tile_len.saturating_mul(16),
            _ => 0,
        };
        each.saturating_mul(self.picture_streams())
    }

    /// Whether how much is kept of a tile hangs on how far its samples are apart.
    pub(crate) fn needs_ranges(self) -> bool {
        matches!(self, Self::Jpeg2000(Some(_)))
    }

    /// Whether it is nvCOMP that compresses.
    pub(crate) fn is_nvcomp(self) -> bool {
        matches!(self, Self::NvcompDeflate(_) | Self::NvcompZstd)
    }

    /// Whether the pieces of a tile can be found again by their sizes: its stream is a head of two bytes and the pieces.
    pub fn has_pieces(self) -> bool {
        matches!(self, Self::Deflate(_))
    }

    /// What stands around the pieces of a tile.
    pub(crate) fn wrap(self, frame: bool) -> Wrap {
        match self {
            // A window of 32 KiB, the usual effort.
            Self::Deflate(_) | Self::NvcompDeflate(_) => {
                Wrap { head: vec![0x78, 0x9c], adler: true, frame, ..Wrap::default() }
            }
            // A single segment with four bytes for its length.
            Self::Zstd(_) => Wrap {
                head: vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0],
                len_in_head: true,
                frame,
                ..Wrap::default()
            },
            _ => Wrap { frame, ..Wrap::default() },
        }
    }
}

/// What tiles hold where they hang over the edge of the image.
pub use swath_codec::pre::Edge;

/// What all tiles of one kind have in common: those of an image and its overviews, or those of their masks.
#[derive(Debug, Clone)]
pub struct TileRule {
    /// What the tiles are like.
    pub spec: TileSpec,
    /// How they are compressed.
    pub press: Press,
    /// What they hold beyond the edge.
    pub edge: Edge,
    /// Tiles of nothing but this sample are left out.
    pub fill: Option<Vec<u8>>,
    /// Whether each stands between its length and its last bytes.
    pub frame: bool,
    /// Rows of the largest tile.
    pub rows: u32,
    /// Whether the codec takes whole samples rather than what the file stores.
    pub native: bool,
    /// Whether it takes them in the file's byte order all the same.
    pub native_swapped: bool,
}

impl TileRule {
    /// Bytes of the largest tile before it is compressed.
    pub(crate) fn tile_len(&self) -> usize {
        self.row_len() * self.rows as usize
    }

    /// Bytes of a row of a tile.
    pub(crate) fn row_len(&self) -> usize {
        self.cut_rule(self.spec.width).stored_row as usize
    }

    /// How tiles of `width` columns are stored: strips of an overview are narrower than those of the image.
    pub(crate) fn cut_rule(&self, width: u32) -> CutRule {
        let spec = &TileSpec { width, ..self.spec.clone() };
        let whole = usize::from(spec.bits) == spec.sample.size() * 8;
        let native = self.native;
        let (stored_row, bits) = match whole || native {
            true => (spec.native_row_len(), spec.sample.size() as u32 * 8),
            false => (spec.stored_row_len(), spec.bits.into()),
        };
        CutRule {
            stored_row: stored_row as u64,
            samples: spec.samples.into(),
            sample_len: spec.sample.size() as u32,
            word: spec.sample.word() as u32,
            bits,
            swap: spec.order.is_foreign() && if native { self.native_swapped } else { whole },
            predictor: match spec.predictor {
                Predictor::Horizontal if whole && !native => 2,
                Predictor::FloatingPoint if whole && !native => 3,
                _ => 0,
            },
            edge: match self.edge {
                Edge::Repeat => 0,
                Edge::RepeatColumns => 1,
                Edge::Zero => 2,
            },
            fill: self.fill.as_ref().map(|fill| {
                let mut bytes = [0; 16];
                bytes.iter_mut().zip(fill).for_each(|(to, from)| *to = *from);
                bytes
            }),
            tiled: spec.tiled,
        }
    }

    /// Pieces of the largest tile.
    pub fn pieces(&self) -> u32 {
        let len = self.tile_len();
        len.div_ceil(self.press.piece_len(len).max(1)).max(1) as u32
    }

    /// The most bytes that a tile can become, what stands around it included.
    pub fn max_whole(&self) -> usize {
        let len = self.tile_len();
        let pieces = self.pieces() as usize;
        let wrap = self.press.wrap(self.frame);
        let around = wrap.head.len() + if wrap.adler { 4 } else { 0 } + if wrap.frame { 8 } else { 0 };
        pieces * pressed_stride(self.press, len, self.row_len()) + around
    }
}

/// Bytes that a piece of a tile of `len` bytes can become at most, in multiples of 16.
pub(crate) fn pressed_stride(press: Press, len: usize, row: usize) -> usize {
    let piece = press.piece_len(len).min(len.max(1));
    let most = match press {
        Press::None | Press::Host => piece,
        // What nvCOMP can make of a tile is more; what does not fit is compressed again by the CPU.
        Press::NvcompDeflate(_) | Press::NvcompZstd => piece + piece / 16 + 1024,
        _ => press.encoding().map_or(piece, |encoding| encoding.most(piece, row)),
    };
    most.next_multiple_of(16)
}

/// How a device compresses tiles of this kind with a codec's settings; in words why it does not.
///
/// # Errors
/// When the GPU has no way for such tiles.
pub fn choose_press(
    spec: &TileSpec,
    settings: &swath_codec::encode::Settings,
    nvcomp: bool,
) -> Result<Press, DeviceError> {
    let declined = |reason: String| Err(DeviceError::Declined(reason));
    if spec.packed_subsampling.is_some() && spec.compression != Compression::Jpeg {
        return declined("samples packed with subsampled chroma are written by the CPU".into());
    }
    Ok(match spec.compression {
        Compression::None => Press::None,
        Compression::PackBits => Press::PackBits,
        Compression::Lzw => Press::Lzw,
        Compression::Deflate if nvcomp => Press::NvcompDeflate(nvcomp_algorithm(settings.level)),
        Compression::Zstd if nvcomp => Press::NvcompZstd,
        Compression::Deflate => Press::Deflate(effort(settings.level, 9)),
        Compression::Zstd => Press::Zstd(effort(settings.level, 15)),
        Compression::Jpeg if spec.bits == 8 && pictures::jpeg_source(spec).is_some() => {
            Press::Jpeg(settings.quality.unwrap_or(75))
        }
        Compression::Jpeg2000 if pictures::jpeg2000_picture(spec).is_some() => match settings.lossless {
            true => Press::Jpeg2000(None),
            // nvJPEG2000 0.11 shifts the level of 16-bit samples then.
            false if spec.bits > 8 => return declined("nvJPEG2000 has no lossy encoder for such samples".into()),
            false => Press::Jpeg2000(Some(settings.quality.unwrap_or(75))),
        },
        other => return declined(format!("the GPU has no {other} encoder for such samples")),
    })
}

/// A level of a codec as one of our three efforts: fast up to 3, small from `most` on.
fn effort(level: Option<u32>, most: u32) -> u32 {
    match level {
        Some(level) if level <= 3 => 1,
        Some(level) if level >= most => 3,
        _ => 2,
    }
}

/// A level of Deflate as the number of nvCOMP's algorithm that comes nearest to it.
fn nvcomp_algorithm(level: Option<u32>) -> u32 {
    match level.unwrap_or(6) {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 5,
    }
}
