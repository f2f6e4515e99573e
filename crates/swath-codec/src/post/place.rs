//! From decoded bytes to samples at their place: one pass over each row.

use swath_tiff::{
    SampleFormat, Window,
    structure::{ByteOrder, Predictor},
};

use super::{
    predictor::{self, RowSums},
    unpack,
};
use crate::{
    host::Take,
    scratch::{Scratch, take},
    simd::{Task, widest},
    spec::TileSpec,
};

/// A decoded tile on its way.
pub enum Decoded<'a> {
    /// Whole samples in native order, pixel by pixel.
    Native(&'a [u8]),
    /// Bytes as they were stored; undoing a predictor spoils them.
    Stored(&'a mut [u8]),
}

/// Puts the part `inside` of a decoded tile into the rows of the output.
pub fn place(
    spec: &TileSpec,
    tile: Decoded<'_>,
    inside: Window,
    samples: &Take,
    out: &mut [&mut [u8]],
    scratch: &mut Scratch,
) {
    let mut row = take(&mut scratch.row, spec.native_row_len());
    widest(PlaceTile { spec, tile, inside, samples, out, row: &mut row });
    scratch.row = row;
}

/// Turns a tile that was decoded in place into native samples, in place.
pub fn fix_in_place(spec: &TileSpec, tile: &mut [u8], scratch: &mut Scratch) {
    // The lone bytes of packed YCbCr have no order, and no row length either unless a predictor needs one.
    if (spec.stored_is_native() || spec.packed_subsampling.is_some()) && spec.predictor == Predictor::None {
        return;
    }
    let mut row = take(&mut scratch.row, spec.stored_row_len());
    widest(FixTile { spec, tile, row: &mut row });
    scratch.row = row;
}

struct FixTile<'a> {
    spec: &'a TileSpec,
    tile: &'a mut [u8],
    row: &'a mut [u8],
}

impl Task for FixTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut sums = predictor::RowSums::new();
        for row in self.tile.chunks_exact_mut(self.row.len().max(1)) {
            // The copy stays in the first-level cache; undoing a predictor from there is as fast as in place.
            self.row.copy_from_slice(row);
            native_row(self.spec, self.row, row, &mut sums);
        }
    }
}

struct PlaceTile<'a, 'b> {
    spec: &'a TileSpec,
    tile: Decoded<'a>,
    inside: Window,
    samples: &'a Take,
    out: &'a mut [&'b mut [u8]],
    row: &'a mut [u8],
}

