//! Checks Huffman-coded literals strictly by the format: each stream ends with the last bit of its last symbol.
//!
//! The library is not as strict. Its fast loops for four streams do not check where a stream ends, and its table of two
//! symbols a step accepts a last symbol whose code is cut off. So it decodes some damaged streams.

use super::anatomy::{self, COMPRESSED, TREELESS};

/// For each value of `bits` bits: the symbol, and the length of its code.
#[derive(Debug, Clone)]
struct Table {
    bits: u32,
    entries: Vec<(u8, u32)>,
}

/// Bits from the last to the first, followed by zeros.
struct Backward<'a> {
    bytes: &'a [u8],
    /// Bits left; negative when too many were read.
    left: i64,
}

impl<'a> Backward<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let last = *bytes.last()?;
        let marker = last.checked_ilog2()?;
        Some(Self { bytes, left: (bytes.len() as i64 - 1) * 8 + i64::from(marker) })
    }

    fn bit(&self, at: i64) -> u32 {
        usize::try_from(at).map_or(0, |at| u32::from(self.bytes[at / 8] >> (at % 8) & 1))
    }

    fn peek(&self, count: u32) -> u32 {
        (1..=i64::from(count)).fold(0, |number, back| number << 1 | self.bit(self.left - back))
    }

    fn take(&mut self, count: u32) -> u32 {
        let number = self.peek(count);
        self.left -= i64::from(count);
        number
    }
}

/// Bits from the first to the last, followed by zeros.
struct Forward<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Forward<'_> {
    fn peek(&self, count: usize) -> u32 {
        let bit = |at: usize| self.bytes.get(at / 8).map_or(0, |byte| u32::from(byte >> (at % 8) & 1));
        (0..count).rev().fold(0, |number, nth| number << 1 | bit(self.at + nth))
    }

    fn take(&mut self, count: usize) -> u32 {
        let number = self.peek(count);
        self.at += count;
        number
    }
}

/// The cells of each symbol, the log of the table size, and the length of the description.
fn counts(bytes: &[u8]) -> Option<(Vec<i32>, u32, usize)> {
    let mut bits = Forward { bytes, at: 0 };
    let log = bits.take(4) + 5;
    let (mut left, mut counts) = (1_i32 << log, Vec::new());
    while left > 0 {
        // Numbers up to `left + 1`; the lowest take a bit less.
        let most = (left + 1) as u32;
        let len = most.ilog2() + 1;
        let short = (1 << len) - 1 - most;
        let mut number = bits.peek(len as usize - 1);
        if number < short {
            bits.at += len as usize - 1;
        } else {
            number = bits.take(len as usize);
            if number >= 1 << (len - 1) {
                number -= short;
            }
        }
        let count = number as i32 - 1;
        left -= count.abs();
        counts.push(count);
        let mut zeros = if count == 0 { 3 } else { 0 };
        while zeros == 3 {
            zeros = bits.take(2) as usize;
            counts.extend(std::iter::repeat_n(0, zeros));
        }
        if counts.len() > 256 {
            return None;
        }
    }
    (left == 0 && bits.at.div_ceil(8) <= bytes.len()).then(|| (counts, log, bits.at.div_ceil(8)))
}

/// Weights coded by FSE, with two states in turn.
fn coded_weights(bytes: &[u8]) -> Option<Vec<u32>> {
    let (counts, log, used) = counts(bytes)?;
    let size = 1_usize << log;
    let (mut symbols, mut high) = (vec![0; size], size);
    for (symbol, count) in counts.iter().enumerate() {
        if *count == -1 {
            high -= 1;
            symbols[high] = symbol;
        }
    }
    let mut place = 0;
    for (symbol, count) in counts.iter().enumerate() {
        for _ in 0..*count {
            symbols[place] = symbol;
            place = (place + size / 2 + size / 8 + 3) & (size - 1);
            while place >= high {
                place = (place + size / 2 + size / 8 + 3) & (size - 1);
            }
        }
    }
    let mut next: Vec<usize> = counts.iter().map(|count| count.unsigned_abs() as usize).collect();
    let states: Vec<(u32, u32, usize)> = symbols
        .iter()
        .map(|symbol| {
            let number = next[*symbol];
            next[*symbol] += 1;
            let bits = log - number.ilog2();
            (*symbol as u32, bits, (number << bits) - size)
        })
        .collect();
    let mut bits = Backward::new(&bytes[used..])?;
    let mut state = [bits.take(log) as usize, bits.take(log) as usize];
    if bits.left < 0 {
        return None;
    }
    let mut weights = Vec::new();
    for turn in 0.. {
        let (symbol, count, base) = states[state[turn % 2]];
        weights.push(symbol);
        state[turn % 2] = base + bits.take(count) as usize;
        if bits.left < 0 {
            weights.push(states[state[(turn + 1) % 2]].0);
            break;
        }
        if weights.len() > 254 {
            return None;
        }
    }
    Some(weights)
}

