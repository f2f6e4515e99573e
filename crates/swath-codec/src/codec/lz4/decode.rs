//! Reads LZ4 frames, bare blocks, and blocks behind their length.

use std::io::Read;

use lz4_flex::{block, frame::FrameDecoder};
use swath_raster::memory::{is_available, zeroed};

use super::{Lz4, NAME};
use crate::{
    decode::{Decode, Fill, LZ4_FRAME},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

impl Decode for Lz4 {
    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        if src.starts_with(&LZ4_FRAME) { frame(src, dst) } else { bare(src, dst) }
    }
}

/// Memory that lz4_flex allocates without a check: two blocks of the longest kind (legacy frames included) and their history.
const FRAME_MEMORY: u64 = 17 << 20;

fn frame(src: &[u8], dst: &mut [u8]) -> Result<Fill, CodecError> {
    if !is_available(FRAME_MEMORY) {
        return Err(CodecError::NoMemory(FRAME_MEMORY));
    }
    let mut decoder = FrameDecoder::new(src);
    let mut got = 0;
    loop {
        let rest = dst.get_mut(got..).unwrap_or_default();
        // Reading one byte more than the tile has tells an end from a surplus, and makes the library verify the checksum.
        let mut room = [0];
        let full = rest.is_empty();
        match decoder.read(if full { &mut room } else { rest }) {
            Ok(0) if full => return Ok(Fill::Exact),
            Ok(0) => return Err(CodecError::Short { codec: NAME, got: got as u64, expected: dst.len() as u64 }),
            Ok(_) if full => return Ok(Fill::Surplus),
            Ok(len) => got += len,
            Err(error) => return Err(CodecError::corrupt(NAME, error.to_string())),
        }
    }
}

fn bare(src: &[u8], dst: &mut [u8]) -> Result<Fill, CodecError> {
    let expected = dst.len();
    match block::decompress_into(src, dst) {
        Ok(len) if len == expected => Ok(Fill::Exact),
        // imagecodecs and lz4.block prepend the length by default. The low byte of a length is rarely a valid token, so such a
        // block has failed or come out short before this test.
        first => {
            if let Some((len, rest)) = src.split_first_chunk::<4>()
                && u32::from_le_bytes(*len) as usize == expected
                && block::decompress_into(rest, dst).is_ok_and(|len| len == expected)
            {
                return Ok(Fill::Exact);
            }
            match first {
                Ok(len) => Err(CodecError::Short { codec: NAME, got: len as u64, expected: expected as u64 }),
                Err(block::DecompressError::OutputTooSmall { .. }) => surplus(src, dst),
                Err(error) => Err(CodecError::corrupt(NAME, error.to_string())),
            }
        }
    }
}

/// Decodes a block that holds more than the tile. lz4_flex does not promise to fill a buffer that is too small, so the block is
/// decoded whole; it expands at most 255 times.
fn surplus(src: &[u8], dst: &mut [u8]) -> Result<Fill, CodecError> {
    let bound = src.len().saturating_mul(255).min(dst.len().saturating_mul(2).saturating_add(64 << 10));
    let mut whole = zeroed::<u8>(bound)?;
    let len = block::decompress_into(src, &mut whole).map_err(|error| {
        CodecError::corrupt(NAME, format!("the block holds more than twice the tile, or is damaged: {error}"))
    })?;
    match whole.get(..len).and_then(|whole| whole.get(..dst.len())) {
        Some(tile) => {
            dst.copy_from_slice(tile);
            Ok(Fill::Surplus)
        }
        None => Err(CodecError::Short { codec: NAME, got: len as u64, expected: dst.len() as u64 }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, spec};
    use swath_tiff::SampleType;

    /// "abcd" and then a copy of 996 bytes from four back.
    fn block_of_a_thousand() -> Vec<u8> {
        // Token: 4 literals, match length 15 + more; offset 4; 991 - 4 - 15 = 972 = 3 * 255 + 207; five last literals.
        [&[0x4f][..], b"abcd", &[4, 0, 255, 255, 255, 207, 0x50], b"abcda"].concat()
    }

    fn thousand() -> Vec<u8> {
        let mut bytes = b"abcd".repeat(249);
        bytes.truncate(995);
        bytes.extend(b"abcda");
        bytes
    }

    fn check(packed: &[u8]) {
        let spec = spec(SampleType::U8, 1, 100);
        for (room, want) in [(1000, Fill::Exact), (999, Fill::Surplus), (10, Fill::Surplus)] {
            let mut dst = vec![0; room];
            assert_eq!(Lz4.decode(&spec, 10, packed, &mut dst, &mut Scratch::default()), Ok(want), "{room}");
            assert_eq!(dst, thousand()[..room]);
        }
        let error = Lz4.decode(&spec, 10, packed, &mut [0; 1001], &mut Scratch::default());
        assert_eq!(error, Err(CodecError::Short { codec: "LZ4", got: 1000, expected: 1001 }));
        testing::damage(&Lz4, &spec, 10, packed);
    }

    #[test]
    fn bare_block() {
        check(&block_of_a_thousand());
    }

    #[test]
    fn block_behind_its_length() {
        let packed = [&1000_u32.to_le_bytes()[..], &block_of_a_thousand()].concat();
        let mut dst = vec![0; 1000];
        let spec = spec(SampleType::U8, 1, 100);
        assert_eq!(Lz4.decode(&spec, 10, &packed, &mut dst, &mut Scratch::default()), Ok(Fill::Exact));
        assert_eq!(dst, thousand());
    }

    #[test]
    fn frame_of_a_block() {
        let block = block_of_a_thousand();
        // Version 1, independent blocks, no checksums, blocks of up to 64 KiB; the last byte is the header's own check.
        let head = [&LZ4_FRAME[..], &[0x60, 0x40, 0x82]].concat();
        check(&[&head[..], &(block.len() as u32).to_le_bytes(), &block, &[0; 4]].concat());
    }
}
