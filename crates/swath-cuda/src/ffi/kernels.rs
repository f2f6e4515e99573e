//! One function for each kernel: checks every length, then launches.
//!
//! What a tile's entry says is checked by the kernel itself against the lengths given here, since entries lie on the device.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::{
    error::DeviceError,
    ffi::{
        memory::{DeviceBuffer, Memory},
        streams::Streams,
        zstd,
    },
    ring::Ring,
};

/// One tile for a decoding kernel: `TileJob` of `kernels/tile.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct TileJob {
    pub(crate) src: u64,
    pub(crate) src_len: u64,
    pub(crate) dst: u64,
    pub(crate) dst_len: u64,
}

/// `DecodeArgs` of `kernels/tile.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecodeArgs {
    src: u64,
    src_len: u64,
    dst: u64,
    dst_len: u64,
    tiles: u64,
    status: u64,
    pub(super) scratch: u64,
    pub(super) scratch_len: u64,
    count: u32,
    pub(super) flags: u32,
}

/// One piece of a Deflate tile: `PieceJob` of `kernels/deflate_pieces.cuh`.
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

/// What became of it: `PieceNote` of `kernels/deflate_pieces.cuh`.
pub(crate) type PieceNote = [u32; 4];

/// Which pieces a tile has: `PieceRange` of `kernels/deflate_pieces.cuh`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PieceRange {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// `PiecesArgs` of `kernels/deflate_pieces.cuh`.
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

/// `JoinArgs` of `kernels/deflate_pieces.cuh`.
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

/// One tile and where it goes: `PlaceTile` of `kernels/place.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PlaceTile {
    pub(crate) src: u64,
    pub(crate) src_len: u64,
    pub(crate) status: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) to_x: u32,
    pub(crate) to_y: u32,
    pub(crate) slot: u32,
    pub(crate) sparse: u32,
    pub(crate) unused: u32,
}

/// `PlaceArgs` of `kernels/place.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PlaceArgs {
    src: u64,
    src_len: u64,
    dst: u64,
    dst_len: u64,
    tiles: u64,
    status: u64,
    statuses: u64,
    samples: u64,
    row_step: u64,
    pixel_step: u64,
    band_step: u64,
    stored_row: u64,
    count: u32,
    parts: u32,
    tile_width: u32,
    tile_samples: u32,
    takes: u32,
    form: u32,
    bits: u32,
    sample_len: u32,
    word: u32,
    swap: u32,
    predictor: u32,
    unused: u32,
    fill: [u8; 16],
}

/// `Rows` of `kernels/rows.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawRows {
    data: u64,
    len: u64,
    band_step: u64,
    row_step: u64,
    ring: u32,
    width: u32,
}

impl RawRows {
    /// The rows of a ring, from band `band` on.
    pub(crate) fn new(ring: &Ring, band: u16) -> Result<Self, DeviceError> {
        let (step, bands) = (ring.band_step(), u64::from(ring.bands));
        let start = step * u64::from(band).min(bands);
        let len = step * bands - start;
        Ok(Self {
            data: ring.buffer.part(start as usize, len as usize)?,
            len,
            band_step: step,
            row_step: ring.row_step(),
            ring: ring.capacity,
            width: ring.width,
        })
    }
}

/// `ReverseArgs` of `kernels/reverse.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReverseArgs {
    data: u64,
    len: u64,
}

/// A decoding kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoding {
    PackBits,
    Lzw,
    Inflate,
    Zstd,
}

/// Bytes of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) buffer: &'a DeviceBuffer,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Part<'_> {
    pub(crate) fn address(&self) -> Result<u64, DeviceError> {
        self.buffer.part(self.offset, self.len)
    }
}

/// What a decoding kernel works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeBatch<'a> {
    pub(crate) compressed: Part<'a>,
    pub(crate) decoded: Part<'a>,
    /// Entries of [`TileJob`].
    pub(crate) tiles: Part<'a>,
    /// One `u32` for each.
    pub(crate) status: Part<'a>,
    pub(crate) scratch: Option<Part<'a>>,
    pub(crate) count: u32,
    /// Bytes of the longest stream.
    pub(crate) longest: usize,
    /// Decoded bytes of the largest tile.
    pub(crate) largest: usize,
    /// Tiles of all batches that may run beside each other.
    pub(crate) at_once: usize,
}

