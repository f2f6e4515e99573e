//! Samples of one type as samples of another, as GDAL converts them.

use swath_codec::shrink::half;
use swath_tiff::SampleType;

/// A line through two points: what `from` becomes `to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Smallest and largest value before.
    pub from: (f64, f64),
    /// What they become.
    pub to: (f64, f64),
}

impl Scale {
    /// What a value becomes. The line goes on beyond both points, as in GDAL; only the sample type has ends.
    fn apply(&self, value: f64) -> f64 {
        let (low, high) = self.from;
        let part = if high == low { 0.0 } else { (value - low) / (high - low) };
        self.to.0 + part * (self.to.1 - self.to.0)
    }
}

/// How samples become those of another type.
#[derive(Debug, Clone)]
pub(crate) struct Cast {
    from: SampleType,
    to: SampleType,
    scale: Option<Scale>,
    /// Before and after: a value that is not scaled.
    nodata: Option<(f64, f64)>,
}

impl Cast {
    pub(crate) fn new(from: SampleType, to: SampleType, scale: Option<Scale>, nodata: Option<(f64, f64)>) -> Self {
        Self { from, to, scale, nodata }
    }

    /// Whether samples stay what they are.
    pub(crate) fn is_nothing(&self) -> bool {
        self.from == self.to && self.scale.is_none() && self.nodata.is_none_or(|(before, after)| before == after)
    }

    /// Converts all samples.
    pub(crate) fn run(&self, source: &[u8], target: &mut [u8]) {
        let whole = |sample: SampleType| !sample.is_float() && !sample.is_complex();
        if self.scale.is_none() && whole(self.from) && whole(self.to) {
            return self.run_whole(source, target);
        }
        let (from, to) = (self.from.size(), self.to.size());
        let (word, complex) = (self.to.word(), self.to.is_complex());
        for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
            let (real, imaginary) = source.split_at(self.from.word());
            let (first, second) = target.split_at_mut(word);
            write_float(self.to, self.turn(read_float(self.from, real)), first);
            if complex {
                let imaginary = if imaginary.is_empty() { 0.0 } else { read_float(self.from, imaginary) };
                write_float(self.to, imaginary, second);
            }
        }
    }

    fn turn(&self, value: f64) -> f64 {
        match (self.nodata, self.scale) {
            (Some((before, after)), _) if value == before || (value.is_nan() && before.is_nan()) => after,
            (_, Some(scale)) => scale.apply(value),
            _ => value,
        }
    }

    /// Whole numbers of 64 bits do not go through floats.
    fn run_whole(&self, source: &[u8], target: &mut [u8]) {
        let nodata = self.nodata.map(|(before, after)| (before as i128, after as i128));
        let (from, to) = (self.from.size(), self.to.size());
        for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
            let value = match (read_whole(self.from, source), nodata) {
                (value, Some((before, after))) if value == before => after,
                (value, _) => value,
            };
            write_whole(self.to, value, target);
        }
    }
}

macro_rules! read_as {
    ($kind:ty, $raw:expr) => {
        <$kind>::from_ne_bytes($raw.try_into().unwrap_or_default())
    };
}

fn read_whole(sample: SampleType, raw: &[u8]) -> i128 {
    match sample {
        SampleType::U8 => read_as!(u8, raw).into(),
        SampleType::I8 => read_as!(i8, raw).into(),
        SampleType::U16 => read_as!(u16, raw).into(),
        SampleType::I16 => read_as!(i16, raw).into(),
        SampleType::U32 => read_as!(u32, raw).into(),
        SampleType::I32 => read_as!(i32, raw).into(),
        SampleType::U64 => read_as!(u64, raw).into(),
        SampleType::I64 => read_as!(i64, raw).into(),
        _ => 0,
    }
}

