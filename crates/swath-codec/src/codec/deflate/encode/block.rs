//! Encodes Deflate blocks: tokens to Huffman codes to bits.

/// The longest code of a literal, length or distance. The format allows fifteen bits; with fourteen, four codes and seven
/// pending bits fit into 64 bits.
const MAX_BITS: usize = 14;
/// The longest code of a code length.
const MAX_HEADER_BITS: usize = 7;
/// Number of symbols: literals, the end of the block, and lengths.
const SYMBOLS: usize = 286;
const DISTANCES: usize = 30;
const END: usize = 256;
const LONGEST_MATCH: usize = 258;
/// Longest stored block.
const LONGEST_STORED: usize = 0xffff;

/// A number of literals followed by a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) literals: u32,
    /// Length of the match: 0, or at least three. A length beyond the format's limit is written as several matches.
    pub(super) length: u32,
    pub(super) distance: u32,
}

/// Returns the length of the next match when `left` bytes remain to be matched. It never leaves one or two bytes.
fn match_len(left: usize) -> usize {
    match left {
        ..=LONGEST_MATCH => left,
        259 | 260 => LONGEST_MATCH - 3,
        _ => LONGEST_MATCH,
    }
}

/// Returns the symbol of a match length, its extra bits, and their number.
fn length_code(len: usize) -> (usize, usize, u32) {
    let over = len - 3;
    match over {
        ..8 => (257 + over, 0, 0),
        255 => (285, 0, 0),
        _ => {
            // Four symbols for each power of two.
            let width = over.ilog2() - 2;
            (257 + 4 * width as usize + (over >> width), over & ((1 << width) - 1), width)
        }
    }
}

/// Returns the symbol of a distance, its extra bits, and their number.
fn distance_code(distance: usize) -> (usize, usize, u32) {
    let over = distance - 1;
    match over {
        ..4 => (over, 0, 0),
        _ => {
            // Two symbols for each power of two.
            let width = over.ilog2() - 1;
            (2 * width as usize + (over >> width), over & ((1 << width) - 1), width)
        }
    }
}

/// A code with its first bit lowest, the order of Deflate.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u16,
    len: u8,
}

/// The codes of one block.
pub(super) struct Block {
    codes: [Code; SYMBOLS],
    distances: [Code; DISTANCES],
    /// Number of code lengths in the header, for symbols and for distances.
    sent: (usize, usize),
    /// The run-length coded code lengths: symbols of the header's own code, and extra bits.
    header: Vec<(u8, u8)>,
    header_codes: [Code; 19],
}

impl Default for Block {
    fn default() -> Self {
        Self {
            codes: [Code::default(); SYMBOLS],
            distances: [Code::default(); DISTANCES],
            sent: (257, 1),
            header: Vec::new(),
            header_codes: [Code::default(); 19],
        }
    }
}

/// Extra bits of the header's symbols 16, 17 and 18.
const REPEAT_BITS: [u32; 3] = [2, 3, 7];
/// The order of the lengths of the header's own codes (RFC 1951, 3.2.7).
const HEADER_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

impl Block {
    /// Computes codes for these tokens. Returns the length of the block in bits.
    pub(super) fn plan(&mut self, literals: &[u32; 256], tokens: &[Token]) -> usize {
        let mut symbols = [0; SYMBOLS];
        let mut distances = [0; DISTANCES];
        let mut bits = 0;
        for (symbol, count) in symbols.iter_mut().zip(literals.iter().chain([&1])) {
            *symbol = *count;
        }
        for token in tokens {
            let mut left = token.length as usize;
            while left > 0 {
                let len = match_len(left);
                let (symbol, _, length_bits) = length_code(len);
                let (distance, _, distance_bits) = distance_code(token.distance as usize);
                symbols[symbol] += 1;
                distances[distance] += 1;
                bits += (length_bits + distance_bits) as usize;
                left -= len;
            }
        }
        let (mut lengths, mut distance_lengths) = ([0; SYMBOLS], [0; DISTANCES]);
        huffman_lengths(&symbols, MAX_BITS, &mut lengths);
        huffman_lengths(&distances, MAX_BITS, &mut distance_lengths);
        assign(&lengths, &mut self.codes);
        assign(&distance_lengths, &mut self.distances);
        let cost = |counts: &[u32], lengths: &[u8]| -> usize {
            counts.iter().zip(lengths).map(|(count, len)| *count as usize * usize::from(*len)).sum()
        };
        bits += cost(&symbols, &lengths) + cost(&distances, &distance_lengths);
        bits + self.plan_header(&lengths, &distance_lengths)
    }

