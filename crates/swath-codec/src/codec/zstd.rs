//! Zstandard (compression 50000).

use std::sync::Arc;

use zstd_safe::{CCtx, CParameter};

use crate::{
    decode::{Decode, Fill},
    encode::{Encode, Settings, append, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Zstandard.
#[derive(Debug, Clone, Copy)]
pub struct Zstd;

impl Decode for Zstd {
    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        decompress(src, dst, scratch)
    }
}

/// Fills `dst` from a zstd frame.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<Fill, CodecError> {
    let wanted = dst.len() as u64;
    let context = scratch.zstd.get_or_insert_with(zstd_safe::DCtx::create);
    // One call into the whole buffer is the fast way, but it takes exact lengths only. A frame that says it is longer
    // than the tile goes the slow way at once, a frame that does not say after the fast way has failed.
    let declared = zstd_safe::get_frame_content_size(src).ok().flatten();
    if declared.is_none_or(|len| len <= wanted) {
        match context.decompress(dst, src) {
            Ok(len) if len as u64 == wanted => return Ok(Fill::Exact),
            Ok(len) => return Err(CodecError::Short { codec: "Zstd", got: len as u64, wanted }),
            Err(_) => {}
        }
    }
    context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(|code| corrupt(code, 0))?;
    let mut input = zstd_safe::InBuffer::around(src);
    let mut output = zstd_safe::OutBuffer::around(dst);
    loop {
        let before = (input.pos, output.pos());
        let hint = context.decompress_stream(&mut output, &mut input).map_err(|code| corrupt(code, before.0))?;
        if output.pos() as u64 == wanted {
            return Ok(if hint == 0 && input.pos == src.len() { Fill::Exact } else { Fill::Surplus });
        }
        if hint == 0 || before == (input.pos, output.pos()) {
            return Err(CodecError::Short { codec: "Zstd", got: output.pos() as u64, wanted });
        }
    }
}

fn corrupt(code: usize, at: usize) -> CodecError {
    CodecError::corrupt("Zstd", format!("{} near byte {at} of the tile", zstd_safe::get_error_name(code)))
}

/// What `ZSTD_LEVEL` of GDAL is without being set.
const USUAL_LEVEL: u32 = 9;

/// Zstandard at one level.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    level: u32,
}

/// An encoder at `settings.level`, 1 to 22; 9 unless set.
///
/// # Errors
/// When the level is another.
pub fn encoder(_spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Encoder { level: level(settings)? }))
}

pub(crate) fn level(settings: &Settings) -> Result<u32, CodecError> {
    within("Zstd", "level", settings.level, USUAL_LEVEL, 1..=22)
}

impl Encode for Encoder {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        bound(spec.stored_len(rows))
    }

    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        compress(self.level, src, dst, scratch)
    }
}

/// The most bytes that `len` bytes can become.
pub(crate) fn bound(len: usize) -> usize {
    zstd_safe::compress_bound(len)
}

/// Appends one frame of `src`, with its length in the header and without a checksum, as libtiff writes it.
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let failed = |code| CodecError::encode("Zstd", zstd_safe::get_error_name(code));
    let context = match &mut scratch.zstd_encoder {
        Some((made_for, context)) if *made_for == level => context,
        other => {
            let (_, context) = other.get_or_insert_with(|| (0, CCtx::create()));
            context.set_parameter(CParameter::CompressionLevel(level as i32)).map_err(failed)?;
            context.set_parameter(CParameter::ContentSizeFlag(true)).map_err(failed)?;
            context.set_parameter(CParameter::ChecksumFlag(false)).map_err(failed)?;
            other
                .as_mut()
                .map(|(made_for, context)| {
                    *made_for = level;
                    context
                })
                .ok_or_else(|| CodecError::encode("Zstd", "no context"))?
        }
    };
    append(dst, bound(src.len()), |room| context.compress2(room, src).map_err(failed))
}
