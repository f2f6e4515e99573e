//! Deflate without a search for matches: Huffman codes, and runs of one byte.
//!
//! Differences between the neighbours of a measured raster hardly ever repeat, except for runs of zeros where there is no
//! data, or where the upper bytes of floats agree. A compressor that looks for matches there spends nearly all of its
//! time on finding none, and what short ones it finds often cost more than the literals. What is written here is read by
//! any decoder: blocks with codes of their own, whose matches all go back by one byte.

/// Bytes of a block: short enough for its codes to fit what is in it, long enough that writing them down is lost in it,
/// and a stored block has 16 bits for its length.
const BLOCK: usize = 60 << 10;
/// The longest code of a literal or length. Fifteen bits are allowed; with fourteen, four codes and seven bits left over
/// from before fit into 64 bits.
const MAX_BITS: usize = 14;
/// The longest code of a code length.
const MAX_HEADER_BITS: usize = 7;
/// Literals, the end of the block, and lengths.
const SYMBOLS: usize = 286;
const END: usize = 256;
/// The shortest run that is looked for: a literal and a match of at least three.
const SHORTEST: usize = 4;
const LONGEST_MATCH: usize = 258;

/// The most bytes that `len` bytes become: stored blocks, each behind five bytes or less, and room for a last word that
/// is written whole.
pub(super) fn bound(len: usize) -> usize {
    len + 5 * (len / BLOCK + 1) + 8
}

/// What is kept from block to block.
#[derive(Default)]
pub(crate) struct Coder {
    /// Literals, and then a run of one byte more than the last of them was.
    tokens: Vec<Token>,
    block: Block,
}

#[derive(Clone, Copy)]
struct Token {
    literals: u32,
    /// How often the last literal is repeated; 0, or at least three.
    repeats: u32,
}

impl Coder {
    /// Writes a Deflate stream of `src` into `room`, which has [`bound`] bytes, and says how long it is.
    pub(super) fn compress(&mut self, src: &[u8], room: &mut [u8]) -> Option<usize> {
        let mut bits = Bits { room, at: 0, pending: 0, count: 0 };
        let last = src.len().saturating_sub(1) / BLOCK;
        if src.is_empty() {
            bits.stored(&[], true)?;
        }
        for (nth, bytes) in src.chunks(BLOCK).enumerate() {
            let cost = self.plan(bytes);
            // Three bits of header, up to seven of padding, and two lengths.
            if cost.div_ceil(8) >= bytes.len() + 5 {
                bits.stored(bytes, nth == last)?;
                continue;
            }
            bits.put(u64::from(nth == last) | 2 << 1, 3)?;
            self.block.write_codes(&mut bits)?;
            self.write(bytes, &mut bits)?;
        }
        bits.finish()
    }

    /// Bytes that a stream of `src` would have, or a few more.
    pub(super) fn measure(&mut self, src: &[u8]) -> usize {
        src.chunks(BLOCK).map(|bytes| (self.plan(bytes) / 8 + 1).min(bytes.len() + 5)).sum()
    }

    /// Makes tokens and codes for a block, and says how many bits it takes.
    fn plan(&mut self, bytes: &[u8]) -> usize {
        let mut counts = histogram(bytes);
        let shortest = shortest_runs(&counts, bytes.len());
        let lengths = find_runs(bytes, &shortest, &mut self.tokens, &mut counts);
        let mut frequencies = [0; SYMBOLS];
        for (frequency, count) in frequencies.iter_mut().zip(counts.iter().chain([&1]).chain(&lengths)) {
            *frequency = *count;
        }
        self.block.plan(&frequencies)
    }

    fn write(&self, bytes: &[u8], bits: &mut Bits<'_>) -> Option<()> {
        let mut rest = bytes;
        for token in &self.tokens {
            let (literals, after) = rest.split_at_checked(token.literals as usize)?;
            bits.literals(literals, &self.block.codes)?;
            let mut repeats = token.repeats as usize;
            rest = after.get(repeats..)?;
            while repeats > 0 {
                let len = match_len(repeats);
                let (symbol, extra, width) = length_code(len);
                let code = self.block.codes[symbol];
                // The one distance there is has a code of one bit, a zero.
                bits.put(u64::from(code.bits) | (extra as u64) << code.len, u32::from(code.len) + width + 1)?;
                repeats -= len;
            }
        }
        let end = self.block.codes[END];
        bits.put(end.bits.into(), end.len.into())
    }
}

