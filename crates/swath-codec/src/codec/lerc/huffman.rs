//! Decodes lossless bytes: Huffman codes of values or of differences.
//!
//! Codes of frequent symbols are short, so a lookup of eleven bits usually decodes several at once. Differences are summed in a
//! second pass.

use swath_raster::memory::{OutOfMemory, zeroed};

use super::{
    bitstuff::{MAX_BLOCK, unpack},
    header::{Bytes, Header},
    mask::Mask,
};

/// Bits of a lookup.
const LOOKUP_BITS: u32 = 11;

/// The result of a lookup: up to four symbols, their number and their bits.
#[derive(Clone, Copy, Default)]
struct Lookup {
    symbols: [u8; 4],
    count: u8,
    bits: u8,
    /// Bits of the first symbol.
    first: u8,
}

struct Codes {
    lookups: Vec<Lookup>,
    /// Bits, code and symbol of codes longer than a lookup.
    long: Vec<(u32, u32, u8)>,
}

impl Codes {
    /// Makes room for the table.
    ///
    /// # Errors
    /// When the system has no memory for it.
    fn new() -> Result<Self, OutOfMemory> {
        let mut long = Vec::new();
        let bytes = (MAX_BLOCK * size_of::<(u32, u32, u8)>()) as u64;
        long.try_reserve_exact(MAX_BLOCK).map_err(|_| OutOfMemory { bytes })?;
        Ok(Self { lookups: zeroed(1 << LOOKUP_BITS)?, long })
    }

    /// Reads the code table, which precedes the codes.
    fn parse(mut self, bytes: &mut Bytes<'_>) -> Option<Self> {
        let (version, size, first, end) = (bytes.count()?, bytes.count()?, bytes.count()?, bytes.count()?);
        // Symbols first..end, modulo the size of the alphabet.
        let used = end.checked_sub(first)?;
        if version < 2 || size == 0 || size > MAX_BLOCK || used == 0 || used > size || end > 2 * size {
            return None;
        }
        let mut lengths = [0; MAX_BLOCK + 8];
        if unpack(bytes, used, &mut lengths)?.0 != used {
            return None;
        }
        let mut reader = Bits::new(bytes.0);
        let mut short = [(0, 0); 1 << LOOKUP_BITS];
        for (nth, &bits) in lengths.get(..used)?.iter().enumerate() {
            if bits == 0 {
                continue;
            }
            if bits > 32 {
                return None;
            }
            reader.fill();
            let code = reader.peek(bits);
            reader.skip(bits);
            let symbol = ((first + nth) % size) as u8;
            if bits > LOOKUP_BITS {
                self.long.push((bits, code, symbol));
            } else {
                let spare = LOOKUP_BITS - bits;
                short.get_mut((code << spare) as usize..((code + 1) << spare) as usize)?.fill((bits, symbol));
            }
        }
        bytes.take(reader.words_used()? * 4)?;
        for (index, lookup) in (0..1_u32 << LOOKUP_BITS).zip(&mut self.lookups) {
            let mut left = LOOKUP_BITS;
            for nth in 0..4 {
                let Some(&(bits, symbol)) =
                    short.get((index << (LOOKUP_BITS - left) & ((1 << LOOKUP_BITS) - 1)) as usize)
                else {
                    break;
                };
                if bits == 0 || bits > left {
                    break;
                }
                lookup.symbols[nth] = symbol;
                lookup.count += 1;
                left -= bits;
                if nth == 0 {
                    lookup.first = bits as u8;
                }
            }
            lookup.bits = (LOOKUP_BITS - left) as u8;
        }
        Some(self)
    }

    /// Decodes symbols into `out`.
    fn decode(&self, reader: &mut Bits<'_>, out: &mut [u8]) -> Option<()> {
        let lookups: &[Lookup; 1 << LOOKUP_BITS] = self.lookups.first_chunk()?;
        let mut at = 0;
        while let Some(room) = out.get_mut(at..).and_then(|out| out.first_chunk_mut::<8>()) {
            reader.fill();
            // The reader holds at least 32 bits, enough for two lookups.
            let first = lookups[reader.peek(LOOKUP_BITS) as usize];
            room[..4].copy_from_slice(&first.symbols);
            if first.count == 0 {
                room[0] = self.long_symbol(reader)?;
                at += 1;
                continue;
            }
            reader.skip(first.bits.into());
            let second = lookups[reader.peek(LOOKUP_BITS) as usize];
            // A second lookup without a symbol consumes no bits.
            let count = usize::from(first.count & 7);
            if let Some(room) = room.get_mut(count..count + 4) {
                room.copy_from_slice(&second.symbols);
            }
            reader.skip(second.bits.into());
            at += count + usize::from(second.count);
        }
        for out in out.get_mut(at..)? {
            reader.fill();
            *out = self.one_symbol(reader)?;
        }
        (!reader.is_past_end()).then_some(())
    }

    /// Decodes a single symbol.
    fn one_symbol(&self, reader: &mut Bits<'_>) -> Option<u8> {
        let lookup = self.lookups.get(reader.peek(LOOKUP_BITS) as usize)?;
        if lookup.count == 0 {
            return self.long_symbol(reader);
        }
        reader.skip(lookup.first.into());
        Some(lookup.symbols[0])
    }

