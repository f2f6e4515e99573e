//! Huffman tables (ITU-T T.81 annexes C and F.2.2.3), built for one lookup per coefficient.

use std::sync::OnceLock;

use super::bits::Reader;
use super::error::{JpegError, boxed};

/// Index bits of the fast table.
pub(super) const FAST_BITS: u32 = 10;

/// Entries from this value on hold a whole coefficient, code and extra bits together: the value, in the top bits, is not 0.
pub(super) const WHOLE: u32 = 0x1_0000;

/// The same for pairs.
pub(super) const PAIR: u64 = 1 << 48;

/// A pair may only be looked up below this coefficient: its first run must not end the block, because the second code would then
/// belong to the next block.
pub(super) const PAIR_END: usize = 48;

/// Added to the coefficients passed at an end of block; more than any run can overshoot, to distinguish the two.
pub(super) const END: u64 = 128;

/// Which symbols a table codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Sizes of DC (or lossless) differences.
    Dc,
    /// Run and size of AC coefficients.
    Ac,
}

/// A decoding table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// By the next [`FAST_BITS`] bits. Bits 0-7: bits to drop. Bits 8-15: the symbol. Bits 16-31: the value of a whole
    /// coefficient, else 0. All 0: the code is longer than the index.
    pub fast: [u32; 1 << FAST_BITS],
    /// For AC tables, by the same index: up to two whole coefficients and an end of block at once. That is about half of all
    /// lookups in photographs, and saves the latency of a second lookup. Bits 0-7: bits to drop. Bits 8-15 and 16-23: positions
    /// of the first and second coefficient, counted from the current position; equal where there is only one. Bits 24-31:
    /// coefficients passed, plus [`END`] at the end of the block. Bits 48-63 and 32-47: the values of the first and second
    /// coefficient. An entry below [`PAIR`] holds no whole coefficient.
    pub pairs: [u64; 1 << FAST_BITS],
    /// One past the last code of each length, left-aligned in 16 bits.
    limit: [u32; 17],
    /// What to add to a code of each length for its index into `values`.
    base: [i32; 17],
    values: [u8; 256],
    counts: [u8; 16],
    class: Class,
    /// Largest symbol, for what only some processes allow.
    pub largest: u8,
    /// Built when a stream is first checked with this table; decoding does not use it.
    skips: OnceLock<Box<[SkipTable; 1]>>,
}

/// Index bits of [`SkipTable`].
pub(super) const SKIP_BITS: u32 = 11;

/// Tells how many codes a check can skip at once; the next [`SKIP_BITS`] bits are the index. It covers every code that ends within
/// these bits; the extra bits of the last may follow. Bits 0-7: bits to drop. Bits 8-15: coefficients passed, [`END`] more at the end of the
/// block. Bits 16-23: coefficients passed before the last code, which belongs to the block only if that many are left;
/// [`NO_SKIP`] where the index does not hold a code.
pub(super) type SkipTable = [u32; 1 << SKIP_BITS];

/// More coefficients than a block has.
pub(super) const NO_SKIP: u32 = 64;