impl<'a> DecodeBatch<'a> {
    pub(super) fn args(&self) -> Result<DecodeArgs, DeviceError> {
        Ok(DecodeArgs {
            src: self.compressed.address()?,
            src_len: self.compressed.len as u64,
            dst: self.decoded.address()?,
            dst_len: self.decoded.len as u64,
            tiles: self.tiles.address()?,
            status: self.status.address()?,
            scratch: 0,
            scratch_len: 0,
            count: self.count,
            flags: 0,
        })
    }

    pub(super) fn buffers(&self) -> Vec<&'a DeviceBuffer> {
        vec![self.compressed.buffer, self.decoded.buffer, self.tiles.buffer, self.status.buffer]
    }
}

macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!("../../kernels/ptx/", $name, ".ptx"))
    };
}

impl Decoding {
    /// Blocks that share a tile, where sharing pays: few LZW tiles, each cut at its Clear codes.
    fn parts(self, memory: &Memory, batch: &DecodeBatch<'_>) -> Option<u32> {
        const WORTH_SHARING: usize = 16 << 10;
        let processors = memory.context.facts.multiprocessors.max(1) as u32;
        let shared = self == Self::Lzw && batch.longest > WORTH_SHARING && (1..=processors).contains(&batch.count);
        let room = batch.scratch.as_ref().map_or(0, |scratch| scratch.len / batch.count.max(1) as usize);
        (shared && room >= notes_len(batch.longest, 4096)).then(|| (12 * processors / batch.count).min(64))
    }

    /// Bytes of scratch that the launches on one stream share.
    pub(crate) fn scratch_len(self) -> usize {
        if self == Self::Lzw { 1 << 20 } else { 0 }
    }

    /// Decodes a batch of tiles.
    pub(crate) fn launch(self, streams: &Streams, stream: usize, batch: &DecodeBatch<'_>) -> Result<(), DeviceError> {
        let count = batch.count as usize;
        has("tiles", batch.tiles.len, count * size_of::<TileJob>())?;
        has("statuses", batch.status.len, count * size_of::<u32>())?;
        if let Some(parts) = self.parts(streams.memory(), batch) {
            return launch_in_parts(streams, stream, batch, parts);
        }
        let memory = streams.memory();
        let function = match self {
            Self::PackBits => memory.function("packbits", ptx!("packbits"), "swath_packbits"),
            Self::Lzw => memory.function("lzw", ptx!("lzw"), "swath_lzw"),
            Self::Inflate => memory.function("inflate", ptx!("inflate"), inflate_for(memory, batch.at_once)),
            Self::Zstd => return zstd::launch(streams, stream, batch),
        }?;
        let blocks = batch.count.min(function.resident);
        if blocks == 0 {
            return Ok(());
        }
        let (args, buffers) = (batch.args()?, batch.buffers());
        // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers.
        unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
    }
}

/// Which Deflate kernel fills the device with so many tiles: fewer tiles get more threads each (`kernels/NOTES-deflate.md`).
fn inflate_for(memory: &Memory, tiles: usize) -> &'static str {
    by_share(memory, tiles, ["swath_inflate_few", "swath_inflate_some", "swath_inflate"])
}

