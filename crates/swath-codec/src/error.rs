//! What can go wrong inside one tile.

/// What can go wrong inside one tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The compressed bytes contradict their format.
    #[error("{codec}: {detail}")]
    Corrupt {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong, and where in the tile.
        detail: String,
    },
    /// The stream ended before the tile was full.
    #[error("{codec}: the tile ends after {got} of {wanted} bytes")]
    Short {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes that came out.
        got: u64,
        /// Bytes that the tile has.
        wanted: u64,
    },
    /// The codec is there, but not for this kind of sample or stream.
    #[error("{codec}: {detail} is not supported")]
    Unsupported {
        /// Name of the codec.
        codec: &'static str,
        /// What is not supported.
        detail: String,
    },
    /// This build leaves the codec out.
    #[error("{codec} tiles cannot be decoded: this build is without the `{feature}` feature")]
    NotBuilt {
        /// Name of the codec.
        codec: &'static str,
        /// The Cargo feature that adds it.
        feature: &'static str,
    },
    /// No decoder at all.
    #[error("{0} is not supported")]
    NoDecoder(String),
    /// No encoder at all.
    #[error("{0} cannot be written")]
    NoEncoder(String),
    /// The encoder does not take this setting, or its library failed.
    #[error("{codec}: {detail}")]
    Encode {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The system has no memory for the tile, or to decode it.
    #[error("there is no memory for {0} bytes of a tile")]
    NoMemory(u64),
    /// The codec's library has no memory to decode the tile.
    #[error("{codec}: there is no memory to decode the tile")]
    LibraryMemory {
        /// Name of the codec.
        codec: &'static str,
    },
    /// The tile asks for more memory than allowed, and the codec's library does not tell how much.
    #[error("{codec}: the tile asks for more than the {allowed} bytes that are allowed")]
    OverLimit {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The tile asks for more memory than allowed.
    #[error("{codec}: the tile asks for {asked} bytes, {allowed} are allowed")]
    Limit {
        /// Name of the codec.
        codec: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes allowed.
        allowed: u64,
    },
}

impl CodecError {
    /// A contradiction in the compressed bytes.
    pub fn corrupt(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt { codec, detail: detail.into() }
    }

    /// A setting that the encoder does not take, or a failure of its library.
    pub fn encode(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Encode { codec, detail: detail.into() }
    }

    /// A kind of sample or stream that the codec does not take.
    pub fn unsupported(codec: &'static str, detail: impl Into<String>) -> Self {
        Self::Unsupported { codec, detail: detail.into() }
    }
}
