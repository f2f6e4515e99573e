//! Finds long matches in maps of few values, at the distances where they are likely.
//!
//! In a map of classes or a mask most positions are inside runs, or continue like the row above. Short groups of bytes then
//! occur everywhere in the window, and a search by them visits a hundred positions, none better than the last. This search
//! hashes eight bytes, which leaves a few good candidates, and finds shorter matches at the few distances that rasters have.
//! It takes less than half the time of libdeflate's level 7 for the same size.

use swath_raster::memory::{OutOfMemory, zeroed};

use super::block::Token;

/// Bytes of a hash key.
const KEY: usize = 8;
const HASH_BITS: u32 = 15;
const WINDOW: usize = 1 << 15;
const NONE: u32 = u32::MAX;
/// A match of this length ends the search.
const NICE: usize = 64;
/// A match of this length at one of the usual distances makes the hash search unnecessary.
const PLENTY: usize = 16;
/// The shortest match: three bytes seldom pay for a distance.
const SHORTEST: usize = 4;
const LONGEST: usize = 258;
/// Literals and matches per block.
pub(super) const SYMBOLS: usize = 12_000;

/// Distances between neighbours in a tile's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strides {
    /// Bytes from row to row; 0 for data without rows.
    pub(super) row: usize,
    /// Bytes from pixel to pixel.
    pub(super) pixel: usize,
}

/// The hash chains of earlier positions.
pub(super) struct Finder {
    /// The latest position of each key.
    heads: Box<[u32; 1 << HASH_BITS]>,
    /// For each position in the window, the one before it with the same key.
    before: Box<[u32; WINDOW]>,
    /// The distances of the last two matches.
    last: [usize; 2],
}

/// A table without positions.
fn table<const LEN: usize>() -> Result<Box<[u32; LEN]>, OutOfMemory> {
    let mut table = zeroed(LEN)?;
    table.fill(NONE);
    table.into_boxed_slice().try_into().map_err(|_| OutOfMemory { bytes: 4 * LEN as u64 })
}

#[derive(Clone, Copy, Default)]
struct Match {
    len: usize,
    distance: usize,
    /// Roughly the bits saved: four per byte, minus those of the distance.
    gain: i32,
}

impl Finder {
    /// Creates the tables.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { heads: table()?, before: table()?, last: [0; 2] })
    }

    /// Clears all positions, for a new stream.
    pub(super) fn start(&mut self) {
        self.heads.fill(NONE);
        self.last = [0; 2];
    }

    /// Finds the tokens of the block that begins at `start`, and returns its end. `depth` is the number of earlier positions to
    /// try for each byte.
    pub(super) fn find(
        &mut self,
        bytes: &[u8],
        start: usize,
        strides: Strides,
        depth: u32,
        tokens: &mut Vec<Token>,
    ) -> usize {
        tokens.clear();
        let (mut from, mut at, mut symbols) = (start, start, 0);
        // The last bytes are too few for a key.
        let end = bytes.len().saturating_sub(KEY);
        while at < end && symbols < SYMBOLS {
            let mut found = self.best(bytes, at, strides, depth);
            self.insert(bytes, at);
            if found.len < SHORTEST {
                at += 1;
                symbols += 1;
                continue;
            }
            while found.len < NICE && at + 1 < end {
                let later = self.best(bytes, at + 1, strides, depth);
                if later.len < SHORTEST || later.gain <= found.gain + 4 {
                    break;
                }
                at += 1;
                symbols += 1;
                self.insert(bytes, at);
                found = later;
            }
            tokens.push(Token {
                literals: (at - from) as u32,
                length: found.len as u32,
                distance: found.distance as u32,
            });
            if found.distance != self.last[0] {
                self.last = [found.distance, self.last[0]];
            }
            for inside in at + 1..(at + found.len).min(end) {
                self.insert(bytes, inside);
            }
            at += found.len;
            from = at;
            symbols += 1;
        }
        let stop = if at < end { at } else { bytes.len() };
        tokens.push(Token { literals: (stop - from) as u32, length: 0, distance: 1 });
        stop
    }

    #[inline(always)]
    fn best(&self, bytes: &[u8], at: usize, strides: Strides, depth: u32) -> Match {
        let mut best = Match::default();
        let here = word(bytes, at);
        let Strides { row, pixel } = strides;
        let beside = if pixel > 1 { pixel } else { 0 };
        for distance in [self.last[0], self.last[1], 1, beside, row, row + pixel, row.saturating_sub(pixel)] {
            if distance == 0 || distance > at || distance > WINDOW {
                continue;
            }
            // Four bytes rule out most candidates.
            if word(bytes, at - distance) as u32 == here as u32 {
                best.consider(bytes, at, distance);
            }
        }
        if best.len >= PLENTY {
            return best;
        }
        let mut place = self.heads[hash(here)];
        for _ in 0..depth {
            let before = place as usize;
            if place == NONE || before >= at || at - before > WINDOW {
                break;
            }
            // Only a candidate that is longer by a byte can be better.
            if bytes.get(before + best.len) == bytes.get(at + best.len) {
                best.consider(bytes, at, at - before);
                if best.len >= NICE {
                    break;
                }
            }
            let next = self.before[before % WINDOW];
            // A position that has been overwritten since points forward.
            if next >= place {
                break;
            }
            place = next;
        }
        best
    }

    #[inline(always)]
    fn insert(&mut self, bytes: &[u8], at: usize) {
        let head = &mut self.heads[hash(word(bytes, at))];
        self.before[at % WINDOW] = *head;
        *head = at as u32;
    }
}

impl Match {
    #[inline(always)]
    fn consider(&mut self, bytes: &[u8], at: usize, distance: usize) {
        let len = match_len(bytes, at, at - distance);
        let gain = 4 * len as i32 - distance.ilog2() as i32;
        if gain > self.gain && len >= SHORTEST {
            *self = Self { len, distance, gain };
        }
    }
}

/// Returns how many bytes agree, up to the longest match of the format.
#[inline(always)]
fn match_len(bytes: &[u8], at: usize, before: usize) -> usize {
    let (Some(here), Some(there)) = (bytes.get(at..), bytes.get(before..)) else { return 0 };
    let here = here.get(..LONGEST).unwrap_or(here);
    let there = there.get(..here.len()).unwrap_or_default();
    let ((here, here_rest), (there, there_rest)) = (here.as_chunks::<8>(), there.as_chunks::<8>());
    for (nth, (here, there)) in here.iter().zip(there).enumerate() {
        let differ = u64::from_le_bytes(*here) ^ u64::from_le_bytes(*there);
        if differ != 0 {
            return nth * 8 + differ.trailing_zeros() as usize / 8;
        }
    }
    here.len() * 8 + here_rest.iter().zip(there_rest).take_while(|(here, there)| here == there).count()
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline(always)]
fn hash(word: u64) -> usize {
    // 2^64 over the golden ratio.
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)) as usize
}
