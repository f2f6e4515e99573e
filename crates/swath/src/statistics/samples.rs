//! Decoded samples as numbers, whatever their type.

use swath_raster::half;
use swath_tiff::SampleType;

use crate::describe::number::Exact;

/// A sample as a number. Complex samples are visited as their magnitude.
pub trait Number: Copy + PartialOrd + Send + Sync {
    /// The nearest double.
    fn to_f64(self) -> f64;
    /// With every bit.
    fn exact(self) -> Exact;
}

macro_rules! numbers {
    ($($int:ty),*; $($float:ty),*) => {
        $(impl Number for $int {
            fn to_f64(self) -> f64 { self as f64 }
            fn exact(self) -> Exact { Exact::Int(self.into()) }
        })*
        $(impl Number for $float {
            fn to_f64(self) -> f64 { self.into() }
            fn exact(self) -> Exact { Exact::Float(self.into()) }
        })*
    };
}
numbers!(u8, i8, u16, i16, u32, i32, u64, i64; f32, f64);

/// Work on samples of any type.
pub trait Visit {
    /// The result.
    type Out;
    /// Does the work: `samples` are native bytes, `read` converts each to a number.
    fn visit<const N: usize, T: Number>(
        self,
        samples: &[[u8; N]],
        read: impl Fn([u8; N]) -> T + Copy + Sync,
    ) -> Self::Out;
}

/// Visits samples; `None` for a type that is not known here.
pub fn visit<V: Visit>(sample: SampleType, bytes: &[u8], visitor: V) -> Option<V::Out> {
    macro_rules! plain {
        ($t:ty) => {
            visitor.visit(bytes.as_chunks().0, <$t>::from_ne_bytes)
        };
    }
    Some(match sample {
        SampleType::U8 => plain!(u8),
        SampleType::I8 => plain!(i8),
        SampleType::U16 => plain!(u16),
        SampleType::I16 => plain!(i16),
        SampleType::U32 => plain!(u32),
        SampleType::I32 => plain!(i32),
        SampleType::U64 => plain!(u64),
        SampleType::I64 => plain!(i64),
        SampleType::F16 => visitor.visit(bytes.as_chunks().0, |raw| half_to_float(u16::from_ne_bytes(raw))),
        SampleType::F32 => plain!(f32),
        SampleType::F64 => plain!(f64),
        SampleType::CI16 | SampleType::CF16 => {
            let half = sample == SampleType::CF16;
            visitor.visit(bytes.as_chunks().0, move |[a, b, c, d]: [u8; 4]| {
                let word = |raw: [u8; 2]| {
                    if half { half_to_float(u16::from_ne_bytes(raw)).into() } else { i16::from_ne_bytes(raw).into() }
                };
                magnitude(word([a, b]), word([c, d]))
            })
        }
        SampleType::CI32 | SampleType::CF32 => {
            let float = sample == SampleType::CF32;
            visitor.visit(bytes.as_chunks().0, move |[a, b, c, d, e, f, g, h]: [u8; 8]| {
                let word =
                    |raw: [u8; 4]| if float { f32::from_ne_bytes(raw).into() } else { i32::from_ne_bytes(raw).into() };
                magnitude(word([a, b, c, d]), word([e, f, g, h]))
            })
        }
        SampleType::CF64 => visitor.visit(bytes.as_chunks().0, |raw: [u8; 16]| {
            let bits = u128::from_ne_bytes(raw);
            // Which half is the real part does not matter to a magnitude.
            magnitude(f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64))
        }),
        _ => return None,
    })
}

/// The magnitude of a complex number. The operations of `hypot` differ from library to library; these are rounded in one way
/// everywhere, so a GPU finds the same (`swath-cuda/kernels/summary/number.cuh`).
fn magnitude(real: f64, imaginary: f64) -> f64 {
    /// 2^500 and 2^600: squares of numbers in between neither overflow nor vanish.
    const HUGE: f64 = f64::from_bits((1023 + 500) << 52);
    const SCALE: f64 = f64::from_bits((1023 + 600) << 52);
    let (a, b) = (real.abs(), imaginary.abs());
    if a == f64::INFINITY || b == f64::INFINITY {
        return f64::INFINITY;
    }
    let larger = if a > b { a } else { b };
    let (scale, back) = match larger {
        larger if larger > HUGE => (1.0 / SCALE, SCALE),
        larger if larger < 1.0 / HUGE => (SCALE, 1.0 / SCALE),
        _ => (1.0, 1.0),
    };
    let (x, y) = (a * scale, b * scale);
    (x * x + y * y).sqrt() * back
}

