//! Side files named `.aux.xml`: what GDAL (`<PAMDataset>`) or ArcGIS (`<GeodataXform>`) could not or would not put into the TIFF.
//!
//! How these values and the TIFF's own combine is [`merge`](super::merge)'s business. Compared with GDAL 3.12.2 on
//! generated files; unlike GDAL, text that is not a number is listed as a problem and not read as 0.

use std::collections::BTreeMap;

use super::gdal_xml::{Domain, Domains, XmlDomain};
use super::number::{self, Decimal, is_space};
use super::xml::{Bounds, Element, Notes, Tree, XmlError, decode, shorten};

/// A coordinate reference system as a side file gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct SideSrs {
    /// WKT as a rule; GDAL also takes what its `SetFromUserInput` takes, such as `EPSG:4326`.
    pub text: String,
    /// `dataAxisToSRSAxisMapping`: which axis of the system each axis of the data is, from 1, negative when reversed. `None` is
    /// x (or longitude) first, whatever the system's own order.
    pub axis_mapping: Option<Vec<i32>>,
    /// Decimal year of a dynamic system's coordinates.
    pub coordinate_epoch: Option<f64>,
}

/// A ground control point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideGcp {
    /// Its name.
    pub id: String,
    /// What is said of it.
    pub info: String,
    /// Column, 0 being the left edge of the first pixel.
    pub pixel: f64,
    /// Row, 0 being the upper edge of the first pixel.
    pub line: f64,
    /// Its place.
    pub x: f64,
    /// Its place.
    pub y: f64,
    /// Its height.
    pub z: f64,
}

/// The value that marks missing samples.
#[derive(Clone, Debug, PartialEq)]
pub struct NoData {
    /// As written: of 64-bit integers, only the text is exact.
    pub text: String,
    /// Its value; from the bits in `le_hex_equiv` where given, which GDAL adds because decimals lose some.
    pub value: f64,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Lower edge of the first bucket.
    pub min: f64,
    /// Upper edge of the last bucket.
    pub max: f64,
    /// Samples beyond the edges are in the outer buckets.
    pub include_out_of_range: bool,
    /// Computed from an overview or a part.
    pub approximate: bool,
    /// Samples in each bucket.
    pub counts: Vec<u64>,
}

/// What a side file says of one band.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideBand {
    /// The band's name.
    pub description: Option<String>,
    /// The value that marks missing samples.
    pub nodata: Option<NoData>,
    /// Offset and scale are a pair: where one is given, the other is 0 or 1.
    pub offset: Option<f64>,
    /// See `offset`.
    pub scale: Option<f64>,
    /// Unit of the physical value.
    pub unit: Option<String>,
    /// GDAL's name of a colour interpretation, as written.
    pub color_interp: Option<String>,
    /// Red, green, blue, alpha by sample value.
    pub color_table: Vec<[i16; 4]>,
    /// Names by sample value; empty ones are gaps.
    pub category_names: Vec<String>,
    /// Least and greatest sample, from elements of their own that old files have; today's are items of a domain.
    pub min_max: Option<(f64, f64)>,
    /// Mean and standard deviation, likewise.
    pub mean_stddev: Option<(f64, f64)>,
    /// Histograms.
    pub histograms: Vec<Histogram>,
    /// Domains of keys and values.
    pub domains: Vec<Domain>,
    /// Domains that are documents.
    pub xml_domains: Vec<XmlDomain>,
}

/// ArcGIS's transformation, in its own terms: its rows count upwards, so that the y of a source point is negative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeodataXform {
    /// `xsi:type`, such as `typens:PolynomialXform`.
    pub kind: String,
    /// The spatial reference in Esri's WKT.
    pub wkt: Option<String>,
    /// Order of the polynomial.
    pub order: Option<i64>,
    /// Coefficients of x: constant, column, row.
    pub coeff_x: Vec<f64>,
    /// Coefficients of y.
    pub coeff_y: Vec<f64>,
    /// x and y by turns, in pixels.
    pub source_gcps: Vec<f64>,
    /// x and y by turns, on the ground.
    pub target_gcps: Vec<f64>,
}