/// The table of a tree and the length of its description.
fn table(bytes: &[u8]) -> Option<(Table, usize)> {
    let first = usize::from(*bytes.first()?);
    let (mut weights, used) = if first >= 128 {
        let count = first - 127;
        let packed = bytes.get(1..1 + count.div_ceil(2))?;
        let nibbles = packed.iter().flat_map(|byte| [u32::from(byte >> 4), u32::from(byte & 15)]);
        (nibbles.take(count).collect::<Vec<_>>(), 1 + count.div_ceil(2))
    } else {
        (coded_weights(bytes.get(1..1 + first)?)?, 1 + first)
    };
    if weights.iter().any(|weight| *weight > 12) {
        return None;
    }
    let share = |weight: u32| 1_u32 << weight >> 1;
    let sum: u32 = weights.iter().map(|weight| share(*weight)).sum();
    let bits = sum.checked_ilog2()? + 1;
    let rest = (1 << bits) - sum;
    if bits > 12 || !rest.is_power_of_two() {
        return None;
    }
    weights.push(rest.ilog2() + 1);
    let mut entries = Vec::new();
    for weight in 1..=bits {
        for (symbol, _) in weights.iter().enumerate().filter(|(_, own)| **own == weight) {
            entries.extend(std::iter::repeat_n((symbol as u8, bits + 1 - weight), share(weight) as usize));
        }
    }
    (entries.len() == 1 << bits).then_some((Table { bits, entries }, used))
}

/// Whether a stream has this many symbols and nothing else.
fn ends_well(table: &Table, bytes: &[u8], symbols: usize) -> bool {
    let Some(mut bits) = Backward::new(bytes) else { return false };
    for _ in 0..symbols {
        let (_, len) = table.entries[bits.peek(table.bits) as usize];
        bits.left -= i64::from(len);
        if bits.left < 0 {
            return false;
        }
    }
    bits.left == 0
}

fn literals_end_well(table: &Table, bytes: &[u8], streams: usize, len: usize) -> bool {
    if streams == 1 {
        return ends_well(table, bytes, len);
    }
    let Some((jumps, mut rest)) = bytes.split_at_checked(6) else { return false };
    let segment = len.div_ceil(4);
    for jump in jumps.as_chunks::<2>().0 {
        let Some((stream, after)) = rest.split_at_checked(u16::from_le_bytes(*jump).into()) else { return false };
        if !ends_well(table, stream, segment) {
            return false;
        }
        rest = after;
    }
    len.checked_sub(3 * segment).is_some_and(|len| ends_well(table, rest, len))
}

/// Whether some literals of a stream do not end with their last code, which the library may accept. `None` if a tree
/// cannot be read; the library refuses those.
pub(crate) fn leaves_bits(stream: &[u8]) -> Option<bool> {
    for frame in anatomy::frames(stream) {
        let mut tree = None;
        for block in frame.blocks.iter().filter(|block| block.kind == COMPRESSED) {
            let literals = anatomy::literals(stream, block)?;
            let mut body = &stream[literals.body.clone()];
            if literals.kind == COMPRESSED {
                let (table, used) = table(body)?;
                tree = Some(table);
                body = &body[used..];
            }
            if (literals.kind == COMPRESSED || literals.kind == TREELESS)
                && !literals_end_well(tree.as_ref()?, body, literals.streams, literals.len)
            {
                return Some(true);
            }
        }
    }
    Some(false)
}