    fn plan_header(&mut self, lengths: &[u8], distances: &[u8]) -> usize {
        let used = |lengths: &[u8], least: usize| {
            lengths.iter().rposition(|len| *len != 0).map_or(least, |last| least.max(last + 1))
        };
        self.sent = (used(lengths, 257), used(distances, 1));
        self.header.clear();
        let sent: Vec<u8> =
            lengths.iter().take(self.sent.0).chain(distances.iter().take(self.sent.1)).copied().collect();
        for run in sent.chunk_by(|a, b| a == b) {
            let Some(&len) = run.first() else { continue };
            pack_lengths(len, run.len(), &mut self.header);
        }
        let mut counts = [0; 19];
        for (symbol, _) in &self.header {
            counts[usize::from(*symbol)] += 1;
        }
        let mut header_lengths = [0; 19];
        huffman_lengths(&counts, MAX_HEADER_BITS, &mut header_lengths);
        assign(&header_lengths, &mut self.header_codes);
        let mut bits = 3 + 14 + 19 * 3;
        for (symbol, _) in &self.header {
            bits += usize::from(header_lengths[usize::from(*symbol)]) + extra_bits(*symbol) as usize;
        }
        bits
    }

    fn write_header(&self, bits: &mut Bits<'_>) -> Option<()> {
        let used = HEADER_ORDER.iter().rposition(|at| self.header_codes[*at].len != 0);
        let used = used.map_or(4, |last| (last + 1).max(4));
        let (symbols, distances) = self.sent;
        bits.put((symbols - 257) as u64 | (distances as u64 - 1) << 5 | (used as u64 - 4) << 10, 14)?;
        for at in HEADER_ORDER.iter().take(used) {
            bits.put(self.header_codes[*at].len.into(), 3)?;
        }
        for (symbol, extra) in &self.header {
            let code = self.header_codes[usize::from(*symbol)];
            bits.put(u64::from(code.bits) | u64::from(*extra) << code.len, u32::from(code.len) + extra_bits(*symbol))?;
        }
        Some(())
    }

    /// Writes the block with the codes that [`plan`](Self::plan) computed.
    pub(super) fn write(&self, bytes: &[u8], tokens: &[Token], last: bool, bits: &mut Bits<'_>) -> Option<()> {
        bits.put(u64::from(last) | 2 << 1, 3)?;
        self.write_header(bits)?;
        let mut rest = bytes;
        for token in tokens {
            let (literals, after) = rest.split_at_checked(token.literals as usize)?;
            bits.literals(literals, &self.codes)?;
            let mut left = token.length as usize;
            rest = after.get(left..)?;
            while left > 0 {
                let len = match_len(left);
                let (symbol, extra, width) = length_code(len);
                let code = self.codes[symbol];
                let (mut word, mut count) =
                    (u64::from(code.bits) | (extra as u64) << code.len, u32::from(code.len) + width);
                let (symbol, extra, width) = distance_code(token.distance as usize);
                let code = self.distances[symbol];
                word |= (u64::from(code.bits) | (extra as u64) << code.len) << count;
                count += u32::from(code.len) + width;
                bits.put(word, count)?;
                left -= len;
            }
        }
        let end = self.codes[END];
        bits.put(end.bits.into(), end.len.into())
    }
}

fn extra_bits(symbol: u8) -> u32 {
    symbol.checked_sub(16).and_then(|at| REPEAT_BITS.get(usize::from(at))).map_or(0, |bits| *bits)
}

/// Appends the header symbols for `count` consecutive codes of `len` bits.
fn pack_lengths(len: u8, mut count: usize, out: &mut Vec<(u8, u8)>) {
    if len != 0 {
        out.push((len, 0));
        count -= 1;
    }
    while count > 0 {
        let (symbol, least, most) = match (len, count) {
            (0, ..11) => (17, 3, 10),
            (0, _) => (18, 11, 138),
            _ => (16, 3, 6),
        };
        if count < least {
            out.extend(std::iter::repeat_n((len, 0), count));
            return;
        }
        let now = count.min(most);
        out.push((symbol, (now - least) as u8));
        count -= now;
    }
}

