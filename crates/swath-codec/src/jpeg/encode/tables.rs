//! Computes lookup tables and stream segments from the standard tables and a quality.

use super::standard::{BITS_8, BITS_12, QUANT, Spec};
use crate::jpeg::zigzag::ZIGZAG;

/// A quantisation table.
#[derive(Debug, Clone)]
pub(super) struct Quant {
    /// Divisors in scan order, as DQT has them.
    divisors: [u16; 64],
    /// One over eight times the divisor, by rows: the forward transform leaves its results eight times too large.
    pub reciprocals: [f32; 64],
}

impl Quant {
    /// The standard table scaled to a quality of 1 to 100 as IJG's library does, without its limit of 255: libtiff does not ask for that.
    pub fn new(chroma: bool, quality: u8) -> Self {
        let quality = u32::from(quality.clamp(1, 100));
        let percent = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
        let divisors = QUANT[usize::from(chroma)].map(|base| ((u32::from(base) * percent + 50) / 100).max(1) as u16);
        let mut reciprocals = [0.0; 64];
        for (&at, &divisor) in ZIGZAG.iter().zip(&divisors) {
            reciprocals[usize::from(at & 63)] = 1.0 / (8.0 * f32::from(divisor));
        }
        Self { divisors, reciprocals }
    }

    /// Whether DQT needs two bytes for a divisor, which baseline frames may not have.
    pub fn is_wide(&self) -> bool {
        self.divisors.iter().any(|&d| d > 255)
    }

    /// Appends a DQT segment.
    pub fn write(&self, slot: u8, dst: &mut Vec<u8>) {
        let wide = self.is_wide();
        dst.extend([0xFF, 0xDB, 0, if wide { 131 } else { 67 }, u8::from(wide) << 4 | slot]);
        for divisor in self.divisors {
            let [high, low] = divisor.to_be_bytes();
            if wide {
                dst.push(high);
            }
            dst.push(low);
        }
    }
}

/// A Huffman table as DHT has it: how many codes there are of each length, and the symbols from the shortest code on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub counts: [u8; 16],
    pub symbols: Vec<u8>,
}

impl Table {
    /// The fixed tables for DC and for AC, of luminance or chrominance.
    pub fn standard(precision: u8, chroma: bool) -> [Self; 2] {
        let (set, slot) = (if precision > 8 { &BITS_12 } else { &BITS_8 }, usize::from(chroma));
        let (dc, ac) = (&set.dc[slot], &set.ac[slot]);
        [
            Self { counts: dc.counts, symbols: dc.symbols.to_vec() },
            Self { counts: ac.counts, symbols: ac_symbols(ac, set.largest).collect() },
        ]
    }

    /// Appends a DHT segment.
    pub fn write(&self, id: u8, dst: &mut Vec<u8>) {
        dst.extend([0xFF, 0xC4]);
        dst.extend((self.symbols.len() as u16 + 19).to_be_bytes());
        dst.push(id);
        dst.extend(self.counts);
        dst.extend(&self.symbols);
    }
}

/// Appends the DHT segments of luminance or chrominance.
pub(super) fn write_huffman([dc, ac]: &[Table; 2], chroma: bool, dst: &mut Vec<u8>) {
    dc.write(u8::from(chroma), dst);
    ac.write(0x10 | u8::from(chroma), dst);
}

/// The listed symbols, then all the others that can occur.
fn ac_symbols(spec: &Spec, largest: u8) -> impl Iterator<Item = u8> {
    let listed = spec.symbols;
    let occurs = move |s: u8| matches!(s, 0x00 | 0xF0) || (1..=largest).contains(&(s & 15));
    listed.iter().copied().chain((0..=255).filter(move |s| occurs(*s) && !listed.contains(s)))
}

/// Where the symbols of DC tables begin, after those of the AC table.
pub(super) const DC: u32 = 256;
/// Where the symbols of chrominance begin, after those of luminance.
pub(super) const CHROMA: u32 = 512;

/// All Huffman codes of a scan in one table, so that one index names any symbol.
#[derive(Debug, Clone)]
pub(super) struct Codes {
    entries: [Entry; Self::COUNT],
}

/// A code with as many zero bits after it as its size category has, above eight bits with the length of both together. One lookup and one OR then make
/// the whole of what a coefficient becomes.
pub(super) type Entry = u64;

impl Codes {
    /// Places in the table.
    pub const COUNT: usize = 2 * CHROMA as usize;

    /// From the tables for DC and for AC of luminance, then chrominance.
    pub fn new<'t>(tables: impl IntoIterator<Item = &'t [Table; 2]>) -> Self {
        let mut codes = Self { entries: [0; Self::COUNT] };
        for (entries, [dc, ac]) in codes.entries.chunks_exact_mut(CHROMA as usize).zip(tables) {
            let (ac_entries, dc_entries) = entries.split_at_mut(DC as usize);
            assign(dc, dc_entries);
            assign(ac, ac_entries);
        }
        codes
    }

    #[inline(always)]
    pub fn entry(&self, place: u32) -> Entry {
        self.entries[place as usize % Self::COUNT]
    }
}

/// Codes count up, and double from one length to the next.
fn assign(table: &Table, entries: &mut [Entry]) {
    let mut symbols = table.symbols.iter();
    let mut code = 0u64;
    for (length, &count) in (1u64..).zip(&table.counts) {
        for &symbol in symbols.by_ref().take(usize::from(count)) {
            let size = u64::from(symbol & 15);
            if let Some(entry) = entries.get_mut(usize::from(symbol)) {
                *entry = code << (size + 8) | (length + size);
            }
            code += 1;
        }
        code <<= 1;
    }
}
