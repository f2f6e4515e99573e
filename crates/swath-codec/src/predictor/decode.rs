//! Undoes TIFF predictors 2 and 3 while copying decoded rows to the output.
//!
//! A running sum is a dependency chain: each sample waits for the one before, at one addition per cycle. So rows of bytes and
//! 16-bit words are summed in three passes: sums of four neighbours, sums of four of those, then each block of sixteen pixels
//! plus the finished block before it. Only the last pass is a chain, and it advances sixteen pixels at a time. All three compile
//! to plain vector additions. Several samples per pixel are several independent chains, which from 32 bits on are as fast.

use swath_raster::{
    memory::{OutOfMemory, grow},
    simd::{HotLoop, widest},
};

/// Pixels per block of the last pass.
const BLOCK: usize = 16;
/// Zeros before the samples of a pass: the second pass looks back twelve pixels of up to four samples.
const PAD: usize = 12 * 4;
/// Samples summed at a time: whole blocks for 1, 2, 3 and 4 samples per pixel, and few enough for the first-level cache.
const AT_ONCE: usize = 960;

/// Working memory of the row functions; create one per tile, not one per row.
#[derive(Clone, Debug)]
pub struct RowSums {
    bytes: Passes<u8>,
    words: Passes<u16>,
    longs: Passes<u32>,
}

impl RowSums {
    /// Creates fourteen kilobytes of zeros.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "used in one place, and inlined there")]
    pub fn new() -> Self {
        Self { bytes: Passes::new(), words: Passes::new(), longs: Passes::new() }
    }
}

#[derive(Clone, Debug)]
struct Passes<T> {
    /// Samples, then sums of sixteen pixels, after `PAD` zeros.
    even: [T; PAD + AT_ONCE],
    /// Sums of four pixels, after `PAD` zeros.
    odd: [T; PAD + AT_ONCE],
}

impl<T: Word> Passes<T> {
    #[inline(always)]
    fn new() -> Self {
        Self { even: [T::ZERO; PAD + AT_ONCE], odd: [T::ZERO; PAD + AT_ONCE] }
    }
}

/// An unsigned integer as wide as a sample.
trait Word: Copy {
    const ZERO: Self;
    const LEN: usize;
    fn add(self, other: Self) -> Self;
    fn read(bytes: &[u8], swap: bool) -> Self;
    fn write(self, bytes: &mut [u8]);
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            const ZERO: Self = 0;
            const LEN: usize = size_of::<Self>();
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn read(bytes: &[u8], swap: bool) -> Self {
                // Callers split rows with `chunks_exact(LEN)`, so the default is unreachable and the compiler removes it.
                let word = bytes.first_chunk().map_or(0, |bytes| Self::from_ne_bytes(*bytes));
                if swap { word.swap_bytes() } else { word }
            }
            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}
words!(u8, u16, u32, u64);

/// The source and the target of a row.
trait Row {
    fn len(&self) -> usize;
    fn source(&self) -> &[u8];
    fn target(&mut self) -> &mut [u8];
}

struct Moved<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
}

impl Row for Moved<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.src.len().min(self.dst.len())
    }
    #[inline(always)]
    fn source(&self) -> &[u8] {
        self.src
    }
    #[inline(always)]
    fn target(&mut self) -> &mut [u8] {
        self.dst
    }
}

struct InPlace<'a>(&'a mut [u8]);

impl Row for InPlace<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }
    #[inline(always)]
    fn source(&self) -> &[u8] {
        self.0
    }
    #[inline(always)]
    fn target(&mut self) -> &mut [u8] {
        self.0
    }
}

/// Undoes predictor 2 for one row: `dst` receives native samples, each the sum of itself and all before it in its band.
///
/// `src` holds samples of `sample_len` bytes (1, 2, 4 or 8), in the foreign byte order if `swap`. Floats are summed as the
/// integers of their bits, as libtiff does. The sum stops at the end of the shorter row, before an incomplete sample. For any
/// other `sample_len`, or zero samples per pixel, nothing is written.
#[inline(always)]
pub fn undo_horizontal(
    src: &[u8],
    dst: &mut [u8],
    samples_per_pixel: usize,
    sample_len: usize,
    swap: bool,
    sums: &mut RowSums,
) {
    horizontal(Moved { src, dst }, samples_per_pixel, sample_len, swap, sums);
}

