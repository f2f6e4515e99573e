//! Converts decoded bytes to native samples and copies them to the output.
//!
//! Every loop is its own small task: with all of them inlined into one function, the compiler stops vectorising.

use swath_raster::{
    memory::{OutOfMemory, zeroed},
    simd::{HotLoop, widest},
};
use swath_tiff::{
    SampleFormat, Window,
    structure::{ByteOrder, Predictor},
};

use super::unpack;
use crate::{
    error::CodecError,
    predictor::decode::{self as predictor, RowLayout},
    scratch::Scratch,
    spec::TileSpec,
};

/// Which samples of a tile to copy, and their layout in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// These samples, each to separate rows.
    Bands(Vec<u16>),
    /// These samples, interleaved from position `first` on in output pixels of `stride` samples.
    Pixels {
        /// Samples of the tile, in output order.
        samples: Vec<u16>,
        /// Position of the first in the output pixel.
        first: u16,
        /// Samples of an output pixel.
        stride: u16,
    },
}

/// A decoded tile.
pub enum Decoded<'a> {
    /// Whole samples in native byte order, interleaved by pixel.
    Native(&'a [u8]),
    /// Bytes in stored form; the conversion overwrites them.
    Stored(&'a mut [u8]),
}

/// Copies the part `inside` of a decoded tile to the rows of the output.
///
/// # Errors
/// When the system has no memory for the conversion.
pub fn place(
    spec: &TileSpec,
    tile: Decoded<'_>,
    inside: Window,
    samples: &Take,
    out: &mut [&mut [u8]],
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let native_len = spec.native_row_len();
    let rows = inside.y as usize..inside.y as usize + inside.height as usize;
    let native = match tile {
        Decoded::Native(tile) => tile.get(rows.start * native_len..rows.end * native_len),
        Decoded::Stored(tile) => {
            let stored_len = spec.stored_row_len();
            let Some(stored) = tile.get_mut(rows.start * stored_len..rows.end * stored_len) else { return Ok(()) };
            if spec.stored_is_native() && spec.predictor == Predictor::None {
                Some(&*stored)
            } else if is_straight(spec, samples) && inside.x == 0 {
                // Samples keep their order and neighbours, so rows are converted directly into the output.
                return Ok(make_rows(spec, stored, out.iter_mut().map(|row| &mut **row))?);
            } else if makes_in_place(spec) {
                make_in_place(spec, stored);
                Some(&*stored)
            } else {
                let len = inside.height as usize * native_len;
                let native = scratch.native.room(len).ok_or(CodecError::NoMemory(len as u64))?;
                make_rows(spec, stored, native.chunks_exact_mut(native_len.max(1)))?;
                place_rows(spec, native, inside, samples, out);
                return Ok(());
            }
        }
    };
    place_rows(spec, native.unwrap_or_default(), inside, samples, out);
    Ok(())
}

/// Converts a tile in stored form to native samples in place.
///
/// # Errors
/// When the system has no memory for a few rows.
pub fn fix_in_place(spec: &TileSpec, tile: &mut [u8], scratch: &mut Scratch) -> Result<(), CodecError> {
    // Packed YCbCr consists of single bytes, which have no byte order, and has no row length without a predictor.
    if (spec.stored_is_native() || spec.packed_subsampling.is_some()) && spec.predictor == Predictor::None {
        return Ok(());
    }
    if makes_in_place(spec) {
        make_in_place(spec, tile);
        return Ok(());
    }
    // Converts a few rows at a time, through a buffer that stays in the second-level cache.
    let row_len = spec.stored_row_len().max(1);
    let chunk = (64 << 10) / row_len * row_len;
    let chunk = chunk.max(row_len);
    let buffer = scratch.native.room(chunk).ok_or(CodecError::NoMemory(chunk as u64))?;
    for rows in tile.chunks_mut(chunk) {
        let Some(stored) = buffer.get_mut(..rows.len()) else { break };
        stored.copy_from_slice(rows);
        make_rows(spec, stored, rows.chunks_exact_mut(row_len))?;
    }
    Ok(())
}

/// Whether rows of the output hold all samples of the tile in their order.
fn is_straight(spec: &TileSpec, samples: &Take) -> bool {
    match samples {
        Take::Bands(bands) => spec.samples == 1 && bands.len() == 1,
        Take::Pixels { samples, first, stride } => {
            *first == 0 && *stride == spec.samples && samples.iter().copied().eq(0..spec.samples)
        }
    }
}

fn row_layout(spec: &TileSpec) -> RowLayout {
    RowLayout {
        row_len: spec.stored_row_len(),
        samples_per_pixel: spec.samples.into(),
        sample_len: usize::from(spec.bits / 8),
    }
}

/// Whether native samples are as long as stored ones, so that the conversion works in place.
fn makes_in_place(spec: &TileSpec) -> bool {
    match spec.predictor {
        Predictor::Horizontal => true,
        Predictor::FloatingPoint => false,
        Predictor::None => matches!(spec.bits, 8 | 16 | 32 | 64 | 128),
    }
}

fn make_in_place(spec: &TileSpec, tile: &mut [u8]) {
    let swap = spec.order.is_foreign();
    match spec.predictor {
        Predictor::Horizontal => predictor::undo_tile_in_place(row_layout(spec), swap, tile),
        _ if swap => widest(SwapInPlace { bytes: tile, word: spec.sample.word() }),
        _ => {}
    }
}

/// Converts stored rows to native rows. An output row may be shorter than the tile's; it receives the beginning of the row.
///
/// # Errors
/// When the system has no memory for the conversion.
fn make_rows<'r>(
    spec: &TileSpec,
    stored: &mut [u8],
    rows: impl IntoIterator<Item = &'r mut [u8]>,
) -> Result<(), OutOfMemory> {
    let swap = spec.order.is_foreign();
    match (spec.predictor, spec.bits) {
        (Predictor::Horizontal, _) => {
            predictor::undo_tile(predictor::Predictor::Horizontal { swap }, row_layout(spec), stored, rows)?;
        }
        (Predictor::FloatingPoint, 24) => {
            let mut narrow: Vec<u8> = zeroed(stored.len())?;
            let len = spec.stored_row_len().max(1);
            predictor::undo_tile(predictor::Predictor::Float, row_layout(spec), stored, narrow.chunks_exact_mut(len))?;
            let native = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
            for (row, out) in narrow.chunks_exact(len).zip(rows) {
                typed::<f32>(out, |out| unpack::unpack_f24(row, out, native))?;
            }
        }
        (Predictor::FloatingPoint, _) => {
            predictor::undo_tile(predictor::Predictor::Float, row_layout(spec), stored, rows)?;
        }
        (Predictor::None, _) => {
            for (row, out) in stored.chunks_exact(spec.stored_row_len().max(1)).zip(rows) {
                widest(MakeRow { spec, row, out })?;
            }
        }
    }
    Ok(())
}

