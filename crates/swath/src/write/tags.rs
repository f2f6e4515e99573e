//! The tags that say what pixels mean: georeferencing, nodata, colours, GDAL's metadata.

use swath_raster::{moments::Moments, shrink::Resampling};
use swath_tiff::{
    Photometric,
    geo::{
        KeyTags,
        emit::{self, Reference},
        gdal_xml::{BandMetadata, Domain, GdalMetadata, write as write_xml},
        printf::g17,
    },
    structure::{
        ByteOrder, Layout,
        emit::{Field, Values},
        value::FieldType,
    },
    tag,
};

use super::options::WriteOptions;
use crate::{
    error::Error,
    metadata::{Metadata, colors},
};

/// Names of the statistics of a band, as GDAL has them.
const STATISTICS: [&str; 5] =
    ["STATISTICS_MAXIMUM", "STATISTICS_MEAN", "STATISTICS_MINIMUM", "STATISTICS_STDDEV", "STATISTICS_VALID_PERCENT"];

/// Text tags that GDAL shows as items of the default domain.
const TEXT_TAGS: [(&str, u16); 7] = [
    ("TIFFTAG_DOCUMENTNAME", 269),
    ("TIFFTAG_IMAGEDESCRIPTION", 270),
    ("TIFFTAG_SOFTWARE", 305),
    ("TIFFTAG_DATETIME", 306),
    ("TIFFTAG_ARTIST", 315),
    ("TIFFTAG_HOSTCOMPUTER", 316),
    ("TIFFTAG_COPYRIGHT", 33432),
];

const END: &str = "</GDALMetadata>\n";

/// The tags that say what pixels mean.
pub(super) struct Text<'a> {
    pub metadata: &'a Metadata,
    pub options: &'a WriteOptions,
    pub layout: &'a Layout,
    pub resampling: Option<Resampling>,
}

