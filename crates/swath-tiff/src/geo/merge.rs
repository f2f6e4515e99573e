//! Combines the TIFF's own metadata and georeferencing with those of its side files.
//!
//! The rules are GDAL's, observed with GDAL 3.12.2 in the default order PAM, INTERNAL, TABFILE, WORLDFILE:
//!
//! | value | taken from |
//! |---|---|
//! | metadata items | per item, the side file, with its spelling of the key. Domains and keys match in any case; the order stays |
//! | `xml:` domains | the TIFF |
//! | nodata, unit, description, colour interpretation | the side file, if it has one (an empty unit or `Undefined` colour is none) |
//! | scale and offset | the side file, as a pair: a lone `<Scale>` sets the offset to 0 |
//! | reference system, transform, control points | each separately, from the first source in the order that has it |
//! | any, in an order without PAM | not the side file, not even for nodata |
//!
//! A transform of 0, 1, 0, 0, 0, 1 in a side file counts as a transform. If there are control points from any source, the points have
//! the reference system and the dataset has none. If a world file comes before the TIFF's own transform, or the TIFF has no
//! transform, the TIFF's points are ignored.

use crate::geo::{
    domain::{Domain, DomainsBuilder, XmlDomain},
    gdal_xml::{BandMetadata, GdalMetadata},
    pam::SideMetadata,
    problems::shorten,
};

/// A source of georeferencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeorefSource {
    /// The `.aux.xml` side file.
    Pam,
    /// The TIFF's own tags.
    Internal,
    /// A MapInfo `.tab` file.
    TabFile,
    /// A world file.
    WorldFile,
}

/// The order of the sources, as in GDAL's `GDAL_GEOREF_SOURCES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeorefOrder(Vec<GeorefSource>);

impl Default for GeorefOrder {
    fn default() -> Self {
        Self(vec![GeorefSource::Pam, GeorefSource::Internal, GeorefSource::TabFile, GeorefSource::WorldFile])
    }
}

impl GeorefOrder {
    /// Parses `PAM,INTERNAL,TABFILE,WORLDFILE` in any order and case. `NONE` uses no source.
    ///
    /// # Errors
    ///
    /// The first unknown word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut order = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let source = match word.to_ascii_uppercase().as_str() {
                "PAM" => GeorefSource::Pam,
                "INTERNAL" => GeorefSource::Internal,
                "TABFILE" => GeorefSource::TabFile,
                "WORLDFILE" => GeorefSource::WorldFile,
                "NONE" => continue,
                _ => return Err(shorten(word)),
            };
            if !order.contains(&source) {
                order.push(source);
            }
        }
        Ok(Self(order))
    }

    /// Whether the order includes `source`.
    #[must_use]
    pub fn includes(&self, source: GeorefSource) -> bool {
        self.0.contains(&source)
    }
}

/// What a source provides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// A reference system.
    pub srs: bool,
    /// A transform.
    pub transform: bool,
    /// Control points.
    pub gcps: bool,
}

impl From<&SideMetadata> for Offer {
    fn from(side: &SideMetadata) -> Self {
        // with ArcGIS's transformation in the side file, GDAL's TIFF driver reports no points at all, not even PAM's own
        let gcps = !side.gcps.is_empty() && side.esri.is_none();
        Self { srs: side.srs.is_some(), transform: side.geo_transform.is_some(), gcps }
    }
}

/// The source of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The dataset's reference system; `None` where there are control points.
    pub srs: Option<GeorefSource>,
    /// The transform.
    pub transform: Option<GeorefSource>,
    /// Control points.
    pub gcps: Option<GeorefSource>,
    /// The control points' reference system.
    pub gcp_srs: Option<GeorefSource>,
}

