//! Encodes LZW streams, several sections of a noisy tile at once.
//!
//! LZW is slow because of latency: each lookup needs the code that the previous one found, and no CPU can predict whether it
//! finds one. So noisy data go through a branch-free loop that advances several sections of the tile in turn: while one waits
//! for its lookup, the others work. A section begins with a Clear, which an encoder may write at any time, and the bits of the
//! sections are joined at the end. In data that compress well an extra Clear costs too much, and matches are long and
//! predictable. Such data go table by table through a plain loop, which looks up a whole run of equal bytes at once.
//!
//! The string table drops an entry where three fall into one bucket. Readers are not affected: they only see two codes where
//! one would have been enough.
#![forbid(unsafe_code)]

use std::{fmt, hint::select_unpredictable};
use swath_raster::{
    memory::{OutOfMemory, boxed, collect},
    simd::{HotLoop, widest},
};

const CLEAR: u64 = super::CLEAR as u64;
const EOI: u64 = super::EOI as u64;
const FIRST: u32 = super::FIRST as u32;
/// Codes between two Clears: the last one adds entry 4093, where libtiff's encoder stops too.
const CODES: u32 = 3836;
const FULL: u32 = FIRST + CODES;
/// One more than the greatest code.
const CODE_ROOM: usize = 1 << 12;

/// Sections encoded at once. Two leave the CPU waiting, four do not fit into its registers.
const SECTIONS: usize = 3;
/// Most bytes of a section. It bounds the buffered output, and how long one choice of the loop lasts.
const SECTION_MOST: usize = 1 << 18;
/// Fewest tables of a section; a shorter one would lose too much to its Clear.
const SECTION_TABLES: usize = 2;
/// Bytes per table from which on the plain loop is faster.
const LONG_MATCHES: usize = 16 * CODES as usize;
/// A section with fewer free entries than this clears its table early, at a loss of a few entries in thousands. All sections
/// advance as many steps at once as the fullest table has room for, so they would slow down near its end.
const SPARE: u32 = 24;

/// Number of buckets, selected by twelve bits of hash and the code; see `bucket_of`.
const BUCKETS: usize = 1 << 13;
/// Entries hold the number of their table in twelve bits, so that a Clear only increments the number. Zero means no entry.
const STAMPS: u32 = 1 << 12;
/// An entry XOR the tag that finds it is below this: only the code differs.
const FOUND: u32 = 1 << 12;
/// An entry of the current table XOR any tag is below this: only byte and code differ.
const PRESENT: u32 = 1 << 20;

/// Run lengths whose codes are remembered.
const RUN_ROOM: usize = 256;

/// Bytes that the writing of a table or a section may use beyond its codes, and cut off again: the codes of a table are reserved at
/// twelve bits each, and words are written whole.
const SLACK: usize = CODE_ROOM * 3 / 2 + 32;

/// Two entries per bucket, the low one filled first. An entry is the tag of its last byte XOR its code. It need not hold the
/// prefix, because bucket and tag determine it. The extra bucket at the end absorbs stores that must have no effect.
type Table = [u64; BUCKETS + 1];

/// The tables, reused between tiles so that they are allocated once, on first use, and clearing them costs nothing.
#[derive(Default)]
pub struct LzwEncoder(Option<Tables>);

struct Tables {
    sections: Box<[Section; SECTIONS]>,
    runs: Box<[Runs; 1]>,
}

impl Tables {
    fn new() -> Result<Self, OutOfMemory> {
        let lacking = OutOfMemory { bytes: size_of::<[Section; SECTIONS]>() as u64 };
        let mut sections = collect((0..SECTIONS).map(|_| Section::new()))?;
        for section in sections.iter_mut().skip(1) {
            section.bits.out.try_reserve_exact(max_encoded_len(SECTION_MOST) + SLACK).map_err(|_| lacking)?;
        }
        let sections = sections.into_boxed_slice().try_into().map_err(|_| lacking)?;
        Ok(Self { sections, runs: boxed(Runs::new())? })
    }
}

impl fmt::Debug for LzwEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LzwEncoder").finish_non_exhaustive()
    }
}

/// Returns an upper bound for the bytes that [`encode`] appends for `len` bytes.
#[must_use]
pub fn max_encoded_len(len: usize) -> usize {
    // A code has at most twelve bits and stands for at least one byte. A Clear ends a table, after at least CODES - SPARE codes,
    // or a section, of at least SECTION_TABLES * CODES bytes: together fewer than one in two thousand bytes. One Clear begins
    // the stream, EOI ends it, and the last byte may be incomplete.
    len.saturating_add(len / 2).saturating_add(len / 1024 + 8)
}

