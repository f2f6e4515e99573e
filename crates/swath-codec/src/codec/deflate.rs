//! Deflate in a zlib frame (compressions 8 and 32946).
//!
//! Levels mean what they mean to libtiff, and so to GDAL, where that is built with libdeflate: levels of libdeflate, but
//! one more for 6 to 9. Up to 8 a level is a promise about size, not about the way there: where a sample of the tile shows
//! that a faster way ends within a per cent of it, that is taken ([`effort`]). From 10 on they are taken at their word.

mod block;
mod maps;
mod runs;
mod stream;

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, DecompressionError};

use crate::{
    codec::effort,
    decode::{Decode, Fill, Step, Stream},
    encode::{Encode, Settings, append, within},
    error::CodecError,
    memory::is_there,
    scratch::Scratch,
    spec::TileSpec,
};
use maps::Shape;
use stream::Search;

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

    fn stream(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(Inflating(Decompress::new(true))))
    }
}

/// A zlib stream, step by step.
struct Inflating(Decompress);

impl Stream for Inflating {
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, CodecError> {
        let before = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(src, dst, FlushDecompress::None).map_err(|error| {
            let detail = format!("{error} near byte {} of the tile ({} bytes decoded)", before.0, before.1);
            CodecError::corrupt("Deflate", detail)
        })?;
        let (read, made) = (self.0.total_in() - before.0, self.0.total_out() - before.1);
        Ok(Step { read: read as usize, made: made as usize, ended: status == Status::StreamEnd })
    }
}

/// Bytes of libdeflate's decompressor, and some for what stands around it.
const INFLATER: u64 = 64 << 10;

/// The thread's decompressor.
///
/// # Errors
/// When there is no memory for one: the binding would panic.
pub(crate) fn inflater(scratch: &mut Scratch) -> Result<&mut libdeflater::Decompressor, CodecError> {
    if scratch.inflater.is_none() && !is_there(INFLATER) {
        return Err(CodecError::NoMemory(INFLATER));
    }
    Ok(scratch.inflater.get_or_insert_with(libdeflater::Decompressor::new))
}

/// Fills `dst` from a zlib stream of that length, or of `full` bytes, and verifies its checksum.
pub(crate) fn inflate(src: &[u8], dst: &mut [u8], full: u64, scratch: &mut Scratch) -> Result<Fill, CodecError> {
    match inflater(scratch)?.zlib_decompress(src, dst) {
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
    shape: Shape,
}

/// An encoder at `settings.level`, 1 to 12; 6 unless set.
///
/// # Errors
/// When the level is another.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    let pixel = (usize::from(spec.bits) * usize::from(spec.samples)).div_ceil(8);
    Ok(Arc::new(Encoder { level: level(settings)?, shape: Shape { row: spec.stored_row_len(), pixel } }))
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
        compress_shaped(self.level, self.shape, src, dst, scratch)
    }
}

/// The most bytes that `len` bytes can become. libdeflate makes blocks of at least 5000 bytes, and one that does not get
/// shorter is stored behind a header of five bytes. Six are for the zlib frame.
pub(crate) fn bound(len: usize) -> usize {
    (len + 5 * (len / 5000 + 1)).max(stream::bound(len)) + 6
}

/// What a thread keeps for encoding.
#[derive(Default)]
pub(crate) struct EncodeScratch {
    /// libdeflate's compressors by level, made on first use.
    levels: [Option<Compressor>; 13],
    own: stream::Coder,
    sample: Vec<u8>,
    /// Where a sample is compressed to.
    sink: Vec<u8>,
}

/// A way to make a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Literals and runs.
    Runs,
    /// Long matches, looked for at so many places.
    Maps(u32),
    /// libdeflate at a level.
    Level(u32),
}