/// Does the same as [`undo_horizontal`] in place.
#[inline(always)]
pub fn undo_horizontal_in_place(
    row: &mut [u8],
    samples_per_pixel: usize,
    sample_len: usize,
    swap: bool,
    sums: &mut RowSums,
) {
    horizontal(InPlace(row), samples_per_pixel, sample_len, swap, sums);
}

#[inline(always)]
fn horizontal(row: impl Row, samples_per_pixel: usize, sample_len: usize, swap: bool, sums: &mut RowSums) {
    match (sample_len, swap) {
        (1, _) => by_passes(row, samples_per_pixel, false, &mut sums.bytes),
        (2, false) => by_passes(row, samples_per_pixel, false, &mut sums.words),
        (2, true) => by_passes(row, samples_per_pixel, true, &mut sums.words),
        // Several 32-bit chains are faster than passes (14 against 11 GB/s), a single one is slower (8 against 12).
        (4, false) if samples_per_pixel == 1 => row_by_passes::<u32, 1>(row, false, &mut sums.longs),
        (4, true) if samples_per_pixel == 1 => row_by_passes::<u32, 1>(row, true, &mut sums.longs),
        (4, false) => by_chain::<u32>(row, samples_per_pixel, false),
        (4, true) => by_chain::<u32>(row, samples_per_pixel, true),
        (8, false) => by_chain::<u64>(row, samples_per_pixel, false),
        (8, true) => by_chain::<u64>(row, samples_per_pixel, true),
        _ => {}
    }
}

/// Undoes predictor 3 for one row: `dst` receives native floats of `sample_len` bytes (2, 3, 4 or 8).
///
/// `src` holds the bytes of the row by significance, most significant first in either byte order, each as the difference from the
/// byte `samples_per_pixel` before it. The function overwrites `src` with the sums. Three-byte floats stay three bytes; `unpack`
/// widens them. Rows of different length are cut to the shorter.
#[inline(always)]
pub fn undo_float(src: &mut [u8], dst: &mut [u8], samples_per_pixel: usize, sample_len: usize, sums: &mut RowSums) {
    let len = src.len().min(dst.len());
    let (src, dst) = (&mut src[..len], &mut dst[..len]);
    by_passes(InPlace(src), samples_per_pixel, false, &mut sums.bytes);
    match sample_len {
        2 => interleave(src, dst, |bytes| u16::from_be_bytes(bytes).to_ne_bytes()),
        3 => interleave(src, dst, |[a, b, c]| if cfg!(target_endian = "big") { [a, b, c] } else { [c, b, a] }),
        4 => interleave(src, dst, |bytes| u32::from_be_bytes(bytes).to_ne_bytes()),
        8 => interleave(src, dst, |bytes| u64::from_be_bytes(bytes).to_ne_bytes()),
        _ => {}
    }
}

/// Gathers `N` planes of bytes, most significant first, into native samples.
#[inline(always)]
fn interleave<const N: usize>(src: &[u8], dst: &mut [u8], native: impl Fn([u8; N]) -> [u8; N]) {
    let width = src.len() / N;
    // Slices of the same length, so that the loop below needs no bounds checks and vectorises.
    let planes: [&[u8]; N] = std::array::from_fn(|k| &src[k * width..][..width]);
    let samples = &mut dst.as_chunks_mut().0[..width];
    for i in 0..width {
        samples[i] = native(std::array::from_fn(|k| planes[k][i]));
    }
}

#[inline(always)]
fn by_passes<T: Word>(row: impl Row, samples_per_pixel: usize, swap: bool, passes: &mut Passes<T>) {
    match samples_per_pixel {
        1 => row_by_passes::<T, 1>(row, swap, passes),
        2 => row_by_passes::<T, 2>(row, swap, passes),
        3 => row_by_passes::<T, 3>(row, swap, passes),
        4 => row_by_passes::<T, 4>(row, swap, passes),
        5 => row_by_chain::<T, 5>(row, 0, [T::ZERO; 5], swap),
        6 => row_by_chain::<T, 6>(row, 0, [T::ZERO; 6], swap),
        7 => row_by_chain::<T, 7>(row, 0, [T::ZERO; 7], swap),
        8 => row_by_chain::<T, 8>(row, 0, [T::ZERO; 8], swap),
        many => row_by_distance::<T>(row, many, swap),
    }
}