/// One of three kernels: for two streams or fewer to a multiprocessor, for four, for more.
pub(super) fn by_share(memory: &Memory, streams: usize, [few, some, many]: [&'static str; 3]) -> &'static str {
    let processors = memory.context.facts.multiprocessors.max(1) as usize;
    match streams.div_ceil(processors) {
        0..=2 => few,
        3..=4 => some,
        _ => many,
    }
}

/// Deflate tiles that are said to be cut into pieces.
#[derive(Debug, Clone)]
pub(crate) struct PieceBatch<'a> {
    pub(crate) compressed: Part<'a>,
    pub(crate) decoded: Part<'a>,
    /// Entries of [`TileJob`], for whole tiles.
    pub(crate) tiles: Part<'a>,
    /// Entries of [`PieceRange`], one for each tile.
    pub(crate) ranges: Part<'a>,
    /// Entries of [`PieceJob`], as many as the ranges count.
    pub(crate) pieces: Part<'a>,
    /// As many of [`PieceNote`].
    pub(crate) notes: Part<'a>,
    /// One `u32` for each tile.
    pub(crate) status: Part<'a>,
    /// Tiles.
    pub(crate) count: usize,
    /// Those of the pieces that belong to these tiles.
    pub(crate) own: Range<usize>,
    /// Pieces of all batches that may run beside each other.
    pub(crate) at_once: usize,
}

/// Decodes the pieces, then says what became of the tiles.
pub(crate) fn inflate_pieces(streams: &Streams, stream: usize, batch: &PieceBatch<'_>) -> Result<(), DeviceError> {
    let (own, all) = (&batch.own, batch.pieces.len / size_of::<PieceJob>());
    has("tiles", batch.tiles.len, batch.count * size_of::<TileJob>())?;
    has("ranges", batch.ranges.len, batch.count * size_of::<PieceRange>())?;
    has("pieces", batch.pieces.len, own.end * size_of::<PieceJob>())?;
    has("notes", batch.notes.len, all * size_of::<PieceNote>())?;
    has("statuses", batch.status.len, batch.count * size_of::<u32>())?;
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

/// What the kernels note of an LZW stream: a head, and sixteen bytes for each segment of so many bytes. libtiff's have 4 KiB or
/// more. Where there are more segments than notes, one block decodes the tile alone.
fn notes_len(stream: usize, segment: usize) -> usize {
    16 * (9 + stream / segment)
}

/// Decodes LZW tiles by several blocks each: they find the segments, measure them, and write them.
fn launch_in_parts(streams: &Streams, stream: usize, batch: &DecodeBatch<'_>, parts: u32) -> Result<(), DeviceError> {
    let Some(scratch) = &batch.scratch else { return Err(DeviceError::Usage("LZW in parts has no scratch".into())) };
    let room = scratch.len / batch.count.max(1) as usize / 16 * 16;
    let mut args = batch.args()?;
    (args.scratch, args.scratch_len, args.flags) =
        (scratch.address()?, room.min(notes_len(batch.longest, 1024)) as u64, parts);
    let mut buffers = batch.buffers();
    buffers.push(scratch.buffer);
    let blocks = batch.count * parts;
    for (name, blocks) in [("swath_lzw_find", batch.count), ("swath_lzw_measure", blocks), ("swath_lzw_write", blocks)]
    {
        let function = streams.memory().function("lzw", ptx!("lzw"), name)?;
        // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers, and of the scratch.
        unsafe { streams.launch(stream, function, blocks, &args, &buffers) }?;
    }
    Ok(())
}

/// How the tiles of a read become samples: what all placements have in common.
#[derive(Debug, Clone)]
pub(crate) struct PlaceRule {
    pub(crate) row_step: u64,
    pub(crate) pixel_step: u64,
    pub(crate) band_step: u64,
    pub(crate) stored_row: u64,
    pub(crate) tile_width: u32,
    pub(crate) tile_samples: u32,
    pub(crate) takes: u32,
    pub(crate) form: Form,
    pub(crate) bits: u32,
    pub(crate) sample_len: u32,
    pub(crate) word: u32,
    pub(crate) swap: bool,
    pub(crate) predictor: u32,
    pub(crate) fill: [u8; 16],
}

/// How stored bits become a sample: `PlaceForm` of `kernels/place.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Form {
    Whole = 0,
    Packed = 1,
    UInt24Little = 2,
    UInt24Big = 3,
    Float24Little = 4,
    Float24Big = 5,
}

/// What a placement works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceBatch<'a> {
    pub(crate) source: Part<'a>,
    pub(crate) output: &'a DeviceBuffer,
    /// Entries of [`PlaceTile`].
    pub(crate) tiles: Part<'a>,
    /// One `u32` for each tile of the read; without any, all tiles are good.
    pub(crate) status: Option<Part<'a>>,
    /// One `u16` for each output band that a tile fills.
    pub(crate) samples: Part<'a>,
    pub(crate) count: u32,
    /// Rows of the tallest placement.
    pub(crate) rows: u32,
}

