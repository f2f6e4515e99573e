//! Decodes the kinds of LERC blob that GDAL writes directly into the tile.
//!
//! These are versions 3 to 6, with or without a mask: constant blobs, stored samples, and blocks of samples. A block stores its
//! minimum and integer steps of twice the tolerance above it, with as few bits as the block needs.

use std::ops::ControlFlow;

use swath_raster::{
    memory::{OutOfMemory, collect},
    simd::{HotLoop, widest},
};

use super::{
    Trouble,
    bitstuff::{MAX_BLOCK, MAX_SIDE, unpack},
    checksum::verify,
    header::{Bytes, Header},
    huffman,
    mask::{self, Mask},
    value::{Scale, Value},
};

/// Decodes one blob into `dst`, with zero for masked pixels. Returns `None` for a kind of blob that only lerc-rs supports; the
/// content of `dst` is then unspecified.
///
/// # Errors
/// When the blob is corrupt, or the system has no memory.
pub(super) fn decode(
    blob: &[u8],
    header: &Header,
    before: Option<&Mask>,
    dst: &mut [u8],
) -> Result<Option<Mask>, Trouble> {
    match header.kind {
        0 => typed::<i8>(blob, header, before, dst),
        1 => typed::<u8>(blob, header, before, dst),
        2 => typed::<i16>(blob, header, before, dst),
        3 => typed::<u16>(blob, header, before, dst),
        4 => typed::<i32>(blob, header, before, dst),
        5 => typed::<u32>(blob, header, before, dst),
        6 => typed::<f32>(blob, header, before, dst),
        7 => typed::<f64>(blob, header, before, dst),
        other => Err(format!("data type {other} is unknown").into()),
    }
}

fn typed<T: Value>(
    blob: &[u8],
    header: &Header,
    before: Option<&Mask>,
    dst: &mut [u8],
) -> Result<Option<Mask>, Trouble> {
    if header.version < 3 || header.side > MAX_SIDE || header.has_no_data {
        return Ok(None);
    }
    if dst.len() != header.pixels() * header.depth * T::SIZE {
        return Err("the blob differs from the tile in size".into());
    }
    verify(blob, header)?;
    let mut bytes = Bytes(blob.get(header.len..).unwrap_or_default());
    let cut_off = || "the blob is cut off".to_owned();
    let mask = mask::read(&mut bytes, header, before)?;
    if mask != Mask::All {
        dst.fill(0);
    }
    if header.valid == 0 {
        return Ok(Some(mask));
    }
    if header.z_min == header.z_max {
        constant(&values_of(header, T::from_f64(header.z_min))?, &mask, dst);
        return Ok(Some(mask));
    }
    let mut maxima = values_of(header, T::from_f64(header.z_max))?;
    if header.version >= 4 {
        let mut minima = values_of(header, T::from_f64(header.z_max))?;
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
    // Where Huffman codes are possible, a byte says whether the blob uses them.
    let bytes_exact = T::SIZE == 1 && header.max_error == 0.5;
    let floats_exact = T::IS_FLOAT && header.max_error == 0.0 && header.version >= 6;
    if bytes_exact || floats_exact {
        // 1: differences from neighbours. 2: plain values, since version 4. 3: floats split into bytes.
        match (bytes.u8().ok_or_else(cut_off)?, bytes_exact) {
            (0, _) => {}
            (mode @ (1 | 2), true) if mode == 1 || header.version >= 4 => {
                return match huffman::decode(bytes, header, &mask, mode == 1, T::IS_SIGNED, dst)? {
                    Some(()) => Ok(Some(mask)),
                    None => Err("the Huffman codes of the blob are damaged".into()),
                };
            }
            (3, false) => return Ok(None),
            (other, _) => return Err(format!("encoding {other} is not for this type and version").into()),
        }
    }
    let maxima = if header.version >= 4 && header.depth > 1 {
        collect(maxima.iter().map(|value| value.to_f64()))?
    } else {
        values_of(header, header.z_max)?
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
        ControlFlow::Break(Stop::Damaged(detail)) => Err(detail.into()),
    }
}

/// Returns `value` once for each value of a pixel.
fn values_of<T: Copy>(header: &Header, value: T) -> Result<Vec<T>, OutOfMemory> {
    collect((0..header.depth).map(|_| value))
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

/// Why decoding stopped before the last block.
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

impl<T: Value> HotLoop for Blocks<'_, T> {
    type Output = ControlFlow<Stop>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Header { rows, cols, depth, side, version, max_error, .. } = *self.header;
        let mut bytes = Bytes(self.src);
        // Room for a whole group of eight after the last value.
        let mut steps = [0_u32; MAX_BLOCK + 8];
        let damaged = |detail| ControlFlow::Break(Stop::Damaged(detail));
        for top in (0..rows).step_by(side) {
            let height = side.min(rows - top);
            for left in (0..cols).step_by(side) {
                let width = side.min(cols - left);
                for (nth, &z_max) in self.maxima.iter().enumerate() {
                    let area = Area { at: top * cols + left, cols, width, height, depth, nth };
                    let Some(flag) = bytes.u8() else { return damaged("the blob is cut off between blocks") };
                    // Bits of the column, by which a reader detects lost synchronisation.
                    let pattern = if version >= 5 { 14 } else { 15 };
                    if (flag >> 2) & pattern != (left >> 3) as u8 & pattern {
                        return damaged("a block names another column than its own");
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
                            // With a mask, the tile was cleared at the start.
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

/// Position of a block's values in the tile.
struct Area {
    /// Index of the first pixel.
    at: usize,
    cols: usize,
    width: usize,
    height: usize,
    depth: usize,
    /// Index of the value in the pixel.
    nth: usize,
}

impl Area {
    /// Calls `set` with each valid pixel of the block until it returns `None`.
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
        // A block with as many values as pixels ignores the mask.
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
