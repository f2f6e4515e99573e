//! Launches the kernels that decode few Deflate tiles, each with many blocks of threads.

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

/// Bytes of the codes of a Deflate block: `Codes` of `kernels/deflate/decode_codes.cuh`.
const CODES_LEN: usize = 9008;
/// Bytes of a `Stretch` of `kernels/deflate/decode_agree.cuh`, and decoded bytes for each, if the stream is as long as the tile.
const STRETCH_LEN: usize = 16;
const BYTES_A_STRETCH: usize = 20;
/// Most parts of a tile that are measured at once, of this many stretches each.
const MOST_PARTS: usize = 32;
const STRETCHES_A_PART: usize = 256;
/// Blocks of threads for each multiprocessor that measure parts.
const PARTS_A_PROCESSOR: usize = 3;
/// Bytes of a stream that a part holds.
const PART_LEN: usize = 9 << 10;
/// Launches that measure parts, besides those that the length of the longest stream calls for: one for each Deflate block.
/// One more launch measures what is left.
const SPANS: usize = 10;
/// Decoded bytes of a window, which one block of threads writes.
const WINDOW: usize = 8 << 10;

/// Returns the scratch of each tile of a batch whose largest tile has `largest` decoded bytes: `SharedScratch` of
/// `kernels/deflate/decode_shared.cuh`. Longer streams have less room than they may need; then one block of threads
/// decodes their tile.
pub(crate) fn shared_scratch_len(largest: usize) -> usize {
    let (state, blocks) = (64, 32 + (largest >> 14));
    let cells = largest.next_multiple_of(16) * 2;
    let stretches = largest / BYTES_A_STRETCH + 2 * MOST_PARTS * STRETCHES_A_PART;
    (state + (blocks + 2) * 8 + blocks * CODES_LEN + cells + stretches * STRETCH_LEN).next_multiple_of(GRAIN)
}

/// Decodes tiles. The batch has scratch for each tile.
pub(in crate::driver) fn launch_inflate_shared(
    streams: &Streams,
    stream: usize,
    batch: &DecodeLaunch<'_>,
) -> Result<(), DeviceError> {
    let count = batch.count as usize;
    if count == 0 {
        return Ok(());
    }
    let processors = streams.memory().context.facts.multiprocessors.max(1) as usize;
    let parts = (PARTS_A_PROCESSOR * processors / batch.at_once.max(1)).clamp(1, MOST_PARTS);
    let spans = SPANS + batch.longest / (parts * PART_LEN);
    let windows = count * batch.largest.div_ceil(WINDOW).max(1);
    let mut kernels = vec![("swath_inflate_start", count)];
    kernels.extend(std::iter::repeat_n(("swath_inflate_span", count * parts), spans));
    kernels.extend([
        ("swath_inflate_finish", count),
        ("swath_inflate_cells", windows),
        ("swath_inflate_join", windows),
        ("swath_inflate_rest", count),
    ]);
    let steps = DecodeSteps {
        module: ("inflate_shared", ptx!("inflate_shared")),
        flags: parts as u32,
        scratch_len: shared_scratch_len(batch.largest),
        kernels,
    };
    steps.launch(streams, stream, batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_grows_with_the_tile() {
        assert_eq!(shared_scratch_len(0), (64 + 34 * 8 + 32 * CODES_LEN + 16384 * 16_usize).next_multiple_of(256));
        assert!((1..1 << 20).step_by(4097).all(|len| shared_scratch_len(len) <= shared_scratch_len(len + 1)));
        assert!(shared_scratch_len(1 << 20) < 5 << 20);
    }
}
