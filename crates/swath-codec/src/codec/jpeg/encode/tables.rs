//! Turns the fixed tables and a quality into what the loops look up and what the `JPEGTables` field says.

use super::standard::{BITS_8, BITS_12, QUANT, Set, Spec, ZIGZAG};

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

/// The Huffman tables of a component in the form its coefficients are written with.
#[derive(Debug, Clone)]
pub(super) struct Codes {
    /// By size category.
    pub dc: [Entry; 16],
    /// By run and size category.
    pub ac: [Entry; 256],
}

/// A code with as many zero bits after it as its size category has, above eight bits with the length of both together. One lookup and one OR then make
/// the whole of what a coefficient becomes.
pub(super) type Entry = u64;

impl Codes {
    /// Of 8-bit or 12-bit frames, luminance or chrominance.
    pub fn new(precision: u8, chroma: bool) -> Self {
        let (set, slot) = (set(precision), usize::from(chroma));
        let mut codes = Self { dc: [0; 16], ac: [0; 256] };
        assign(&set.dc[slot].counts, set.dc[slot].symbols.iter().copied(), &mut codes.dc);
        assign(&set.ac[slot].counts, ac_symbols(&set.ac[slot], set.largest), &mut codes.ac);
        codes
    }
}

/// Appends the DHT segments of luminance or chrominance, one for DC and one for AC.
pub(super) fn write_huffman(precision: u8, chroma: bool, dst: &mut Vec<u8>) {
    let (set, slot) = (set(precision), usize::from(chroma));
    let (dc, ac) = (&set.dc[slot], &set.ac[slot]);
    segment(slot as u8, &dc.counts, dc.symbols.to_vec(), dst);
    segment(0x10 | slot as u8, &ac.counts, ac_symbols(ac, set.largest).collect(), dst);
}

fn set(precision: u8) -> &'static Set {
    if precision > 8 { &BITS_12 } else { &BITS_8 }
}

fn segment(id: u8, counts: &[u8; 16], symbols: Vec<u8>, dst: &mut Vec<u8>) {
    dst.extend([0xFF, 0xC4]);
    dst.extend((symbols.len() as u16 + 19).to_be_bytes());
    dst.push(id);
    dst.extend(counts);
    dst.extend(symbols);
}

/// The listed symbols, then all the others that can occur.
fn ac_symbols(spec: &Spec, largest: u8) -> impl Iterator<Item = u8> {
    let listed = spec.symbols;
    let occurs = move |s: u8| matches!(s, 0x00 | 0xF0) || (1..=largest).contains(&(s & 15));
    listed.iter().copied().chain((0..=255).filter(move |s| occurs(*s) && !listed.contains(s)))
}

/// Codes count up, and double from one length to the next.
fn assign(counts: &[u8; 16], mut symbols: impl Iterator<Item = u8>, entries: &mut [Entry]) {
    let mut code = 0u64;
    for (length, &count) in (1u64..).zip(counts) {
        for symbol in symbols.by_ref().take(usize::from(count)) {
            let size = u64::from(symbol & 15);
            if let Some(entry) = entries.get_mut(usize::from(symbol)) {
                *entry = code << (size + 8) | (length + size);
            }
            code += 1;
        }
        code <<= 1;
    }
}
