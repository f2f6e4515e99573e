//! Computes optimal Huffman tables for a tile by T.81 Annex K.2, with ties broken like libjpeg, so that the tables are equal.

use super::tables::Table;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest code.
const LONGEST: usize = 16;

/// A symbol that reserves the code of all ones, which JPEG forbids; it is removed at the end.
const RESERVED: usize = 256;

/// Computes the optimal codes for symbols with these counts. Symbols that do not occur get none.
pub(super) fn table(counts: &[u64]) -> Table {
    let sizes = sizes(counts);
    let mut lengths = [0u32; RESERVED + 1];
    for &size in &sizes {
        lengths[usize::from(size).min(RESERVED)] += 1;
    }
    lengths[0] = 0;
    shorten(&mut lengths);
    // The reserved symbol is the rarest, so one of the longest codes is its own.
    if let Some(length) = lengths.iter_mut().rfind(|count| **count > 0) {
        *length -= 1;
    }
    // In the order of the sizes before they were limited, which is still that of falling frequency.
    let mut symbols: Vec<u8> = (0..=255).filter(|&s| sizes[usize::from(s)] > 0).collect();
    symbols.sort_by_key(|&s| sizes[usize::from(s)]);
    Table { counts: std::array::from_fn(|n| lengths[n + 1] as u8), symbols }
}

/// Bits each symbol has in a Huffman code without a limit; the last one is the reserved one.
fn sizes(counts: &[u64]) -> [u16; RESERVED + 1] {
    // One number that sorts the rarest first, and of equals the largest symbol. A merged pair is sorted by its first symbol.
    let key = |count: u64, symbol: usize| Reverse(count << 9 | (RESERVED - symbol) as u64);
    let occurring = counts.iter().copied().take(RESERVED).enumerate().filter(|&(_, count)| count > 0);
    let mut rarest = BinaryHeap::with_capacity(RESERVED + 1);
    rarest.extend(occurring.chain([(RESERVED, 1)]).map(|(s, count)| key(count, s)));

    // Leaves are numbered as their symbols, pairs from there on.
    let mut parents = [0u16; 2 * (RESERVED + 1)];
    let mut tops: [u16; RESERVED + 1] = std::array::from_fn(|symbol| symbol as u16);
    let mut pairs = 0;
    while let (Some(Reverse(first)), Some(mut top)) = (rarest.pop(), rarest.peek_mut()) {
        let Reverse(second) = *top;
        let symbols = [first, second].map(|key| RESERVED - (key % 512) as usize);
        let pair = (RESERVED + 1 + pairs) as u16;
        for symbol in symbols {
            parents[usize::from(tops[symbol])] = pair;
        }
        tops[symbols[0]] = pair;
        pairs += 1;
        *top = key((first >> 9) + (second >> 9), symbols[0]);
    }

    // Parents have higher numbers, so descending order visits them first. The root and symbols that do not occur have none.
    let mut depths = [0u16; 2 * (RESERVED + 1)];
    for node in (0..RESERVED + 1 + pairs).rev() {
        if parents[node] != 0 {
            depths[node] = depths[usize::from(parents[node])] + 1;
        }
    }
    std::array::from_fn(|symbol| depths[symbol])
}

/// Limits codes to [`LONGEST`] bits by Figure K.3: of two codes of the greatest length, one takes their common prefix, and the other
/// joins a shorter code, which both then extend.
fn shorten(lengths: &mut [u32; RESERVED + 1]) {
    for long in (LONGEST + 1..lengths.len()).rev() {
        while lengths[long] > 1 {
            let Some(short) = lengths[..long - 1].iter().rposition(|&count| count > 0) else { return };
            lengths[long] -= 2;
            lengths[long - 1] += 1;
            lengths[short + 1] += 2;
            lengths[short] -= 1;
        }
    }
}
