//! The arithmetic of each sample type: how samples widen, and how GDAL rounds results back.
//!
//! Kinds are marker types, separate from the raw words. So half floats and 16-bit integers can both use `u16`; a wrapper type
//! would need `unsafe` to cast bytes to it.

use crate::half;

use super::halve::{halve_double, halve_single};
use bytemuck::Pod;

/// The arithmetic that GDAL uses for a type. Results of different classes differ in the last digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// 8 and 16-bit unsigned: integer rounding.
    Unsigned,
    /// Small signed integers and floats: single precision.
    Single,
    /// The rest: double precision.
    Double,
}

/// A sample type.
pub trait Kind: Copy + Send + Sync + 'static {
    /// The words in memory.
    type Raw: Pod + PartialEq + PartialOrd + Send + Sync;
    /// The arithmetic of the type.
    const CLASS: Class;
    /// Whether values are integers.
    const WHOLE: bool;
    /// Smallest and largest value, as doubles that convert back.
    const RANGE: (f64, f64);

    /// Converts a word to a double.
    fn wide(raw: Self::Raw) -> f64;

    /// Converts a value that already has the precision of the class to a word: rounds halves away from zero, and clamps.
    fn store(value: f64) -> Self::Raw;

    /// Converts an average to a word that is not nodata.
    fn store_avoiding(value: f64, avoid: Avoid) -> Self::Raw;

    /// Whether a word equals nodata. Floats are equal within GDAL's tolerance, or if both are NaN.
    fn is_nodata(raw: Self::Raw, nodata: Self::Raw) -> bool;

    /// Returns the value next to a nodata value, which replaces results that equal nodata.
    fn beside(nodata: f64) -> f64;

    /// Averages two by two samples: `out[i]` from `top[2i..]` and `bottom[2i..]`. `first` is the column of `out[0]` in a target
    /// row of `width` columns; the order of float additions depends on both.
    fn halve(top: &[Self::Raw], bottom: &[Self::Raw], out: &mut [Self::Raw], first: usize, width: usize);

    /// Returns the average of `count` (1 to 4) samples that sum to `sum`; small types use single precision.
    fn quarter(sum: Self::Sum, count: u32, avoid: Avoid) -> Self::Raw;

    /// Type of the sum of four samples: exact, or the type that GDAL uses.
    type Sum: Copy + Default + std::ops::Add<Output = Self::Sum>;

    /// Converts a sample to a term of a sum.
    fn term(raw: Self::Raw) -> Self::Sum;
}

/// A value that results must not take, and its replacement. Without nodata the value is NaN, which nothing equals.
#[derive(Debug, Clone, Copy)]
pub struct Avoid {
    /// The nodata value.
    pub value: f64,
    /// The replacement.
    pub instead: f64,
}

impl Avoid {
    /// Avoids nothing.
    pub const NONE: Self = Self { value: f64::NAN, instead: 0.0 };

    #[inline(always)]
    fn apply(self, value: f64) -> f64 {
        if value == self.value { self.instead } else { value }
    }
}

macro_rules! unsigned {
    ($name:ident, $raw:ty, $sum:ty) => {
        /// Small unsigned integers.
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Kind for $name {
            type Raw = $raw;
            type Sum = $sum;
            const CLASS: Class = Class::Unsigned;
            const WHOLE: bool = true;
            const RANGE: (f64, f64) = (<$raw>::MIN as f64, <$raw>::MAX as f64);

            #[inline(always)]
            fn wide(raw: $raw) -> f64 {
                f64::from(raw)
            }

            #[inline(always)]
            fn store(value: f64) -> $raw {
                (value as f32 + 0.5) as $raw
            }

            #[inline(always)]
            fn store_avoiding(value: f64, avoid: Avoid) -> $raw {
                avoid.apply((value + 0.5).trunc()) as $raw
            }

            #[inline(always)]
            fn is_nodata(raw: $raw, nodata: $raw) -> bool {
                raw == nodata
            }

            fn beside(nodata: f64) -> f64 {
                beside_whole(nodata, Self::RANGE.1)
            }

            #[inline(always)]
            fn halve(top: &[$raw], bottom: &[$raw], out: &mut [$raw], _: usize, _: usize) {
                for ((t, b), out) in top.chunks_exact(2).zip(bottom.chunks_exact(2)).zip(out) {
                    let sum = t[0] as $sum + t[1] as $sum + b[0] as $sum + b[1] as $sum;
                    *out = ((sum + 2) >> 2) as $raw;
                }
            }

            #[inline(always)]
            fn quarter(sum: $sum, count: u32, avoid: Avoid) -> $raw {
                // Single precision is enough: thirds are far from the halves where rounding changes.
                let value = (sum as i32 as f32 / count as i32 as f32 + 0.5) as i32 as $raw;
                if value as f32 == avoid.value as f32 { avoid.instead as f32 as i32 as $raw } else { value }
            }

            #[inline(always)]
            fn term(raw: $raw) -> $sum {
                raw as $sum
            }
        }
    };
}

