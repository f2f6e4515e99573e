//! Writes LZ4 as bare blocks.

use std::sync::Arc;

use lz4_flex::block;

use super::{Lz4, NAME};
use crate::{
    encode::{Encode, Settings, append},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

impl Encode for Lz4 {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        block::get_maximum_output_size(spec.stored_len(rows))
    }

    /// Writes a bare block: the shortest of the three forms, and the one that GPU libraries read.
    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        append(dst, block::get_maximum_output_size(src.len()), |room| {
            block::compress_into(src, room).map_err(|error| CodecError::encode(NAME, error.to_string()))
        })
    }
}

/// Creates an encoder, which has no settings.
///
/// # Errors
/// Never.
pub fn encoder(_spec: &TileSpec, _settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Lz4))
}
