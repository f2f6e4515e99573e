//! How hard to try: what a sample of a tile says about the rest.
//!
//! A level stands for a search that pays on text. On rasters it often does not: differences between noisy neighbours
//! hardly ever repeat, and a way that takes a fifth of the time ends with the same bytes. Which tiles are like that can be
//! seen from a small part of them. The choice hangs on nothing but the bytes of the tile and the level.

use std::ops::Range;

/// Pieces that a sample consists of, from all over the tile.
const PIECES: usize = 4;
/// A sample is this part of the tile, so that looking at it costs little against what it may save ...
const PART: usize = 24;
/// ... but has some rows in each of its pieces, or matches with the row above would not be seen ...
const LEAST: usize = 12 << 10;
/// ... and no more than it takes to tell.
const MOST: usize = 48 << 10;
/// What a faster way may lose against the level asked for, in parts of the size.
const MAY_LOSE: f64 = 0.011;
/// What the loss may grow to from the sample to the tile, by the look of it.
const MAY_GROW_TO: f64 = 0.012;
/// A loss that is as good as none.
const NOTHING: f64 = 0.0005;

/// What to try instead of a level, the fastest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faster<Way: 'static> {
    /// Hardly looks for matches.
    pub(crate) first: Way,
    /// For tiles that get so short that measuring would take longer than doing.
    pub(crate) short: Option<Way>,
    /// Look less hard; not for tiles that get very short, in which a sample does not show all that a search may find.
    pub(crate) quick: &'static [Way],
    /// Look otherwise, but no less hard.
    pub(crate) thorough: &'static [Way],
    /// How often what can be looked back at doubles from a sample to a tile.
    pub(crate) doublings: f64,
}

/// Puts a sample of `src` into `sample`; `false` where the tile is so small that there is nothing to gain from one.
pub(crate) fn sample(src: &[u8], sample: &mut Vec<u8>) -> bool {
    sample.clear();
    let piece = (src.len() / PART).clamp(LEAST, MOST) / PIECES;
    let step = src.len() / PIECES;
    if step < 2 * piece {
        return false;
    }
    for nth in 0..PIECES {
        let start = nth * step + (step - piece) / 2;
        sample.extend_from_slice(src.get(start..start + piece).unwrap_or_default());
    }
    true
}

/// The fastest way that makes a tile nearly as short as `asked` does, by what it makes of a sample of `len` bytes.
/// `measure` says how short a way makes a part of that.
pub(crate) fn choose<Way: Copy + 'static, Error>(
    asked: Way,
    faster: &Faster<Way>,
    len: usize,
    mut measure: impl FnMut(Way, Range<usize>) -> Result<usize, Error>,
) -> Result<Way, Error> {
    let shortest = measure(faster.first, 0..len)?;
    if shortest < len / 32 {
        return Ok(faster.short.unwrap_or(asked));
    }
    let wanted = measure(asked, 0..len)? as f64;
    let is_short = wanted < len as f64 / 6.0;
    if is_short && (shortest as f64) < wanted * 0.98 {
        return Ok(faster.first);
    }
    let quick = if is_short { &[] } else { faster.quick };
    let first = (!is_short).then_some(&faster.first);
    let mut wanted_in_halves = None;
    for way in first.into_iter().chain(quick).chain(faster.thorough) {
        let loss = measure(*way, 0..len)? as f64 / wanted - 1.0;
        if loss > MAY_LOSE {
            continue;
        }
        // Noise of few values has matches too, the more of them the more of it there is to look back at. If the loss is
        // greater on the sample as a whole than on its halves, it goes on growing from there.
        if loss > NOTHING {
            let mut in_halves = |way| Ok((measure(way, 0..len / 2)? + measure(way, len / 2..len)?) as f64);
            let wanted = match wanted_in_halves {
                Some(wanted) => wanted,
                None => *wanted_in_halves.insert(in_halves(asked)?),
            };
            let growth = loss - (in_halves(*way)? / wanted - 1.0);
            if loss + growth.max(0.0) * faster.doublings > MAY_GROW_TO {
                continue;
            }
        }
        return Ok(*way);
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses among ways that make so many of a thousand bytes, on a sample and on its halves.
    fn chosen(asked: usize, ways: &'static [(usize, usize)], in_halves: usize) -> (usize, usize) {
        let (first, quick) = ways.split_first().unwrap();
        let faster = Faster { first: *first, short: None, quick, thorough: &[], doublings: 4.0 };
        choose::<_, ()>((asked, in_halves), &faster, 20_000, |(whole, halves), part| {
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
        assert!(sample(&tile, &mut part));
        assert!((LEAST..=MOST).contains(&part.len()));
        part.dedup();
        assert!(part.len() >= PIECES);
        assert!(!sample(&tile[..20_000], &mut part));
    }
}
