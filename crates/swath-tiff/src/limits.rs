//! Limits on what a file may make a reader allocate.

/// How much a file may make a reader allocate or walk. Every number that a file declares is checked against these limits before
/// memory is allocated. Raise a field to read a file that is legitimately larger.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of decoded samples that one read may return.
    pub decoded_bytes: u64,
    /// Decoded bytes of a single tile or strip.
    pub tile_bytes: u64,
    /// Directories in one chain.
    pub ifds: u32,
    /// Bytes of one tag's value. Tile tables are exempt, because they are read in slices.
    pub tag_bytes: u64,
    /// Decoded bytes of one read, or of one tile, for each byte of the file; `decoded_floor` is always allowed. A remote server
    /// only claims the size of a file, so there the limit counts the bytes received, or those that the tables declare for the
    /// tiles read.
    ///
    /// A file of a few hundred bytes that declares many gigabytes is not a raster. Rasters of one value are legitimate: to read
    /// one above the floor as a whole, raise this limit; windows of it need no change.
    pub expansion: u64,
    /// Decoded bytes that are allowed whatever their ratio to the file's size, because a read of this size is harmless. A codec's
    /// own memory is limited in the same way, against the bytes of its tile.
    pub decoded_floor: u64,
}

impl Limits {
    /// No limits except the address space, for files of trusted origin.
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

    /// The most bytes that `len` bytes of a file may expand to, or make a codec allocate.
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
            // The steepest ratio met in practice is 14 000: an f32 raster of one value in Zstd tiles of 512².
            expansion: 16_384,
            decoded_floor: 1 << 30,
        }
    }
}
