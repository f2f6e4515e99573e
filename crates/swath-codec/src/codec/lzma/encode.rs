//! Writes xz containers as libtiff does.

use std::sync::Arc;

use liblzma::stream::{Action, Check, Error, Filters, LzmaOptions, Status, Stream};
use swath_tiff::structure::Predictor;

use super::NAME;
use crate::{
    encode::{Encode, Settings, TABLES, reserve, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// LZMA2 at one preset of xz.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    preset: u32,
}

/// Creates an encoder at the preset `settings.level`, 0 to 9; the default is 6.
///
/// # Errors
/// When the level is out of range.
pub fn encoder(_spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Encoder { preset: within(NAME, "level", settings.level, 6, 0..=9)? }))
}

impl Encoder {
    /// Returns the length of the dictionary for a tile of `len` bytes. Preset 6 allocates tables for a dictionary of 8 MiB, nearly
    /// 100 MiB in all. A tile needs no dictionary longer than itself.
    fn dictionary(self, len: usize) -> u32 {
        let longest = match self.preset {
            0 => 1 << 18,
            1 => 1 << 20,
            2 => 1 << 21,
            3 | 4 => 1 << 22,
            5 | 6 => 1 << 23,
            preset => 1 << (17 + preset),
        };
        u32::try_from(len).unwrap_or(u32::MAX).clamp(4096, longest)
    }
}

impl Encode for Encoder {
    /// Incompressible bytes are stored in chunks of up to 64 KiB with three bytes each; the rest is for the container: stream
    /// header, block header, check, index and footer.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let len = spec.stored_len(rows);
        len + len / 1024 + 256
    }

    /// Tables of matches, which follow the length of the dictionary; the factor is measured.
    fn working_len(&self, spec: &TileSpec, rows: u32) -> usize {
        (self.dictionary(spec.stored_len(rows)) as usize).saturating_mul(16).saturating_add(2 * TABLES)
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let failed = |error: Error| match error {
            Error::Mem => CodecError::LibraryMemory { codec: NAME },
            error => CodecError::encode(NAME, error.to_string()),
        };
        let mut options = LzmaOptions::new_preset(self.preset).map_err(failed)?;
        options.dict_size(self.dictionary(src.len()));
        let mut filters = Filters::new();
        // libtiff always puts a delta filter with the distance of one sample before LZMA2. After a predictor it would take
        // differences of differences; leaving it out is safe, because the container lists its filters.
        if spec.predictor == Predictor::None {
            let distance = if spec.bits.is_multiple_of(8) { (spec.bits / 8).clamp(1, 256) } else { 1 };
            filters.delta_properties(&[(distance - 1) as u8]).map_err(failed)?;
        }
        filters.lzma2(&options);
        let mut stream = Stream::new_stream_encoder(&filters, Check::Crc32).map_err(failed)?;
        let start = dst.len();
        reserve(dst, self.max_encoded_len(spec, rows))?;
        loop {
            let rest = src.get(stream.total_in() as usize..).unwrap_or_default();
            let status = stream.process_vec(rest, dst, Action::Finish);
            match status {
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(_) if dst.len() < dst.capacity() => {}
                Ok(_) => {
                    dst.truncate(start);
                    return Err(CodecError::encode(NAME, "internal error: the stream exceeds its bound"));
                }
                Err(error) => {
                    dst.truncate(start);
                    return Err(failed(error));
                }
            }
        }
    }
}