impl Table {
    /// Builds a table; `None` where the counts do not form a prefix code, or a difference size is impossible.
    pub fn new(class: Class, counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        let mut table = Self {
            fast: [0; 1 << FAST_BITS],
            pairs: [0; 1 << FAST_BITS],
            limit: [0; 17],
            base: [0; 17],
            values: [0; 256],
            counts: *counts,
            class,
            skips: OnceLock::new(),
            largest: symbols.iter().copied().max().unwrap_or(0),
        };
        table.values.get_mut(..symbols.len())?.copy_from_slice(symbols);
        if class == Class::Dc && table.largest > 16 {
            return None;
        }
        let (mut code, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = usize::from(counts[length as usize - 1]);
            table.base[length as usize] = index as i32 - code as i32;
            for &symbol in symbols.get(index..index + count)? {
                if length <= FAST_BITS {
                    table.fill(class, code, length, symbol);
                }
                code += 1;
            }
            index += count;
            if code > 1 << length {
                return None;
            }
            table.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if class == Class::Ac {
            table.fill_pairs();
        }
        (index == symbols.len()).then_some(table)
    }

    /// Whether the given definition would build this table again.
    pub fn is(&self, counts: &[u8; 16], symbols: &[u8]) -> bool {
        self.counts == *counts && self.values.get(..symbols.len()) == Some(symbols)
    }

    /// Fills the entries of `fast` whose index begins with `code`.
    fn fill(&mut self, class: Class, code: u32, length: u32, symbol: u8) {
        let free = FAST_BITS - length;
        let size = match class {
            Class::Dc => u32::from(symbol),
            Class::Ac => u32::from(symbol & 15),
        };
        let whole = size > 0 && size <= free;
        let first = (code << free) as usize;
        let Some(entries) = self.fast.get_mut(first..first + (1 << free)) else { return };
        for (suffix, entry) in entries.iter_mut().enumerate() {
            *entry = if whole {
                let value = extend((suffix as u32) >> (free - size), size);
                (value as u32) << 16 | u32::from(symbol) << 8 | (length + size)
            } else {
                u32::from(symbol) << 8 | length
            };
        }
    }

    /// Fills `pairs` from `fast`: decodes the bits of each index as one or two whole coefficients and an end of block.
    fn fill_pairs(&mut self) {
        let value = |entry: u32| u64::from(entry >> 16);
        let run = |entry: u32| u64::from(entry >> 12 & 15);
        // The entry for the bits after the first `used`, where those left are enough for it.
        let after = |index: usize, used: u32| {
            let entry = self.fast[(index << used) & ((1 << FAST_BITS) - 1)];
            (entry != 0 && used + (entry & 63) <= FAST_BITS).then_some(entry)
        };
        let end_of_block = |entry: u32| entry < WHOLE && entry >> 8 == 0;
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            let first = self.fast[index];
            if first < WHOLE {
                continue;
            }
            let mut used = first & 63;
            let (mut second_at, mut second) = (run(first), value(first));
            let mut next = after(index, used);
            if let Some(entry) = next.filter(|&e| e >= WHOLE) {
                used += entry & 63;
                second_at += 1 + run(entry);
                second = value(entry);
                next = after(index, used);
            }
            let mut passed = second_at + 1;
            if let Some(end) = next.filter(|&e| end_of_block(e)) {
                used += end & 63;
                passed += END;
            }
            *pair =
                value(first) << 48 | second << 32 | passed << 24 | second_at << 16 | run(first) << 8 | u64::from(used);
        }
    }

    /// Returns the table for checks.
    pub fn skips(&self) -> Result<&SkipTable, JpegError> {
        let [skips] = match self.skips.get() {
            Some(skips) => &**skips,
            None => {
                let made = boxed(self.make_skips())?;
                &**self.skips.get_or_init(|| made)
            }
        };
        Ok(skips)
    }

