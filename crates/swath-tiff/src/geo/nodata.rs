//! GDAL_NODATA (tag 42113): the sample value that marks missing data, stored as text.

use crate::{geo::printf::g17, sample::SampleType};

/// A no-data value, in the type that holds it exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum NodataValue {
    /// A whole number, written without point or exponent.
    Int(i64),
    /// A whole number above `i64`.
    UInt(u64),
    /// Any other number, including NaN and the infinities.
    Float(f64),
}

/// The no-data value of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Nodata {
    /// The tag's text, without NULs and surrounding space.
    pub text: String,
    /// The value.
    pub value: NodataValue,
}

/// The no-data value that a side file states.
#[derive(Clone, Debug, PartialEq)]
pub struct SideNodata {
    /// As written. For 64-bit integers only the text is exact.
    pub text: String,
    /// Its value, from the bits in `le_hex_equiv` if given: GDAL adds them because the decimals can be inexact.
    pub value: f64,
}

impl Nodata {
    /// Parses the tag's bytes. `None` where they hold no number: then the image has no no-data value. (GDAL reads such text as 0,
    /// which would mask valid zeros.)
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..end)?);
        let text = text.trim();
        let value = special(text)
            .map(NodataValue::Float)
            .or_else(|| whole(text))
            .or_else(|| decimal(text).map(NodataValue::Float))?;
        // The text is shown to users, and no number needs more characters.
        Some(Self { text: text.chars().take(64).collect(), value })
    }

    /// The value as a double, exact up to 2⁵³.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        match self.value {
            NodataValue::Int(v) => v as f64,
            NodataValue::UInt(v) => v as f64,
            NodataValue::Float(v) => v,
        }
    }

    /// The native-endian bytes of a sample of this type that equals the value; `None` where no sample can (300, 1.5 or NaN in
    /// bytes): then every sample is data, as in GDAL. For complex types these are the bytes of the real component, which is all that
    /// GDAL compares.
    ///
    /// Floats are rounded to the type. `f32::MAX` written with too few digits lands above it; like GDAL, this accepts values within
    /// 1 part in 10¹⁰ as the maximum.
    ///
    /// NaN gives the bytes of one of many NaNs: compare samples as NaN, not by bytes.
    #[must_use]
    pub fn for_dtype(&self, dtype: SampleType) -> Option<NativeBytes> {
        let int = self.exact_int();
        macro_rules! int {
            ($t:ty) => {
                int.and_then(|v| <$t>::try_from(v).ok()).map(|v| NativeBytes::new(&v.to_ne_bytes()))
            };
        }
        match dtype {
            SampleType::U8 => int!(u8),
            SampleType::I8 => int!(i8),
            SampleType::U16 => int!(u16),
            SampleType::I16 | SampleType::CI16 => int!(i16),
            SampleType::U32 => int!(u32),
            SampleType::I32 | SampleType::CI32 => int!(i32),
            SampleType::U64 => int!(u64),
            SampleType::I64 => int!(i64),
            SampleType::F16 | SampleType::CF16 => Some(NativeBytes::new(&f16_bits(self.as_f64()).to_ne_bytes())),
            SampleType::F32 | SampleType::CF32 => Some(NativeBytes::new(&to_f32(self.as_f64()).to_ne_bytes())),
            SampleType::F64 | SampleType::CF64 => Some(NativeBytes::new(&self.as_f64().to_ne_bytes())),
        }
    }

    /// The native-endian bytes that fill a tile without data: the value, rounded and clamped to the type as by GDAL's copy. 300 in
    /// bytes is 255, and NaN in whole numbers is 0.
    #[must_use]
    pub fn fill(&self, dtype: SampleType) -> NativeBytes {
        if let Some(exact) = self.for_dtype(dtype) {
            return exact;
        }
        // Only integer types get here, since float types hold every value.
        let whole = match self.value {
            NodataValue::Int(v) => i128::from(v),
            NodataValue::UInt(v) => i128::from(v),
            // `as` saturates, and turns NaN into 0.
            NodataValue::Float(v) => (v + 0.5f64.copysign(v)).trunc() as i128,
        };
        macro_rules! clamped {
            ($t:ty) => {
                NativeBytes::new(&(whole.clamp(<$t>::MIN.into(), <$t>::MAX.into()) as $t).to_ne_bytes())
            };
        }
        match dtype {
            SampleType::U8 => clamped!(u8),
            SampleType::I8 => clamped!(i8),
            SampleType::U16 => clamped!(u16),
            SampleType::I16 | SampleType::CI16 => clamped!(i16),
            SampleType::U32 => clamped!(u32),
            SampleType::U64 => clamped!(u64),
            SampleType::I64 => clamped!(i64),
            _ => clamped!(i32),
        }
    }

    fn exact_int(&self) -> Option<i128> {
        match self.value {
            NodataValue::Int(v) => Some(i128::from(v)),
            NodataValue::UInt(v) => Some(i128::from(v)),
            // `as` saturates on overflow and turns NaN into 0; neither converts back to `v`.
            NodataValue::Float(v) => Some(v as i128).filter(|&i| i as f64 == v),
        }
    }
}

