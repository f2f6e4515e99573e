//! The facts that describe a file, in rasterio's and GDAL's words.

use swath_tiff::{
    Compression, Photometric, SampleFormat, SampleType,
    geo::{Crs, CrsKind, GeoTransform, Nodata, NodataValue},
    structure::{Entry, Planar, Predictor, ghost::Ghost},
    tag,
};

use super::{mask::MaskKind, number::Exact};
use crate::{
    error::Error,
    metadata::{Band, Metadata},
    open::{
        dataset::Dataset,
        image::{Image, Role},
        overviews::Overview,
    },
};

/// Longest value that is read to be shown.
const MAX_LEN: u64 = 1 << 20;

/// Facts about a file that need no tile and no table of tiles.
#[derive(Debug)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The file.
    pub dataset: &'a Dataset,
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// Its directories, and what each is.
    pub images: Vec<(&'a Image, Role)>,
    /// Overviews of the first image, largest first.
    pub overviews: Vec<Overview>,
    /// GDAL's description of the layout.
    pub ghost: Option<Ghost>,
    /// How each band marks nodata.
    pub masks: Vec<MaskKind>,
    /// Faults of the file that leave it readable.
    pub problems: Vec<String>,
}

impl<'a> Facts<'a> {
    /// Reads the facts.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn gather(dataset: &'a Dataset) -> Result<Self, Error> {
        let metadata = dataset.metadata();
        let images: Vec<(&Image, Role)> = dataset.images()?.collect();
        let mut problems = metadata.problems.clone();
        for (image, role) in &images {
            let layout = image.layout().problems.iter().filter(|_| *role != Role::Main);
            let all = image.ifd().problems.iter().chain(layout);
            problems.extend(all.map(|problem| format!("IFD {}: {problem}", image.index())));
        }
        problems.extend(dataset.chain_problems()?.iter().map(|error| match error.place().to_string() {
            place if place.is_empty() => error.to_string(),
            place => format!("{place}: {error}"),
        }));
        let (overviews, ghost, masks) = (dataset.overviews()?, dataset.ghost()?, MaskKind::of_bands(dataset)?);
        Ok(Self { dataset, metadata, images, overviews, ghost, masks, problems })
    }

    /// The reference system that GDAL would report.
    pub fn crs(&self) -> Option<&Crs> {
        let georeference = &self.metadata.georeference;
        georeference.crs.as_ref().map(|crs| georeference.keys.crs_as_gdal_reports(crs))
    }

    /// The transform; the identity where there is none, as in rasterio.
    pub fn transform(&self) -> GeoTransform {
        self.metadata.georeference.transform.unwrap_or(GeoTransform::IDENTITY)
    }

    /// Left, bottom, right, top as rasterio has them: not sorted where rows run up.
    pub fn bounds(&self) -> [f64; 4] {
        let transform = self.transform();
        let (width, height) = (self.dataset.width(), self.dataset.height());
        if transform.is_axis_aligned() {
            let [a, _, c, _, e, f] = transform.to_affine();
            return [c, f + e * f64::from(height), c + a * f64::from(width), f];
        }
        let (left, bottom, right, top) = transform.bounds(width, height);
        [left, bottom, right, top]
    }

    /// Longitude and latitude of the centre, where coordinates are degrees already.
    pub fn lnglat(&self) -> Option<[f64; 2]> {
        let crs = self.crs()?;
        let degrees = crs.unit.as_ref().is_some_and(|unit| unit.name.eq_ignore_ascii_case("degree"));
        let [left, bottom, right, top] = self.bounds();
        (crs.kind == CrsKind::Geographic && degrees).then_some([(left + right) / 2.0, (bottom + top) / 2.0])
    }

    /// The first band's nodata value.
    pub fn nodata(&self) -> Option<Exact> {
        nodata(self.metadata.bands.first()?.nodata.as_ref()?, self.dataset.sample())
    }

    /// How the file is laid out for reading over a network.
    pub fn cog(&self) -> Cog {
        let main = self.dataset.main().layout();
        let mut reasons = Vec::new();
        // GDAL's validator: an image of at most one usual tile needs neither tiles nor overviews.
        const SMALL: u32 = 512;
        let large = main.width > SMALL || main.height > SMALL;
        let pyramid = || self.images.iter().filter(|(_, role)| matches!(role, Role::Main | Role::Overview));
        let tiled = pyramid().all(|(image, _)| image.layout().tiled || image.layout().width <= SMALL);
        if !tiled {
            reasons.push("not all images are tiled".to_owned());
        }
        let internal = self.overviews.iter().filter(|overview| !overview.external).count();
        if large && internal == 0 {
            reasons.push("no overviews inside the file".to_owned());
        }
        let sizes: Vec<u64> =
            pyramid().map(|(image, _)| u64::from(image.layout().width) * u64::from(image.layout().height)).collect();
        let offsets: Vec<u64> = pyramid().map(|(image, _)| image.ifd().offset).collect();
        let in_order = sizes.is_sorted_by(|a, b| a >= b) && offsets.is_sorted();
        if !in_order {
            reasons.push("directories are not in order of falling size".to_owned());
        }
        // Only the tables of tiles could prove more, and this does not read them.
        let before =
            self.ghost.as_ref().and_then(|ghost| ghost.get("LAYOUT")).map(|layout| layout == "IFDS_BEFORE_DATA");
        let edited = self.ghost.as_ref().is_some_and(|ghost| ghost.get("KNOWN_INCOMPATIBLE_EDITION") == Some("YES"));
        if before.is_none() {
            reasons.push("no ghost area states that directories come before pixels".to_owned());
        }
        if edited {
            reasons.push("the file was edited after it was laid out as a COG".to_owned());
        }
        Cog {
            is_cog: reasons.is_empty() && before == Some(true),
            ifds_before_data: before.map(|before| before && !edited),
            tiled,
            in_order,
            reasons,
        }
    }
}

