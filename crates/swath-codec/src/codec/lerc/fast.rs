//! The kinds of LERC blob that GDAL writes, decoded straight into the tile.
//!
//! Versions 3 to 6: constant blobs, samples in one sweep, and blocks of samples that are stored as whole steps of twice
//! the tolerated error above the block's minimum, in as few bits each as the block needs. With or without a mask.

use std::ops::ControlFlow;

use super::huffman;
use crate::simd::{Task, widest};

pub(super) const MAGIC: &[u8] = b"Lerc2 ";

/// The longest side of a block that is met: encoders use 8 and 16.
const MAX_SIDE: usize = 16;
pub(super) const MAX_BLOCK: usize = MAX_SIDE * MAX_SIDE;

/// What stands at the beginning of a blob, checked so far that sizes multiply without overflow.
#[derive(Debug, Clone)]
pub(super) struct Header {
    version: u32,
    checksum: u32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Values per pixel.
    pub(super) depth: usize,
    valid: usize,
    side: usize,
    pub(super) blob_len: usize,
    pub(super) kind: u32,
    /// Blobs that follow, where the version says.
    pub(super) more: usize,
    has_no_data: bool,
    max_error: f64,
    z_min: f64,
    z_max: f64,
    len: usize,
}

impl Header {
    pub(super) fn parse(blob: &[u8]) -> Result<Self, String> {
        let mut bytes = Bytes(blob);
        if bytes.take(6) != Some(MAGIC) {
            return Err("the tile does not begin with a LERC2 blob".into());
        }
        Self::rest(&mut bytes, blob.len()).ok_or_else(|| "the header of the blob is cut off or absurd".to_owned())
    }

    fn rest(bytes: &mut Bytes<'_>, blob_len: usize) -> Option<Self> {
        let version = bytes.u32()?;
        if !(2..=6).contains(&version) {
            return None;
        }
        let checksum = if version >= 3 { bytes.u32()? } else { 0 };
        let (rows, cols) = (bytes.count()?, bytes.count()?);
        let depth = if version >= 4 { bytes.count()? } else { 1 };
        let (valid, side, len, kind) = (bytes.count()?, bytes.count()?, bytes.count()?, bytes.u32()?);
        let more = if version >= 6 { bytes.count()? } else { 0 };
        let has_no_data = if version >= 6 { bytes.take(4)?.first() != Some(&0) } else { false };
        let (max_error, z_min, z_max) = (bytes.f64()?, bytes.f64()?, bytes.f64()?);
        if version >= 6 {
            bytes.take(16)?;
        }
        let pixels = rows.checked_mul(cols).filter(|pixels| *pixels <= i32::MAX as usize)?;
        pixels.checked_mul(depth)?.checked_mul(8)?;
        let head = blob_len - bytes.0.len();
        if rows == 0 || cols == 0 || depth == 0 || side == 0 || valid > pixels || len < head {
            return None;
        }
        Some(Self {
            version,
            checksum,
            rows,
            cols,
            depth,
            valid,
            side,
            blob_len: len,
            kind,
            more,
            has_no_data,
            max_error,
            z_min,
            z_max,
            len: head,
        })
    }

    fn pixels(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether the blob relies on the mask of the one before.
    pub(super) fn shares_mask(&self, blob: &[u8]) -> bool {
        self.valid != 0
            && self.valid != self.pixels()
            && blob.get(self.len..).and_then(|rest| rest.first_chunk()).is_none_or(|len| i32::from_le_bytes(*len) <= 0)
    }
}

/// Which pixels have values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mask {
    /// Every pixel.
    All,
    /// Those whose bit is set, the highest bit of a byte first.
    Some(Vec<u8>),
}

impl Mask {
    #[inline(always)]
    pub(super) fn has(&self, at: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(bits) => bits.get(at >> 3).is_some_and(|byte| byte >> (7 - (at & 7)) & 1 != 0),
        }
    }
}

