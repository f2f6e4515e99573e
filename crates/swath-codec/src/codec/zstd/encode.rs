//! Writes Zstandard frames.
//!
//! From 4 to 12 a level promises a size, not a search: where a sample of the tile shows that a faster method comes within one per
//! cent of that size, the encoder uses it ([`effort`]). From 13 on it uses zstd at that level.

use std::sync::Arc;

use swath_raster::memory::grow;
use zstd_safe::{CCtx, CParameter, ResetDirective, Strategy};

use super::{CONTEXT, NAME, is_memory};
use crate::{
    codec::effort,
    encode::{Encode, Settings, append, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// GDAL's default for `ZSTD_LEVEL`.
const DEFAULT_LEVEL: u32 = 9;

/// Zstandard at one level.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    level: u32,
}

/// Creates an encoder at `settings.level`, 1 to 22; the default is 9.
///
/// # Errors
/// When the level is out of range.
pub fn encoder(_spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    Ok(Arc::new(Encoder { level: level(settings)? }))
}

pub(crate) fn level(settings: &Settings) -> Result<u32, CodecError> {
    within(NAME, "level", settings.level, DEFAULT_LEVEL, 1..=22)
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

/// Returns an upper bound for the compressed length of `len` bytes.
pub(crate) fn bound(len: usize) -> usize {
    zstd_safe::compress_bound(len)
}

/// The context and buffers that a thread reuses.
#[derive(Default)]
struct EncodeScratch {
    context: Option<(Method, CCtx<'static>)>,
    sample: Vec<u8>,
    /// Output of compressing a sample.
    sink: Vec<u8>,
}

/// A method to compress a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Level(u32),
    /// A level on a sample, with the search that it means for a whole tile: below 256 KiB zstd has separate parameter tables, in
    /// which a level stands for a more thorough search.
    Sampled(u32),
    /// The lazy strategy with a search of sixteen positions and matches of at least this many bytes. With six bytes maps of
    /// classes get smaller than at level 9, which takes twice as long; noise of few values needs five.
    Lazy(u32),
}

/// Returns the methods to try instead of a level. Levels up to 3 are so fast that a sample costs more than it saves. Level 1 finds
/// only obvious matches, and 5 is the first that tries more than one position. Those between try a single position, which later
/// data overwrites; a sample is too short to show that loss.
fn faster(level: u32) -> Option<effort::Faster<Method>> {
    let quick: &[Method] = match level {
        4 | 5 => &[],
        6..=12 => &[Method::Level(5)],
        _ => return None,
    };
    let thorough: &[Method] = if level < 8 { &[] } else { &[Method::Lazy(6), Method::Lazy(5)] };
    Some(effort::Faster { short: None, first: Method::Level(1), quick, thorough, doublings: 4.5 })
}

/// Appends one frame of `src`, with its length in the header and without a checksum, as libtiff does.
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let scratch: &mut EncodeScratch = scratch.of_default()?;
    let mut sample = std::mem::take(&mut scratch.sample);
    let method = match faster(level) {
        Some(faster) if effort::sample(src, &mut sample)? => {
            effort::choose(Method::Level(level), &faster, sample.len(), |method, part| {
                scratch.measure(method, sample.get(part).unwrap_or_default())
            })
        }
        _ => Ok(Method::Level(level)),
    };
    scratch.sample = sample;
    let method = method?;
    append(dst, bound(src.len()), |room| scratch.run(method, src, room))
}

/// Appends one frame as [`compress`] does, but always at exactly this level.
#[cfg(feature = "lerc")]
pub(crate) fn compress_at(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let scratch: &mut EncodeScratch = scratch.of_default()?;
    append(dst, bound(src.len()), |room| scratch.run(Method::Level(level), src, room))
}

impl EncodeScratch {
    fn measure(&mut self, method: Method, sample: &[u8]) -> Result<usize, CodecError> {
        let mut sink = std::mem::take(&mut self.sink);
        let bound = bound(sample.len());
        grow(&mut sink, bound)?;
        let method = if let Method::Level(level) = method { Method::Sampled(level) } else { method };
        let len = self.run(method, sample, sink.get_mut(..bound).unwrap_or_default());
        self.sink = sink;
        len
    }

    fn run(&mut self, method: Method, src: &[u8], room: &mut [u8]) -> Result<usize, CodecError> {
        let failed = |code| match is_memory(code) {
            true => CodecError::LibraryMemory { codec: NAME },
            false => CodecError::encode(NAME, zstd_safe::get_error_name(code)),
        };
        if self.context.as_ref().is_none_or(|(made_for, _)| *made_for != method) {
            let context = self.context.take().map(|(_, context)| context).or_else(CCtx::try_create);
            let mut context = context.ok_or(CodecError::NoMemory(CONTEXT))?;
            context.reset(ResetDirective::SessionAndParameters).map_err(failed)?;
            for parameter in method.parameters() {
                context.set_parameter(parameter).map_err(failed)?;
            }
            self.context = Some((method, context));
        }
        let (_, context) =
            self.context.as_mut().ok_or_else(|| CodecError::encode(NAME, "internal error: no context"))?;
        context.compress2(room, src).map_err(failed)
    }
}

impl Method {
    fn parameters(self) -> Vec<CParameter> {
        use CParameter as P;
        let mut parameters = vec![P::ContentSizeFlag(true), P::ChecksumFlag(false)];
        match self {
            Self::Level(level) => parameters.push(P::CompressionLevel(level as i32)),
            Self::Sampled(level) => {
                let (search, min_match, target, strategy) = match level {
                    ..=2 => (1, 7, 0, Strategy::ZSTD_fast),
                    3 | 4 => (1, 5, 0, Strategy::ZSTD_dfast),
                    5 => (3, 5, 2, Strategy::ZSTD_greedy),
                    6 => (3, 5, 4, Strategy::ZSTD_lazy),
                    7 => (4, 5, 8, Strategy::ZSTD_lazy),
                    8 | 9 => (4, 5, 16, Strategy::ZSTD_lazy2),
                    10 => (5, 5, 16, Strategy::ZSTD_lazy2),
                    _ => (6, 5, 16, Strategy::ZSTD_lazy2),
                };
                parameters.extend([
                    P::CompressionLevel(level as i32),
                    P::Strategy(strategy),
                    P::SearchLog(search),
                    P::MinMatch(min_match),
                    P::TargetLength(target),
                ]);
            }
            Self::Lazy(min_match) => parameters.extend([
                P::CompressionLevel(7),
                P::Strategy(Strategy::ZSTD_lazy),
                P::SearchLog(4),
                P::MinMatch(min_match),
                P::TargetLength(8),
            ]),
        }
        parameters
    }
}
