//! TIFF LZW (compression 5): decoding, in today's bit order and in the reversed one of very old writers.
//!
//! A string of the table is never spelled out. It was written to the output once, where its first occurrence still stands, so
//! an entry needs only that place; and since entry `n` is "the string of one code and the first byte of the next", its place is
//! the start of the one code and its length is the distance to the start of the next, plus one. The table of starts is thus all
//! there is. Short strings, which are nearly all of them in noisy rasters, are also kept inline with their length in one `u64`:
//! such a code costs one load and one eight-byte store, and no branch depends on the data.

use crate::simd::{Task, widest};
use std::{fmt, marker::PhantomData};

const CLEAR: usize = 256;
const EOI: usize = 257;
const FIRST: usize = 258;
/// Entries of a full table; codes stay at twelve bits.
const FULL: usize = 4096;

// A string as one word: its first bytes from the low end up, then zeros, and in the top byte its length. So the eight bytes to
// write are the word itself, and one byte more is one addition and one shift.
/// One byte more.
const ONE: u64 = 1 << 56;
/// Bits of `word + ONE` that no string of up to six bytes has. One of seven also stands in its word whole but is left to the
/// slower loop, so that a group of short strings never makes a long one.
const NOT_SHORT: u64 = 0xf8 << 56;
/// The word of a string of eight bytes or more, with its first byte; bytes two to seven mean nothing.
const LONG: u64 = 15 << 56;
/// What the fast loop meets where no string is: Clear, EOI, and codes not yet in the table.
const NONE: u64 = 0x7f << 56;

/// Copied at once by the long copy; up to twice as many bytes after the string are scribbled on, and written again later.
const CHUNK: usize = 32;

/// Room a group of short strings wants: at most six, each written as eight bytes.
const WINDOW: usize = 72;

/// The string table, kept between tiles so that it is allocated once.
#[derive(Clone)]
pub struct LzwScratch(Box<Table>);

#[derive(Clone)]
struct Table {
    words: [u64; FULL],
    /// Where each long string first stands, counted from the last Clear, and in the entry after it where the next string does,
    /// for its length. Entries of short strings may be stale.
    starts: [u32; FULL + 8],
}

impl LzwScratch {
    /// An empty table, about 48 KiB.
    #[must_use]
    pub fn new() -> Self {
        let mut words = [NONE; FULL];
        for (byte, entry) in (0u64..).zip(&mut words[..CLEAR]) {
            *entry = literal(byte);
        }
        Self(Box::new(Table { words, starts: [0; FULL + 8] }))
    }
}

impl Default for LzwScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LzwScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LzwScratch").finish_non_exhaustive()
    }
}

/// How a stream that filled the output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LzwEnd {
    /// At the last byte of the output, with EOI or the end of the input. Bytes after EOI are padding and do not count.
    Exact,
    /// It codes more bytes than the output holds; they were dropped.
    Surplus,
}

/// Why a stream could not fill the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LzwError {
    /// The stream does not begin with a Clear code.
    NoClear {
        /// The code found instead.
        code: u16,
    },
    /// A code that no string has been given yet.
    BeyondTable {
        /// The code.
        code: u16,
        /// How many codes had a meaning, the 256 bytes and the two commands included.
        entries: u16,
        /// The byte of the stream in which the code begins.
        offset: usize,
    },
    /// EOI, or the end of the input, came before the output was full.
    Short {
        /// Bytes decoded.
        got: usize,
        /// Bytes wanted.
        want: usize,
    },
}

impl fmt::Display for LzwError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClear { code } => write!(f, "LZW stream begins with code {code}, not with Clear (256)"),
            Self::BeyondTable { code, entries, offset } => {
                write!(f, "byte {offset}: LZW code {code} is beyond the table ({entries} entries)")
            }
            Self::Short { got, want } => write!(f, "LZW stream ends after {got} of {want} bytes"),
        }
    }
}

impl std::error::Error for LzwError {}