unsigned!(U8, u8, u16);
unsigned!(U16, u16, u32);

macro_rules! signed {
    ($name:ident, $raw:ty) => {
        /// Small signed integers, which GDAL averages as floats.
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Kind for $name {
            type Raw = $raw;
            type Sum = i32;
            const CLASS: Class = Class::Single;
            const WHOLE: bool = true;
            const RANGE: (f64, f64) = (<$raw>::MIN as f64, <$raw>::MAX as f64);

            #[inline(always)]
            fn wide(raw: $raw) -> f64 {
                f64::from(raw)
            }

            #[inline(always)]
            fn store(value: f64) -> $raw {
                let value = value as f32;
                (value + 0.5f32.copysign(value)) as $raw
            }

            #[inline(always)]
            fn store_avoiding(value: f64, avoid: Avoid) -> $raw {
                Self::store(avoid.apply(f64::from(value as f32)))
            }

            #[inline(always)]
            fn is_nodata(raw: $raw, nodata: $raw) -> bool {
                raw == nodata
            }

            fn beside(nodata: f64) -> f64 {
                beside_whole(nodata, Self::RANGE.1)
            }

            #[inline(always)]
            fn halve(top: &[$raw], bottom: &[$raw], out: &mut [$raw], _: usize, _: usize) {
                for ((t, b), out) in top.chunks_exact(2).zip(bottom.chunks_exact(2)).zip(out) {
                    let sum = t[0] as i32 + t[1] as i32 + b[0] as i32 + b[1] as i32;
                    // Rounds halves away from zero: the shift floors, so a negative sum is first reduced by one.
                    *out = ((sum + 2 + (sum >> 31)) >> 2) as $raw;
                }
            }

            #[inline(always)]
            fn quarter(sum: i32, count: u32, avoid: Avoid) -> $raw {
                let value = sum as f32 / count as i32 as f32;
                let value = if value == avoid.value as f32 { avoid.instead as f32 } else { value };
                (value + 0.5f32.copysign(value)) as i32 as $raw
            }

            #[inline(always)]
            fn term(raw: $raw) -> i32 {
                i32::from(raw)
            }
        }
    };
}

signed!(I8, i8);
signed!(I16, i16);

macro_rules! wide_whole {
    ($name:ident, $raw:ty, $top:expr, $half:expr) => {
        /// Wide integers, which GDAL averages as doubles.
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Kind for $name {
            type Raw = $raw;
            type Sum = f64;
            const CLASS: Class = Class::Double;
            const WHOLE: bool = true;
            const RANGE: (f64, f64) = (<$raw>::MIN as f64, $top);

            #[inline(always)]
            fn wide(raw: $raw) -> f64 {
                raw as f64
            }

            #[inline(always)]
            fn store(value: f64) -> $raw {
                (value + 0.5f64.copysign(value)) as $raw
            }

            #[inline(always)]
            fn store_avoiding(value: f64, avoid: Avoid) -> $raw {
                Self::store(avoid.apply(value))
            }

            #[inline(always)]
            fn is_nodata(raw: $raw, nodata: $raw) -> bool {
                raw == nodata
            }

            fn beside(nodata: f64) -> f64 {
                beside_whole(nodata, Self::RANGE.1)
            }

            #[inline(always)]
            fn halve(top: &[$raw], bottom: &[$raw], out: &mut [$raw], first: usize, width: usize) {
                $half(top, bottom, out, first, width)
            }

            #[inline(always)]
            fn quarter(sum: f64, count: u32, avoid: Avoid) -> $raw {
                Self::store_avoiding(sum / f64::from(count), avoid)
            }

            #[inline(always)]
            fn term(raw: $raw) -> f64 {
                raw as f64
            }
        }
    };
}

macro_rules! halve_exact {
    () => {
        |top: &[_], bottom: &[_], out: &mut [_], _: usize, _: usize| {
            for ((t, b), out) in top.chunks_exact(2).zip(bottom.chunks_exact(2)).zip(out) {
                let sum = i64::from(t[0]) + i64::from(t[1]) + i64::from(b[0]) + i64::from(b[1]);
                *out = ((sum + 2 + (sum >> 63)) >> 2) as _;
            }
        }
    };
}

wide_whole!(U32, u32, u32::MAX as f64, halve_exact!());
wide_whole!(I32, i32, i32::MAX as f64, halve_exact!());
wide_whole!(U64, u64, 18446744073709549568.0, halve_double::<Self>);
wide_whole!(I64, i64, 9223372036854774784.0, halve_double::<Self>);

