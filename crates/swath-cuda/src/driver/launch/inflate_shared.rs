//! Launches the kernels that decode few Deflate tiles, each with many blocks of threads.

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

/// Scratch of a tile is a multiple of this.
const GRAIN: usize = 256;
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
    let Some(scratch) = batch.scratch.filter(|_| count > 0) else {
        return if count == 0 {
            Ok(())
        } else {
            Err(DeviceError::Internal("the scratch memory for shared Deflate tiles is missing".into()))
        };
    };
    let each = scratch.len / count / GRAIN * GRAIN;
    check_len("scratch of a tile", each, shared_scratch_len(batch.largest))?;
    let memory = streams.memory();
    let processors = memory.context.facts.multiprocessors.max(1) as usize;
    let parts = (PARTS_A_PROCESSOR * processors / batch.at_once.max(1)).clamp(1, MOST_PARTS);
    let spans = SPANS + batch.longest / (parts * PART_LEN);
    let mut args = batch.args()?;
    (args.scratch, args.scratch_len, args.flags) = (scratch.address()?, each as u64, parts as u32);
    let mut buffers = batch.buffers();
    buffers.push(scratch.buffer);
    let windows = count * batch.largest.div_ceil(WINDOW).max(1);
    let spans = std::iter::repeat_n(("swath_inflate_span", count * parts), spans);
    let rest = [
        ("swath_inflate_finish", count),
        ("swath_inflate_cells", windows),
        ("swath_inflate_join", windows),
        ("swath_inflate_rest", count),
    ];
    for (name, most) in std::iter::once(("swath_inflate_start", count)).chain(spans).chain(rest) {
        let function = memory.function("inflate_shared", ptx!("inflate_shared"), name)?;
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
    fn scratch_grows_with_the_tile() {
        assert_eq!(shared_scratch_len(0), (64 + 34 * 8 + 32 * CODES_LEN + 16384 * 16_usize).next_multiple_of(256));
        assert!((1..1 << 20).step_by(4097).all(|len| shared_scratch_len(len) <= shared_scratch_len(len + 1)));
        assert!(shared_scratch_len(1 << 20) < 5 << 20);
    }
}
