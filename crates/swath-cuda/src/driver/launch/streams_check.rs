//! Launches the small kernels around a decoder: one reverses bits before it, one checks lengths after it.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::slice::{BufferSlice, check_len, ptx},
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// `ReverseArgs` of `kernels/place/reverse.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReverseArgs {
    data: u64,
    len: u64,
}

/// Reverses the bits of each byte.
pub(crate) fn launch_reverse(streams: &Streams, stream: usize, part: BufferSlice<'_>) -> Result<(), DeviceError> {
    if part.len == 0 {
        return Ok(());
    }
    let function = streams.memory().function("reverse", ptx!("reverse"), "swath_reverse")?;
    let blocks = (part.len.div_ceil(function.threads as usize * 16) as u32).min(function.resident * 4).max(1);
    let args = ReverseArgs { data: part.address()?, len: part.len as u64 };
    // SAFETY: the part was checked to lie in its buffer.
    unsafe { streams.launch(stream, function, blocks, &args, &[part.buffer]) }
}

/// `CheckArgs` of `kernels/place/check.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CheckArgs {
    got: u64,
    wanted: u64,
    status: u64,
    count: u64,
}

/// Sets the status of tiles whose stream decoded to another length than the tile has. Lengths are `u64`, statuses
/// `u32`.
pub(crate) fn launch_check(
    streams: &Streams,
    stream: usize,
    got: BufferSlice<'_>,
    wanted: BufferSlice<'_>,
    status: BufferSlice<'_>,
    count: usize,
) -> Result<(), DeviceError> {
    let function = streams.memory().function("check", ptx!("check"), "swath_check")?;
    check_len("lengths", got.len.min(wanted.len), count * size_of::<u64>())?;
    check_len("statuses", status.len, count * size_of::<u32>())?;
    let args =
        CheckArgs { got: got.address()?, wanted: wanted.address()?, status: status.address()?, count: count as u64 };
    let blocks = (count.div_ceil(function.threads as usize) as u32).clamp(1, function.resident);
    // SAFETY: the arrays were checked to hold `count` elements.
    unsafe { streams.launch(stream, function, blocks, &args, &[got.buffer, wanted.buffer, status.buffer]) }
}
