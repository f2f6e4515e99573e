//! TIFF LZW (compression 5): encoding, with noisy tiles cut in parts that are encoded side by side.
//!
//! What makes LZW slow is waiting: each lookup needs the code that the one before it found, and whether it finds one at
//! all is a coin toss that no CPU foretells. So noisy data go through a loop without branches, several parts of the
//! tile in turn, and while one part waits the others work. A part begins with a Clear, which any encoder may write at
//! any time, and the bits of the parts are joined at the end. In data that compress well a Clear costs too much and
//! matches are long and foretold; these go table by table through a plain loop, which looks up a run of equal bytes at
//! once.
//!
//! The string table forgets an entry now and then, where three fall in one bucket. A reader does not notice, it only
//! sees two codes where one would have done.
#![forbid(unsafe_code)]

use crate::simd::{Task, widest};
use std::{fmt, hint::select_unpredictable};

const CLEAR: u64 = 256;
const EOI: u64 = 257;
const FIRST: u32 = 258;
/// Codes between two Clears: the last one makes entry 4093, where libtiff's encoder stops too.
const CODES: u32 = 3836;
const FULL: u32 = FIRST + CODES;
/// One more than the greatest code.
const CODE_ROOM: usize = 1 << 12;

/// Parts encoded side by side. Two leave the CPU waiting, four do not fit in its registers.
const PARTS: usize = 3;
/// Most bytes of a part, which bounds the output kept back and how long the choice of the loop stands.
const PART_MOST: usize = 1 << 18;
/// A part shorter than this many tables would lose too much to its Clear.
const PART_TABLES: usize = 2;
/// Bytes in a table from which on the plain loop is the better one.
const LONG_MATCHES: usize = 16 * CODES as usize;
/// A part with less room than this in its table clears early, a loss of some entries in thousands; all parts go as many
/// steps at once as the fullest table has room for, and would creep towards its end.
const SPARE: u32 = 24;

/// Picked by twelve bits of hash and the code, see `bucket_of`.
const BUCKETS: usize = 1 << 13;
/// Entries bear the number of their table in twelve bits, so that a Clear is but a new number. Zero is none.
const STAMPS: u32 = 1 << 12;
/// What an entry differs in, at most, from the tag that finds it: the code.
const FOUND: u32 = 1 << 12;
/// What an entry of the present table differs in, at most, from any tag: byte and code.
const PRESENT: u32 = 1 << 20;

/// Lengths of runs whose codes are kept.
const RUN_ROOM: usize = 256;

/// Two entries to a bucket, the low one filled first. An entry is the tag of its last byte XOR its code; the prefix is
/// not in it, because bucket and tag leave only one that it can be. The bucket behind the last takes what must not be
/// written.
type Table = [u64; BUCKETS + 1];

/// The tables, kept between tiles so that they are allocated once and clearing them costs nothing.
#[derive(Clone)]
pub struct LzwEncoder {
    parts: Box<[Part; PARTS]>,
    runs: Box<Runs>,
}

impl Default for LzwEncoder {
    fn default() -> Self {
        Self { parts: Box::new(std::array::from_fn(|_| Part::new())), runs: Box::new(Runs::new()) }
    }
}

impl fmt::Debug for LzwEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LzwEncoder").finish_non_exhaustive()
    }
}

/// The most bytes that [`encode`] appends for `len` bytes.
#[must_use]
pub fn max_encoded_len(len: usize) -> usize {
    // A code has at most twelve bits and stands for at least one byte. A Clear comes at the end of a table, after at
    // least CODES - SPARE codes, or of a part, of at least PART_TABLES * CODES bytes: less than one in two thousand
    // bytes in all. One Clear begins the stream, EOI ends it, and the last byte may be a fraction.
    len.saturating_add(len / 2).saturating_add(len / 1024 + 8)
}

/// Appends the LZW stream of `src` to `dst`.
///
/// Most significant bit first and early change, as today's TIFF has it. The stream begins with Clear and ends with EOI.
pub fn encode(src: &[u8], dst: &mut Vec<u8>, scratch: &mut LzwEncoder) {
    widest(Encode { src, dst, scratch });
}

struct Encode<'a> {
    src: &'a [u8],
    dst: &'a mut Vec<u8>,
    scratch: &'a mut LzwEncoder,
}

