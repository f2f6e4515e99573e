//! Encodes blocks of samples in the layout that [`super::fast`] reads.
//!
//! The choices are mostly those of Esri's library, so that blobs have the size of GDAL's. A block is all zero, or one value, or
//! steps above its minimum with as few bits as possible, or stored values. Lossless floats have no steps.

use bytemuck::Pod;
use lerc::{DataType, Sample};

use super::bitstuff::MAX_BLOCK;
use crate::{encode::reserve, error::CodecError};
use swath_raster::simd::{HotLoop, widest};

/// The default side of a block, and the alternative.
pub(super) const SIDES: [usize; 2] = [8, 16];

/// The values to encode, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks<'a, T> {
    pub(super) cols: usize,
    pub(super) rows: usize,
    /// Values per pixel.
    pub(super) depth: usize,
    pub(super) values: &'a [T],
    /// Mask of the valid pixels, the highest bit of a byte first.
    pub(super) mask: Option<&'a [u8]>,
    /// The tolerance: 0 for lossless floats, 0.5 for lossless integers.
    pub(super) max_error: f64,
    /// Whether a block of lossless integers may hold differences from the previous value of the pixel, which version 5 supports.
    pub(super) differences: bool,
}

impl<T: Sample + Pod> Blocks<'_, T> {
    /// Appends the blocks and returns the side that it chose; `None` if they are not shorter than `limit` bytes.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(super) fn write(&self, limit: usize, out: &mut Vec<u8>) -> Result<Option<usize>, CodecError> {
        let [usual, double] = SIDES;
        let start = out.len();
        reserve(out, limit + self.slack())?;
        if !widest(Writing { blocks: self, side: usual, limit, out }) {
            return Ok(None);
        }
        let len = out.len() - start;
        // Where the overhead per block dominates, larger blocks are shorter. Like Esri's library, this tries them only below one and
        // a half bits per value; above, they hardly ever pay.
        let worth_a_try = len * 16 < self.cols * self.rows * self.depth * 3 && (self.cols > usual || self.rows > usual);
        if worth_a_try {
            let mut other = Vec::new();
            reserve(&mut other, len + 1 + self.slack())?;
            if widest(Writing { blocks: self, side: double, limit: len + 1, out: &mut other }) {
                out.truncate(start);
                out.extend_from_slice(&other);
                return Ok(Some(double));
            }
        }
        Ok(Some(usual))
    }

    /// Bytes that the last block of every sample may reach beyond the limit before the blocks are given up.
    fn slack(&self) -> usize {
        let [_, side] = SIDES;
        let values = (self.cols * self.rows).min(side * side);
        self.depth * (values * T::BYTES + 16)
    }

    /// Collects the valid values of a block, and returns their number.
    #[inline(always)]
    fn gather(&self, area: &Area, nth: usize, into: &mut [T; MAX_BLOCK]) -> usize {
        let mut room = into.iter_mut();
        for row in area.top..area.top + area.height {
            let first = row * self.cols + area.left;
            let pixels = self.values.get(first * self.depth..(first + area.width) * self.depth).unwrap_or_default();
            match self.mask {
                None if self.depth == 1 => {
                    for (value, room) in pixels.iter().zip(room.by_ref()) {
                        *room = *value;
                    }
                }
                None => {
                    for (pixel, room) in pixels.chunks_exact(self.depth).zip(room.by_ref()) {
                        *room = pixel.get(nth).copied().unwrap_or_default();
                    }
                }
                Some(mask) => {
                    for (at, pixel) in (first..).zip(pixels.chunks_exact(self.depth)) {
                        if mask.get(at >> 3).is_some_and(|byte| byte << (at & 7) & 0x80 != 0)
                            && let (Some(room), Some(value)) = (room.next(), pixel.get(nth))
                        {
                            *room = *value;
                        }
                    }
                }
            }
        }
        MAX_BLOCK - room.len()
    }
}

/// Position and size of a block.
struct Area {
    top: usize,
    left: usize,
    width: usize,
    height: usize,
}

/// Writes all blocks. Returns `false`, with `out` unchanged, when they reach the limit.
struct Writing<'a, 'b, T> {
    blocks: &'a Blocks<'b, T>,
    side: usize,
    limit: usize,
    out: &'a mut Vec<u8>,
}

