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
    encode::{Encode, Settings, TABLES, append, within},
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

    fn working_len(&self, spec: &TileSpec, rows: u32) -> usize {
        working_len(self.level, spec.stored_len(rows))
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

/// Returns the most bytes of memory that compressing `len` bytes takes: tables of matches, whose size follows the length up to the
/// window of the level, and what trying other methods takes: a sample and an output. The factors are measured.
pub(crate) fn working_len(level: u32, len: usize) -> usize {
    let tables = match level {
        ..=3 => len.saturating_mul(12).min(8 << 20),
        4..=12 => {
            let largest = match level {
                4 => 18,
                5 | 6 => 19,
                7 | 8 => 20,
                9 => 21,
                10 | 11 => 22,
                _ => 23,
            };
            let entries = 1_usize << (usize::BITS - len.saturating_sub(1).leading_zeros() + 1).min(largest);
            // Four bytes of position and one of tag; the trees of short tiles take more.
            (5 * entries).max(len.saturating_mul(16).min(16 * SHORT_TILE))
        }
        _ => len.saturating_mul(28),
    };
    let tried = if faster(level, len).is_some() { bound(len).saturating_add(2 * SAMPLING.most) } else { 0 };
    tables.saturating_add(tried).saturating_add(TABLES)
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
    /// The window and the tables of a level, with another search.
    Search(u32, Search),
}

/// How thoroughly zstd searches for matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Search {
    strategy: Strategy,
    /// Logarithm of the number of positions to try.
    log: u32,
    min_match: u32,
    /// Length of a match that needs no better one.
    target: u32,
}

impl Search {
    const fn new(strategy: Strategy, log: u32, min_match: u32, target: u32) -> Self {
        Self { strategy, log, min_match, target }
    }

    /// The search that a level means for tiles of `len` bytes. Shorter input, such as a sample, would get the search of another
    /// table: zstd has one for each range of lengths.
    fn of_level(level: u32, len: usize) -> Self {
        use Strategy::{ZSTD_btlazy2, ZSTD_dfast, ZSTD_fast, ZSTD_greedy, ZSTD_lazy, ZSTD_lazy2};
        let (strategy, log, min_match, target) = if len > SHORT_TILE {
            match level {
                ..=2 => (ZSTD_fast, 1, 7, 0),
                3 | 4 => (ZSTD_dfast, 1, 5, 0),
                5 => (ZSTD_greedy, 3, 5, 2),
                6 => (ZSTD_lazy, 3, 5, 4),
                7 => (ZSTD_lazy, 4, 5, 8),
                8 | 9 => (ZSTD_lazy2, 4, 5, 16),
                10 => (ZSTD_lazy2, 5, 5, 16),
                _ => (ZSTD_lazy2, 6, 5, 16),
            }
        } else {
            match level {
                ..=2 => (ZSTD_fast, 1, 6, 0),
                3 => (ZSTD_dfast, 1, 4, 0),
                4 => (ZSTD_greedy, 3, 5, 2),
                5 => (ZSTD_greedy, 5, 5, 2),
                6 => (ZSTD_lazy, 3, 5, 4),
                7 => (ZSTD_lazy, 4, 4, 4),
                8 => (ZSTD_lazy2, 4, 4, 8),
                9 => (ZSTD_lazy2, 5, 4, 8),
                10 => (ZSTD_lazy2, 6, 4, 8),
                11 => (ZSTD_btlazy2, 5, 4, 12),
                _ => (ZSTD_btlazy2, 7, 4, 12),
            }
        };
        Self::new(strategy, log, min_match, target)
    }
}

/// Up to this length zstd has parameters of its own for each level.
const SHORT_TILE: usize = 256 << 10;

/// Samples with two excerpts: matches with rows above need long ones.
const SAMPLING: effort::Sampling = effort::Sampling { excerpts: 2, fraction: 16, least: 16 << 10, most: 64 << 10 };

/// Returns the methods to try instead of a level for tiles of `len` bytes: those that search less, and those that search differently.
/// Levels up to 3 are so fast that a sample costs more than it saves. A greedy search is the cheapest that tries more than one position.
fn faster(level: u32, len: usize) -> Option<(Vec<Method>, Vec<Method>)> {
    if !(4..=12).contains(&level) {
        return None;
    }
    let min_match = Search::of_level(level, len).min_match;
    let with = |search| Method::Search(level, search);
    let quick = if level < 6 { vec![] } else { vec![with(Search::new(Strategy::ZSTD_greedy, 3, min_match, 2))] };
    // With matches of at least six bytes, maps of classes get smaller than at level 9, which takes twice as long. Noise of few values
    // needs the shorter matches.
    let lazy = |min_match| with(Search::new(Strategy::ZSTD_lazy, 4, min_match, 8));
    let thorough = if level < 8 { vec![] } else { vec![lazy(6), lazy(min_match)] };
    Some((quick, thorough))
}

/// Appends one frame of `src`, with its length in the header and without a checksum, as libtiff does.
pub(crate) fn compress(level: u32, src: &[u8], dst: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), CodecError> {
    let scratch: &mut EncodeScratch = scratch.of_default()?;
    let mut sample = std::mem::take(&mut scratch.sample);
    let method = match faster(level, src.len()) {
        Some((quick, thorough)) if SAMPLING.take(src, &mut sample)? => {
            // Level 1 finds only obvious matches, level 3 distant ones too.
            let (first, check) = (Method::Level(1), Some(Method::Level(3)));
            let faster =
                effort::Faster { first, check, short: None, quick: &quick, thorough: &thorough, doublings: 4.5 };
            scratch.choose(level, &faster, src, &sample)
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
    /// Chooses the method for a tile.
    fn choose(
        &mut self,
        level: u32,
        faster: &effort::Faster<'_, Method>,
        src: &[u8],
        sample: &[u8],
    ) -> Result<Method, CodecError> {
        let len = src.len();
        effort::choose(Method::Level(level), faster, sample.len(), |method, input| match input {
            effort::TrialInput::Sample(range) => {
                let method = match method {
                    Method::Level(level) => Method::Search(level, Search::of_level(level, len)),
                    method => method,
                };
                self.measure(method, sample.get(range).unwrap_or_default())
            }
            effort::TrialInput::Tile => self.measure(method, src),
        })
    }

    /// Returns the compressed length of `src`.
    fn measure(&mut self, method: Method, src: &[u8]) -> Result<usize, CodecError> {
        let mut sink = std::mem::take(&mut self.sink);
        let bound = bound(src.len());
        grow(&mut sink, bound)?;
        let len = self.run(method, src, sink.get_mut(..bound).unwrap_or_default());
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
            Self::Search(level, search) => parameters.extend([
                P::CompressionLevel(level as i32),
                P::Strategy(search.strategy),
                P::SearchLog(search.log),
                P::MinMatch(search.min_match),
                P::TargetLength(search.target),
            ]),
        }
        parameters
    }
}
