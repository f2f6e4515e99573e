//! Huffman coding of quantised blocks: the part that no vector helps, so it looks only at coefficients that are not zero.

use super::fdct::{Group, LANES};
use super::layout::{Layout, MAX_COMPONENTS};
use super::tables::{Codes, Entry};
use crate::simd::Task;

/// Bytes collected before they are appended to the output.
const BUFFER: usize = 1 << 15;

/// More than an MCU can take: six blocks of 64 coefficients, none over 31 bits, every byte of which may need stuffing.
const MCU: usize = 6 * 64 * 8;

/// Coefficients of an MCU row, kept between tiles.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub coefs: [Vec<i16>; MAX_COMPONENTS],
    pub masks: [Vec<u64>; MAX_COMPONENTS],
    /// Coded data on its way out.
    buffer: Vec<u8>,
}

impl Blocks {
    /// Makes room for an MCU row of this layout.
    pub fn fit(&mut self, layout: &Layout) {
        self.buffer.resize(BUFFER, 0);
        for ((coefs, masks), part) in self.coefs.iter_mut().zip(&mut self.masks).zip(layout.parts()) {
            coefs.resize(part.band(), 0);
            masks.resize(part.band() / 64, 0);
        }
    }
}

/// What goes on from one MCU row to the next.
#[derive(Debug)]
pub(super) struct State {
    /// Bits not yet written, the last of them lowest.
    bits: u64,
    /// Room left in `bits`.
    free: u32,
    /// DC of each component's block before.
    before: [i32; MAX_COMPONENTS],
}

impl State {
    pub fn new() -> Self {
        Self { bits: 0, free: 64, before: [0; MAX_COMPONENTS] }
    }

    /// Appends the last bits, filled up with ones.
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

/// Writes the blocks of an MCU row.
pub(super) struct Write<'t> {
    pub layout: &'t Layout,
    pub mcu_row: usize,
    pub blocks: &'t mut Blocks,
    /// For luminance and chrominance.
    pub codes: [&'t Codes; 2],
    pub state: &'t mut State,
    pub dst: &'t mut Vec<u8>,
}

impl Task for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layout, mcu_row, blocks, codes, state, dst } = self;
        let Blocks { coefs, masks, buffer } = blocks;
        let mut to = Writer { bits: state.bits, free: state.free, buffer, at: 0 };
        for mcu in 0..layout.mcus {
            for (n, part) in layout.parts().iter().enumerate().take(MAX_COMPONENTS) {
                let codes = codes[usize::from(part.chroma)];
                let (groups, _) = coefs[n].as_chunks::<{ 64 * LANES }>();
                let (masks, _) = masks[n].as_chunks::<LANES>();
                let before = &mut state.before[n];
                for row in 0..part.down {
                    for x in mcu * part.across..(mcu + 1) * part.across {
                        let at = row * part.groups() + x / LANES;
                        let inside = x < part.blocks && mcu_row * part.down + row < part.block_rows;
                        match (groups.get(at), masks.get(at)) {
                            (Some(group), Some(masks)) if inside => {
                                block(&mut to, codes, group, x % LANES, masks[x % LANES], before)
                            }
                            // Blocks that only fill up the MCU repeat the DC before them, which costs the least.
                            _ => {
                                to.put(codes.dc[0], 0);
                                to.put(codes.ac[0], 0);
                            }
                        }
                    }
                }
            }
            if to.at > BUFFER - MCU {
                dst.extend_from_slice(to.buffer.get(..to.at).unwrap_or_default());
                to.at = 0;
            }
        }
        dst.extend_from_slice(to.buffer.get(..to.at).unwrap_or_default());
        (state.bits, state.free) = (to.bits, to.free);
    }
}

#[inline(always)]
fn block(to: &mut Writer, codes: &Codes, group: &Group<i16>, lane: usize, mask: u64, before: &mut i32) {
    let dc = i32::from(group[lane % LANES]);
    let difference = dc - *before;
    *before = dc;
    let (size, bits) = category(difference);
    to.put(codes.dc[size as usize % 16], bits);

    let mut mask = mask & !1;
    let mut last = 0;
    while mask != 0 {
        let place = mask.trailing_zeros();
        mask &= mask - 1;
        let mut run = place - last - 1;
        last = place;
        while run > 15 {
            to.put(codes.ac[0xF0], 0);
            run -= 16;
        }
        let (size, bits) = category(i32::from(group[place as usize % 64 * LANES + lane % LANES]));
        to.put(codes.ac[(run << 4 | size) as usize % 256], bits);
    }
    if last != 63 {
        to.put(codes.ac[0], 0);
    }
}

/// Size category of a value and the bits that tell it from others of that size: negative ones are counted from the lowest.
#[inline(always)]
fn category(value: i32) -> (u32, u64) {
    let sign = value >> 31;
    let size = 32 - ((value ^ sign) - sign).leading_zeros();
    let bits = (value + sign) as u32 & ((1 << size) - 1);
    (size, u64::from(bits))
}

struct Writer<'t> {
    bits: u64,
    free: u32,
    buffer: &'t mut [u8],
    at: usize,
}

impl Writer<'_> {
    /// Writes a code and the bits of its value.
    #[inline(always)]
    fn put(&mut self, entry: Entry, value: u64) {
        let code = entry >> 8 | value;
        let length = entry as u32 & 63;
        if length < self.free {
            self.free -= length;
            self.bits = self.bits << length | code;
        } else {
            let over = length - self.free;
            self.flush(self.bits << (self.free & 63) | code >> over);
            self.free = 64 - over;
            // What is above the low `over` bits has been written, and is shifted out before it could be again.
            self.bits = code;
        }
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