/// Puts samples in their place.
pub(crate) fn place(
    streams: &Streams,
    stream: usize,
    rule: &PlaceRule,
    batch: &PlaceBatch<'_>,
) -> Result<(), DeviceError> {
    if batch.count == 0 {
        return Ok(());
    }
    let function = streams.memory().function("place", ptx!("place"), "swath_place")?;
    let count = batch.count as usize;
    has("placements", batch.tiles.len, count * size_of::<PlaceTile>())?;
    has("samples", batch.samples.len, rule.takes as usize * size_of::<u16>())?;
    // Enough blocks to fill the device several times over, and no more than there are rows for eight warps each.
    let wanted = (function.resident * 4).div_ceil(batch.count).max(1);
    let parts = wanted.min(batch.rows.div_ceil(8)).max(1);
    let blocks = batch
        .count
        .checked_mul(parts)
        .filter(|blocks| *blocks <= i32::MAX as u32)
        .ok_or_else(|| DeviceError::Usage("more placements than a launch can have".into()))?;
    let args = PlaceArgs {
        src: batch.source.address()?,
        src_len: batch.source.len as u64,
        dst: batch.output.address(),
        dst_len: batch.output.len() as u64,
        tiles: batch.tiles.address()?,
        status: batch.status.as_ref().map_or(Ok(0), Part::address)?,
        statuses: batch.status.as_ref().map_or(0, |status| status.len / size_of::<u32>()) as u64,
        samples: batch.samples.address()?,
        row_step: rule.row_step,
        pixel_step: rule.pixel_step,
        band_step: rule.band_step,
        stored_row: rule.stored_row,
        count: batch.count,
        parts,
        tile_width: rule.tile_width,
        tile_samples: rule.tile_samples,
        takes: rule.takes,
        form: rule.form as u32,
        bits: rule.bits,
        sample_len: rule.sample_len,
        word: rule.word,
        swap: rule.swap.into(),
        predictor: rule.predictor,
        unused: 0,
        fill: rule.fill,
    };
    let mut buffers = vec![batch.source.buffer, batch.output, batch.tiles.buffer, batch.samples.buffer];
    buffers.extend(batch.status.map(|status| status.buffer));
    // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// `CheckArgs` of `kernels/check.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CheckArgs {
    got: u64,
    wanted: u64,
    status: u64,
    count: u64,
}

/// Marks tiles whose stream gave another length than the tile has. Lengths are `u64`, statuses `u32`.
pub(crate) fn check(
    streams: &Streams,
    stream: usize,
    got: Part<'_>,
    wanted: Part<'_>,
    status: Part<'_>,
    count: usize,
) -> Result<(), DeviceError> {
    let function = streams.memory().function("check", ptx!("check"), "swath_check")?;
    has("lengths", got.len.min(wanted.len), count * size_of::<u64>())?;
    has("statuses", status.len, count * size_of::<u32>())?;
    let args =
        CheckArgs { got: got.address()?, wanted: wanted.address()?, status: status.address()?, count: count as u64 };
    let blocks = (count.div_ceil(function.threads as usize) as u32).clamp(1, function.resident);
    // SAFETY: the arrays were checked to be as long as the count says.
    unsafe { streams.launch(stream, function, blocks, &args, &[got.buffer, wanted.buffer, status.buffer]) }
}

/// Reverses the bits of each byte.
pub(crate) fn reverse(streams: &Streams, stream: usize, part: Part<'_>) -> Result<(), DeviceError> {
    if part.len == 0 {
        return Ok(());
    }
    let function = streams.memory().function("reverse", ptx!("reverse"), "swath_reverse")?;
    let blocks = (part.len.div_ceil(function.threads as usize * 16) as u32).min(function.resident * 4).max(1);
    let args = ReverseArgs { data: part.address()?, len: part.len as u64 };
    // SAFETY: the part was checked to lie in its buffer.
    unsafe { streams.launch(stream, function, blocks, &args, &[part.buffer]) }
}

pub(super) fn has(what: &str, have: usize, need: usize) -> Result<(), DeviceError> {
    if have < need {
        return Err(DeviceError::Usage(format!("{what}: {have} bytes where {need} are needed")));
    }
    Ok(())
}