/// Decodes one blob into `dst`, where pixels without values are left zero. `None` when the blob is of a kind for the
/// library; `dst` is then in no particular state.
pub(super) fn decode(
    blob: &[u8],
    header: &Header,
    before: Option<&Mask>,
    dst: &mut [u8],
) -> Result<Option<Mask>, String> {
    match header.kind {
        0 => typed::<i8>(blob, header, before, dst),
        1 => typed::<u8>(blob, header, before, dst),
        2 => typed::<i16>(blob, header, before, dst),
        3 => typed::<u16>(blob, header, before, dst),
        4 => typed::<i32>(blob, header, before, dst),
        5 => typed::<u32>(blob, header, before, dst),
        6 => typed::<f32>(blob, header, before, dst),
        7 => typed::<f64>(blob, header, before, dst),
        other => Err(format!("data type {other} is unknown")),
    }
}

fn typed<T: Value>(
    blob: &[u8],
    header: &Header,
    before: Option<&Mask>,
    dst: &mut [u8],
) -> Result<Option<Mask>, String> {
    if header.version < 3 || header.side > MAX_SIDE || header.has_no_data {
        return Ok(None);
    }
    if dst.len() != header.pixels() * header.depth * T::SIZE {
        return Err("the blob differs from the tile in size".into());
    }
    verify(blob, header)?;
    let mut bytes = Bytes(blob.get(header.len..).unwrap_or_default());
    let cut_off = || "the blob is cut off".to_owned();
    let mask = mask(&mut bytes, header, before)?;
    if mask != Mask::All {
        dst.fill(0);
    }
    if header.valid == 0 {
        return Ok(Some(mask));
    }
    if header.z_min == header.z_max {
        constant(&vec![T::from_f64(header.z_min); header.depth], &mask, dst);
        return Ok(Some(mask));
    }
    let mut maxima = vec![T::from_f64(header.z_max); header.depth];
    if header.version >= 4 {
        let mut minima = maxima.clone();
        for range in [&mut minima, &mut maxima] {
            for value in range.iter_mut() {
                *value = T::get(bytes.take(T::SIZE).ok_or_else(cut_off)?);
            }
        }
        if minima == maxima {
            constant(&minima, &mask, dst);
            return Ok(Some(mask));
        }
    }
    if bytes.u8().ok_or_else(cut_off)? != 0 {
        one_sweep::<T>(bytes.0, &mask, header.depth, dst).ok_or_else(cut_off)?;
        return Ok(Some(mask));
    }
    // Where Huffman codes are possible, a byte says whether they were used.
    let bytes_exact = T::SIZE == 1 && header.max_error == 0.5;
    let floats_exact = T::IS_FLOAT && header.max_error == 0.0 && header.version >= 6;
    if bytes_exact || floats_exact {
        // Differences to neighbours, values as they are (since version 4), and floats taken apart into bytes.
        match (bytes.u8().ok_or_else(cut_off)?, bytes_exact) {
            (0, _) => {}
            (mode @ (1 | 2), true) if mode == 1 || header.version >= 4 => {
                return match huffman::decode(bytes, header, &mask, mode == 1, T::IS_SIGNED, dst) {
                    Some(()) => Ok(Some(mask)),
                    None => Err("the Huffman codes of the blob are damaged".into()),
                };
            }
            (3, false) => return Ok(None),
            (other, _) => return Err(format!("encoding {other} is not for this type and version")),
        }
    }
    let maxima = if header.version >= 4 && header.depth > 1 {
        maxima.iter().map(|value| value.to_f64()).collect()
    } else {
        vec![header.z_max; header.depth]
    };
    match widest(Blocks::<T> {
        src: bytes.0,
        header,
        mask: &mask,
        maxima: &maxima,
        dst,
        kind: std::marker::PhantomData,
    }) {
        ControlFlow::Continue(()) => Ok(Some(mask)),
        ControlFlow::Break(Stop::Library) => Ok(None),
        ControlFlow::Break(Stop::Damaged(detail)) => Err(detail.to_owned()),
    }
}