/// The content of a side file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideMetadata {
    /// The reference system; ArcGIS's, where there is one, before PAM's own.
    pub srs: Option<SideSrs>,
    /// In GDAL's order, from the corner of the first pixel.
    pub geo_transform: Option<[f64; 6]>,
    /// Control points, from `<GCPList>` or ArcGIS's.
    pub gcps: Vec<SideGcp>,
    /// The control points' reference system.
    pub gcp_srs: Option<SideSrs>,
    /// Domains of the dataset.
    pub domains: Vec<Domain>,
    /// Domains of the dataset that are documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Bands by number from 1. The file may name bands that the raster does not have.
    pub bands: BTreeMap<u32, SideBand>,
    /// ArcGIS's transformation as it stands; `srs`, `geo_transform` and `gcps` already follow from it.
    pub esri: Option<GeodataXform>,
    /// Elements that nothing here reads, as paths: `PAMDataset/Array`.
    pub unrecognised: Vec<String>,
    /// What was left out, in words.
    pub problems: Vec<String>,
}

/// Parses a side file.
///
/// # Errors
///
/// Nothing comes from a document that is not well formed, as in GDAL; see [`XmlError`]. The raster is readable without it.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<SideMetadata, XmlError> {
    let mut notes = Notes::default();
    let text = decode(bytes, bounds, &mut notes)?;
    let tree = Tree::parse(&text, bounds)?;
    let root = tree.root();
    let mut read = Read { side: SideMetadata::default(), notes, unrecognised: Notes::default() };
    if tree.trailer {
        read.notes.add(|| "text after the root element was not read".to_owned());
    }
    if is_xform(root) {
        // GDAL shows it under this name, serialised anew; ours is the text as written
        let document = format!("<{0}>{1}</{0}>", root.name(), root.inner());
        read.side.xml_domains.push(XmlDomain { name: "xml:ESRI".to_owned(), text: document });
        read.side.esri = Some(xform(root, &mut read.notes));
        read.derive_from_esri();
    } else if !root.is("PAMDataset") {
        return Err(XmlError::Root { found: shorten(root.name()), expected: "PAMDataset" });
    } else if tree.prolog {
        // GDAL looks for everything inside the first thing of the file, and that is then the declaration or comment.
        // Reading it after all would give nodata and scales that no GDAL program sees.
        read.notes.add(|| "ignored, as GDAL does, for the declaration or comment before <PAMDataset>".to_owned());
    } else {
        read.dataset(root);
    }
    let Read { mut side, notes, unrecognised } = read;
    side.problems = notes.finish();
    side.unrecognised = unrecognised.finish();
    Ok(side)
}

struct Read {
    side: SideMetadata,
    notes: Notes,
    unrecognised: Notes,
}

