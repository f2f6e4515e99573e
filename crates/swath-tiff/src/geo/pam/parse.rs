//! Parses a side file.

use std::collections::BTreeMap;

use crate::geo::{
    domain::{DomainsBuilder, XmlDomain},
    nodata::SideNodata,
    number::{self, Decimal, is_space},
    pam::{
        esri,
        model::{GeodataXform, Histogram, SideBand, SideGcp, SideMetadata, SideSrs},
    },
    problems::{Problems, shorten},
    xml::{Bounds, Element, Tree, XmlError, decode},
};

/// Parses a side file.
///
/// # Errors
///
/// As in GDAL, a document that is not well formed yields nothing; see [`XmlError`]. The raster is readable without it.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<SideMetadata, XmlError> {
    let mut problems = Problems::default();
    let text = decode(bytes, bounds, &mut problems)?;
    let tree = Tree::parse(&text, bounds)?;
    let root = tree.root();
    let mut read = Read { side: SideMetadata::default(), problems, unrecognised: Problems::default() };
    if tree.trailer {
        read.problems.add(|| "text after the root element was not read".to_owned());
    }
    if esri::is_xform(root) {
        // GDAL lists it under this name, serialised anew; here it is the text as written
        let document = format!("<{0}>{1}</{0}>", root.name(), root.inner());
        read.side.xml_domains.push(XmlDomain { name: "xml:ESRI".to_owned(), text: document });
        read.side.esri = Some(esri::xform(root, &mut read.problems));
        esri::derive_georeference(&mut read.side);
    } else if !root.is("PAMDataset") {
        return Err(XmlError::Root { found: shorten(root.name()), expected: "PAMDataset" });
    } else if tree.prolog {
        // GDAL looks for everything inside the first node of the file, which is then the declaration or comment. Reading the file
        // anyway would give nodata and scales that no GDAL program sees.
        read.problems
            .add(|| "ignored, as by GDAL, because of the declaration or comment before <PAMDataset>".to_owned());
    } else {
        read.dataset(root);
    }
    let Read { mut side, problems, unrecognised } = read;
    side.problems = problems.finish();
    side.unrecognised = unrecognised.finish();
    Ok(side)
}

struct Read {
    side: SideMetadata,
    problems: Problems,
    unrecognised: Problems,
}

impl Read {
    fn dataset(&mut self, root: Element<'_, '_>) {
        let mut domains = DomainsBuilder::default();
        let (mut seen_srs, mut seen_transform, mut seen_gcps) = (false, false, false);
        let mut bands: BTreeMap<u32, (DomainsBuilder, SideBand)> = BTreeMap::new();
        for child in root.children() {
            match child.name().to_ascii_lowercase().as_str() {
                // where an element should occur once, GDAL reads the first
                "srs" if !seen_srs => {
                    seen_srs = true;
                    self.side.srs = self.srs(child);
                }
                "geotransform" if !seen_transform => {
                    seen_transform = true;
                    self.side.geo_transform = self.geo_transform(child);
                }
                "gcplist" if !seen_gcps => {
                    seen_gcps = true;
                    self.gcp_list(child);
                }
                "srs" | "geotransform" | "gcplist" => {
                    self.problems.add(|| format!("a second <{}> was not read", shorten(child.name())));
                }
                "metadata" => {
                    if let Some(xform) = self.metadata(child, &mut domains) {
                        self.side.esri = Some(xform);
                    }
                }
                "pamrasterband" => {
                    let number = child.attribute("band").unwrap_or_default();
                    match number::integer_prefix(&number).and_then(|band| u32::try_from(band).ok()) {
                        Some(band @ 1..=65_536) => {
                            let (domains, side_band) = bands.entry(band).or_default();
                            self.band(child, band, domains, side_band);
                        }
                        _ => self.problems.add(|| format!("there is no band {}", shorten(&number))),
                    }
                }
                _ => self.unrecognised.add(|| format!("PAMDataset/{}", shorten(child.name()))),
            }
        }
        (self.side.domains, self.side.xml_domains) = domains.finish();
        let bands = bands.into_iter().map(|(band, (domains, side_band))| {
            let (domains, xml_domains) = domains.finish();
            (band, SideBand { domains, xml_domains, ..side_band })
        });
        self.side.bands = bands.collect();
        esri::derive_georeference(&mut self.side);
    }

    fn srs(&mut self, element: Element<'_, '_>) -> Option<SideSrs> {
        let Some(text) = element.value() else {
            // in GDAL an empty one hides the TIFF's own, which no writer intends
            self.problems.add(|| "<SRS> is empty".to_owned());
            return None;
        };
        let mapping = element.attribute("dataAxisToSRSAxisMapping");
        let coordinate_epoch = element.attribute("coordinateEpoch");
        Some(SideSrs {
            text: text.unescaped.into_owned(),
            axis_mapping: mapping.and_then(|mapping| self.axis_mapping(&mapping)),
            coordinate_epoch: coordinate_epoch.and_then(|text| self.number("coordinateEpoch", &text)),
        })
    }

