//! Compression schemes and their numbers in the file.

use std::fmt;

/// The compression of an image's tiles (tag 259).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Not compressed.
    None,
    /// CCITT modified Huffman run lengths; each row starts on a byte.
    CcittRle,
    /// CCITT modified Huffman run lengths; each row starts on a 16-bit word.
    CcittRleWord,
    /// CCITT T.4 (Group 3 fax).
    CcittT4,
    /// CCITT T.6 (Group 4 fax).
    CcittT6,
    /// LZW, in the new and the old bit order.
    Lzw,
    /// JPEG as in TIFF 6.0, which has been superseded.
    OldJpeg,
    /// JPEG.
    Jpeg,
    /// zlib stream (8 or the older 32946).
    Deflate,
    /// PackBits run lengths, from the Macintosh.
    PackBits,
    /// LZMA2 in an xz container.
    Lzma,
    /// Zstandard.
    Zstd,
    /// LERC; LercParameters says whether the blob is also compressed with Deflate or Zstd.
    Lerc,
    /// A JPEG 2000 code stream or JP2 file in each tile.
    Jpeg2000,
    /// WebP.
    WebP,
    /// JPEG XL.
    JpegXl,
    /// LZ4 block.
    Lz4,
    /// A scheme that is known by name but not decoded.
    Unsupported(u16, &'static str),
    /// A number without a known name.
    Unknown(u16),
}

impl Compression {
    /// The scheme with this number.
    pub fn from_code(code: u16) -> Self {
        match code {
            1 => Self::None,
            2 => Self::CcittRle,
            3 => Self::CcittT4,
            4 => Self::CcittT6,
            5 => Self::Lzw,
            6 => Self::OldJpeg,
            7 => Self::Jpeg,
            8 | 32946 => Self::Deflate,
            32771 => Self::CcittRleWord,
            32773 => Self::PackBits,
            34887 => Self::Lerc,
            34925 => Self::Lzma,
            50000 => Self::Zstd,
            50001 => Self::WebP,
            50002 | 52546 => Self::JpegXl,
            50004 => Self::Lz4,
            33003 | 33005 | 34712 => Self::Jpeg2000,
            9 => Self::Unsupported(code, "JBIG (ITU T.85)"),
            10 => Self::Unsupported(code, "JBIG colour (ITU T.43)"),
            32766 => Self::Unsupported(code, "NeXT 2-bit"),
            32809 => Self::Unsupported(code, "ThunderScan 4-bit"),
            32895..=32898 => Self::Unsupported(code, "IT8 prepress"),
            32908 => Self::Unsupported(code, "Pixar companded 10-bit"),
            32909 => Self::Unsupported(code, "Pixar companded 11-bit"),
            32947 => Self::Unsupported(code, "Kodak DCS"),
            34661 => Self::Unsupported(code, "JBIG"),
            34676 => Self::Unsupported(code, "SGI Log luminance"),
            34677 => Self::Unsupported(code, "SGI Log 24-bit packed"),
            34892 => Self::Unsupported(code, "lossy DNG JPEG"),
            other => Self::Unknown(other),
        }
    }

    /// The number to write. Where a scheme has several, this is the one that GDAL writes.
    pub fn code(self) -> u16 {
        match self {
            Self::None => 1,
            Self::CcittRle => 2,
            Self::CcittT4 => 3,
            Self::CcittT6 => 4,
            Self::Lzw => 5,
            Self::OldJpeg => 6,
            Self::Jpeg => 7,
            Self::Deflate => 8,
            Self::CcittRleWord => 32771,
            Self::PackBits => 32773,
            Self::Jpeg2000 => 34712,
            Self::Lerc => 34887,
            Self::Lzma => 34925,
            Self::Zstd => 50000,
            Self::WebP => 50001,
            Self::JpegXl => 50002,
            Self::Lz4 => 50004,
            Self::Unsupported(code, _) | Self::Unknown(code) => code,
        }
    }

    /// Whether the Predictor tag applies to this scheme. For all others libtiff ignores the tag.
    pub fn takes_predictor(self) -> bool {
        matches!(self, Self::Lzw | Self::Deflate | Self::Zstd | Self::Lzma | Self::Lz4)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::None => "None",
            Self::CcittRle => "CCITT RLE",
            Self::CcittRleWord => "CCITT RLE (word)",
            Self::CcittT4 => "CCITT T.4",
            Self::CcittT6 => "CCITT T.6",
            Self::Lzw => "LZW",
            Self::OldJpeg => "old-style JPEG",
            Self::Jpeg => "JPEG",
            Self::Deflate => "Deflate",
            Self::PackBits => "PackBits",
            Self::Lzma => "LZMA",
            Self::Zstd => "Zstd",
            Self::Lerc => "LERC",
            Self::Jpeg2000 => "JPEG 2000",
            Self::WebP => "WebP",
            Self::JpegXl => "JPEG XL",
            Self::Lz4 => "LZ4",
            Self::Unsupported(code, name) => return write!(f, "{name} (compression {code})"),
            Self::Unknown(code) => return write!(f, "unknown compression {code}"),
        };
        f.write_str(name)
    }
}
