//! Chooses the nodata value of a converted file: one that its samples can hold, and never none where the source has one.

use swath_tiff::{SampleType, geo::Nodata};

use crate::error::Error;

/// The nodata value of the target, from the source's and from what the caller asks for.
///
/// # Errors
/// When no sample of the target can have it.
pub(super) fn chosen(
    before: Option<&Nodata>,
    asked: Option<&Option<Nodata>>,
    from: SampleType,
    to: SampleType,
) -> Result<Option<Nodata>, Error> {
    let fits = |nodata: &Nodata| nodata.for_dtype(to).is_some();
    match (asked, before) {
        (Some(Some(asked)), _) if !fits(asked) => Err(Error::usage(format!(
            "nodata {} is not a value of {to}{}: give another value (--nodata N){}",
            asked.text,
            range(to).map_or_else(String::new, |(low, high)| format!(", which goes from {low} to {high}")),
            wider(asked, to).map_or_else(String::new, |wide| format!(", or a type that has it (--dtype {wide})"))
        ))),
        (Some(asked), _) => Ok(asked.clone()),
        // Pixels of the same type keep their values, and so does a nodata value that none of them has.
        (None, Some(before)) if from != to && !fits(before) => Err(Error::usage(format!(
            "the nodata value {} of the source is not a value of {to}: give the value that it becomes (--nodata {}), or --nodata none",
            before.text,
            spare(to)
        ))),
        (None, before) => Ok(before.cloned()),
    }
}

/// The error for NaN that has no value in the new type.
pub(super) fn no_nan(to: SampleType, band: u32, column: usize, row: usize) -> Error {
    Error::usage(format!(
        "band {band} has NaN at column {column}, row {row}, and {to} has no NaN: give the value that it becomes (--nodata {})",
        spare(to)
    ))
}

/// Whether both values mean the same for samples of this type.
pub(super) fn same(a: Option<&Nodata>, b: Option<&Nodata>, sample: SampleType) -> bool {
    let bytes = |nodata: Option<&Nodata>| nodata.and_then(|nodata| nodata.for_dtype(sample));
    bytes(a) == bytes(b)
}

/// The smallest and largest sample of a type of whole numbers.
fn range(sample: SampleType) -> Option<(i128, i128)> {
    Some(match sample {
        SampleType::U8 => (0, u8::MAX.into()),
        SampleType::I8 => (i8::MIN.into(), i8::MAX.into()),
        SampleType::U16 => (0, u16::MAX.into()),
        SampleType::I16 | SampleType::CI16 => (i16::MIN.into(), i16::MAX.into()),
        SampleType::U32 => (0, u32::MAX.into()),
        SampleType::I32 | SampleType::CI32 => (i32::MIN.into(), i32::MAX.into()),
        SampleType::U64 => (0, u64::MAX.into()),
        SampleType::I64 => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    })
}

/// A value that data rarely have: the smallest or largest of the type.
fn spare(sample: SampleType) -> i128 {
    range(sample).map_or(0, |(low, high)| if low < 0 { low } else { high })
}

/// The narrowest type that has this value and all samples of `sample`.
fn wider(nodata: &Nodata, sample: SampleType) -> Option<SampleType> {
    const WIDER: [SampleType; 7] = [
        SampleType::U16,
        SampleType::I16,
        SampleType::U32,
        SampleType::I32,
        SampleType::I64,
        SampleType::F32,
        SampleType::F64,
    ];
    if sample.is_complex() {
        return None;
    }
    let (low, high) = range(sample)?;
    let holds = |wide: &SampleType| match range(*wide) {
        Some((lowest, highest)) => lowest <= low && high <= highest,
        // Floats hold whole numbers of fewer bits than their fraction has.
        None => high < if *wide == SampleType::F32 { 1 << 24 } else { 1 << 53 },
    };
    WIDER.into_iter().find(|wide| holds(wide) && nodata.for_dtype(*wide).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_type_that_has_both_is_named() {
        let named = |text: &str, sample| wider(&Nodata::parse(text.as_bytes()).unwrap(), sample).map(SampleType::name);
        assert_eq!(named("-9999", SampleType::U8), Some("int16"));
        assert_eq!(named("-9999", SampleType::U16), Some("int32"));
        assert_eq!(named("300", SampleType::U8), Some("uint16"));
        assert_eq!(named("nan", SampleType::U16), Some("float32"));
        assert_eq!(named("0.5", SampleType::I32), Some("float64"));
        assert_eq!(named("-1", SampleType::U64), None);
    }
}
