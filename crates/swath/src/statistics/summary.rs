//! Statistics of samples, added up portion by portion.

use std::sync::{Mutex, PoisonError};

use swath_cuda::summary::{AreaSummary, Extreme};

use super::samples::{Missing, Number, Visit};
use crate::describe::number::Exact;

// `swath-cuda/kernels/summary/` computes the same on a GPU, bit for bit: a change here is a change there.

/// Samples that are summed up at once: their doubles fit in the first-level cache with room to spare.
const CHUNK: usize = 2048;
/// Chunks that one thread takes at a time.
const STRIDE: usize = 32;

/// Statistics of some samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Summary {
    extremes: Option<(Exact, Exact)>,
    valid: u64,
    missing: u64,
    /// The sum and its rounding error, so that the mean is right to its last digit.
    sum: (f64, f64),
    /// Sum of squared distances from the mean.
    spread: f64,
}

impl Summary {
    /// Smallest value.
    pub(super) fn min(&self) -> Option<Exact> {
        self.extremes.map(|(min, _)| min)
    }

    /// Largest value.
    pub(super) fn max(&self) -> Option<Exact> {
        self.extremes.map(|(_, max)| max)
    }

    /// Mean of the valid values.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.valid > 0).then(|| (self.sum.0 + self.sum.1) / self.valid as f64)
    }

    /// Standard deviation of the valid values, of the population, as in GDAL.
    pub(super) fn std(&self) -> Option<f64> {
        (self.valid > 0).then(|| (self.spread / self.valid as f64).sqrt())
    }

    /// Number of valid values.
    pub(super) fn valid(&self) -> u64 {
        self.valid
    }

    /// Number of values that are nodata, masked or NaN.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// Adds the statistics of other samples (Chan, Golub and LeVeque 1979). Sums of squares would lose every digit on large values that
    /// differ little.
    pub(super) fn merge(&mut self, other: &Self) {
        self.missing += other.missing;
        if other.valid == 0 {
            return;
        }
        self.spread += other.spread;
        if let (Some(mine), Some(theirs)) = (self.mean(), other.mean()) {
            let (own, others) = (self.valid as f64, other.valid as f64);
            self.spread += (theirs - mine).powi(2) * (own / (own + others) * others);
        }
        self.valid += other.valid;
        self.sum = add(add(self.sum, other.sum.0), other.sum.1);
        self.extremes = match (self.extremes, other.extremes) {
            (Some((min, max)), Some((low, high))) => Some((lower(min, low), lower_of_negated(max, high))),
            (own, other) => own.or(other),
        };
    }
}

impl From<&AreaSummary> for Summary {
    fn from(of: &AreaSummary) -> Self {
        let exact = |extreme| match extreme {
            Extreme::Int(value) => Exact::Int(value),
            Extreme::Float(value) => Exact::Float(value),
        };
        let AreaSummary { extremes, valid, missing, sum, spread } = *of;
        Self { extremes: extremes.map(|(min, max)| (exact(min), exact(max))), valid, missing, sum, spread }
    }
}

/// Adds a value and keeps the rounding error (Neumaier 1974).
fn add((sum, lost): (f64, f64), value: f64) -> (f64, f64) {
    let total = sum + value;
    if !total.is_finite() {
        return (total, 0.0);
    }
    let off = if sum.abs() >= value.abs() { (sum - total) + value } else { (value - total) + sum };
    (total, lost + off)
}

/// Whether `a` is less than `b`. Integers are compared exactly.
fn less(a: Exact, b: Exact) -> bool {
    match (a, b) {
        (Exact::Int(a), Exact::Int(b)) => a < b,
        (a, b) => a.to_f64() < b.to_f64(),
    }
}

fn lower(a: Exact, b: Exact) -> Exact {
    if less(b, a) { b } else { a }
}

fn lower_of_negated(a: Exact, b: Exact) -> Exact {
    if less(a, b) { b } else { a }
}

/// Sums up samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summarise<'a> {
    /// Bytes of the nodata value.
    pub(super) nodata: Option<&'a [u8]>,
    /// One byte per sample, 0 for none.
    pub(super) mask: Option<&'a [u8]>,
    /// Threads to use. Results do not depend on it: chunks are merged in their order.
    pub(super) threads: usize,
}

impl Visit for Summarise<'_> {
    type Out = Summary;

    fn visit<const N: usize, T: Number>(
        self,
        samples: &[[u8; N]],
        read: impl Fn([u8; N]) -> T + Copy + Sync,
    ) -> Summary {
        let missing = Missing::new(self.nodata, read);
        let chunks = samples.len().div_ceil(CHUNK);
        let one = |index: usize| {
            let start = index * CHUNK;
            let end = (start + CHUNK).min(samples.len());
            let mask = self.mask.map(|mask| mask.get(start..end).unwrap_or_default());
            chunk(samples.get(start..end).unwrap_or_default(), mask, &missing, read)
        };
        let mut parts = vec![Summary::default(); chunks];
        let threads = self.threads.min(chunks.div_ceil(STRIDE));
        if threads < 2 {
            parts.iter_mut().enumerate().for_each(|(index, part)| *part = one(index));
        } else {
            let strides = Mutex::new(parts.chunks_mut(STRIDE).enumerate());
            let next = || strides.lock().unwrap_or_else(PoisonError::into_inner).next();
            let work = || {
                while let Some((number, stride)) = next() {
                    stride.iter_mut().enumerate().for_each(|(index, part)| *part = one(number * STRIDE + index));
                }
            };
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    // If the system has no more threads, this is slower but does not fail.
                    if swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                        break;
                    }
                }
                work();
            });
        }
        let mut total = Summary::default();
        parts.iter().for_each(|part| total.merge(part));
        total
    }
}

