//! Launches the kernels that encode tiles: one entry for each codec.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::slice::{BufferSlice, check_len, ptx},
        memory::{
            kernels::Function,
            pool::{DeviceBuffer, Memory},
            streams::Streams,
        },
    },
    error::DeviceError,
};

/// `EncodeArgs` of `kernels/core/encode_args.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EncodeArgs {
    src: u64,
    src_len: u64,
    src_stride: u64,
    dst: u64,
    dst_len: u64,
    dst_stride: u64,
    lens: u64,
    sizes: u64,
    scratch: u64,
    scratch_len: u64,
    tiles: u32,
    pieces: u32,
    piece_len: u32,
    effort: u32,
    row_len: u32,
    pixel_len: u32,
}

/// A kernel that encodes tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncodeKernel {
    PackBits,
    Lzw,
    Deflate,
    Zstd,
}

/// The tiles that an encoding kernel works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodeLaunch<'a> {
    pub(crate) tiles: &'a DeviceBuffer,
    pub(crate) stride: usize,
    pub(crate) encoded: &'a DeviceBuffer,
    pub(crate) encoded_stride: usize,
    /// One `u32` for each tile.
    pub(crate) lens: BufferSlice<'a>,
    /// One `u32` for each piece.
    pub(crate) sizes: BufferSlice<'a>,
    pub(crate) scratch: Option<&'a DeviceBuffer>,
    pub(crate) count: u32,
    pub(crate) pieces: u32,
    pub(crate) piece_len: usize,
    pub(crate) effort: u32,
    pub(crate) row_len: usize,
    pub(crate) pixel_len: usize,
}

impl EncodeLaunch<'_> {
    fn args(&self) -> Result<EncodeArgs, DeviceError> {
        let (count, pieces) = (u64::from(self.count), u64::from(self.pieces));
        check_len("tiles", self.tiles.len() as u64, count * self.stride as u64)?;
        check_len("pieces", self.encoded.len() as u64, count * pieces * self.encoded_stride as u64)?;
        check_len("lengths of tiles", self.lens.len as u64, count * 4)?;
        check_len("sizes of pieces", self.sizes.len as u64, count * pieces * 4)?;
        let whole = |len: usize| {
            u32::try_from(len).map_err(|_| DeviceError::Usage(format!("tiles of {len} bytes are too long for a GPU")))
        };
        Ok(EncodeArgs {
            src: self.tiles.address(),
            src_len: self.tiles.len() as u64,
            src_stride: self.stride as u64,
            dst: self.encoded.address(),
            dst_len: self.encoded.len() as u64,
            dst_stride: self.encoded_stride as u64,
            lens: self.lens.address()?,
            sizes: self.sizes.address()?,
            scratch: self.scratch.map_or(0, DeviceBuffer::address),
            scratch_len: 0,
            tiles: self.count,
            pieces: self.pieces,
            piece_len: whole(self.piece_len)?,
            effort: self.effort,
            row_len: whole(self.row_len)?,
            pixel_len: whole(self.pixel_len)?,
        })
    }
}

/// Scratch of a block of the Deflate kernel: `DeflateEncode::SCRATCH`.
const DEFLATE_SCRATCH: usize = 20480 * 8;
/// Scratch of a block of the Zstd kernel: `ZstdEncode::SCRATCH`.
const ZSTD_SCRATCH: usize = 16384 * 10 + 65536;
/// Bytes of the link of a position: `LzLinkTable`.
const LINK: usize = 4;
/// Blocks that link the positions of a segment: `LzLinks::SLICES`.
const LINK_SLICES: u64 = 8;
/// Bytes of an LZW segment, and codes of a segment that stand for no byte: `lzw_encode::SEGMENT` and `EXTRA`.
const LZW_SEGMENT: usize = 24576;
const LZW_EXTRA: usize = 16;
/// Bytes that a lane of the PackBits kernels encodes: `packbits_encode::UNIT`.
const PACKBITS_UNIT: usize = 1024;

impl EncodeKernel {
    /// Returns the most bytes that a piece of `len` bytes, in rows of `row` bytes, can become.
    pub(crate) fn most(self, len: usize, row: usize) -> usize {
        match self {
            Self::PackBits => len.div_ceil(row.max(1)) * (row + row.div_ceil(128)),
            // Twelve bits a code.
            Self::Lzw => (len + (len.div_ceil(LZW_SEGMENT) + 1) * LZW_EXTRA) * 3 / 2 + 16,
            Self::Deflate => len + 5 * len.div_ceil(65535) + 5,
            Self::Zstd => len + 3,
        }
    }

    fn function(self, memory: &Memory) -> Result<Function, DeviceError> {
        match self {
            Self::PackBits => memory.function("packbits_encode", ptx!("packbits_encode"), "swath_packbits_encode"),
            Self::Lzw => memory.function("lzw_encode", ptx!("lzw_encode"), "swath_lzw_encode"),
            Self::Deflate => memory.function("deflate_encode", ptx!("deflate_encode"), "swath_deflate_encode"),
            Self::Zstd => memory.function("zstd_encode", ptx!("zstd_encode"), "swath_zstd_encode"),
        }
    }

