//! What can be wrong with a file's structure.

use crate::words::place::Place;

/// What can be wrong with a file's structure, and where.
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
    /// The file may be sound, but uses something we do not read.
    #[error("not supported: {detail}")]
    Unsupported {
        /// What is used.
        detail: String,
        /// Where.
        place: Place,
    },
    /// The file asks for more than [`crate::Limits`] allow.
    #[error("{what} of {asked} is over the limit of {allowed}")]
    Limit {
        /// What would be taken.
        what: &'static str,
        /// How much of it.
        asked: u64,
        /// How much is allowed.
        allowed: u64,
        /// The field of `Limits` that decides.
        field: &'static str,
        /// Where.
        place: Place,
    },
}

impl TiffError {
    /// A contradiction with the format.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed { detail: detail.into(), place: Place::default() }
    }

    /// Something we do not read.
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self::Unsupported { detail: detail.into(), place: Place::default() }
    }

    /// Where it happened.
    pub fn place(&self) -> &Place {
        match self {
            Self::Malformed { place, .. } | Self::Unsupported { place, .. } | Self::Limit { place, .. } => place,
        }
    }

    /// Adds what an outer layer knows about the place.
    pub fn at(mut self, outer: &Place) -> Self {
        let place = match &mut self {
            Self::Malformed { place, .. } | Self::Unsupported { place, .. } | Self::Limit { place, .. } => place,
        };
        *place = std::mem::take(place).or(outer);
        self
    }

    /// Adds the tag.
    pub fn at_tag(self, tag: u16) -> Self {
        self.at(&Place { tag: Some(tag), ..Place::default() })
    }

    /// Adds the byte offset.
    pub fn at_offset(self, offset: u64) -> Self {
        self.at(&Place { offset: Some(offset), ..Place::default() })
    }
}