impl Task for Encode<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Self { src, dst, scratch: LzwEncoder { parts, runs } } = self;
        parts[0].bits = Bits::new(std::mem::take(dst));
        run(src, parts, runs);
        *dst = std::mem::take(&mut parts[0].bits).finish();
    }
}

/// Bits appended to bytes, most significant first.
#[derive(Clone, Default)]
struct Bits {
    out: Vec<u8>,
    /// The last `count < 8` bits, at the low end; what is above them was written before.
    word: u64,
    count: u32,
}

impl Bits {
    fn new(out: Vec<u8>) -> Self {
        Self { out, word: 0, count: 0 }
    }

    fn put(&mut self, code: u64, width: u32) {
        self.word = self.word << width | code;
        self.count += width;
        while self.count >= 8 {
            self.count -= 8;
            self.out.push((self.word >> self.count) as u8);
        }
    }

    /// The codes of one table, then `last`. Their widths follow from their places.
    #[inline(always)]
    fn put_table(&mut self, codes: &[u16], last: u64) {
        let mut pos = self.out.len();
        self.out.resize(pos + codes.len() * 3 / 2 + 16, 0);
        let mut rest = codes;
        self.put_codes::<9, 6>(&mut rest, 254, &mut pos);
        self.put_codes::<10, 5>(&mut rest, 512, &mut pos);
        self.put_codes::<11, 5>(&mut rest, 1024, &mut pos);
        self.put_codes::<12, 4>(&mut rest, CODE_ROOM, &mut pos);
        self.out.truncate(pos);
        self.put(last, width_at(codes.len()));
    }

    /// Up to `most` codes of `W` bits, written `G` at once: `7 + G * W <= 64`.
    #[inline(always)]
    fn put_codes<const W: u32, const G: usize>(&mut self, codes: &mut &[u16], most: usize, pos: &mut usize) {
        let (now, later) = codes.split_at(most.min(codes.len()));
        *codes = later;
        let (groups, single) = now.as_chunks::<G>();
        for group in groups {
            for &code in group {
                self.word = self.word << W | u64::from(code);
            }
            self.count += W * G as u32;
            self.spill(pos);
        }
        for &code in single {
            self.word = self.word << W | u64::from(code);
            self.count += W;
            self.spill(pos);
        }
    }

    /// Writes the whole bytes there are to `pos`, and scribbles on the few after them.
    #[inline(always)]
    fn spill(&mut self, pos: &mut usize) {
        if let Some(slot) = self.out.get_mut(*pos..).and_then(|rest| rest.first_chunk_mut()) {
            *slot = (self.word << ((64 - self.count) & 63)).to_be_bytes();
        }
        *pos += (self.count / 8) as usize;
        self.count &= 7;
    }

    #[inline(always)]
    fn append(&mut self, other: &Self) {
        let mut pos = self.out.len();
        self.out.resize(pos + other.out.len() + 16, 0);
        // Seven bytes are the most that fit beside the bits still waiting.
        let (words, rest) = other.out.as_chunks::<7>();
        for &[a, b, c, d, e, f, g] in words {
            self.word = self.word << 56 | u64::from_be_bytes([0, a, b, c, d, e, f, g]);
            self.count += 56;
            self.spill(&mut pos);
        }
        self.out.truncate(pos);
        for &byte in rest {
            self.put(byte.into(), 8);
        }
        self.put(other.word & ((1 << other.count) - 1), other.count);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.out.push((self.word << (8 - self.count)) as u8);
        }
        self.out
    }
}

/// Bits of a code with `before` others between it and the last Clear. The reader's table then ends at entry `256 +
/// before`, and codes get wider one entry before they must.
fn width_at(before: usize) -> u32 {
    match before {
        0..254 => 9,
        254..766 => 10,
        766..1790 => 11,
        _ => 12,
    }
}

/// The bucket for a string and one byte more. With the same tag two codes never share one.
#[inline(always)]
fn bucket_of(code: u32, tag: u32) -> usize {
    code.wrapping_add(tag) as usize & (BUCKETS - 1)
}

