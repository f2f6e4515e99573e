//! Numbers as GDAL prints them into its own tags: C's `%.17g`.

/// C's `%.17g`: seventeen significant digits, which give every double back, without trailing zeros.
#[must_use]
pub fn g17(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
}

fn trimmed(text: &str) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
}

/// The text of tag 42113 for a no-data value, without the closing NUL: whole numbers of the 64-bit types in full, all
/// others as GDAL prints doubles (`-9999`, `nan`, `-3.4028234663852886e+38`).
#[must_use]
pub fn nodata_text(value: impl Into<crate::geo::nodata::NodataValue>) -> String {
    match value.into() {
        crate::geo::nodata::NodataValue::Int(v) => v.to_string(),
        crate::geo::nodata::NodataValue::UInt(v) => v.to_string(),
        crate::geo::nodata::NodataValue::Float(v) => g17(v),
    }
}

impl From<f64> for crate::geo::nodata::NodataValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<i64> for crate::geo::nodata::NodataValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for crate::geo::nodata::NodataValue {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::UInt(value), Self::Int)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::nodata::{Nodata, NodataValue};

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

    #[test]
    fn every_double_comes_back() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(g17(value).parse::<f64>().unwrap().to_bits(), value.to_bits(), "{value:e}");
            }
        }
    }
}
