//! Tiles stored as they are.

use std::sync::Arc;

use crate::{
    decode::{Decode, Fill},
    encode::{Encode, Settings},
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

impl Encode for None {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        spec.stored_len(rows)
    }

    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        dst.extend_from_slice(src);
        Ok(())
    }
}

/// Tiles go out as they are, whatever the settings.
///
/// # Errors
/// Never.
pub fn encoder(_spec: &TileSpec, _settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(None))
}