struct SwapInPlace<'a> {
    bytes: &'a mut [u8],
    word: usize,
}

impl HotLoop for SwapInPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        unpack::swap_in_place(self.bytes, self.word);
    }
}

/// Converts byte order and bit depth of one row without predictor.
struct MakeRow<'a> {
    spec: &'a TileSpec,
    row: &'a [u8],
    out: &'a mut [u8],
}

impl HotLoop for MakeRow<'_> {
    type Output = Result<(), OutOfMemory>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { spec, row, out } = self;
        match (spec.bits, spec.format) {
            (24, SampleFormat::Float) => typed::<f32>(out, |out| unpack::unpack_f24(row, out, spec.order))?,
            // GDAL reads 24-bit integers in the opposite of the file's byte order, and so do writers that check with GDAL.
            (24, _) => typed::<u32>(out, |out| unpack::unpack_u24(row, out, spec.order.other()))?,
            (8 | 16 | 32 | 64 | 128, _) => unpack::swap_copy(row, out, spec.sample.word()),
            (bits @ 1..=8, _) => unpack::unpack_u8(row, out, bits.into()),
            (bits @ 9..=16, _) => typed::<u16>(out, |out| unpack::unpack_u16(row, out, bits.into()))?,
            (bits, _) => typed::<u32>(out, |out| unpack::unpack_u32(row, out, bits.into()))?,
        }
        Ok(())
    }
}

/// Copies native rows, the first of which is row `inside.y` of the tile, to the output.
fn place_rows(spec: &TileSpec, native: &[u8], inside: Window, samples: &Take, out: &mut [&mut [u8]]) {
    let size = spec.sample.size();
    let pixel = usize::from(spec.samples) * size;
    let columns = inside.x as usize * pixel..(inside.x as usize + inside.width as usize) * pixel;
    let rows =
        native.chunks_exact(spec.native_row_len().max(1)).map(|row| row.get(columns.clone()).unwrap_or_default());
    if is_straight(spec, samples) {
        for (row, target) in rows.zip(out) {
            if row.len() == target.len() {
                target.copy_from_slice(row);
            }
        }
        return;
    }
    let rows = NativeRows { native, row_len: spec.native_row_len().max(1), columns };
    match samples {
        Take::Bands(bands) => {
            let height = inside.height as usize;
            for (band, out) in bands.iter().zip(out.chunks_mut(height.max(1))) {
                take_band(&rows, size, spec.samples, (*band).into(), out);
            }
        }
        Take::Pixels { samples, first, stride } => {
            for (position, band) in samples.iter().enumerate() {
                let at = (usize::from(*first) + position) * size;
                let (from, out_step) = (usize::from(*band) * size, usize::from(*stride) * size);
                for (source, target) in rows.iter().zip(out.iter_mut()) {
                    widest(Gather { source, step: pixel, from, target, out_step, size, at });
                }
            }
        }
    }
}

