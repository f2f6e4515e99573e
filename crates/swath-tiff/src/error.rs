//! The error of this crate: a fault of the file, and its place.

use crate::place::Place;

/// What is wrong with a file's structure, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TiffError {
    /// The bytes contradict the format.
    #[error("{detail}")]
    Malformed {
        /// What is wrong.
        detail: String,
        /// Where.
        place: Place,
    },
    /// The file may be valid, but it uses a feature that is not supported.
    #[error("not supported: {detail}")]
    Unsupported {
        /// The feature.
        detail: String,
        /// Where.
        place: Place,
    },
    /// The file requires more than [`crate::Limits`] allow.
    #[error("{what} of {asked} is over the limit of {allowed}")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The amount that the file requires.
        asked: u64,
        /// The amount that is allowed.
        allowed: u64,
        /// The field of `Limits` to raise.
        field: &'static str,
        /// Where.
        place: Place,
    },
}

impl TiffError {
    /// A [`TiffError::Malformed`] without a place.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed { detail: detail.into(), place: Place::default() }
    }

    /// A [`TiffError::Unsupported`] without a place.
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self::Unsupported { detail: detail.into(), place: Place::default() }
    }

    /// The place of the fault.
    pub fn place(&self) -> &Place {
        match self {
            Self::Malformed { place, .. } | Self::Unsupported { place, .. } | Self::Limit { place, .. } => place,
        }
    }

    /// Fills the unknown fields of the place from `outer`.
    pub fn at(mut self, outer: &Place) -> Self {
        let place = match &mut self {
            Self::Malformed { place, .. } | Self::Unsupported { place, .. } | Self::Limit { place, .. } => place,
        };
        *place = std::mem::take(place).or(outer);
        self
    }

    /// Adds the tag to the place.
    pub fn at_tag(self, tag: u16) -> Self {
        self.at(&Place { tag: Some(tag), ..Place::default() })
    }

    /// Adds the byte offset to the place.
    pub fn at_offset(self, offset: u64) -> Self {
        self.at(&Place { offset: Some(offset), ..Place::default() })
    }
}
