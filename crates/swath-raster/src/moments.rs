//! Computes minimum, maximum, mean and standard deviation of samples, one tile at a time.
//!
//! Each tile gets its own sums and callers add tiles in a fixed order, so the result depends neither on threads nor on how
//! rows were pushed. Short integers are summed exactly in integers; other types in eight sums side by side, always in the
//! same order.

use swath_tiff::{SampleType, Window};

use crate::{
    half,
    simd::{HotLoop, widest},
};

/// Statistics of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Number of samples that hold data.
    pub count: u64,
    /// Number of all samples.
    pub all: u64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// Mean of the samples that hold data.
    pub mean: f64,
    /// Sum of squared distances from the mean.
    pub squares: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, all: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, mean: 0.0, squares: 0.0 }
    }
}

impl Moments {
    /// Merges the samples that `other` describes into these statistics.
    pub fn add(&mut self, other: &Self) {
        self.all += other.all;
        if other.count == 0 {
            return;
        }
        let (own_count, other_count) = (self.count as f64, other.count as f64);
        let total = own_count + other_count;
        let difference = other.mean - self.mean;
        self.squares += other.squares + difference * difference * own_count * other_count / total;
        self.mean += difference * other_count / total;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the standard deviation of the population, which is GDAL's definition.
    pub fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    /// Returns the percentage of samples that hold data.
    pub fn valid_percent(&self) -> f64 {
        100.0 * self.count as f64 / self.all.max(1) as f64
    }
}

/// One band of a tile whose samples are interleaved by pixel.
#[derive(Debug)]
pub struct TileBand<'a> {
    /// Native samples.
    pub tile: &'a [u8],
    /// Columns of the tile.
    pub width: u32,
    /// Part of the tile that lies inside the image.
    pub visible: Window,
    /// Samples per pixel.
    pub samples: usize,
    /// Index of the band's sample in the pixel.
    pub sample: usize,
    /// Type of the samples.
    pub kind: SampleType,
    /// The nodata value, as one native sample.
    pub nodata: Option<&'a [u8]>,
    /// One byte per pixel of the tile; 0 marks a pixel without data.
    pub mask: Option<&'a [u8]>,
}

/// How to sum samples of a type.
trait Number: Copy + PartialEq + PartialOrd {
    const SIZE: usize;
    fn read(raw: &[u8]) -> Self;
    fn float(self) -> f64;
    /// Sums the values whose flag in `keep` is set.
    fn sum(values: &[Self], keep: &[bool]) -> Sums;
}

/// Sums of one row's data, of differences from `base`.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: u64,
    base: f64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Sums {
    fn moments(&self) -> Moments {
        if self.count == 0 {
            return Moments::default();
        }
        let count = self.count as f64;
        let squares = (self.squares - self.sum * self.sum / count).max(0.0);
        Moments { count: self.count, all: 0, min: self.min, max: self.max, mean: self.base + self.sum / count, squares }
    }
}

