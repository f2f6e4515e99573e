//! Converts samples of one type to another, as GDAL does.

use swath_raster::half;
use swath_tiff::{
    SampleType,
    geo::{Nodata, nodata::NativeBytes},
};

use crate::error::Error;

/// A linear scale: `from` becomes `to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Smallest and largest value before.
    pub from: (f64, f64),
    /// Smallest and largest value after.
    pub to: (f64, f64),
}

impl Scale {
    /// Scales a value. As in GDAL, values outside of `from` are scaled too; only the sample type clamps them.
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
    hole: Option<Hole>,
    /// The value for NaN where the new type has none.
    nan: Option<NativeBytes>,
}

/// Nodata before and after: a value that is neither scaled nor rounded.
#[derive(Debug, Clone)]
struct Hole {
    float: f64,
    whole: Option<i128>,
    becomes: NativeBytes,
}

impl Cast {
    /// Makes a conversion; `nodata`, before and after, is neither scaled nor rounded.
    pub(crate) fn new(
        from: SampleType,
        to: SampleType,
        scale: Option<Scale>,
        nodata: Option<(&Nodata, &Nodata)>,
    ) -> Self {
        let becomes = nodata.and_then(|(_, after)| after.for_dtype(to));
        let hole = nodata.zip(becomes).map(|((before, _), becomes)| {
            // The value as a sample holds it: 0.1 of 32 bits is not 0.1 of 64.
            let sample = before.for_dtype(from);
            Hole {
                float: sample.as_ref().map_or(before.as_f64(), |bytes| read_float(from, bytes.as_slice())),
                whole: sample.map(|bytes| read_whole(from, bytes.as_slice())),
                becomes,
            }
        });
        Self { from, to, scale, hole, nan: None }
    }

    /// Converts NaN to `nodata`, where the new type has no NaN.
    pub(crate) fn with_nan_as(mut self, nodata: Option<&Nodata>) -> Self {
        self.nan =
            nodata.filter(|_| self.from.is_float() && !self.to.is_float()).and_then(|nodata| nodata.for_dtype(self.to));
        self
    }

