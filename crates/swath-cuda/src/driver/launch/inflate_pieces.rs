//! Launches the kernels that decode Deflate tiles in pieces, side by side.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::{
            decode_batch::TileJob,
            slice::{BufferSlice, by_share, check_len, ptx},
        },
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// One piece of a Deflate tile: `PieceJob` of `kernels/deflate/decode_pieces.cuh`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PieceJob {
    pub(crate) src: u64,
    pub(crate) src_len: u64,
    pub(crate) dst: u64,
    pub(crate) dst_len: u64,
    pub(crate) last: u32,
    pub(crate) unused: u32,
}

/// The result of decoding a piece: `PieceNote` of `kernels/deflate/decode_pieces.cuh`.
pub(crate) type PieceNote = [u32; 4];

/// The pieces of a tile: `PieceRange` of `kernels/deflate/decode_pieces.cuh`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PieceRange {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// `PiecesArgs` of `kernels/deflate/decode_pieces.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PiecesArgs {
    src: u64,
    src_len: u64,
    dst: u64,
    dst_len: u64,
    pieces: u64,
    notes: u64,
    count: u64,
}

/// `JoinArgs` of `kernels/deflate/decode_pieces.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct JoinArgs {
    src: u64,
    src_len: u64,
    tiles: u64,
    ranges: u64,
    pieces: u64,
    notes: u64,
    pieces_len: u64,
    status: u64,
    count: u64,
}

/// Deflate tiles that the file claims to be cut into pieces.
#[derive(Debug, Clone)]
pub(crate) struct PiecesLaunch<'a> {
    pub(crate) compressed: BufferSlice<'a>,
    pub(crate) decoded: BufferSlice<'a>,
    /// Entries of [`TileJob`], for whole tiles.
    pub(crate) tiles: BufferSlice<'a>,
    /// Entries of [`PieceRange`], one for each tile.
    pub(crate) ranges: BufferSlice<'a>,
    /// Entries of [`PieceJob`] for all tiles.
    pub(crate) pieces: BufferSlice<'a>,
    /// One [`PieceNote`] for each piece.
    pub(crate) notes: BufferSlice<'a>,
    /// One `u32` for each tile.
    pub(crate) status: BufferSlice<'a>,
    /// Number of tiles.
    pub(crate) count: usize,
    /// The pieces of these tiles.
    pub(crate) own: Range<usize>,
    /// Number of pieces in all launches that may run at the same time.
    pub(crate) at_once: usize,
}

/// Decodes the pieces, then derives the status of each tile from its pieces.
pub(crate) fn launch_inflate_pieces(
    streams: &Streams,
    stream: usize,
    batch: &PiecesLaunch<'_>,
) -> Result<(), DeviceError> {
    let (own, all) = (&batch.own, batch.pieces.len / size_of::<PieceJob>());
    check_len("tiles", batch.tiles.len, batch.count * size_of::<TileJob>())?;
    check_len("ranges", batch.ranges.len, batch.count * size_of::<PieceRange>())?;
    check_len("pieces", batch.pieces.len, own.end * size_of::<PieceJob>())?;
    check_len("notes", batch.notes.len, all * size_of::<PieceNote>())?;
    check_len("statuses", batch.status.len, batch.count * size_of::<u32>())?;
    if batch.count == 0 || own.is_empty() {
        return Ok(());
    }
    let memory = streams.memory();
    let names = ["swath_inflate_pieces_few", "swath_inflate_pieces_some", "swath_inflate_pieces"];
    let name = by_share(memory, batch.at_once, names);
    let inflate = memory.function("inflate_pieces", ptx!("inflate_pieces"), name)?;
    let join = memory.function("inflate_pieces", ptx!("inflate_pieces"), "swath_join_pieces")?;
    let (src, src_len) = (batch.compressed.address()?, batch.compressed.len as u64);
    let (pieces, notes) = (batch.pieces.address()?, batch.notes.address()?);
    let args = PiecesArgs {
        src,
        src_len,
        dst: batch.decoded.address()?,
        dst_len: batch.decoded.len as u64,
        pieces: pieces + (own.start * size_of::<PieceJob>()) as u64,
        notes: notes + (own.start * size_of::<PieceNote>()) as u64,
        count: own.len() as u64,
    };
    let blocks = u32::try_from(own.len()).unwrap_or(u32::MAX).min(inflate.resident).max(1);
    let buffers = [batch.compressed.buffer, batch.decoded.buffer, batch.pieces.buffer, batch.notes.buffer];
    // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers and to hold the entries.
    unsafe { streams.launch(stream, inflate, blocks, &args, &buffers) }?;
    let args = JoinArgs {
        src,
        src_len,
        tiles: batch.tiles.address()?,
        ranges: batch.ranges.address()?,
        pieces,
        notes,
        pieces_len: all as u64,
        status: batch.status.address()?,
        count: batch.count as u64,
    };
    let blocks = u32::try_from(batch.count.div_ceil(join.threads as usize)).unwrap_or(u32::MAX);
    let buffers = [
        batch.compressed.buffer,
        batch.tiles.buffer,
        batch.ranges.buffer,
        batch.pieces.buffer,
        batch.notes.buffer,
        batch.status.buffer,
    ];
    // SAFETY: as above.
    unsafe { streams.launch(stream, join, blocks.clamp(1, join.resident), &args, &buffers) }
}
