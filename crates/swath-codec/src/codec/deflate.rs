//! Deflate in a zlib frame (compressions 8 and 32946).

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::DecompressionError;

use crate::{
    decode::{Decode, Fill},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Deflate in a zlib frame.
#[derive(Debug, Clone, Copy)]
pub struct Deflate;

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
}

/// Fills `dst` from a zlib stream of that length, or of `full` bytes, and verifies its checksum.
pub(crate) fn inflate(src: &[u8], dst: &mut [u8], full: u64, scratch: &mut Scratch) -> Result<Fill, CodecError> {
    let inflater = scratch.inflater.get_or_insert_with(libdeflater::Decompressor::new);
    match inflater.zlib_decompress(src, dst) {
        Ok(len) if len == dst.len() => Ok(Fill::Exact),
        Ok(len) => Err(CodecError::Short { codec: "Deflate", got: len as u64, wanted: dst.len() as u64 }),
        Err(DecompressionError::BadData) => Err(CodecError::corrupt("Deflate", damage(src, dst.len()))),
        // A last strip may come at full height although the image has fewer rows left. libdeflate does not promise the
        // bytes up to the end of a buffer that is too small, so the stream is read again, step by step.
        Err(DecompressionError::InsufficientSpace) => match inflate_longer(src, dst, full)? {
            len if len == full => Ok(Fill::Surplus),
            len => Err(CodecError::corrupt(
                "Deflate",
                format!("the stream holds {len} bytes or more, the tile has {}", dst.len()),
            )),
        },
    }
}

/// Fills `dst` from a stream that holds more, and tells how much it holds. It is read to its end all the same: only the checksum there tells a long
/// strip from a flipped bit.
fn inflate_longer(src: &[u8], dst: &mut [u8], full: u64) -> Result<u64, CodecError> {
    let mut stream = Decompress::new(true);
    let mut sink = [0; 16 << 10];
    loop {
        let before = (stream.total_in(), stream.total_out());
        let rest = src.get(before.0 as usize..).unwrap_or_default();
        let out = match dst.get_mut(before.1 as usize..) {
            Some(out) if !out.is_empty() => out,
            _ => &mut sink[..],
        };
        let status = stream.decompress(rest, out, FlushDecompress::None);
        let status = status
            .map_err(|error| CodecError::corrupt("Deflate", format!("{error} in a stream longer than the tile")))?;
        // Beyond a full strip there is nothing to hope for, and a bomb would run on.
        if status == Status::StreamEnd || stream.total_out() > full {
            return Ok(stream.total_out());
        }
        if before == (stream.total_in(), stream.total_out()) {
            return Err(CodecError::corrupt("Deflate", "the stream is longer than the tile and cut off"));
        }
    }
}

/// Says more about a stream that libdeflate refused; only ever called on the way to an error.
fn damage(src: &[u8], len: usize) -> String {
    let Some(&[cmf, flg]) = src.first_chunk::<2>() else { return "the tile is too short for a zlib header".into() };
    if cmf & 15 != 8 || (u16::from(cmf) << 8 | u16::from(flg)) % 31 != 0 {
        return format!("the tile begins with {cmf:#04x} {flg:#04x}, which is no zlib header");
    }
    let mut stream = Decompress::new(true);
    let mut sink = [0; 16 << 10];
    loop {
        let before = (stream.total_in(), stream.total_out());
        let rest = src.get(before.0 as usize..).unwrap_or_default();
        let (read, made) = (stream.total_in(), stream.total_out());
        match stream.decompress(rest, &mut sink, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return "the stream is damaged".into(),
            Ok(_) if made > len as u64 => return "the stream is damaged".into(),
            Ok(_) if before == (stream.total_in(), stream.total_out()) => {
                return format!("the stream is cut off after {} of its bytes ({made} decoded)", src.len());
            }
            Ok(_) => {}
            Err(error) => return format!("{error} near byte {read} of the tile ({made} bytes decoded)"),
        }
    }
}
