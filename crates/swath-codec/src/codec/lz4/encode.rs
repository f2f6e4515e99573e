//! Writes LZ4 as bare blocks.

use std::sync::Arc;

use lz4_flex::block::{self, CompressTable};
use swath_raster::memory::zeroed;

use super::{Lz4, NAME};
use crate::{
    encode::{Encode, Settings, append},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Entries of a table, of four bytes at most.
const ENTRIES: usize = 1 << 12;
/// Shorter inputs use entries of two bytes, as in `lz4_flex::block::compress_into`; the choice decides which matches are found.
const SMALL: usize = u16::MAX as usize;

/// The tables of a thread.
#[derive(Default)]
struct Tables {
    small: Option<CompressTable>,
    large: Option<CompressTable>,
}

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
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let Tables { small, large } = scratch.of_default()?;
        let (table, make): (_, fn() -> CompressTable) =
            if src.len() < SMALL { (small, CompressTable::small) } else { (large, CompressTable::large) };
        let table = match table {
            Some(table) => table,
            made => {
                // The library ends the process where it gets no memory, so this asks first.
                drop(zeroed::<u32>(ENTRIES)?);
                made.insert(make())
            }
        };
        append(dst, block::get_maximum_output_size(src.len()), |room| {
            let made = block::compress_into_with_table(src, room, table);
            made.map_err(|error| CodecError::encode(NAME, error.to_string()))
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