/// The text of tag 42113 for a no-data value, without the final NUL: whole numbers of the 64-bit types in full, all others as GDAL
/// prints doubles (`-9999`, `nan`, `-3.4028234663852886e+38`).
#[must_use]
pub fn nodata_text(value: impl Into<NodataValue>) -> String {
    match value.into() {
        NodataValue::Int(v) => v.to_string(),
        NodataValue::UInt(v) => v.to_string(),
        NodataValue::Float(v) => g17(v),
    }
}

impl From<f64> for NodataValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<i64> for NodataValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for NodataValue {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::UInt(value), Self::Int)
    }
}

/// Up to eight bytes of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeBytes {
    bytes: [u8; 8],
    len: usize,
}

impl NativeBytes {
    fn new(from: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Self { bytes, len: from.len().min(8) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Parses NaN and infinity in the spellings of C libraries, including old ones of Microsoft.
fn special(text: &str) -> Option<f64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    let starts = |p: &str| rest.get(..p.len()).is_some_and(|r| r.eq_ignore_ascii_case(p));
    if ["nan", "1.#QNAN", "1.#SNAN", "1.#IND", "1.#NAN"].iter().any(|p| starts(p)) {
        Some(f64::NAN)
    } else if starts("inf") || starts("1.#INF") {
        Some(sign * f64::INFINITY)
    } else {
        None
    }
}

/// Parses a whole number exactly, since doubles cannot hold all 64-bit ones.
fn whole(text: &str) -> Option<NodataValue> {
    let signed = text.parse().ok().map(NodataValue::Int);
    signed.or_else(|| text.parse().ok().map(NodataValue::UInt))
}

/// Parses the number at the start of the text as C's `strtod` does, but accepts a decimal comma.
fn decimal(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let at = |i: usize| bytes.get(i).copied().unwrap_or(0);
    let digits = |mut i: usize| {
        while at(i).is_ascii_digit() {
            i += 1;
        }
        i
    };
    let start = usize::from(matches!(at(0), b'+' | b'-'));
    let mut end = digits(start);
    let mut count = end - start;
    if matches!(at(end), b'.' | b',') {
        let fraction = digits(end + 1);
        count += fraction - end - 1;
        end = fraction;
    }
    if count == 0 {
        return None;
    }
    if matches!(at(end), b'e' | b'E') {
        let sign = usize::from(matches!(at(end + 1), b'+' | b'-'));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    text.get(..end)?.replace(',', ".").parse().ok()
}

fn to_f32(value: f64) -> f32 {
    let max = f64::from(f32::MAX);
    if value.abs() > max && value.abs() - max <= 1e-10 * max { f32::MAX.copysign(value as f32) } else { value as f32 }
}

/// Rounds a double to half precision, ties to even. A conversion through single precision would round twice.
fn f16_bits(value: f64) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 48) & 0x8000) as u16;
    let size = value.abs();
    if value.is_nan() {
        return sign | 0x7e00;
    }
    // Halfway between the largest half (65504) and the next step.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // The size in units of the last place: 2⁻²⁴ below the normal range, else 2⁻¹⁰ of the power of two. Scaling by a power of two is
    // exact.
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let exponent = exponent.max(-14);
    let units = (size * 2f64.powi(10 - exponent)).round_ties_even() as u32;
    let biased = if units < 1024 && exponent == -14 { 0 } else { (exponent + 14) as u32 };
    // A mantissa that rounds up to 2048 carries into the exponent.
    sign | ((biased << 10) + units) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<f64> {
        Nodata::parse(text.as_bytes()).map(|n| n.as_f64())
    }

    fn bytes(text: &str, dtype: SampleType) -> Option<Vec<u8>> {
        Nodata::parse(text.as_bytes()).unwrap().for_dtype(dtype).map(|b| b.as_slice().to_vec())
    }