/// How often each byte occurs. Four tables, so that a byte does not wait for the count of the one before.
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

/// For each byte the shortest run that is worth a match, which takes some ten bits.
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

/// Splits a block into literals and runs. The repeats are taken off `counts`, and counted by length code instead.
fn find_runs(bytes: &[u8], shortest: &[u8; 256], tokens: &mut Vec<Token>, counts: &mut [u32; 256]) -> [u32; 29] {
    let mut lengths = [0; 29];
    tokens.clear();
    let (mut from, mut at) = (0, 0);
    // Nine bytes tell for six of them whether they begin a run of four.
    while let Some(nine) = bytes.get(at..at + 9) {
        let (Some(here), Some(next)) = (nine.first_chunk::<8>(), nine.last_chunk::<8>()) else { break };
        let differ = u64::from_le_bytes(*here) ^ u64::from_le_bytes(*next);
        let differ = differ | differ >> 8 | differ >> 16;
        // The lowest byte that is zero is found exactly; what lies above it may be a borrow.
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
            let repeats = run - 1;
            tokens.push(Token { literals: (at + 1 - from) as u32, repeats: repeats as u32 });
            counts[usize::from(byte)] -= repeats as u32;
            let mut left = repeats;
            while left > 0 {
                let len = match_len(left);
                lengths[length_code(len).0 - END - 1] += 1;
                left -= len;
            }
            from = at + run;
        }
        at += run;
    }
    tokens.push(Token { literals: (bytes.len() - from) as u32, repeats: 0 });
    lengths
}

/// How many bytes from the first on are `byte`.
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

/// The length of the next match where a byte is to be repeated so often: no less than three may be left for the last.
fn match_len(repeats: usize) -> usize {
    match repeats {
        ..=LONGEST_MATCH => repeats,
        259 | 260 => LONGEST_MATCH - 3,
        _ => LONGEST_MATCH,
    }
}

/// The symbol of a match length, what its extra bits are, and how many.
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

/// A code, its first bit lowest, as Deflate sends them.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u16,
    len: u8,
}

/// The codes of one block.
struct Block {
    lengths: [u8; SYMBOLS],
    codes: [Code; SYMBOLS],
    /// The code lengths as they are sent: symbols of the header's own code, and extra bits.
    header: Vec<(u8, u8)>,
    header_codes: [Code; 19],
}

impl Default for Block {
    fn default() -> Self {
        let (codes, header_codes) = ([Code::default(); SYMBOLS], [Code::default(); 19]);
        Self { lengths: [0; SYMBOLS], codes, header: Vec::new(), header_codes }
    }
}

/// Extra bits of the header's symbols 16, 17 and 18.
const REPEAT_BITS: [u32; 3] = [2, 3, 7];
/// The order in which the lengths of the header's own codes are sent.
const HEADER_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

impl Block {
    /// Makes codes for symbols of these frequencies, and says how many bits the block takes with them.
    fn plan(&mut self, frequencies: &[u32; SYMBOLS]) -> usize {
        huffman_lengths(frequencies, MAX_BITS, &mut self.lengths);
        assign(&self.lengths, &mut self.codes);
        self.header.clear();
        // Two distances of one bit each: a code of one would do, but not for all decoders.
        let used = self.lengths.iter().rposition(|len| *len != 0).map_or(257, |last| (last + 1).max(257));
        let sent: Vec<u8> = self.lengths.iter().take(used).copied().chain([1, 1]).collect();
        let mut counts = [0; 19];
        for run in sent.chunk_by(|a, b| a == b) {
            let Some(&len) = run.first() else { continue };
            pack_lengths(len, run.len(), &mut self.header);
        }
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
        for (symbol, (count, len)) in frequencies.iter().zip(&self.lengths).enumerate() {
            let more = if symbol > END { length_bits(symbol) + 1 } else { 0 };
            bits += *count as usize * (usize::from(*len) + more);
        }
        bits
    }