/// Chooses the sources as GDAL does. `Internal` provides `srs` also where that describes control points.
#[must_use]
pub fn choose(order: &GeorefOrder, offer: impl Fn(GeorefSource) -> Offer) -> Choice {
    let first = |has: &dyn Fn(Offer) -> bool| order.0.iter().copied().find(|source| has(offer(*source)));
    let srs = first(&|offer| offer.srs);
    let transform = first(&|offer| offer.transform);
    // the world file hides the TIFF's points even if a side file's transform takes precedence over it
    let mut except_pam = order.0.iter().copied().filter(|source| *source != GeorefSource::Pam);
    let world_file_first = except_pam.find(|source| offer(*source).transform) == Some(GeorefSource::WorldFile);
    let points = order
        .0
        .iter()
        .copied()
        .find(|&source| offer(source).gcps && !(world_file_first && source == GeorefSource::Internal));
    match points {
        None => Choice { srs, transform, gcps: None, gcp_srs: None },
        // a side file's points have their own system; the TIFF's points get the one that the dataset would have
        Some(GeorefSource::Pam) => Choice { srs: None, transform, gcps: points, gcp_srs: Some(GeorefSource::Pam) },
        Some(_) => Choice { srs: None, transform, gcps: points, gcp_srs: srs },
    }
}

/// Merges a side file's metadata into the TIFF's own. Call it only if the order includes PAM, and before dropping the bands that the
/// raster lacks. [`choose`] handles georeferencing.
pub fn merge(own: &mut GdalMetadata, side: &SideMetadata) {
    overlay(&mut own.domains, &side.domains);
    overlay_xml(&mut own.xml_domains, &side.xml_domains);
    for (band, side_band) in &side.bands {
        let target: &mut BandMetadata = own.bands.entry(*band).or_default();
        overlay(&mut target.domains, &side_band.domains);
        overlay_xml(&mut target.xml_domains, &side_band.xml_domains);
        if side_band.scale.is_some() || side_band.offset.is_some() {
            (target.scale, target.offset) = (side_band.scale, side_band.offset);
        }
        replace(&mut target.unit, side_band.unit.as_ref());
        replace(&mut target.description, side_band.description.as_ref());
        let color = side_band.color_interp.as_ref().filter(|name| !name.eq_ignore_ascii_case("Undefined"));
        replace(&mut target.color_interp, color);
        if side_band.nodata.is_some() {
            target.nodata.clone_from(&side_band.nodata);
        }
    }
}

fn replace(target: &mut Option<String>, with: Option<&String>) {
    if let Some(text) = with.filter(|text| !text.is_empty()) {
        *target = Some(text.clone());
    }
}

fn overlay(own: &mut Vec<Domain>, side: &[Domain]) {
    let mut merged = DomainsBuilder::default();
    for domain in own.drain(..).chain(side.iter().cloned()) {
        merged.add(&domain.name);
        for (key, value) in domain.items {
            merged.set(&domain.name, &key, value);
        }
    }
    *own = merged.finish().0;
}