/// Integers of up to 16 bits: 64-bit sums are exact for any row.
macro_rules! short {
    ($($number:ty, $wide:ty);*) => {$(
        impl Number for $number {
            const SIZE: usize = size_of::<Self>();
            #[inline(always)]
            fn read(raw: &[u8]) -> Self {
                raw.first_chunk().map_or(0, |raw| Self::from_ne_bytes(*raw))
            }
            #[inline(always)]
            fn float(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn sum(values: &[Self], keep: &[bool]) -> Sums {
                let (mut count, mut min, mut max) = (0_u32, Self::MAX, Self::MIN);
                let (mut sum, mut squares) = (0_i64, 0_u64);
                // Chunks short enough for 32-bit sums: a vector holds twice as many of these.
                for (values, keep) in values.chunks(64).zip(keep.chunks(64)) {
                    let (mut chunk_sum, mut chunk_squares, mut chunk_count) = (0 as $wide, 0_u64, 0_u32);
                    for (value, keep) in values.iter().zip(keep) {
                        let kept = if *keep { *value } else { 0 };
                        chunk_sum += <$wide>::from(kept);
                        chunk_squares += (i64::from(kept) * i64::from(kept)) as u64;
                        chunk_count += u32::from(*keep);
                        min = min.min(if *keep { *value } else { Self::MAX });
                        max = max.max(if *keep { *value } else { Self::MIN });
                    }
                    count += chunk_count;
                    sum += i64::from(chunk_sum);
                    squares += chunk_squares;
                }
                Sums {
                    count: count.into(),
                    base: 0.0,
                    sum: sum as f64,
                    squares: squares as f64,
                    min: min.into(),
                    max: max.into(),
                }
            }
        }
    )*};
}
short!(u8, i32; i8, i32; u16, i32; i16, i32);

/// Long integers and floats: sums differences from the first value, so that large values do not swamp small differences.
macro_rules! long {
    ($($number:ty, $float:expr, $read:expr);*) => {$(
        impl Number for $number {
            const SIZE: usize = size_of::<Self>();
            #[inline(always)]
            fn read(raw: &[u8]) -> Self {
                raw.first_chunk().map_or($read(Default::default()), |raw| $read(*raw))
            }
            #[inline(always)]
            fn float(self) -> f64 {
                $float(self)
            }
            #[inline(always)]
            fn sum(values: &[Self], keep: &[bool]) -> Sums {
                const LANES: usize = 8;
                let first = values.iter().zip(keep).find(|(_, keep)| **keep).map(|(value, _)| value.float());
                let Some(base) = first else { return Sums::default() };
                let mut count = 0_u64;
                let (mut sums, mut squares) = ([0.0; LANES], [0.0; LANES]);
                let (mut mins, mut maxs) = ([base; LANES], [base; LANES]);
                for (values, keep) in values.chunks(LANES).zip(keep.chunks(LANES)) {
                    for (lane, (value, keep)) in values.iter().zip(keep).enumerate() {
                        let value = if *keep { value.float() } else { base };
                        let difference = value - base;
                        sums[lane] += difference;
                        squares[lane] += difference * difference;
                        mins[lane] = if value < mins[lane] { value } else { mins[lane] };
                        maxs[lane] = if value > maxs[lane] { value } else { maxs[lane] };
                        count += u64::from(*keep);
                    }
                }
                Sums {
                    count,
                    base,
                    sum: sums.iter().sum(),
                    squares: squares.iter().sum(),
                    min: mins.into_iter().fold(base, f64::min),
                    max: maxs.into_iter().fold(base, f64::max),
                }
            }
        }
    )*};
}
long!(
    u32, f64::from, u32::from_ne_bytes;
    i32, f64::from, i32::from_ne_bytes;
    u64, |value| value as f64, u64::from_ne_bytes;
    i64, |value| value as f64, i64::from_ne_bytes;
    f32, f64::from, f32::from_ne_bytes;
    f64, |value| value, f64::from_ne_bytes
);

impl TileBand<'_> {
    /// Computes the statistics; `None` for complex samples.
    pub fn moments(&self) -> Option<Moments> {
        Some(match self.kind {
            SampleType::U8 => self.typed::<u8>(),
            SampleType::I8 => self.typed::<i8>(),
            SampleType::U16 => self.typed::<u16>(),
            SampleType::I16 => self.typed::<i16>(),
            SampleType::U32 => self.typed::<u32>(),
            SampleType::I32 => self.typed::<i32>(),
            SampleType::U64 => self.typed::<u64>(),
            SampleType::I64 => self.typed::<i64>(),
            SampleType::F32 => self.typed::<f32>(),
            SampleType::F64 => self.typed::<f64>(),
            SampleType::F16 => self.halves(),
            _ => return None,
        })
    }

    fn typed<T: Number>(&self) -> Moments {
        let nodata = self.nodata.map(T::read);
        self.rows(|row, values: &mut Vec<T>| gather(row, values, self.samples, self.sample, T::SIZE, T::read), nodata)
    }

    fn halves(&self) -> Moments {
        let read = |raw: &[u8]| half::widen(u16::from_ne_bytes(raw.first_chunk().copied().unwrap_or_default()));
        let nodata = self.nodata.map(read);
        self.rows(|row, values: &mut Vec<f64>| gather(row, values, self.samples, self.sample, 2, read), nodata)
    }

    fn rows<T: Number>(&self, gather: impl Fn(&[u8], &mut Vec<T>), nodata: Option<T>) -> Moments {
        let mut result = Moments::default();
        let size = self.kind.size();
        let row_len = self.width as usize * self.samples * size;
        let (left, columns) = (self.visible.x as usize, self.visible.width as usize);
        let (mut values, mut keep) = (Vec::new(), Vec::new());
        for y in self.visible.y as usize..(self.visible.y + self.visible.height) as usize {
            let start = y * row_len + left * self.samples * size;
            gather(self.tile.get(start..start + columns * self.samples * size).unwrap_or_default(), &mut values);
            let start = y * self.width as usize + left;
            let mask = self.mask.map(|mask| mask.get(start..start + columns).unwrap_or_default());
            widest(Keep { values: &values, nodata, mask, keep: &mut keep });
            result.add(&widest(Sum { values: &values, keep: &keep }).moments());
        }
        result.all = u64::from(self.visible.width) * u64::from(self.visible.height);
        result
    }
}

