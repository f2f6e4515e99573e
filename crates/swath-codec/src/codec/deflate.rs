//! Deflate in a zlib frame (compressions 8 and 32946).

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, DecompressionError};

use crate::{
    decode::{Decode, Fill},
    encode::{Encode, Settings, append, within},
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

/// What `ZLEVEL` of GDAL is without being set.
pub(crate) const USUAL_LEVEL: u32 = 6;

/// Deflate at one level.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    level: u32,
}

/// An encoder at `settings.level`, 1 to 12; 6 unless set.
///
/// # Errors
/// When the level is another.
pub fn encoder(_spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Encoder { level: level(settings)? }))
}

pub(crate) fn level(settings: &Settings) -> Result<u32, CodecError> {
    within("Deflate", "level", settings.level, USUAL_LEVEL, 1..=12)
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

/// The most bytes that `len` bytes can become: libdeflate makes blocks of at least 5000 bytes, and one that does not get
/// shorter is stored behind a header of five bytes. Six are for the zlib frame.
pub(crate) fn bound(len: usize) -> usize {
    len + 5 * (len / 5000 + 1) + 6
}

/// Appends a zlib stream of `src`.
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let deflater = match &mut scratch.deflater {
        Some((made_for, deflater)) if *made_for == level => deflater,
        other => {
            let level_of_library = i32::try_from(level).ok().and_then(|level| CompressionLvl::new(level).ok());
            let level_of_library = level_of_library
                .ok_or_else(|| CodecError::encode("Deflate", format!("level {level} is not among 1 to 12")))?;
            &mut other.insert((level, Compressor::new(level_of_library))).1
        }
    };
    append(dst, bound(src.len()), |room| {
        deflater.zlib_compress(src, room).map_err(|error| CodecError::encode("Deflate", error.to_string()))
    })
}
