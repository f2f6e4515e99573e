//! Finds literals and runs of one byte, without a search for matches.
//!
//! Differences between neighbours of a measured raster hardly ever repeat, except for runs of zeros in areas without data, or
//! where the upper bytes of floats agree. A compressor that searches for matches there spends nearly all of its time finding
//! none, and the short matches that it finds often cost more than the literals.

use super::block::Token;

/// Bytes per block: short enough that its codes fit its content, long enough that the cost of its header is negligible.
pub(super) const BLOCK: usize = 60 << 10;
/// The shortest run to search for: a literal and a match of at least three.
pub(super) const SHORTEST: usize = 4;

/// Splits a block into literals and runs, and counts the literals.
pub(super) fn find(bytes: &[u8], tokens: &mut Vec<Token>) -> [u32; 256] {
    let mut counts = histogram(bytes);
    let shortest = shortest_runs(&counts, bytes.len());
    tokens.clear();
    let (mut from, mut at) = (0, 0);
    // Nine bytes show for six of them whether a run of four begins there.
    while let Some(nine) = bytes.get(at..at + 9) {
        let (Some(here), Some(next)) = (nine.first_chunk::<8>(), nine.last_chunk::<8>()) else { break };
        let differ = u64::from_le_bytes(*here) ^ u64::from_le_bytes(*next);
        let differ = differ | differ >> 8 | differ >> 16;
        // The lowest mark is exact; those above it may come from a borrow.
        let zeros = differ.wrapping_sub(0x0101_0101_0101_0101) & !differ & 0x0000_8080_8080_8080;
        if zeros == 0 {
            at += 6;
            continue;
        }
        at += zeros.trailing_zeros() as usize / 8;
        let Some(rest) = bytes.get(at..) else { break };
        let Some(&byte) = rest.first() else { break };
        let run = run_len(rest, byte);
        if run >= usize::from(shortest[usize::from(byte)]) {
            let repeats = run as u32 - 1;
            tokens.push(Token { literals: (at + 1 - from) as u32, length: repeats, distance: 1 });
            counts[usize::from(byte)] -= repeats;
            from = at + run;
        }
        at += run;
    }
    tokens.push(Token { literals: (bytes.len() - from) as u32, length: 0, distance: 1 });
    counts
}

/// Counts the occurrences of each byte. Four tables avoid the dependency of equal neighbours on one counter.
fn histogram(bytes: &[u8]) -> [u32; 256] {
    let mut tables = [[0_u32; 256]; 4];
    let (words, rest) = bytes.as_chunks::<8>();
    let [a, b, c, d] = &mut tables;
    for word in words {
        let word = u64::from_le_bytes(*word);
        for half in [word as u32, (word >> 32) as u32] {
            a[(half & 255) as usize] += 1;
            b[(half >> 8 & 255) as usize] += 1;
            c[(half >> 16 & 255) as usize] += 1;
            d[(half >> 24) as usize] += 1;
        }
    }
    for byte in rest {
        a[usize::from(*byte)] += 1;
    }
    std::array::from_fn(|at| a[at] + b[at] + c[at] + d[at])
}

/// Returns for each byte the shortest run that is worth a match of about ten bits.
fn shortest_runs(counts: &[u32; 256], len: usize) -> [u8; 256] {
    // Per byte value: bits ≈ log2(len / count).
    std::array::from_fn(|at| match counts[at] {
        0 => SHORTEST as u8,
        count => {
            let bits = (len as f32 / count as f32).log2().max(0.08);
            (11.0 / bits).ceil().clamp(SHORTEST as f32, 200.0) as u8
        }
    })
}

/// Returns the length of the run of `byte` at the start.
fn run_len(bytes: &[u8], byte: u8) -> usize {
    let splat = u64::from_ne_bytes([byte; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (nth, word) in words.iter().enumerate() {
        let differ = u64::from_le_bytes(*word) ^ splat;
        if differ != 0 {
            return nth * 8 + differ.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().take_while(|other| **other == byte).count()
}
