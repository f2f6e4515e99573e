//! Decodes LZW streams, in the current bit order and in the reversed one of very old writers.
//!
//! The table stores no strings. Each string was written to the output once, so an entry is its position there. Entry `n` is the
//! string of one code plus the first byte of the next: it starts where that code's string starts, and its length is the distance
//! to the start of the next code's string, plus one. So a table of starts is enough. Short strings, nearly all of them in noisy
//! rasters, are also stored inline with their length in one `u64`: such a code costs one load and one eight-byte store, and no
//! branch depends on the data.

use std::{fmt, marker::PhantomData};
use swath_raster::{
    memory::{OutOfMemory, boxed},
    simd::{HotLoop, widest},
};

const CLEAR: usize = super::CLEAR as usize;
const EOI: usize = super::EOI as usize;
const FIRST: usize = super::FIRST as usize;
/// Entries of a full table; codes stay at twelve bits.
const FULL: usize = 4096;

// A short string as one word: its bytes from the low end up, then zeros, and its length in the top byte. So the word itself is
// the eight bytes to write, and appending a byte is one addition and one shift.
/// Adds one to the length.
const ONE: u64 = 1 << 56;
/// Bits that are zero in `word + ONE` for strings of up to six bytes. A string of seven also fits into its word but goes to the
/// slower loop, so that a group of short strings never creates a long one.
const NOT_SHORT: u64 = 0xf8 << 56;
/// The word of a string of eight bytes or more, plus its first byte; bytes two to seven are unspecified.
const LONG: u64 = 15 << 56;
/// The word of codes without a string: Clear, EOI, and codes not yet in the table.
const NONE: u64 = 0x7f << 56;

/// Bytes copied at once by the long copy. Up to twice as many bytes after the string are overwritten, and written again later.
const CHUNK: usize = 32;

/// Output room that a group of short strings needs: at most six strings, each written as eight bytes.
const WINDOW: usize = 72;

/// The string table, reused between tiles so that it is allocated once, on first use.
#[derive(Clone, Default)]
pub struct LzwScratch(Option<Box<[Table; 1]>>);

#[derive(Clone)]
struct Table {
    words: [u64; FULL],
    /// Start of each long string in the output since the last Clear; the next entry is the start of the string after it, which
    /// gives the length. Entries of short strings may be stale.
    starts: [u32; FULL + 8],
}

impl LzwScratch {
    /// Creates working memory without a table.
    #[must_use]
    pub fn new() -> Self {
        Self(None)
    }

    /// Returns the table of about 48 KiB.
    fn table(&mut self) -> Result<&mut Table, OutOfMemory> {
        let [table] = &mut **match &mut self.0 {
            Some(table) => table,
            made => made.insert(boxed(Table::new())?),
        };
        Ok(table)
    }
}

impl Table {
    /// Creates a table of all bytes.
    fn new() -> Self {
        let mut words = [NONE; FULL];
        for (byte, entry) in (0u64..).zip(&mut words[..CLEAR]) {
            *entry = literal(byte);
        }
        Self { words, starts: [0; FULL + 8] }
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
    /// With EOI or the end of the input right after the last byte of the output. Bytes after EOI are padding.
    Exact,
    /// The stream holds more bytes than the output; they were dropped.
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
    /// A code without a string.
    BeyondTable {
        /// The code.
        code: u16,
        /// Number of valid codes, including the 256 bytes, Clear and EOI.
        entries: u16,
        /// The byte of the stream in which the code begins.
        offset: usize,
    },
    /// EOI, or the end of the input, came before the output was full.
    Short {
        /// Bytes decoded.
        got: usize,
        /// Bytes of the output.
        want: usize,
    },
    /// The system has no memory for the string table.
    NoMemory {
        /// Bytes of the table.
        bytes: u64,
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
            Self::NoMemory { bytes } => write!(f, "there is no memory for the LZW table of {bytes} bytes"),
        }
    }
}

impl std::error::Error for LzwError {}

/// Decodes the LZW stream `src` into `dst`.
///
/// As lenient as libtiff: Clear codes may repeat, EOI may be missing, and a Clear may come late (codes stay at twelve bits and a
/// full table takes no entries). A stream must begin with Clear, as in current libtiff.
///
/// # Errors
///
/// [`LzwError`] where a code is invalid or `src` ends before `dst` is full. The content of `dst` is then unspecified.
pub fn decode(src: &[u8], dst: &mut [u8], scratch: &mut LzwScratch) -> Result<LzwEnd, LzwError> {
    // The test of libtiff's LZWPreDecode: a Clear code of nine bits, least significant bit first. In the usual order these bytes
    // would begin with code 0 or 1, which no valid stream does.
    let reversed = matches!(src, [0, second, ..] if second & 1 == 1);
    let table = scratch.table().map_err(|error| LzwError::NoMemory { bytes: error.bytes })?;
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

impl<O: Order> HotLoop for Decode<'_, O> {
    type Output = Result<LzwEnd, LzwError>;
    #[inline(always)]
    fn run(self) -> Self::Output {
        run::<O>(self.src, self.dst, self.table)
    }
}