/// One part of the tile.
#[derive(Clone)]
struct Part {
    /// Of the string matched so far.
    code: u32,
    /// The entry that the next code makes.
    next: u32,
    stamp: u32,
    /// By byte: the stamp, the byte, and twelve bits of hash.
    tags: [u32; 256],
    entries: Table,
    /// The codes since the last Clear, each at the number of the entry that it made.
    codes: [u16; CODE_ROOM],
    bits: Bits,
}

impl Part {
    fn new() -> Self {
        Self {
            code: 0,
            next: FIRST,
            stamp: 0,
            tags: [0; 256],
            entries: [0; BUCKETS + 1],
            codes: [0; CODE_ROOM],
            bits: Bits::default(),
        }
    }

    /// An empty table: from here on nothing is found that was there before.
    fn forget(&mut self) {
        self.stamp += 1;
        if self.stamp >= STAMPS {
            self.entries.fill(0);
            self.stamp = 1;
        }
        for (byte, tag) in (0u32..).zip(&mut self.tags) {
            *tag = self.stamp << 20 | byte << 12 | byte.wrapping_mul(0x9e37_79b1) >> 20;
        }
    }

    fn begin(&mut self, first: u8) {
        self.forget();
        self.code = first.into();
        self.next = FIRST;
    }

    #[inline(always)]
    fn push_code(&mut self) {
        self.codes[self.next as usize & (CODE_ROOM - 1)] = self.code as u16;
        self.next += 1;
    }

    /// Writes the codes there are, then `last`.
    #[inline(always)]
    fn write(&mut self, last: u64) {
        self.bits.put_table(self.codes.get(FIRST as usize..self.next as usize).unwrap_or_default(), last);
    }
}

/// What becomes of a bucket with a new entry. Of three the newest goes: the oldest is often the shortest and most
/// wanted.
#[inline(always)]
fn with_entry(bucket: u64, low_present: bool, entry: u32) -> u64 {
    u64::from(entry) << 32 | u64::from(select_unpredictable(low_present, bucket as u32, entry))
}

/// Takes one byte after the other in all parts, with no branch that depends on them. Every table must have room.
#[inline(always)]
fn advance<const N: usize>(src: [&[u8]; N], parts: &mut [Part; N]) {
    let steps = src.iter().map(|src| src.len()).min().unwrap_or(0);
    let mut now: [(u32, u32); N] = std::array::from_fn(|p| (parts[p].code, parts[p].next));
    for i in 0..steps {
        for p in 0..N {
            let ((code, next), part) = (now[p], &mut parts[p]);
            let Some(&byte) = src[p].get(i) else { return };
            let tag = part.tags[usize::from(byte)];
            let at = bucket_of(code, tag);
            let bucket = part.entries[at];
            let low = bucket as u32 ^ tag;
            let found = low.min((bucket >> 32) as u32 ^ tag);
            let miss = found >= FOUND;
            // Written elsewhere, not written back: a store that is never read keeps no later load waiting.
            part.entries[select_unpredictable(miss, at, BUCKETS)] = with_entry(bucket, low < PRESENT, tag ^ next);
            part.codes[next as usize & (CODE_ROOM - 1)] = code as u16;
            now[p] = (select_unpredictable(miss, byte.into(), found), next + u32::from(miss));
        }
    }
    for (part, (code, next)) in parts.iter_mut().zip(now) {
        (part.code, part.next) = (code, next);
    }
}

/// Takes all of `src`, of the same length for every part, and writes the tables that get full.
#[inline(always)]
fn side_by_side<const N: usize>(src: [&[u8]; N], parts: &mut [Part; N]) {
    let len = src.iter().map(|src| src.len()).min().unwrap_or(0);
    let mut at = 0;
    while at < len {
        let full: [bool; N] = std::array::from_fn(|p| parts[p].next >= FULL - SPARE);
        let room = parts.iter().map(|part| (FULL - 1).saturating_sub(part.next)).min().unwrap_or(0);
        // Where a table is full, the next byte is made to match nothing, which ends the string before it.
        let steps = if full.contains(&true) { 1 } else { (room as usize).clamp(1, len - at) };
        for (part, _) in parts.iter_mut().zip(full).filter(|(_, full)| *full) {
            part.forget();
        }
        advance(src.map(|src| src.get(at..at + steps).unwrap_or_default()), parts);
        at += steps;
        for (part, _) in parts.iter_mut().zip(full).filter(|(_, full)| *full) {
            part.write(CLEAR);
            // Again, for the entry just made has a number of the old table.
            part.forget();
            part.next = FIRST;
        }
    }
}