fn mask(bytes: &mut Bytes<'_>, header: &Header, before: Option<&Mask>) -> Result<Mask, String> {
    let len = bytes.u32().ok_or("the blob is cut off before its mask")? as usize;
    let all = header.valid == header.pixels();
    if all || header.valid == 0 {
        if len != 0 {
            return Err("a mask, where all pixels are of one kind".into());
        }
        return Ok(if all { Mask::All } else { Mask::Some(vec![0; header.pixels().div_ceil(8)]) });
    }
    if len == 0 {
        return before.cloned().ok_or_else(|| "the mask is missing".to_owned());
    }
    let mut runs = Bytes(bytes.take(len).ok_or("the mask is cut off")?);
    let wanted = header.pixels().div_ceil(8);
    let mut bits = Vec::with_capacity(wanted.min(len.saturating_mul(1 << 14)));
    loop {
        // A positive count is of bytes that follow, a negative one of copies of the next byte; this one ends the mask.
        let count = runs.take(2).and_then(|pair| pair.first_chunk()).map(|pair| i16::from_le_bytes(*pair));
        let copied = match count {
            None => None,
            Some(i16::MIN) if bits.len() == wanted => return Ok(Mask::Some(bits)),
            Some(i16::MIN) => None,
            Some(count) if bits.len() + usize::from(count.unsigned_abs()) > wanted => None,
            Some(count) if count > 0 => runs.take(count as usize).map(|run| bits.extend_from_slice(run)),
            Some(count) => runs.u8().map(|byte| bits.resize(bits.len() + usize::from(count.unsigned_abs()), byte)),
        };
        copied.ok_or("the runs of the mask do not fit the tile")?;
    }
}

fn constant<T: Value>(pixel: &[T], mask: &Mask, dst: &mut [u8]) {
    for (at, out) in dst.chunks_exact_mut(T::SIZE * pixel.len()).enumerate() {
        if mask.has(at) {
            for (out, value) in out.chunks_exact_mut(T::SIZE).zip(pixel) {
                value.put(out);
            }
        }
    }
}

fn one_sweep<T: Value>(src: &[u8], mask: &Mask, depth: usize, dst: &mut [u8]) -> Option<()> {
    let size = T::SIZE * depth;
    match mask {
        Mask::All => {
            let src = src.get(..dst.len())?;
            for (out, value) in dst.chunks_exact_mut(T::SIZE).zip(src.chunks_exact(T::SIZE)) {
                T::get(value).put(out);
            }
        }
        Mask::Some(_) => {
            let mut pixels = src.chunks_exact(size);
            for (at, out) in dst.chunks_exact_mut(size).enumerate() {
                if mask.has(at) {
                    for (out, value) in out.chunks_exact_mut(T::SIZE).zip(pixels.next()?.chunks_exact(T::SIZE)) {
                        T::get(value).put(out);
                    }
                }
            }
        }
    }
    Some(())
}

/// Why blocks were not read to the end.
enum Stop {
    Library,
    Damaged(&'static str),
}

struct Blocks<'a, T> {
    src: &'a [u8],
    header: &'a Header,
    mask: &'a Mask,
    /// The largest value of each sample, which reconstruction must not exceed.
    maxima: &'a [f64],
    dst: &'a mut [u8],
    kind: std::marker::PhantomData<T>,
}

