//! PackBits (compression 32773).
//!
//! [`decode`](mod@decode) and [`encode`](mod@encode) handle streams; [`PackBits`] applies them to tiles.

pub mod decode;
pub mod encode;

use crate::{
    decode::{Decode, Fill},
    encode::Encode,
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Name of the codec in errors.
const NAME: &str = "PackBits";

/// Most decoded bytes of a packet.
const LONGEST_PACKET: usize = 128;

/// GDAL reads an image of a single strip row by row where it has more rows than this.
const GDAL_SPLIT_ROWS: u32 = 2000;

/// PackBits.
#[derive(Debug, Clone, Copy)]
pub struct PackBits;

impl Decode for PackBits {
    fn stops_early(&self) -> bool {
        true
    }

    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        if spec.one_strip && rows > GDAL_SPLIT_ROWS && decode::crosses_rows(src, spec.stored_row_len(), dst.len()) {
            let detail = "PackBits: packets cross the ends of rows, which the format forbids; GDAL drops the bytes beyond the end of a \
                          row where the only strip has more than 2000 rows, so it reads other samples";
            scratch.warning = Some(detail.to_owned());
        }
        match decode::decode(src, dst) {
            Ok(decode::PackBitsEnd::Exact) => Ok(Fill::Exact),
            Ok(decode::PackBitsEnd::Surplus) => Ok(Fill::Surplus),
            Err(decode::PackBitsError::Short { got, want }) => {
                Err(CodecError::Short { codec: NAME, got: got as u64, expected: want as u64 })
            }
        }
    }
}

impl Encode for PackBits {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        encode::max_encoded_len(spec.stored_len(rows), spec.stored_row_len())
    }

    fn encode(
        &self,
        spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        Ok(encode::encode(src, spec.stored_row_len(), dst)?)
    }
}
