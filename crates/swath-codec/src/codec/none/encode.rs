//! Writes uncompressed tiles.

use std::sync::Arc;

use super::None;
use crate::{
    encode::{Encode, Settings, reserve},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

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
        reserve(dst, src.len())?;
        dst.extend_from_slice(src);
        Ok(())
    }
}

/// Creates an encoder, which has no settings.
///
/// # Errors
/// Never.
pub fn encoder(_spec: &TileSpec, _settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(None))
}
