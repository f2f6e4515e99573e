//! Writes zlib streams, by libdeflate or by a coder of our own.
//!
//! Levels mean what they mean in libtiff with libdeflate, and so in GDAL: libdeflate's levels, but one more for 6 to 9. Up to 8
//! a level promises a size, not a search: where a sample of the tile shows that a faster method comes within one per cent of
//! that size, the encoder uses it ([`effort`]). From 9 on it uses libdeflate at that level.

mod block;
mod maps;
mod runs;
mod stream;

use std::sync::Arc;

use libdeflater::{CompressionLvl, Compressor};
use swath_raster::memory::grow;

use super::{NAME, context};
use crate::{
    codec::effort,
    encode::{Encode, Settings, append, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};
use maps::Strides;
use stream::Search;

/// GDAL's default for `ZLEVEL`.
pub(crate) const DEFAULT_LEVEL: u32 = 6;

/// Deflate at one level.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    level: u32,
    strides: Strides,
}

/// Creates an encoder at `settings.level`, 1 to 12; the default is 6.
///
/// # Errors
/// When the level is out of range.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    let pixel = (usize::from(spec.bits) * usize::from(spec.samples)).div_ceil(8);
    Ok(Arc::new(Encoder { level: level(settings)?, strides: Strides { row: spec.stored_row_len(), pixel } }))
}

pub(crate) fn level(settings: &Settings) -> Result<u32, CodecError> {
    within(NAME, "level", settings.level, DEFAULT_LEVEL, 1..=12)
}

impl Encode for Encoder {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        bound(spec.stored_len(rows))
    }

    fn working_len(&self, _spec: &TileSpec, _rows: u32) -> usize {
        working_len(self.level)
    }

    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        compress_with_strides(self.level, self.strides, src, dst, scratch)
    }
}

/// Returns an upper bound for the compressed length of `len` bytes. libdeflate's blocks have at least 5000 bytes, and an
/// incompressible one is stored behind a header of five bytes. The zlib frame takes six.
pub(crate) fn bound(len: usize) -> usize {
    (len + 5 * (len / 5000 + 1)).max(stream::bound(len)) + 6
}

/// Returns the most bytes of memory that compressing takes. From level 9 on, libdeflate keeps a tree of matches (9 MB).
pub(crate) fn working_len(level: u32) -> usize {
    if level < 9 { 4 << 20 } else { 10 << 20 }
}

/// Compressors and buffers that a thread reuses.
#[derive(Default)]
struct EncodeScratch {
    /// libdeflate's compressors by level, created on first use.
    levels: [Option<Compressor>; 13],
    own: stream::Coder,
    sample: Vec<u8>,
    /// Output of compressing a sample.
    sink: Vec<u8>,
}

/// Sizes of libdeflate's compressors, rounded up: those of levels that choose matches greedily or lazily, and those of levels that
/// search for the shortest stream.
const DEFLATER: u64 = 1 << 20;
const DEFLATER_NEAR_OPTIMAL: u64 = 10 << 20;

/// A method to compress a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Literals and runs.
    Runs,
    /// Long matches, searched at this many earlier positions.
    Maps(u32),
    /// libdeflate at a level.
    Level(u32),
}

/// Matches reach back 32 KiB at most, so short excerpts from all over the tile show them.
const SAMPLING: effort::Sampling = effort::Sampling { excerpts: 4, fraction: 24, least: 12 << 10, most: 48 << 10 };

/// Returns the methods to try instead of a libdeflate level. Level 1 is not only twice as fast as level 6: it finds matches of
/// four bytes and more, while the shorter ones that higher levels find in noise cost size. Levels 2 to 4 beat both of their
/// neighbours only on terrain.
fn faster(level: u32) -> effort::Faster<'static, Method> {
    let (quick, thorough): (&[Method], &[Method]) = match level {
        1 => (&[], &[]),
        2..=5 => (&[Method::Level(1)], &[]),
        6 => (&[Method::Level(1), Method::Level(5)], &[]),
        7 => (&[Method::Level(1), Method::Level(3), Method::Level(5), Method::Level(6)], &[Method::Maps(8)]),
        _ => (&[Method::Level(1), Method::Level(3), Method::Level(5), Method::Level(6)], &[Method::Maps(32)]),
    };
    // For land cover and masks: at four positions our own search is twice as fast as libdeflate's level 7, and 9 % smaller.
    let short = (level >= 7).then_some(Method::Maps(4));
    // The window is 32 KiB, not much more than a sample, hence few doublings.
    effort::Faster { first: Method::Runs, check: None, short, quick, thorough, doublings: 2.0 }
}