/// Distinguishes nodata samples from data.
#[derive(Debug, Clone, Copy)]
pub enum Missing<'a, T> {
    /// There is no nodata value, or no sample of this type can have it.
    Never,
    /// A sample equal to this one. Not by bytes: -0.0 is nodata where 0 is.
    Value(T),
    /// A complex sample whose real part has these bytes: GDAL compares no more than that.
    Real(&'a [u8]),
}

impl<'a, T: Number> Missing<'a, T> {
    /// From the nodata value's bytes.
    pub fn new<const N: usize>(nodata: Option<&'a [u8]>, read: impl Fn([u8; N]) -> T) -> Self {
        match nodata {
            None => Self::Never,
            Some(bytes) => match <[u8; N]>::try_from(bytes) {
                Ok(raw) => Self::Value(read(raw)),
                Err(_) => Self::Real(bytes),
            },
        }
    }

    /// Whether this sample is data. NaN never is.
    pub fn is_data<const N: usize>(&self, raw: &[u8; N], value: T) -> bool {
        // Only NaN is not equal to itself.
        #[allow(clippy::eq_op)]
        let number = value == value;
        number
            && match self {
                Self::Never => true,
                Self::Value(nodata) => value != *nodata,
                Self::Real(nodata) => raw.get(..nodata.len()) != Some(nodata),
            }
    }
}

/// Samples as doubles; nodata and NaN become NaN.
pub struct ToFloats<'a> {
    /// Bytes of the nodata value.
    pub nodata: Option<&'a [u8]>,
    /// Receives the samples; earlier content is replaced.
    pub out: &'a mut Vec<f64>,
}

impl Visit for ToFloats<'_> {
    type Out = ();

    fn visit<const N: usize, T: Number>(self, samples: &[[u8; N]], read: impl Fn([u8; N]) -> T + Copy + Sync) {
        let missing = Missing::new(self.nodata, read);
        self.out.clear();
        self.out.extend(samples.iter().map(|raw| {
            let value = read(*raw);
            if missing.is_data(raw, value) { value.to_f64() } else { f64::NAN }
        }));
    }
}

/// The value of half-precision bits; every half has an exact single.
pub fn half_to_float(bits: u16) -> f32 {
    half::widen(bits) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(sample: SampleType, bytes: &[u8], nodata: Option<&[u8]>) -> Vec<f64> {
        let mut out = Vec::new();
        visit(sample, bytes, ToFloats { nodata, out: &mut out });
        out
    }

    #[test]
    fn halves_keep_their_value() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f32.powi(-24)), (0x7bff, 65504.0), (0x7c00, f32::INFINITY)]
        {
            assert_eq!(half_to_float(bits), value);
        }
        assert!(half_to_float(0x7e00).is_nan());
    }

    #[test]
    fn minus_zero_is_nodata_where_zero_is() {
        let bytes: Vec<u8> = [-0.0f32, 1.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = floats(SampleType::F32, &bytes, Some(&0f32.to_ne_bytes()));
        assert!(found[0].is_nan());
        assert_eq!(found[1], 1.0);
    }

    #[test]
    fn magnitudes_neither_overflow_nor_vanish() {
        for (a, b) in [(3.0, 4.0), (-5e-324, 0.0), (3e300, -4e300), (3e-300, 4e-300), (0.0, -0.0), (f64::MAX, 1.0)] {
            let (found, wanted) = (magnitude(a, b), f64::hypot(a, b));
            assert!((found - wanted).abs() <= wanted * f64::EPSILON, "{a} {b}: {found} and {wanted}");
        }
        assert_eq!(magnitude(f64::NAN, f64::NEG_INFINITY), f64::INFINITY);
        assert!(magnitude(f64::NAN, 1.0).is_nan() && magnitude(1e300, f64::NAN).is_nan());
    }

    #[test]
    fn complex_samples_are_magnitudes_and_nodata_by_their_real_part() {
        let bytes: Vec<u8> = [3i16, 4, -1, 7].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let found = floats(SampleType::CI16, &bytes, Some(&(-1i16).to_ne_bytes()));
        assert_eq!(found[0], 5.0);
        assert!(found[1].is_nan());
    }
}