impl Task for PlaceTile<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { spec, tile, inside, samples, out, row } = self;
        let native_len = spec.native_row_len();
        let pixel = usize::from(spec.samples) * spec.sample.size();
        let columns = inside.x as usize * pixel..(inside.x as usize + inside.width as usize) * pixel;
        // Samples keep their order and their neighbours: a row can be made right where it belongs.
        let straight = match samples {
            Take::Bands(bands) => spec.samples == 1 && bands.len() == 1,
            Take::Pixels { samples, slot, step } => {
                *slot == 0 && *step == spec.samples && samples.iter().copied().eq(0..spec.samples)
            }
        };
        let whole_row = columns.len() == native_len;
        let (skip, count) = (inside.y as usize, inside.height as usize);
        let stored = match tile {
            Decoded::Stored(stored) if !(spec.stored_is_native() && spec.predictor == Predictor::None) => stored,
            Decoded::Stored(tile) => {
                return place_rows(spec, tile, native_len, inside, columns, straight, samples, out);
            }
            Decoded::Native(tile) => {
                return place_rows(spec, tile, native_len, inside, columns, straight, samples, out);
            }
        };
        let mut sums = RowSums::new();
        let rows = stored.chunks_exact_mut(spec.stored_row_len().max(1)).skip(skip).take(count);
        for (y, stored) in rows.enumerate() {
            if straight && whole_row {
                if let Some(target) = out.get_mut(y) {
                    native_row(spec, stored, target, &mut sums);
                }
                continue;
            }
            native_row(spec, stored, row, &mut sums);
            if let Some(source) = row.get(columns.clone()) {
                place_row(spec, source, y, count, straight, samples, out);
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn place_rows(
    spec: &TileSpec,
    tile: &[u8],
    row_len: usize,
    inside: Window,
    columns: std::ops::Range<usize>,
    straight: bool,
    samples: &Take,
    out: &mut [&mut [u8]],
) {
    let count = inside.height as usize;
    let rows = tile.chunks_exact(row_len.max(1)).skip(inside.y as usize).take(count);
    for (y, row) in rows.enumerate() {
        if let Some(source) = row.get(columns.clone()) {
            place_row(spec, source, y, count, straight, samples, out);
        }
    }
}

/// Puts one row of native pixels where its samples belong: row `y` of `height`.
#[inline(always)]
fn place_row(
    spec: &TileSpec,
    source: &[u8],
    y: usize,
    height: usize,
    straight: bool,
    samples: &Take,
    out: &mut [&mut [u8]],
) {
    let size = spec.sample.size();
    let pixel = usize::from(spec.samples) * size;
    if straight {
        if let Some(target) = out.get_mut(y)
            && target.len() == source.len()
        {
            target.copy_from_slice(source);
        }
        return;
    }
    match samples {
        Take::Bands(bands) => {
            for (slot, band) in bands.iter().enumerate() {
                if let Some(target) = out.get_mut(slot * height + y) {
                    gather(source, pixel, usize::from(*band) * size, target, size, size, 0);
                }
            }
        }
        Take::Pixels { samples, slot, step } => {
            for (position, band) in samples.iter().enumerate() {
                if let Some(target) = out.get_mut(y) {
                    let at = (usize::from(*slot) + position) * size;
                    gather(source, pixel, usize::from(*band) * size, target, usize::from(*step) * size, size, at);
                }
            }
        }
    }
}

/// Copies one sample of every pixel: `size` bytes at `from` in every `step` bytes of `source`, to `at` in every
/// `out_step` bytes of `target`.
#[inline(always)]
fn gather(source: &[u8], step: usize, from: usize, target: &mut [u8], out_step: usize, size: usize, at: usize) {
    match size {
        1 => gather_sized::<1>(source, step, from, target, out_step, at),
        2 => gather_sized::<2>(source, step, from, target, out_step, at),
        4 => gather_sized::<4>(source, step, from, target, out_step, at),
        8 => gather_sized::<8>(source, step, from, target, out_step, at),
        _ => gather_sized::<16>(source, step, from, target, out_step, at),
    }
}

#[inline(always)]
fn gather_sized<const SIZE: usize>(
    source: &[u8],
    step: usize,
    from: usize,
    target: &mut [u8],
    out_step: usize,
    at: usize,
) {
    // The common pixel sizes as constants let the compiler turn the loop into shuffles.
    if out_step == SIZE && at == 0 {
        let (targets, _) = target.as_chunks_mut::<SIZE>();
        return match step / SIZE {
            2 => pick::<SIZE, 2>(source, from / SIZE, targets),
            3 => pick::<SIZE, 3>(source, from / SIZE, targets),
            4 => pick::<SIZE, 4>(source, from / SIZE, targets),
            _ => {
                for (pixel, target) in source.chunks_exact(step).zip(targets) {
                    if let Some(sample) = pixel.get(from..).and_then(<[u8]>::first_chunk::<SIZE>) {
                        *target = *sample;
                    }
                }
            }
        };
    }
    for (pixel, target) in source.chunks_exact(step).zip(target.chunks_exact_mut(out_step)) {
        if let (Some(sample), Some(target)) =
            (pixel.get(from..).and_then(<[u8]>::first_chunk::<SIZE>), target.get_mut(at..at + SIZE))
        {
            target.copy_from_slice(sample);
        }
    }
}

#[inline(always)]
fn pick<const SIZE: usize, const SAMPLES: usize>(source: &[u8], which: usize, targets: &mut [[u8; SIZE]]) {
    let (samples, _) = source.as_chunks::<SIZE>();
    let (pixels, _) = samples.as_chunks::<SAMPLES>();
    // One copy of the loop per position: a constant offset is what makes it vectorise.
    match which {
        0 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[0]),
        1 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[1 % SAMPLES]),
        2 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[2 % SAMPLES]),
        _ => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[3 % SAMPLES]),
    }
}

/// Turns one stored row into native samples; `out` takes the whole row, `stored` is spoilt.
#[inline(always)]
fn native_row(spec: &TileSpec, stored: &mut [u8], out: &mut [u8], sums: &mut RowSums) {
    let swap = spec.order.is_foreign();
    let samples = usize::from(spec.samples);
    let bytes = usize::from(spec.bits / 8);
    match spec.predictor {
        Predictor::Horizontal => predictor::undo_horizontal(stored, out, samples, bytes, swap, sums),
        Predictor::FloatingPoint if spec.bits == 24 => {
            let mut narrow = vec![0; stored.len()];
            predictor::undo_float(stored, &mut narrow, samples, 3, sums);
            let native = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
            typed::<f32>(out, |out| unpack::unpack_f24(&narrow, out, native));
        }
        Predictor::FloatingPoint => predictor::undo_float(stored, out, samples, bytes, sums),
        Predictor::None => match (spec.bits, spec.format) {
            (24, SampleFormat::Float) => typed::<f32>(out, |out| unpack::unpack_f24(stored, out, spec.order)),
            // GDAL reads these against the byte order of the file, whichever it is, and so does everyone who checks with it.
            (24, _) => typed::<u32>(out, |out| unpack::unpack_u24(stored, out, spec.order.other())),
            (8 | 16 | 32 | 64 | 128, _) if swap => unpack::swap_copy(stored, out, spec.sample.word()),
            (8 | 16 | 32 | 64 | 128, _) => out.copy_from_slice(stored),
            (bits @ 1..=8, _) => unpack::unpack_u8(stored, out, bits.into()),
            (bits @ 9..=16, _) => typed::<u16>(out, |out| unpack::unpack_u16(stored, out, bits.into())),
            (bits, _) => typed::<u32>(out, |out| unpack::unpack_u32(stored, out, bits.into())),
        },
    }
}

/// Views a row as numbers. Only a caller's own buffer can be out of line; then the row takes a detour.
#[inline(always)]
fn typed<T: bytemuck::Pod>(out: &mut [u8], write: impl Fn(&mut [T])) {
    if let Ok(row) = bytemuck::try_cast_slice_mut(out) {
        return write(row);
    }
    let mut row = vec![T::zeroed(); out.len() / size_of::<T>()];
    write(&mut row);
    out.copy_from_slice(bytemuck::cast_slice(&row));
}