/// Some columns of native rows.
struct NativeRows<'a> {
    native: &'a [u8],
    row_len: usize,
    columns: std::ops::Range<usize>,
}

impl<'a> NativeRows<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let columns = self.columns.clone();
        self.native.chunks_exact(self.row_len).map(move |row| row.get(columns.clone()).unwrap_or_default())
    }
}

/// Copies one sample of every pixel, row by row. Common pixel sizes are constants, which lets the compiler use shuffles.
fn take_band(rows: &NativeRows<'_>, size: usize, samples: u16, band: usize, out: &mut [&mut [u8]]) {
    match (size, samples) {
        (1, 2) => widest(TakeBand::<1, 2> { rows, band, out }),
        (1, 3) => widest(TakeBand::<1, 3> { rows, band, out }),
        (1, 4) => widest(TakeBand::<1, 4> { rows, band, out }),
        (2, 2) => widest(TakeBand::<2, 2> { rows, band, out }),
        (2, 3) => widest(TakeBand::<2, 3> { rows, band, out }),
        (2, 4) => widest(TakeBand::<2, 4> { rows, band, out }),
        (4, 2) => widest(TakeBand::<4, 2> { rows, band, out }),
        (4, 3) => widest(TakeBand::<4, 3> { rows, band, out }),
        (4, 4) => widest(TakeBand::<4, 4> { rows, band, out }),
        _ => {
            let step = usize::from(samples) * size;
            for (source, target) in rows.iter().zip(out) {
                widest(Gather { source, step, from: band * size, target, out_step: size, size, at: 0 });
            }
        }
    }
}

struct TakeBand<'a, 'b, const SIZE: usize, const SAMPLES: usize> {
    rows: &'a NativeRows<'a>,
    band: usize,
    out: &'a mut [&'b mut [u8]],
}

impl<const SIZE: usize, const SAMPLES: usize> HotLoop for TakeBand<'_, '_, SIZE, SAMPLES> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (source, target) in self.rows.iter().zip(self.out) {
            pick::<SIZE, SAMPLES>(source, self.band, target.as_chunks_mut::<SIZE>().0);
        }
    }
}

/// Copies samples of one row in any other layout: `size` bytes at `from` in every `step` bytes of `source`, to `at` in every
/// `out_step` bytes of `target`.
struct Gather<'a> {
    source: &'a [u8],
    step: usize,
    from: usize,
    target: &'a mut [u8],
    out_step: usize,
    size: usize,
    at: usize,
}

impl HotLoop for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { source, step, from, target, out_step, size, at } = self;
        match size {
            1 => gather_sized::<1>(source, step, from, target, out_step, at),
            2 => gather_sized::<2>(source, step, from, target, out_step, at),
            4 => gather_sized::<4>(source, step, from, target, out_step, at),
            8 => gather_sized::<8>(source, step, from, target, out_step, at),
            _ => gather_sized::<16>(source, step, from, target, out_step, at),
        }
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
    // One copy of the loop per position, because it vectorises only with a constant offset.
    match which {
        0 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[0]),
        1 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[1 % SAMPLES]),
        2 => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[2 % SAMPLES]),
        _ => pixels.iter().zip(targets).for_each(|(pixel, target)| *target = pixel[3 % SAMPLES]),
    }
}

/// Views a row as numbers. Only a caller's own buffer can be unaligned; its rows are copied.
#[inline(always)]
fn typed<T: bytemuck::Pod + Default>(out: &mut [u8], write: impl Fn(&mut [T])) -> Result<(), OutOfMemory> {
    if let Ok(row) = bytemuck::try_cast_slice_mut(out) {
        write(row);
        return Ok(());
    }
    let mut row = zeroed(out.len() / size_of::<T>())?;
    write(&mut row);
    out.copy_from_slice(bytemuck::cast_slice(&row));
    Ok(())
}