fn read_float(sample: SampleType, raw: &[u8]) -> f64 {
    match sample {
        SampleType::F16 | SampleType::CF16 => half::widen(read_as!(u16, raw)),
        SampleType::F32 | SampleType::CF32 => read_as!(f32, raw).into(),
        SampleType::F64 | SampleType::CF64 => read_as!(f64, raw),
        SampleType::CI16 => read_as!(i16, raw).into(),
        SampleType::CI32 => read_as!(i32, raw).into(),
        whole => read_whole(whole, raw) as f64,
    }
}

/// Values that do not fit become the nearest that does.
fn write_whole(sample: SampleType, value: i128, raw: &mut [u8]) {
    macro_rules! put {
        ($kind:ty) => {{
            let near = value.clamp(<$kind>::MIN.into(), <$kind>::MAX.into()) as $kind;
            raw.copy_from_slice(&near.to_ne_bytes());
        }};
    }
    match sample {
        SampleType::U8 => put!(u8),
        SampleType::I8 => put!(i8),
        SampleType::U16 => put!(u16),
        SampleType::I16 | SampleType::CI16 => put!(i16),
        SampleType::U32 => put!(u32),
        SampleType::I32 | SampleType::CI32 => put!(i32),
        SampleType::U64 => put!(u64),
        SampleType::I64 => put!(i64),
        _ => {}
    }
}

/// Halves are rounded away from zero, what is not a number becomes 0, and what does not fit the nearest that does.
fn write_float(sample: SampleType, value: f64, raw: &mut [u8]) {
    match sample {
        SampleType::F16 | SampleType::CF16 => raw.copy_from_slice(&half::narrow(value).to_ne_bytes()),
        SampleType::F32 | SampleType::CF32 => {
            // GDAL keeps finite numbers finite.
            let top = f64::from(f32::MAX);
            let near = if value.is_finite() { value.clamp(-top, top) } else { value };
            raw.copy_from_slice(&(near as f32).to_ne_bytes());
        }
        SampleType::F64 | SampleType::CF64 => raw.copy_from_slice(&value.to_ne_bytes()),
        // A cast from float to integer stops at the ends of the integer, and takes NaN to 0.
        whole => write_whole(whole, value.round() as i128, raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(from: SampleType, to: SampleType, scale: Option<Scale>, raw: &[u8]) -> Vec<u8> {
        let mut out = vec![0; raw.len() / from.size() * to.size()];
        Cast::new(from, to, scale, None).run(raw, &mut out);
        out
    }

    #[test]
    fn floats_are_rounded_and_kept_inside() {
        let floats: Vec<u8> =
            [2.5_f32, -1.0, 300.0, f32::NAN, f32::INFINITY].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(one(SampleType::F32, SampleType::U8, None, &floats), [3, 0, 255, 0, 255]);
    }

    #[test]
    fn long_integers_keep_every_digit() {
        let value = i64::MAX - 1;
        let out = one(SampleType::I64, SampleType::U64, None, &value.to_ne_bytes());
        assert_eq!(out, (value as u64).to_ne_bytes());
        assert_eq!(one(SampleType::I64, SampleType::U8, None, &(-5_i64).to_ne_bytes()), [0]);
    }

    #[test]
    fn scaling_leaves_nodata_alone() {
        let scale = Scale { from: (0.0, 1000.0), to: (1.0, 255.0) };
        let cast = Cast::new(SampleType::U16, SampleType::U8, Some(scale), Some((9999.0, 0.0)));
        let raw: Vec<u8> = [0_u16, 500, 1000, 2000, 9999].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut out = [0; 5];
        cast.run(&raw, &mut out);
        assert_eq!(out, [1, 128, 255, 255, 0]);
    }

    #[test]
    fn complex_numbers_keep_their_imaginary_part_or_lose_it() {
        let raw: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(one(SampleType::CF32, SampleType::F32, None, &raw), raw[..4]);
        let wide: Vec<u8> = [1.5_f64, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(one(SampleType::CF32, SampleType::CF64, None, &raw), wide);
    }
}