/// Appends a zlib stream of `src`.
#[cfg(feature = "lerc")]
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    compress_with_strides(level, Strides { row: 0, pixel: 1 }, src, dst, scratch)
}

fn compress_with_strides(
    level: u32,
    strides: Strides,
    src: &[u8],
    dst: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let scratch: &mut EncodeScratch = scratch.of_default()?;
    // From 9 on libdeflate searches for the shortest stream, and a sample does not show what that saves. Our own coder counts in
    // 32 bits.
    let may_be_faster = level <= 8 && u32::try_from(src.len()).is_ok_and(|len| len < u32::MAX);
    let level = if (6..=9).contains(&level) { level + 1 } else { level };
    let mut sample = std::mem::take(&mut scratch.sample);
    let method = if may_be_faster && SAMPLING.take(src, &mut sample)? {
        effort::choose(Method::Level(level), &faster(level), sample.len(), |method, input| match input {
            effort::TrialInput::Sample(range) => {
                scratch.measure(method, strides, sample.get(range).unwrap_or_default())
            }
            effort::TrialInput::Tile => scratch.measure(method, strides, src),
        })
    } else {
        Ok(Method::Level(level))
    };
    scratch.sample = sample;
    let method = method?;
    append(dst, bound(src.len()), |room| scratch.run(method, strides, src, room))
}

impl Method {
    /// Returns the search of our own coder; `None` where libdeflate does the work.
    fn search(self, strides: Strides) -> Option<Search> {
        match self {
            Self::Runs => Some(Search::Runs),
            Self::Maps(depth) => Some(Search::Maps { depth, strides }),
            Self::Level(_) => None,
        }
    }
}

impl EncodeScratch {
    fn measure(&mut self, method: Method, strides: Strides, sample: &[u8]) -> Result<usize, CodecError> {
        if let Some(search) = method.search(strides) {
            return Ok(self.own.measure(search, sample)? + 6);
        }
        let mut sink = std::mem::take(&mut self.sink);
        let bound = bound(sample.len());
        grow(&mut sink, bound)?;
        let len = self.run(method, strides, sample, sink.get_mut(..bound).unwrap_or_default());
        self.sink = sink;
        len
    }

    fn run(&mut self, method: Method, strides: Strides, src: &[u8], room: &mut [u8]) -> Result<usize, CodecError> {
        if let Some(search) = method.search(strides) {
            self.own.start(search)?;
            let len = self.zlib(search, src, room);
            return len.ok_or_else(|| CodecError::encode(NAME, "internal error: the stream exceeds its bound"));
        }
        let Method::Level(level) = method else {
            return Err(CodecError::encode(NAME, "internal error: no compression method"));
        };
        let made = usize::try_from(level).ok().and_then(|at| self.levels.get_mut(at));
        let known = i32::try_from(level).ok().and_then(|level| CompressionLvl::new(level).ok());
        let (Some(made), Some(known)) = (made, known) else {
            return Err(CodecError::encode(NAME, format!("level {level} is not among 1 to 12")));
        };
        let deflater = match made {
            Some(deflater) => deflater,
            None => made
                .insert(context(if level < 10 { DEFLATER } else { DEFLATER_NEAR_OPTIMAL }, || Compressor::new(known))?),
        };
        deflater.zlib_compress(src, room).map_err(|error| CodecError::encode(NAME, error.to_string()))
    }

    fn zlib(&mut self, search: Search, src: &[u8], room: &mut [u8]) -> Option<usize> {
        // The zlib header: a window of 32 KiB, default level.
        room.get_mut(..2)?.copy_from_slice(&[0x78, 0x9c]);
        let len = 2 + self.own.compress(search, src, room.get_mut(2..)?)?;
        room.get_mut(len..len + 4)?.copy_from_slice(&libdeflater::adler32(src).to_be_bytes());
        Some(len + 4)
    }
}