impl<T: Sample + Pod> HotLoop for Writing<'_, '_, T> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { blocks, side, limit, out } = self;
        let start = out.len();
        let mut code = BlockCode::new();
        let mut other = BlockCode::new();
        let (mut values, mut before) = ([T::default(); MAX_BLOCK], [T::default(); MAX_BLOCK]);
        for top in (0..blocks.rows).step_by(side) {
            let height = side.min(blocks.rows - top);
            for left in (0..blocks.cols).step_by(side) {
                let area = Area { top, left, width: side.min(blocks.cols - left), height };
                // Bits of the column, by which readers detect lost synchronisation; differences use one of them.
                let place = (left >> 3) as u8 & if blocks.differences { 14 } else { 15 };
                for nth in 0..blocks.depth {
                    let count = blocks.gather(&area, nth, &mut values);
                    let values = values.get(..count).unwrap_or_default();
                    code.values(values, blocks.max_error);
                    if blocks.differences && nth > 0 && code.differences(values, &before, &mut other) {
                        other.write::<T>(place << 2 | 4, &[], out);
                    } else {
                        code.write(place << 2, values, out);
                    }
                    if blocks.differences
                        && let Some(before) = before.get_mut(..count)
                    {
                        before.copy_from_slice(values);
                    }
                }
                if out.len() - start >= limit {
                    out.truncate(start);
                    return false;
                }
            }
        }
        true
    }
}

/// The encoding of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Zero,
    Constant,
    Raw,
    /// Steps of this many bits.
    Steps(u32),
    /// A table of the occurring steps, with this many bits each, and indices into it.
    Table(u32),
}

/// The best encoding of a block.
struct BlockCode {
    encoding: Encoding,
    len: usize,
    /// The minimum, and the type (with its number) that stores it.
    offset: f64,
    offset_type: (u8, DataType),
    steps: [u32; MAX_BLOCK],
    count: usize,
    /// The occurring steps, sorted, without zero, which always occurs.
    table: Vec<u32>,
    seen: Seen,
}

impl BlockCode {
    fn new() -> Self {
        Self {
            encoding: Encoding::Zero,
            len: 1,
            offset: 0.0,
            offset_type: (0, DataType::Byte),
            steps: [0; MAX_BLOCK],
            count: 0,
            table: Vec::new(),
            seen: Seen { marks: [(0, 0); SLOTS], mark: 0 },
        }
    }

    /// Chooses the encoding of these values.
    #[inline(always)]
    fn values<T: Sample>(&mut self, values: &[T], max_error: f64) {
        (self.encoding, self.len) = (Encoding::Zero, 1);
        let Some(first) = values.first() else { return };
        // Compares bits, because `==` does not distinguish the signs of zeros.
        let bits = first.to_bits_u64();
        let raw_len = 1 + size_of_val(values);
        if values.iter().all(|value| value.to_bits_u64() == bits) {
            if bits != 0 {
                self.constant(first.to_f64(), T::DATA_TYPE);
                self.no_longer_than(raw_len);
            }
            return;
        }
        (self.encoding, self.len) = (Encoding::Raw, raw_len);
        if max_error == 0.0 {
            return;
        }
        let (mut least, mut most) = (*first, *first);
        for value in values {
            least = if *value < least { *value } else { least };
            most = if *value > most { *value } else { most };
        }
        let scale = 1.0 / (2.0 * max_error);
        let largest = (most.to_f64() - least.to_f64()) * scale;
        if largest > most_steps(T::DATA_TYPE) {
            return;
        }
        if (largest + 0.5) < 1.0 {
            self.constant(least.to_f64(), T::DATA_TYPE);
            self.no_longer_than(raw_len);
            return;
        }
        if T::is_integer() && max_error == 0.5 {
            // For integers, the difference of the low bits is the whole difference if that fits.
            let mask = u32::MAX >> (32 - 8 * T::BYTES as u32);
            let least = least.to_bits_u64();
            for (step, value) in self.steps.iter_mut().zip(values) {
                *step = value.to_bits_u64().wrapping_sub(least) as u32 & mask;
            }
        } else {
            let least = least.to_f64();
            for (step, value) in self.steps.iter_mut().zip(values) {
                *step = ((value.to_f64() - least) * scale + 0.5) as u32;
            }
        }
        self.count = values.len();
        self.steps((largest + 0.5) as u32, least.to_f64(), T::DATA_TYPE);
        self.no_longer_than(raw_len);
    }

    /// Chooses the encoding of the differences from `before` in `other`; returns whether it is shorter.
    #[inline(always)]
    fn differences<T: Sample>(&self, values: &[T], before: &[T; MAX_BLOCK], other: &mut Self) -> bool {
        if self.len <= 1 {
            return false;
        }
        let between = |(value, before): (&T, &T)| value.to_f64() - before.to_f64();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for pair in values.iter().zip(before) {
            let difference = between(pair);
            least = least.min(difference);
            most = most.max(difference);
        }
        let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
        if !range.contains(&least) || !range.contains(&most) || most - least > most_steps(T::DATA_TYPE) {
            return false;
        }
        if least == most {
            (other.encoding, other.len) = (Encoding::Zero, 1);
            if least != 0.0 {
                other.constant(least, DataType::Int);
            }
            return other.len < self.len;
        }
        for (step, pair) in other.steps.iter_mut().zip(values.iter().zip(before)) {
            *step = (between(pair) - least) as u32;
        }
        other.count = values.len();
        other.steps((most - least) as u32, least, DataType::Int);
        other.len < self.len
    }

