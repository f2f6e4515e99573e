//! Georeferencing, nodata, bands and everything else that describes pixels.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use swath_io::fork::PerProcess;
use swath_tiff::{
    Photometric, SampleType,
    geo::{
        Crs, Gcp, GeoKey, GeoKeys, GeoTransform, GeoValue, Nodata, Rpc,
        gdal_xml::{Domain, XmlDomain},
    },
    structure::Layout,
};

/// The item that says whether coordinates are those of a pixel's corner or of its centre.
pub(crate) const AREA_OR_POINT: &str = "AREA_OR_POINT";

/// Where a raster lies.
#[derive(Debug, Clone, Default)]
pub struct Georeference {
    /// The coordinate reference system.
    pub crs: Option<Crs>,
    /// From pixels to coordinates.
    pub transform: Option<GeoTransform>,
    /// Control points, where there is no transform.
    pub gcps: Vec<Gcp>,
    /// The control points' reference system.
    pub gcp_crs: Option<Crs>,
    /// Rational polynomial coefficients.
    pub rpc: Option<Rpc>,
    /// Whether a pixel stands for a point rather than an area.
    pub pixel_is_point: bool,
    /// The GeoTIFF keys as stored.
    pub keys: GeoKeys,
}

impl Georeference {
    /// The keys, where they agree with the other fields. A copy then keeps them word for word, with details that keys made from the
    /// other fields would lose.
    pub(crate) fn own_keys(&self) -> Option<&GeoKeys> {
        let unchanged = self.keys.pixel_is_point() == self.pixel_is_point
            && crs_of(&self.keys).as_ref() == self.crs.as_ref().or(self.gcp_crs.as_ref());
        Some(&self.keys).filter(|keys| !keys.entries.is_empty() && unchanged)
    }
}

/// The metadata of one band.
#[derive(Debug, Clone, Default)]
pub struct Band {
    /// Its name.
    pub description: Option<String>,
    /// Unit of scaled values.
    pub unit: Option<String>,
    /// Value = stored × scale + offset.
    pub scale: Option<f64>,
    /// See `scale`.
    pub offset: Option<f64>,
    /// Stored value that means "no data".
    pub nodata: Option<Nodata>,
    /// What the band is as colour, in rasterio's words.
    pub color: String,
    /// Metadata by domain; statistics are in the default one (`""`).
    pub domains: Vec<Domain>,
    /// Domains that are XML.
    pub xml_domains: Vec<XmlDomain>,
}

/// All metadata of a file, and of a file to write.
///
/// ```
/// use swath::{
///     Metadata,
///     geo::{Crs, GeoTransform},
/// };
///
/// let mut metadata = Metadata::default();
/// metadata.georeference.crs = Crs::from_epsg(32633);
/// // The upper left corner, and pixels of 10 metres.
/// metadata.georeference.transform = Some(GeoTransform([500_000.0, 10.0, 0.0, 5_200_000.0, 0.0, -10.0]));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// Where the raster lies.
    pub georeference: Georeference,
    /// One for each band.
    pub bands: Vec<Band>,
    /// Metadata of the file, by domain.
    pub domains: Vec<Domain>,
    /// Domains that are XML.
    pub xml_domains: Vec<XmlDomain>,
    /// The writer's description of how pixels were encoded.
    pub image_structure: Vec<(String, String)>,
    /// Colours of palette indices: red, green, blue, of 16 bits.
    pub palette: Vec<[u16; 3]>,
    /// Files beside this one that were used.
    pub side_files: Vec<String>,
    /// Items that were found but not recognised.
    pub unrecognised: Vec<String>,
    /// Faults that leave the pixels readable.
    pub problems: Vec<String>,
    /// The entry of `problems` about a nodata value with a fraction, which no sample of an integer type can have.
    pub nodata_problem: Option<String>,
    /// The entries of `problems` about side files.
    pub side_problems: Vec<String>,
}

impl Metadata {
    /// The nodata value of the first band.
    pub fn nodata(&self) -> Option<&Nodata> {
        self.bands.first()?.nodata.as_ref()
    }

    /// `Area` or `Point`: what coordinates of a pixel mean. Files that do not say mean areas.
    pub fn area_or_point(&self) -> &str {
        let stated = self.domains.iter().find(|domain| domain.name.is_empty());
        stated.and_then(|domain| domain.get(AREA_OR_POINT)).unwrap_or("Area")
    }
}

/// Number of cached reference systems. The files of one job nearly always share a few, and parsing one takes longer than opening
/// the file.
const KEPT_SYSTEMS: usize = 16;

/// Keys, and the systems that they describe.
type Systems = VecDeque<(GeoKeys, Option<Crs>)>;

/// The system that the keys describe.
pub(crate) fn crs_of(keys: &GeoKeys) -> Option<Crs> {
    static KEPT: PerProcess<Mutex<Systems>> = PerProcess::new();
    let mut kept = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, crs)) = kept.iter().find(|(known, _)| known == keys) {
        return crs.clone();
    }
    drop(kept);
    let crs = keys.crs();
    // Long keys, as of a hostile file, are not worth caching.
    let long = |key: &GeoKey| matches!(&key.value, GeoValue::Ascii(text) if text.len() > 4096);
    if keys.entries.len() > 64 || keys.entries.iter().any(long) {
        return crs;
    }
    kept = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner);
    kept.truncate(KEPT_SYSTEMS - 1);
    kept.push_front((keys.clone(), crs.clone()));
    crs
}

/// Returns the colour of each band according to the tags alone, in rasterio's words.
pub(crate) fn colors(layout: &Layout) -> Vec<String> {
    let (samples, extra) = (layout.samples, &layout.extra_samples);
    let base: &[&str] = match layout.photometric {
        // GDAL gives bilevel images, and shallow ones whose zero is white, a palette of greys.
        Some(Photometric::MinIsWhite | Photometric::MinIsBlack) | None if layout.bits == 1 => &["palette"],
        Some(Photometric::MinIsWhite) if layout.bits <= 16 => &["palette"],
        Some(Photometric::MinIsWhite | Photometric::LogL | Photometric::LogLuv) => &["undefined"],
        // Reads return YCbCr as RGB where its three samples lie together.
        Some(Photometric::Rgb | Photometric::YCbCr) if samples >= 3 => &["red", "green", "blue"],
        Some(Photometric::Palette) => &["palette"],
        Some(Photometric::Separated) if samples >= 4 => &["cyan", "magenta", "yellow", "black"],
        _ => &["gray"],
    };
    let count = usize::from(samples);
    let extras = count.saturating_sub(base.len());
    // Where the file names fewer extra samples than it has, the named ones are the last.
    let unnamed = extras.saturating_sub(extra.len());
    (0..count)
        .map(|index| match base.get(index) {
            Some(color) => (*color).to_owned(),
            None => match (index - base.len()).checked_sub(unnamed).and_then(|position| extra.get(position)) {
                Some(1 | 2) => "alpha".to_owned(),
                _ => "undefined".to_owned(),
            },
        })
        .collect()
}

impl Band {
    /// The nodata value as a sample of this type; `None` where no sample can have it.
    pub fn nodata_sample(&self, sample: SampleType) -> Option<Vec<u8>> {
        self.nodata.as_ref()?.for_dtype(sample).map(|bytes| bytes.as_slice().to_vec())
    }
}