impl Text<'_> {
    pub(super) fn fields(&self) -> Result<Vec<Field>, Error> {
        let mut fields = self.georeference();
        if let Some(nodata) = self.metadata.nodata() {
            fields.push(Field::ascii(tag::GDAL_NODATA, &nodata.text));
        }
        let mut xml = write_xml(&self.gdal_metadata());
        if xml.is_empty() && self.options.wants_statistics() {
            xml = format!("<GDALMetadata>\n{END}");
        }
        if !xml.is_empty() {
            fields.push(Field::ascii(tag::GDAL_METADATA, &xml));
        }
        fields.extend(self.palette()?);
        fields.extend(self.text_tags());
        // Keys point into their text, so that a NUL in it ends nothing.
        let texts = fields.iter().filter(|field| field.kind == FieldType::Ascii && field.tag != tag::GEO_ASCII_PARAMS);
        for field in texts {
            // A reader would take it for the end of the text, or for two texts.
            let Values::Bytes(bytes) = &field.values else { continue };
            if bytes.strip_suffix(b"\0").is_some_and(|text| text.contains(&0)) {
                return Err(Error::usage(format!("the text of tag {} holds a NUL", field.tag)));
            }
        }
        Ok(fields)
    }

    /// Bytes that statistics of all bands may add to the metadata.
    pub(super) fn reserve(&self) -> u64 {
        let item: usize = STATISTICS.iter().map(|name| statistic(name, u32::from(u16::MAX), "").len() + 26).sum();
        u64::from(self.layout.samples) * item as u64
    }

    fn georeference(&self) -> Vec<Field> {
        let georeference = &self.metadata.georeference;
        let reference = match georeference.own_keys() {
            Some(keys) => Reference::Keys(&keys.tags),
            None => Reference::Crs(georeference.crs.as_ref().or(georeference.gcp_crs.as_ref())),
        };
        let tags = emit::geo_tags(
            reference,
            georeference.transform.as_ref(),
            &georeference.gcps,
            georeference.rpc.as_ref(),
            georeference.pixel_is_point,
        );
        let KeyTags { directory, doubles, mut ascii } = tags.keys;
        let mut fields = Vec::new();
        if !directory.is_empty() {
            fields.push(Field::short(tag::GEO_KEY_DIRECTORY, directory));
        }
        if !doubles.is_empty() {
            fields.push(Field::double(tag::GEO_DOUBLE_PARAMS, doubles));
        }
        if !ascii.is_empty() {
            if !ascii.ends_with(b"\0") {
                ascii.push(0);
            }
            // As bytes: the text of another file need not be UTF-8.
            fields.push(Field::raw(tag::GEO_ASCII_PARAMS, FieldType::Ascii, ByteOrder::Little, &ascii));
        }
        if let Some(scale) = tags.pixel_scale {
            fields.push(Field::double(tag::MODEL_PIXEL_SCALE, scale));
        }
        if !tags.tiepoints.is_empty() {
            fields.push(Field::double(tag::MODEL_TIEPOINT, tags.tiepoints));
        }
        if let Some(transformation) = tags.transformation {
            fields.push(Field::double(tag::MODEL_TRANSFORMATION, transformation));
        }
        if let Some(rpc) = tags.rpc {
            fields.push(Field::double(tag::RPC_COEFFICIENT, rpc));
        }
        fields
    }

    fn gdal_metadata(&self) -> GdalMetadata {
        let mut all = GdalMetadata {
            domains: self.metadata.domains.clone(),
            xml_domains: self.metadata.xml_domains.clone(),
            ..GdalMetadata::default()
        };
        if let Some(resampling) = self.resampling.filter(|_| self.options.cog) {
            all.image_structure.push(("OVERVIEW_RESAMPLING".to_owned(), resampling.to_string().to_uppercase()));
        }
        let stated_colors = colors(self.layout);
        for ((number, band), stated) in (1..).zip(&self.metadata.bands).zip(stated_colors) {
            let mut domains = band.domains.clone();
            if self.options.wants_statistics() {
                // Statistics are computed again.
                domains.iter_mut().for_each(drop_statistics);
            }
            // A colour that other tags already state is not written again.
            let color =
                Some(&band.color).filter(|color| !color.is_empty() && **color != stated && *color != "undefined");
            let color = color.filter(|color| !self.is_recoloured(color));
            all.bands.insert(
                number,
                BandMetadata {
                    domains,
                    xml_domains: band.xml_domains.clone(),
                    offset: band.offset,
                    scale: band.scale,
                    unit: band.unit.clone(),
                    description: band.description.clone(),
                    color_interp: color.map(|color| capitalised(color)),
                    nodata: None,
                },
            );
        }
        all
    }

    /// Whether the colours that the caller asks for take the place of this one.
    fn is_recoloured(&self, color: &str) -> bool {
        use Photometric::{Palette, Rgb, Separated, YCbCr};
        const COLORS: [&str; 9] = ["gray", "palette", "red", "green", "blue", "cyan", "magenta", "yellow", "black"];
        matches!(self.options.photometric, Some(Rgb | YCbCr | Palette | Separated)) && COLORS.contains(&color)
    }

    fn palette(&self) -> Result<Option<Field>, Error> {
        if self.layout.photometric != Some(Photometric::Palette) {
            return Ok(None);
        }
        let len = 1_usize << self.layout.bits;
        let palette = &self.metadata.palette;
        if palette.is_empty() {
            return Err(Error::usage("a palette image needs the colours of its palette"));
        }
        let channel = |index: usize| (0..len).map(move |entry| palette.get(entry).map_or(0, |color| color[index]));
        let values: Vec<u16> = (0..3).flat_map(channel).collect();
        Ok(Some(Field::short(tag::COLOR_MAP, values)))
    }

    fn text_tags(&self) -> Vec<Field> {
        let Some(default) = self.metadata.domains.iter().find(|domain| domain.name.is_empty()) else {
            return Vec::new();
        };
        let mut fields: Vec<Field> =
            TEXT_TAGS.iter().filter_map(|(name, number)| Some(Field::ascii(*number, default.get(name)?))).collect();
        for (name, number) in [("TIFFTAG_XRESOLUTION", 282), ("TIFFTAG_YRESOLUTION", 283)] {
            if let Some(value) =
                default.get(name).and_then(|text| text.parse::<f64>().ok()).filter(|value| *value >= 0.0)
            {
                fields.push(Field::fractions(number, &[value]));
            }
        }
        for (name, number) in [("TIFFTAG_MINSAMPLEVALUE", 280), ("TIFFTAG_MAXSAMPLEVALUE", 281)] {
            if let Some(value) = default.get(name).and_then(|text| text.parse::<u16>().ok()) {
                fields.push(Field::short(number, vec![value; self.layout.samples.into()]));
            }
        }
        let unit = default.get("TIFFTAG_RESOLUTIONUNIT").and_then(|text| text.split(' ').next()?.parse::<u16>().ok());
        fields.extend(unit.map(|unit| Field::short(296, [unit])));
        fields
    }
}