impl Read {
    fn dataset(&mut self, root: Element<'_, '_>) {
        let mut domains = Domains::default();
        let (mut seen_srs, mut seen_transform, mut seen_gcps) = (false, false, false);
        let mut bands: BTreeMap<u32, (Domains, SideBand)> = BTreeMap::new();
        for child in root.children() {
            match child.name().to_ascii_lowercase().as_str() {
                // of elements that should stand once, GDAL reads the first
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
                    self.notes.add(|| format!("a second <{}> was not read", shorten(child.name())));
                }
                "metadata" => {
                    if let Some(esri) = self.metadata(child, &mut domains) {
                        self.side.esri = Some(esri);
                    }
                }
                "pamrasterband" => {
                    let number = child.attribute("band").unwrap_or_default();
                    match number::integer_prefix(&number).and_then(|band| u32::try_from(band).ok()) {
                        Some(band @ 1..=65_536) => {
                            let (domains, about) = bands.entry(band).or_default();
                            self.band(child, band, domains, about);
                        }
                        _ => self.notes.add(|| format!("there is no band {}", shorten(&number))),
                    }
                }
                _ => self.unrecognised.add(|| format!("PAMDataset/{}", shorten(child.name()))),
            }
        }
        (self.side.domains, self.side.xml_domains) = domains.finish();
        let bands = bands.into_iter().map(|(band, (domains, about))| {
            let (domains, xml_domains) = domains.finish();
            (band, SideBand { domains, xml_domains, ..about })
        });
        self.side.bands = bands.collect();
        self.derive_from_esri();
    }

    fn srs(&mut self, element: Element<'_, '_>) -> Option<SideSrs> {
        let Some(text) = element.value() else {
            // in GDAL an empty one hides the TIFF's own; nobody writes that on purpose
            self.notes.add(|| "<SRS> is empty".to_owned());
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
            self.notes.add(|| format!("dataAxisToSRSAxisMapping names no axes: {}", shorten(text)));
        }
        axes
    }

    fn geo_transform(&mut self, element: Element<'_, '_>) -> Option<[f64; 6]> {
        let text = element.value()?.unescaped;
        let mut numbers = [0.0; 6];
        let mut tokens = text.split(',').filter(|token| !token.is_empty());
        for slot in &mut numbers {
            let number = tokens.next().and_then(|token| number::prefix(token, Decimal::Point));
            // GDAL takes NaN and infinity here, and the image then lies nowhere
            let Some(number) = number.filter(|number| number.is_finite()) else {
                self.notes.add(|| format!("GeoTransform is not six numbers: {}", shorten(&text)));
                return None;
            };
            *slot = number;
        }
        if tokens.next().is_some() {
            self.notes.add(|| format!("GeoTransform has more than six numbers: {}", shorten(&text)));
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
            let place = (number(&["Pixel"]), number(&["Line"]), number(&["X"]), number(&["Y"]), number(&["Z", "GCPZ"]));
            if let (Some(pixel), Some(line), Some(x), Some(y), Some(z)) = place {
                let info = point.attribute("Info").unwrap_or_default().into_owned();
                self.side.gcps.push(SideGcp { id, info, pixel, line, x, y, z });
            } else {
                self.notes.add(|| format!("control point {} has a coordinate that is not a number", shorten(&id)));
            }
        }
    }

    /// Reads one `<Metadata>` into `domains`; returns ArcGIS's transformation where it holds one.
    fn metadata(&mut self, element: Element<'_, '_>, domains: &mut Domains) -> Option<GeodataXform> {
        let domain = element.attribute("domain").unwrap_or_default();
        let format = element.attribute("format").unwrap_or_default();
        if format.eq_ignore_ascii_case("xml") || format.eq_ignore_ascii_case("json") {
            let json = format.eq_ignore_ascii_case("json");
            let text = element.value().filter(|_| json).map(|text| text.unescaped.into_owned());
            domains.set_xml(&domain, text.unwrap_or_else(|| element.inner().trim_matches(is_space).to_owned()));
            let esri = domain.eq_ignore_ascii_case("xml:ESRI");
            return element
                .children()
                .find(|child| esri && is_xform(*child))
                .map(|found| xform(found, &mut self.notes));
        }
        domains.touch(&domain);
        for item in element.children() {
            if !item.is("MDI") {
                self.unrecognised.add(|| format!("Metadata/{}", shorten(item.name())));
                continue;
            }
            // unlike the TIFF's tag, this is unescaped once
            let Some((key, value)) = item.attribute("key").zip(item.leading_text()) else { continue };
            if value.cut {
                self.notes.add(|| format!("the value of {} is cut at an escape that cannot be read", shorten(&key)));
            }
            domains.set(&domain, &key, value.unescaped.into_owned());
        }
        None
    }

    fn band(&mut self, element: Element<'_, '_>, number: u32, domains: &mut Domains, about: &mut SideBand) {
        // a second element for the same band clears the name, and only that, as in GDAL
        about.description = None;
        let mut pair = (None, None);
        let mut extremes = (None, None);
        let mut moments = (None, None);
        for child in element.children() {
            let value = || child.value().map(|text| text.unescaped.into_owned());
            match child.name().to_ascii_lowercase().as_str() {
                "description" => about.description = about.description.take().or_else(value),
                "nodatavalue" => about.nodata = self.nodata(child).or(about.nodata.take()),
                "offset" => pair.0 = pair.0.or(self.child_number(child)),
                "scale" => pair.1 = pair.1.or(self.child_number(child)),
                "unittype" => about.unit = value().or(about.unit.take()),
                "colorinterp" => about.color_interp = value().or(about.color_interp.take()),
                "categorynames" => {
                    let names = child.children().filter(|entry| entry.is("Category"));
                    let name = |entry: Element<'_, '_>| entry.leading_text().map(|text| text.unescaped.into_owned());
                    about.category_names = names.map(|entry| name(entry).unwrap_or_default()).collect();
                }
                "colortable" => {
                    about.color_table = child.children().filter(|entry| entry.is("Entry")).map(color).collect();
                }
                "minimum" => extremes.0 = self.child_number(child),
                "maximum" => extremes.1 = self.child_number(child),
                "mean" => moments.0 = self.child_number(child),
                "standarddeviation" => moments.1 = self.child_number(child),
                "histograms" => {
                    let items: Vec<_> = child.children().filter(|item| item.is("HistItem")).collect();
                    about.histograms = items.into_iter().filter_map(|item| self.histogram(item, number)).collect();
                }
                "metadata" => {
                    self.metadata(child, domains);
                }
                // the raster attribute table among them
                _ => self.unrecognised.add(|| format!("PAMRasterBand {number}/{}", shorten(child.name()))),
            }
        }
        if pair != (None, None) {
            about.offset = Some(pair.0.unwrap_or(0.0));
            about.scale = Some(pair.1.unwrap_or(1.0));
        }
        about.min_max = extremes.0.zip(extremes.1).or(about.min_max);
        about.mean_stddev = moments.0.zip(moments.1).or(about.mean_stddev);
    }

    fn nodata(&mut self, element: Element<'_, '_>) -> Option<NoData> {
        let text = element.value()?.unescaped;
        let bits = element.attribute("le_hex_equiv").and_then(|hex| little_endian_f64(&hex));
        let value = bits.or_else(|| number::prefix(&text, Decimal::Point));
        if value.is_none() {
            self.notes.add(|| format!("NoDataValue is not a number: {}", shorten(&text)));
        }
        value.map(|value| NoData { text: text.trim_end_matches(is_space).to_owned(), value })
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
            self.notes.add(|| format!("a histogram of band {band} is incomplete"));
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
            self.notes.add(|| format!("{} is not a number: {}", shorten(name), shorten(text)));
        }
        number
    }

    /// What GDAL makes of ArcGIS's transformation: its reference system counts before PAM's, its place only where PAM gives none.
    fn derive_from_esri(&mut self) {
        let Some(esri) = &self.side.esri else { return };
        if let Some(wkt) = &esri.wkt {
            self.side.srs = Some(SideSrs { text: wkt.clone(), axis_mapping: None, coordinate_epoch: None });
        }
        if self.side.geo_transform.is_some() {
            return;
        }
        if !esri.source_gcps.is_empty() && esri.source_gcps.len() == esri.target_gcps.len() {
            // rows are counted upwards as a rule; some files count downwards, and then some y is positive
            let upwards = esri.source_gcps.iter().skip(1).step_by(2).all(|y| *y <= 0.0);
            let pairs = esri.source_gcps.chunks_exact(2).zip(esri.target_gcps.chunks_exact(2));
            let points = pairs.filter_map(|(source, target)| match (source, target) {
                (&[pixel, line], &[x, y]) => {
                    let line = if upwards { -line } else { line };
                    Some(SideGcp { pixel, line, x, y, ..SideGcp::default() })
                }
                _ => None,
            });
            if esri.source_gcps.len() % 2 == 0 {
                self.side.gcps = points.collect();
                self.side.gcp_srs = self.side.srs.take();
            }
        } else if let (Some(1), &[x, x_column, x_row], &[y, y_column, y_row]) =
            (esri.order, &*esri.coeff_x, &*esri.coeff_y)
        {
            // rows upwards again, and from the centre of the pixel
            self.side.geo_transform = Some([
                x - 0.5 * x_column + 0.5 * x_row,
                x_column,
                -x_row,
                y - 0.5 * y_column + 0.5 * y_row,
                y_column,
                -y_row,
            ]);
        }
    }
}

