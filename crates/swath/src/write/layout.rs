//! The layout in the image's own directory, chosen from shape, metadata and options so that readers accept it.

use swath_codec::encode::LercWrap;
use swath_tiff::{
    Compression, Photometric, SampleFormat, SampleType,
    structure::{ByteOrder, Layout, Planar, Predictor, layout::YCbCr},
};

use super::options::{Alpha, Blocks, Shape, WriteOptions};
use crate::{error::Error, metadata::Metadata, names::PredictorRule};

/// Default bytes of a strip.
const STRIP: u64 = 64 << 10;

/// The layout of the image; overviews and masks follow it.
pub(super) fn main_layout(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<Layout, Error> {
    let Shape { width, height, bands, sample } = shape;
    let usual_bits = (sample.size() * 8) as u16;
    let bits = options.bits.unwrap_or(usual_bits);
    check_bits(sample, bits, options.compression)?;
    let (tiled, tile_width, tile_height) = match options.blocks {
        Blocks::Tiles(across, down) => {
            if across == 0 || down == 0 || across % 16 != 0 || down % 16 != 0 || across > 1 << 20 || down > 1 << 20 {
                return Err(Error::usage(format!("tiles of {across} x {down}: both must be multiples of 16")));
            }
            (true, across, down)
        }
        Blocks::Strips(rows) => {
            let per_tile = if options.planar == Planar::Contig { u64::from(bands) } else { 1 };
            let row = (u64::from(width) * per_tile * u64::from(bits)).div_ceil(8);
            let usual = (STRIP / row.max(1)).clamp(1, height.into()) as u32;
            // JPEG works in blocks of 8 rows, 16 with halved chroma.
            let step = if options.compression == Compression::Jpeg { 16 } else { 1 };
            let usual = usual.next_multiple_of(step);
            let asked = rows.map_or(usual, |rows| rows.get());
            if options.compression == Compression::Jpeg && asked % step != 0 && asked < height {
                return Err(Error::usage(format!("strips of {asked} rows: JPEG needs a multiple of {step}")));
            }
            (false, width, asked.min(height))
        }
    };
    if options.compression == Compression::Lerc && options.order == ByteOrder::Big && sample.is_float() {
        // libtiff hands LERC swapped floats there, and some of those are not numbers, which LERC does not keep apart.
        return Err(Error::usage("LERC cannot keep floats in a big-endian file; write it little-endian"));
    }
    if options.compression == Compression::Lerc
        && options.order == ByteOrder::Big
        && options.settings.max_z_error > 0.0
        && sample.size() > 1
    {
        // The same for whole numbers: an error in the last byte would be one in the first.
        return Err(Error::usage(
            "LERC cannot guarantee a largest error in a big-endian file; write it little-endian, or without an error",
        ));
    }
    if options.cog && !tiled {
        return Err(Error::usage("a COG is tiled; strips cannot be used"));
    }
    let color = Color::choose(shape, metadata, options)?;
    let mut layout = Layout {
        width,
        height,
        tile_width,
        tile_height,
        rows_per_strip: tile_height,
        tiled,
        bits,
        format: sample.format(),
        sample,
        samples: bands,
        planar: if bands == 1 { Planar::Contig } else { options.planar },
        compression: options.compression,
        compression_code: options.compression.code(),
        predictor: Predictor::None,
        photometric: Some(color.photometric),
        extra_samples: color.extra,
        bits_reversed: false,
        orientation: 1,
        subfile_type: 0,
        ycbcr: (color.photometric == Photometric::YCbCr).then(|| ycbcr(options.subsampling, bits)),
        t4_options: 0,
        lerc: Vec::new(),
        jpeg_tables: None,
        order: options.order,
        offsets: None,
        byte_counts: None,
        problems: Vec::new(),
    };
    if options.compression == Compression::Lerc {
        let wrap = match options.settings.lerc_wrap {
            LercWrap::None => 0,
            LercWrap::Deflate => 1,
            LercWrap::Zstd => 2,
        };
        // Version 4 is what libtiff calls the second format.
        layout.lerc = vec![4, wrap];
    }
    layout.predictor = predictor(&layout, options)?;
    Ok(layout)
}

fn ycbcr(subsampling: (u16, u16), bits: u16) -> YCbCr {
    let white = f64::from((1_u32 << bits.min(16)) - 1);
    let middle = f64::from(1_u32 << (bits.min(16) - 1));
    YCbCr { subsampling, coefficients: [0.299, 0.587, 0.114], reference: [0.0, white, middle, white, middle, white] }
}

fn check_bits(sample: SampleType, bits: u16, compression: Compression) -> Result<(), Error> {
    let whole = (sample.size() * 8) as u16;
    let allowed = match sample {
        SampleType::U8 => (1..=8).contains(&bits),
        SampleType::U16 => (9..=16).contains(&bits),
        // Readers do not agree on the byte order of 24 bits.
        SampleType::U32 => (17..=32).contains(&bits) && bits != 24,
        _ => bits == whole,
    };
    if !allowed {
        return Err(Error::usage(format!("{bits} bits cannot hold samples of type {sample}")));
    }
    let codec_ok = bits == whole
        || match compression {
            Compression::Jpeg => bits == 12,
            Compression::Lerc | Compression::WebP | Compression::JpegXl | Compression::Jpeg2000 => false,
            _ => true,
        };
    if !codec_ok {
        return Err(Error::usage(format!("{compression} cannot hold samples of {bits} bits")));
    }
    Ok(())
}

/// The predictors that a file may have, the usual one of its sample type first.
pub(super) fn candidates(layout: &Layout) -> &'static [Predictor] {
    let whole = usize::from(layout.bits) == layout.sample.size() * 8;
    if !layout.compression.takes_predictor() || !whole {
        return &[Predictor::None];
    }
    // Classes are not numbers: the difference of two has no meaning, though it may repeat more often.
    let classes = layout.photometric == Some(Photometric::Palette);
    match layout.format {
        // Not every reader knows differences of 64 bits.
        SampleFormat::Float if layout.sample.size() > 4 => &[Predictor::FloatingPoint, Predictor::None],
        SampleFormat::Float => &[Predictor::FloatingPoint, Predictor::Horizontal, Predictor::None],
        SampleFormat::Uint | SampleFormat::Int if classes => &[Predictor::None, Predictor::Horizontal],
        SampleFormat::Uint | SampleFormat::Int => &[Predictor::Horizontal, Predictor::None],
        _ => &[Predictor::None],
    }
}