/// Fills `dst` from the LZW stream `src`.
///
/// Lenient where libtiff is: Clear codes may follow each other, EOI may lack, and an encoder may be late with its Clear (codes
/// stay at twelve bits and nothing is added to a full table). A stream must begin with Clear, as present libtiff demands too.
///
/// # Errors
///
/// [`LzwError`] where a code has no meaning or `src` ends before `dst` is full. What `dst` then holds is unspecified.
pub fn decode(src: &[u8], dst: &mut [u8], scratch: &mut LzwScratch) -> Result<LzwEnd, LzwError> {
    // The test of libtiff's LZWPreDecode: a Clear code, nine bits, least significant bit first. In the usual order these bytes
    // would begin with the code 0 or 1, which no valid stream does.
    let reversed = matches!(src, [0, second, ..] if second & 1 == 1);
    let table = &mut *scratch.0;
    if reversed {
        widest(Decode { src, dst, table, order: PhantomData::<Reversed> })
    } else {
        widest(Decode { src, dst, table, order: PhantomData::<Usual> })
    }
}

struct Decode<'a, O> {
    src: &'a [u8],
    dst: &'a mut [u8],
    table: &'a mut Table,
    order: PhantomData<O>,
}

impl<O: Order> Task for Decode<'_, O> {
    type Output = Result<LzwEnd, LzwError>;
    #[inline(always)]
    fn run(self) -> Self::Output {
        run::<O>(self.src, self.dst, self.table)
    }
}

/// How codes lie in bytes.
trait Order {
    /// 1 where codes get wider one entry before they must ("early change"), as all but the oldest writers have it.
    const EARLY: usize;
    /// Eight bytes of the stream without the first `skip < 8` bits.
    fn word(bytes: [u8; 8], skip: usize) -> u64;
    /// Takes the next code off `word`.
    fn take(word: &mut u64, width: u32) -> usize;
}

struct Usual;

impl Order for Usual {
    const EARLY: usize = 1;
    #[inline(always)]
    fn word(bytes: [u8; 8], skip: usize) -> u64 {
        u64::from_be_bytes(bytes) << (skip & 7)
    }
    #[inline(always)]
    fn take(word: &mut u64, width: u32) -> usize {
        let code = *word >> (64 - width);
        *word <<= width;
        code as usize
    }
}

struct Reversed;

impl Order for Reversed {
    const EARLY: usize = 0;
    #[inline(always)]
    fn word(bytes: [u8; 8], skip: usize) -> u64 {
        u64::from_le_bytes(bytes) >> (skip & 7)
    }
    #[inline(always)]
    fn take(word: &mut u64, width: u32) -> usize {
        let code = *word & ((1 << width) - 1);
        *word >>= width;
        code as usize
    }
}

/// Where decoding stands between two Clear codes.
#[derive(Clone, Copy)]
struct State {
    /// Bits of the input taken.
    bit: usize,
    /// Bytes written since the Clear.
    len: usize,
    /// The entry that the next code completes.
    next: usize,
    /// The last string, made ready by `as_prev`.
    prev: u64,
}

#[inline(always)]
fn literal(byte: u64) -> u64 {
    ONE | byte
}

/// Bytes of a string that stands in its word.
#[inline(always)]
fn len_of(word: u64) -> usize {
    (word >> 56) as usize
}

/// The word for the string `prev` and the first byte of the string `then`.
#[inline(always)]
fn extend(prev: u64, then: u64) -> u64 {
    // Byte six of `prev` is zero, see `as_prev`, so this is eight times its length.
    let end = (prev >> 53) & 63;
    (prev + ONE) | (then & 0xff) << end
}

/// `word` as the `prev` of the next code. From seven bytes on, one byte more has to give `LONG`, and fourteen in the top byte makes
/// `extend` put that byte where it does no harm.
#[inline(always)]
fn as_prev(word: u64) -> u64 {
    if (word + ONE) & NOT_SHORT == 0 { word } else { (LONG - ONE) | (word & 0xff) }
}

#[inline(always)]
fn width_at<O: Order>(next: usize) -> u32 {
    match next + O::EARLY {
        0..512 => 9,
        512..1024 => 10,
        1024..2048 => 11,
        _ => 12,
    }
}