impl<T: Value> Task for Blocks<'_, T> {
    type Output = ControlFlow<Stop>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Header { rows, cols, depth, side, version, max_error, .. } = *self.header;
        let mut bytes = Bytes(self.src);
        // Room for a whole group of eight beyond the last value.
        let mut steps = [0_u32; MAX_BLOCK + 8];
        let damaged = |detail| ControlFlow::Break(Stop::Damaged(detail));
        for top in (0..rows).step_by(side) {
            let height = side.min(rows - top);
            for left in (0..cols).step_by(side) {
                let width = side.min(cols - left);
                for (nth, &z_max) in self.maxima.iter().enumerate() {
                    let area = Area { at: top * cols + left, cols, width, height, depth, nth };
                    let Some(flag) = bytes.u8() else { return damaged("the blob is cut off between blocks") };
                    // Bits of the column, so that a reader that lost its way is sure to notice.
                    let pattern = if version >= 5 { 14 } else { 15 };
                    if (flag >> 2) & pattern != (left >> 3) as u8 & pattern {
                        return damaged("a block is not where it should be");
                    }
                    if version >= 5 && flag & 4 != 0 {
                        return ControlFlow::Break(Stop::Library);
                    }
                    match flag & 3 {
                        0 => {
                            let Some(src) = raw::<T>(bytes.0, &area, self.mask, self.dst) else {
                                return damaged("the blob is cut off in a raw block");
                            };
                            bytes.0 = src;
                            continue;
                        }
                        2 => {
                            // Under a mask the tile was cleared to begin with.
                            if *self.mask == Mask::All {
                                area.fill(T::from_f64(0.0), self.mask, self.dst);
                            }
                            continue;
                        }
                        _ => {}
                    }
                    let Some(offset) = T::offset(&mut bytes, flag >> 6) else {
                        return damaged("the minimum of a block is cut off or of an unknown type");
                    };
                    if flag & 3 == 3 {
                        area.fill(T::from_f64(offset), self.mask, self.dst);
                        continue;
                    }
                    let Some((count, bits)) = unpack(&mut bytes, width * height, &mut steps) else {
                        return damaged("the steps of a block are damaged");
                    };
                    let scale = Scale::new::<T>(offset, 2.0 * max_error, z_max, bits);
                    if !area.put::<T>(&scale, &steps, count, self.mask, self.dst) {
                        return damaged("a block has fewer values than pixels");
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Where the values of a block go.
struct Area {
    /// Its first pixel.
    at: usize,
    cols: usize,
    width: usize,
    height: usize,
    depth: usize,
    /// Which of the values of a pixel.
    nth: usize,
}

impl Area {
    /// Calls `set` with each pixel of the block that the mask has, until it declines.
    #[inline(always)]
    fn each<T: Value>(&self, mask: &Mask, dst: &mut [u8], mut set: impl FnMut(&mut [u8]) -> Option<()>) -> Option<()> {
        for row in 0..self.height {
            let first = self.at + row * self.cols;
            for pixel in first..first + self.width {
                if mask.has(pixel) {
                    let at = (pixel * self.depth + self.nth) * T::SIZE;
                    set(dst.get_mut(at..at + T::SIZE)?)?;
                }
            }
        }
        Some(())
    }

    #[inline(always)]
    fn fill<T: Value>(&self, value: T, mask: &Mask, dst: &mut [u8]) {
        let _ = self.each::<T>(mask, dst, |out| {
            value.put(out);
            Some(())
        });
    }

    #[inline(always)]
    fn put<T: Value>(
        &self,
        scale: &Scale,
        steps: &[u32; MAX_BLOCK + 8],
        count: usize,
        mask: &Mask,
        dst: &mut [u8],
    ) -> bool {
        if count == self.width * self.height && self.depth == 1 {
            for (row, steps) in steps.chunks_exact(self.width).take(self.height).enumerate() {
                let at = (self.at + row * self.cols) * T::SIZE;
                let Some(out) = dst.get_mut(at..at + self.width * T::SIZE) else { return false };
                T::reconstruct(scale, steps, out);
            }
            return true;
        }
        // As many values as pixels are the pixels, whatever the mask says.
        let all = count == self.width * self.height;
        let mut steps = steps.iter().take(count);
        let mask = if all { &Mask::All } else { mask };
        self.each::<T>(mask, dst, |out| steps.next().map(|step| T::reconstruct(scale, &[*step], out))).is_some()
    }
}

#[inline(always)]
fn raw<'a, T: Value>(src: &'a [u8], area: &Area, mask: &Mask, dst: &mut [u8]) -> Option<&'a [u8]> {
    let mut bytes = Bytes(src);
    area.each::<T>(mask, dst, |out| bytes.take(T::SIZE).map(|value| T::get(value).put(out)))?;
    Some(bytes.0)
}

/// How steps become values.
struct Scale {
    offset: f64,
    step: f64,
    z_max: f64,
    /// Offset and maximum in integers, where all is integral and small, so that the result is the same.
    whole: Option<(i32, i32)>,
}

impl Scale {
    #[inline(always)]
    fn new<T: Value>(offset: f64, step: f64, z_max: f64, bits: u32) -> Self {
        let small = T::SIZE <= 2 && offset.abs() <= 65_536.0 && z_max.abs() <= 65_536.0 && bits <= 17;
        let whole = small && step == 1.0 && f64::from(z_max as i32) == z_max;
        Self { offset, step, z_max, whole: whole.then_some((offset as i32, z_max as i32)) }
    }

    #[inline(always)]
    fn value(&self, step: u32) -> f64 {
        // Steps have at most 31 bits; from signed integers the conversion is one instruction.
        let z = self.offset + f64::from(step as i32) * self.step;
        if self.z_max < z { self.z_max } else { z }
    }
}

/// Reads the steps of a block; how many there are, and how many bits they have at most.
#[inline(always)]
pub(super) fn unpack(bytes: &mut Bytes<'_>, most: usize, steps: &mut [u32; MAX_BLOCK + 8]) -> Option<(usize, u32)> {
    let head = bytes.u8()?;
    let bits = u32::from(head & 31);
    let count = match head >> 6 {
        0 => bytes.u32()? as usize,
        1 => usize::from(u16::from_le_bytes(*bytes.take(2)?.first_chunk()?)),
        2 => usize::from(bytes.u8()?),
        _ => return None,
    };
    if count > most || count > MAX_BLOCK {
        return None;
    }
    if head & 32 == 0 {
        if bits == 0 {
            steps.get_mut(..count)?.fill(0);
        } else {
            unstuff(bytes, count, bits, steps)?;
        }
        return Some((count, bits));
    }
    // A table of the values that occur, without the zero that always is one, and places in it.
    let entries = usize::from(bytes.u8()?).checked_sub(1)?;
    let mut table = [0_u32; MAX_BLOCK + 8];
    unstuff(bytes, entries, bits, &mut table)?;
    let index_bits = usize::BITS - entries.leading_zeros();
    unstuff(bytes, count, index_bits, steps)?;
    for step in steps.get_mut(..count)? {
        let place = *step as usize;
        if place > entries {
            return None;
        }
        *step = if place == 0 { 0 } else { *table.get(place - 1)? };
    }
    Some((count, bits))
}

/// Takes `count` numbers of `bits` bits each, the lowest bit first.
#[inline(always)]
fn unstuff(bytes: &mut Bytes<'_>, count: usize, bits: u32, out: &mut [u32; MAX_BLOCK + 8]) -> Option<()> {
    if count == 0 || bits == 0 || bits > 31 {
        return None;
    }
    let groups = count.div_ceil(8);
    // Eight numbers fill `bits` bytes; reading whole words looks up to eight bytes further.
    let reach = groups * bits as usize + 8;
    let all = bytes.0;
    let own = bytes.take((count * bits as usize).div_ceil(8))?;
    let out = out.as_chunks_mut::<8>().0.get_mut(..groups)?;
    match all.get(..reach) {
        Some(src) => groups_of_width(src, bits, out),
        None => last_groups(own, bits, out),
    }
    Some(())
}

/// Near the end of the blob, where there is nothing to look at further on.
#[cold]
#[inline(never)]
fn last_groups(own: &[u8], bits: u32, out: &mut [[u32; 8]]) {
    let mut copy = [0; MAX_BLOCK / 8 * 31 + 8];
    if let Some(copy) = copy.get_mut(..own.len()) {
        copy.copy_from_slice(own);
    }
    groups_of_width(&copy, bits, out);
}

#[inline(always)]
fn groups_of_width(src: &[u8], bits: u32, out: &mut [[u32; 8]]) {
    macro_rules! widths {
        ($($width:literal)*) => {
            match bits {
                $($width => groups_of::<$width>(src, out),)*
                _ => {}
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

/// With the width known when compiled, all shifts are too, and lanes of a vector can take them from one word.
#[inline(always)]
fn groups_of<const BITS: usize>(src: &[u8], out: &mut [[u32; 8]]) {
    let word = |src: &[u8], at: usize| {
        src.get(at..).and_then(|src| src.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let mask = (1_u64 << BITS) - 1;
    for (nth, out) in out.iter_mut().enumerate() {
        let Some(src) = src.get(nth * BITS..nth * BITS + BITS + 8) else { return };
        if 4 * BITS + 4 <= 64 {
            let (first, second) = (word(src, 0), word(src, BITS / 2) >> (BITS % 2 * 4));
            let (out_first, out_second) = out.split_at_mut(4);
            for (lane, out) in out_first.iter_mut().enumerate() {
                *out = (first >> (lane * BITS) & mask) as u32;
            }
            for (lane, out) in out_second.iter_mut().enumerate() {
                *out = (second >> (lane * BITS) & mask) as u32;
            }
        } else {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = (word(src, lane * BITS / 8) >> (lane * BITS % 8) & mask) as u32;
            }
        }
    }
}

/// A type that samples have.
trait Value: Copy + PartialEq {
    const SIZE: usize;
    const IS_FLOAT: bool;
    const IS_SIGNED: bool;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// From the byte order of blobs.
    fn get(bytes: &[u8]) -> Self;
    /// In the byte order of this machine.
    fn put(self, out: &mut [u8]);
    /// Reads the minimum of a block, which is stored in a smaller type where that holds it.
    fn offset(bytes: &mut Bytes<'_>, reduction: u8) -> Option<f64>;
    fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]);
}

macro_rules! value {
    ($type:ty, $float:literal, [$($smaller:ty),*], $reconstruct:item) => {
        impl Value for $type {
            const SIZE: usize = size_of::<$type>();
            const IS_FLOAT: bool = $float;
            const IS_SIGNED: bool = <$type>::MIN as f64 != 0.0;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0 as $type, |bytes| <$type>::from_le_bytes(*bytes))
            }

            #[inline(always)]
            fn put(self, out: &mut [u8]) {
                if let Some(out) = out.first_chunk_mut() {
                    *out = self.to_ne_bytes();
                }
            }

            #[inline(always)]
            fn offset(bytes: &mut Bytes<'_>, reduction: u8) -> Option<f64> {
                let mut nth = 0;
                $(
                    if reduction == nth {
                        return bytes.take(size_of::<$smaller>()).map(|bytes| <$smaller as Value>::get(bytes).to_f64());
                    }
                    nth += 1;
                )*
                let _ = nth;
                None
            }

            $reconstruct
        }
    };
}

/// Applies a conversion to steps, eight at a time: through an array of its own, so that the compiler sees that neither
/// side changes the other, and uses vectors.
macro_rules! convert {
    ($type:ty, $steps:ident, $out:ident, $value:expr) => {{
        let value = $value;
        let (eights, rest) = $steps.as_chunks::<8>();
        let whole = (eights.len() * 8).min($out.len() / size_of::<$type>());
        let (out, out_rest) = $out.as_chunks_mut().0.split_at_mut(whole);
        for (out, steps) in out.as_chunks_mut::<8>().0.iter_mut().zip(eights) {
            let mut values = [0 as $type; 8];
            for (value_of, step) in values.iter_mut().zip(steps) {
                *value_of = value(*step);
            }
            *out = values.map(<$type>::to_ne_bytes);
        }
        for (out, step) in out_rest.iter_mut().zip(rest) {
            *out = value(*step).to_ne_bytes();
        }
    }};
}

macro_rules! in_f64 {
    ($type:ty) => {
        #[inline(always)]
        fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]) {
            convert!($type, steps, out, |step| scale.value(step) as $type);
        }
    };
}

macro_rules! in_integers {
    ($type:ty) => {
        #[inline(always)]
        fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]) {
            let Some((offset, z_max)) = scale.whole else {
                convert!($type, steps, out, |step| scale.value(step) as $type);
                return;
            };
            let clamp = |z: i32| z.clamp(i32::from(<$type>::MIN), i32::from(<$type>::MAX));
            convert!($type, steps, out, |step| clamp((offset + step as i32).min(z_max)) as $type);
        }
    };
}

