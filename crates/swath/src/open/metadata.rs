//! Reads georeferencing, nodata, bands and all other metadata of a file and its side files.

use swath_io::sink::side_files::Stale;
use swath_tiff::{
    Photometric, SampleType,
    geo::{
        Crs, Gcp, GeoKeys, GeoTransform, ModelTags, Nodata, Rpc,
        gdal_xml::{self, BandMetadata, Domain, GdalMetadata},
        key_names::GT_RASTER_TYPE,
        merge::{self, GeorefOrder, GeorefSource, Offer},
        pam::{self, SideMetadata, SideSrs},
        transform, world,
        xml::Bounds,
    },
    structure::Value,
    tag,
};

use crate::{
    metadata::{AREA_OR_POINT, Band, Georeference, Metadata, colors, crs_of},
    open::{camera, dataset::Dataset},
};

/// Longest XML that is parsed, in a tag or in a side file.
const MAX_XML: usize = 4 << 20;

impl Metadata {
    pub(crate) fn read(dataset: &Dataset) -> Self {
        let mut found = Self { problems: dataset.main().layout.problems.clone(), ..Self::default() };
        let side = found.side(dataset);
        let mut own = found.own_xml(dataset);
        if let Some(side) = &side {
            merge::merge(&mut own, side);
        }
        found.georeference = found.georeference(dataset, side.as_ref());
        found.camera(dataset, &mut own);
        found.bands = bands(dataset, &mut own);
        if let Err(error) = dataset.tag(tag::GDAL_NODATA) {
            found.problems.push(format!("GDAL_NODATA is ignored: {error}"));
        }
        found.nodata_problem = found.bands.iter().find_map(|band| fractional(band.nodata.as_ref()?, dataset.sample()));
        found.problems.extend(found.nodata_problem.clone());
        found.add_height_unit();
        found.domains = own.domains;
        found.xml_domains = own.xml_domains;
        found.image_structure = own.image_structure;
        found.problems.append(&mut own.problems);
        found.add_text_tags(dataset);
        found.palette = found.palette(dataset);
        let sidecars = dataset.sidecars();
        found.side_files.extend(sidecars.files.iter().cloned());
        found.side_problems.extend(sidecars.problems.iter().cloned());
        found.problems.extend(found.side_problems.iter().cloned());
        found
    }

    /// Sets the unit of heights to that of the vertical system where the file names no other, as GDAL does.
    fn add_height_unit(&mut self) {
        let Some(crs) = &self.georeference.crs else { return };
        let shown = self.georeference.keys.crs_as_gdal_reports(crs);
        let Some(unit) = shown.horizontal.as_ref().and(shown.vertical_unit.as_ref()) else { return };
        for band in &mut self.bands {
            band.unit.get_or_insert_with(|| unit.name.clone());
        }
    }

    fn side(&mut self, dataset: &Dataset) -> Option<SideMetadata> {
        let bytes = dataset.sidecars().pam.as_ref()?;
        match pam::parse(bytes, Bounds::default().with_bytes(MAX_XML)) {
            Ok(side) => {
                self.side_problems.extend(side.problems.iter().map(|problem| format!("side file: {problem}")));
                self.unrecognised.extend(side.unrecognised.iter().cloned());
                Some(side)
            }
            Err(error) => {
                self.side_problems.push(format!("the .aux.xml file is ignored: {error}"));
                None
            }
        }
    }

    fn own_xml(&mut self, dataset: &Dataset) -> GdalMetadata {
        let raw = match dataset.raw_tag(tag::GDAL_METADATA) {
            None => return GdalMetadata::default(),
            Some(Ok(raw)) => raw,
            Some(Err(error)) => {
                self.problems.push(format!("GDAL_METADATA is ignored: {error}"));
                return GdalMetadata::default();
            }
        };
        gdal_xml::parse(&raw, Bounds::default().with_bytes(MAX_XML)).unwrap_or_else(|error| {
            self.problems.push(format!("GDAL_METADATA is ignored: {error}"));
            GdalMetadata::default()
        })
    }

    /// Doubles of a tag. A tag that cannot be read becomes a problem and is ignored.
    fn doubles(&mut self, dataset: &Dataset, number: u16) -> Vec<f64> {
        match dataset.tag(number) {
            Ok(Some(value)) => value.to_floats().unwrap_or_default(),
            Ok(None) => Vec::new(),
            Err(error) => {
                self.problems.push(format!("tag {number} is ignored: {error}"));
                Vec::new()
            }
        }
    }

