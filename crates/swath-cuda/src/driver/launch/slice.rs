//! Used by every launch: slices of device buffers, checked lengths, and the PTX of a kernel.

use crate::{
    driver::memory::pool::{DeviceBuffer, Memory},
    error::DeviceError,
};

/// Streams and tiles begin at multiples of this many bytes, and as many bytes after each belong to the buffer: kernels load whole
/// words, and nvCOMP wants aligned addresses.
pub(crate) const ALIGN: usize = 16;

/// A range of bytes of a device buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferSlice<'a> {
    pub(crate) buffer: &'a DeviceBuffer,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl BufferSlice<'_> {
    pub(crate) fn address(&self) -> Result<u64, DeviceError> {
        self.buffer.address_at(self.offset, self.len)
    }
}

pub(in crate::driver) fn check_len<N: PartialOrd + std::fmt::Display>(
    what: &str,
    have: N,
    need: N,
) -> Result<(), DeviceError> {
    if have < need {
        return Err(DeviceError::Internal(format!("{what}: {have} bytes where {need} are needed")));
    }
    Ok(())
}

macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!("../../../kernels/ptx/", $name, ".ptx"))
    };
}
pub(in crate::driver) use ptx;

/// Returns one of three kernels: for up to two streams for each multiprocessor, for up to four, or for more.
pub(in crate::driver) fn by_share(
    memory: &Memory,
    streams: usize,
    [few, some, many]: [&'static str; 3],
) -> &'static str {
    let processors = memory.context.facts.multiprocessors.max(1) as usize;
    match streams.div_ceil(processors) {
        0..=2 => few,
        3..=4 => some,
        _ => many,
    }
}