    /// Whether the conversion changes nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.from == self.to && self.scale.is_none() && self.hole.is_none()
    }

    /// Returns the first NaN that has no value in the new type. It ignores samples that the mask, which is repeated for each band,
    /// hides.
    pub(crate) fn lost_nan(&self, source: &[u8], mask: Option<&[u8]>) -> Option<usize> {
        if !self.from.is_float() || self.to.is_float() || self.nan.is_some() {
            return None;
        }
        // A real number is made of the real part alone.
        let len = if self.to.is_complex() { self.from.size() } else { self.from.word() };
        let is_nan = |sample: &[u8]| {
            sample
                .get(..len)
                .unwrap_or_default()
                .chunks(self.from.word())
                .any(|part| read_float(self.from, part).is_nan())
        };
        let shown = |index: usize| {
            mask.is_none_or(|mask| mask.is_empty() || mask.get(index % mask.len()).is_some_and(|byte| *byte != 0))
        };
        source.chunks_exact(self.from.size()).enumerate().position(|(index, sample)| is_nan(sample) && shown(index))
    }

    /// Converts all samples.
    ///
    /// # Errors
    /// When `target` has another number of samples than `source`.
    pub(crate) fn run(&self, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        let (from, to) = (self.from.size(), self.to.size());
        if !source.len().is_multiple_of(from) || target.len() != source.len() / from * to {
            let detail =
                format!("{} bytes of {} were converted to {} of {}", source.len(), self.from, target.len(), self.to);
            return Err(Error::internal(detail));
        }
        let whole = |sample: SampleType| !sample.is_float() && !sample.is_complex();
        if self.scale.is_none() && whole(self.from) && whole(self.to) {
            self.run_whole(source, target);
            return Ok(());
        }
        let (word, complex) = (self.to.word(), self.to.is_complex());
        for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
            let (real, imaginary) = source.split_at(self.from.word());
            let (first, second) = target.split_at_mut(word);
            self.turn(read_float(self.from, real), first);
            if complex {
                let imaginary = if imaginary.is_empty() { 0.0 } else { read_float(self.from, imaginary) };
                write_float(self.to, imaginary, second);
            }
        }
        Ok(())
    }

    fn turn(&self, value: f64, target: &mut [u8]) {
        let hole = self.hole.as_ref().filter(|hole| value == hole.float || (value.is_nan() && hole.float.is_nan()));
        match (hole.map(|hole| &hole.becomes).or(self.nan.as_ref().filter(|_| value.is_nan())), self.scale) {
            (Some(becomes), _) => target.copy_from_slice(becomes.as_slice()),
            (None, Some(scale)) => write_float(self.to, scale.apply(value), target),
            (None, None) => write_float(self.to, value, target),
        }
    }

    /// Converts whole numbers of 64 bits without floats.
    fn run_whole(&self, source: &[u8], target: &mut [u8]) {
        let hole = self.hole.as_ref().and_then(|hole| Some((hole.whole?, &hole.becomes)));
        let (from, to) = (self.from.size(), self.to.size());
        for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
            match (read_whole(self.from, source), hole) {
                (value, Some((before, becomes))) if value == before => target.copy_from_slice(becomes.as_slice()),
                (value, _) => write_whole(self.to, value, target),
            }
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

/// Writes the value, clamped to the type.
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

/// Writes the value, clamped to the type: halves are rounded away from zero, and NaN under a mask becomes 0.
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
    use crate::error::ErrorKind;

    fn one(from: SampleType, to: SampleType, scale: Option<Scale>, raw: &[u8]) -> Vec<u8> {
        let mut out = vec![0; raw.len() / from.size() * to.size()];
        Cast::new(from, to, scale, None).run(raw, &mut out).unwrap();
        out
    }

    fn nodata(text: &str) -> Nodata {
        Nodata::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn nan_becomes_nodata_or_an_error() {
        let raw: Vec<u8> = [1.0_f32, f32::NAN, 2.4].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let cast = Cast::new(SampleType::F32, SampleType::I16, None, None);
        assert_eq!(cast.lost_nan(&raw, None), Some(1));
        assert_eq!(cast.lost_nan(&raw, Some(&[255, 0, 255])), None);
        let cast = cast.with_nan_as(Some(&nodata("-5")));
        assert_eq!(cast.lost_nan(&raw, None), None);
        let mut out = [0; 6];
        cast.run(&raw, &mut out).unwrap();
        assert_eq!(out.as_chunks::<2>().0.iter().map(|raw| i16::from_ne_bytes(*raw)).collect::<Vec<_>>(), [1, -5, 2]);
        // Floats have NaN.
        let cast = Cast::new(SampleType::F32, SampleType::F64, None, None);
        assert_eq!(cast.lost_nan(&raw, None), None);
    }

    #[test]
    fn nodata_is_compared_as_rounded_by_the_sample_type() {
        let tenth = nodata("0.1");
        let cast = Cast::new(SampleType::F32, SampleType::F64, None, Some((&tenth, &tenth)));
        let mut out = [0; 8];
        cast.run(&0.1_f32.to_ne_bytes(), &mut out).unwrap();
        assert_eq!(f64::from_ne_bytes(out), 0.1);
    }

    #[test]
    fn nodata_of_64_bits_keeps_every_digit() {
        let (top, next) = (nodata("9223372036854775807"), nodata("18446744073709551614"));
        let cast = Cast::new(SampleType::I64, SampleType::U64, None, Some((&top, &next)));
        let raw: Vec<u8> = [i64::MAX, i64::MAX - 1].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut out = [0; 16];
        cast.run(&raw, &mut out).unwrap();
        let got: Vec<u64> = out.as_chunks::<8>().0.iter().map(|raw| u64::from_ne_bytes(*raw)).collect();
        assert_eq!(got, [u64::MAX - 1, i64::MAX as u64 - 1]);
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
        let cast = Cast::new(SampleType::U16, SampleType::U8, Some(scale), Some((&nodata("9999"), &nodata("0"))));
        let raw: Vec<u8> = [0_u16, 500, 1000, 2000, 9999].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut out = [0; 5];
        cast.run(&raw, &mut out).unwrap();
        assert_eq!(out, [1, 128, 255, 255, 0]);
    }

    #[test]
    fn a_target_of_another_length_is_an_internal_error() {
        for (to, scale) in [(SampleType::U8, None), (SampleType::F32, None)] {
            let cast = Cast::new(SampleType::U16, to, scale, None);
            for (source, target) in [(6, 4), (6, 2), (5, 2), (4, 3)] {
                let error = cast.run(&vec![0; source], &mut vec![0; target * to.size()]).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Internal(_)), "{error}");
            }
        }
    }

    #[test]
    fn complex_numbers_keep_their_imaginary_part_or_lose_it() {
        let raw: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(one(SampleType::CF32, SampleType::F32, None, &raw), raw[..4]);
        let wide: Vec<u8> = [1.5_f64, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(one(SampleType::CF32, SampleType::CF64, None, &raw), wide);
    }
}