    fn georeference(&mut self, dataset: &Dataset, side: Option<&SideMetadata>) -> Georeference {
        let directory: Vec<u16> = match dataset.tag(tag::GEO_KEY_DIRECTORY) {
            Ok(Some(Value::Integers(values))) => values.into_iter().map(|value| value as u16).collect(),
            Ok(_) => Vec::new(),
            Err(error) => {
                self.problems.push(format!("GeoKeyDirectory is ignored: {error}"));
                Vec::new()
            }
        };
        let doubles = self.doubles(dataset, tag::GEO_DOUBLE_PARAMS);
        let ascii = dataset.raw_tag(tag::GEO_ASCII_PARAMS).and_then(Result::ok).unwrap_or_default();
        let keys = if directory.is_empty() { GeoKeys::default() } else { GeoKeys::parse(&directory, &doubles, &ascii) };
        let (pixel_scale, tiepoints, transformation) = (
            self.doubles(dataset, tag::MODEL_PIXEL_SCALE),
            self.doubles(dataset, tag::MODEL_TIEPOINT),
            self.doubles(dataset, tag::MODEL_TRANSFORMATION),
        );
        let tags = ModelTags { pixel_scale: &pixel_scale, tiepoints: &tiepoints, transformation: &transformation };
        let mut own = transform::read(&tags, &keys);
        self.problems.extend(keys.problems.iter().cloned());
        self.problems.append(&mut own.problems);
        let crs = crs_of(&keys);
        if let Some(crs) = &crs {
            self.problems.extend(crs.problems.iter().cloned());
        }
        let world = self.world(dataset);
        let choice = merge::choose(&GeorefOrder::default(), |source| match source {
            GeorefSource::Pam => side.map(Offer::from).unwrap_or_default(),
            GeorefSource::Internal => {
                Offer { srs: crs.is_some(), transform: own.transform.is_some(), gcps: !own.gcps.is_empty() }
            }
            GeorefSource::WorldFile => Offer { transform: world.is_some(), ..Offer::default() },
            _ => Offer::default(),
        });
        let crs_from = |source: Option<GeorefSource>, of_side: &dyn Fn(&SideMetadata) -> Option<SideSrs>| match source {
            Some(GeorefSource::Pam) => side.and_then(of_side).map(|srs| Crs::from_text(&srs.text)),
            Some(_) => crs.clone(),
            None => None,
        };
        Georeference {
            crs: crs_from(choice.srs, &|side| side.srs.clone()),
            transform: match choice.transform {
                Some(GeorefSource::Pam) => side.and_then(|side| side.geo_transform).map(GeoTransform),
                Some(GeorefSource::WorldFile) => world.map(GeoTransform),
                Some(_) => own.transform,
                None => None,
            },
            gcps: match choice.gcps {
                Some(GeorefSource::Pam) => side.map(side_gcps).unwrap_or_default(),
                Some(_) => own.gcps,
                None => Vec::new(),
            },
            gcp_crs: crs_from(choice.gcp_srs, &|side| side.gcp_srs.clone()),
            rpc: None,
            pixel_is_point: keys.pixel_is_point(),
            keys,
        }
    }

    fn camera(&mut self, dataset: &Dataset, own: &mut GdalMetadata) {
        let tag = self.doubles(dataset, tag::RPC_COEFFICIENT);
        let model = &mut self.georeference.rpc;
        *model = Rpc::parse(&tag).or_else(|| camera::in_domains(&own.domains));
        if model.is_some() {
            // A part of the image has another model, but would inherit these items.
            own.domains.retain(|domain| domain.name != "RPC");
        }
        let path = dataset.path.as_deref().filter(|_| !dataset.sidecars().too_late);
        let beside = path.and_then(|path| {
            let stale = Stale::beside(path, dataset.source().as_file());
            camera::beside(path).filter(|(file, _)| !stale.has(file))
        });
        match beside {
            Some((file, Ok(found))) => {
                *model = Some(found);
                self.side_files.push(file.display().to_string());
            }
            Some((file, Err(error))) => {
                self.side_problems.push(format!("the camera model {} is ignored: {error}", file.display()));
            }
            None => {}
        }
    }

    fn world(&mut self, dataset: &Dataset) -> Option<[f64; 6]> {
        match world::parse(dataset.sidecars().world.as_ref()?) {
            Ok(transform) => Some(transform),
            Err(error) => {
                self.side_problems.push(format!("the world file is ignored: {error}"));
                None
            }
        }
    }