/// Strings of one byte repeated.
#[derive(Clone)]
struct Runs {
    /// By byte: the length of the longest, and its code.
    longest: [(u32, u16); 256],
    /// By byte and length.
    codes: [[u16; RUN_ROOM]; 256],
}

impl Runs {
    fn new() -> Self {
        Self { longest: [(0, 0); 256], codes: [[0; RUN_ROOM]; 256] }
    }

    fn forget(&mut self) {
        for (byte, (longest, codes)) in (0u16..).zip(self.longest.iter_mut().zip(&mut self.codes)) {
            *longest = (1, byte);
            codes[1] = byte;
        }
    }

    /// A string of at most `len` times `byte`, and preferably of that many: its code and length.
    #[inline(always)]
    fn up_to(&self, byte: u8, len: usize) -> (u32, usize) {
        let (longest, code) = self.longest[usize::from(byte)];
        if longest as usize <= len {
            return (code.into(), longest as usize);
        }
        let len = len.min(RUN_ROOM - 1);
        (self.codes[usize::from(byte)][len].into(), len)
    }

    #[inline(always)]
    fn add(&mut self, byte: u8, len: usize, code: u32) {
        let longest = &mut self.longest[usize::from(byte)];
        if len == longest.0 as usize + 1 {
            *longest = (len as u32, code as u16);
            if let Some(slot) = self.codes[usize::from(byte)].get_mut(len) {
                *slot = code as u16;
            }
        }
    }
}

/// How many of the first `most` bytes equal `byte`, up to the first that does not.
#[inline(always)]
fn run_len(src: &[u8], byte: u8, most: usize) -> usize {
    let src = src.get(..most).unwrap_or(src);
    let (words, rest) = src.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let differ = u64::from_le_bytes(*word) ^ u64::from_le_bytes([byte; 8]);
        if differ != 0 {
            return i * 8 + (differ.trailing_zeros() / 8) as usize;
        }
    }
    words.len() * 8 + rest.iter().take_while(|&&other| other == byte).count()
}

/// Fills one table from the start of `src`, without writing it; returns how many bytes that took.
#[inline(always)]
fn one_table(src: &[u8], part: &mut Part, runs: &mut Runs) -> usize {
    let mut at = 0;
    runs.forget();
    part.begin(0);
    while part.next < FULL {
        let Some((&first, rest)) = src.get(at..).and_then(|rest| rest.split_first()) else { break };
        part.code = first.into();
        at += 1;
        // Bytes of the string while it is a run, and where in `src` the run ends.
        let (mut run, mut run_end) = (0, 0);
        if rest.first_chunk() == Some(&[first; 8]) {
            let longest = runs.longest[usize::from(first)].0 as usize;
            let len = 1 + run_len(rest, first, longest.max(8));
            run_end = at - 1 + len;
            (part.code, run) = runs.up_to(first, len);
            at += run - 1;
        }
        while let Some(&byte) = src.get(at) {
            let tag = part.tags[usize::from(byte)];
            let bucket = &mut part.entries[bucket_of(part.code, tag)];
            let low = *bucket as u32 ^ tag;
            let found = low.min((*bucket >> 32) as u32 ^ tag);
            if at < run_end {
                run += 1;
                runs.add(first, run, if found < FOUND { found } else { part.next });
            }
            if found >= FOUND {
                *bucket = with_entry(*bucket, low < PRESENT, tag ^ part.next);
                break;
            }
            part.code = found;
            at += 1;
        }
        part.push_code();
    }
    at
}

