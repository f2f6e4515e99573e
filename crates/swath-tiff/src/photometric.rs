//! Photometric interpretations and their numbers in the file.

use std::fmt;

/// How samples represent colour (tag 262, PhotometricInterpretation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Photometric {
    /// Grey levels; 0 is white.
    MinIsWhite,
    /// Grey levels; 0 is black.
    MinIsBlack,
    /// Red, green, blue.
    Rgb,
    /// Indices into a colour map.
    Palette,
    /// A transparency mask.
    Mask,
    /// Ink densities, usually CMYK.
    Separated,
    /// Luma and two chroma differences.
    YCbCr,
    /// CIE L*a*b*.
    CieLab,
    /// ICC L*a*b*.
    IccLab,
    /// ITU L*a*b*.
    ItuLab,
    /// Colour filter array.
    Cfa,
    /// SGI LogL.
    LogL,
    /// SGI LogLuv.
    LogLuv,
    /// DNG linear raw.
    LinearRaw,
    /// A number without a known name.
    Unknown(u16),
}

impl Photometric {
    /// The interpretation with this number.
    pub fn from_code(code: u16) -> Self {
        match code {
            0 => Self::MinIsWhite,
            1 => Self::MinIsBlack,
            2 => Self::Rgb,
            3 => Self::Palette,
            4 => Self::Mask,
            5 => Self::Separated,
            6 => Self::YCbCr,
            8 => Self::CieLab,
            9 => Self::IccLab,
            10 => Self::ItuLab,
            32803 => Self::Cfa,
            32844 => Self::LogL,
            32845 => Self::LogLuv,
            34892 => Self::LinearRaw,
            other => Self::Unknown(other),
        }
    }

    /// The number to write.
    pub fn code(self) -> u16 {
        match self {
            Self::MinIsWhite => 0,
            Self::MinIsBlack => 1,
            Self::Rgb => 2,
            Self::Palette => 3,
            Self::Mask => 4,
            Self::Separated => 5,
            Self::YCbCr => 6,
            Self::CieLab => 8,
            Self::IccLab => 9,
            Self::ItuLab => 10,
            Self::Cfa => 32803,
            Self::LogL => 32844,
            Self::LogLuv => 32845,
            Self::LinearRaw => 34892,
            Self::Unknown(code) => code,
        }
    }
}

impl fmt::Display for Photometric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::MinIsWhite => "MinIsWhite",
            Self::MinIsBlack => "MinIsBlack",
            Self::Rgb => "RGB",
            Self::Palette => "Palette",
            Self::Mask => "Mask",
            Self::Separated => "CMYK",
            Self::YCbCr => "YCbCr",
            Self::CieLab => "CIELab",
            Self::IccLab => "ICCLab",
            Self::ItuLab => "ITULab",
            Self::Cfa => "CFA",
            Self::LogL => "LogL",
            Self::LogLuv => "LogLuv",
            Self::LinearRaw => "LinearRaw",
            Self::Unknown(code) => return write!(f, "unknown ({code})"),
        };
        f.write_str(name)
    }
}