/// Computes the lengths of Huffman codes of at most `limit` bits.
fn huffman_lengths(frequencies: &[u32], limit: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut all = [(0_u32, 0_u16); SYMBOLS];
    let mut count = 0;
    let occurring = frequencies.iter().zip(0..).filter(|(count, _)| **count > 0);
    for (slot, (frequency, at)) in all.iter_mut().zip(occurring) {
        *slot = (*frequency, at);
        count += 1;
    }
    let used = all.get_mut(..count).unwrap_or_default();
    if used.len() < 2 {
        // A code of one symbol still takes a bit, and a complete code needs a second symbol.
        let only = used.first().map_or(0, |(_, at)| usize::from(*at));
        for at in [only, usize::from(only == 0)] {
            if let Some(len) = lengths.get_mut(at) {
                *len = 1;
            }
        }
        return;
    }
    used.sort_unstable();
    let mut counts = [0_usize; 64];
    for depth in depths(used) {
        counts[depth.min(limit)] += 1;
    }
    // Shortened codes oversubscribe the code space: lengthen one shorter code by a bit until the codes fit.
    let mut taken: usize = (1..=limit).map(|len| counts[len] << (limit - len)).sum();
    while taken > 1 << limit {
        let Some(len) = (1..limit).rev().find(|len| counts[*len] > 0) else { break };
        counts[len] -= 1;
        counts[len + 1] += 2;
        counts[limit] -= 1;
        taken -= 1;
    }
    // The rarest symbols get the longest codes.
    let by_length = (1..=limit).rev().flat_map(|len| std::iter::repeat_n(len as u8, counts[len]));
    for ((_, at), len) in used.iter().zip(by_length) {
        if let Some(place) = lengths.get_mut(usize::from(*at)) {
            *place = len;
        }
    }
}

/// Returns the depths in a Huffman tree of symbols sorted by rising frequency. Two queues, of symbols and of nodes: the two rarest
/// of both become the next node.
fn depths(used: &[(u32, u16)]) -> impl Iterator<Item = usize> {
    let count = used.len();
    let mut weights = [0_u64; SYMBOLS];
    let mut parents = [0; 2 * SYMBOLS];
    let (mut symbol, mut node) = (0, 0);
    for made in 0..count - 1 {
        let mut weight = 0_u64;
        for _ in 0..2 {
            let leaf = used.get(symbol).map(|(frequency, _)| u64::from(*frequency));
            let inner = weights.get(..made).and_then(|weights| weights.get(node)).copied();
            let child = match (leaf, inner) {
                (Some(leaf), inner) if inner.is_none_or(|inner| leaf <= inner) => {
                    weight += leaf;
                    symbol += 1;
                    symbol - 1
                }
                (_, inner) => {
                    weight += inner.unwrap_or(0);
                    node += 1;
                    count + node - 1
                }
            };
            if let Some(parent) = parents.get_mut(child) {
                *parent = count + made;
            }
        }
        weights[made] = weight;
    }
    let mut depths = [0_usize; 2 * SYMBOLS];
    for at in (0..2 * count - 2).rev() {
        depths[at] = depths[parents[at]] + 1;
    }
    depths.into_iter().take(count)
}

/// Assigns canonical codes of these lengths (RFC 1951, 3.2.2).
fn assign(lengths: &[u8], codes: &mut [Code]) {
    let mut counts = [0_u16; 16];
    for len in lengths.iter().filter(|len| **len != 0) {
        counts[usize::from(len & 15)] += 1;
    }
    let mut next = [0_u16; 16];
    for len in 1..16 {
        next[len] = (next[len - 1] + counts[len - 1]) << 1;
    }
    for (code, &len) in codes.iter_mut().zip(lengths) {
        *code = Code::default();
        if len != 0 {
            let value = &mut next[usize::from(len & 15)];
            *code = Code { bits: value.reverse_bits() >> (16 - len), len };
            *value = value.wrapping_add(1);
        }
    }
}

