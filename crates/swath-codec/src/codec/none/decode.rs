//! Reads uncompressed tiles.

use super::None;
use crate::{
    decode::{Decode, Fill},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

impl Decode for None {
    fn stops_early(&self) -> bool {
        true
    }

    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let Some(stored) = src.get(..dst.len()) else {
            return Err(CodecError::Short { codec: "uncompressed", got: src.len() as u64, expected: dst.len() as u64 });
        };
        dst.copy_from_slice(stored);
        Ok(if src.len() == dst.len() { Fill::Exact } else { Fill::Surplus })
    }
}
