//! What can go wrong inside one tile.

use swath_raster::memory::OutOfMemory;

/// What can go wrong inside one tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The compressed bytes violate their format.
    #[error("{codec}: {detail}")]
    Corrupt {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong, and at which byte of the tile.
        detail: String,
    },
    /// The stream ended before the tile was full.
    #[error("{codec}: the tile ends after {got} of {expected} bytes")]
    Short {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes decoded.
        got: u64,
        /// Bytes of the whole tile.
        expected: u64,
    },
    /// The codec does not support this kind of sample or stream.
    #[error("{codec}: {detail} is not supported")]
    Unsupported {
        /// Name of the codec.
        codec: &'static str,
        /// What is not supported.
        detail: String,
    },
    /// This build does not include the codec.
    #[error("{codec} tiles cannot be decoded: this build is without the `{feature}` feature")]
    NotBuilt {
        /// Name of the codec.
        codec: &'static str,
        /// The Cargo feature that adds it.
        feature: &'static str,
    },
    /// The registry has no decoder for the compression.
    #[error("{0} is not supported")]
    NoDecoder(String),
    /// The registry has no encoder for the compression.
    #[error("{0} cannot be written")]
    NoEncoder(String),
    /// The encoder rejects a setting, or its library failed.
    #[error("{codec}: {detail}")]
    Encode {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The system has no memory for the tile or for decoding it.
    #[error("there is no memory for {0} bytes of a tile")]
    NoMemory(u64),
    /// The codec's library ran out of memory while decoding or encoding the tile.
    #[error("{codec}: the library has no memory for the tile")]
    LibraryMemory {
        /// Name of the codec.
        codec: &'static str,
    },
    /// The tile needs more memory than allowed, and the codec's library does not report how much.
    #[error("{codec}: the tile asks for more than the {allowed} bytes that are allowed")]
    OverLimit {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The tile needs more memory than allowed.
    #[error("{codec}: the tile asks for {asked} bytes, {allowed} are allowed")]
    Limit {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes needed.
        asked: u64,
        /// Bytes allowed.
        allowed: u64,
    },
}

impl From<OutOfMemory> for CodecError {
    fn from(error: OutOfMemory) -> Self {
        Self::NoMemory(error.bytes)
    }
}

impl CodecError {
    /// Creates the error for compressed bytes that violate their format.
    pub fn corrupt(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt { codec, detail: detail.into() }
    }

    /// Creates the error for a rejected setting or a failure of the encoder's library.
    pub fn encode(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Encode { codec, detail: detail.into() }
    }

    /// Creates the error for a kind of sample or stream that the codec does not support.
    pub fn unsupported(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Unsupported { codec, detail: detail.into() }
    }
}