/// Appends the LZW stream of `src` to `dst`.
///
/// Writes the most significant bit first and with early change, as current TIFF requires. The stream begins with Clear and ends
/// with EOI.
///
/// # Errors
/// When the system has no memory for the tables or for the longest stream; `dst` is then unchanged.
pub fn encode(src: &[u8], dst: &mut Vec<u8>, scratch: &mut LzwEncoder) -> Result<(), OutOfMemory> {
    let tables = match &mut scratch.0 {
        Some(tables) => tables,
        made => made.insert(Tables::new()?),
    };
    let most = max_encoded_len(src.len()).saturating_add(SLACK);
    dst.try_reserve(most).map_err(|_| OutOfMemory { bytes: most as u64 })?;
    widest(Encode { src, dst, tables });
    Ok(())
}

struct Encode<'a> {
    src: &'a [u8],
    dst: &'a mut Vec<u8>,
    tables: &'a mut Tables,
}

impl HotLoop for Encode<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Self { src, dst, tables: Tables { sections, runs } } = self;
        let [runs] = &mut **runs;
        sections[0].bits = Bits::new(std::mem::take(dst));
        run(src, sections, runs);
        *dst = std::mem::take(&mut sections[0].bits).finish();
    }
}

/// Writes bits to bytes, most significant first.
#[derive(Clone, Default)]
struct Bits {
    out: Vec<u8>,
    /// The pending `count < 8` bits, at the low end; the bits above them are already written.
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

    /// Writes the codes of one table, then `last`. The width of a code follows from its position.
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

    /// Writes up to `most` codes of `W` bits, `G` at a time: `7 + G * W <= 64`.
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

    /// Writes the complete bytes at `pos`; the few bytes after them are overwritten later.
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
        // Seven bytes are the most that fit beside the pending bits.
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

/// Returns the width of a code with `before` codes between it and the last Clear. The reader's table then ends at entry `256 +
/// before`, and codes widen one entry early.
fn width_at(before: usize) -> u32 {
    match before {
        0..254 => 9,
        254..766 => 10,
        766..1790 => 11,
        _ => 12,
    }
}

/// Returns the bucket for a string extended by one byte. Two codes with the same tag never share a bucket.
#[inline(always)]
fn bucket_of(code: u32, tag: u32) -> usize {
    code.wrapping_add(tag) as usize & (BUCKETS - 1)
}

/// A section of the tile and the state of its encoder.
#[derive(Clone)]
struct Section {
    /// Code of the string matched so far.
    code: u32,
    /// The entry that the next code adds.
    next: u32,
    stamp: u32,
    /// By byte: the stamp, the byte, and twelve bits of hash.
    tags: [u32; 256],
    entries: Table,
    /// The codes since the last Clear, each at the number of the entry that it added.
    codes: [u16; CODE_ROOM],
    bits: Bits,
}

impl Section {
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

    /// Empties the table: earlier entries are no longer found.
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

    /// Writes the collected codes, then `last`.
    #[inline(always)]
    fn write(&mut self, last: u64) {
        self.bits.put_table(self.codes.get(FIRST as usize..self.next as usize).unwrap_or_default(), last);
    }
}

/// Returns a bucket with a new entry. It replaces the high entry of a full bucket: the older low entry is often the shorter and
/// more useful string.
#[inline(always)]
fn with_entry(bucket: u64, low_present: bool, entry: u32) -> u64 {
    u64::from(entry) << 32 | u64::from(select_unpredictable(low_present, bucket as u32, entry))
}

/// Encodes one byte after the other in all sections, without branches that depend on the bytes. Every table must have room.
#[inline(always)]
fn advance<const N: usize>(src: [&[u8]; N], sections: &mut [Section; N]) {
    let steps = src.iter().map(|src| src.len()).min().unwrap_or(0);
    let mut now: [(u32, u32); N] = std::array::from_fn(|p| (sections[p].code, sections[p].next));
    for i in 0..steps {
        for p in 0..N {
            let ((code, next), section) = (now[p], &mut sections[p]);
            let Some(&byte) = src[p].get(i) else { return };
            let tag = section.tags[usize::from(byte)];
            let at = bucket_of(code, tag);
            let bucket = section.entries[at];
            let low = bucket as u32 ^ tag;
            let found = low.min((bucket >> 32) as u32 ^ tag);
            let miss = found >= FOUND;
            // On a hit the store goes to the unused bucket: a store that no load reads delays none.
            section.entries[select_unpredictable(miss, at, BUCKETS)] = with_entry(bucket, low < PRESENT, tag ^ next);
            section.codes[next as usize & (CODE_ROOM - 1)] = code as u16;
            now[p] = (select_unpredictable(miss, byte.into(), found), next + u32::from(miss));
        }
    }
    for (section, (code, next)) in sections.iter_mut().zip(now) {
        (section.code, section.next) = (code, next);
    }
}

/// Encodes all of `src`, of the same length for every section, and writes the tables that become full.
#[inline(always)]
fn side_by_side<const N: usize>(src: [&[u8]; N], sections: &mut [Section; N]) {
    let len = src.iter().map(|src| src.len()).min().unwrap_or(0);
    let mut at = 0;
    while at < len {
        let full: [bool; N] = std::array::from_fn(|p| sections[p].next >= FULL - SPARE);
        let room = sections.iter().map(|section| (FULL - 1).saturating_sub(section.next)).min().unwrap_or(0);
        // Where a table is full, emptying it first makes the next byte match nothing, which ends the current string.
        let steps = if full.contains(&true) { 1 } else { (room as usize).clamp(1, len - at) };
        for (section, _) in sections.iter_mut().zip(full).filter(|(_, full)| *full) {
            section.forget();
        }
        advance(src.map(|src| src.get(at..at + steps).unwrap_or_default()), sections);
        at += steps;
        for (section, _) in sections.iter_mut().zip(full).filter(|(_, full)| *full) {
            section.write(CLEAR);
            // Empty it again: the entry just added belongs to the old table.
            section.forget();
            section.next = FIRST;
        }
    }
}

/// Codes of strings that repeat one byte.
#[derive(Clone)]
struct Runs {
    /// For each byte the length of its longest run, and its code.
    longest: [(u32, u16); 256],
    /// Codes by byte and run length.
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

