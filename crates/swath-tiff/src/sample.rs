//! The type of a sample, in the file and in memory.

use std::fmt;

/// How the bits of a sample are interpreted (tag 339, SampleFormat).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleFormat {
    /// Unsigned integer.
    Uint,
    /// Two's complement integer.
    Int,
    /// IEEE float.
    Float,
    /// Pair of integers.
    ComplexInt,
    /// Pair of floats.
    ComplexFloat,
}

impl SampleFormat {
    /// The format with this number. 4 means "undefined", which every reader treats as unsigned.
    pub fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            1 | 4 => Self::Uint,
            2 => Self::Int,
            3 => Self::Float,
            5 => Self::ComplexInt,
            6 => Self::ComplexFloat,
            _ => return None,
        })
    }

    /// The number to write.
    pub fn code(self) -> u16 {
        match self {
            Self::Uint => 1,
            Self::Int => 2,
            Self::Float => 3,
            Self::ComplexInt => 5,
            Self::ComplexFloat => 6,
        }
    }
}

/// The type of a decoded sample in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum SampleType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    CI16,
    CI32,
    CF16,
    CF32,
    CF64,
}

impl SampleType {
    /// Every type.
    pub const ALL: [Self; 16] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::CI16,
        Self::CI32,
        Self::CF16,
        Self::CF32,
        Self::CF64,
    ];

    /// The type that GDAL chooses for samples of `bits` bits; `None` where GDAL has none either.
    pub fn holding(bits: u16, format: SampleFormat) -> Option<Self> {
        use SampleFormat as F;
        Some(match (bits, format) {
            (8, F::Int) => Self::I8,
            (1..=8, F::Uint | F::Int) => Self::U8,
            (16, F::Float) => Self::F16,
            (9..=16, F::Int) => Self::I16,
            (9..=16, F::Uint) => Self::U16,
            (24, F::Float) => Self::F32,
            (32, F::Float) => Self::F32,
            (32, F::Int) => Self::I32,
            (32, F::ComplexInt) => Self::CI16,
            (32, F::ComplexFloat) => Self::CF16,
            (17..=32, F::Uint | F::Int) => Self::U32,
            (64, F::Uint) => Self::U64,
            (64, F::Int) => Self::I64,
            (64, F::Float) => Self::F64,
            (64, F::ComplexInt) => Self::CI32,
            (64, F::ComplexFloat) => Self::CF32,
            (128, F::ComplexFloat) => Self::CF64,
            _ => return None,
        })
    }

    /// Bytes of one sample.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::CI16 | Self::CF16 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::CI32 | Self::CF32 => 8,
            Self::CF64 => 16,
        }
    }

    /// Bytes of the unit that byte order applies to: half a sample for complex types.
    pub const fn word(self) -> usize {
        if self.is_complex() { self.size() / 2 } else { self.size() }
    }

    /// How the bits are interpreted.
    pub const fn format(self) -> SampleFormat {
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => SampleFormat::Uint,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => SampleFormat::Int,
            Self::F16 | Self::F32 | Self::F64 => SampleFormat::Float,
            Self::CI16 | Self::CI32 => SampleFormat::ComplexInt,
            Self::CF16 | Self::CF32 | Self::CF64 => SampleFormat::ComplexFloat,
        }
    }

    /// Whether a sample is a pair of numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::CI16 | Self::CI32 | Self::CF16 | Self::CF32 | Self::CF64)
    }

    /// Whether a sample is a float or a pair of floats.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::CF16 | Self::CF32 | Self::CF64)
    }

    /// The name that NumPy and rasterio use. NumPy has no complex integers; those have GDAL's names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::CI16 => "complex_int16",
            Self::CI32 => "complex_int32",
            Self::CF16 => "complex_float16",
            Self::CF32 => "complex64",
            Self::CF64 => "complex128",
        }
    }
}

impl fmt::Display for SampleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
