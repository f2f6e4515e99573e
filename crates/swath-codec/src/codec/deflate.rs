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
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        inflate(src, dst, scratch)
    }
}

/// Fills `dst` from a zlib stream; the Adler-32 is verified whenever the stream ends with the tile.
pub(crate) fn inflate(src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<Fill, CodecError> {
    let inflater = scratch.inflater.get_or_insert_with(libdeflater::Decompressor::new);
    match inflater.zlib_decompress(src, dst) {
        Ok(len) if len == dst.len() => Ok(Fill::Exact),
        Ok(len) => Err(CodecError::Short { codec: "Deflate", got: len as u64, wanted: dst.len() as u64 }),
        Err(DecompressionError::BadData) => Err(CodecError::corrupt("Deflate", damage(src))),
        // A last strip may hold more rows than the image has left, and libtiff takes that in silence. libdeflate does
        // not promise the bytes up to the end of a buffer that is too small, so the stream is read again, step by step.
        Err(DecompressionError::InsufficientSpace) => {
            inflate_prefix(src, dst)?;
            Ok(Fill::Surplus)
        }
    }
}

fn inflate_prefix(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let mut stream = Decompress::new(true);
    loop {
        let done = stream.total_out() as usize;
        let (read, rest) = (stream.total_in() as usize, dst.get_mut(done..).unwrap_or_default());
        if rest.is_empty() {
            return Ok(());
        }
        let before = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(src.get(read..).unwrap_or_default(), rest, FlushDecompress::None)
            .map_err(|error| CodecError::corrupt("Deflate", error.to_string()))?;
        if status == Status::StreamEnd || before == (stream.total_in(), stream.total_out()) {
            let got = stream.total_out();
            if got == dst.len() as u64 {
                return Ok(());
            }
            return Err(CodecError::Short { codec: "Deflate", got, wanted: dst.len() as u64 });
        }
    }
}

/// Says more about a stream that libdeflate refused; only ever called on the way to an error.
fn damage(src: &[u8]) -> String {
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
            Ok(_) if before == (stream.total_in(), stream.total_out()) => {
                return format!("the stream is cut off after {} of its bytes ({made} decoded)", src.len());
            }
            Ok(_) => {}
            Err(error) => return format!("{error} near byte {read} of the tile ({made} bytes decoded)"),
        }
    }
}