    fn write_codes(&self, bits: &mut Bits<'_>) -> Option<()> {
        let used = self.lengths.iter().rposition(|len| *len != 0).map_or(257, |last| (last + 1).max(257));
        let sent =
            HEADER_ORDER.iter().rposition(|at| self.header_codes[*at].len != 0).map_or(4, |last| (last + 1).max(4));
        bits.put((used - 257) as u64 | 1 << 5 | (sent as u64 - 4) << 10, 14)?;
        for at in HEADER_ORDER.iter().take(sent) {
            bits.put(self.header_codes[*at].len.into(), 3)?;
        }
        for (symbol, extra) in &self.header {
            let code = self.header_codes[usize::from(*symbol)];
            bits.put(u64::from(code.bits) | u64::from(*extra) << code.len, u32::from(code.len) + extra_bits(*symbol))?;
        }
        Some(())
    }
}

fn extra_bits(symbol: u8) -> u32 {
    symbol.checked_sub(16).and_then(|at| REPEAT_BITS.get(usize::from(at))).map_or(0, |bits| *bits)
}

/// Extra bits of a length symbol.
fn length_bits(symbol: usize) -> usize {
    if (265..285).contains(&symbol) { (symbol - 261) / 4 } else { 0 }
}

/// Says that `count` symbols in a row have codes of `len` bits.
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

/// The lengths of Huffman codes of at most `limit` bits.
fn huffman_lengths(frequencies: &[u32], limit: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut used: Vec<(u32, u16)> =
        frequencies.iter().zip(0..).filter(|(count, _)| **count > 0).map(|(count, at)| (*count, at)).collect();
    if used.len() < 2 {
        // A code of one symbol still takes a bit, and to be complete it takes another symbol.
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
    for depth in depths(&used) {
        counts[depth.min(limit)] += 1;
    }
    // Codes that were cut short leave too little room for the others: one that is shorter gives way, and becomes two.
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

/// How deep in a Huffman tree symbols lie whose frequencies go upwards: two queues, of symbols and of nodes, and always
/// the two rarest of both become a node.
fn depths(used: &[(u32, u16)]) -> impl Iterator<Item = usize> {
    let count = used.len();
    let mut weights = Vec::with_capacity(count);
    let mut parents = vec![0; 2 * count - 1];
    let (mut symbol, mut node) = (0, 0);
    for made in 0..count - 1 {
        let mut weight = 0_u64;
        for _ in 0..2 {
            let leaf = used.get(symbol).map(|(frequency, _)| u64::from(*frequency));
            let inner = weights.get(node).copied();
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
        weights.push(weight);
    }
    let mut depths = vec![0_usize; 2 * count - 1];
    for at in (0..2 * count - 2).rev() {
        depths[at] = depths[parents[at]] + 1;
    }
    depths.into_iter().take(count)
}

/// The codes of these lengths: those of a length count up, and those of the next go on from there.
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

/// Bits on their way into bytes, the first one lowest.
struct Bits<'a> {
    room: &'a mut [u8],
    at: usize,
    pending: u64,
    /// Fewer than eight between calls.
    count: u32,
}

impl Bits<'_> {
    /// Up to 57 bits.
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

    /// A block that is stored as it is.
    fn stored(&mut self, bytes: &[u8], last: bool) -> Option<()> {
        self.put(last.into(), 3)?;
        self.put(0, self.count.wrapping_neg() & 7)?;
        let len = bytes.len() as u16;
        self.put(u64::from(len) | u64::from(!len) << 16, 32)?;
        self.room.get_mut(self.at..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }

    fn finish(mut self) -> Option<usize> {
        self.put(0, self.count.wrapping_neg() & 7)?;
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress, Status};

    use super::*;
    use crate::codec::testing;

    fn check(src: &[u8]) -> usize {
        let mut coder = Coder::default();
        let mut room = vec![0xaa; bound(src.len())];
        let len = coder.compress(src, &mut room).unwrap();
        assert!(len <= coder.measure(src) + 5, "{len} bytes, measured as {}", coder.measure(src));
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
            // Noise is stored, half of it or less is not, and a run goes on over the edge of a block.
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
    fn noise_is_coded_near_its_entropy() {
        let mut state = 1_u64;
        let src: Vec<u8> = (0..500_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 40 & 31) + (state >> 50 & 31)) as u8
            })
            .collect();
        let entropy: f64 = histogram(&src)
            .iter()
            .filter(|n| **n > 0)
            .map(|n| f64::from(*n) * (5e5 / f64::from(*n)).log2() / 8.0)
            .sum();
        let len = check(&src) as f64;
        assert!(len < entropy * 1.01, "{len} {entropy}");
    }
}