value!(i8, false, [i8, i8, i8, i8], in_integers!(i8););
value!(u8, false, [u8, u8, u8, u8], in_integers!(u8););
value!(i16, false, [i16, u8, i8], in_integers!(i16););
value!(u16, false, [u16, u8], in_integers!(u16););
value!(i32, false, [i32, u16, i16, u8], in_f64!(i32););
value!(u32, false, [u32, u16, u8], in_f64!(u32););
value!(f32, true, [f32, i16, u8], in_f64!(f32););
value!(f64, true, [f64, f32, i32, i16], in_f64!(f64););

/// Bytes that are consumed from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }

    /// A number that is signed in the format, and never negative in a sane file.
    pub(super) fn count(&mut self) -> Option<usize> {
        self.u32().filter(|count| *count <= i32::MAX as u32).map(|count| count as usize)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take(8)?.first_chunk().map(|word| f64::from_le_bytes(*word))
    }
}

/// Compares the checksum, which begins behind itself.
fn verify(blob: &[u8], header: &Header) -> Result<(), String> {
    let covered = blob.get(14..header.blob_len).unwrap_or_default();
    // The plain sum folds its carries a last time only, which for an odd length can leave one over: so in doubt it has
    // the last word.
    if widest(Fletcher(covered)) == header.checksum || lerc::checksum::fletcher32(covered) == header.checksum {
        return Ok(());
    }
    Err("the checksum of the blob is wrong".into())
}