/// ArcGIS has written the element with and without a namespace prefix; GDAL knows it without.
fn is_xform(element: Element<'_, '_>) -> bool {
    let name = element.name();
    name.rsplit(':').next().unwrap_or(name).eq_ignore_ascii_case("GeodataXform")
}

fn xform(element: Element<'_, '_>, notes: &mut Notes) -> GeodataXform {
    let mut numbers = |name: &str| -> Vec<f64> {
        let Some(list) = element.child(name) else { return Vec::new() };
        let doubles = list.children().filter(|child| child.is("Double"));
        let numbers: Option<Vec<f64>> = doubles
            .map(|child| {
                child.value().and_then(|text| number::prefix(&text.unescaped, Decimal::Point)).filter(|n| n.is_finite())
            })
            .collect();
        numbers.unwrap_or_else(|| {
            notes.add(|| format!("GeodataXform/{name} holds something other than numbers"));
            Vec::new()
        })
    };
    GeodataXform {
        coeff_x: numbers("CoeffX"),
        coeff_y: numbers("CoeffY"),
        source_gcps: numbers("SourceGCPs"),
        target_gcps: numbers("TargetGCPs"),
        kind: element.attribute("xsi:type").unwrap_or_default().into_owned(),
        wkt: element.child("SpatialReference").and_then(|srs| srs.child_value("WKT")).map(|wkt| wkt.into_owned()),
        order: element.child_value("PolynomialOrder").and_then(|text| number::integer_prefix(&text)),
    }
}

fn color(entry: Element<'_, '_>) -> [i16; 4] {
    // alpha is opaque where it is not given
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
