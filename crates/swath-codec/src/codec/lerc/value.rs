//! The sample types of LERC, and how steps above a block's minimum become values of them.

use super::header::Bytes;

/// Converts steps to values.
pub(super) struct Scale {
    offset: f64,
    step: f64,
    z_max: f64,
    /// Offset and maximum as integers, where integer arithmetic gives the same result.
    whole: Option<(i32, i32)>,
}

impl Scale {
    #[inline(always)]
    pub(super) fn new<T: Value>(offset: f64, step: f64, z_max: f64, bits: u32) -> Self {
        let small = T::SIZE <= 2 && offset.abs() <= 65_536.0 && z_max.abs() <= 65_536.0 && bits <= 17;
        let whole = small && step == 1.0 && f64::from(z_max as i32) == z_max;
        Self { offset, step, z_max, whole: whole.then_some((offset as i32, z_max as i32)) }
    }

    #[inline(always)]
    fn value(&self, step: u32) -> f64 {
        // Steps have at most 31 bits, and converting a signed integer is a single instruction.
        let z = self.offset + f64::from(step as i32) * self.step;
        if self.z_max < z { self.z_max } else { z }
    }
}

/// A sample type.
pub(super) trait Value: Copy + PartialEq {
    const SIZE: usize;
    const IS_FLOAT: bool;
    const IS_SIGNED: bool;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Reads a little-endian value.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value in native byte order.
    fn put(self, out: &mut [u8]);
    /// Reads the minimum of a block, which may be stored in a smaller type.
    fn offset(bytes: &mut Bytes<'_>, reduction: u8) -> Option<f64>;
    fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]);
}

macro_rules! value {
    ($type:ty, $float:literal, [$($smaller:ty),*], $reconstruct:item) => {
        impl Value for $type {
            const SIZE: usize = size_of::<$type>();
            const IS_FLOAT: bool = $float;
            const IS_SIGNED: bool = <$type>::MIN as f64 != 0.0;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0 as $type, |bytes| <$type>::from_le_bytes(*bytes))
            }

            #[inline(always)]
            fn put(self, out: &mut [u8]) {
                if let Some(out) = out.first_chunk_mut() {
                    *out = self.to_ne_bytes();
                }
            }

            #[inline(always)]
            fn offset(bytes: &mut Bytes<'_>, reduction: u8) -> Option<f64> {
                let mut nth = 0;
                $(
                    if reduction == nth {
                        return bytes.take(size_of::<$smaller>()).map(|bytes| <$smaller as Value>::get(bytes).to_f64());
                    }
                    nth += 1;
                )*
                let _ = nth;
                None
            }

            $reconstruct
        }
    };
}

/// Converts steps eight at a time through a local array, which shows the compiler that input and output do not alias, so that it
/// vectorises.
macro_rules! convert {
    ($type:ty, $steps:ident, $out:ident, $value:expr) => {{
        let value = $value;
        let (eights, rest) = $steps.as_chunks::<8>();
        let whole = (eights.len() * 8).min($out.len() / size_of::<$type>());
        let (out, out_rest) = $out.as_chunks_mut().0.split_at_mut(whole);
        for (out, steps) in out.as_chunks_mut::<8>().0.iter_mut().zip(eights) {
            let mut values = [0 as $type; 8];
            for (value_of, step) in values.iter_mut().zip(steps) {
                *value_of = value(*step);
            }
            *out = values.map(<$type>::to_ne_bytes);
        }
        for (out, step) in out_rest.iter_mut().zip(rest) {
            *out = value(*step).to_ne_bytes();
        }
    }};
}

macro_rules! in_f64 {
    ($type:ty) => {
        #[inline(always)]
        fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]) {
            convert!($type, steps, out, |step| scale.value(step) as $type);
        }
    };
}

macro_rules! in_integers {
    ($type:ty) => {
        #[inline(always)]
        fn reconstruct(scale: &Scale, steps: &[u32], out: &mut [u8]) {
            let Some((offset, z_max)) = scale.whole else {
                convert!($type, steps, out, |step| scale.value(step) as $type);
                return;
            };
            let clamp = |z: i32| z.clamp(i32::from(<$type>::MIN), i32::from(<$type>::MAX));
            convert!($type, steps, out, |step| clamp((offset + step as i32).min(z_max)) as $type);
        }
    };
}

value!(i8, false, [i8, i8, i8, i8], in_integers!(i8););
value!(u8, false, [u8, u8, u8, u8], in_integers!(u8););
value!(i16, false, [i16, u8, i8], in_integers!(i16););
value!(u16, false, [u16, u8], in_integers!(u16););
value!(i32, false, [i32, u16, i16, u8], in_f64!(i32););
value!(u32, false, [u32, u16, u8], in_f64!(u32););
value!(f32, true, [f32, i16, u8], in_f64!(f32););
value!(f64, true, [f64, f32, i32, i16], in_f64!(f64););