    #[cold]
    #[inline(never)]
    fn long_symbol(&self, reader: &mut Bits<'_>) -> Option<u8> {
        let (bits, _, symbol) = self.long.iter().find(|(bits, code, _)| reader.peek(*bits) == *code)?;
        reader.skip(*bits);
        Some(*symbol)
    }
}

/// Reads bits from 32-bit words, the highest first, and zeros after the last word.
struct Bits<'a> {
    words: &'a [[u8; 4]],
    next: usize,
    bits: u64,
    len: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { words: bytes.as_chunks().0, next: 0, bits: 0, len: 0 }
    }

    /// Loads bits until at least 32 are available.
    #[inline(always)]
    fn fill(&mut self) {
        if self.len < 32 {
            let word = self.words.get(self.next).map_or(0, |word| u32::from_le_bytes(*word));
            self.bits |= u64::from(word) << (32 - self.len);
            self.next += 1;
            self.len += 32;
        }
    }

    #[inline(always)]
    fn peek(&self, bits: u32) -> u32 {
        (self.bits >> (64 - bits)) as u32
    }

    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.bits <<= bits;
        self.len -= bits;
    }

    fn is_past_end(&self) -> bool {
        self.words_used().is_none()
    }

    /// Returns the number of words that bits were consumed of; `None` if the data have fewer.
    fn words_used(&self) -> Option<usize> {
        let used = (self.next * 32 - self.len as usize).div_ceil(32);
        (used <= self.words.len()).then_some(used)
    }
}

/// Decodes all samples of a tile of bytes, stored as values or as differences from a neighbour. Returns `None` where the codes are
/// damaged.
///
/// # Errors
/// When the system has no memory for tables and symbols.
pub(super) fn decode(
    bytes: Bytes<'_>,
    header: &Header,
    mask: &Mask,
    differences: bool,
    signed: bool,
    dst: &mut [u8],
) -> Result<Option<()>, OutOfMemory> {
    let codes = Codes::new()?;
    // Number of symbols to buffer: those of a pixel, or of one sample in all pixels; 0 where they are decoded in place.
    let symbols = match (differences, mask) {
        (false, Mask::Some(_)) => header.depth,
        (true, Mask::All) if header.depth > 1 => header.pixels(),
        (true, Mask::Some(_)) => (0..header.pixels()).filter(|at| mask.has(*at)).count(),
        _ => 0,
    };
    Ok(decode_into(codes, zeroed(symbols)?, bytes, header, mask, differences, signed, dst))
}

#[expect(clippy::too_many_arguments, reason = "those of `decode`, and the memory it made")]
fn decode_into(
    codes: Codes,
    mut symbols: Vec<u8>,
    mut bytes: Bytes<'_>,
    header: &Header,
    mask: &Mask,
    differences: bool,
    signed: bool,
    dst: &mut [u8],
) -> Option<()> {
    let codes = codes.parse(&mut bytes)?;
    let mut reader = Bits::new(bytes.0);
    // Symbol 0 of signed bytes is -128.
    let base = if signed { 128 } else { 0 };
    let (depth, cols) = (header.depth, header.cols);
    if !differences {
        if *mask == Mask::All {
            codes.decode(&mut reader, dst)?;
            dst.iter_mut().for_each(|value| *value = value.wrapping_sub(base));
        } else {
            for (at, out) in dst.chunks_exact_mut(depth).enumerate() {
                if mask.has(at) {
                    codes.decode(&mut reader, &mut symbols)?;
                    out.iter_mut().zip(&symbols).for_each(|(out, symbol)| *out = symbol.wrapping_sub(base));
                }
            }
        }
        return Some(());
    }
    if *mask == Mask::All && depth == 1 {
        codes.decode(&mut reader, dst)?;
        sum_up(dst, cols, base);
        return Some(());
    }
    // All pixels of the first sample, then of the next.
    let pixels = header.rows * cols;
    for nth in 0..depth {
        codes.decode(&mut reader, &mut symbols)?;
        if *mask == Mask::All {
            sum_up(&mut symbols, cols, base);
            dst.iter_mut().skip(nth).step_by(depth).zip(&symbols).for_each(|(out, value)| *out = *value);
            continue;
        }
        let mut before = 0;
        let mut symbols = symbols.iter();
        for at in 0..pixels {
            if !mask.has(at) {
                continue;
            }
            // Difference from the pixel on the left, else from the one above, else from the last valid one.
            let left = at % cols > 0 && mask.has(at - 1);
            if !left && at >= cols && mask.has(at - cols) {
                before = *dst.get((at - cols) * depth + nth)?;
            }
            before = symbols.next()?.wrapping_sub(base).wrapping_add(before);
            *dst.get_mut(at * depth + nth)? = before;
        }
    }
    Some(())
}

/// Sums differences to values: along each row, and in the first column from row to row.
fn sum_up(values: &mut [u8], cols: usize, base: u8) {
    let mut above = 0;
    for row in values.chunks_mut(cols) {
        let mut before: u8 = above;
        for value in row.iter_mut() {
            before = before.wrapping_add(value.wrapping_sub(base));
            *value = before;
        }
        above = row.first().copied().unwrap_or(0);
    }
}