    /// GDAL shows these tags as items of the default domain, and so do we.
    fn add_text_tags(&mut self, dataset: &Dataset) {
        const TAGS: [(u16, &str); 12] = [
            (269, "TIFFTAG_DOCUMENTNAME"),
            (270, "TIFFTAG_IMAGEDESCRIPTION"),
            (305, "TIFFTAG_SOFTWARE"),
            (306, "TIFFTAG_DATETIME"),
            (315, "TIFFTAG_ARTIST"),
            (316, "TIFFTAG_HOSTCOMPUTER"),
            (33432, "TIFFTAG_COPYRIGHT"),
            (282, "TIFFTAG_XRESOLUTION"),
            (283, "TIFFTAG_YRESOLUTION"),
            (296, "TIFFTAG_RESOLUTIONUNIT"),
            (280, "TIFFTAG_MINSAMPLEVALUE"),
            (281, "TIFFTAG_MAXSAMPLEVALUE"),
        ];
        let mut items = Vec::new();
        for (number, name) in TAGS {
            let text = match dataset.tag(number) {
                Ok(Some(Value::Text(text))) => text,
                Ok(Some(value)) => match (number, value.to_floats().as_deref()) {
                    (296, Some([unit, ..])) => match *unit as i64 {
                        1 => "1 (unitless)".to_owned(),
                        2 => "2 (pixels/inch)".to_owned(),
                        3 => "3 (pixels/cm)".to_owned(),
                        other => other.to_string(),
                    },
                    (282 | 283, Some([first, ..])) => eight_digits(*first),
                    (_, Some([first, ..])) => first.to_string(),
                    _ => continue,
                },
                Ok(None) => continue,
                Err(error) => {
                    self.problems.push(format!("tag {number} is ignored: {error}"));
                    continue;
                }
            };
            items.push((name.to_owned(), text));
        }
        // GDAL shows no item where the file has no key.
        if self.georeference.keys.short(GT_RASTER_TYPE).is_some() {
            let kind = if self.georeference.pixel_is_point { "Point" } else { "Area" };
            items.push((AREA_OR_POINT.to_owned(), kind.to_owned()));
        }
        match self.domains.iter_mut().find(|domain| domain.name.is_empty()) {
            Some(domain) => {
                // The key places the pixels, so it overrides the item. Items override the other tags, as in GDAL.
                domain.items.retain(|(name, _)| name != AREA_OR_POINT || !items.iter().any(|(key, _)| key == name));
                items.retain(|(name, _)| domain.get(name).is_none());
                domain.items.extend(items);
            }
            None if items.is_empty() => {}
            None => self.domains.insert(0, Domain { name: String::new(), items }),
        }
    }

    fn palette(&mut self, dataset: &Dataset) -> Vec<[u16; 3]> {
        let layout = &dataset.main().layout;
        let is_palette = layout.photometric == Some(Photometric::Palette);
        // GDAL writes a palette next to a grey photometric where the colours came after the first pixels, and reads it back.
        let noted = self.bands.first().is_some_and(|band| band.color == "palette")
            && layout.samples == 1
            && dataset.main().ifd.entry(tag::COLOR_MAP).is_some();
        if !is_palette && !noted {
            return Vec::new();
        }
        let Ok(Some(Value::Integers(values))) = dataset.tag(tag::COLOR_MAP) else {
            self.problems.push("a palette image without a readable ColorMap".to_owned());
            return Vec::new();
        };
        let len = values.len() / 3;
        let channel =
            |start: usize| values.get(start..start + len).unwrap_or_default().iter().map(|value| *value as u16);
        channel(0).zip(channel(len)).zip(channel(2 * len)).map(|((red, green), blue)| [red, green, blue]).collect()
    }
}

/// A number as C prints it by `%.8g`, which is how GDAL shows resolutions.
fn eight_digits(value: f64) -> String {
    let scientific = format!("{value:.7e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !value.is_finite() || (-4..8).contains(&exponent) {
        let places = usize::try_from(7 - exponent).unwrap_or(0);
        return trimmed(&format!("{value:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

fn side_gcps(side: &SideMetadata) -> Vec<Gcp> {
    let convert =
        |gcp: &pam::SideGcp| Gcp { id: gcp.id.clone(), pixel: gcp.pixel, line: gcp.line, x: gcp.x, y: gcp.y, z: gcp.z };
    side.gcps.iter().map(convert).collect()
}

/// Describes a nodata value with a fraction where samples are integers. Values out of their range are left aside as in GDAL, which
/// however hides samples that equal the integer part of a fraction.
fn fractional(nodata: &Nodata, sample: SampleType) -> Option<String> {
    let value = nodata.as_f64();
    let found = value.is_finite() && value.fract() != 0.0 && nodata.for_dtype(sample).is_none();
    found.then(|| {
        format!(
            "nodata {} is not a value of {sample} and is ignored: all pixels count as data, while GDAL hides those of {}",
            nodata.text,
            value.trunc()
        )
    })
}

fn bands(dataset: &Dataset, own: &mut GdalMetadata) -> Vec<Band> {
    let layout = &dataset.main().layout;
    let file_nodata = dataset.nodata();
    let colors = colors(layout);
    (1..=u32::from(layout.samples))
        .zip(colors)
        .map(|(number, color)| {
            let BandMetadata { domains, xml_domains, offset, scale, unit, description, color_interp, nodata } =
                own.bands.remove(&number).unwrap_or_default();
            let nodata = match nodata {
                Some(side) => Nodata::parse(side.text.as_bytes()),
                None => file_nodata.cloned(),
            };
            // GDAL makes a palette for bilevel images, whatever the writer noted.
            let noted = color_interp.filter(|_| layout.bits != 1).map(|name| name.to_lowercase());
            let color = noted.unwrap_or(color);
            Band { description, unit, scale, offset, nodata, color, domains, xml_domains }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::eight_digits;

    #[test]
    fn resolutions_read_as_gdal_prints_them() {
        for (value, text) in [
            (72.0, "72"),
            (1.0 / 3.0, "0.33333333"),
            (28346.456692913, "28346.457"),
            (123_456_789.0, "1.2345679e+08"),
            (0.000_012_345, "1.2345e-05"),
            (0.0, "0"),
            (99_999_999.6, "1e+08"),
        ] {
            assert_eq!(eight_digits(value), text);
        }
    }
}
