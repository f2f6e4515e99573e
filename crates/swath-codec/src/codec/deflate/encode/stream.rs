//! Our own Deflate coder, whose streams every decoder reads.

use swath_raster::memory::OutOfMemory;

use super::{
    block::{Bits, Block, Token},
    maps::{self, Finder, Strides},
    runs,
};

/// What the coder searches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// [`runs`] of one byte.
    Runs,
    /// Long matches ([`maps`](super::maps)) at `depth` earlier positions.
    Maps { depth: u32, strides: Strides },
}

/// Returns an upper bound for the compressed length of `len` bytes: stored blocks with headers of up to five bytes, and room for
/// the last word, which is written whole.
pub(super) fn bound(len: usize) -> usize {
    // Blocks of maps are the shortest, except for the last block.
    len + 5 * (len / 12_000 + 2) + 8
}

/// Most tokens of a block: every token but the last has a run of at least four bytes, or is one of the symbols that a block of maps
/// is limited to.
const TOKENS: usize =
    if runs::BLOCK / runs::SHORTEST > maps::SYMBOLS { runs::BLOCK / runs::SHORTEST } else { maps::SYMBOLS } + 2;

/// Buffers that are reused from block to block and from tile to tile.
#[derive(Default)]
pub(crate) struct Coder {
    tokens: Vec<Token>,
    block: Block,
    finder: Option<Finder>,
}

impl Coder {
    /// Writes a stream of `src` into `room`, which has [`bound`] bytes, and returns its length. Call [`Coder::start`] before.
    pub(super) fn compress(&mut self, search: Search, src: &[u8], room: &mut [u8]) -> Option<usize> {
        let mut bits = Bits::new(room);
        if src.is_empty() {
            bits.stored(&[], true)?;
        }
        let mut start = 0;
        while start < src.len() {
            let (end, cost) = self.next_block(search, src, start);
            let bytes = src.get(start..end)?;
            let last = end == src.len();
            if cost.div_ceil(8) >= bytes.len() + 5 {
                bits.stored(bytes, last)?;
            } else {
                self.block.write(bytes, &self.tokens, last, &mut bits)?;
            }
            start = end;
        }
        bits.finish()
    }

    /// Returns the length of a stream of `src`, or a few bytes more.
    ///
    /// # Errors
    /// As [`Coder::start`].
    pub(super) fn measure(&mut self, search: Search, src: &[u8]) -> Result<usize, OutOfMemory> {
        self.start(search)?;
        let (mut start, mut len) = (0, 0);
        while start < src.len() {
            let (end, cost) = self.next_block(search, src, start);
            len += (cost / 8 + 1).min(end - start + 5);
            start = end;
        }
        Ok(len)
    }

    /// Prepares for a new stream.
    ///
    /// # Errors
    /// When the system has no memory for the buffers.
    pub(super) fn start(&mut self, search: Search) -> Result<(), OutOfMemory> {
        self.tokens.clear();
        let bytes = (TOKENS * size_of::<Token>()) as u64;
        self.tokens.try_reserve_exact(TOKENS).map_err(|_| OutOfMemory { bytes })?;
        if search != Search::Runs {
            let finder = match &mut self.finder {
                Some(finder) => finder,
                made => made.insert(Finder::new()?),
            };
            finder.start();
        }
        Ok(())
    }

    /// Computes tokens and codes of the next block, and returns its end and its length in bits.
    fn next_block(&mut self, search: Search, src: &[u8], start: usize) -> (usize, usize) {
        let (end, literals) = match search {
            Search::Runs => {
                let end = src.len().min(start + runs::BLOCK);
                (end, runs::find(src.get(start..end).unwrap_or_default(), &mut self.tokens))
            }
            Search::Maps { depth, strides } => {
                // Always there after `start`; else the rest would be stored.
                let Some(finder) = &mut self.finder else { return (src.len(), usize::MAX) };
                let end = finder.find(src, start, strides, depth, &mut self.tokens);
                (end, count_literals(src.get(start..end).unwrap_or_default(), &self.tokens))
            }
        };
        (end, self.block.plan(&literals, &self.tokens))
    }
}