    #[inline(always)]
    fn constant(&mut self, value: f64, kind: DataType) {
        self.offset = value;
        self.offset_type = smallest(value, kind);
        (self.encoding, self.len) = (Encoding::Constant, 1 + self.offset_type.1.byte_len());
    }

    fn no_longer_than(&mut self, raw_len: usize) {
        if self.len >= raw_len {
            (self.encoding, self.len) = (Encoding::Raw, raw_len);
        }
    }

    /// Chooses between plain steps and a table of them.
    #[inline(always)]
    fn steps(&mut self, largest: u32, offset: f64, kind: DataType) {
        self.constant(offset, kind);
        let bits = (u32::BITS - largest.leading_zeros()) as usize;
        let count_len = if self.count < 256 { 1 } else { 2 };
        let plain = (self.count * bits).div_ceil(8);
        self.encoding = Encoding::Steps(bits as u32);
        self.len += 1 + count_len;
        let most = self.most_entries(bits, plain);
        let steps = self.steps.get(..self.count).unwrap_or_default();
        if most > 0 && self.seen.distinct(steps, most, &mut self.table) {
            self.table.sort_unstable();
            let places = usize::BITS - self.table.len().leading_zeros();
            self.encoding = Encoding::Table(bits as u32);
            self.len += 1 + (self.table.len() * bits).div_ceil(8) + (self.count * places as usize).div_ceil(8);
        } else {
            self.len += plain;
        }
    }

    /// Returns the most entries with which a table is shorter than `plain` bytes.
    #[inline(always)]
    fn most_entries(&self, bits: usize, plain: usize) -> usize {
        for places in (1..=8_usize).rev() {
            // The table's length takes a byte, and the table must save at least one.
            let Some(room) = plain.checked_sub(2 + (self.count * places).div_ceil(8)) else { continue };
            let entries = (room * 8 / bits.max(1)).min((1 << places) - 1).min(254);
            if entries >> (places - 1) != 0 {
                return entries;
            }
        }
        0
    }

    #[inline(always)]
    fn write<T: Sample + Pod>(&self, flag: u8, values: &[T], out: &mut Vec<u8>) {
        let (code, offset_type) = self.offset_type;
        match self.encoding {
            Encoding::Zero => out.push(flag | 2),
            Encoding::Raw => {
                out.push(flag);
                extend(values, out);
            }
            Encoding::Constant => {
                out.push(flag | 3 | code << 6);
                put_offset(self.offset, offset_type, out);
            }
            Encoding::Steps(bits) => {
                out.push(flag | 1 | code << 6);
                put_offset(self.offset, offset_type, out);
                self.head(bits as u8, out);
                stuff(self.steps.iter().take(self.count).copied(), bits, out);
            }
            Encoding::Table(bits) => {
                out.push(flag | 1 | code << 6);
                put_offset(self.offset, offset_type, out);
                self.head(bits as u8 | 32, out);
                out.push(self.table.len() as u8 + 1);
                stuff(self.table.iter().copied(), bits, out);
                // The index in the table, in which zero comes first.
                let places = self.steps.iter().take(self.count).map(|step| match self.table.binary_search(step) {
                    Ok(at) => at as u32 + 1,
                    Err(_) => 0,
                });
                stuff(places, usize::BITS - self.table.len().leading_zeros(), out);
            }
        }
    }

    /// Writes the bits per step and the number of steps.
    fn head(&self, bits: u8, out: &mut Vec<u8>) {
        match u8::try_from(self.count) {
            Ok(count) => out.extend_from_slice(&[bits | 2 << 6, count]),
            Err(_) => {
                out.push(bits | 1 << 6);
                out.extend_from_slice(&(self.count as u16).to_le_bytes());
            }
        }
    }
}

/// Appends values in little-endian byte order.
#[inline(always)]
pub(super) fn extend<T: Sample + Pod>(values: &[T], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(values));
    } else {
        values.iter().for_each(|value| value.extend_le_bytes(out));
    }
}