#[inline(always)]
fn run(src: &[u8], parts: &mut [Part; PARTS], runs: &mut Runs) {
    parts[0].bits.put(CLEAR, 9);
    if src.is_empty() {
        parts[0].bits.put(EOI, 9);
    }
    let mut rest = src;
    // How noisy the last table was.
    let mut in_table = usize::MAX;
    while !rest.is_empty() {
        let len = (rest.len() / PARTS).min(PART_MOST);
        if in_table < LONG_MATCHES && len / PART_TABLES >= in_table {
            // The last part also takes what the division leaves, rather than leave a few bytes for a table of their
            // own.
            let over = rest.len() - len * PARTS;
            let over = if over < PARTS { over } else { 0 };
            let (now, later) = rest.split_at(len * PARTS + over);
            rest = later;
            several_parts(now, len, if rest.is_empty() { EOI } else { CLEAR }, parts);
            in_table = usize::MAX;
        } else {
            in_table = one_table(rest, &mut parts[0], runs);
            rest = rest.get(in_table..).unwrap_or_default();
            parts[0].write(if rest.is_empty() { EOI } else { CLEAR });
        }
    }
}

/// Encodes `src` in parts of `len` bytes, the last a little longer.
#[inline(always)]
fn several_parts(src: &[u8], len: usize, last: u64, parts: &mut [Part; PARTS]) {
    let cut: [&[u8]; PARTS] = std::array::from_fn(|p| src.get(p * len..(p + 1) * len).unwrap_or_default());
    let rests = cut.map(|src| src.get(1..).unwrap_or_default());
    for (part, src) in parts.iter_mut().zip(cut) {
        part.begin(src.first().copied().unwrap_or_default());
    }
    let [_, others @ ..] = parts;
    for part in others {
        part.bits.out.clear();
        part.bits.count = 0;
    }
    side_by_side(rests, parts);
    let [.., end] = parts;
    side_by_side([src.get(PARTS * len..).unwrap_or_default()], std::array::from_mut(end));
    for (p, part) in parts.iter_mut().enumerate() {
        part.push_code();
        part.write(if p + 1 == PARTS { last } else { CLEAR });
    }
    let [begin, others @ ..] = parts;
    for part in others {
        begin.bits.append(&part.bits);
    }
}