/// The predictor that was asked for, or the usual one of the sample type, which a writer of rows or blocks may replace by a better one.
fn predictor(layout: &Layout, options: &WriteOptions) -> Result<Predictor, Error> {
    let whole = usize::from(layout.bits) == layout.sample.size() * 8;
    let float = layout.format == SampleFormat::Float;
    let PredictorRule::Given(asked) = options.predictor else {
        return Ok(candidates(layout).first().copied().unwrap_or(Predictor::None));
    };
    let detail = match asked {
        Predictor::None => return Ok(asked),
        _ if !layout.compression.takes_predictor() => format!("{} takes no predictor", layout.compression),
        _ if !whole => format!("samples of {} bits take no predictor", layout.bits),
        Predictor::Horizontal if !layout.sample.is_complex() => return Ok(asked),
        Predictor::FloatingPoint if float => return Ok(asked),
        Predictor::Horizontal => format!("predictor 2 does not take {} samples", layout.sample),
        Predictor::FloatingPoint => format!("predictor 3 takes floats, not {} samples", layout.sample),
    };
    Err(Error::usage(detail))
}

/// The colour interpretation of bands.
struct Color {
    photometric: Photometric,
    extra: Vec<u16>,
}

impl Color {
    fn choose(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<Self, Error> {
        let bands = usize::from(shape.bands);
        let named: Vec<&str> = metadata.bands.iter().map(|band| band.color.as_str()).collect();
        let rgb = named.starts_with(&["red", "green", "blue"]);
        let unnamed = named.iter().all(|color| color.is_empty());
        // Indices are in the first band; alpha or other samples may follow.
        let indices = bands == 1 || named.first().is_none_or(|color| matches!(*color, "" | "palette"));
        let palette = !metadata.palette.is_empty() && indices;
        let jpeg = options.compression == Compression::Jpeg;
        let together = options.planar == Planar::Contig;
        let usual = || match () {
            () if palette => Photometric::Palette,
            () if (rgb || unnamed) && bands == 3 && shape.sample.size() == 1 && jpeg && together => Photometric::YCbCr,
            () if rgb => Photometric::Rgb,
            // As GDAL takes bare arrays.
            () if unnamed && (bands == 3 || bands == 4) && shape.sample == SampleType::U8 => Photometric::Rgb,
            () => Photometric::MinIsBlack,
        };
        let photometric = options.photometric.or(options.source_photometric).unwrap_or_else(usual);
        let colors = match photometric {
            Photometric::MinIsBlack | Photometric::MinIsWhite | Photometric::Palette => 1,
            Photometric::Rgb | Photometric::CieLab => 3,
            Photometric::YCbCr if jpeg && bands == 3 && together => 3,
            Photometric::YCbCr => {
                return Err(Error::usage("YCbCr is for JPEG of three bands with interleaved pixels"));
            }
            Photometric::Separated => 4,
            other => return Err(Error::usage(format!("photometric {other} cannot be written"))),
        };
        if photometric == Photometric::Palette
            && (shape.sample.size() > 2 || shape.sample.format() != SampleFormat::Uint)
        {
            return Err(Error::usage(format!("a palette is for samples of 8 or 16 bits, not {}", shape.sample)));
        }
        let extras = bands.checked_sub(colors).ok_or_else(|| {
            Error::usage(format!("photometric {photometric} has {colors} bands or more, not {bands}"))
        })?;
        if options.alpha.is_none() && extras > 0 && options.extra_samples.len() == extras {
            return Ok(Self { photometric, extra: options.extra_samples.clone() });
        }
        let alpha_code = match options.alpha {
            Some(Alpha::Premultiplied) => 1,
            _ => 2,
        };
        let last_is_alpha = options.alpha.is_some()
            || (unnamed && bands == 4 && photometric == Photometric::Rgb && shape.sample == SampleType::U8);
        let extra = (colors..bands)
            .map(|band| {
                let alpha = named.get(band) == Some(&"alpha") || (last_is_alpha && band + 1 == bands);
                if alpha { alpha_code } else { 0 }
            })
            .collect::<Vec<u16>>();
        debug_assert_eq!(extra.len(), extras);
        Ok(Self { photometric, extra })
    }
}
