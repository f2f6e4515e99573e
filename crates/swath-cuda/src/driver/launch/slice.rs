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

/// Least decoded bytes of a tile that many blocks of threads share: one block takes no longer for a smaller one.
const LEAST_SHARED: usize = 128 << 10;

/// Whether a read of this many tiles, the largest of `largest` decoded bytes, should share each tile among many blocks of
/// threads. With a tile for every second multiprocessor, that was slower for half of the rasters
/// (`kernels/deflate/NOTES.md`).
pub(crate) fn is_worth_sharing(multiprocessors: i32, tiles: usize, largest: usize) -> bool {
    (1..=multiprocessors.max(0) as usize / 4).contains(&tiles) && largest >= LEAST_SHARED
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_tiles_are_shared() {
        for (tiles, largest, expected) in [
            (0, 1 << 20, false),
            (1, 1 << 20, true),
            (33, 1 << 20, true),
            (34, 1 << 20, false),
            (9, LEAST_SHARED, true),
            (9, LEAST_SHARED - 1, false),
        ] {
            assert_eq!(is_worth_sharing(132, tiles, largest), expected, "{tiles} tiles of {largest}");
        }
    }
}