/// Copies one band of a row into `values`.
fn gather<T>(row: &[u8], values: &mut Vec<T>, samples: usize, sample: usize, size: usize, read: impl Fn(&[u8]) -> T) {
    values.clear();
    if samples == 1 {
        values.extend(row.chunks_exact(size).map(read));
    } else {
        values.extend(
            row.chunks_exact(size * samples.max(1)).map(|pixel| read(pixel.get(sample * size..).unwrap_or_default())),
        );
    }
}

/// Flags the values that hold data.
struct Keep<'a, T> {
    values: &'a [T],
    nodata: Option<T>,
    mask: Option<&'a [u8]>,
    keep: &'a mut Vec<bool>,
}

impl<T: Number> HotLoop for Keep<'_, T> {
    type Output = ();

    // A value that does not equal itself is NaN.
    #[allow(clippy::eq_op)]
    #[inline(always)]
    fn run(self) {
        self.keep.clear();
        match self.nodata {
            Some(nodata) => self.keep.extend(self.values.iter().map(|value| *value != nodata && *value == *value)),
            None => self.keep.extend(self.values.iter().map(|value| *value == *value)),
        }
        for (keep, mask) in self.keep.iter_mut().zip(self.mask.into_iter().flatten()) {
            *keep &= *mask != 0;
        }
    }
}

struct Sum<'a, T> {
    values: &'a [T],
    keep: &'a [bool],
}

impl<T: Number> HotLoop for Sum<'_, T> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        T::sum(self.values, self.keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(tile: &[u8], kind: SampleType, width: u32, height: u32) -> TileBand<'_> {
        let visible = Window::new(0, 0, width, height);
        TileBand { tile, width, visible, samples: 1, sample: 0, kind, nodata: None, mask: None }
    }

    #[test]
    fn nodata_and_masked_samples_are_left_out() {
        let tile = [1, 2, 3, 255, 5, 6];
        let nodata = TileBand { nodata: Some(&[255]), ..band(&tile, SampleType::U8, 3, 2) };
        let found = nodata.moments().unwrap();
        assert_eq!((found.count, found.all, found.min, found.max), (5, 6, 1.0, 6.0));
        assert!((found.mean - 3.4).abs() < 1e-12 && (found.deviation() - 3.44_f64.sqrt()).abs() < 1e-12);
        let masked = TileBand { mask: Some(&[0, 1, 1, 0, 0, 0]), ..band(&tile, SampleType::U8, 3, 2) };
        assert_eq!(masked.moments().unwrap().count, 2);
        let none = TileBand { mask: Some(&[0; 6]), ..band(&tile, SampleType::U8, 3, 2) };
        assert_eq!((none.moments().unwrap().count, none.moments().unwrap().all), (0, 6));
    }

    #[test]
    fn large_numbers_keep_their_small_differences() {
        let values: Vec<u8> = [1e9_f64, 1e9 + 1.0, 1e9 + 2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = band(&values, SampleType::F64, 3, 1).moments().unwrap();
        assert!((found.deviation() - (2.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn bands_edges_and_extremes_count_right() {
        // Two samples to a pixel, a tile of 300 columns of which 299 are visible; the second sample runs over all of i16.
        let values: Vec<i16> = (0..600).map(|at| if at % 2 == 0 { 7 } else { (at * 109 - 32768) as i16 }).collect();
        let tile: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let visible = Window::new(0, 0, 299, 1);
        let of = TileBand { visible, samples: 2, sample: 1, ..band(&tile, SampleType::I16, 300, 1) };
        let found = of.moments().unwrap();
        let second: Vec<f64> = values.iter().skip(1).step_by(2).take(299).map(|value| f64::from(*value)).collect();
        let mean = second.iter().sum::<f64>() / 299.0;
        let spread = (second.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 299.0).sqrt();
        assert!((found.mean - mean).abs() < 1e-9 && (found.deviation() / spread - 1.0).abs() < 1e-12);
        assert_eq!(found.min, second.iter().copied().fold(f64::INFINITY, f64::min));
        assert_eq!(found.max, second.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    }

    #[test]
    fn not_a_number_is_no_data() {
        let tile: Vec<u8> = [1.0_f32, f32::NAN, 3.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = band(&tile, SampleType::F32, 3, 1).moments().unwrap();
        assert_eq!((found.count, found.mean), (2, 2.0));
        let halves: Vec<u8> = [0x3c00_u16, 0x7e00, 0x4000].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = band(&halves, SampleType::F16, 3, 1).moments().unwrap();
        assert_eq!((found.count, found.mean), (2, 1.5));
    }
}