/// How the file is laid out for reading over a network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cog {
    /// Whether the file looks like a COG, as far as can be known without the tables of tiles.
    pub is_cog: bool,
    /// Whether directories come before pixels; `None` where the file does not say.
    pub ifds_before_data: Option<bool>,
    /// Whether the image and its overviews are tiled.
    pub tiled: bool,
    /// Whether directories are in order of falling size.
    pub in_order: bool,
    /// Why it is no COG.
    pub reasons: Vec<String>,
}

/// A nodata value, where a sample of this type can have it: a whole number for whole samples, with all its digits.
pub fn nodata(nodata: &Nodata, sample: SampleType) -> Option<Exact> {
    let sample_bytes = nodata.for_dtype(sample)?;
    Some(match nodata.value {
        NodataValue::Int(value) => Exact::Int(value.into()),
        NodataValue::UInt(value) => Exact::Int(value.into()),
        // As the samples have it: 0.1 is 0.10000000149011612 among them.
        _ if sample == SampleType::F32 => {
            let bytes = sample_bytes.as_slice().try_into().unwrap_or_default();
            Exact::Float(f64::from(f32::from_ne_bytes(bytes)))
        }
        // `1e3` or `-9999.0`: no sample could have it, were it not whole.
        _ if matches!(sample.format(), SampleFormat::Uint | SampleFormat::Int) => Exact::Int(nodata.as_f64() as i128),
        _ => Exact::Float(nodata.as_f64()),
    })
}