macro_rules! float {
    ($name:ident, $raw:ty, $class:expr, $halve:expr, $from:expr, $to:expr, $same:expr, $beside:expr, $max:expr) => {
        /// Floats.
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Kind for $name {
            type Raw = $raw;
            type Sum = f64;
            const CLASS: Class = $class;
            const WHOLE: bool = false;
            const RANGE: (f64, f64) = (-$max, $max);

            #[inline(always)]
            fn wide(raw: $raw) -> f64 {
                $from(raw)
            }

            #[inline(always)]
            fn store(value: f64) -> $raw {
                $to(value)
            }

            #[inline(always)]
            fn store_avoiding(value: f64, avoid: Avoid) -> $raw {
                let value = if matches!($class, Class::Single) { f64::from(value as f32) } else { value };
                Self::store(avoid.apply(value))
            }

            #[inline(always)]
            fn is_nodata(raw: $raw, nodata: $raw) -> bool {
                $same(raw, nodata)
            }

            fn beside(nodata: f64) -> f64 {
                $beside(nodata)
            }

            #[inline(always)]
            fn halve(top: &[$raw], bottom: &[$raw], out: &mut [$raw], first: usize, width: usize) {
                $halve(top, bottom, out, first, width)
            }

            #[inline(always)]
            fn quarter(sum: f64, count: u32, avoid: Avoid) -> $raw {
                Self::store_avoiding(sum / f64::from(count), avoid)
            }

            #[inline(always)]
            fn term(raw: $raw) -> f64 {
                $from(raw)
            }
        }
    };
}

float!(F32, f32, Class::Single, halve_single, f64::from, to_single, same_single, beside_single, f32::MAX as f64);
float!(F64, f64, Class::Double, halve_double::<Self>, same, to_double, same_double, beside_double, f64::MAX);
float!(F16, u16, Class::Double, halve_double::<Self>, half::widen, to_half, same_half, half::beside, f64::MAX);

#[inline(always)]
fn same(value: f64) -> f64 {
    value
}

/// Rounds twice, first to a single, as GDAL does.
#[inline(always)]
fn to_half(value: f64) -> u16 {
    if value.is_nan() { half::NAN } else { half::narrow(f64::from(value as f32)) }
}

/// The NaN of singles.
pub const NAN_SINGLE: f32 = f32::from_bits(0x7fc0_0000);

/// Gives every NaN result the same bits. Which payload survives an addition depends on the processor and the compiler, and
/// files must depend on neither.
#[inline(always)]
fn to_single(value: f64) -> f32 {
    if value.is_nan() { NAN_SINGLE } else { value as f32 }
}

#[inline(always)]
fn to_double(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { value }
}

/// Returns the fill for complex samples where no pixel is valid: NaN, as in GDAL, which has no other nodata for them.
pub fn hole<K: Kind>() -> K::Raw {
    K::store(if K::WHOLE { 0.0 } else { f64::NAN })
}

/// Whether a single equals nodata. GDAL's tolerance is about four units in the last place of a single, for doubles too. GDAL
/// forms the sum in the type itself: where it overflows, more values equal nodata.
#[inline(always)]
fn same_single(value: f32, nodata: f32) -> bool {
    (value == nodata)
        | ((value - nodata).abs() < f32::EPSILON * (value + nodata).abs() * 2.0)
        | (value.is_nan() & nodata.is_nan())
}

#[inline(always)]
fn same_double(value: f64, nodata: f64) -> bool {
    (value == nodata)
        | ((value - nodata).abs() < f64::from(f32::EPSILON) * (value + nodata).abs() * 2.0)
        | (value.is_nan() & nodata.is_nan())
}

#[inline(always)]
fn same_half(value: u16, nodata: u16) -> bool {
    same_double(half::widen(value), half::widen(nodata))
}

fn beside_whole(nodata: f64, max: f64) -> f64 {
    let next = if nodata >= max { max - 1.0 } else { nodata + 1.0 };
    // Beyond 2⁵³ adding one changes nothing.
    if next == nodata { nodata.next_down() } else { next }
}

fn beside_single(nodata: f64) -> f64 {
    let nodata = nodata as f32;
    f64::from(if nodata >= f32::MAX { nodata.next_down() } else { nodata.next_up() })
}

fn beside_double(nodata: f64) -> f64 {
    if nodata >= f64::MAX { nodata.next_down() } else { nodata.next_up() }
}

/// Evaluates an expression with the kind of a sample type: `K` is the kind of a real type, or of the parts of a complex one.
macro_rules! with_kind {
    ($sample:expr, $real:ident => $on_real:expr, complex $part:ident => $on_complex:expr, _ => $other:expr) => {
        with_kind!(@match $sample, $real => $on_real, $part => $on_complex, $other,
            [U8 I8 U16 I16 U32 I32 U64 I64 F16 F32 F64], [CI16 I16, CI32 I32, CF16 F16, CF32 F32, CF64 F64])
    };
    (@match $sample:expr, $real:ident => $on_real:expr, $part:ident => $on_complex:expr, $other:expr,
        [$($kind:ident)*], [$($complex:ident $of:ident),*]) => {
        match $sample {
            $(SampleType::$kind => { type $real = $crate::shrink::kind::$kind; $on_real })*
            $(SampleType::$complex => { type $part = $crate::shrink::kind::$of; $on_complex })*
            _ => $other,
        }
    };
}
pub(super) use with_kind;