    #[test]
    fn reads_every_spelling_of_nan_and_infinity() {
        for text in ["nan", "NaN", "-nan", "NAN", "nan(ind)", "1.#QNAN", "-1.#IND", "1.#SNAN", " nan\0", "-1.#QNAN0"] {
            assert!(value(text).unwrap().is_nan(), "{text}");
        }
        for text in ["inf", "INF", "+inf", "Infinity", "1.#INF", "1e400"] {
            assert_eq!(value(text), Some(f64::INFINITY), "{text}");
        }
        for text in ["-inf", "-1.#INF", "-Infinity"] {
            assert_eq!(value(text), Some(f64::NEG_INFINITY), "{text}");
        }
    }

    #[test]
    fn reads_numbers_with_space_nul_comma_and_tail() {
        let cases =
            [(" 7 ", 7.0), ("7\0junk", 7.0), ("1,5", 1.5), ("7abc", 7.0), ("1e", 1.0), (".5", 0.5), ("5.", 5.0)];
        for (text, expected) in cases.into_iter().chain([
            ("-9999.000000", -9999.0),
            ("0x10", 0.0),
            ("-3.40282306074e+038", -3.40282306074e38),
        ]) {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn text_without_a_number_is_no_value_rather_than_zero() {
        for text in ["", "   ", "\0", "none", "abc", "--7", ".", "-", "e5"] {
            assert_eq!(value(text), None, "{text:?}");
        }
    }

    #[test]
    fn keeps_64_bit_integers_exact() {
        assert_eq!(bytes("18446744073709551615", SampleType::U64), Some(u64::MAX.to_ne_bytes().to_vec()));
        assert_eq!(bytes("-9223372036854775808", SampleType::I64), Some(i64::MIN.to_ne_bytes().to_vec()));
        assert_eq!(bytes("9007199254740993", SampleType::I64), Some(9_007_199_254_740_993_i64.to_ne_bytes().to_vec()));
    }

    #[test]
    fn values_no_sample_can_hold_have_no_bytes() {
        for (text, dtype) in [
            ("256", SampleType::U8),
            ("-1", SampleType::U16),
            ("1.5", SampleType::I32),
            ("nan", SampleType::U8),
            ("1e400", SampleType::I64),
            ("9223372036854775808", SampleType::I64),
        ] {
            assert_eq!(bytes(text, dtype), None, "{text}");
        }
        assert_eq!(bytes("-9999.0", SampleType::I16), Some((-9999_i16).to_ne_bytes().to_vec()));
        assert_eq!(bytes("-128", SampleType::I8), Some(vec![0x80]));
    }

    #[test]
    fn text_slightly_above_float_max_means_float_max() {
        assert_eq!(bytes("3.40282346638528898e+38", SampleType::F32), Some(f32::MAX.to_ne_bytes().to_vec()));
        assert_eq!(bytes("-3.40282346639e+38", SampleType::F32), Some(f32::MIN.to_ne_bytes().to_vec()));
        assert_eq!(bytes("1e39", SampleType::F32), Some(f32::INFINITY.to_ne_bytes().to_vec()));
        assert_eq!(bytes("0.1", SampleType::CF32), Some(0.1_f32.to_ne_bytes().to_vec()));
    }

    #[test]
    fn rounds_to_half_precision_once_and_to_even() {
        let cases = [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (65504.0, 0x7bff),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (-9999.0, 0xf0e2),
        ];
        let small = [
            (6.103_515_625e-5, 0x0400),
            (5.960_464_477_539_063e-8, 1),
            (2.980_232_238_769_53e-8, 0),
            (6.1e-5, 0x03ff),
            (2049.0, 0x6800),
            (2051.0, 0x6802),
        ];
        for (v, expected) in cases.into_iter().chain(small) {
            assert_eq!(f16_bits(v), expected, "{v}");
        }
        assert_eq!(f16_bits(f64::NAN) & 0x7fff, 0x7e00);
    }

    #[test]
    fn prints_what_gdal_prints() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (-9999.0, "-9999"),
            (1e20, "1e+20"),
            (0.1, "0.10000000000000001"),
            (1.0 / 3.0, "0.33333333333333331"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (1.5e-7, "1.4999999999999999e-07"),
            (f64::from(f32::MIN), "-3.4028234663852886e+38"),
            (1e300, "1.0000000000000001e+300"),
            (123_456.789, "123456.789"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(nodata_text(value), text);
        }
        assert_eq!(nodata_text(f64::NAN), "nan");
    }

    #[test]
    fn whole_numbers_of_64_bits_keep_every_digit() {
        for text in ["9223372036854775807", "-9223372036854775808", "18446744073709551615"] {
            let value = Nodata::parse(text.as_bytes()).unwrap().value;
            assert_eq!(nodata_text(value), text);
        }
        assert_eq!(nodata_text(u64::MAX), "18446744073709551615");
        assert_eq!(NodataValue::from(7_u64), NodataValue::Int(7));
    }
}