fn overlay_xml(own: &mut Vec<XmlDomain>, side: &[XmlDomain]) {
    for document in side {
        if !own.iter().any(|mine| mine.name.eq_ignore_ascii_case(&document.name)) {
            own.push(document.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{gdal_xml, pam, xml::Bounds};

    fn own(items: &str) -> GdalMetadata {
        gdal_xml::parse(format!("<GDALMetadata>{items}</GDALMetadata>").as_bytes(), Bounds::default()).unwrap()
    }

    fn side(inner: &str) -> SideMetadata {
        pam::parse(format!("<PAMDataset>{inner}</PAMDataset>").as_bytes(), Bounds::default()).unwrap()
    }

    #[test]
    fn items_of_the_side_file_win_one_by_one_and_in_any_case() {
        let mut own = own(r#"<Item name="A">tif</Item><Item name="B">tif</Item><Item name="A" domain="D">tif</Item>"#);
        merge(
            &mut own,
            &side(
                r#"<Metadata><MDI key="b">pam</MDI><MDI key="C">pam</MDI></Metadata><Metadata domain="d"><MDI key="A">pam</MDI></Metadata>"#,
            ),
        );
        let items =
            |name: &str| own.domain(name).unwrap().items.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        assert_eq!(items(""), ["A=tif", "b=pam", "C=pam"]);
        assert_eq!(items("D"), ["A=pam"]);
        assert_eq!(own.domains.len(), 2);
    }

    #[test]
    fn document_domains_of_the_tiff_win() {
        let mut own = own(r#"<Item name="x" domain="xml:A">&lt;t/&gt;</Item>"#);
        merge(
            &mut own,
            &side(
                r#"<Metadata domain="XML:a" format="xml"><p/></Metadata><Metadata domain="xml:B" format="xml"><p/></Metadata>"#,
            ),
        );
        assert_eq!(own.xml_domains.iter().map(|d| d.text.as_str()).collect::<Vec<_>>(), ["<t/>", "<p/>"]);
    }

    #[test]
    fn lone_scale_resets_the_offset_and_absent_fields_keep_the_tiffs() {
        let tif = r#"<Item name="s" sample="0" role="scale">2</Item><Item name="o" sample="0" role="offset">3</Item>
            <Item name="u" sample="0" role="unittype">m</Item><Item name="d" sample="0" role="description">tif</Item>
            <Item name="c" sample="0" role="colorinterp">Red</Item>"#;
        let mut merged = own(tif);
        merge(
            &mut merged,
            &side(
                r#"<PAMRasterBand band="1"><Scale>5</Scale><UnitType></UnitType><ColorInterp>Undefined</ColorInterp></PAMRasterBand>"#,
            ),
        );
        let about = &merged.bands[&1];
        assert_eq!((about.scale, about.offset), (Some(5.0), Some(0.0)));
        assert_eq!(
            (about.unit.as_deref(), about.description.as_deref(), about.color_interp.as_deref()),
            (Some("m"), Some("tif"), Some("Red"))
        );
        let mut merged = own(tif);
        merge(
            &mut merged,
            &side(
                r#"<PAMRasterBand band="1"><Description>pam</Description><NoDataValue>9</NoDataValue><UnitType>ft</UnitType><ColorInterp>Blue</ColorInterp></PAMRasterBand>"#,
            ),
        );
        let about = &merged.bands[&1];
        assert_eq!((about.scale, about.offset), (Some(2.0), Some(3.0)));
        assert_eq!(
            (about.unit.as_deref(), about.description.as_deref(), about.color_interp.as_deref()),
            (Some("ft"), Some("pam"), Some("Blue"))
        );
        assert_eq!(about.nodata.as_ref().unwrap().value, 9.0);
    }

    #[test]
    fn order_of_sources_decides_each_part_by_itself() {
        use GeorefSource::{Internal, Pam, WorldFile};
        let choose_with = |order: &str, internal: Offer, pam: Offer, world: bool| {
            choose(&GeorefOrder::parse(order).unwrap(), |source| match source {
                Internal => internal,
                Pam => pam,
                WorldFile => Offer { transform: world, ..Offer::default() },
                GeorefSource::TabFile => Offer::default(),
            })
        };
        let default = "PAM,INTERNAL,TABFILE,WORLDFILE";
        let placed = Offer { srs: true, transform: true, gcps: false };
        let points = Offer { srs: true, transform: false, gcps: true };
        let srs = Offer { srs: true, ..Offer::default() };
        let gcps = Offer { gcps: true, ..Offer::default() };
        let transform = Offer { transform: true, ..Offer::default() };

        let choice = choose_with(default, placed, srs, true);
        assert_eq!((choice.srs, choice.transform, choice.gcps), (Some(Pam), Some(Internal), None));
        let choice = choose_with("INTERNAL,PAM", placed, placed, false);
        assert_eq!((choice.srs, choice.transform), (Some(Internal), Some(Internal)));
        let choice = choose_with(default, placed, gcps, false);
        assert_eq!(
            (choice.srs, choice.transform, choice.gcps, choice.gcp_srs),
            (None, Some(Internal), Some(Pam), Some(Pam))
        );
        let choice = choose_with("INTERNAL,PAM", points, gcps, false);
        assert_eq!((choice.gcps, choice.gcp_srs), (Some(Internal), Some(Internal)));
        let choice = choose_with(default, points, srs, false);
        assert_eq!((choice.srs, choice.gcps, choice.gcp_srs), (None, Some(Internal), Some(Pam)));
        let choice = choose_with(default, points, transform, false);
        assert_eq!((choice.transform, choice.gcps), (Some(Pam), Some(Internal)));
        let choice = choose_with(default, points, Offer::default(), true);
        assert_eq!((choice.srs, choice.transform, choice.gcps), (Some(Internal), Some(WorldFile), None));
        let choice = choose_with(default, points, transform, true);
        assert_eq!((choice.srs, choice.transform, choice.gcps), (Some(Internal), Some(Pam), None));
        assert_eq!(choose_with("NONE", placed, placed, true), Choice::default());
        assert!(!GeorefOrder::parse("internal").unwrap().includes(Pam));
        assert!(GeorefOrder::parse("PAM,WHAT").is_err());
    }
}
