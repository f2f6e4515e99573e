//! Chooses the fastest compression method for a tile by compressing a sample of it.
//!
//! A level stands for a search that pays on text. On rasters it often does not: differences between noisy neighbours hardly
//! ever repeat, and a method that takes a fifth of the time gives the same size. A small sample shows whether a tile is like
//! that. The choice depends only on the bytes of the tile and the level, so files stay reproducible.

use std::ops::Range;

use crate::{encode::reserve, error::CodecError};

/// How a sample is taken from a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// Excerpts of the tile that make up a sample, evenly spread.
    pub(crate) excerpts: usize,
    /// A sample is one part in this many of the tile, so that compressing it costs little against the time it may save ...
    pub(crate) fraction: usize,
    /// ... but each excerpt has several rows, or it would not show matches with the row above ...
    pub(crate) least: usize,
    /// ... and a sample has no more bytes than the choice needs.
    pub(crate) most: usize,
}

/// The loss against the requested level, as a fraction of the size, that a faster method may have on the sample.
const MAX_LOSS: f64 = 0.011;
/// The loss that it may have on the whole tile, extrapolated from the sample.
const MAX_TILE_LOSS: f64 = 0.012;
/// A loss too small to extrapolate.
const NEGLIGIBLE_LOSS: f64 = 0.0005;
/// How much larger than by [`Faster::check`] a tile may become by [`Faster::first`], as a fraction.
const MAX_CHECK_LOSS: f64 = 0.004;

/// The methods to try instead of a level, the fastest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faster<'a, Method> {
    /// Hardly searches for matches.
    pub(crate) first: Method,
    /// Nearly as fast as `first`, but finds matches at distances that a sample does not show. Where it makes the whole tile smaller,
    /// `first` loses more than its sample showed.
    pub(crate) check: Option<Method>,
    /// Used without further tests for tiles that compress so well that testing would take longer than compressing.
    pub(crate) short: Option<Method>,
    /// Search less thoroughly. Skipped for tiles that compress very well, where a sample does not show all matches of the tile.
    pub(crate) quick: &'a [Method],
    /// Search differently, but as thoroughly.
    pub(crate) thorough: &'a [Method],
    /// How many times the distance available for matches doubles from a sample to a tile.
    pub(crate) doublings: f64,
}

/// What a trial compresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrialInput {
    /// A range of the sample.
    Sample(Range<usize>),
    Tile,
}

impl Sampling {
    /// Copies a sample of `src` to `sample`. Returns `false` where the tile is too small for a sample to save time.
    ///
    /// # Errors
    /// When the system has no memory for the sample.
    pub(crate) fn take(&self, src: &[u8], sample: &mut Vec<u8>) -> Result<bool, CodecError> {
        sample.clear();
        let excerpt = (src.len() / self.fraction).clamp(self.least, self.most) / self.excerpts;
        let step = src.len() / self.excerpts;
        if step < 2 * excerpt {
            return Ok(false);
        }
        reserve(sample, self.excerpts * excerpt)?;
        for nth in 0..self.excerpts {
            let start = nth * step + (step - excerpt) / 2;
            sample.extend_from_slice(src.get(start..start + excerpt).unwrap_or_default());
        }
        Ok(true)
    }
}

/// Returns the fastest method that compresses a tile nearly as well as `requested`, going by a sample of `len` bytes. `measure` returns
/// the compressed length of its input.
pub(crate) fn choose<Method: Copy, Error>(
    requested: Method,
    faster: &Faster<'_, Method>,
    len: usize,
    mut measure: impl FnMut(Method, TrialInput) -> Result<usize, Error>,
) -> Result<Method, Error> {
    let whole = || TrialInput::Sample(0..len);
    let shortest = measure(faster.first, whole())?;
    if shortest < len / 32 {
        return Ok(faster.short.unwrap_or(requested));
    }
    let target = measure(requested, whole())? as f64;
    let is_short = target < len as f64 / 5.0;
    let first_holds = |measure: &mut dyn FnMut(Method, TrialInput) -> Result<usize, Error>| {
        let Some(check) = faster.check else { return Ok(true) };
        let (first, check) = (measure(faster.first, TrialInput::Tile)?, measure(check, TrialInput::Tile)?);
        Ok(first as f64 <= check as f64 * (1.0 + MAX_CHECK_LOSS))
    };
    if is_short && (shortest as f64) < target * 0.98 && first_holds(&mut measure)? {
        return Ok(faster.first);
    }
    let quick = if is_short { &[] } else { faster.quick };
    let first = (!is_short).then_some(&faster.first);
    let mut target_in_halves = None;
    for (nth, method) in first.into_iter().chain(quick).chain(faster.thorough).enumerate() {
        let loss = measure(*method, whole())? as f64 / target - 1.0;
        if loss > MAX_LOSS {
            continue;
        }
        // Noise of few values has matches too, and more of them the longer it is. If the loss is greater on the whole sample
        // than on its halves, it will grow further on the tile.
        if loss > NEGLIGIBLE_LOSS {
            let mut in_halves = |method| {
                let halves = [0..len / 2, len / 2..len];
                halves
                    .into_iter()
                    .try_fold(0.0, |sum, half| Ok(sum + measure(method, TrialInput::Sample(half))? as f64))
            };
            let target = match target_in_halves {
                Some(target) => target,
                None => *target_in_halves.insert(in_halves(requested)?),
            };
            let growth = loss - (in_halves(*method)? / target - 1.0);
            if loss + growth.max(0.0) * faster.doublings > MAX_TILE_LOSS {
                continue;
            }
        }
        let is_first = first.is_some() && nth == 0;
        if is_first && !first_holds(&mut measure)? {
            continue;
        }
        return Ok(*method);
    }
    Ok(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLING: Sampling = Sampling { excerpts: 4, fraction: 24, least: 12 << 10, most: 48 << 10 };

    /// Chooses among methods given as the compressed length of a thousand bytes, on a sample and on its halves. The whole
    /// tile compresses as its sample does.
    fn chosen(requested: usize, methods: &[(usize, usize)], in_halves: usize) -> (usize, usize) {
        chosen_with(None, requested, methods, in_halves)
    }

    fn chosen_with(
        check: Option<(usize, usize)>,
        requested: usize,
        methods: &[(usize, usize)],
        in_halves: usize,
    ) -> (usize, usize) {
        let (first, quick) = methods.split_first().unwrap();
        let faster = Faster { first: *first, check, short: None, quick, thorough: &[], doublings: 4.0 };
        choose::<_, ()>((requested, in_halves), &faster, 20_000, |(whole, halves), input| {
            Ok(match input {
                TrialInput::Sample(range) => range.len() * if range.len() == 20_000 { whole } else { halves } / 1000,
                TrialInput::Tile => 500 * whole,
            })
        })
        .unwrap()
    }

    #[test]
    fn the_first_has_to_hold_on_the_whole_tile() {
        let methods = [(601, 601), (603, 603)];
        assert_eq!(chosen_with(Some((600, 600)), 600, &methods, 600), (601, 601));
        assert_eq!(chosen_with(Some((560, 560)), 600, &methods, 600), (603, 603));
        assert_eq!(chosen_with(Some((560, 560)), 600, &methods[..1], 600), (600, 600));
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
        assert_eq!(SAMPLING.take(&tile, &mut part), Ok(true));
        assert!((SAMPLING.least..=SAMPLING.most).contains(&part.len()));
        part.dedup();
        assert!(part.len() >= SAMPLING.excerpts);
        assert_eq!(SAMPLING.take(&tile[..20_000], &mut part), Ok(false));
    }
}
