//! Names the ways to shrink, as a command line and GDAL spell them.

use std::fmt;
use std::str::FromStr;
use swath_tiff::SampleType;

/// A way to make one pixel of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resampling {
    /// One of the pixels.
    Nearest,
    /// The mean, by covered area.
    Average,
    /// A triangle kernel.
    Bilinear,
    /// The Catmull-Rom kernel.
    Cubic,
    /// The Lanczos kernel of radius three.
    Lanczos,
    /// The value that occurs most.
    Mode,
    /// The smallest. GDAL has none for overviews.
    Min,
    /// The largest. GDAL has none for overviews.
    Max,
    /// The middle one: of an even count the lower for integers, the mean of both for floats. GDAL has none for overviews.
    Median,
    /// The root of the mean of squares, by covered area.
    Rms,
}

impl Resampling {
    /// All of them.
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

    /// Its name.
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

    /// Whether it is defined for a sample type. GDAL has no kernels for complex samples, and they have no order.
    pub const fn supports(self, sample: SampleType) -> bool {
        !sample.is_complex() || matches!(self, Self::Nearest | Self::Average | Self::Mode | Self::Rms)
    }
}

impl fmt::Display for Resampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownResampling(pub String);

impl fmt::Display for UnknownResampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no resampling; there are", self.0)?;
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
