//! Numbers as people and JSON read them: the shortest text that gives the same number back.

use serde_json::{Number, Value};

/// A number that keeps every bit of a 64-bit integer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exact {
    /// A whole number.
    Int(i128),
    /// Any other.
    Float(f64),
}

impl Exact {
    /// As JSON.
    pub fn json(self) -> Value {
        match self {
            Self::Int(value) => {
                Number::from_i128(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
            }
            Self::Float(value) => json(value),
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

impl std::fmt::Display for Exact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => f.write_str(&text(*value)),
        }
    }
}

/// A number for people.
pub fn text(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else if size == 0.0 || (1e-5..1e16).contains(&size) {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}

/// A number for JSON, which has neither NaN nor infinities: they become the texts `"nan"`, `"inf"` and `"-inf"`.
pub fn json(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| Value::String(text(value)), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_as_short_as_can_be_and_give_the_same_number_back() {
        for value in [0.1, 1.0 / 3.0, 300.037_926_750_945_7, -3.402_823_466_385_288_6e38, 5e-324, 1e15, 0.0] {
            assert_eq!(text(value).parse::<f64>().ok(), Some(value));
            assert_eq!(json(value).as_f64(), Some(value));
        }
        assert_eq!(text(-3.402_823_466_385_288_6e38), "-3.4028234663852886e38");
        assert_eq!(text(30.0), "30");
    }

    #[test]
    fn json_has_text_for_nan_and_infinities() {
        assert_eq!(json(f64::NAN), "nan");
        assert_eq!(json(f64::NEG_INFINITY), "-inf");
    }

    #[test]
    fn whole_numbers_of_64_bits_stay_exact() {
        assert_eq!(Exact::Int(u64::MAX.into()).json().to_string(), "18446744073709551615");
        assert_eq!(Exact::Int(i64::MIN.into()).json().to_string(), "-9223372036854775808");
    }
}
