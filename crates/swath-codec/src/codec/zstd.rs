//! Zstandard (compression 50000).
//!
//! From 4 up to 12 a level is a promise about size, not about the way there: where a sample of the tile shows that a faster way
//! ends within a per cent of it, that is taken ([`effort`]). From 13 on levels are taken at their word.

use std::sync::Arc;

use zstd_safe::{CCtx, CParameter, ResetDirective, Strategy};

use crate::{
    codec::effort,
    decode::{Decode, Fill, Step, Stream},
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

    fn stream(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(Expanding { context: zstd_safe::DCtx::try_create()?, read: 0 }))
    }
}

/// A zstd frame, step by step. A window of more than 128 MiB is refused, which is the library's own limit.
struct Expanding {
    context: zstd_safe::DCtx<'static>,
    read: usize,
}

impl Stream for Expanding {
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, CodecError> {
        let mut input = zstd_safe::InBuffer::around(src);
        let mut output = zstd_safe::OutBuffer::around(dst);
        let hint = self.context.decompress_stream(&mut output, &mut input).map_err(|code| corrupt(code, self.read))?;
        self.read += input.pos;
        Ok(Step { read: input.pos, made: output.pos(), ended: hint == 0 })
    }
}

/// Bytes of a context, about.
const CONTEXT: u64 = 160 << 10;

/// The thread's context.
///
/// # Errors
/// When there is no memory for one.
pub(crate) fn context(scratch: &mut Scratch) -> Result<&mut zstd_safe::DCtx<'static>, CodecError> {
    if scratch.zstd.is_none() {
        scratch.zstd = zstd_safe::DCtx::try_create();
    }
    scratch.zstd.as_mut().ok_or(CodecError::NoMemory(CONTEXT))
}

/// Fills `dst` from a zstd frame.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<Fill, CodecError> {
    let wanted = dst.len() as u64;
    let context = context(scratch)?;
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

/// What a thread keeps for encoding.
#[derive(Default)]
pub(crate) struct EncodeScratch {
    context: Option<(Way, CCtx<'static>)>,
    sample: Vec<u8>,
    /// Where a sample is compressed to.
    sink: Vec<u8>,
}

/// A way to make a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Level(u32),
    /// A level on a sample, searched as a whole tile would be: for less than 256 KiB zstd has tables of its own, in which
    /// a level stands for a search that is more thorough.
    Sampled(u32),
    /// One step of laziness, a search of sixteen places, and matches that begin with so many bytes. With six of them maps
    /// of classes get shorter than at level 9, which takes twice as long; noise of few values wants five.
    Lazy(u32),
}

/// What to try instead of a level. Up to 3 they are so fast that a sample costs more than it saves. Level 1 finds only what
/// is plain to see, and 5 is the first that looks at more than one place. Those between look at one place that gets lost
/// as the tile goes on, which a sample is too short to show.
fn faster(level: u32) -> Option<effort::Faster<Way>> {
    let quick: &[Way] = match level {
        4 | 5 => &[],
        6..=12 => &[Way::Level(5)],
        _ => return None,
    };
    let thorough: &[Way] = if level < 8 { &[] } else { &[Way::Lazy(6), Way::Lazy(5)] };
    Some(effort::Faster { short: None, first: Way::Level(1), quick, thorough, doublings: 4.5 })
}

/// Appends one frame of `src`, with its length in the header and without a checksum, as libtiff writes it.
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let scratch = &mut scratch.zstd_encoder;
    let mut sample = std::mem::take(&mut scratch.sample);
    let way = match faster(level) {
        Some(faster) if effort::sample(src, &mut sample) => {
            effort::choose(Way::Level(level), &faster, sample.len(), |way, part| {
                scratch.measure(way, sample.get(part).unwrap_or_default())
            })
        }
        _ => Ok(Way::Level(level)),
    };
    scratch.sample = sample;
    let way = way?;
    append(dst, bound(src.len()), |room| scratch.run(way, src, room))
}

/// Appends the same at the very level.
#[cfg(feature = "lerc")]
pub(crate) fn compress_at(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    append(dst, bound(src.len()), |room| scratch.zstd_encoder.run(Way::Level(level), src, room))
}

impl EncodeScratch {
    fn measure(&mut self, way: Way, sample: &[u8]) -> Result<usize, CodecError> {
        let mut sink = std::mem::take(&mut self.sink);
        sink.resize(bound(sample.len()), 0);
        let way = if let Way::Level(level) = way { Way::Sampled(level) } else { way };
        let len = self.run(way, sample, &mut sink);
        self.sink = sink;
        len
    }

    fn run(&mut self, way: Way, src: &[u8], room: &mut [u8]) -> Result<usize, CodecError> {
        let failed = |code| CodecError::encode("Zstd", zstd_safe::get_error_name(code));
        if self.context.as_ref().is_none_or(|(made_for, _)| *made_for != way) {
            let mut context = self.context.take().map_or_else(CCtx::create, |(_, context)| context);
            context.reset(ResetDirective::SessionAndParameters).map_err(failed)?;
            for parameter in way.parameters() {
                context.set_parameter(parameter).map_err(failed)?;
            }
            self.context = Some((way, context));
        }
        let (_, context) = self.context.as_mut().ok_or_else(|| CodecError::encode("Zstd", "no context"))?;
        context.compress2(room, src).map_err(failed)
    }
}

impl Way {
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