#[inline(always)]
fn by_chain<T: Word>(row: impl Row, samples_per_pixel: usize, swap: bool) {
    match samples_per_pixel {
        1 => row_by_chain::<T, 1>(row, 0, [T::ZERO; 1], swap),
        2 => row_by_chain::<T, 2>(row, 0, [T::ZERO; 2], swap),
        3 => row_by_chain::<T, 3>(row, 0, [T::ZERO; 3], swap),
        4 => row_by_chain::<T, 4>(row, 0, [T::ZERO; 4], swap),
        5 => row_by_chain::<T, 5>(row, 0, [T::ZERO; 5], swap),
        6 => row_by_chain::<T, 6>(row, 0, [T::ZERO; 6], swap),
        7 => row_by_chain::<T, 7>(row, 0, [T::ZERO; 7], swap),
        8 => row_by_chain::<T, 8>(row, 0, [T::ZERO; 8], swap),
        many => row_by_distance::<T>(row, many, swap),
    }
}

/// Runs the three passes for `S` samples per pixel, on `AT_ONCE` samples at a time.
#[inline(always)]
fn row_by_passes<T: Word, const S: usize>(mut row: impl Row, swap: bool, passes: &mut Passes<T>) {
    let Passes { even, odd } = passes;
    let block = BLOCK * S;
    let whole = row.len() / T::LEN / block * block;
    let mut last = [T::ZERO; S];
    let mut at = 0;
    while at < whole {
        let n = (whole - at).min(AT_ONCE);
        let bytes = at * T::LEN..(at + n) * T::LEN;
        for (sample, bytes) in even[PAD..PAD + n].iter_mut().zip(row.source()[bytes.clone()].chunks_exact(T::LEN)) {
            *sample = T::read(bytes, swap);
        }
        four(&even[..PAD + n], &mut odd[PAD..PAD + n], S);
        four(&odd[..PAD + n], &mut even[PAD..PAD + n], 4 * S);
        let sums = &mut even[PAD..PAD + n];
        match S {
            1 => carry::<T, S, { BLOCK }>(sums, &mut last),
            2 => carry::<T, S, { BLOCK * 2 }>(sums, &mut last),
            3 => carry::<T, S, { BLOCK * 3 }>(sums, &mut last),
            _ => carry::<T, S, { BLOCK * 4 }>(sums, &mut last),
        }
        for (sample, bytes) in sums.iter().zip(row.target()[bytes].chunks_exact_mut(T::LEN)) {
            sample.write(bytes);
        }
        at += n;
    }
    row_by_chain::<T, S>(row, whole, last, swap);
}

/// Sets `sums[i]` to the sum of the term at the same position and the three before it, `step` apart. `terms` starts `PAD` earlier.
#[inline(always)]
fn four<T: Word>(terms: &[T], sums: &mut [T], step: usize) {
    let n = sums.len();
    let [a, b, c, d] = [0, 1, 2, 3].map(|back| &terms[PAD - back * step..][..n]);
    for i in 0..n {
        sums[i] = a[i].add(b[i]).add(c[i].add(d[i]));
    }
}

/// Adds to each block of sixteen pixels (`N` samples) the finished block before it; the pixel `last` precedes the first block.
#[inline(always)]
fn carry<T: Word, const S: usize, const N: usize>(sums: &mut [T], last: &mut [T; S]) {
    let mut done: [T; N] = std::array::from_fn(|k| last[k % S]);
    for block in sums.as_chunks_mut().0 {
        done = std::array::from_fn(|k| done[k].add(block[k]));
        *block = done;
    }
    *last = std::array::from_fn(|k| done[N - S + k]);
}

/// Computes the plain running sum from sample `from` on; `last` is the pixel before it.
#[inline(always)]
fn row_by_chain<T: Word, const S: usize>(mut row: impl Row, from: usize, mut last: [T; S], swap: bool) {
    let samples = row.len() / T::LEN;
    let mut at = from;
    // Reads a pixel before writing it, so that the loop also works in place.
    while at + S <= samples {
        let bytes = at * T::LEN..(at + S) * T::LEN;
        let mut pixel = [T::ZERO; S];
        for (sample, bytes) in pixel.iter_mut().zip(row.source()[bytes.clone()].chunks_exact(T::LEN)) {
            *sample = T::read(bytes, swap);
        }
        for ((last, sample), out) in last.iter_mut().zip(pixel).zip(row.target()[bytes].chunks_exact_mut(T::LEN)) {
            *last = last.add(sample);
            last.write(out);
        }
        at += S;
    }
    // No TIFF row ends within a pixel, but the samples of an incomplete pixel are summed too.
    for (k, last) in (at..samples).zip(last) {
        let bytes = k * T::LEN..(k + 1) * T::LEN;
        let sample = T::read(&row.source()[bytes.clone()], swap);
        last.add(sample).write(&mut row.target()[bytes]);
    }
}

