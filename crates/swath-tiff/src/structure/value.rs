//! The types and values of tags.

use std::fmt;

use crate::structure::header::ByteOrder;

/// Type of a tag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum FieldType {
    Byte,
    Ascii,
    Short,
    Long,
    Rational,
    SByte,
    Undefined,
    SShort,
    SLong,
    SRational,
    Float,
    Double,
    Ifd,
    Long8,
    SLong8,
    Ifd8,
    /// A number that the format does not define, so that its size is unknown.
    Unknown(u16),
}

impl FieldType {
    /// The type with this number in the file.
    pub fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Byte,
            2 => Self::Ascii,
            3 => Self::Short,
            4 => Self::Long,
            5 => Self::Rational,
            6 => Self::SByte,
            7 => Self::Undefined,
            8 => Self::SShort,
            9 => Self::SLong,
            10 => Self::SRational,
            11 => Self::Float,
            12 => Self::Double,
            13 => Self::Ifd,
            16 => Self::Long8,
            17 => Self::SLong8,
            18 => Self::Ifd8,
            other => Self::Unknown(other),
        }
    }

    /// Its number in the file.
    pub fn code(self) -> u16 {
        match self {
            Self::Byte => 1,
            Self::Ascii => 2,
            Self::Short => 3,
            Self::Long => 4,
            Self::Rational => 5,
            Self::SByte => 6,
            Self::Undefined => 7,
            Self::SShort => 8,
            Self::SLong => 9,
            Self::SRational => 10,
            Self::Float => 11,
            Self::Double => 12,
            Self::Ifd => 13,
            Self::Long8 => 16,
            Self::SLong8 => 17,
            Self::Ifd8 => 18,
            Self::Unknown(code) => code,
        }
    }

    /// Bytes of one value; 0 for unknown types.
    pub fn size(self) -> u64 {
        match self {
            Self::Byte | Self::Ascii | Self::SByte | Self::Undefined => 1,
            Self::Short | Self::SShort => 2,
            Self::Long | Self::SLong | Self::Float | Self::Ifd => 4,
            Self::Rational | Self::SRational | Self::Double | Self::Long8 | Self::SLong8 | Self::Ifd8 => 8,
            Self::Unknown(_) => 0,
        }
    }

    /// Name as the specification writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Byte => "BYTE",
            Self::Ascii => "ASCII",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Rational => "RATIONAL",
            Self::SByte => "SBYTE",
            Self::Undefined => "UNDEFINED",
            Self::SShort => "SSHORT",
            Self::SLong => "SLONG",
            Self::SRational => "SRATIONAL",
            Self::Float => "FLOAT",
            Self::Double => "DOUBLE",
            Self::Ifd => "IFD",
            Self::Long8 => "LONG8",
            Self::SLong8 => "SLONG8",
            Self::Ifd8 => "IFD8",
            Self::Unknown(_) => "unknown type",
        }
    }

    /// Whether values are whole numbers.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Byte
                | Self::SByte
                | Self::Short
                | Self::SShort
                | Self::Long
                | Self::SLong
                | Self::Ifd
                | Self::Long8
                | Self::SLong8
                | Self::Ifd8
        )
    }
}

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Text. Several strings are separated by NUL in the file and joined by a line feed here.
    Text(String),
    /// Opaque bytes, or bytes of an unknown type.
    Raw(Vec<u8>),
    /// Whole numbers. 128 bits hold every signed and unsigned 64-bit number.
    Integers(Vec<i128>),
    /// Floats and rationals.
    Floats(Vec<f64>),
}

impl Value {
    /// Decodes `bytes`, which hold values of type `kind` and nothing else.
    pub fn decode(kind: FieldType, order: ByteOrder, bytes: &[u8]) -> Self {
        let integers =
            |size: usize, read: &dyn Fn(&[u8]) -> i128| Self::Integers(bytes.chunks_exact(size).map(read).collect());
        let floats =
            |size: usize, read: &dyn Fn(&[u8]) -> f64| Self::Floats(bytes.chunks_exact(size).map(read).collect());
        let denominator = |raw: &[u8]| raw.get(4..).map_or(0, |tail| order.u32(tail));
        match kind {
            FieldType::Ascii => Self::Text(text(bytes)),
            FieldType::Undefined | FieldType::Unknown(_) => Self::Raw(bytes.to_vec()),
            // Each value takes sixteen bytes as a number, and nothing reads long lists of bytes one by one.
            FieldType::Byte | FieldType::SByte if bytes.len() > 1 << 16 => Self::Raw(bytes.to_vec()),
            FieldType::Byte => integers(1, &|raw| raw.first().copied().unwrap_or_default().into()),
            FieldType::SByte => integers(1, &|raw| i128::from(raw.first().copied().unwrap_or_default() as i8)),
            FieldType::Short => integers(2, &|raw| order.u16(raw).into()),
            FieldType::SShort => integers(2, &|raw| i128::from(order.u16(raw) as i16)),
            FieldType::Long | FieldType::Ifd => integers(4, &|raw| order.u32(raw).into()),
            FieldType::SLong => integers(4, &|raw| i128::from(order.u32(raw) as i32)),
            FieldType::Long8 | FieldType::Ifd8 => integers(8, &|raw| order.u64(raw).into()),
            FieldType::SLong8 => integers(8, &|raw| i128::from(order.u64(raw) as i64)),
            FieldType::Float => floats(4, &|raw| f64::from(f32::from_bits(order.u32(raw)))),
            FieldType::Double => floats(8, &|raw| f64::from_bits(order.u64(raw))),
            // 0/0 is 0, as in libtiff.
            FieldType::Rational => floats(8, &|raw| match order.u32(raw) {
                0 => 0.0,
                numerator => f64::from(numerator) / f64::from(denominator(raw)),
            }),
            FieldType::SRational => floats(8, &|raw| match order.u32(raw) as i32 {
                0 => 0.0,
                numerator => f64::from(numerator) / f64::from(denominator(raw) as i32),
            }),
        }
    }

    /// Number of values (bytes for raw, 1 for text).
    pub fn len(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Raw(raw) => raw.len(),
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values as floats; `None` where they are not numbers.
    pub fn to_floats(&self) -> Option<Vec<f64>> {
        match self {
            Self::Integers(values) => Some(values.iter().map(|value| *value as f64).collect()),
            Self::Floats(values) => Some(values.clone()),
            _ => None,
        }
    }
}

/// Decodes text. Writers pad with NULs, and some store Latin-1 instead of UTF-8.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = bytes.get(..end).unwrap_or_default();
    let decoded = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    };
    decoded.replace('\0', "\n")
}

impl fmt::Display for Value {
    /// Prints at most one line: a long list is cut and followed by its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, values: &[T]) -> fmt::Result {
            for (index, value) in values.iter().take(16).enumerate() {
                write!(f, "{}{value}", if index == 0 { "" } else { " " })?;
            }
            if values.len() > 16 { write!(f, " … ({} values)", values.len()) } else { Ok(()) }
        }
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Raw(raw) => write!(f, "{} bytes", raw.len()),
            Self::Integers(values) => list(f, values),
            Self::Floats(values) => list(f, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rational_with_zero_denominator_is_not_a_panic() {
        let value = Value::decode(FieldType::Rational, ByteOrder::Little, &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(value, Value::Floats(vec![f64::INFINITY]));
    }

    #[test]
    fn latin1_text_is_kept() {
        assert_eq!(text(b"Z\xfcrich\0\0"), "Zürich");
    }
}
