//! Counts the bytes of the file that a read decodes, for the limit on how far they may expand.

use std::ops::Range;

use swath_tiff::Window;

use crate::{error::Error, fetch::Fetch, open::image::Image};

/// Slices of the tables that are fetched in one go.
const SLICES: usize = 1024;
/// Most tiles of one slice: the claimed width of a tile row is untrusted too.
const SLICE: u64 = 4096;

/// Returns the bytes of the file that back these planes of a window; it stops counting at `enough`. The size of a local file is a fact.
/// The size of a remote file is a claim of its server, so for it the function counts the bytes received so far, and those that the
/// tables name for the tiles of the window, each once: they have to arrive before the tiles can be decoded.
pub(crate) fn backing(
    image: &Image,
    fetch: &Fetch,
    window: &Window,
    planes: &[u32],
    enough: u64,
) -> Result<u64, Error> {
    let size = fetch.size();
    if !fetch.access.is_remote() || size <= enough.min(received(fetch)) {
        return Ok(size);
    }
    let enough_found =
        |union: &mut Union| (union.at_most >= enough && union.len() >= enough) || received(fetch) >= enough;
    let mut union = located(image, fetch, window, planes, enough_found)?;
    Ok(size.min(union.len().saturating_add(received(fetch))))
}

/// Returns the stored bytes of the tiles of these planes that a window touches; bytes that tiles share count once.
pub(crate) fn stored(image: &Image, fetch: &Fetch, window: &Window, planes: &[u32]) -> Result<u64, Error> {
    Ok(located(image, fetch, window, planes, |_| false)?.len())
}

/// Returns where the tiles of these planes of a window are stored; it stops after the slice with which `enough` holds.
fn located(
    image: &Image,
    fetch: &Fetch,
    window: &Window,
    planes: &[u32],
    enough: impl Fn(&mut Union) -> bool,
) -> Result<Union, Error> {
    let mut slices = slices(image, window, planes).peekable();
    let mut union = Union::default();
    while slices.peek().is_some() {
        let batch: Vec<Range<u64>> = slices.by_ref().take(SLICES).collect();
        image.fetch_tables(&batch, fetch, None)?;
        for tiles in batch {
            union.add(image.locate(tiles, fetch)?.into_iter().flatten());
            if enough(&mut union) {
                return Ok(union);
            }
        }
    }
    Ok(union)
}

/// Returns the entries of the tile tables for these planes of a window, in slices of bounded length.
fn slices(image: &Image, window: &Window, planes: &[u32]) -> impl Iterator<Item = Range<u64>> {
    let (columns, rows) = image.grid.span(window);
    let cells = planes.iter().flat_map(move |plane| rows.clone().map(move |row| (row, *plane)));
    cells.flat_map(move |(row, plane)| {
        let start = image.grid.index(columns.start, row, plane);
        let end = start + columns.len() as u64;
        (start..end).step_by(SLICE as usize).map(move |at| at..end.min(at + SLICE))
    })
}

fn received(fetch: &Fetch) -> u64 {
    fetch.source.traffic().map_or(0, |traffic| traffic.received)
}

/// Ranges that may overlap.
#[derive(Default)]
struct Union {
    ranges: Vec<Range<u64>>,
    /// Number of ranges after the last join.
    joined: usize,
    /// Sum of the lengths of all ranges, which is their joint length if none overlap.
    at_most: u64,
}

impl Union {
    fn add(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        for range in ranges {
            self.at_most = self.at_most.saturating_add(range.end.saturating_sub(range.start));
            self.ranges.push(range);
        }
        // Joining whenever the number doubles costs little more than sorting once.
        if self.ranges.len() > 2 * self.joined + SLICES {
            self.join();
        }
    }

    fn join(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        self.joined = self.ranges.len();
        self.at_most = self.ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
    }

    fn len(&mut self) -> u64 {
        self.join();
        self.at_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_once() {
        let mut union = Union::default();
        union.add([10..20, 15..30, 40..50].into_iter());
        union.add(std::iter::repeat_n(0..100, 5000));
        union.add([90..101, 200..200].into_iter());
        assert_eq!(union.len(), 101);
        union.add((0..5000).map(|at| 2 * at..2 * at + 1));
        assert_eq!(union.len(), 101 + (10_000 - 102) / 2);
    }
}