    /// Returns the bytes of scratch for a block, or for a tile where blocks share it.
    fn scratch_of(self, stride: usize) -> usize {
        match self {
            Self::PackBits => (2 * stride.div_ceil(PACKBITS_UNIT) + 2) * 4,
            Self::Lzw => {
                let segments = stride.div_ceil(LZW_SEGMENT);
                (2 * (stride + segments * LZW_EXTRA) + 4 * segments).next_multiple_of(16)
            }
            Self::Deflate => DEFLATE_SCRATCH,
            Self::Zstd => ZSTD_SCRATCH,
        }
    }

    /// Returns the kernel that links positions for the encoder.
    fn link_function(self, memory: &Memory) -> Result<Option<Function>, DeviceError> {
        Ok(match self {
            Self::PackBits | Self::Lzw => None,
            Self::Deflate => Some(memory.function("deflate_encode", ptx!("deflate_encode"), "swath_deflate_links")?),
            Self::Zstd => Some(memory.function("zstd_encode", ptx!("zstd_encode"), "swath_zstd_links")?),
        })
    }

    /// Returns the bytes of the links of a tile.
    fn links_of(self, stride: usize, effort: u32) -> usize {
        match self {
            Self::Deflate | Self::Zstd if effort > 2 => stride.saturating_mul(LINK),
            _ => 0,
        }
    }

    /// Whether scratch belongs to tiles rather than to blocks.
    fn shares_scratch(self) -> bool {
        matches!(self, Self::PackBits | Self::Lzw)
    }

    /// Returns the bytes of scratch for batches of `slots` tiles in `pieces` pieces, `stride` bytes apart.
    pub(crate) fn scratch_len(
        self,
        memory: &Memory,
        slots: usize,
        pieces: usize,
        stride: usize,
        effort: u32,
    ) -> Result<usize, DeviceError> {
        let shares = match self.shares_scratch() {
            true => slots,
            false => slots.saturating_mul(pieces).min(self.function(memory)?.resident as usize),
        };
        let links = slots.saturating_mul(self.links_of(stride, effort));
        Ok(shares.saturating_mul(self.scratch_of(stride)).saturating_add(links).max(16))
    }

    /// Encodes a batch of tiles.
    pub(crate) fn launch(self, streams: &Streams, stream: usize, batch: &EncodeLaunch<'_>) -> Result<(), DeviceError> {
        if batch.count == 0 {
            return Ok(());
        }
        let memory = streams.memory();
        let function = self.function(memory)?;
        let Some(scratch) = batch.scratch else {
            return Err(DeviceError::Internal("the scratch memory of an encoder is missing".into()));
        };
        let each = self.scratch_of(batch.stride) as u64;
        let mut args = batch.args()?;
        let buffers = [batch.tiles, batch.encoded, batch.lens.buffer, batch.sizes.buffer, scratch];
        let items = u64::from(batch.count) * u64::from(batch.pieces);
        if !self.shares_scratch() {
            args.scratch_len = scratch.len() as u64;
            let links = u64::from(batch.count) * self.links_of(batch.stride, batch.effort) as u64;
            let blocks = items.min(function.resident.into()).min(args.scratch_len.saturating_sub(links) / each);
            if blocks == 0 {
                return Err(DeviceError::Internal("the scratch of an encoder is too short".into()));
            }
            if let Some(link) = self.link_function(memory)?.filter(|_| links > 0) {
                let all = items.saturating_mul(LINK_SLICES).min(u64::from(link.resident) * 4);
                // SAFETY: tiles and lengths were checked to lie in their buffers; the links of all tiles fit into the scratch,
                // before the parts of the encoder's blocks.
                unsafe { streams.launch(stream, link, all as u32, &args, &buffers)? };
            }
            // SAFETY: tiles, pieces, lengths and sizes were checked to lie in their buffers; every block has its own part of
            // the scratch.
            return unsafe { streams.launch(stream, function, blocks as u32, &args, &buffers) };
        }
        args.scratch_len = scratch.len() as u64;
        check_len("the scratch of an encoder", args.scratch_len, u64::from(batch.count) * each)?;
        let launch = |function: Function, blocks: u64| {
            let blocks = blocks.clamp(1, i32::MAX as u64) as u32;
            // SAFETY: as above; the scratch was checked too.
            unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
        };
        let most = u64::from(function.resident) * 4;
        if self == Self::Lzw {
            let segments = items * batch.stride.div_ceil(LZW_SEGMENT) as u64;
            let join = memory.function("lzw_encode", ptx!("lzw_encode"), "swath_lzw_join")?;
            launch(function, segments.min(u64::from(function.resident)))?;
            return launch(join, segments.min(u64::from(join.resident) * 4));
        }
        let measure = memory.function("packbits_encode", ptx!("packbits_encode"), "swath_packbits_measure")?;
        let blocks = (items * batch.stride.div_ceil(PACKBITS_UNIT) as u64).div_ceil(u64::from(measure.threads));
        launch(measure, blocks.min(most))?;
        launch(function, items.min(most))
    }
}
