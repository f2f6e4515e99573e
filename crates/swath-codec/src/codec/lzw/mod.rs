//! TIFF LZW (compression 5).
//!
//! [`decode`](mod@decode) and [`encode`](mod@encode) handle streams; [`Lzw`] applies them to tiles.

pub mod decode;
pub mod encode;

use crate::{
    decode::{Decode, Fill},
    encode::{Encode, TABLES},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Name of the codec in errors.
const NAME: &str = "LZW";

/// The code that empties the string table.
const CLEAR: u16 = 256;
/// The code that ends the stream.
const EOI: u16 = 257;
/// The first code that stands for a string of the table.
const FIRST: u16 = 258;

/// LZW; it reads both bit orders and writes the current one.
#[derive(Debug, Clone, Copy)]
pub struct Lzw;

impl Decode for Lzw {
    fn stops_early(&self) -> bool {
        true
    }

    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        match decode::decode(src, dst, scratch.of_default()?) {
            Ok(decode::LzwEnd::Exact) => Ok(Fill::Exact),
            Ok(decode::LzwEnd::Surplus) => Ok(Fill::Surplus),
            Err(decode::LzwError::Short { got, want }) => {
                Err(CodecError::Short { codec: NAME, got: got as u64, expected: want as u64 })
            }
            Err(decode::LzwError::NoMemory { bytes }) => Err(CodecError::NoMemory(bytes)),
            Err(error) => Err(CodecError::corrupt(NAME, error.to_string())),
        }
    }
}

impl Encode for Lzw {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        encode::max_encoded_len(spec.stored_len(rows))
    }

    /// The tables of all sections that are encoded side by side.
    fn working_len(&self, _spec: &TileSpec, _rows: u32) -> usize {
        2 * TABLES
    }

    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        Ok(encode::encode(src, dst, scratch.of_default()?)?)
    }
}
