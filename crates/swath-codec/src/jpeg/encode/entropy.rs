//! Huffman codes quantised blocks. Vectors do not help here, so it visits only non-zero coefficients.

use super::layout::{Layout, MAX_COMPONENTS};
use super::tables::{CHROMA, Codes, DC};
use crate::jpeg::dct::{Group, LANES};
use swath_raster::{
    memory::{OutOfMemory, grow, resize},
    simd::HotLoop,
};

/// Bytes collected before they are appended to the output.
const BUFFER: usize = 1 << 15;

/// Most blocks in an MCU.
const MCU_BLOCKS: usize = 6;

/// More than an MCU can take: blocks of 64 coefficients, none over 31 bits, every byte of which may need stuffing.
const MCU: usize = MCU_BLOCKS * 64 * 8;

/// Coefficients of an MCU row, kept between tiles.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub coefs: [Vec<i16>; MAX_COMPONENTS],
    pub masks: [Vec<u64>; MAX_COMPONENTS],
}

impl Blocks {
    /// Makes room for an MCU row of this layout.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn fit(&mut self, layout: &Layout) -> Result<(), OutOfMemory> {
        for ((coefs, masks), component) in self.coefs.iter_mut().zip(&mut self.masks).zip(layout.components()) {
            resize(coefs, component.mcu_row_len())?;
            resize(masks, component.mcu_row_len() / 64)?;
        }
        Ok(())
    }
}

/// Where the symbols of the blocks go.
pub(super) trait Sink {
    /// Takes a symbol, given by its place in [`Codes`], and the bits that follow its code.
    fn put(&mut self, place: u32, bits: u32);
    /// Called after an MCU, so that room need not be made for every symbol.
    fn end_mcu(&mut self);
}

/// Converts the blocks of an MCU row to symbols. Takes and returns the sink by value, so that its fields stay in registers.
pub(super) struct Walk<'t, T> {
    pub layout: &'t Layout,
    pub mcu_row: usize,
    pub blocks: &'t Blocks,
    /// DC of each component's previous block.
    pub previous_dc: &'t mut [i32; MAX_COMPONENTS],
    pub to: T,
}

impl<T: Sink> HotLoop for Walk<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        let Self { layout, mcu_row, blocks, previous_dc, mut to } = self;
        let Blocks { coefs, masks } = blocks;
        for mcu in 0..layout.mcus {
            for (n, component) in layout.components().iter().enumerate().take(MAX_COMPONENTS) {
                let set = if component.chroma { CHROMA } else { 0 };
                let (groups, _) = coefs[n].as_chunks::<{ 64 * LANES }>();
                let (masks, _) = masks[n].as_chunks::<LANES>();
                let previous_dc = &mut previous_dc[n];
                for row in 0..component.down {
                    for x in mcu * component.across..(mcu + 1) * component.across {
                        let at = row * component.groups() + x / LANES;
                        let inside = x < component.blocks && mcu_row * component.down + row < component.block_rows;
                        match (groups.get(at), masks.get(at)) {
                            (Some(group), Some(masks)) if inside => {
                                block(&mut to, set, group, x % LANES, masks[x % LANES], previous_dc)
                            }
                            // Blocks that only fill up the MCU repeat the DC before them, which costs the least.
                            _ => {
                                to.put(set + DC, 0);
                                to.put(set, 0);
                            }
                        }
                    }
                }
            }
            to.end_mcu();
        }
        to
    }
}

#[inline(always)]
fn block(to: &mut impl Sink, set: u32, group: &Group<i16>, lane: usize, mask: u64, previous_dc: &mut i32) {
    let dc = i32::from(group[lane % LANES]);
    let difference = dc - *previous_dc;
    *previous_dc = dc;
    let (size, bits) = category(difference);
    to.put(set + DC + size, bits);

    let mut mask = mask & !1;
    let mut last = 0;
    while mask != 0 {
        let place = mask.trailing_zeros();
        mask &= mask - 1;
        let mut run = place - last - 1;
        last = place;
        while run > 15 {
            to.put(set + 0xF0, 0);
            run -= 16;
        }
        let (size, bits) = category(i32::from(group[place as usize % 64 * LANES + lane % LANES]));
        to.put(set + (run << 4 | size), bits);
    }
    if last != 63 {
        to.put(set, 0);
    }
}

/// Returns the size category of a value and its extra bits; negative values count from the lowest of the category.
#[inline(always)]
fn category(value: i32) -> (u32, u32) {
    let sign = value >> 31;
    let size = 32 - ((value ^ sign) - sign).leading_zeros();
    let bits = (value + sign) as u32 & ((1 << size) - 1);
    (size, bits)
}

/// Bits that do not make a whole word yet, which go on from one MCU row to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// The last of them lowest.
    bits: u64,
    /// Room left in `bits`.
    free: u32,
}

impl State {
    /// Bytes that [`State::finish`] may append: eight, each of which may need stuffing.
    pub const MOST: usize = 16;

    pub fn new() -> Self {
        Self { bits: 0, free: 64 }
    }

    /// Appends the last bits, filled up with ones: at most [`State::MOST`] bytes.
    pub fn finish(self, dst: &mut Vec<u8>) {
        let used = 64 - self.free;
        let filled = used.next_multiple_of(8);
        let bits = (self.bits << (filled - used)) | ((1 << (filled - used)) - 1);
        for byte in bits.to_be_bytes().into_iter().skip(8 - filled as usize / 8) {
            dst.push(byte);
            if byte == 0xFF {
                dst.push(0);
            }
        }
    }
}