/// Compression in rasterio's words; `None` for none.
pub fn compress(image: &Image) -> Option<String> {
    let layout = image.layout();
    let name = match layout.compression {
        Compression::None => return None,
        Compression::CcittRle => "ccittrle",
        Compression::CcittRleWord => "CCITTRLEW",
        Compression::CcittT4 => "ccittfax3",
        Compression::CcittT6 => "ccittfax4",
        Compression::Lzw => "lzw",
        Compression::OldJpeg => "OJPEG",
        Compression::Jpeg => "jpeg",
        Compression::Deflate => "deflate",
        Compression::PackBits => "packbits",
        Compression::Lzma => "lzma",
        Compression::Zstd => "zstd",
        Compression::Lerc => match layout.lerc.get(1) {
            Some(1) => "lerc_deflate",
            Some(2) => "lerc_zstd",
            _ => "lerc",
        },
        Compression::Jpeg2000 => "JP2000",
        Compression::WebP => "webp",
        Compression::JpegXl => "JXL",
        _ => match layout.compression_code {
            32766 => "NEXT",
            32809 => "THUNDERSCAN",
            32908 => "PIXARFILM",
            32909 => "PIXARLOG",
            32947 => "DCS",
            34661 => "JBIG",
            34676 => "SGILOG",
            34677 => "SGILOG24",
            other => return Some(other.to_string()),
        },
    };
    Some(name.to_owned())
}

/// Rows of a tile, or of a strip that is not the last.
pub fn block_height(image: &Image) -> u32 {
    let layout = image.layout();
    if layout.tiled { layout.tile_height } else { layout.tile_height.min(layout.height.max(1)) }
}

/// Predictor as its number in the file.
pub fn predictor(image: &Image) -> u8 {
    predictor_number(image.layout().predictor)
}

/// The number that a file has for a predictor.
pub fn predictor_number(predictor: Predictor) -> u8 {
    match predictor {
        Predictor::None => 1,
        Predictor::Horizontal => 2,
        Predictor::FloatingPoint => 3,
    }
}

/// Photometric interpretation in rasterio's words, and its own where rasterio has none.
pub fn photometric(image: &Image) -> Option<String> {
    Some(match image.layout().photometric? {
        Photometric::MinIsWhite => "white".to_owned(),
        Photometric::MinIsBlack => "black".to_owned(),
        Photometric::Separated => "cmyk".to_owned(),
        other => other.to_string().to_lowercase(),
    })
}

/// The interleaving of the file, by GDAL's rule: one band is never interleaved by pixel.
pub fn interleave(image: &Image) -> &'static str {
    let layout = image.layout();
    if layout.planar == Planar::Contig && layout.samples > 1 { "pixel" } else { "band" }
}

/// What a directory is.
pub fn kind(role: Role) -> &'static str {
    match role {
        Role::Main => "image",
        Role::Overview => "overview",
        Role::Mask => "mask",
        _ => "page",
    }
}

/// Statistics that the file itself states for a band: minimum, maximum, mean, standard deviation.
pub fn stated_statistics(band: &Band) -> Option<[f64; 4]> {
    let domain = band.domains.iter().find(|domain| domain.name.is_empty())?;
    let number = |key: &str| domain.get(key)?.trim().parse::<f64>().ok();
    Some([
        number("STATISTICS_MINIMUM")?,
        number("STATISTICS_MAXIMUM")?,
        number("STATISTICS_MEAN")?,
        number("STATISTICS_STDDEV")?,
    ])
}

/// Returns why the value of a tag is not shown: tables of tiles may have gigabytes. `None` for one that may be shown.
pub fn left_out(entry: &Entry) -> Option<&'static str> {
    const TABLES: [u16; 4] = [tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS, tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS];
    if TABLES.contains(&entry.tag) {
        Some("not read: table of tiles")
    } else if entry.len().is_none_or(|len| len > MAX_LEN) {
        Some("not read: too long")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_tiff::structure::FieldType;

    #[test]
    fn tables_of_tiles_and_huge_values_stay_unread() {
        let entry = |tag, count| Entry { tag, kind: FieldType::Long, count, offset: 0 };
        assert!(left_out(&entry(tag::TILE_OFFSETS, 1)).is_some());
        assert!(left_out(&entry(65000, u64::MAX)).is_some());
        assert!(left_out(&entry(65000, 4)).is_none());
    }
}