fn count_literals(bytes: &[u8], tokens: &[Token]) -> [u32; 256] {
    let mut counts = [0; 256];
    let mut rest = bytes;
    for token in tokens {
        let (literals, after) = rest.split_at_checked(token.literals as usize).unwrap_or((rest, &[]));
        for byte in literals {
            counts[usize::from(*byte)] += 1;
        }
        rest = after.get(token.length as usize..).unwrap_or_default();
    }
    counts
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress, Status};

    use super::{runs::BLOCK, *};
    use crate::codec::testing;

    /// Length of `src` encoded by `Search::Runs`; checks all other searches first.
    fn check(src: &[u8]) -> usize {
        for (row, pixel) in [(0, 1), (100, 1), (512, 2), (1536, 3), (40_000, 1)] {
            check_by(Search::Maps { depth: 8, strides: Strides { row, pixel } }, src);
        }
        check_by(Search::Runs, src)
    }

    fn check_by(search: Search, src: &[u8]) -> usize {
        let mut coder = Coder::default();
        let mut room = vec![0xaa; bound(src.len())];
        coder.start(search).unwrap();
        let len = coder.compress(search, src, &mut room).unwrap();
        assert!(coder.tokens.capacity() == TOKENS, "the tokens of a block outgrew their room");
        let measured = coder.measure(search, src).unwrap();
        assert!(len <= measured + 5, "{len} bytes, measured as {measured}");
        let mut back = vec![0; src.len()];
        let got = libdeflater::Decompressor::new().deflate_decompress(&room[..len], &mut back).unwrap();
        assert!(got == src.len() && back == src);
        // zlib's rules about incomplete codes are not quite the same.
        let mut inflater = Decompress::new(false);
        let mut back = vec![0; src.len() + 1];
        let status = inflater.decompress(&room[..len], &mut back, FlushDecompress::Finish).unwrap();
        assert_eq!(
            (status, inflater.total_out(), inflater.total_in()),
            (Status::StreamEnd, src.len() as u64, len as u64)
        );
        assert_eq!(&back[..src.len()], src);
        len
    }

    #[test]
    fn runs_of_every_length() {
        for run in (0..600).chain([65_535, 65_536, 200_000]) {
            let src = [&testing::ramp(37)[..], &vec![7; run], &[1, 2, 3]].concat();
            let len = check(&src);
            assert!(run < 100 || len < 300, "{run} {len}");
        }
    }

    #[test]
    fn blocks_and_their_edges() {
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..3 * BLOCK + 100)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as u8
            })
            .collect();
        for len in [0, 1, 2, 3, 8, 9, 10, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 100] {
            // Noise is stored, half of it or less is not, and a run continues across the edge of a block.
            assert!(check(&noise[..len]) <= bound(len) - 8);
            check(&noise[..len].iter().map(|byte| byte & 15).collect::<Vec<_>>());
            check(&noise[..len].iter().map(|byte| byte.trailing_zeros() as u8).collect::<Vec<_>>());
            check(&vec![3; len]);
            let mut mixed = noise[..len].to_vec();
            mixed.iter_mut().skip(BLOCK / 2).take(BLOCK).for_each(|byte| *byte = 0);
            check(&mixed);
        }
        for byte in 0..=255 {
            check(&[byte]);
            check(&[byte; 100]);
        }
    }

    #[test]
    fn noise_is_coded_near_its_entropy() {
        let mut state = 1_u64;
        let src: Vec<u8> = (0..500_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 40 & 31) + (state >> 50 & 31)) as u8
            })
            .collect();
        let entropy: f64 = count_literals(&src, &[Token { literals: 500_000, length: 0, distance: 1 }])
            .iter()
            .filter(|n| **n > 0)
            .map(|n| f64::from(*n) * (5e5 / f64::from(*n)).log2() / 8.0)
            .sum();
        let len = check(&src) as f64;
        assert!(len < entropy * 1.01, "{len} {entropy}");
    }

    #[test]
    fn rows_that_repeat_are_matches() {
        let row = testing::ramp(700);
        let tile = row.repeat(300);
        let strides = Strides { row: 700, pixel: 1 };
        let len = check_by(Search::Maps { depth: 8, strides }, &tile);
        assert!(len < 2500, "{len}");
        // Also found without the hint.
        let len = check_by(Search::Maps { depth: 8, strides: Strides { row: 0, pixel: 1 } }, &tile);
        assert!(len < 2500, "{len}");
    }
}