/// The code of `width` bits at `bit`; `None` where the input ends before it does.
#[inline(always)]
fn code_at<O: Order>(src: &[u8], bit: usize, width: u32) -> Option<usize> {
    let rest = src.get(bit / 8..)?;
    let mut bytes = [0; 8];
    let n = rest.len().min(8);
    bytes[..n].copy_from_slice(&rest[..n]);
    let mut word = O::word(bytes, bit % 8);
    (bit % 8 + width as usize <= n * 8).then(|| O::take(&mut word, width))
}

#[inline(always)]
fn run<O: Order>(src: &[u8], dst: &mut [u8], table: &mut Table) -> Result<LzwEnd, LzwError> {
    let want = dst.len();
    let mut dst = dst;
    let mut bit = 0;
    table.words[FIRST..].fill(NONE);
    match code_at::<O>(src, bit, 9) {
        _ if dst.is_empty() => return Ok(end::<O>(src, bit, FIRST)),
        Some(CLEAR) => bit += 9,
        Some(EOI) | None => return Err(LzwError::Short { got: 0, want }),
        Some(code) => return Err(LzwError::NoClear { code: code as u16 }),
    }
    // Each turn is what lies between two Clear codes, with `dst` what is left to fill, so that positions fit in 32 bits: a table
    // is full after at most eight megabytes and takes no positions then.
    loop {
        let (byte, slot) = match (code_at::<O>(src, bit, 9), dst.first_mut()) {
            (Some(CLEAR), _) => {
                bit += 9;
                continue;
            }
            (None | Some(EOI), _) | (_, None) => return Err(LzwError::Short { got: want - dst.len(), want }),
            (Some(code @ FIRST..), _) => return Err(beyond(code, FIRST, bit)),
            (Some(byte), Some(slot)) => (byte, slot),
        };
        *slot = byte as u8;
        let mut state = State { bit: bit + 9, len: 1, next: FIRST, prev: literal(byte as u64) };
        let stop = loop {
            match width_at::<O>(state.next) {
                9 => state = fast::<O, 9, 6>(src, dst, table, state),
                10 => state = fast::<O, 10, 5>(src, dst, table, state),
                11 => state = fast::<O, 11, 5>(src, dst, table, state),
                _ => state = fast::<O, 12, 4>(src, dst, table, state),
            }
            if let Some(stop) = step::<O>(src, dst, table, &mut state)? {
                break stop;
            }
        };
        match stop {
            Stop::Clear => {
                table.words[FIRST..state.next].fill(NONE);
                bit = state.bit;
                dst = &mut dst[state.len..];
            }
            Stop::Full => return Ok(end::<O>(src, state.bit, state.next)),
            Stop::Cut => return Ok(LzwEnd::Surplus),
            Stop::Short => return Err(LzwError::Short { got: want - dst.len() + state.len, want }),
        }
    }
}

enum Stop {
    Clear,
    /// A string ended with the output.
    Full,
    /// A string went past the end of the output.
    Cut,
    /// No more codes.
    Short,
}

#[cold]
fn beyond(code: usize, entries: usize, bit: usize) -> LzwError {
    LzwError::BeyondTable { code: code as u16, entries: entries as u16, offset: bit / 8 }
}

/// Decodes groups of `G` codes, each out of one word, for as long as codes stay `W` bits wide, there is room to spare, and none
/// needs care. `7 + G * W <= 64`.
#[inline(always)]
fn fast<O: Order, const W: u32, const G: usize>(
    src: &[u8],
    dst: &mut [u8],
    table: &mut Table,
    mut state: State,
) -> State {
    let limit = (1usize << W) - if W == 12 { 0 } else { O::EARLY };
    while state.next + G <= limit {
        let Some(codes) = codes_at::<O, W, G>(src, state.bit) else { break };
        if let Some(after) = short_group::<W, G>(codes, dst, table, state) {
            state = after;
        } else {
            let (after, done) = long_group::<W, G>(codes, dst, table, state);
            state = after;
            if !done {
                break;
            }
        }
    }
    state
}

