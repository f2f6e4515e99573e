//! How much a file may ask for.

/// How much a file may make us allocate or walk. Every number a file declares is checked against these before
/// memory is taken; raise a field to read what is legitimately larger.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of decoded samples that one read may return.
    pub decoded_bytes: u64,
    /// Decoded bytes of a single tile or strip.
    pub tile_bytes: u64,
    /// Directories in one chain.
    pub ifds: u32,
    /// Bytes of one tag's value (tile tables excepted: they are read in slices).
    pub tag_bytes: u64,
    /// Decoded bytes of one read, or of one tile, for each byte of the file; `decoded_floor` is always allowed. Behind a
    /// network the size of a file is a claim: there bytes count that came, or that the tables name for the tiles read.
    ///
    /// A file of a few hundred bytes that declares many gigabytes is not a raster. Rasters of one value are legitimate, and
    /// those above the floor need this raised for a whole read; windows of them do not.
    pub expansion: u64,
    /// Decoded bytes that are never refused for their ratio to the file's size: a read of so much is harmless. What a codec
    /// takes for itself counts the same way, against the bytes of its tile.
    pub decoded_floor: u64,
}

impl Limits {
    /// No limits but the address space: for files whose origin is trusted.
    pub fn none() -> Self {
        Self {
            decoded_bytes: u64::MAX,
            tile_bytes: u64::MAX,
            ifds: u32::MAX,
            tag_bytes: u64::MAX,
            expansion: u64::MAX,
            decoded_floor: u64::MAX,
        }
    }

    /// Bytes that `len` bytes of a file may become, or make us take on the way there.
    pub fn plausible(&self, len: u64) -> u64 {
        len.saturating_mul(self.expansion).max(self.decoded_floor)
    }

    /// Sets [`Limits::decoded_bytes`].
    pub fn with_decoded_bytes(mut self, bytes: u64) -> Self {
        self.decoded_bytes = bytes;
        self
    }

    /// Sets [`Limits::tile_bytes`].
    pub fn with_tile_bytes(mut self, bytes: u64) -> Self {
        self.tile_bytes = bytes;
        self
    }

    /// Sets [`Limits::ifds`].
    pub fn with_ifds(mut self, count: u32) -> Self {
        self.ifds = count;
        self
    }

    /// Sets [`Limits::tag_bytes`].
    pub fn with_tag_bytes(mut self, bytes: u64) -> Self {
        self.tag_bytes = bytes;
        self
    }

    /// Sets [`Limits::expansion`].
    pub fn with_expansion(mut self, ratio: u64) -> Self {
        self.expansion = ratio;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            decoded_bytes: 64 << 30,
            tile_bytes: 4 << 30,
            ifds: 65_536,
            tag_bytes: 16 << 20,
            // An f32 raster of one value in zstd tiles of 512², the steepest that is met in practice, comes to 14 000.
            expansion: 16_384,
            decoded_floor: 1 << 30,
        }
    }
}