    /// Returns code and length of the longest known run of `byte` of at most `len` bytes.
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

/// Returns the length of the run of `byte` at the start, at most `most`.
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

/// Fills one table from the start of `src`, without writing it; returns the bytes consumed.
#[inline(always)]
fn one_table(src: &[u8], section: &mut Section, runs: &mut Runs) -> usize {
    let mut at = 0;
    runs.forget();
    section.begin(0);
    while section.next < FULL {
        let Some((&first, rest)) = src.get(at..).and_then(|rest| rest.split_first()) else { break };
        section.code = first.into();
        at += 1;
        // Length of the string while it is a run, and the end of the run in `src`.
        let (mut run, mut run_end) = (0, 0);
        if rest.first_chunk() == Some(&[first; 8]) {
            let longest = runs.longest[usize::from(first)].0 as usize;
            let len = 1 + run_len(rest, first, longest.max(8));
            run_end = at - 1 + len;
            (section.code, run) = runs.up_to(first, len);
            at += run - 1;
        }
        while let Some(&byte) = src.get(at) {
            let tag = section.tags[usize::from(byte)];
            let bucket = &mut section.entries[bucket_of(section.code, tag)];
            let low = *bucket as u32 ^ tag;
            let found = low.min((*bucket >> 32) as u32 ^ tag);
            if at < run_end {
                run += 1;
                runs.add(first, run, if found < FOUND { found } else { section.next });
            }
            if found >= FOUND {
                *bucket = with_entry(*bucket, low < PRESENT, tag ^ section.next);
                break;
            }
            section.code = found;
            at += 1;
        }
        section.push_code();
    }
    at
}

#[inline(always)]
fn run(src: &[u8], sections: &mut [Section; SECTIONS], runs: &mut Runs) {
    sections[0].bits.put(CLEAR, 9);
    if src.is_empty() {
        sections[0].bits.put(EOI, 9);
    }
    let mut rest = src;
    // Bytes that the last table encoded; few in noisy data.
    let mut in_table = usize::MAX;
    while !rest.is_empty() {
        let len = (rest.len() / SECTIONS).min(SECTION_MOST);
        if in_table < LONG_MATCHES && len / SECTION_TABLES >= in_table {
            // The last section also takes the remainder of the division, so that no table is spent on a few bytes.
            let over = rest.len() - len * SECTIONS;
            let over = if over < SECTIONS { over } else { 0 };
            let (now, later) = rest.split_at(len * SECTIONS + over);
            rest = later;
            several_sections(now, len, if rest.is_empty() { EOI } else { CLEAR }, sections);
            in_table = usize::MAX;
        } else {
            in_table = one_table(rest, &mut sections[0], runs);
            rest = rest.get(in_table..).unwrap_or_default();
            sections[0].write(if rest.is_empty() { EOI } else { CLEAR });
        }
    }
}

/// Encodes `src` in sections of `len` bytes; the last is slightly longer.
#[inline(always)]
fn several_sections(src: &[u8], len: usize, last: u64, sections: &mut [Section; SECTIONS]) {
    let cut: [&[u8]; SECTIONS] = std::array::from_fn(|p| src.get(p * len..(p + 1) * len).unwrap_or_default());
    let rests = cut.map(|src| src.get(1..).unwrap_or_default());
    for (section, src) in sections.iter_mut().zip(cut) {
        section.begin(src.first().copied().unwrap_or_default());
    }
    let [_, others @ ..] = sections;
    for section in others {
        section.bits.out.clear();
        section.bits.count = 0;
    }
    side_by_side(rests, sections);
    let [.., end] = sections;
    side_by_side([src.get(SECTIONS * len..).unwrap_or_default()], std::array::from_mut(end));
    for (p, section) in sections.iter_mut().enumerate() {
        section.push_code();
        section.write(if p + 1 == SECTIONS { last } else { CLEAR });
    }
    let [begin, others @ ..] = sections;
    for section in others {
        begin.bits.append(&section.bits);
    }
}

#[cfg(test)]
mod tests;