#[cfg(test)]
mod tests {
    use super::super::lzw;
    use super::*;
    use weezl::{BitOrder, decode::Decoder};

    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize
        }

        fn bytes(&mut self, len: usize, of: usize) -> Vec<u8> {
            (0..len).map(|_| (self.next() % of) as u8).collect()
        }
    }

    /// Bytes of which no two that follow each other do so again: every code stands for one byte.
    fn no_pair_twice(len: usize) -> Vec<u8> {
        let (mut seen, mut out) = (vec![false; 1 << 16], vec![0u8]);
        while out.len() < len {
            let last = out[out.len() - 1];
            let next = (0..=255u8)
                .map(|k| k.wrapping_mul(37).wrapping_add(last))
                .find(|&b| !std::mem::replace(&mut seen[usize::from(last) << 8 | usize::from(b)], true));
            out.push(next.unwrap());
        }
        out
    }

    fn check(data: &[u8], scratch: &mut LzwEncoder) -> usize {
        let mut packed = b"kept".to_vec();
        encode(data, &mut packed, scratch);
        let packed = packed.strip_prefix(b"kept").unwrap();
        assert!(packed.len() <= max_encoded_len(data.len()), "{} bytes to {}", data.len(), packed.len());
        let mut out = vec![0; data.len()];
        assert_eq!(lzw::decode(packed, &mut out, &mut lzw::LzwScratch::new()), Ok(lzw::LzwEnd::Exact));
        assert!(out == data, "{} bytes", data.len());
        let other = Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(packed).unwrap();
        assert!(other == data, "{} bytes", data.len());
        packed.len()
    }

    #[test]
    fn round_trips_every_short_length() {
        let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(1));
        for len in 0..600 {
            check(&noise.bytes(len, 256), &mut scratch);
            check(&noise.bytes(len, 2), &mut scratch);
            check(&vec![7; len], &mut scratch);
            check(&no_pair_twice(len), &mut scratch);
        }
    }

    #[test]
    fn the_smallest_streams_are_those_of_the_specification() {
        let mut scratch = LzwEncoder::default();
        let mut packed = Vec::new();
        encode(&[], &mut packed, &mut scratch);
        assert_eq!(packed, [0x80, 0x40, 0x40]);
        packed.clear();
        encode(&[7, 7, 7, 8, 8, 7, 7, 6, 6], &mut packed, &mut scratch);
        // Clear 7 258 8 8 258 6 6 EOI, nine bits each.
        assert_eq!(packed, [0x80, 0x01, 0xe0, 0x40, 0x80, 0x44, 0x08, 0x0c, 0x06, 0x80, 0x80]);
    }

    #[test]
    fn widths_change_and_tables_end_where_the_reader_expects() {
        let mut scratch = LzwEncoder::default();
        let data = no_pair_twice(9000);
        for turn in [254, 766, 1790, CODES as usize, CODES as usize + 254, 2 * CODES as usize] {
            for len in turn - 5..turn + 6 {
                check(&data[..len], &mut scratch);
            }
        }
        // The same through the other loop: one part, then its last codes.
        for turn in [254, 766, 1790, (CODES - SPARE) as usize, 2 * (CODES - SPARE) as usize] {
            for len in turn - 5..turn + 6 {
                let part = &mut scratch.parts[0];
                part.bits = Bits::new(Vec::new());
                part.bits.put(CLEAR, 9);
                part.begin(data[0]);
                side_by_side([&data[1..len]], std::array::from_mut(part));
                part.push_code();
                part.write(EOI);
                let packed = std::mem::take(&mut part.bits).finish();
                let mut out = vec![0; len];
                assert_eq!(lzw::decode(&packed, &mut out, &mut lzw::LzwScratch::new()), Ok(lzw::LzwEnd::Exact));
                assert!(out == data[..len]);
                assert!(Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(&packed).unwrap() == out);
            }
        }
    }

    #[test]
    fn equal_bytes_pack_to_little() {
        let mut scratch = LzwEncoder::default();
        for len in [1000, 30_000, 33_333, 262_144, 1 << 20] {
            assert!(check(&vec![0; len], &mut scratch) < 200 + len / 100);
        }
    }

    #[test]
    fn round_trips_long_data_of_all_kinds() {
        let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(2));
        let words: Vec<Vec<u8>> = (0..300)
            .map(|_| {
                let n = 1 + noise.next() % 9;
                noise.bytes(n, 26)
            })
            .collect();
        for round in 0..120 {
            let want = noise.next() % if round % 10 == 0 { 900_000 } else { 90_000 };
            let mut data = Vec::new();
            while data.len() < want {
                let n = 1 + noise.next() % 40_000;
                let kind = if round % 2 == 0 { round / 2 % 6 } else { noise.next() % 6 };
                match kind {
                    0 => data.extend(noise.bytes(n, 256)),
                    1 => data.extend(noise.bytes(n, 20)),
                    2 => data.extend(noise.bytes(n, 2)),
                    3 => (0..n / 5).for_each(|_| data.extend(&words[noise.next() % words.len()])),
                    4 => (0..n / 20).for_each(|_| {
                        let (byte, times) = (noise.next() % 9, noise.next() % 50);
                        data.extend(std::iter::repeat_n(byte as u8, times));
                    }),
                    _ => data.extend(std::iter::repeat_n(0, n)),
                }
            }
            check(&data, &mut scratch);
        }
    }

    #[test]
    fn parts_of_any_length_are_joined() {
        let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(3));
        for extra in 0..24 {
            check(&noise.bytes(60_000 + extra, 256), &mut scratch);
        }
        check(&noise.bytes(3 * PART_MOST + 70_000, 200), &mut scratch);
        check(&noise.bytes(9 * PART_MOST, 256), &mut scratch);
    }

    #[test]
    fn old_entries_are_not_found_when_stamps_come_round() {
        let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(4));
        for start in [STAMPS - 6, STAMPS - 2, STAMPS - 1] {
            check(&noise.bytes(200_000, 100), &mut scratch);
            scratch.parts.iter_mut().for_each(|part| part.stamp = start);
            check(&noise.bytes(200_000, 100), &mut scratch);
        }
    }

    #[test]
    fn is_about_as_small_as_others() {
        let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(5));
        for of in [2, 5, 30, 256] {
            let data = noise.bytes(300_000, of);
            let other = weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap().len();
            let ours = check(&data, &mut scratch);
            assert!(ours * 100 < other * 102, "{of} values: {ours} and {other} bytes");
        }
    }

    #[test]
    fn the_bound_takes_any_length() {
        assert_eq!(max_encoded_len(usize::MAX), usize::MAX);
        assert!(max_encoded_len(0) >= 3);
    }
}
