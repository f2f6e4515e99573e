//! Reads Zstandard frames, whole or step by step.

use super::{CONTEXT, NAME, Zstd, is_memory};
use crate::{
    decode::{Decode, Fill, Stream, StreamProgress},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

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

    fn stream(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(Expanding { context: zstd_safe::DCtx::try_create()?, read: 0 }))
    }
}

/// Decodes a zstd frame step by step. The library rejects windows of more than 128 MiB.
struct Expanding {
    context: zstd_safe::DCtx<'static>,
    read: usize,
}

impl Stream for Expanding {
    fn advance(&mut self, src: &[u8], dst: &mut [u8]) -> Result<StreamProgress, CodecError> {
        let mut input = zstd_safe::InBuffer::around(src);
        let mut output = zstd_safe::OutBuffer::around(dst);
        let hint = self.context.decompress_stream(&mut output, &mut input).map_err(|code| corrupt(code, self.read))?;
        self.read += input.pos;
        Ok(StreamProgress { read: input.pos, made: output.pos(), ended: hint == 0 })
    }
}

/// Returns the thread's context.
///
/// # Errors
/// When the system has no memory for one.
pub(crate) fn context(scratch: &mut Scratch) -> Result<&mut zstd_safe::DCtx<'static>, CodecError> {
    scratch.of(|| zstd_safe::DCtx::try_create().ok_or(CodecError::NoMemory(CONTEXT)))
}

/// Decodes a zstd frame into `dst`.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<Fill, CodecError> {
    let expected = dst.len() as u64;
    let context = context(scratch)?;
    // A single call is the fast path, but it needs the exact length. A frame that declares more than the tile takes the slow
    // path at once; a frame without a declared length takes it after the fast path has failed.
    let declared = zstd_safe::get_frame_content_size(src).ok().flatten();
    if declared.is_none_or(|len| len <= expected) {
        match context.decompress(dst, src) {
            Ok(len) if len as u64 == expected => return Ok(Fill::Exact),
            Ok(len) => return Err(CodecError::Short { codec: NAME, got: len as u64, expected }),
            Err(code) if is_memory(code) => return Err(CodecError::LibraryMemory { codec: NAME }),
            Err(_) => {}
        }
    }
    context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(|code| corrupt(code, 0))?;
    let mut input = zstd_safe::InBuffer::around(src);
    let mut output = zstd_safe::OutBuffer::around(dst);
    loop {
        let before = (input.pos, output.pos());
        let hint = context.decompress_stream(&mut output, &mut input).map_err(|code| corrupt(code, before.0))?;
        if output.pos() as u64 == expected {
            return Ok(if hint == 0 && input.pos == src.len() { Fill::Exact } else { Fill::Surplus });
        }
        if hint == 0 || before == (input.pos, output.pos()) {
            return Err(CodecError::Short { codec: NAME, got: output.pos() as u64, expected });
        }
    }
}

fn corrupt(code: usize, at: usize) -> CodecError {
    if is_memory(code) {
        return CodecError::LibraryMemory { codec: NAME };
    }
    CodecError::corrupt(NAME, format!("{} near byte {at} of the tile", zstd_safe::get_error_name(code)))
}