/// Computes the running sum for many samples per pixel, which are many short chains.
#[inline(always)]
fn row_by_distance<T: Word>(mut row: impl Row, samples_per_pixel: usize, swap: bool) {
    let back = samples_per_pixel.saturating_mul(T::LEN);
    let len = row.len() / T::LEN * T::LEN;
    if back == 0 {
        return;
    }
    for at in (0..len).step_by(T::LEN) {
        let sample = T::read(&row.source()[at..at + T::LEN], swap);
        let target = row.target();
        let before = if at < back { T::ZERO } else { T::read(&target[at - back..][..T::LEN], false) };
        before.add(sample).write(&mut target[at..at + T::LEN]);
    }
}

/// The predictor of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// 2: differences of whole samples.
    Horizontal {
        /// Whether samples are in the foreign byte order.
        swap: bool,
    },
    /// 3: differences of bytes, sorted by significance.
    Float,
}

/// The layout of samples in the rows of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Bytes from one decoded row to the next.
    pub row_len: usize,
    /// Samples per pixel in a row; 1 for separate planes.
    pub samples_per_pixel: usize,
    /// Bytes of a sample.
    pub sample_len: usize,
}

/// Undoes a predictor for a whole decoded tile, row by row into `rows`, as one task for the widest vectors.
///
/// A row of `rows` may be shorter than a row of the tile; it receives the beginning of the row. Predictor 3 overwrites `tile`. It
/// needs a whole tile row to assemble any sample, so shorter rows are assembled in a buffer first.
///
/// # Errors
/// When the system has no memory for that buffer.
pub fn undo_tile<'r>(
    predictor: Predictor,
    layout: RowLayout,
    tile: &mut [u8],
    rows: impl IntoIterator<Item = &'r mut [u8]>,
) -> Result<(), OutOfMemory> {
    widest(UndoTile { predictor, layout, tile, rows })
}

struct UndoTile<'a, I> {
    predictor: Predictor,
    layout: RowLayout,
    tile: &'a mut [u8],
    rows: I,
}

impl<'r, I: IntoIterator<Item = &'r mut [u8]>> HotLoop for UndoTile<'_, I> {
    type Output = Result<(), OutOfMemory>;
    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { predictor, layout: RowLayout { row_len, samples_per_pixel, sample_len }, tile, rows } = self;
        if row_len == 0 {
            return Ok(());
        }
        let mut sums = RowSums::new();
        let mut whole = Vec::new();
        for (src, dst) in tile.chunks_mut(row_len).zip(rows) {
            match predictor {
                Predictor::Horizontal { swap } => {
                    undo_horizontal(src, dst, samples_per_pixel, sample_len, swap, &mut sums)
                }
                Predictor::Float if dst.len() >= src.len() => {
                    undo_float(src, dst, samples_per_pixel, sample_len, &mut sums)
                }
                Predictor::Float => {
                    whole.truncate(src.len());
                    grow(&mut whole, src.len())?;
                    undo_float(src, &mut whole, samples_per_pixel, sample_len, &mut sums);
                    let len = dst.len();
                    dst.copy_from_slice(&whole[..len]);
                }
            }
        }
        Ok(())
    }
}

/// Does the same as [`undo_tile`] for predictor 2 in place.
pub fn undo_tile_in_place(layout: RowLayout, swap: bool, tile: &mut [u8]) {
    widest(InPlaceTile { layout, swap, tile });
}

struct InPlaceTile<'a> {
    layout: RowLayout,
    swap: bool,
    tile: &'a mut [u8],
}