#[inline(always)]
fn codes_at<O: Order, const W: u32, const G: usize>(src: &[u8], bit: usize) -> Option<[usize; G]> {
    let mut word = O::word(*src.get(bit / 8..)?.first_chunk()?, bit % 8);
    Some(std::array::from_fn(|_| O::take(&mut word, W) & (FULL - 1)))
}

/// Decodes a group whose strings are all short; `None`, with nothing done, for any other.
#[inline(always)]
fn short_group<const W: u32, const G: usize>(
    codes: [usize; G],
    dst: &mut [u8],
    table: &mut Table,
    state: State,
) -> Option<State> {
    let State { bit, len, next, mut prev } = state;
    let words = codes.map(|code| table.words[code]);
    // An entry that this very group makes still reads NONE, and so is not missed.
    if words.iter().fold(0, |all, word| all | (word + ONE)) & NOT_SHORT != 0 {
        return None;
    }
    let window = dst.get_mut(len..)?.first_chunk_mut::<WINDOW>()?;
    let made = table.words.get_mut(next..)?.first_chunk_mut::<G>()?;
    let mut at = 0;
    for (word, made) in words.into_iter().zip(made) {
        // The mask changes nothing (six strings of six bytes) and spares a check.
        let from = at & 63;
        window[from..from + 8].copy_from_slice(&word.to_le_bytes());
        *made = extend(prev, word);
        at += len_of(word);
        prev = word;
    }
    Some(State { bit: bit + G * W as usize, len: len + at, next: next + G, prev })
}

/// Decodes a group code by code; `false` where it met one that needs care, with those before it done.
#[inline(always)]
fn long_group<const W: u32, const G: usize>(
    codes: [usize; G],
    dst: &mut [u8],
    table: &mut Table,
    mut state: State,
) -> (State, bool) {
    let Table { words, starts } = table;
    for code in codes {
        let State { bit, len, next, prev } = state;
        let mut word = words[code];
        if word == NONE {
            if code != next {
                return (state, false);
            }
            word = extend(prev, prev);
        }
        let n;
        if word < LONG {
            let Some(slot) = dst.get_mut(len..len + 8) else { return (state, false) };
            slot.copy_from_slice(&word.to_le_bytes());
            n = len_of(word);
        } else {
            let from = starts[code] as usize;
            n = (starts[code + 1] as usize).wrapping_sub(from) + 1;
            if !copy_long(dst, from, len, n) {
                return (state, false);
            }
        }
        words[next] = extend(prev, word);
        starts[next + 1] = len as u32;
        starts[next + 2] = (len + n) as u32;
        state = State { bit: bit + W as usize, len: len + n, next: next + 1, prev: as_prev(word) };
    }
    (state, true)
}

/// Writes again at `to` the string of `n` bytes at `from`; `false`, with nothing done, unless there is room for the overshoot.
#[inline(always)]
fn copy_long(dst: &mut [u8], from: usize, to: usize, n: usize) -> bool {
    if to + n + 2 * CHUNK > dst.len() {
        return false;
    }
    dst.copy_within(from..from + CHUNK, to);
    let mut at = CHUNK;
    while at < n {
        dst.copy_within(from + at..from + at + 2 * CHUNK, to + at);
        at += 2 * CHUNK;
    }
    // Only a string that the very code completes touches its copy, and only with its last byte.
    if from + n > to {
        dst[to + n - 1] = dst[to];
    }
    true
}