/// The bit order of codes.
trait Order {
    /// 1 where codes widen one entry early ("early change"), as all but the oldest writers do.
    const EARLY: usize;
    /// Returns eight bytes of the stream without the first `skip < 8` bits.
    fn word(bytes: [u8; 8], skip: usize) -> u64;
    /// Removes the next code from `word` and returns it.
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

/// The state of decoding between two Clear codes.
#[derive(Clone, Copy)]
struct State {
    /// Bits consumed of the input.
    bit: usize,
    /// Bytes written since the Clear.
    len: usize,
    /// The entry that the next code completes.
    next: usize,
    /// Word of the last string, after `as_prev`.
    prev: u64,
}

#[inline(always)]
fn literal(byte: u64) -> u64 {
    ONE | byte
}

/// Returns the length of a short string.
#[inline(always)]
fn len_of(word: u64) -> usize {
    (word >> 56) as usize
}

/// Returns the word of the string `prev` extended by the first byte of the string `then`.
#[inline(always)]
fn extend(prev: u64, then: u64) -> u64 {
    // Byte six of `prev` is zero (see `as_prev`), so this is eight times its length.
    let end = (prev >> 53) & 63;
    (prev + ONE) | (then & 0xff) << end
}

/// Returns `word` in the form that `extend` takes as `prev`. From seven bytes on, the extended word must be `LONG`; a top byte of
/// fourteen makes `extend` place the new byte where it has no effect.
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

/// Returns the code of `width` bits at `bit`; `None` where the input ends within it.
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
    // Each iteration decodes the codes between two Clears into the rest of `dst`. Positions since a Clear fit into 32 bits: a table
    // is full after at most eight megabytes, and a full table stores no positions.
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
    /// A string ended exactly at the end of the output.
    Full,
    /// A string exceeded the end of the output.
    Cut,
    /// No more codes.
    Short,
}

#[cold]
fn beyond(code: usize, entries: usize, bit: usize) -> LzwError {
    LzwError::BeyondTable { code: code as u16, entries: entries as u16, offset: bit / 8 }
}

/// Decodes groups of `G` codes, each from one word, while codes are `W` bits wide, there is room to spare, and no code needs the
/// careful path. `7 + G * W <= 64`.
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

/// Decodes a group whose strings are all short; returns `None` without any effect for other groups.
#[inline(always)]
fn short_group<const W: u32, const G: usize>(
    codes: [usize; G],
    dst: &mut [u8],
    table: &mut Table,
    state: State,
) -> Option<State> {
    let State { bit, len, next, mut prev } = state;
    let words = codes.map(|code| table.words[code]);
    // An entry that this group itself adds still reads NONE here, so the test detects it.
    if words.iter().fold(0, |all, word| all | (word + ONE)) & NOT_SHORT != 0 {
        return None;
    }
    let window = dst.get_mut(len..)?.first_chunk_mut::<WINDOW>()?;
    let made = table.words.get_mut(next..)?.first_chunk_mut::<G>()?;
    let mut at = 0;
    for (word, made) in words.into_iter().zip(made) {
        // The mask has no effect (at most six strings of six bytes) but removes a bounds check.
        let from = at & 63;
        window[from..from + 8].copy_from_slice(&word.to_le_bytes());
        *made = extend(prev, word);
        at += len_of(word);
        prev = word;
    }
    Some(State { bit: bit + G * W as usize, len: len + at, next: next + G, prev })
}

/// Decodes a group code by code; returns `false` before a code that needs the careful path, with the codes before it decoded.
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

/// Copies the string of `n` bytes at `from` to `to`; returns `false` without any effect where there is no room for the overshoot.
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
    // Only a string that the current code completes overlaps its copy, and only by its last byte.
    if from + n > to {
        dst[to + n - 1] = dst[to];
    }
    true
}

/// Decodes one code with every check; returns `Some` when the loop must end.
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
        // All but the last byte, which may be the first byte of the copy.
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

/// Returns how the stream ends after a full output.
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
            // Old libtiff did not count the entry that the last code adds, so its EOI may be one bit too narrow.
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
mod tests;