/// Writes bits to bytes, the first bit lowest.
pub(super) struct Bits<'a> {
    room: &'a mut [u8],
    at: usize,
    pending: u64,
    /// Number of pending bits, fewer than eight between calls.
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Self {
        Self { room, at: 0, pending: 0, count: 0 }
    }

    /// Writes up to 57 bits.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) -> Option<()> {
        self.pending |= bits << self.count;
        self.count += count;
        self.flush()
    }

    #[inline(always)]
    fn flush(&mut self) -> Option<()> {
        *self.room.get_mut(self.at..)?.first_chunk_mut()? = self.pending.to_le_bytes();
        self.at += self.count as usize / 8;
        self.pending >>= self.count & !7;
        self.count &= 7;
        Some(())
    }

    fn literals(&mut self, literals: &[u8], codes: &[Code; SYMBOLS]) -> Option<()> {
        let (fours, rest) = literals.as_chunks::<4>();
        let (mut pending, mut count, mut at) = (self.pending, self.count, self.at);
        for four in fours {
            for byte in four {
                let code = codes[usize::from(*byte)];
                pending |= u64::from(code.bits) << count;
                count += u32::from(code.len);
            }
            *self.room.get_mut(at..)?.first_chunk_mut()? = pending.to_le_bytes();
            at += count as usize / 8;
            pending >>= count & !7;
            count &= 7;
        }
        (self.pending, self.count, self.at) = (pending, count, at);
        for byte in rest {
            let code = codes[usize::from(*byte)];
            self.put(code.bits.into(), code.len.into())?;
        }
        Some(())
    }

    /// Writes stored blocks, as many as the bytes need.
    pub(super) fn stored(&mut self, bytes: &[u8], last: bool) -> Option<()> {
        let mut rest = bytes;
        loop {
            let (now, after) = rest.split_at(rest.len().min(LONGEST_STORED));
            self.put((last && after.is_empty()).into(), 3)?;
            self.put(0, self.count.wrapping_neg() & 7)?;
            let len = now.len() as u16;
            self.put(u64::from(len) | u64::from(!len) << 16, 32)?;
            self.room.get_mut(self.at..)?.get_mut(..now.len())?.copy_from_slice(now);
            self.at += now.len();
            rest = after;
            if rest.is_empty() {
                return Some(());
            }
        }
    }

    pub(super) fn finish(mut self) -> Option<usize> {
        self.put(0, self.count.wrapping_neg() & 7)?;
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_limited_and_complete() {
        // Frequencies of Fibonacci make the deepest tree there is.
        let mut frequencies = [0_u32; SYMBOLS];
        let (mut a, mut b) = (1, 1);
        for frequency in frequencies.iter_mut().take(40) {
            (*frequency, a, b) = (a, b, a + b);
        }
        for limit in [MAX_HEADER_BITS, MAX_BITS] {
            for used in 2..=40 {
                let mut lengths = [0; SYMBOLS];
                huffman_lengths(&frequencies[..used], limit, &mut lengths);
                let taken: usize =
                    lengths.iter().filter(|len| **len > 0).map(|len| 1 << (limit - usize::from(*len))).sum();
                assert_eq!((lengths.iter().filter(|len| **len > 0).count(), taken), (used, 1 << limit));
            }
        }
    }

    #[test]
    fn codes_of_lengths_and_distances() {
        // The rows of the tables in RFC 1951 where the number of extra bits changes.
        for (len, want) in
            [(3, (257, 0, 0)), (10, (264, 0, 0)), (11, (265, 0, 1)), (18, (268, 1, 1)), (19, (269, 0, 2))]
        {
            assert_eq!(length_code(len), want);
        }
        for (len, want) in [(227, (284, 0, 5)), (257, (284, 30, 5)), (258, (285, 0, 0))] {
            assert_eq!(length_code(len), want);
        }
        for (distance, want) in
            [(1, (0, 0, 0)), (4, (3, 0, 0)), (5, (4, 0, 1)), (8, (5, 1, 1)), (32_768, (29, 8191, 13))]
        {
            assert_eq!(distance_code(distance), want);
        }
    }
}
