//! Launches the kernels that decode Zstd: one walks along the frames, two decode the contents of blocks side by side,
//! and the last assembles the tiles.

use crate::{
    driver::{
        launch::{
            decode_batch::DecodeLaunch,
            slice::{check_len, ptx},
        },
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// Least scratch of a tile: even small tiles have headers.
const LEAST_SCRATCH: usize = 2 << 10;
/// Scratch of a tile is a multiple of this.
const GRAIN: usize = 256;
/// Tiles for each block of a kernel that gives a tile a single lane.
const TILES_A_BLOCK: usize = 32;
/// The flag that makes the kernels verify checksums where frames have them.
const VERIFY: u32 = 1;

/// Returns the scratch of each tile of a batch whose largest tile has `largest` decoded bytes.
pub(crate) fn zstd_scratch_len(largest: usize) -> usize {
    (largest / 2).max(LEAST_SCRATCH).next_multiple_of(GRAIN)
}

/// Returns how many Zstd blocks a batch is likely to have. The grid takes more in turns.
fn likely_blocks(count: usize, largest: usize) -> usize {
    count.saturating_mul(8 + largest.div_ceil(8 << 10))
}

/// Decodes tiles. The batch has scratch for each tile.
pub(in crate::driver) fn launch_zstd(
    streams: &Streams,
    stream: usize,
    batch: &DecodeLaunch<'_>,
) -> Result<(), DeviceError> {
    let count = batch.count as usize;
    let Some(scratch) = batch.scratch.filter(|_| count > 0) else {
        return if count == 0 {
            Ok(())
        } else {
            Err(DeviceError::Internal("the scratch memory for Zstd is missing".into()))
        };
    };
    let each = scratch.len / count / GRAIN * GRAIN;
    check_len("scratch of a tile", each, zstd_scratch_len(batch.largest))?;
    let mut args = batch.args()?;
    (args.scratch, args.scratch_len, args.flags) = (scratch.address()?, each as u64, VERIFY);
    let mut buffers = batch.buffers();
    buffers.push(scratch.buffer);
    let memory = streams.memory();
    // Fewer tiles get more threads each (`kernels/zstd/NOTES.md`).
    let execute = match batch.at_once.div_ceil(memory.context.facts.multiprocessors.max(1) as usize) {
        0..=1 => "swath_zstd_execute_few",
        2..=4 => "swath_zstd_execute_some",
        _ => "swath_zstd_execute",
    };
    let (by_lanes, by_blocks) = (count.div_ceil(TILES_A_BLOCK), likely_blocks(count, batch.largest));
    for (name, most) in [
        ("swath_zstd_walk", by_lanes),
        ("swath_zstd_sequences", by_blocks),
        ("swath_zstd_layout", by_lanes),
        ("swath_zstd_literals", by_blocks),
        (execute, count),
    ] {
        let function = memory.function("zstd", ptx!("zstd"), name)?;
        let blocks = u32::try_from(most).unwrap_or(u32::MAX).min(function.resident).max(1);
        // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers; the scratch holds
        // `scratch_len` bytes for each tile.
        unsafe { streams.launch(stream, function, blocks, &args, &buffers) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_half_of_the_largest_tile_and_never_less_than_heads_take() {
        for (largest, expected) in [(0, 2 << 10), (1, 2 << 10), (4 << 10, 2 << 10), (1 << 20, 512 << 10)] {
            assert_eq!(zstd_scratch_len(largest), expected, "{largest}");
        }
        assert_eq!(zstd_scratch_len((4 << 10) + 2), (2 << 10) + 256);
        assert_eq!(zstd_scratch_len((1 << 20) + 1), 512 << 10);
    }

    #[test]
    fn blocks_of_the_grid_are_bounded_by_what_tiles_can_hold() {
        assert_eq!(likely_blocks(3, 0), 24);
        assert_eq!(likely_blocks(2, 8193), 20);
        assert_eq!(likely_blocks(usize::MAX, 1 << 20), usize::MAX);
    }
}
