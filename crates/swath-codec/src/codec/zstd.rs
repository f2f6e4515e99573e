//! Zstandard (compression 50000).

use crate::{
    decode::{Decode, Fill},
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