    fn make_skips(&self) -> SkipTable {
        // One code: bits 0-7 its length, bits 8-15 its symbol; 0 where it is longer than the index.
        let mut codes = [0u16; 1 << SKIP_BITS];
        let (mut first, mut index) = (0usize, 0usize);
        for length in 1..=SKIP_BITS {
            let count = usize::from(self.counts[length as usize - 1]);
            let each = 1usize << (SKIP_BITS - length);
            for &symbol in self.values.get(index..index + count).unwrap_or_default() {
                if let Some(entries) = codes.get_mut(first..first + each) {
                    entries.fill(u16::from(symbol) << 8 | length as u16);
                }
                first += each;
            }
            index += count;
        }
        let mut skips = [NO_SKIP << 16; 1 << SKIP_BITS];
        for (index, skip) in skips.iter_mut().enumerate() {
            let (mut used, mut passed) = (0u32, 0u32);
            loop {
                let code = u32::from(codes[(index << used) & ((1 << SKIP_BITS) - 1)]);
                let (length, symbol) = (code & 255, code >> 8);
                if length == 0 || used + length > SKIP_BITS {
                    break;
                }
                let (run, size) = (symbol >> 4, symbol & 15);
                let (bits, more) = match self.class {
                    Class::Dc => (length + symbol, 0),
                    Class::Ac if size != 0 => (length + size, run + 1),
                    Class::Ac if run == 15 => (length, 16),
                    // An end of block whatever the run, as in the decoder.
                    Class::Ac => (length, END as u32),
                };
                // A run of sixteen zeros is a skip only together with the next code: at the end of a block it would look like a
                // coefficient past the block.
                if !(self.class == Class::Ac && size == 0 && run == 15) {
                    *skip = passed << 16 | (passed + more) << 8 | (used + bits);
                }
                (used, passed) = (used + bits, passed + more);
                if self.class == Class::Dc || passed >= END as u32 || passed >= 64 || used >= SKIP_BITS {
                    break;
                }
            }
        }
        skips
    }

    #[inline(always)]
    pub fn entry(&self, reader: &Reader<'_>) -> u32 {
        self.fast[(reader.buf >> (64 - FAST_BITS)) as usize]
    }

    /// Symbol and length of the code at the top of `buf`, which is longer than the fast index. An invalid code is symbol 0 of 17 bits, as in libjpeg.
    #[cold]
    #[inline(never)]
    pub fn slow(&self, buf: u64) -> (u8, u32) {
        let next = (buf >> 48) as u32;
        for length in FAST_BITS as usize + 1..=16 {
            if next < self.limit[length] {
                let code = (next >> (16 - length)) as i32;
                let index = code.wrapping_add(self.base[length]) & 255;
                return (self.values[index as usize], length as u32);
            }
        }
        (0, 17)
    }

    /// The next symbol where `entry` is not whole, dropped from the reader, which must hold 17 bits; sets `bad` on an invalid code.
    #[inline(always)]
    pub fn symbol(&self, entry: u32, reader: &mut Reader<'_>, bad: &mut bool) -> u32 {
        let (symbol, length) = if entry == 0 { self.slow(reader.buf) } else { ((entry >> 8) as u8, entry & 63) };
        *bad |= length > 16;
        reader.drop(length);
        u32::from(symbol)
    }

    /// The next run and size of an AC table, whatever form its entry has.
    #[inline(always)]
    pub fn run_size(&self, reader: &mut Reader<'_>, bad: &mut bool) -> (u32, u32) {
        let entry = self.entry(reader);
        let symbol = if entry >= WHOLE {
            let symbol = (entry >> 8) & 255;
            reader.drop((entry & 63) - (symbol & 15));
            symbol
        } else {
            self.symbol(entry, reader, bad)
        };
        (symbol >> 4, symbol & 15)
    }

    /// The next difference (F.2.2.1); the reader must hold 33 bits.
    #[inline(always)]
    pub fn difference(&self, reader: &mut Reader<'_>, bad: &mut bool) -> i32 {
        let entry = self.entry(reader);
        if entry >= WHOLE {
            reader.drop(entry);
            return (entry as i32) >> 16;
        }
        let size = self.symbol(entry, reader, bad);
        match size {
            0 => 0,
            // Lossless only (H.1.2.2): half the modulus, without extra bits.
            16 => 32768,
            _ => extend(reader.take(size), size),
        }
    }
}

/// Signed value of `size` extra bits, 1 to 15 (F.2.2.1, EXTEND).
#[inline(always)]
pub(super) fn extend(bits: u32, size: u32) -> i32 {
    let below = i32::from(bits >> (size - 1) == 0);
    bits as i32 - below * ((1 << size) - 1)
}
