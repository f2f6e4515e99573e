//! Tiles stored as they are.

use crate::{
    decode::{Decode, Fill},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Tiles stored as they are.
#[derive(Debug, Clone, Copy)]
pub struct None;

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
            return Err(CodecError::Short { codec: "uncompressed", got: src.len() as u64, wanted: dst.len() as u64 });
        };
        dst.copy_from_slice(stored);
        Ok(if src.len() == dst.len() { Fill::Exact } else { Fill::Surplus })
    }
}
