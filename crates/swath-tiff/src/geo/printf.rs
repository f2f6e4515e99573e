//! Prints numbers as C's `printf` does, which GDAL uses.

/// C's `%.17g`: seventeen significant digits without trailing zeros, from which every double can be parsed back.
#[must_use]
pub fn g17(value: f64) -> String {
    general(value, 17)
}

/// C's `%.15g`.
#[must_use]
pub fn g15(value: f64) -> String {
    general(value, 15)
}

fn general(value: f64, digits: i32) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let fraction_digits = usize::try_from(digits - 1).unwrap_or(0);
    let scientific = format!("{value:.fraction_digits$e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..digits).contains(&exponent) {
        let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.unsigned_abs())
}

fn without_trailing_zeros(text: &str) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn prints_numbers_as_c_does() {
        let cases = [
            (0.1, "0.1"),
            (1e-5, "1e-05"),
            (123456.789, "123456.789"),
            (1.5e20, "1.5e+20"),
            (-0.00012, "-0.00012"),
            (1e15, "1e+15"),
            (99999999999999.9, "99999999999999.9"),
        ];
        for (v, expected) in cases {
            assert_eq!(g15(v), expected);
        }
    }
}
