//! The tables that describe a batch to kernels and to nvCOMP, as bytes for one upload.
//!
//! The tables follow each other: which samples are placed, the tiles, the placements, then either nvCOMP's arrays or
//! the pieces of tiles.

use crate::{
    decode::batch::DecodeBatch,
    driver::launch::{decode_batch::TileJob, inflate_pieces::PieceNote, place::PlaceTile, slice::ALIGN},
};

/// Returns which samples of a tile are placed, padded so that the next table is aligned.
pub(crate) fn sample_table(samples: &[u16]) -> Vec<u8> {
    let mut bytes: Vec<u8> = bytemuck::cast_slice(samples).to_vec();
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes
}

/// One tile's elements of nvCOMP's five arrays.
pub(super) type ChunkEntry = [u64; 5];

/// Returns where nvCOMP's arrays, or those of pieces, begin in the tables of a batch.
pub(crate) fn chunks_at(samples: &[u16], batch: &DecodeBatch) -> usize {
    sample_table(samples).len()
        + batch.tiles.len() * size_of::<TileJob>()
        + batch.placements.len() * size_of::<PlaceTile>()
}

/// Returns the pieces, the range of pieces of each tile, and one note for each piece. All notes start as "not decoded".
pub(crate) fn piece_tables(batch: &DecodeBatch) -> Vec<u8> {
    let mut bytes: Vec<u8> = bytemuck::cast_slice(&batch.pieces).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&batch.ranges));
    bytes.resize(bytes.len() + batch.pieces.len() * size_of::<PieceNote>(), 0xff);
    bytes
}

/// Returns the addresses and lengths of streams, the addresses and lengths of tiles, and zeros where nvCOMP writes how
/// many bytes each stream gave.
pub(crate) fn chunk_tables(batch: &DecodeBatch, compressed: u64, decoded: u64) -> Vec<u8> {
    let jobs = || batch.tiles.iter();
    let words: Vec<u64> = jobs()
        .map(|job| compressed + job.src)
        .chain(jobs().map(|job| job.src_len))
        .chain(jobs().map(|job| decoded + job.dst))
        .chain(jobs().map(|job| job.dst_len))
        .chain(jobs().map(|_| 0))
        .collect();
    bytemuck::cast_slice(&words).to_vec()
}
