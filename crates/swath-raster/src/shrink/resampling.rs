//! The resampling methods and their names, spelled as GDAL and the command line spell them.

use std::fmt;
use std::str::FromStr;
use swath_tiff::SampleType;

/// A method that computes one pixel from many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resampling {
    /// One of the source pixels, unchanged.
    Nearest,
    /// The area-weighted mean.
    Average,
    /// A triangle kernel.
    Bilinear,
    /// The Catmull-Rom kernel.
    Cubic,
    /// The Lanczos kernel of radius three.
    Lanczos,
    /// The most frequent value.
    Mode,
    /// The smallest value. GDAL does not offer it for overviews.
    Min,
    /// The largest value. GDAL does not offer it for overviews.
    Max,
    /// The median; of an even count the lower middle value for integers, the mean of both for floats. GDAL does not offer it for
    /// overviews.
    Median,
    /// The area-weighted root mean square.
    Rms,
}

impl Resampling {
    /// All methods.
    pub const ALL: [Self; 10] = [
        Self::Nearest,
        Self::Average,
        Self::Bilinear,
        Self::Cubic,
        Self::Lanczos,
        Self::Mode,
        Self::Min,
        Self::Max,
        Self::Median,
        Self::Rms,
    ];

    /// Whether it computes values that no source pixel has.
    pub const fn mixes(self) -> bool {
        !matches!(self, Self::Nearest | Self::Mode | Self::Min | Self::Max)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Average => "average",
            Self::Bilinear => "bilinear",
            Self::Cubic => "cubic",
            Self::Lanczos => "lanczos",
            Self::Mode => "mode",
            Self::Min => "min",
            Self::Max => "max",
            Self::Median => "median",
            Self::Rms => "rms",
        }
    }

    /// Whether the method is defined for a sample type. Complex samples have no order, and GDAL has no kernels for them.
    pub const fn supports(self, sample: SampleType) -> bool {
        !sample.is_complex() || matches!(self, Self::Nearest | Self::Average | Self::Mode | Self::Rms)
    }
}

impl fmt::Display for Resampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not the name of a resampling method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownResampling(pub String);

impl fmt::Display for UnknownResampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a resampling method; there are", self.0)?;
        Resampling::ALL.iter().try_for_each(|method| write!(f, " {method}"))
    }
}

impl std::error::Error for UnknownResampling {}

impl FromStr for Resampling {
    type Err = UnknownResampling;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| UnknownResampling(text.to_owned()))
    }
}
