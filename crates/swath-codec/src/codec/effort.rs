//! Chooses the fastest compression method for a tile by compressing a sample of it.
//!
//! A level stands for a search that pays on text. On rasters it often does not: differences between noisy neighbours hardly
//! ever repeat, and a method that takes a fifth of the time gives the same size. A small sample shows whether a tile is like
//! that. The choice depends only on the bytes of the tile and the level, so files stay reproducible.

use std::ops::Range;

use crate::{encode::reserve, error::CodecError};

/// Pieces of a sample, evenly spread over the tile.
const PIECES: usize = 4;
/// A sample is one part in this many of the tile, so that compressing it costs little against the time it may save ...
const FRACTION: usize = 24;
/// ... but each piece has several rows, or it would not show matches with the row above ...
const LEAST: usize = 12 << 10;
/// ... and a sample has no more bytes than the choice needs.
const MOST: usize = 48 << 10;
/// The loss against the requested level, as a fraction of the size, that a faster method may have on the sample.
const MAX_LOSS: f64 = 0.011;
/// The loss that it may have on the whole tile, extrapolated from the sample.
const MAX_TILE_LOSS: f64 = 0.012;
/// A loss too small to extrapolate.
const NEGLIGIBLE_LOSS: f64 = 0.0005;

/// The methods to try instead of a level, the fastest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faster<Method: 'static> {
    /// Hardly searches for matches.
    pub(crate) first: Method,
    /// Used without further tests for tiles that compress so well that testing would take longer than compressing.
    pub(crate) short: Option<Method>,
    /// Search less thoroughly. Skipped for tiles that compress very well, where a sample does not show all matches of the tile.
    pub(crate) quick: &'static [Method],
    /// Search differently, but as thoroughly.
    pub(crate) thorough: &'static [Method],
    /// How many times the distance available for matches doubles from a sample to a tile.
    pub(crate) doublings: f64,
}

/// Copies a sample of `src` to `sample`. Returns `false` where the tile is too small for a sample to save time.
///
/// # Errors
/// When the system has no memory for the sample.
pub(crate) fn sample(src: &[u8], sample: &mut Vec<u8>) -> Result<bool, CodecError> {
    sample.clear();
    let piece = (src.len() / FRACTION).clamp(LEAST, MOST) / PIECES;
    let step = src.len() / PIECES;
    if step < 2 * piece {
        return Ok(false);
    }
    reserve(sample, PIECES * piece)?;
    for nth in 0..PIECES {
        let start = nth * step + (step - piece) / 2;
        sample.extend_from_slice(src.get(start..start + piece).unwrap_or_default());
    }
    Ok(true)
}

/// Returns the fastest method that compresses a sample of `len` bytes nearly as well as `requested`. `measure` returns the
/// compressed length of a range of the sample.
pub(crate) fn choose<Method: Copy + 'static, Error>(
    requested: Method,
    faster: &Faster<Method>,
    len: usize,
    mut measure: impl FnMut(Method, Range<usize>) -> Result<usize, Error>,
) -> Result<Method, Error> {
    let shortest = measure(faster.first, 0..len)?;
    if shortest < len / 32 {
        return Ok(faster.short.unwrap_or(requested));
    }
    let target = measure(requested, 0..len)? as f64;
    let is_short = target < len as f64 / 6.0;
    if is_short && (shortest as f64) < target * 0.98 {
        return Ok(faster.first);
    }
    let quick = if is_short { &[] } else { faster.quick };
    let first = (!is_short).then_some(&faster.first);
    let mut target_in_halves = None;
    for method in first.into_iter().chain(quick).chain(faster.thorough) {
        let loss = measure(*method, 0..len)? as f64 / target - 1.0;
        if loss > MAX_LOSS {
            continue;
        }
        // Noise of few values has matches too, and more of them the longer it is. If the loss is greater on the whole sample
        // than on its halves, it will grow further on the tile.
        if loss > NEGLIGIBLE_LOSS {
            let mut in_halves = |method| Ok((measure(method, 0..len / 2)? + measure(method, len / 2..len)?) as f64);
            let target = match target_in_halves {
                Some(target) => target,
                None => *target_in_halves.insert(in_halves(requested)?),
            };
            let growth = loss - (in_halves(*method)? / target - 1.0);
            if loss + growth.max(0.0) * faster.doublings > MAX_TILE_LOSS {
                continue;
            }
        }
        return Ok(*method);
    }
    Ok(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses among methods given as the compressed length of a thousand bytes, on a sample and on its halves.
    fn chosen(requested: usize, methods: &'static [(usize, usize)], in_halves: usize) -> (usize, usize) {
        let (first, quick) = methods.split_first().unwrap();
        let faster = Faster { first: *first, short: None, quick, thorough: &[], doublings: 4.0 };
        choose::<_, ()>((requested, in_halves), &faster, 20_000, |(whole, halves), part| {
            Ok(part.len() * if part.len() == 20_000 { whole } else { halves } / 1000)
        })
        .unwrap()
    }

    #[test]
    fn takes_the_first_that_loses_next_to_nothing() {
        assert_eq!(chosen(600, &[(900, 900), (603, 603), (600, 600)], 600), (603, 603));
        assert_eq!(chosen(600, &[(900, 900), (608, 608)], 600), (600, 600));
        assert_eq!(chosen(600, &[(500, 500)], 600), (500, 500));
    }

    #[test]
    fn sees_a_loss_that_grows() {
        assert_eq!(chosen(600, &[(900, 900), (603, 601)], 601), (600, 601));
    }

    #[test]
    fn leaves_short_tiles_alone() {
        assert_eq!(chosen(100, &[(120, 120), (100, 100)], 100), (100, 100));
        assert_eq!(chosen(100, &[(90, 90)], 100), (90, 90));
        assert_eq!(chosen(31, &[(30, 30)], 31), (31, 31));
    }

    #[test]
    fn samples_come_from_all_over_the_tile() {
        let tile: Vec<u8> = (0..1 << 20).map(|at| (at >> 16) as u8).collect();
        let mut part = Vec::new();
        assert_eq!(sample(&tile, &mut part), Ok(true));
        assert!((LEAST..=MOST).contains(&part.len()));
        part.dedup();
        assert!(part.len() >= PIECES);
        assert_eq!(sample(&tile[..20_000], &mut part), Ok(false));
    }
}
