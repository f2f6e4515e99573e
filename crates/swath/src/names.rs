//! Parses the names of options in one place, so that every front end knows the same ones.

use std::ops::RangeInclusive;

use swath_codec::encode::LercWrap;
use swath_tiff::{Compression, Photometric, SampleType, structure::Predictor};

use crate::error::Error;

/// Returns the compression that one of GDAL's names stands for, with the codec around LERC.
///
/// # Errors
/// When the name is unknown; the message lists the known ones.
pub fn compression(name: &str) -> Result<(Compression, LercWrap), Error> {
    let plain = |compression| Ok((compression, LercWrap::None));
    match name.to_lowercase().as_str() {
        "none" | "raw" => plain(Compression::None),
        "packbits" => plain(Compression::PackBits),
        "lzw" => plain(Compression::Lzw),
        "deflate" | "zip" => plain(Compression::Deflate),
        "zstd" => plain(Compression::Zstd),
        "lzma" => plain(Compression::Lzma),
        "lz4" => plain(Compression::Lz4),
        "lerc" => plain(Compression::Lerc),
        "lerc_deflate" => Ok((Compression::Lerc, LercWrap::Deflate)),
        "lerc_zstd" => Ok((Compression::Lerc, LercWrap::Zstd)),
        "jpeg" => plain(Compression::Jpeg),
        "webp" => plain(Compression::WebP),
        "jpeg2000" | "jp2000" | "jp2" => plain(Compression::Jpeg2000),
        "ccittrle" => plain(Compression::CcittRle),
        "ccittfax3" => plain(Compression::CcittT4),
        "ccittfax4" => plain(Compression::CcittT6),
        _ => Err(Error::usage(format!("{name:?} is not one of {}", COMPRESSIONS.join(", ")))),
    }
}

/// The names of all codecs that write, in the order in which messages list them.
pub const COMPRESSIONS: [&str; 16] = [
    "none",
    "packbits",
    "lzw",
    "deflate",
    "zstd",
    "lzma",
    "lz4",
    "lerc",
    "lerc_deflate",
    "lerc_zstd",
    "jpeg",
    "webp",
    "jpeg2000",
    "ccittrle",
    "ccittfax3",
    "ccittfax4",
];

/// The options that a codec has. Any other option does nothing with it, so that giving one is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodecOptions {
    /// The levels of effort.
    pub levels: Option<RangeInclusive<u32>>,
    /// Whether it has a quality, 1 to 100.
    pub quality: bool,
    /// Whether it can keep every sample and can also be lossy.
    pub lossless: bool,
    /// Whether it takes a largest error.
    pub max_z_error: bool,
}

/// Returns the options that a codec has.
pub fn codec_options(compression: Compression, wrap: LercWrap) -> CodecOptions {
    let none = CodecOptions::default();
    match (compression, wrap) {
        (Compression::Deflate, _) => CodecOptions { levels: Some(1..=12), ..none },
        (Compression::Zstd, _) => CodecOptions { levels: Some(1..=22), ..none },
        (Compression::Lzma, _) => CodecOptions { levels: Some(0..=9), ..none },
        (Compression::Lerc, LercWrap::None) => CodecOptions { max_z_error: true, ..none },
        (Compression::Lerc, LercWrap::Deflate) => CodecOptions { levels: Some(1..=12), max_z_error: true, ..none },
        (Compression::Lerc, LercWrap::Zstd) => CodecOptions { levels: Some(1..=22), max_z_error: true, ..none },
        (Compression::Jpeg, _) => CodecOptions { quality: true, ..none },
        (Compression::WebP | Compression::Jpeg2000, _) => CodecOptions { quality: true, lossless: true, ..none },
        _ => none,
    }
}

/// Returns the ending of a file name that belongs to another format than TIFF, such as `png`.
pub fn other_format(name: &str) -> Option<String> {
    const OTHERS: [&str; 45] = [
        "png", "jpg", "jpeg", "jp2", "j2k", "webp", "gif", "bmp", "svg", "pdf", "vrt", "img", "hdr", "asc", "xml",
        "nc", "nc4", "h5", "hdf", "hdf5", "he5", "zarr", "grib", "grb", "grib2", "grb2", "npy", "npz", "parquet",
        "csv", "json", "geojson", "gpkg", "mbtiles", "shp", "kml", "kmz", "dem", "dt0", "dt1", "dt2", "ntf", "ecw",
        "jxl", "fgb",
    ];
    // An address may have a query after its path.
    let path = if name.contains("://") { name.split('?').next().unwrap_or(name) } else { name };
    let (_, ending) = path.rsplit(['/', '\\']).next()?.rsplit_once('.')?;
    let ending = ending.to_lowercase();
    OTHERS.contains(&ending.as_str()).then_some(ending)
}