/// What to try instead of a level of libdeflate. Its first is not only twice as fast as its sixth: it looks for matches of
/// four bytes and more, and the short ones that higher levels find in noise do harm. Levels 2 to 4 are never better than
/// both of their neighbours here, but on terrain.
fn faster(level: u32) -> effort::Faster<Way> {
    let (quick, thorough): (&[Way], &[Way]) = match level {
        1 => (&[], &[]),
        2..=5 => (&[Way::Level(1)], &[]),
        6 => (&[Way::Level(1), Way::Level(5)], &[]),
        7 => (&[Way::Level(1), Way::Level(3), Way::Level(5), Way::Level(6)], &[Way::Maps(8)]),
        _ => (&[Way::Level(1), Way::Level(3), Way::Level(5), Way::Level(6)], &[Way::Maps(32)]),
    };
    // The window is 32 KiB, not much more than a sample.
    // Land cover and masks: at four places our own search is twice as fast as libdeflate's seventh level, and 9 % shorter.
    let short = (level >= 7).then_some(Way::Maps(4));
    effort::Faster { first: Way::Runs, short, quick, thorough, doublings: 2.0 }
}

/// Appends a zlib stream of `src`.
#[cfg(feature = "lerc")]
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    compress_shaped(level, Shape { row: 0, pixel: 1 }, src, dst, scratch)
}

fn compress_shaped(
    level: u32,
    shape: Shape,
    src: &[u8],
    dst: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let scratch = &mut scratch.deflate;
    // From 9 on libdeflate looks for the shortest stream, and what that gives a sample does not show. Our own coder counts
    // in 32 bits.
    let may_be_faster = level <= 8 && u32::try_from(src.len()).is_ok_and(|len| len < u32::MAX);
    let level = if (6..=9).contains(&level) { level + 1 } else { level };
    let mut sample = std::mem::take(&mut scratch.sample);
    let way = if may_be_faster && effort::sample(src, &mut sample) {
        effort::choose(Way::Level(level), &faster(level), sample.len(), |way, part| {
            scratch.measure(way, shape, sample.get(part).unwrap_or_default())
        })
    } else {
        Ok(Way::Level(level))
    };
    scratch.sample = sample;
    let way = way?;
    append(dst, bound(src.len()), |room| scratch.run(way, shape, src, room))
}

impl Way {
    /// What our own coder is to look for, if it is to do it.
    fn search(self, shape: Shape) -> Option<Search> {
        match self {
            Self::Runs => Some(Search::Runs),
            Self::Maps(depth) => Some(Search::Maps { depth, shape }),
            Self::Level(_) => None,
        }
    }
}

impl EncodeScratch {
    fn measure(&mut self, way: Way, shape: Shape, sample: &[u8]) -> Result<usize, CodecError> {
        if let Some(search) = way.search(shape) {
            return Ok(self.own.measure(search, sample) + 6);
        }
        let mut sink = std::mem::take(&mut self.sink);
        sink.resize(bound(sample.len()), 0);
        let len = self.run(way, shape, sample, &mut sink);
        self.sink = sink;
        len
    }

    fn run(&mut self, way: Way, shape: Shape, src: &[u8], room: &mut [u8]) -> Result<usize, CodecError> {
        if let Some(search) = way.search(shape) {
            let len = self.zlib(search, src, room);
            return len.ok_or_else(|| CodecError::encode("Deflate", "the stream is longer than it can be"));
        }
        let Way::Level(level) = way else { return Err(CodecError::encode("Deflate", "no way is left")) };
        let made = usize::try_from(level).ok().and_then(|at| self.levels.get_mut(at));
        let known = i32::try_from(level).ok().and_then(|level| CompressionLvl::new(level).ok());
        let (Some(made), Some(known)) = (made, known) else {
            return Err(CodecError::encode("Deflate", format!("level {level} is not among 1 to 12")));
        };
        let deflater = made.get_or_insert_with(|| Compressor::new(known));
        deflater.zlib_compress(src, room).map_err(|error| CodecError::encode("Deflate", error.to_string()))
    }

    fn zlib(&mut self, search: Search, src: &[u8], room: &mut [u8]) -> Option<usize> {
        // A window of 32 KiB, and the usual level.
        room.get_mut(..2)?.copy_from_slice(&[0x78, 0x9c]);
        let len = 2 + self.own.compress(search, src, room.get_mut(2..)?)?;
        room.get_mut(len..len + 4)?.copy_from_slice(&libdeflater::adler32(src).to_be_bytes());
        Some(len + 4)
    }
}