/// Decodes one code with every check; `Some` when the loop has to end.
#[inline(never)]
fn step<O: Order>(src: &[u8], dst: &mut [u8], table: &mut Table, state: &mut State) -> Result<Option<Stop>, LzwError> {
    let State { bit, len, next, prev } = *state;
    if len == dst.len() {
        return Ok(Some(Stop::Full));
    }
    let width = width_at::<O>(next);
    let code = match code_at::<O>(src, bit, width) {
        None | Some(EOI) => return Ok(Some(Stop::Short)),
        Some(code) => code,
    };
    state.bit = bit + width as usize;
    if code == CLEAR {
        return Ok(Some(Stop::Clear));
    }
    if code > next {
        return Err(beyond(code, next, bit));
    }
    let room = dst.len() - len;
    let word = if code == next { extend(prev, prev) } else { table.words[code] };
    let n = if word < LONG {
        let n = len_of(word);
        let bytes = word.to_le_bytes();
        for (slot, byte) in dst[len..].iter_mut().zip(&bytes[..n]) {
            *slot = *byte;
        }
        n
    } else {
        let from = table.starts[code] as usize;
        let n = table.starts[code + 1] as usize - from + 1;
        // All but the last byte, which may be the first one of the copy.
        dst.copy_within(from..from + (n - 1).min(room), len);
        if n <= room {
            dst[len + n - 1] = dst[from + n - 1];
        }
        n
    };
    if n > room {
        return Ok(Some(Stop::Cut));
    }
    if next < FULL {
        table.words[next] = extend(prev, word);
        table.starts[next + 1] = len as u32;
        table.starts[next + 2] = (len + n) as u32;
        state.next = next + 1;
    }
    state.prev = as_prev(word);
    state.len = len + n;
    Ok(None)
}