    fn axis_mapping(&mut self, text: &str) -> Option<Vec<i32>> {
        let axes: Option<Vec<i32>> = text
            .split(',')
            .filter(|axis| !axis.is_empty())
            .take(8)
            .map(|axis| number::integer_prefix(axis).filter(|axis| (-3..=3).contains(axis) && *axis != 0))
            .map(|axis| axis.and_then(|axis| i32::try_from(axis).ok()))
            .collect();
        if axes.is_none() {
            self.problems.add(|| format!("dataAxisToSRSAxisMapping names no axes: {}", shorten(text)));
        }
        axes
    }

    fn geo_transform(&mut self, element: Element<'_, '_>) -> Option<[f64; 6]> {
        let text = element.value()?.unescaped;
        let mut numbers = [0.0; 6];
        let mut tokens = text.split(',').filter(|token| !token.is_empty());
        for slot in &mut numbers {
            let number = tokens.next().and_then(|token| number::prefix(token, Decimal::Point));
            // GDAL accepts NaN and infinity here, and the image then has no position
            let Some(number) = number.filter(|number| number.is_finite()) else {
                self.problems.add(|| format!("GeoTransform is not six numbers: {}", shorten(&text)));
                return None;
            };
            *slot = number;
        }
        if tokens.next().is_some() {
            self.problems.add(|| format!("GeoTransform has more than six numbers: {}", shorten(&text)));
            return None;
        }
        Some(numbers)
    }

    fn gcp_list(&mut self, list: Element<'_, '_>) {
        if let Some(text) = list.attribute("Projection").filter(|text| !text.is_empty()) {
            let mapping = list.attribute("dataAxisToSRSAxisMapping");
            self.side.gcp_srs = Some(SideSrs {
                text: text.into_owned(),
                axis_mapping: mapping.and_then(|mapping| self.axis_mapping(&mapping)),
                coordinate_epoch: None,
            });
        }
        for point in list.children() {
            if !point.is("GCP") {
                self.unrecognised.add(|| format!("PAMDataset/GCPList/{}", shorten(point.name())));
                continue;
            }
            let number = |names: &[&str]| match names.iter().find_map(|name| point.attribute(name)) {
                None => Some(0.0),
                Some(text) => number::prefix(&text, Decimal::Point).filter(|number| number.is_finite()),
            };
            let id = point.attribute("Id").unwrap_or_default().into_owned();
            let coordinates =
                (number(&["Pixel"]), number(&["Line"]), number(&["X"]), number(&["Y"]), number(&["Z", "GCPZ"]));
            if let (Some(pixel), Some(line), Some(x), Some(y), Some(z)) = coordinates {
                let info = point.attribute("Info").unwrap_or_default().into_owned();
                self.side.gcps.push(SideGcp { id, info, pixel, line, x, y, z });
            } else {
                self.problems.add(|| format!("control point {} has a coordinate that is not a number", shorten(&id)));
            }
        }
    }

    /// Reads one `<Metadata>` into `domains` and returns ArcGIS's transformation if it holds one.
    fn metadata(&mut self, element: Element<'_, '_>, domains: &mut DomainsBuilder) -> Option<GeodataXform> {
        let domain = element.attribute("domain").unwrap_or_default();
        let format = element.attribute("format").unwrap_or_default();
        if format.eq_ignore_ascii_case("xml") || format.eq_ignore_ascii_case("json") {
            let json = format.eq_ignore_ascii_case("json");
            let text = element.value().filter(|_| json).map(|text| text.unescaped.into_owned());
            domains.set_xml(&domain, text.unwrap_or_else(|| element.inner().trim_matches(is_space).to_owned()));
            let is_esri = domain.eq_ignore_ascii_case("xml:ESRI");
            return element
                .children()
                .find(|child| is_esri && esri::is_xform(*child))
                .map(|found| esri::xform(found, &mut self.problems));
        }
        domains.add(&domain);
        for item in element.children() {
            if !item.is("MDI") {
                self.unrecognised.add(|| format!("Metadata/{}", shorten(item.name())));
                continue;
            }
            // unlike in the TIFF's tag, values are escaped only once
            let Some((key, value)) = item.attribute("key").zip(item.leading_text()) else { continue };
            if value.cut {
                self.problems.add(|| format!("the value of {} is cut at an escape that cannot be read", shorten(&key)));
            }
            domains.set(&domain, &key, value.unescaped.into_owned());
        }
        None
    }

