//! Reads zlib streams: by libdeflate where a tile is decoded whole, by zlib-rs where it is decoded step by step.

use flate2::{Decompress, DecompressError, FlushDecompress, Status};
use libdeflater::DecompressionError;

use super::{Deflate, NAME, context};
use crate::{
    decode::{Decode, Fill, Stream, StreamProgress},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

impl Decode for Deflate {
    fn decode(
        &self,
        spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let full = (spec.stored_row_len() as u64).saturating_mul(spec.height.into());
        inflate(src, dst, full, scratch)
    }

    fn stream(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(Inflating(inflate_state().ok()?)))
    }
}

/// Decodes a zlib stream step by step.
struct Inflating(Decompress);

impl Stream for Inflating {
    fn advance(&mut self, src: &[u8], dst: &mut [u8]) -> Result<StreamProgress, CodecError> {
        let before = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(src, dst, FlushDecompress::None);
        let status = status.map_err(|error| CodecError::corrupt(NAME, fault(&error, &self.0)))?;
        let (read, made) = (self.0.total_in() - before.0, self.0.total_out() - before.1);
        Ok(StreamProgress { read: read as usize, made: made as usize, ended: status == Status::StreamEnd })
    }
}

/// Size of libdeflate's decompressor, rounded up.
const INFLATER: u64 = 64 << 10;

/// Returns the thread's decompressor.
///
/// # Errors
/// When the system has no memory for one.
pub(crate) fn inflater(scratch: &mut Scratch) -> Result<&mut libdeflater::Decompressor, CodecError> {
    scratch.of(|| context(INFLATER, libdeflater::Decompressor::new))
}

/// Creates the state of zlib-rs, which has about the same size.
fn inflate_state() -> Result<Decompress, CodecError> {
    context(INFLATER, || Decompress::new(true))
}

/// Decodes a zlib stream of the length of `dst`, or of `full` bytes, into `dst` and verifies its checksum.
pub(crate) fn inflate(src: &[u8], dst: &mut [u8], full: u64, scratch: &mut Scratch) -> Result<Fill, CodecError> {
    match inflater(scratch)?.zlib_decompress(src, dst) {
        Ok(len) if len == dst.len() => Ok(Fill::Exact),
        Ok(len) => Err(CodecError::Short { codec: NAME, got: len as u64, expected: dst.len() as u64 }),
        Err(DecompressionError::BadData) => Err(CodecError::corrupt(NAME, damage(src, dst.len()))),
        // A last strip may have its full height although the image has fewer rows left. libdeflate does not promise to fill a
        // buffer that is too small, so the stream is decoded again step by step.
        Err(DecompressionError::InsufficientSpace) => match inflate_longer(src, dst, full)? {
            len if len == full => Ok(Fill::Surplus),
            len => Err(CodecError::corrupt(
                NAME,
                format!("the stream holds {len} bytes or more, the tile has {}", dst.len()),
            )),
        },
    }
}

/// Fills `dst` from a stream that holds more, and returns the length of its content. It decodes to the end, because only the
/// checksum there tells a long strip from a corrupt one.
fn inflate_longer(src: &[u8], dst: &mut [u8], full: u64) -> Result<u64, CodecError> {
    let mut stream = inflate_state()?;
    let mut sink = [0; 16 << 10];
    loop {
        let before = (stream.total_in(), stream.total_out());
        let rest = src.get(before.0 as usize..).unwrap_or_default();
        let out = match dst.get_mut(before.1 as usize..) {
            Some(out) if !out.is_empty() => out,
            _ => &mut sink[..],
        };
        let status = stream.decompress(rest, out, FlushDecompress::None);
        let status = status.map_err(|error| {
            CodecError::corrupt(NAME, format!("{}, in a stream longer than the tile", fault(&error, &stream)))
        })?;
        // Longer than a full strip: corrupt, or a decompression bomb that must not run on.
        if status == Status::StreamEnd || stream.total_out() > full {
            return Ok(stream.total_out());
        }
        if before == (stream.total_in(), stream.total_out()) {
            return Err(CodecError::corrupt(NAME, "the stream is longer than the tile and cut off"));
        }
    }
}

/// Describes the damage in a stream that libdeflate rejected, for the error message.
fn damage(src: &[u8], len: usize) -> String {
    let Some(&[cmf, flg]) = src.first_chunk::<2>() else { return "the tile is too short for a zlib header".into() };
    if cmf & 15 != 8 || (u16::from(cmf) << 8 | u16::from(flg)) % 31 != 0 {
        return format!("the tile begins with {cmf:#04x} {flg:#04x}, which is not a zlib header");
    }
    let Ok(mut stream) = inflate_state() else { return "the stream is corrupt".into() };
    let mut sink = [0; 16 << 10];
    loop {
        let before = (stream.total_in(), stream.total_out());
        let rest = src.get(before.0 as usize..).unwrap_or_default();
        let made = stream.total_out();
        match stream.decompress(rest, &mut sink, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return "the stream is corrupt".into(),
            Ok(_) if made > len as u64 => return "the stream is corrupt".into(),
            Ok(_) if before == (stream.total_in(), stream.total_out()) => {
                return format!("the stream is cut off after {} of its bytes ({made} decoded)", src.len());
            }
            Ok(_) => {}
            Err(error) => return fault(&error, &stream),
        }
    }
}

/// Describes an error of zlib-rs, and how far the stream could be decoded.
fn fault(error: &DecompressError, stream: &Decompress) -> String {
    // zlib-rs 0.6 replaces its message by this one where its fast loop found the fault.
    let message = error.message().filter(|message| *message != "repeated call with bad state");
    let (read, made) = (stream.total_in(), stream.total_out());
    format!("{} near byte {read} of the tile ({made} bytes decoded)", message.unwrap_or("the stream is corrupt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_far_a_corrupt_stream_could_be_decoded() {
        // A block of fixed codes: the byte 0, and a match 2 bytes back, beyond the start of the data. Long enough for the fast loop.
        let mut src = vec![0x78, 0x01, 0x63, 0x00, 0x42, 0x00];
        src.extend([0; 32]);
        let error = inflate(&src, &mut [0; 1024], 1024, &mut Scratch::default()).unwrap_err();
        let CodecError::Corrupt { detail, .. } = &error else { panic!("{error}") };
        assert!(detail.contains("of the tile (1 bytes decoded)"), "{detail}");
        assert!(!detail.contains("bad state"), "{detail}");
    }
}
