//! Bytes that LERC stores exactly: Huffman codes of the values or of their differences.
//!
//! Codes of near-by values are short, so that a look at eleven bits mostly shows several of them. They are decoded as
//! many at a time as are to be seen, and differences are summed up in a second pass.

use super::fast::{Bytes, Header, MAX_BLOCK, Mask, unpack};

const LOOK: u32 = 11;

/// Codes that begin with the same bits: up to four symbols, how many they are and how many bits they take.
#[derive(Clone, Copy, Default)]
struct Seen {
    symbols: [u8; 4],
    count: u8,
    bits: u8,
    /// Bits of the first of them.
    first: u8,
}

struct Codes {
    seen: Vec<Seen>,
    /// Bits, code and symbol of codes that are too long to be seen.
    long: Vec<(u32, u32, u8)>,
}

impl Codes {
    /// Reads the table of codes, which stands before them.
    fn parse(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (version, size, first, end) = (bytes.count()?, bytes.count()?, bytes.count()?, bytes.count()?);
        // Symbols first..end, counted around the end of the alphabet.
        let used = end.checked_sub(first)?;
        if version < 2 || size == 0 || size > MAX_BLOCK || used == 0 || used > size || end > 2 * size {
            return None;
        }
        let mut lengths = [0; MAX_BLOCK + 8];
        if unpack(bytes, used, &mut lengths)?.0 != used {
            return None;
        }
        let mut reader = Bits::new(bytes.0);
        let mut short = vec![(0, 0); 1 << LOOK];
        let mut long = Vec::new();
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
            if bits > LOOK {
                long.push((bits, code, symbol));
            } else {
                let spare = LOOK - bits;
                short.get_mut((code << spare) as usize..((code + 1) << spare) as usize)?.fill((bits, symbol));
            }
        }
        bytes.take(reader.words_used()? * 4)?;
        let seen = (0..1_u32 << LOOK)
            .map(|look| {
                let mut seen = Seen::default();
                let mut left = LOOK;
                for slot in 0..4 {
                    let Some(&(bits, symbol)) = short.get((look << (LOOK - left) & ((1 << LOOK) - 1)) as usize) else {
                        break;
                    };
                    if bits == 0 || bits > left {
                        break;
                    }
                    seen.symbols[slot] = symbol;
                    seen.count += 1;
                    left -= bits;
                    if slot == 0 {
                        seen.first = bits as u8;
                    }
                }
                seen.bits = (LOOK - left) as u8;
                seen
            })
            .collect();
        Some(Self { seen, long })
    }

    /// Fills `out` with symbols.
    fn decode(&self, reader: &mut Bits<'_>, out: &mut [u8]) -> Option<()> {
        let seen: &[Seen; 1 << LOOK] = self.seen.first_chunk()?;
        let mut at = 0;
        while let Some(room) = out.get_mut(at..).and_then(|out| out.first_chunk_mut::<8>()) {
            reader.fill();
            // At least 32 bits are at hand, which is two looks.
            let first = seen[reader.peek(LOOK) as usize];
            room[..4].copy_from_slice(&first.symbols);
            if first.count == 0 {
                room[0] = self.long_symbol(reader)?;
                at += 1;
                continue;
            }
            reader.skip(first.bits.into());
            let second = seen[reader.peek(LOOK) as usize];
            // A second look that shows nothing moves nothing.
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

    /// The next symbol alone.
    fn one_symbol(&self, reader: &mut Bits<'_>) -> Option<u8> {
        let seen = self.seen.get(reader.peek(LOOK) as usize)?;
        if seen.count == 0 {
            return self.long_symbol(reader);
        }
        reader.skip(seen.first.into());
        Some(seen.symbols[0])
    }

    #[cold]
    #[inline(never)]
    fn long_symbol(&self, reader: &mut Bits<'_>) -> Option<u8> {
        let (bits, _, symbol) = self.long.iter().find(|(bits, code, _)| reader.peek(*bits) == *code)?;
        reader.skip(*bits);
        Some(*symbol)
    }
}

/// Bits from 32-bit words, the highest first. Behind the last word come zeros.
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

    /// Makes sure of 32 bits.
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

    /// Words of which a bit was taken, unless that is more than there are.
    fn words_used(&self) -> Option<usize> {
        let used = (self.next * 32 - self.len as usize).div_ceil(32);
        (used <= self.words.len()).then_some(used)
    }
}

/// Decodes all samples of a tile of bytes, which are differences to the sample before or the samples themselves.
pub(super) fn decode(
    mut bytes: Bytes<'_>,
    header: &Header,
    mask: &Mask,
    differences: bool,
    signed: bool,
    dst: &mut [u8],
) -> Option<()> {
    let codes = Codes::parse(&mut bytes)?;
    let mut reader = Bits::new(bytes.0);
    // Symbols of signed bytes count from -128.
    let base = if signed { 128 } else { 0 };
    let (depth, cols) = (header.depth, header.cols);
    if !differences {
        if *mask == Mask::All {
            codes.decode(&mut reader, dst)?;
            dst.iter_mut().for_each(|value| *value = value.wrapping_sub(base));
        } else {
            let mut pixel = vec![0; depth];
            for (at, out) in dst.chunks_exact_mut(depth).enumerate() {
                if mask.has(at) {
                    codes.decode(&mut reader, &mut pixel)?;
                    out.iter_mut().zip(&pixel).for_each(|(out, symbol)| *out = symbol.wrapping_sub(base));
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
    // Sample by sample, each for all pixels.
    let pixels = header.rows * cols;
    let valid = (0..pixels).filter(|at| mask.has(*at)).count();
    let mut symbols = vec![0; valid];
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
            // From the pixel on the left, else from the one above, else from the last there was.
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

/// Differences to values: along the row, and from row to row in the first column.
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
