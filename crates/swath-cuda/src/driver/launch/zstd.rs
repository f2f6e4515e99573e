//! Launches the kernels that decode Zstd: one walks along the frames, two decode the contents of blocks side by side,
//! and the last assembles the tiles.

use crate::{
    driver::{
        launch::{
            decode_batch::DecodeLaunch,
            decode_steps::{DecodeSteps, GRAIN},
            slice::ptx,
        },
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// Least scratch of a tile: even small tiles have headers.
const LEAST_SCRATCH: usize = 2 << 10;
/// Tiles for each block of a kernel that gives a tile a single lane.
const TILES_A_BLOCK: usize = 32;
/// Decoded bytes of a Zstd block, if an encoder fills it.
const BLOCK_LEN: usize = 128 << 10;
/// The flag that makes the kernels verify checksums where frames have them.
const VERIFY: u32 = 1;
/// The flag for tiles that many blocks of threads share.
const SHARED: u32 = 2;
/// Decoded bytes of a window, which one block of threads writes.
const WINDOW: usize = 4 << 10;

/// Returns the scratch of each tile of a batch whose largest tile has `largest` decoded bytes.
pub(crate) fn zstd_scratch_len(largest: usize) -> usize {
    (largest / 2).max(LEAST_SCRATCH).next_multiple_of(GRAIN)
}

/// Returns the scratch of each tile where many blocks of threads share it: eight ninths are for its cells, four bytes for
/// each decoded byte.
pub(crate) fn zstd_shared_scratch_len(largest: usize) -> usize {
    9 * zstd_scratch_len(largest)
}

/// Returns how many Zstd blocks a batch is likely to have. The grid takes more in turns.
fn likely_blocks(count: usize, largest: usize) -> usize {
    count.saturating_mul(8 + largest.div_ceil(8 << 10))
}

/// Decodes tiles. The batch has scratch for each tile. `shared`: many blocks of threads share a tile.
pub(in crate::driver) fn launch_zstd(
    streams: &Streams,
    stream: usize,
    batch: &DecodeLaunch<'_>,
    shared: bool,
) -> Result<(), DeviceError> {
    let count = batch.count as usize;
    if count == 0 {
        return Ok(());
    }
    let memory = streams.memory();
    // One block of threads for each Zstd block that has sequences, where all of them fit on the device.
    let compressed = count.saturating_mul(batch.largest.div_ceil(BLOCK_LEN).max(1));
    let chain = memory.function("zstd", ptx!("zstd"), "swath_zstd_sequences_few")?;
    let sequences =
        if compressed <= chain.resident as usize { "swath_zstd_sequences_few" } else { "swath_zstd_sequences" };
    let (by_lanes, by_blocks) = (count.div_ceil(TILES_A_BLOCK), likely_blocks(count, batch.largest));
    let mut kernels = vec![
        ("swath_zstd_walk", by_lanes),
        (sequences, by_blocks),
        ("swath_zstd_layout", by_lanes),
        (if shared { "swath_zstd_literals_few" } else { "swath_zstd_literals" }, by_blocks),
    ];
    if shared {
        let windows = count.saturating_mul(batch.largest.div_ceil(WINDOW).max(1));
        kernels.extend([("swath_zstd_cells", windows), ("swath_zstd_join", windows)]);
        kernels.push(("swath_zstd_execute_rest", count));
    } else {
        // Fewer tiles get more threads each (`kernels/zstd/NOTES.md`).
        let few = batch.at_once.div_ceil(memory.context.facts.multiprocessors.max(1) as usize) <= 4;
        kernels.push((if few { "swath_zstd_execute_some" } else { "swath_zstd_execute" }, count));
    }
    let steps = DecodeSteps {
        module: ("zstd", ptx!("zstd")),
        flags: if shared { VERIFY | SHARED } else { VERIFY },
        scratch_len: if shared { zstd_shared_scratch_len(batch.largest) } else { zstd_scratch_len(batch.largest) },
        kernels,
    };
    steps.launch(streams, stream, batch)
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
        assert_eq!(zstd_shared_scratch_len(1 << 20), 4608 << 10);
    }

    #[test]
    fn blocks_of_the_grid_are_bounded_by_what_tiles_can_hold() {
        assert_eq!(likely_blocks(3, 0), 24);
        assert_eq!(likely_blocks(2, 8193), 20);
        assert_eq!(likely_blocks(usize::MAX, 1 << 20), usize::MAX);
    }
}
