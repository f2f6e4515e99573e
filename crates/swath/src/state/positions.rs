//! Decoders that stay in the middle of a large strip, where a window ended, so that the next window continues there.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use swath_codec::decode::Stream;
use swath_io::fork::PerProcess;

/// The top of a strip is its height divided by this number.
const NEAR: u32 = 8;
/// Most positions that a file keeps: threads that read it side by side each continue from their own. A decoder has some megabytes
/// of history.
const POSITIONS: usize = 4;

/// How far the windows of a file have come in its strips.
#[derive(Default)]
pub(crate) struct Positions(PerProcess<Mutex<StripProgress>>);

/// The strips of a file that were begun, and the decoders that wait for the next window.
#[derive(Default)]
struct StripProgress {
    idle: Vec<Position>,
    /// Strips that were begun.
    begun: BTreeSet<Key>,
}

/// Directory and number of a strip.
pub(crate) type Key = (u32, u64);

impl std::fmt::Debug for Positions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Positions").finish_non_exhaustive()
    }
}

/// A decoder in the middle of a strip.
pub(crate) struct Position {
    pub(crate) key: Key,
    /// The next row.
    pub(crate) row: u32,
    /// The stored rows before it that are still in memory, because neighbouring windows share rows.
    pub(crate) tail: Vec<u8>,
    /// The first of them.
    pub(crate) from: u32,
    pub(crate) stream: Box<dyn Stream>,
    /// The rest of the strip in the file.
    pub(crate) rest: Range<u64>,
    /// Bytes that were read from the file, and how many of them are decoded.
    pub(crate) input: Vec<u8>,
    pub(crate) used: usize,
    pub(crate) ended: bool,
}

impl Positions {
    /// Whether a window that begins at `row` of a strip of `rows` rows is worth decoding step by step, although the strip could be kept
    /// whole: it is the first window and near the top, or an earlier window ended before it. It is not where windows jump about, or
    /// other reads work on the strip.
    pub(crate) fn are_worth_continuing(&self, key: Key, row: u32, rows: u32) -> bool {
        let mut progress = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        (progress.begun.insert(key) && row <= rows / NEAR)
            || progress.idle.iter().any(|position| position.key == key && position.from <= row)
    }

    /// Takes the position nearest to a row, for the caller to give back.
    pub(crate) fn take(&self, key: Key, row: u32) -> Option<Position> {
        let mut progress = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        let fit = progress.idle.iter().enumerate().filter(|(_, found)| found.key == key && found.from <= row);
        let near = |found: &Position| if found.row > row { u32::MAX } else { found.row };
        let nearest = fit.max_by_key(|(_, found)| near(found)).map(|(index, _)| index);
        nearest.map(|index| progress.idle.remove(index))
    }

    pub(crate) fn give_back(&self, position: Position) {
        let mut progress = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        if progress.idle.len() == POSITIONS {
            progress.idle.remove(0);
        }
        progress.idle.push(position);
    }
}