/// How the predictor of a file is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictorRule {
    /// A [`Writer`](crate::Writer) of rows or blocks compresses excerpts of the first rows that are not constant with every predictor and
    /// uses the one that makes them clearly smallest. For files that are made of encoded tile rows, [`PredictorChoice`](crate::write::PredictorChoice) makes
    /// the same choice. Where the first rows say nothing, because thousands of them have one pixel value or a single one is longer than
    /// 24 MiB, the sample type decides.
    BySamples,
    /// Differences for integers, split bytes for floats, none for palettes and for codecs that take none.
    BySampleType,
    /// This one.
    Given(Predictor),
}

/// How the predictor is chosen, by name or by the predictor's number in the file.
///
/// # Errors
/// When there is no such predictor.
pub fn predictor(name: &str) -> Result<PredictorRule, Error> {
    Ok(match name.to_lowercase().as_str() {
        "auto" => PredictorRule::BySamples,
        "type" => PredictorRule::BySampleType,
        "none" | "1" => PredictorRule::Given(Predictor::None),
        "horizontal" | "2" => PredictorRule::Given(Predictor::Horizontal),
        "float" | "3" => PredictorRule::Given(Predictor::FloatingPoint),
        other => {
            return Err(Error::usage(format!("{other:?} is not auto, type, none, horizontal (2) or float (3)")));
        }
    })
}

/// A photometric interpretation by GDAL's name.
///
/// # Errors
/// When the name is unknown; the message lists the known ones.
pub fn photometric(name: &str) -> Result<Photometric, Error> {
    Ok(match name.to_lowercase().as_str() {
        "minisblack" => Photometric::MinIsBlack,
        "miniswhite" => Photometric::MinIsWhite,
        "rgb" => Photometric::Rgb,
        "ycbcr" => Photometric::YCbCr,
        "palette" => Photometric::Palette,
        "cmyk" => Photometric::Separated,
        _ => {
            let detail = format!("{name:?} is not minisblack, miniswhite, rgb, ycbcr, palette or cmyk");
            return Err(Error::usage(detail));
        }
    })
}

/// A sample type by NumPy's or GDAL's name.
///
/// # Errors
/// When there is no such type.
pub fn sample_type(name: &str) -> Result<SampleType, Error> {
    Ok(match name.to_lowercase().as_str() {
        "uint8" | "byte" | "u8" => SampleType::U8,
        "int8" | "i8" => SampleType::I8,
        "uint16" | "u16" => SampleType::U16,
        "int16" | "i16" => SampleType::I16,
        "uint32" | "u32" => SampleType::U32,
        "int32" | "i32" => SampleType::I32,
        "uint64" | "u64" => SampleType::U64,
        "int64" | "i64" => SampleType::I64,
        "float16" | "f16" => SampleType::F16,
        "float32" | "f32" => SampleType::F32,
        "float64" | "f64" => SampleType::F64,
        "complex_int16" | "cint16" => SampleType::CI16,
        "complex_int32" | "cint32" => SampleType::CI32,
        "complex_float16" | "cfloat16" => SampleType::CF16,
        "complex64" | "cfloat32" => SampleType::CF32,
        "complex128" | "cfloat64" => SampleType::CF64,
        _ => return Err(Error::usage(format!("{name:?} is not a sample type; use uint8, int16, float32 …"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        assert_eq!(compression("LERC_ZSTD").unwrap(), (Compression::Lerc, LercWrap::Zstd));
        assert_eq!(compression("Deflate").unwrap(), (Compression::Deflate, LercWrap::None));
        assert_eq!(photometric("YCBCR").unwrap(), Photometric::YCbCr);
        assert_eq!(sample_type("CFloat32").unwrap(), SampleType::CF32);
        assert_eq!(predictor("AUTO").unwrap(), PredictorRule::BySamples);
        assert_eq!(predictor("type").unwrap(), PredictorRule::BySampleType);
        assert_eq!(predictor("3").unwrap(), PredictorRule::Given(Predictor::FloatingPoint));
    }

    #[test]
    fn every_listed_compression_is_known_once() {
        let found: Vec<_> = COMPRESSIONS.iter().map(|name| compression(name).unwrap()).collect();
        for (index, codec) in found.iter().enumerate() {
            assert!(!found[..index].contains(codec), "{codec:?}");
        }
    }

    #[test]
    fn every_sample_type_is_known_by_its_own_name() {
        for sample in SampleType::ALL {
            assert_eq!(sample_type(sample.name()).unwrap(), sample);
        }
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        let messages = [
            compression("snappy").unwrap_err(),
            photometric("lab-ish").unwrap_err(),
            sample_type("bool").unwrap_err(),
            predictor("4").unwrap_err(),
        ];
        for (message, name) in messages.iter().zip(["snappy", "lab-ish", "bool", "4"]) {
            assert!(message.to_string().starts_with(&format!("{name:?} is ")), "{message}");
        }
    }
}