fn drop_statistics(domain: &mut Domain) {
    if domain.name.is_empty() {
        domain.items.retain(|(name, _)| !name.starts_with("STATISTICS_"));
    }
}

/// GDAL's spelling of a colour.
fn capitalised(color: &str) -> String {
    let mut letters = color.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn statistic(name: &str, sample: u32, value: &str) -> String {
    format!("  <Item name=\"{name}\" sample=\"{sample}\">{value}</Item>\n")
}

/// A percentage with four significant digits, and no trailing zeros.
fn four_digits(percent: f64) -> String {
    let whole = percent.abs().max(1e-9).log10().floor() as i32;
    let text = format!("{percent:.*}", usize::try_from(3 - whole).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Adds the statistics of each band to the metadata.
pub(super) fn add_statistics(field: Field, moments: &[Moments]) -> Field {
    let Values::Bytes(bytes) = &field.values else { return field };
    let text = String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned();
    let mut text = text.strip_suffix(END).unwrap_or(&text).to_owned();
    for (sample, moments) in (0..).zip(moments).filter(|(_, moments)| moments.count > 0) {
        let values = [moments.max, moments.mean, moments.min, moments.deviation()].map(g17);
        // Four digits, as GDAL gives.
        let percent = four_digits(moments.valid_percent());
        for (name, value) in STATISTICS.iter().zip(values.iter().chain([&percent])) {
            text += &statistic(name, sample, value);
        }
    }
    // The tag is written even without items, because the head reserved room for it.
    Field::ascii(field.tag, &(text + END))
}

/// Checks that each tag is there once, and that the caller sets none that the layout decides.
pub(super) fn check(fields: &[Field]) -> Result<(), Error> {
    // Free space, fax options, old-style JPEG and YCbCr would change how a reader interprets the file.
    const OWN: [u16; 41] = [
        254,
        255,
        256,
        257,
        258,
        259,
        262,
        266,
        273,
        277,
        278,
        279,
        284,
        288,
        289,
        292,
        293,
        317,
        322,
        323,
        324,
        325,
        330,
        338,
        339,
        347,
        512,
        513,
        514,
        515,
        517,
        518,
        519,
        520,
        521,
        529,
        530,
        531,
        532,
        50674,
        tag::SWATH_PIECES,
    ];
    for (index, field) in fields.iter().enumerate() {
        if OWN.contains(&field.tag) {
            return Err(Error::usage(format!("tag {} describes the layout and cannot be set", field.tag)));
        }
        if field.is_empty() || field.len() % field.kind.size().max(1) != 0 {
            return Err(Error::usage(format!("tag {} has no values, or an incomplete one", field.tag)));
        }
        if fields.iter().skip(index + 1).any(|other| other.tag == field.tag) {
            return Err(Error::usage(format!("tag {} is given twice", field.tag)));
        }
    }
    Ok(())
}
