//! How tiles of each compression are encoded on the device, and what each path needs.

use swath_codec::TileSpec;
use swath_tiff::Compression;

use crate::{
    driver::launch::{encode::EncodeKernel, pack::TileFraming},
    encode::image_source::{jpeg_source, jpeg2000_image},
    error::DeviceError,
};

/// Bytes of the pieces that tiles are cut into where a codec allows it: small enough that a few tiles fill a device,
/// large enough that a piece's own code tables cost little.
pub const PIECE_LEN: usize = 64 << 10;

/// How tiles are encoded on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodePath {
    /// Tiles are stored as they are.
    None,
    /// The device cuts tiles, and the host encodes them.
    Host,
    /// PackBits, by a kernel.
    PackBits,
    /// LZW, by kernels.
    Lzw,
    /// Deflate in pieces, by a kernel: effort 1 to 4.
    Deflate(u32),
    /// Zstd in pieces, by a kernel: effort 1 to 4.
    Zstd(u32),
    /// Deflate of whole tiles by nvCOMP, with the algorithm of this number.
    NvcompDeflate(u32),
    /// Zstd of whole tiles by nvCOMP.
    NvcompZstd,
    /// JPEG of this quality, by nvJPEG.
    Jpeg(u32),
    /// JPEG 2000 by nvJPEG2000: of this quality, or lossless.
    Jpeg2000(Option<u32>),
}

impl EncodePath {
    pub(crate) fn encoding(self) -> Option<EncodeKernel> {
        match self {
            Self::PackBits => Some(EncodeKernel::PackBits),
            Self::Lzw => Some(EncodeKernel::Lzw),
            Self::Deflate(_) => Some(EncodeKernel::Deflate),
            Self::Zstd(_) => Some(EncodeKernel::Zstd),
            _ => None,
        }
    }

    pub(crate) fn effort(self) -> u32 {
        match self {
            Self::Deflate(effort) | Self::Zstd(effort) => effort,
            _ => 0,
        }
    }

    /// Returns the bytes of each piece of a tile of `len` bytes.
    pub(crate) fn piece_len(self, len: usize) -> usize {
        match self {
            Self::Deflate(_) | Self::Zstd(_) => PIECE_LEN,
            _ => len,
        }
    }

    /// Whether a library leaves the streams in host memory.
    pub(crate) fn uses_image_library(self) -> bool {
        matches!(self, Self::Jpeg(_) | Self::Jpeg2000(_))
    }

    /// Returns the number of streams that an image library works on: one tile fills only a small part of the device,
    /// but each stream has states.
    pub(crate) fn image_streams(self) -> usize {
        match self {
            Self::Jpeg(_) => 2,
            Self::Jpeg2000(_) => 8,
            _ => 0,
        }
    }

    /// Returns the device memory that an image library takes for tiles of `tile_len` bytes, as measured: four states of
    /// 20 MiB for each stream of nvJPEG, about sixteen times the tile for each stream of nvJPEG2000.
    pub(crate) fn image_library_memory(self, tile_len: usize) -> usize {
        let each = match self {
            Self::Jpeg(_) => 4 * (20 << 20),
            Self::Jpeg2000(_) => tile_len.saturating_mul(16),
            _ => 0,
        };
        each.saturating_mul(self.image_streams())
    }

    /// Whether quality depends on the tile's value range.
    pub(crate) fn needs_ranges(self) -> bool {
        matches!(self, Self::Jpeg2000(Some(_)))
    }

    /// Whether nvCOMP encodes.
    pub(crate) fn is_nvcomp(self) -> bool {
        matches!(self, Self::NvcompDeflate(_) | Self::NvcompZstd)
    }

    /// Whether readers can find the pieces of a tile by their sizes: the stream is a head of two bytes and the pieces.
    pub fn has_pieces(self) -> bool {
        matches!(self, Self::Deflate(_))
    }

    /// Returns the bytes around the pieces of a tile.
    pub(crate) fn wrap(self, frame: bool) -> TileFraming {
        match self {
            // A zlib header: a window of 32 KiB, default level.
            Self::Deflate(_) | Self::NvcompDeflate(_) => {
                TileFraming { head: vec![0x78, 0x9c], adler: true, frame, ..TileFraming::default() }
            }
            // A Zstd frame header: a single segment, with four bytes for its length.
            Self::Zstd(_) => TileFraming {
                head: vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0],
                len_in_head: true,
                frame,
                ..TileFraming::default()
            },
            _ => TileFraming { frame, ..TileFraming::default() },
        }
    }
}

/// Returns how a device encodes tiles of this spec with a codec's settings.
///
/// # Errors
/// [`DeviceError::Declined`] with the reason when the GPU does not encode such tiles.
pub fn choose_encode_path(
    spec: &TileSpec,
    settings: &swath_codec::encode::Settings,
    nvcomp: bool,
) -> Result<EncodePath, DeviceError> {
    let declined = |reason: String| Err(DeviceError::Declined(reason));
    if spec.packed_subsampling.is_some() && spec.compression != Compression::Jpeg {
        return declined("samples packed with subsampled chroma are written by the CPU".into());
    }
    Ok(match spec.compression {
        Compression::None => EncodePath::None,
        Compression::PackBits => EncodePath::PackBits,
        Compression::Lzw => EncodePath::Lzw,
        Compression::Deflate if nvcomp => EncodePath::NvcompDeflate(nvcomp_algorithm(settings.level)),
        Compression::Zstd if nvcomp => EncodePath::NvcompZstd,
        Compression::Deflate => EncodePath::Deflate(effort(settings.level.unwrap_or(6), 9, 10)),
        Compression::Zstd => EncodePath::Zstd(effort(settings.level.unwrap_or(9), 9, 15)),
        Compression::Jpeg if spec.bits == 8 && jpeg_source(spec).is_some() => {
            EncodePath::Jpeg(settings.quality.unwrap_or(75))
        }
        Compression::Jpeg2000 if jpeg2000_image(spec).is_some() => match settings.lossless {
            true => EncodePath::Jpeg2000(None),
            // nvJPEG2000 0.11 shifts the level of 16-bit samples when it encodes with loss.
            false if spec.bits > 8 => return declined("nvJPEG2000 has no lossy encoder for such samples".into()),
            false => EncodePath::Jpeg2000(Some(settings.quality.unwrap_or(75))),
        },
        other => return declined(format!("the GPU has no {other} encoder for such samples")),
    })
}

/// Maps a codec's level to one of our efforts: up to level 3 matches are sought at the distances of rasters only, then by hashes in
/// their piece, from `linked` on by links, and from `most` on by many of them.
fn effort(level: u32, linked: u32, most: u32) -> u32 {
    match level {
        ..=3 => 1,
        level if level < linked => 2,
        level if level < most => 3,
        _ => 4,
    }
}

/// Maps a Deflate level to the nearest algorithm of nvCOMP.
fn nvcomp_algorithm(level: Option<u32>) -> u32 {
    match level.unwrap_or(6) {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 5,
    }
}