/// Fletcher's checksum over 16-bit words, the high byte first.
struct Fletcher<'a>(&'a [u8]);

impl Task for Fletcher<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        // Every lane sums up its own words. With N words in rows of LANES, the sum of sums counts the word of row t and
        // lane l as often as there are words from it to the end, N - t * LANES - l, while the lane itself counts it
        // N / LANES - t times: that is LANES times too few, and l too many. No sum overflows within a chunk.
        const LANES: usize = 16;
        const ROWS: usize = 256;
        let (mut low, mut high) = (0xffff_u64, 0xffff_u64);
        let (rows, rest) = self.0.as_chunks::<{ 2 * LANES }>();
        for rows in rows.chunks(ROWS) {
            let (mut lows, mut highs) = ([0_u32; LANES], [0_u32; LANES]);
            for row in rows {
                for (lane, word) in row.as_chunks::<2>().0.iter().enumerate() {
                    lows[lane] += u32::from(u16::from_be_bytes(*word));
                    highs[lane] += lows[lane];
                }
            }
            high += low * (rows.len() * LANES) as u64;
            for (lane, (sum, sums)) in lows.iter().zip(highs).enumerate() {
                low += u64::from(*sum);
                high += u64::from(sums) * LANES as u64 - u64::from(*sum) * lane as u64;
            }
            low %= 0xffff;
            high %= 0xffff;
        }
        for word in rest.chunks(2) {
            let second = word.get(1).copied().unwrap_or(0);
            low += u64::from(word.first().copied().unwrap_or(0)) << 8 | u64::from(second);
            high += low;
        }
        // Sums that start at 0xffff never fold to zero.
        let fold = |sum: u64| match sum % 0xffff {
            0 => 0xffff,
            sum => sum as u32,
        };
        fold(high) << 16 | fold(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing;

    #[test]
    fn checksum_is_that_of_the_library_at_every_length() {
        let bytes = testing::ramp(20_000);
        for len in (0..300).chain([8191, 8192, 8193, 16_384, 20_000]) {
            assert_eq!(widest(Fletcher(&bytes[..len])), lerc::checksum::fletcher32(&bytes[..len]), "{len}");
        }
        assert_eq!(widest(Fletcher(&[0xff; 10_000])), lerc::checksum::fletcher32(&[0xff; 10_000]));
    }
}
