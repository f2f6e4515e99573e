//! Device memory that tiles take while they are decoded.

use crate::{
    decode::{path::DecodePath, tables::ChunkEntry},
    driver::{
        launch::{
            decode_batch::TileJob,
            inflate_pieces::{PieceJob, PieceNote, PieceRange},
            place::PlaceTile,
            slice::ALIGN,
        },
        memory::pool::allocated_len,
    },
};

/// Room at the head of the tables for the placed samples (65535 at most) and the padding after them.
pub(crate) const TABLE_HEAD: u64 = 2 * 65535 + ALIGN as u64;

/// Temporary memory set aside for each nvCOMP tile, whatever its size.
const LEAST_TEMPORARY: u64 = 4 << 10;

/// Device memory that tiles need while they are decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of compressed streams.
    pub compressed: u64,
    /// Bytes of decoded tiles.
    pub decoded: u64,
    /// Bytes of tables.
    pub tables: u64,
    /// Bytes of scratch and temporary memory for kernels and libraries.
    pub temporary: u64,
}

impl Footprint {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.compressed + self.decoded + self.tables + self.temporary
    }

    /// Returns the bytes that the buffers take on the device.
    pub fn allocated_len(&self) -> u64 {
        [self.compressed.max(1), self.decoded.max(1), self.tables + TABLE_HEAD, self.temporary]
            .map(allocated_len)
            .iter()
            .sum()
    }

    /// Returns the memory for both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            compressed: self.compressed + other.compressed,
            decoded: self.decoded + other.decoded,
            tables: self.tables + other.tables,
            temporary: self.temporary + other.temporary,
        }
    }

    /// Returns the memory that is enough for either.
    pub fn max(self, other: Self) -> Self {
        Self {
            compressed: self.compressed.max(other.compressed),
            decoded: self.decoded.max(other.decoded),
            tables: self.tables.max(other.tables),
            temporary: self.temporary.max(other.temporary),
        }
    }

    /// Returns what one tile with its placements needs.
    pub fn of_tile(path: DecodePath, stream_len: u64, decoded_len: u64, placements: usize) -> Self {
        let room = |len: u64| len.next_multiple_of(ALIGN as u64) + ALIGN as u64;
        let chunk = if path.has_chunks() { size_of::<ChunkEntry>() } else { 0 };
        Self {
            compressed: if path.uploads_streams() { room(stream_len) } else { 0 },
            decoded: if path.decodes_apart() { room(decoded_len) } else { 0 },
            tables: (size_of::<TileJob>() + chunk + placements * size_of::<PlaceTile>()) as u64,
            temporary: decoded_len / 8 * path.temporary_eighths() + u64::from(path.has_chunks()) * LEAST_TEMPORARY,
        }
    }

    /// Returns the scratch that each tile needs where its path has tile scratch: as much as for a tile of `largest`
    /// decoded bytes.
    pub fn of_scratch(path: DecodePath, largest: usize) -> Self {
        Self { temporary: path.tile_scratch(largest) as u64, ..Self::default() }
    }

    /// Returns the additional memory of a tile that is decoded in this many pieces.
    pub fn of_pieces(pieces: usize) -> Self {
        let tables = size_of::<PieceRange>() + pieces * (size_of::<PieceJob>() + size_of::<PieceNote>());
        Self { tables: tables as u64, ..Self::default() }
    }

    /// Returns what placements without a tile need.
    pub fn of_sparse(placements: usize) -> Self {
        Self { tables: (placements * size_of::<PlaceTile>()) as u64, ..Self::default() }
    }
}