/// Sums up at most [`CHUNK`] samples in two passes over their doubles.
fn chunk<const N: usize, T: Number>(
    samples: &[[u8; N]],
    mask: Option<&[u8]>,
    missing: &Missing<'_, T>,
    read: impl Fn([u8; N]) -> T,
) -> Summary {
    let mut values = [0f64; CHUNK];
    let mut len = 0;
    let mut extremes: Option<(T, T)> = None;
    let mut mask = mask.map(|mask| mask.iter());
    for raw in samples {
        let value = read(*raw);
        let masked = mask.as_mut().is_some_and(|mask| mask.next().is_none_or(|flag| *flag == 0));
        if masked || !missing.is_data(raw, value) {
            continue;
        }
        if let Some(place) = values.get_mut(len) {
            *place = value.to_f64();
            len += 1;
        }
        extremes = Some(match extremes {
            None => (value, value),
            Some((min, max)) => (if value < min { value } else { min }, if value > max { value } else { max }),
        });
    }
    let values = values.get(..len).unwrap_or_default();
    let count = values.len();
    let sum = lanes(values, |value| value);
    let mean = if count == 0 { 0.0 } else { sum / count as f64 };
    let spread = lanes(values, |value| (value - mean) * (value - mean));
    Summary {
        extremes: extremes.map(|(min, max)| (min.exact(), max.exact())),
        valid: count as u64,
        missing: (samples.len() - count) as u64,
        sum: (sum, 0.0),
        spread,
    }
}

/// A sum in eight lanes, which the compiler makes vectors of; one running sum would have to be added in order.
fn lanes(values: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let (groups, rest) = values.as_chunks::<8>();
    let mut sums = [0f64; 8];
    for group in groups {
        sums.iter_mut().zip(group).for_each(|(sum, value)| *sum += term(*value));
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| term(*value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_tiff::SampleType;

    use super::super::samples::visit;

    fn of<const N: usize>(
        sample: SampleType,
        values: impl IntoIterator<Item = [u8; N]>,
        nodata: Option<&[u8]>,
        threads: usize,
    ) -> Summary {
        let bytes: Vec<u8> = values.into_iter().flatten().collect();
        visit(sample, &bytes, Summarise { nodata, mask: None, threads }).unwrap()
    }

    #[test]
    fn extremes_of_64_bit_integers_are_exact() {
        let values = [i64::MAX - 1, i64::MAX, i64::MIN + 1].map(i64::to_ne_bytes);
        let found = of(SampleType::I64, values, None, 1);
        assert_eq!(found.min(), Some(Exact::Int((i64::MIN + 1).into())));
        assert_eq!(found.max(), Some(Exact::Int(i64::MAX.into())));
    }

    #[test]
    fn small_spread_on_a_large_offset_survives() {
        let values = (0..100_000).map(|index| (1e9 + f64::from(index % 2)).to_ne_bytes());
        let found = of(SampleType::F64, values, None, 1);
        assert_eq!(found.mean(), Some(1e9 + 0.5));
        assert!((found.std().unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nan_and_nodata_are_left_out_and_counted() {
        let values = [f32::NAN, -9999.0, 1.0, 3.0].map(f32::to_ne_bytes);
        let found = of(SampleType::F32, values, Some(&(-9999f32).to_ne_bytes()), 1);
        assert_eq!((found.valid(), found.missing()), (2, 2));
        assert_eq!((found.mean(), found.std()), (Some(2.0), Some(1.0)));
        let none = of(SampleType::F32, [f32::NAN.to_ne_bytes()], None, 1);
        assert_eq!((none.min(), none.mean(), none.std(), none.valid()), (None, None, None, 0));
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let values = || (0..300_000u32).map(|index| f64::from(index).sin().to_ne_bytes());
        let (one, three) = (of(SampleType::F64, values(), None, 1), of(SampleType::F64, values(), None, 3));
        assert_eq!((one.mean(), one.std(), one.min()), (three.mean(), three.std(), three.min()));
    }

    #[test]
    fn means_are_right_to_the_last_digit() {
        let values = (0..12_000_000u32).map(|index| [(index % 2) as u8]);
        assert_eq!(of(SampleType::U8, values, None, 2).mean(), Some(0.5));
    }

    #[test]
    fn infinities_are_values_and_stay_what_they_are() {
        let found = of(SampleType::F32, [f32::INFINITY, 1.0].map(f32::to_ne_bytes), None, 1);
        assert_eq!((found.mean(), found.max()), (Some(f64::INFINITY), Some(Exact::Float(f64::INFINITY))));
    }

    #[test]
    fn masked_samples_are_left_out() {
        let found =
            visit(SampleType::U8, &[1, 2, 200], Summarise { nodata: None, mask: Some(&[255, 255, 0]), threads: 1 });
        assert_eq!(found.unwrap().max(), Some(Exact::Int(2)));
    }
}