/// Appends numbers of `bits` bits each, the lowest bit first.
#[inline(always)]
fn stuff(numbers: impl Iterator<Item = u32>, bits: u32, out: &mut Vec<u8>) {
    // Through a buffer, because growing a vector word by word takes longer than packing the bits.
    let mut words = [0_u8; 4 * MAX_BLOCK];
    let mut room = words.as_chunks_mut::<4>().0.iter_mut();
    let (mut pending, mut held, mut len) = (0_u64, 0, 0);
    for number in numbers {
        pending |= u64::from(number) << held;
        held += bits;
        if held >= 32 {
            if let Some(word) = room.next() {
                *word = (pending as u32).to_le_bytes();
            }
            len += 4;
            pending >>= 32;
            held -= 32;
        }
    }
    out.extend_from_slice(words.get(..len).unwrap_or_default());
    let rest = (pending as u32).to_le_bytes();
    out.extend_from_slice(rest.get(..held.div_ceil(8) as usize).unwrap_or_default());
}

/// The largest step that Esri's library writes.
fn most_steps(kind: DataType) -> f64 {
    match kind {
        DataType::Char | DataType::Byte | DataType::Short | DataType::UShort => f64::from((1 << 15) - 1),
        _ => f64::from((1 << 30) - 1),
    }
}

/// Returns the smallest type that can store an offset exactly, with its number.
#[inline(always)]
fn smallest(value: f64, kind: DataType) -> (u8, DataType) {
    use DataType as D;
    let smaller: &[(u8, D)] = match kind {
        D::Char | D::Byte => &[],
        D::Short => &[(2, D::Char), (1, D::Byte)],
        D::UShort => &[(1, D::Byte)],
        D::Int => &[(3, D::Byte), (2, D::Short), (1, D::UShort)],
        D::UInt => &[(2, D::Byte), (1, D::UShort)],
        D::Float => &[(2, D::Byte), (1, D::Short)],
        D::Double => &[(3, D::Short), (2, D::Int), (1, D::Float)],
    };
    smaller.iter().copied().find(|(_, kind)| holds(value, *kind)).unwrap_or((0, kind))
}

/// Whether a type can represent a value bit for bit.
#[inline(always)]
fn holds(value: f64, kind: DataType) -> bool {
    let back = match kind {
        DataType::Char => f64::from(value as i8),
        DataType::Byte => f64::from(value as u8),
        DataType::Short => f64::from(value as i16),
        DataType::UShort => f64::from(value as u16),
        DataType::Int => f64::from(value as i32),
        DataType::UInt => f64::from(value as u32),
        DataType::Float => f64::from(value as f32),
        DataType::Double => value,
    };
    back.to_bits() == value.to_bits()
}

#[inline(always)]
fn put_offset(value: f64, kind: DataType, out: &mut Vec<u8>) {
    match kind {
        DataType::Char => out.extend_from_slice(&(value as i8).to_le_bytes()),
        DataType::Byte => out.push(value as u8),
        DataType::Short => out.extend_from_slice(&(value as i16).to_le_bytes()),
        DataType::UShort => out.extend_from_slice(&(value as u16).to_le_bytes()),
        DataType::Int => out.extend_from_slice(&(value as i32).to_le_bytes()),
        DataType::UInt => out.extend_from_slice(&(value as u32).to_le_bytes()),
        DataType::Float => out.extend_from_slice(&(value as f32).to_le_bytes()),
        DataType::Double => out.extend_from_slice(&value.to_le_bytes()),
    }
}

trait ByteLen {
    fn byte_len(self) -> usize;
}

impl ByteLen for DataType {
    fn byte_len(self) -> usize {
        match self {
            Self::Char | Self::Byte => 1,
            Self::Short | Self::UShort => 2,
            Self::Int | Self::UInt | Self::Float => 4,
            Self::Double => 8,
        }
    }
}

/// Slots of [`Seen`], twice as many as a block has values.
const SLOTS: usize = 2 * MAX_BLOCK;

/// A hash set of the steps of a block. Sorting each block to count them took five times as long as all the rest.
struct Seen {
    /// A step and the number of its block, so that slots need no clearing.
    marks: [(u32, u32); SLOTS],
    mark: u32,
}

impl Seen {
    /// Collects the distinct non-zero steps; returns `false` once there are more than `most`.
    #[inline(always)]
    fn distinct(&mut self, steps: &[u32], most: usize, into: &mut Vec<u32>) -> bool {
        into.clear();
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.marks.fill((0, 0));
            self.mark = 1;
        }
        for step in steps.iter().copied().filter(|step| *step != 0) {
            let mut at = (step.wrapping_mul(0x9e37_79b1) >> 23) as usize;
            // A free slot always exists: there are twice as many slots as values in a block.
            while let Some(slot) = self.marks.get_mut(at % SLOTS) {
                if slot.1 != self.mark {
                    if into.len() == most {
                        return false;
                    }
                    *slot = (step, self.mark);
                    into.push(step);
                    break;
                }
                if slot.0 == step {
                    break;
                }
                at += 1;
            }
        }
        true
    }
}
