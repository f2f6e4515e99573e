//! The arguments that all decoding kernels share.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{launch::slice::BufferSlice, memory::pool::DeviceBuffer},
    error::DeviceError,
};

/// One tile for a decoding kernel: `TileJob` of `kernels/core/decode_args.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct TileJob {
    pub(crate) src: u64,
    pub(crate) src_len: u64,
    pub(crate) dst: u64,
    pub(crate) dst_len: u64,
}

/// `DecodeArgs` of `kernels/core/decode_args.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(in crate::driver) struct DecodeArgs {
    src: u64,
    src_len: u64,
    dst: u64,
    dst_len: u64,
    tiles: u64,
    status: u64,
    pub(in crate::driver) scratch: u64,
    pub(in crate::driver) scratch_len: u64,
    count: u32,
    pub(in crate::driver) flags: u32,
}

/// The tiles that a decoding kernel works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeLaunch<'a> {
    pub(crate) compressed: BufferSlice<'a>,
    pub(crate) decoded: BufferSlice<'a>,
    /// Entries of [`TileJob`].
    pub(crate) tiles: BufferSlice<'a>,
    /// One `u32` for each tile.
    pub(crate) status: BufferSlice<'a>,
    pub(crate) scratch: Option<BufferSlice<'a>>,
    pub(crate) count: u32,
    /// Bytes of the longest stream.
    pub(crate) longest: usize,
    /// Decoded bytes of the largest tile.
    pub(crate) largest: usize,
    /// Number of tiles in all launches that may run at the same time.
    pub(crate) at_once: usize,
}

impl<'a> DecodeLaunch<'a> {
    pub(in crate::driver) fn args(&self) -> Result<DecodeArgs, DeviceError> {
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

    pub(in crate::driver) fn buffers(&self) -> Vec<&'a DeviceBuffer> {
        vec![self.compressed.buffer, self.decoded.buffer, self.tiles.buffer, self.status.buffer]
    }
}
