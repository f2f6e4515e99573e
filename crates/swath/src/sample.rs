//! The types of Rust that samples have.

use swath_tiff::SampleType;

use crate::error::Error;

mod sealed {
    /// Types whose every bit pattern is a value, so that bytes and numbers can be viewed as each other.
    pub trait Plain: bytemuck::Pod {}
}

/// A type of Rust that samples of a raster can have: integers of 8 to 64 bits, `f32` and `f64`; complex samples are pairs,
/// `[f32; 2]` for instance. Stable Rust has no half floats: [`Raster::bytes`](crate::Raster::bytes) gives the bits of those.
///
/// ```
/// use swath::{Sample, SampleType};
///
/// assert_eq!(u16::TYPE, SampleType::U16);
/// assert_eq!(<[f32; 2]>::TYPE, SampleType::CF32);
/// ```
pub trait Sample: sealed::Plain {
    /// The sample type that the file has.
    const TYPE: SampleType;
}

macro_rules! samples {
    ($($of:ty => $kind:ident,)*) => {$(
        impl sealed::Plain for $of {}
        impl Sample for $of {
            const TYPE: SampleType = SampleType::$kind;
        }
    )*};
}

samples! {
    u8 => U8,
    i8 => I8,
    u16 => U16,
    i16 => I16,
    u32 => U32,
    i32 => I32,
    u64 => U64,
    i64 => I64,
    f32 => F32,
    f64 => F64,
    [i16; 2] => CI16,
    [i32; 2] => CI32,
    [f32; 2] => CF32,
    [f64; 2] => CF64,
}

/// Numbers as bytes in native order.
pub(crate) fn bytes_of<T: Sample>(samples: &[T]) -> &[u8] {
    bytemuck::cast_slice(samples)
}

/// Bytes in native order as numbers; an error that names the right type where the samples have another.
pub(crate) fn view<T: Sample>(bytes: &[u8], sample: SampleType) -> Result<&[T], Error> {
    if T::TYPE != sample {
        let advice = match rust_name(sample) {
            Some(name) => format!("ask for {name}, or convert the file to {} first", T::TYPE),
            None => "stable Rust has no type for them; take the bytes, or convert the file first".to_owned(),
        };
        return Err(Error::usage(format!("the samples are {sample}, not {}: {advice}", T::TYPE)));
    }
    bytemuck::try_cast_slice(bytes).map_err(|error| Error::internal(format!("samples cannot be viewed: {error}")))
}

/// How Rust writes the type of a sample; `None` for half floats.
pub(crate) fn rust_name(sample: SampleType) -> Option<&'static str> {
    Some(match sample {
        SampleType::U8 => "u8",
        SampleType::I8 => "i8",
        SampleType::U16 => "u16",
        SampleType::I16 => "i16",
        SampleType::U32 => "u32",
        SampleType::I32 => "i32",
        SampleType::U64 => "u64",
        SampleType::I64 => "i64",
        SampleType::F32 => "f32",
        SampleType::F64 => "f64",
        SampleType::CI16 => "[i16; 2]",
        SampleType::CI32 => "[i32; 2]",
        SampleType::CF32 => "[f32; 2]",
        SampleType::CF64 => "[f64; 2]",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_size_of_their_samples() {
        fn check<T: Sample>() {
            assert_eq!(size_of::<T>(), T::TYPE.size(), "{}", T::TYPE);
            assert_eq!(rust_name(T::TYPE), Some(std::any::type_name::<T>()));
        }
        check::<u8>();
        check::<i8>();
        check::<u16>();
        check::<i16>();
        check::<u32>();
        check::<i32>();
        check::<u64>();
        check::<i64>();
        check::<f32>();
        check::<f64>();
        check::<[i16; 2]>();
        check::<[i32; 2]>();
        check::<[f32; 2]>();
        check::<[f64; 2]>();
    }

    #[test]
    fn another_type_of_the_same_size_is_refused_by_name() {
        let error = view::<u32>(&[0; 8], SampleType::F32).unwrap_err().to_string();
        assert!(error.contains("float32, not uint32: ask for f32"), "{error}");
        let error = view::<u16>(&[0; 8], SampleType::F16).unwrap_err().to_string();
        assert!(error.contains("float16") && error.contains("take the bytes"), "{error}");
    }
}