/// Writes symbols with codes that are already known.
pub(super) struct Writer<'t> {
    bits: u64,
    free: u32,
    codes: &'t Codes,
    buffer: &'t mut [u8],
    at: usize,
    dst: &'t mut Vec<u8>,
    /// Whether the system had no memory for bytes of the output, which are then left out.
    lacks_memory: bool,
}

impl<'t> Writer<'t> {
    /// Continues where `state` ended; `buffer` is lent and returned for reuse.
    ///
    /// # Errors
    /// When the system has no memory for the buffer.
    pub fn new(
        state: State,
        codes: &'t Codes,
        buffer: &'t mut Vec<u8>,
        dst: &'t mut Vec<u8>,
    ) -> Result<Self, OutOfMemory> {
        grow(buffer, BUFFER)?;
        Ok(Self { bits: state.bits, free: state.free, codes, buffer, at: 0, dst, lacks_memory: false })
    }

    /// Appends all whole words to the output.
    ///
    /// # Errors
    /// When the system had no memory for the output.
    pub fn pause(mut self) -> Result<State, OutOfMemory> {
        self.drain();
        if self.lacks_memory {
            return Err(OutOfMemory { bytes: (self.dst.len() + BUFFER) as u64 });
        }
        Ok(State { bits: self.bits, free: self.free })
    }

    #[inline(always)]
    fn drain(&mut self) {
        let made = self.buffer.get(..self.at).unwrap_or_default();
        self.lacks_memory |= self.dst.try_reserve(made.len()).is_err();
        if !self.lacks_memory {
            self.dst.extend_from_slice(made);
        }
        self.at = 0;
    }

    #[inline(always)]
    fn flush(&mut self, word: u64) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let bytes = word.to_be_bytes();
        // Whether a byte is 0xFF: exact as to whether there is one.
        if (!word).wrapping_sub(ONES) & word & (ONES << 7) == 0 {
            if let Some(to) = self.buffer.get_mut(self.at..self.at + 8) {
                to.copy_from_slice(&bytes);
                self.at += 8;
            }
            return;
        }
        for byte in bytes {
            if let Some(to) = self.buffer.get_mut(self.at..self.at + 2) {
                to.copy_from_slice(&[byte, 0]);
                self.at += 1 + usize::from(byte == 0xFF);
            }
        }
    }
}

impl Sink for Writer<'_> {
    #[inline(always)]
    fn put(&mut self, place: u32, bits: u32) {
        let entry = self.codes.entry(place);
        let code = entry >> 8 | u64::from(bits);
        let length = entry as u32 & 63;
        if length < self.free {
            self.free -= length;
            self.bits = self.bits << length | code;
        } else {
            let over = length - self.free;
            self.flush(self.bits << (self.free & 63) | code >> over);
            self.free = 64 - over;
            // Bits above the low `over` have been written, and are shifted out before they could be written again.
            self.bits = code;
        }
    }

    #[inline(always)]
    fn end_mcu(&mut self) {
        if self.at > BUFFER - MCU {
            self.drain();
        }
    }
}

/// The symbols of a tile, stored until its codes are known: visiting the coefficients again, most of which are zero, would take longer.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// For each symbol, its place in the low [`PLACE_BITS`] bits, and above them the bits that follow its code. The list is longer than `used`, so
    /// that it need not be cleared again for every tile.
    list: Vec<u32>,
    used: usize,
}

const PLACE_BITS: u32 = Codes::COUNT.trailing_zeros();

impl Tokens {
    /// Clears the symbols of the previous tile.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns a collector for the symbols of an MCU row. A row never has more symbols than coefficients.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub fn row<'t>(&'t mut self, layout: &Layout, counts: &'t mut Counts) -> Result<Collector<'t>, OutOfMemory> {
        let most = layout.mcus * MCU_BLOCKS * 64;
        if self.list.len() < self.used + most {
            // Twice as much as before where that is more, so that a tile of many rows is not copied for each.
            let missing = self.used + most - self.list.len();
            let lacking = OutOfMemory { bytes: 4 * (self.used + most) as u64 };
            self.list.try_reserve(missing).map_err(|_| lacking)?;
            self.list.resize(self.used + most, 0);
        }
        Ok(Collector { list: self.list.get_mut(self.used..).unwrap_or_default(), at: 0, counts })
    }

    /// Keeps the `count` symbols that a [`Collector`] received.
    pub fn keep(&mut self, count: usize) {
        self.used += count;
    }

    pub fn used(&self) -> &[u32] {
        self.list.get(..self.used).unwrap_or_default()
    }
}

/// How often each symbol occurs, by its place in [`Codes`].
pub(super) type Counts = [u64; Codes::COUNT];

/// Counts symbols and stores them for later.
pub(super) struct Collector<'t> {
    list: &'t mut [u32],
    pub at: usize,
    counts: &'t mut Counts,
}

impl Sink for Collector<'_> {
    #[inline(always)]
    fn put(&mut self, place: u32, bits: u32) {
        self.counts[place as usize % Codes::COUNT] += 1;
        if let Some(to) = self.list.get_mut(self.at) {
            *to = bits << PLACE_BITS | place;
            self.at += 1;
        }
    }

    #[inline(always)]
    fn end_mcu(&mut self) {}
}

/// Writes stored symbols.
pub(super) struct Emit<'t> {
    pub tokens: &'t [u32],
    pub to: Writer<'t>,
}

impl<'t> HotLoop for Emit<'t> {
    type Output = Writer<'t>;

    #[inline(always)]
    fn run(self) -> Writer<'t> {
        let Self { tokens, mut to } = self;
        for tokens in tokens.chunks(MCU_BLOCKS * 64) {
            for &token in tokens {
                to.put(token % Codes::COUNT as u32, token >> PLACE_BITS);
            }
            to.end_mcu();
        }
        to
    }
}
