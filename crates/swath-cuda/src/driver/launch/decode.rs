//! Launches the kernels that decode tiles: one entry for each codec.

use crate::{
    driver::{
        launch::{
            decode_batch::{DecodeLaunch, TileJob},
            inflate_shared::{launch_inflate_shared, shared_scratch_len},
            slice::{by_share, check_len, ptx},
            zstd::{launch_zstd, zstd_scratch_len, zstd_shared_scratch_len},
        },
        memory::{pool::Memory, streams::Streams},
    },
    error::DeviceError,
};

/// A decoding kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeKernel {
    PackBits,
    Lzw,
    Inflate,
    /// As `Inflate`, with many blocks for each tile and scratch for each tile.
    InflateShared,
    Zstd,
    /// As `Zstd`, with many blocks for each tile.
    ZstdShared,
}

impl DecodeKernel {
    /// Returns how many blocks share a tile, where sharing pays: with few LZW tiles, each cut at its Clear codes.
    fn parts(self, memory: &Memory, batch: &DecodeLaunch<'_>) -> Option<u32> {
        const WORTH_SHARING: usize = 16 << 10;
        let processors = memory.context.facts.multiprocessors.max(1) as u32;
        let shared = self == Self::Lzw && batch.longest > WORTH_SHARING && (1..=processors).contains(&batch.count);
        let room = batch.scratch.as_ref().map_or(0, |scratch| scratch.len / batch.count.max(1) as usize);
        (shared && room >= notes_len(batch.longest, 4096)).then(|| (12 * processors / batch.count).min(64))
    }

    /// Returns the bytes of scratch that the launches on one stream share.
    pub(crate) fn scratch_len(self) -> usize {
        if self == Self::Lzw { 1 << 20 } else { 0 }
    }

    /// Returns the bytes of scratch for each tile of a read whose largest tile has `largest` decoded bytes.
    pub(crate) fn tile_scratch_len(self, largest: usize) -> usize {
        match self {
            Self::InflateShared => shared_scratch_len(largest),
            Self::Zstd => zstd_scratch_len(largest),
            Self::ZstdShared => zstd_shared_scratch_len(largest),
            Self::PackBits | Self::Lzw | Self::Inflate => 0,
        }
    }

    /// Decodes a batch of tiles.
    pub(crate) fn launch(self, streams: &Streams, stream: usize, batch: &DecodeLaunch<'_>) -> Result<(), DeviceError> {
        let count = batch.count as usize;
        check_len("tiles", batch.tiles.len, count * size_of::<TileJob>())?;
        check_len("statuses", batch.status.len, count * size_of::<u32>())?;
        if let Some(parts) = self.parts(streams.memory(), batch) {
            return launch_in_parts(streams, stream, batch, parts);
        }
        let memory = streams.memory();
        let function = match self {
            Self::PackBits => memory.function("packbits", ptx!("packbits"), "swath_packbits"),
            Self::Lzw => memory.function("lzw", ptx!("lzw"), "swath_lzw"),
            Self::Inflate => memory.function("inflate", ptx!("inflate"), inflate_for(memory, batch.at_once)),
            Self::InflateShared => return launch_inflate_shared(streams, stream, batch),
            Self::Zstd => return launch_zstd(streams, stream, batch, false),
            Self::ZstdShared => return launch_zstd(streams, stream, batch, true),
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

/// Returns the Deflate kernel that fills the device with so many tiles: fewer tiles get more threads each
/// (`kernels/deflate/NOTES.md`).
fn inflate_for(memory: &Memory, tiles: usize) -> &'static str {
    by_share(memory, tiles, ["swath_inflate_few", "swath_inflate_some", "swath_inflate"])
}

/// Returns the bytes of the kernels' notes on an LZW stream, sixteen for each note: a head, one for each segment of
/// `segment` bytes, and eight spare ones. Segments of libtiff have 4 KiB or more. Where a stream has more segments than notes, one block decodes the
/// tile alone.
fn notes_len(stream: usize, segment: usize) -> usize {
    16 * (9 + stream / segment)
}

/// Decodes LZW tiles with several blocks each: they find the segments, measure them, and write them.
fn launch_in_parts(streams: &Streams, stream: usize, batch: &DecodeLaunch<'_>, parts: u32) -> Result<(), DeviceError> {
    let Some(scratch) = &batch.scratch else {
        return Err(DeviceError::Internal("the scratch memory for LZW segments is missing".into()));
    };
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