impl HotLoop for InPlaceTile<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let RowLayout { row_len, samples_per_pixel, sample_len } = self.layout;
        if row_len == 0 {
            return;
        }
        let mut sums = RowSums::new();
        for row in self.tile.chunks_mut(row_len) {
            undo_horizontal_in_place(row, samples_per_pixel, sample_len, self.swap, &mut sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, mut seed: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .collect()
    }

    /// Sums sample by sample, as the specification says it.
    fn plain_horizontal(row: &[u8], spp: usize, len: usize, swap: bool) -> Vec<u8> {
        let mut samples: Vec<u64> = row
            .chunks_exact(len)
            .map(|bytes| {
                let mut bytes = bytes.to_vec();
                if swap != cfg!(target_endian = "big") {
                    bytes.reverse();
                }
                bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
            })
            .collect();
        for i in spp..samples.len() {
            samples[i] = samples[i].wrapping_add(samples[i - spp]);
        }
        samples
            .iter()
            .flat_map(|sample| {
                let mut bytes = sample.to_le_bytes()[..len].to_vec();
                if cfg!(target_endian = "big") {
                    bytes.reverse();
                }
                bytes
            })
            .collect()
    }

    #[test]
    fn horizontal_agrees_with_the_plain_sum() {
        let mut sums = RowSums::new();
        for len in [1, 2, 4, 8] {
            for spp in [1, 2, 3, 4, 5, 7, 16] {
                for width in [0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 319, 320, 321, 959, 960, 961, 1000, 2500] {
                    for swap in [false, true] {
                        let row = noise(width * spp * len, (width * 31 + spp) as u64);
                        let want = plain_horizontal(&row, spp, len, swap);
                        let mut out = vec![0; row.len()];
                        undo_horizontal(&row, &mut out, spp, len, swap, &mut sums);
                        assert_eq!(out, want, "{len} bytes, {spp} samples, {width} wide, swap {swap}");
                        let mut out = row.clone();
                        undo_horizontal_in_place(&mut out, spp, len, swap, &mut sums);
                        assert_eq!(out, want, "in place: {len} bytes, {spp} samples, {width} wide, swap {swap}");
                    }
                }
            }
        }
    }

    /// Predictor 3 the other way: big-endian bytes of the samples, sorted by significance, then differences.
    fn predict_float(samples: &[Vec<u8>], spp: usize, len: usize) -> Vec<u8> {
        let mut row: Vec<u8> = (0..len).flat_map(|k| samples.iter().map(move |sample| sample[k])).collect();
        for i in (spp..row.len()).rev() {
            row[i] = row[i].wrapping_sub(row[i - spp]);
        }
        row
    }

    #[test]
    fn float_agrees_with_its_inverse() {
        let mut sums = RowSums::new();
        for len in [2, 3, 4, 8] {
            for spp in [1, 2, 3, 4, 6] {
                for width in [0, 1, 3, 16, 31, 33, 240, 512, 777] {
                    let bytes = noise(width * spp * len, (width + len) as u64);
                    let samples: Vec<Vec<u8>> = bytes.chunks_exact(len).map(<[u8]>::to_vec).collect();
                    let want: Vec<u8> = samples
                        .iter()
                        .flat_map(|sample| {
                            let mut sample = sample.clone();
                            if cfg!(target_endian = "little") {
                                sample.reverse();
                            }
                            sample
                        })
                        .collect();
                    let mut row = predict_float(&samples, spp, len);
                    let mut out = vec![0; row.len()];
                    undo_float(&mut row, &mut out, spp, len, &mut sums);
                    assert_eq!(out, want, "{len} bytes, {spp} samples, {width} wide");
                }
            }
        }
    }

    #[test]
    fn a_tile_is_its_rows_and_short_rows_get_the_beginning() {
        for (predictor, len) in
            [(Predictor::Horizontal { swap: true }, 2), (Predictor::Float, 4), (Predictor::Float, 3)]
        {
            let layout = RowLayout { row_len: 50 * len, samples_per_pixel: 1, sample_len: len };
            let tile = noise(layout.row_len * 7, 5);
            let mut whole = vec![0; tile.len()];
            undo_tile(predictor, layout, &mut tile.clone(), whole.chunks_mut(layout.row_len)).unwrap();
            let mut part = vec![0; 20 * len * 7];
            undo_tile(predictor, layout, &mut tile.clone(), part.chunks_mut(20 * len)).unwrap();
            for (whole, part) in whole.chunks(layout.row_len).zip(part.chunks(20 * len)) {
                assert_eq!(&whole[..20 * len], part);
            }
        }
    }

    #[test]
    fn odd_lengths_do_not_panic() {
        let mut sums = RowSums::new();
        for len in 0..70 {
            for spp in 0..6 {
                for sample_len in 0..10 {
                    let mut row = noise(len, 3);
                    let mut out = vec![0; len / 2 + 3];
                    undo_horizontal(&row, &mut out, spp, sample_len, false, &mut sums);
                    undo_horizontal_in_place(&mut row, spp, sample_len, true, &mut sums);
                    undo_float(&mut row, &mut out, spp, sample_len, &mut sums);
                }
            }
        }
    }
}
