//! Parses numbers as GDAL does in side files: the longest prefix of the text that is a number, sometimes with a decimal comma.

/// The accepted decimal separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimal {
    /// `1.5` only; `1,5` reads as 1. GDAL reads PAM files in this way.
    Point,
    /// Whichever of `.` and `,` comes first. GDAL reads world files, and the scale and offset in its TIFF tag, in this way.
    PointOrComma,
}

/// The number at the start of `text` and the text after it; `None` where there are no digits.
///
/// GDAL reads such text as 0. A scale or nodata of 0 that the file does not state is worse than none, so callers report the text as
/// a problem instead.
pub(crate) fn split(text: &str, decimal: Decimal) -> Option<(f64, &str)> {
    let text = text.trim_start_matches(is_space);
    let bytes = text.as_bytes();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    if let Some((value, word_len)) = special(text.get(sign..)?) {
        let value = if bytes.first() == Some(&b'-') { -value } else { value };
        return Some((value, text.get(sign + word_len..)?));
    }

    let mut mantissa = String::new();
    let mut at = sign;
    let mut digits = 0_usize;
    let mut seen_mark = false;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => {
                mantissa.push(char::from(byte));
                digits += 1;
            }
            b'.' if !seen_mark => {
                mantissa.push('.');
                seen_mark = true;
            }
            b',' if !seen_mark && decimal == Decimal::PointOrComma => {
                mantissa.push('.');
                seen_mark = true;
            }
            _ => break,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    let exponent_len = exponent_len(bytes.get(at..)?);
    mantissa.push_str(text.get(at..at + exponent_len)?);
    let value: f64 = mantissa.parse().ok()?;
    let value = if bytes.first() == Some(&b'-') { -value } else { value };
    Some((value, text.get(at + exponent_len..)?))
}

/// [`split`] without the rest.
pub(crate) fn prefix(text: &str, decimal: Decimal) -> Option<f64> {
    split(text, decimal).map(|(value, _)| value)
}

/// The integer at the start of `text`, as C's `atoi` sees it; an overflow is `None`, where C has no answer.
pub(crate) fn integer_prefix(text: &str) -> Option<i64> {
    let text = text.trim_start_matches(is_space);
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text.get(sign..)?.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..sign + digits)?.parse().ok()
}

/// White space as C's `isspace` has it: vertical tab included, Unicode spaces not.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

fn exponent_len(bytes: &[u8]) -> usize {
    if !matches!(bytes.first(), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = usize::from(matches!(bytes.get(1), Some(b'+' | b'-')));
    let digits = bytes.iter().skip(1 + sign).take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 { 0 } else { 1 + sign + digits }
}

/// Infinity and NaN, also as old Microsoft runtimes printed them (`1.#INF`), which are still found in files.
fn special(text: &str) -> Option<(f64, usize)> {
    const WORDS: [(&str, f64); 7] = [
        ("infinity", f64::INFINITY),
        ("inf", f64::INFINITY),
        ("nan", f64::NAN),
        ("1.#inf", f64::INFINITY),
        ("1.#qnan", f64::NAN),
        ("1.#snan", f64::NAN),
        ("1.#ind", f64::NAN),
    ];
    WORDS
        .into_iter()
        .find(|(word, _)| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word)))
        .map(|(word, value)| (value, word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_prefix_gdal_reads() {
        for (text, want) in [
            ("1.5e2", 150.0),
            ("+.5", 0.5),
            ("5.e1", 50.0),
            ("1e", 1.0),
            ("1d2", 1.0),
            ("0x10", 0.0),
            ("1,234.5", 1.234),
            ("1.234,5", 1.234),
            (" \n-2 m", -2.0),
            ("1e400", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1.#INF", f64::INFINITY),
        ] {
            assert_eq!(prefix(text, Decimal::PointOrComma), Some(want), "{text}");
        }
        assert!(prefix("-1.#QNAN", Decimal::Point).is_some_and(f64::is_nan));
        assert_eq!(prefix("1,5", Decimal::Point), Some(1.0));
    }

    #[test]
    fn text_without_digits_is_not_zero() {
        for text in ["", " ", "abc", "-", ".", "+,", "e5", "é", "-é"] {
            assert_eq!(prefix(text, Decimal::PointOrComma), None, "{text}");
        }
    }

    #[test]
    fn integer_past_64_bits_is_refused_not_wrapped() {
        assert_eq!(integer_prefix("99999999999999999999"), None);
        assert_eq!(integer_prefix(" 12x"), Some(12));
        assert_eq!(integer_prefix("+0"), Some(0));
        assert_eq!(integer_prefix("-2"), Some(-2));
        assert_eq!(integer_prefix("é"), None);
    }
}