/// What the codes after a full output say.
#[cold]
fn end<O: Order>(src: &[u8], mut bit: usize, next: usize) -> LzwEnd {
    let mut width = width_at::<O>(next);
    loop {
        match code_at::<O>(src, bit, width) {
            None | Some(EOI) => return LzwEnd::Exact,
            Some(CLEAR) => {
                bit += width as usize;
                width = 9;
            }
            // Old libtiff did not count the entry that the last code makes, so that its EOI may be one bit too narrow.
            Some(_)
                if width > 9
                    && code_at::<O>(src, bit, width - 1) == Some(EOI)
                    && (bit + width as usize - 1).div_ceil(8) == src.len() =>
            {
                return LzwEnd::Exact;
            }
            Some(_) => return LzwEnd::Surplus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weezl::{BitOrder, decode::Decoder, encode::Encoder};

    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize
        }
    }

    fn samples(kind: usize, len: usize, noise: &mut Noise) -> Vec<u8> {
        let mut level = 0u8;
        (0..len)
            .map(|i| match kind {
                0 => 7,
                1 => noise.next() as u8,
                2 => {
                    // Land cover: long runs of few classes.
                    if noise.next().is_multiple_of(37) {
                        level = (noise.next() % 7) as u8;
                    }
                    level
                }
                3 => (noise.next() % 4 + noise.next() % 4) as u8,
                4 => (i * i / 1000) as u8,
                _ => [0, 0, noise.next() as u8 & 31, 1][i % 4],
            })
            .collect()
    }

    const SIZES: [usize; 18] = [1, 2, 3, 7, 8, 9, 31, 32, 33, 71, 72, 73, 255, 1000, 4093, 20_000, 100_000, 300_001];

    /// A plain reading of the rules, both orders, as far as the end of the output.
    fn plain(src: &[u8], want: usize) -> Result<Vec<u8>, LzwError> {
        let reversed = src.len() > 1 && src[0] == 0 && src[1] & 1 == 1;
        let bit =
            |i: usize| usize::from(if reversed { src[i / 8] >> (i % 8) & 1 } else { src[i / 8] >> (7 - i % 8) & 1 });
        let mut table: Vec<Vec<u8>> = Vec::new();
        let (mut at, mut out, mut prev, mut begun) = (0, Vec::new(), None::<Vec<u8>>, false);
        while out.len() < want {
            let width = (9..12).find(|w| table.len().max(FIRST) + usize::from(!reversed) < 1 << w).unwrap_or(12);
            let short = Err(LzwError::Short { got: out.len(), want });
            if at + width > src.len() * 8 {
                return short;
            }
            let code =
                (0..width).fold(0, |all, k| if reversed { all | bit(at + k) << k } else { all << 1 | bit(at + k) });
            if !begun && code != CLEAR && code != EOI {
                return Err(LzwError::NoClear { code: code as u16 });
            }
            begun = true;
            let string = match code {
                CLEAR => {
                    table = (0..FIRST).map(|b| vec![b as u8]).collect();
                    prev = None;
                    at += width;
                    continue;
                }
                EOI => return short,
                _ if code < table.len() => table[code].clone(),
                _ => match &prev {
                    Some(prev) if code == table.len() => [&prev[..], &prev[..1]].concat(),
                    _ => return Err(beyond(code, table.len(), at)),
                },
            };
            if let Some(prev) = prev.take()
                && table.len() < FULL
            {
                table.push([&prev[..], &string[..1]].concat());
            }
            out.extend_from_slice(&string);
            prev = Some(string);
            at += width;
        }
        out.truncate(want);
        Ok(out)
    }

    #[test]
    fn reads_what_weezl_writes() {
        let (mut scratch, mut noise) = (LzwScratch::new(), Noise(1));
        for kind in 0..6 {
            for len in SIZES {
                let data = samples(kind, len, &mut noise);
                let packed = Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap();
                let mut out = vec![0; len];
                assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Exact), "kind {kind}, {len} bytes");
                assert!(out == data, "kind {kind}, {len} bytes");
                let again = Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(&packed).unwrap();
                assert!(again == data);
            }
        }
    }

    #[test]
    fn reads_the_reversed_order_of_old_writers() {
        let (mut scratch, mut noise) = (LzwScratch::new(), Noise(2));
        for kind in 0..6 {
            for len in SIZES {
                let data = samples(kind, len, &mut noise);
                let packed = Encoder::new(BitOrder::Lsb, 8).encode(&data).unwrap();
                let mut out = vec![0; len];
                assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Exact), "kind {kind}, {len} bytes");
                assert!(out == data, "kind {kind}, {len} bytes");
            }
        }
    }

    #[test]
    fn cuts_surplus_and_counts_what_lacks() {
        let (mut scratch, mut noise) = (LzwScratch::new(), Noise(3));
        for kind in 0..6 {
            let data = samples(kind, 5000, &mut noise);
            let packed = Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap();
            for want in [0, 1, 2, 30, 72, 100, 4000, 4999] {
                let mut out = vec![0; want];
                assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Surplus));
                assert_eq!(out, data[..want]);
            }
            let mut out = vec![0; 5001];
            assert_eq!(decode(&packed, &mut out, &mut scratch), Err(LzwError::Short { got: 5000, want: 5001 }));
            let mut out = vec![0; 5000];
            let cut = &packed[..packed.len() / 2];
            let Err(LzwError::Short { got, want: 5000 }) = decode(cut, &mut out, &mut scratch) else {
                panic!("kind {kind}")
            };
            assert_eq!(out[..got], data[..got]);
        }
        assert_eq!(decode(&[], &mut [], &mut scratch), Ok(LzwEnd::Exact));
        assert_eq!(decode(&[], &mut [0], &mut scratch), Err(LzwError::Short { got: 0, want: 1 }));
    }

    /// Packs codes of the widths that a decoder expects, most significant bit first.
    fn pack(codes: &[usize]) -> Vec<u8> {
        let (mut bits, mut next, mut fresh) = (Vec::new(), FIRST, true);
        for &code in codes {
            let width = width_at::<Usual>(next);
            bits.extend((0..width).rev().map(|k| (code >> k & 1) as u8));
            if code == CLEAR {
                (next, fresh) = (FIRST, true);
            } else if !std::mem::take(&mut fresh) {
                next = (next + 1).min(FULL);
            }
        }
        bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |all, (k, bit)| all | bit << (7 - k))).collect()
    }

    #[test]
    fn tolerates_what_libtiff_tolerates() {
        let mut scratch = LzwScratch::new();
        let mut out = [0; 4];
        let many_clears = pack(&[CLEAR, CLEAR, CLEAR, 1, 2, CLEAR, CLEAR, 3, 4, CLEAR, EOI]);
        assert_eq!(decode(&many_clears, &mut out, &mut scratch), Ok(LzwEnd::Exact));
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(decode(&pack(&[CLEAR, 1, 258, 2]), &mut out, &mut scratch), Ok(LzwEnd::Exact));
        assert_eq!(out, [1, 1, 1, 2]);
        // An EOI of nine bits where ten are due: the last code has just made entry 510.
        let mut narrow = pack(&[&[CLEAR][..], &[7; 1], &(0..253).collect::<Vec<_>>()].concat());
        *narrow.last_mut().unwrap() |= 1;
        narrow.push(1);
        assert_eq!(decode(&narrow, &mut [0; 254], &mut scratch), Ok(LzwEnd::Exact));
        // A table full long before the Clear comes.
        let mut codes = vec![CLEAR];
        codes.extend((0..9000).map(|i| if i % 3 == 0 && i > 4000 { 4000 + i % 96 } else { i % 251 }));
        codes.extend([CLEAR, 9, EOI]);
        let packed = pack(&codes);
        let want = plain(&packed, 10_600).unwrap();
        let mut out = vec![0; want.len()];
        decode(&packed, &mut out, &mut scratch).unwrap();
        assert!(out == want);
    }

    #[test]
    fn rejects_codes_without_meaning() {
        let mut scratch = LzwScratch::new();
        let mut out = [0; 100];
        assert_eq!(decode(&pack(&[65, 66]), &mut out, &mut scratch), Err(LzwError::NoClear { code: 65 }));
        let first_is_no_byte = decode(&pack(&[CLEAR, 258]), &mut out, &mut scratch);
        assert_eq!(first_is_no_byte, Err(LzwError::BeyondTable { code: 258, entries: 258, offset: 1 }));
        let packed = pack(&[CLEAR, 1, 2, 3, 4, 5, 6, 7, 400, 8, 9, 10, 11, 12, 13, 14]);
        let beyond = decode(&packed, &mut out, &mut scratch);
        assert_eq!(beyond, Err(LzwError::BeyondTable { code: 400, entries: 264, offset: 9 }));
        assert_eq!(beyond.unwrap_err().to_string(), "byte 9: LZW code 400 is beyond the table (264 entries)");
    }

    #[test]
    fn agrees_with_the_plain_reading_on_damaged_streams() {
        let (mut scratch, mut noise) = (LzwScratch::new(), Noise(4));
        let mut packed = Vec::new();
        for kind in 0..6 {
            for len in [200, 3000, 9000] {
                let data = samples(kind, len, &mut noise);
                packed.push((len, Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap()));
                packed.push((len, Encoder::new(BitOrder::Lsb, 8).encode(&data).unwrap()));
            }
        }
        for round in 0..20_000 {
            let (len, stream) = &packed[noise.next() % packed.len()];
            let mut stream = stream.clone();
            for _ in 0..noise.next() % 4 {
                let at = noise.next() % stream.len();
                stream[at] = noise.next() as u8;
            }
            if round % 5 == 0 {
                stream.truncate(noise.next() % (stream.len() + 1));
            }
            let want = len + noise.next() % 3 - 1;
            let mut out = vec![0; want];
            let got = decode(&stream, &mut out, &mut scratch);
            match plain(&stream, want) {
                Ok(data) => {
                    assert!(got.is_ok(), "round {round}: {got:?}");
                    assert!(out == data, "round {round}");
                }
                Err(error) => assert_eq!(got, Err(error), "round {round}"),
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let (mut scratch, mut noise) = (LzwScratch::new(), Noise(5));
        for round in 0..200_000 {
            let mut src: Vec<u8> = (0..noise.next() % 120).map(|_| noise.next() as u8).collect();
            match round % 3 {
                0 if src.len() > 2 => src[..2].copy_from_slice(&[0x80, noise.0 as u8 & 0x3f]),
                1 if src.len() > 2 => src[..2].copy_from_slice(&[0, 1]),
                _ => {}
            }
            let mut out = vec![0; noise.next() % 400];
            let _ = decode(&src, &mut out, &mut scratch);
        }
    }
}
