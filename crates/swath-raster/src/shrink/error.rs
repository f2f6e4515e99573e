//! Why a level cannot be computed.

use super::Resampling;
use std::fmt;
use swath_tiff::SampleType;

/// Why a level cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkError {
    /// The method is not defined for the sample type.
    Undefined(Resampling, SampleType),
    /// The target is empty or larger than the source.
    Size,
    /// A buffer is too short, or the source lacks rows that the target rows need.
    Buffer,
}

impl fmt::Display for ShrinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined(method, sample) => write!(f, "{method} resampling is not defined for {sample} samples"),
            Self::Size => f.write_str("an overview has at least one pixel and is no larger than its source"),
            Self::Buffer => f.write_str("the rows given are not the rows needed"),
        }
    }
}

impl std::error::Error for ShrinkError {}