    fn band(&mut self, element: Element<'_, '_>, number: u32, domains: &mut DomainsBuilder, side_band: &mut SideBand) {
        // as in GDAL, a second element for the same band clears the name and nothing else
        side_band.description = None;
        let mut offset_and_scale = (None, None);
        let mut extremes = (None, None);
        let mut moments = (None, None);
        for child in element.children() {
            let value = || child.value().map(|text| text.unescaped.into_owned());
            match child.name().to_ascii_lowercase().as_str() {
                "description" => side_band.description = side_band.description.take().or_else(value),
                "nodatavalue" => side_band.nodata = self.nodata(child).or(side_band.nodata.take()),
                "offset" => offset_and_scale.0 = offset_and_scale.0.or(self.child_number(child)),
                "scale" => offset_and_scale.1 = offset_and_scale.1.or(self.child_number(child)),
                "unittype" => side_band.unit = value().or(side_band.unit.take()),
                "colorinterp" => side_band.color_interp = value().or(side_band.color_interp.take()),
                "categorynames" => {
                    let names = child.children().filter(|entry| entry.is("Category"));
                    let name = |entry: Element<'_, '_>| entry.leading_text().map(|text| text.unescaped.into_owned());
                    side_band.category_names = names.map(|entry| name(entry).unwrap_or_default()).collect();
                }
                "colortable" => {
                    side_band.color_table = child.children().filter(|entry| entry.is("Entry")).map(color).collect();
                }
                "minimum" => extremes.0 = self.child_number(child),
                "maximum" => extremes.1 = self.child_number(child),
                "mean" => moments.0 = self.child_number(child),
                "standarddeviation" => moments.1 = self.child_number(child),
                "histograms" => {
                    let items: Vec<_> = child.children().filter(|item| item.is("HistItem")).collect();
                    side_band.histograms = items.into_iter().filter_map(|item| self.histogram(item, number)).collect();
                }
                "metadata" => {
                    self.metadata(child, domains);
                }
                // for instance the raster attribute table
                _ => self.unrecognised.add(|| format!("PAMRasterBand {number}/{}", shorten(child.name()))),
            }
        }
        if offset_and_scale != (None, None) {
            side_band.offset = Some(offset_and_scale.0.unwrap_or(0.0));
            side_band.scale = Some(offset_and_scale.1.unwrap_or(1.0));
        }
        side_band.min_max = extremes.0.zip(extremes.1).or(side_band.min_max);
        side_band.mean_stddev = moments.0.zip(moments.1).or(side_band.mean_stddev);
    }

    fn nodata(&mut self, element: Element<'_, '_>) -> Option<SideNodata> {
        let text = element.value()?.unescaped;
        let bits = element.attribute("le_hex_equiv").and_then(|hex| little_endian_f64(&hex));
        let value = bits.or_else(|| number::prefix(&text, Decimal::Point));
        if value.is_none() {
            self.problems.add(|| format!("NoDataValue is not a number: {}", shorten(&text)));
        }
        value.map(|value| SideNodata { text: text.trim_end_matches(is_space).to_owned(), value })
    }

    fn histogram(&mut self, item: Element<'_, '_>, band: u32) -> Option<Histogram> {
        let number = |name: &str| item.child_value(name).and_then(|text| number::prefix(&text, Decimal::Point));
        let flag = |name: &str| number(name).is_some_and(|value| value != 0.0);
        let counts = item.child_value("HistCounts").unwrap_or_default();
        let counts: Option<Vec<u64>> = counts
            .split('|')
            .filter(|count| !count.trim_matches(is_space).is_empty())
            .map(|count| count.trim_matches(is_space).parse().ok())
            .collect();
        let whole =
            counts.as_ref().is_some_and(|counts| number("BucketCount").is_none_or(|want| want == counts.len() as f64));
        let (Some(min), Some(max), Some(counts), true) = (number("HistMin"), number("HistMax"), counts, whole) else {
            self.problems.add(|| format!("a histogram of band {band} is incomplete"));
            return None;
        };
        let include_out_of_range = flag("IncludeOutOfRange");
        Some(Histogram { min, max, include_out_of_range, approximate: flag("Approximate"), counts })
    }

    fn child_number(&mut self, element: Element<'_, '_>) -> Option<f64> {
        let text = element.value()?.unescaped;
        self.number(element.name(), &text)
    }

    fn number(&mut self, name: &str, text: &str) -> Option<f64> {
        let number = number::prefix(text, Decimal::Point);
        if number.is_none() {
            self.problems.add(|| format!("{} is not a number: {}", shorten(name), shorten(text)));
        }
        number
    }
}

fn color(entry: Element<'_, '_>) -> [i16; 4] {
    // without alpha, the colour is opaque
    [("c1", 0), ("c2", 0), ("c3", 0), ("c4", 255)].map(|(name, default)| {
        let value = entry.attribute(name).and_then(|text| number::integer_prefix(&text));
        value.and_then(|value| i16::try_from(value).ok()).unwrap_or(default)
    })
}

fn little_endian_f64(hex: &str) -> Option<f64> {
    if hex.len() != 16 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(hex, 16).ok().map(|bits| f64::from_bits(bits.swap_bytes()))
}

#[cfg(test)]
mod tests;
