//! Minimum, maximum, mean and standard deviation of samples that stream by.
//!
//! Every tile is summed up by itself and tiles are added in their order, so the result does not depend on threads or on how
//! rows were pushed.

use swath_codec::shrink::half;
use swath_tiff::{SampleType, Window};

/// What is known about some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    pub count: u64,
    pub all: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, all: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, mean: 0.0, squares: 0.0 }
    }
}

impl Moments {
    /// Adds the samples behind `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.all += other.all;
        if other.count == 0 {
            return;
        }
        let (mine, theirs) = (self.count as f64, other.count as f64);
        let total = mine + theirs;
        let apart = other.mean - self.mean;
        self.squares += other.squares + apart * apart * mine * theirs / total;
        self.mean += apart * theirs / total;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Standard deviation of the population, as GDAL has it.
    pub(super) fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    /// Per cent of pixels that hold data.
    pub(super) fn valid_percent(&self) -> f64 {
        100.0 * self.count as f64 / self.all.max(1) as f64
    }
}

/// One band of a tile: samples of it, pixel by pixel, `pixel` samples apart, the first at `sample`.
pub(super) struct TileBand<'a> {
    pub tile: &'a [u8],
    pub width: u32,
    /// Part of the tile that belongs to the image.
    pub visible: Window,
    pub samples: usize,
    pub sample: usize,
    pub kind: SampleType,
    /// Sample that means no data.
    pub nodata: Option<&'a [u8]>,
    /// 0 where the mask says there is no data, row by row like the tile.
    pub mask: Option<&'a [u8]>,
}

impl TileBand<'_> {
    /// Sums the samples up; nothing for complex ones.
    pub(super) fn moments(&self) -> Option<Moments> {
        macro_rules! by_type {
            ($($kind:ident $number:ty, $size:literal),*) => {
                match self.kind {
                    $(SampleType::$kind => {
                        let nodata = self.nodata.and_then(|raw| raw.try_into().ok()).map(<$number>::from_ne_bytes);
                        self.sum(|raw: &[u8; $size]| <$number>::from_ne_bytes(*raw), nodata, |value| value as f64)
                    })*
                    SampleType::F16 => {
                        let half = |raw: [u8; 2]| half::widen(u16::from_ne_bytes(raw));
                        let nodata = self.nodata.and_then(|raw| raw.try_into().ok()).map(half);
                        self.sum(|raw: &[u8; 2]| half(*raw), nodata, |value| value)
                    }
                    _ => return None,
                }
            };
        }
        Some(by_type!(
            U8 u8, 1, I8 i8, 1, U16 u16, 2, I16 i16, 2, U32 u32, 4, I32 i32, 4, U64 u64, 8, I64 i64, 8, F32 f32, 4, F64 f64, 8
        ))
    }

    fn sum<T: PartialEq + Copy, const SIZE: usize>(
        &self,
        read: impl Fn(&[u8; SIZE]) -> T,
        nodata: Option<T>,
        number: impl Fn(T) -> f64,
    ) -> Moments {
        let mut result = Moments::default();
        let row_len = self.width as usize * self.samples;
        let samples = self.tile.as_chunks::<SIZE>().0;
        for y in self.visible.y as usize..(self.visible.y + self.visible.height) as usize {
            let row = samples.get(y * row_len..(y + 1) * row_len).unwrap_or_default();
            let row = row.get(self.visible.x as usize * self.samples..).unwrap_or_default();
            let mask =
                self.mask.map(|mask| mask.get(y * self.width as usize + self.visible.x as usize..).unwrap_or_default());
            let mut of_row = Row::default();
            for x in 0..self.visible.width as usize {
                let Some(raw) = row.get(x * self.samples + self.sample) else { break };
                let value = read(raw);
                let masked = mask.is_some_and(|mask| mask.get(x) == Some(&0));
                let float = number(value);
                if !masked && Some(value) != nodata && !float.is_nan() {
                    of_row.add(float);
                }
            }
            result.add(&of_row.moments());
        }
        result.all = u64::from(self.visible.width) * u64::from(self.visible.height);
        result
    }
}

/// Sums of a row, taken from its first value so that large numbers do not drown small differences.
#[derive(Default)]
struct Row {
    count: u64,
    first: f64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Row {
    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.first, self.min, self.max) = (value, value, value);
        }
        self.count += 1;
        let apart = value - self.first;
        self.sum += apart;
        self.squares += apart * apart;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn moments(&self) -> Moments {
        if self.count == 0 {
            return Moments::default();
        }
        let count = self.count as f64;
        let squares = (self.squares - self.sum * self.sum / count).max(0.0);
        let mean = self.first + self.sum / count;
        Moments { count: self.count, all: 0, min: self.min, max: self.max, mean, squares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band<'a>(tile: &'a [u8], kind: SampleType, width: u32, height: u32) -> TileBand<'a> {
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
    }

    #[test]
    fn large_numbers_keep_their_small_differences() {
        let values: Vec<u8> = [1e9_f64, 1e9 + 1.0, 1e9 + 2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = band(&values, SampleType::F64, 3, 1).moments().unwrap();
        assert!((found.deviation() - (2.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    }
}
