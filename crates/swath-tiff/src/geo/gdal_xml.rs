//! GDAL's own metadata inside a TIFF: tag 42112, `GDAL_METADATA`.
//!
//! ```xml
//! <GDALMetadata>
//!   <Item name="AUTHOR">me</Item>
//!   <Item name="STATISTICS_MEAN" sample="0">3.5</Item>
//!   <Item name="SCALE" sample="0" role="scale">0.1</Item>
//! </GDALMetadata>
//! ```
//!
//! `sample` counts from 0, bands here count from 1 as in GDAL. A value is unescaped twice, once as XML and once more because
//! GDAL escapes it before it writes the XML; files of other writers that escape once are read by GDAL in the same way.
//! Compared with GDAL 3.12.2 on generated and real files.

use std::collections::{BTreeMap, HashMap};

pub use super::emit::metadata::write;
use super::number::{self, Decimal};
use super::xml::{Bounds, Notes, Tree, XmlError, decode, shorten, unescape};

/// One metadata domain: keys and values in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// `""` is the default domain.
    pub name: String,
    /// Keys are unique without regard to case; of two, the later counts, in the place of the first.
    pub items: Vec<(String, String)>,
}

impl Domain {
    /// The value of a key, in any case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }
}

/// A domain that is one document instead of keys and values, such as `xml:XMP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmlDomain {
    /// Its name, `xml:` and all.
    pub name: String,
    /// The document as written; never parsed here.
    pub text: String,
}

/// What is said of one band.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandMetadata {
    /// Domains of keys and values. Statistics are ordinary items of the default domain.
    pub domains: Vec<Domain>,
    /// Domains that are documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Physical value = stored value * scale + offset. GDAL reads a missing half of the pair as 0 or 1.
    pub offset: Option<f64>,
    /// See `offset`.
    pub scale: Option<f64>,
    /// Unit of the physical value.
    pub unit: Option<String>,
    /// The band's name.
    pub description: Option<String>,
    /// GDAL's name of a colour interpretation, as written (`Red`, `NIR`); it beats what the TIFF's tags imply.
    pub color_interp: Option<String>,
    /// Never in this tag (nodata is tag 42113); [`merge`](super::merge::merge) puts a side file's here, which beats the TIFF's.
    pub nodata: Option<super::pam::NoData>,
}

/// The content of the tag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GdalMetadata {
    /// Domains of the dataset.
    pub domains: Vec<Domain>,
    /// Bands by number from 1. The tag may name bands that the file does not have; GDAL ignores those.
    pub bands: BTreeMap<u32, BandMetadata>,
    /// Domains of the dataset that are documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Items of `IMAGE_STRUCTURE`: the writer's note of how pixels were encoded (`MAX_Z_ERROR`, `WEBP_LEVEL`). Not a domain,
    /// because what users see under that name comes from the TIFF's tags, and GDAL hides these as well.
    pub image_structure: Vec<(String, String)>,
    /// What was left out or cut, in words.
    pub problems: Vec<String>,
}

impl GdalMetadata {
    /// The dataset's domain of that name, in any case.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name.eq_ignore_ascii_case(name))
    }
}

/// Parses the bytes of the tag.
///
/// # Errors
///
/// As GDAL, this yields nothing at all from a document that is not well formed; see [`XmlError`]. The raster is readable
/// without it, so a caller turns the error into a warning.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<GdalMetadata, XmlError> {
    let mut notes = Notes::default();
    let text = decode(bytes, bounds, &mut notes)?;
    let tree = Tree::parse(&text, bounds)?;
    let root = tree.root();
    if !root.is("GDALMetadata") {
        return Err(XmlError::Root { found: shorten(root.name()), expected: "GDALMetadata" });
    }
    if tree.trailer {
        notes.add(|| "text after </GDALMetadata> was not read".to_owned());
    }

    let mut dataset = Domains::default();
    let mut structure = Domains::default();
    let mut bands: BTreeMap<u32, (Domains, BandMetadata)> = BTreeMap::new();
    for item in root.children() {
        if !item.is("Item") {
            notes.add(|| format!("<{}> is not an Item", shorten(item.name())));
            continue;
        }
        let Some(key) = item.attribute("name") else {
            notes.add(|| "an Item without a name".to_owned());
            continue;
        };
        // GDAL has no value for an empty Item either, and drops it
        let Some(value) = item.value() else { continue };
        let (twice, cut_again) = unescape(&value.unescaped);
        if value.cut || cut_again {
            notes.add(|| format!("the value of {} is cut at an escape that cannot be read", shorten(&key)));
        }
        let value = twice.into_owned();
        let domain = item.attribute("domain").unwrap_or_default();
        let sample = match item.attribute("sample") {
            None => -1,
            Some(text) => match number::integer_prefix(&text) {
                Some(sample @ -1..=65_535) => sample,
                // atoi: GDAL gives what is not a number to the first band
                None if !text.bytes().any(|byte| byte.is_ascii_digit()) => 0,
                _ => {
                    notes.add(|| format!("{} is for sample {}", shorten(&key), shorten(&text)));
                    continue;
                }
            },
        };
        let Ok(band) = u32::try_from(sample + 1) else { continue };

        if domain.eq_ignore_ascii_case("IMAGE_STRUCTURE") {
            if band == 0 {
                structure.set("", &key, value);
            }
            continue;
        }
        if band == 0 {
            dataset.set_any(&domain, &key, value);
            continue;
        }
        let (domains, about) = bands.entry(band).or_default();
        // a role counts in any other domain, and an unknown role is none
        let role = item.attribute("role").unwrap_or_default().to_ascii_lowercase();
        match role.as_str() {
            "offset" | "scale" => match number::prefix(&value, Decimal::PointOrComma) {
                Some(number) if role == "scale" => about.scale = Some(number),
                Some(number) => about.offset = Some(number),
                None => notes.add(|| format!("the {role} of band {band} is not a number: {}", shorten(&value))),
            },
            "unittype" => about.unit = Some(value),
            "description" => about.description = Some(value),
            "colorinterp" => about.color_interp = Some(value),
            _ => domains.set_any(&domain, &key, value),
        }
    }

    let bands = bands.into_iter().map(|(band, (domains, about))| {
        let (domains, xml_domains) = domains.finish();
        (band, BandMetadata { domains, xml_domains, ..about })
    });
    let bands = bands.collect();
    let (domains, xml_domains) = dataset.finish();
    let image_structure = structure.finish().0.into_iter().flat_map(|domain| domain.items).collect();
    Ok(GdalMetadata { domains, bands, xml_domains, image_structure, problems: notes.finish() })
}

/// Domains under construction, with an index: a million items with a million keys must not take a million squared steps.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    list: Vec<Domain>,
    xml: Vec<XmlDomain>,
    places: HashMap<String, Place>,
    xml_places: HashMap<String, usize>,
}

#[derive(Debug, Default)]
struct Place {
    index: usize,
    items: HashMap<String, usize>,
}

impl Domains {
    /// Sets an item, or the document itself where the domain's name says that it is one.
    pub(crate) fn set_any(&mut self, domain: &str, key: &str, value: String) {
        let is_xml = domain.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("xml:"));
        if is_xml { self.set_xml(domain, value) } else { self.set(domain, key, value) }
    }

    /// Sets an item; one whose key is there in another case is replaced, spelling and all.
    pub(crate) fn set(&mut self, domain: &str, key: &str, value: String) {
        let (list, place) = self.place(domain);
        let next = list.items.len();
        let index = *place.items.entry(key.to_ascii_lowercase()).or_insert(next);
        match list.items.get_mut(index) {
            Some(item) => *item = (key.to_owned(), value),
            None => list.items.push((key.to_owned(), value)),
        }
    }

    /// Makes sure that a domain is listed, be it empty.
    pub(crate) fn touch(&mut self, domain: &str) {
        self.place(domain);
    }

    pub(crate) fn set_xml(&mut self, domain: &str, text: String) {
        let index = *self.xml_places.entry(domain.to_ascii_lowercase()).or_insert_with(|| {
            self.xml.push(XmlDomain { name: domain.to_owned(), text: String::new() });
            self.xml.len() - 1
        });
        if let Some(document) = self.xml.get_mut(index) {
            document.text = text;
        }
    }

    fn place(&mut self, domain: &str) -> (&mut Domain, &mut Place) {
        let place = self.places.entry(domain.to_ascii_lowercase()).or_insert_with(|| {
            self.list.push(Domain { name: domain.to_owned(), items: Vec::new() });
            Place { index: self.list.len() - 1, items: HashMap::new() }
        });
        (&mut self.list[place.index], place)
    }

    pub(crate) fn finish(self) -> (Vec<Domain>, Vec<XmlDomain>) {
        (self.list, self.xml)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &str) -> GdalMetadata {
        parse(format!("<GDALMetadata>{items}</GDALMetadata>").as_bytes(), Bounds::default()).unwrap()
    }

    fn default_items(metadata: &GdalMetadata) -> Vec<(&str, &str)> {
        let items = metadata.domain("").map(|domain| domain.items.as_slice()).unwrap_or_default();
        items.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn value_escaped_twice_by_gdal_is_unescaped_twice_and_its_key_once() {
        // what GDAL 3.12 writes for the key `k<&"` and the value `x<y & "q" &amp;`
        let metadata =
            read(r#"<Item name="k&lt;&amp;&quot;">x&amp;lt;y &amp;amp; &amp;quot;q&amp;quot; &amp;amp;amp;</Item>"#);
        assert_eq!(default_items(&metadata), [("k<&\"", "x<y & \"q\" &amp;")]);
        assert!(metadata.problems.is_empty());
    }

    #[test]
    fn value_escaped_once_is_cut_as_in_gdal_and_said_so() {
        let metadata = read(r#"<Item name="a">x &amp; y</Item>"#);
        assert_eq!(default_items(&metadata), [("a", "x ")]);
        assert_eq!(metadata.problems.len(), 1);
    }

    #[test]
    fn empty_item_is_dropped_and_empty_cdata_is_an_empty_value() {
        let metadata =
            read(r#"<Item name="a"></Item><Item name="b"/><Item name="c"> </Item><Item name="d"><![CDATA[]]></Item>"#);
        assert_eq!(default_items(&metadata), [("d", "")]);
    }

    #[test]
    fn later_value_of_a_key_in_another_case_replaces_in_place() {
        let metadata = read(r#"<Item name="a">1</Item><Item name="b">3</Item><Item name="A">2</Item>"#);
        assert_eq!(default_items(&metadata), [("A", "2"), ("b", "3")]);
        let metadata = read(r#"<Item name="a" domain="D">1</Item><Item name="b" domain="d">2</Item>"#);
        assert_eq!(metadata.domains.len(), 1);
        assert_eq!(metadata.domain("D").unwrap().get("B"), Some("2"));
    }

    #[test]
    fn roles_apply_to_samples_only_and_in_any_domain_and_case() {
        let metadata = read(
            r#"<Item name="SCALE" role="scale">2</Item><Item name="x" sample="0" role="SCALE" domain="q">1,5x</Item>
               <Item name="x" sample="0" role="offset"> 1e3 </Item><Item name="x" sample="0" role="unittype"> m </Item>
               <Item name="x" sample="0" role="description">d</Item><Item name="x" sample="0" role="colorinterp">NIR</Item>
               <Item name="y" sample="0" role="weird">z</Item><Item name="STATISTICS_MEAN" sample="0">3</Item>"#,
        );
        assert_eq!(default_items(&metadata), [("SCALE", "2")]);
        let band = &metadata.bands[&1];
        assert_eq!((band.scale, band.offset), (Some(1.5), Some(1000.0)));
        assert_eq!(band.unit.as_deref(), Some("m "));
        assert_eq!(band.description.as_deref(), Some("d"));
        assert_eq!(band.color_interp.as_deref(), Some("NIR"));
        assert_eq!(band.domains.len(), 1);
        assert_eq!(band.domains[0].get("statistics_mean"), Some("3"));
        assert_eq!(band.domains[0].get("y"), Some("z"));
    }

    #[test]
    fn scale_that_is_no_number_is_not_zero() {
        let metadata = read(r#"<Item name="s" sample="0" role="scale">abc</Item>"#);
        assert_eq!(metadata.bands[&1].scale, None);
        assert_eq!(metadata.problems.len(), 1);
    }

    #[test]
    fn sample_out_of_range_names_no_band() {
        let metadata = read(
            r#"<Item name="a" sample="65535">1</Item><Item name="b" sample="65536">1</Item><Item name="c" sample="-2">1</Item>
               <Item name="d" sample="4294967296">1</Item><Item name="e" sample="99999999999999999999">1</Item>
               <Item name="f" sample="-1">1</Item><Item name="g" sample="abc">1</Item><Item name="h" sample="1x">1</Item>"#,
        );
        assert_eq!(metadata.bands.keys().copied().collect::<Vec<_>>(), [1, 2, 65_536]);
        assert_eq!(default_items(&metadata), [("f", "1")]);
        assert_eq!(metadata.problems.len(), 4);
    }

    #[test]
    fn xml_domain_is_kept_as_text_and_the_last_one_wins() {
        let metadata = read(
            r#"<Item name="a" domain="xml:D" format="xml">&lt;x a=&quot;1&quot;&gt;t&lt;/x&gt;</Item>
               <Item name="a" domain="XML:d">two</Item><Item name="a" domain="F" format="xml">&lt;x/&gt;</Item>
               <Item name="a" domain="xml:S" sample="0">b</Item>"#,
        );
        assert_eq!(metadata.xml_domains, [XmlDomain { name: "xml:D".into(), text: "two".into() }]);
        assert_eq!(metadata.domain("F").unwrap().get("a"), Some("<x/>"));
        assert_eq!(metadata.bands[&1].xml_domains[0].text, "b");
    }

    #[test]
    fn image_structure_does_not_pose_as_fact_about_the_file() {
        let metadata = read(
            r#"<Item name="MAX_Z_ERROR" domain="IMAGE_STRUCTURE">0.1</Item><Item name="NBITS" sample="0" domain="IMAGE_STRUCTURE" role="scale">1</Item>"#,
        );
        assert!(metadata.domains.is_empty() && metadata.bands.is_empty());
        assert_eq!(metadata.image_structure, [("MAX_Z_ERROR".to_owned(), "0.1".to_owned())]);
    }

    #[test]
    fn declaration_comment_mark_and_trailing_text_do_not_hide_the_items() {
        for source in [
            "\u{feff}<?xml version=\"1.0\"?>\n<!-- c --><gdalmetadata><Item name=\"a\">v</Item></GDALMETADATA>",
            "<GDALMetadata><Item name=\"a\">v</Item></GDALMetadata>junk",
            "<GDALMetadata>junk<Item NAME=\"a\">v</Item><?pi?></GDALMetadata>\0",
        ] {
            let metadata = parse(source.as_bytes(), Bounds::default()).unwrap();
            assert_eq!(default_items(&metadata), [("a", "v")], "{source}");
        }
    }

    #[test]
    fn other_roots_and_broken_documents_are_refused() {
        for source in
            ["", " ", "text", "<X><GDALMetadata/></X>", "<GDALMetadata><Item name=\"a\">v</Item>", "<GDALMetadata></X>"]
        {
            assert!(parse(source.as_bytes(), Bounds::default()).is_err(), "{source}");
        }
        assert!(parse(b"<GDALMetadata>\0</GDALMetadata>", Bounds::default()).is_err());
    }

    #[test]
    fn latin1_value_is_readable() {
        let metadata =
            parse(b"<GDALMetadata><Item name=\"a\">caf\xe9</Item></GDALMetadata>", Bounds::default()).unwrap();
        assert_eq!(default_items(&metadata), [("a", "café")]);
        assert_eq!(metadata.problems.len(), 1);
    }

    #[test]
    fn hundred_megabyte_attribute_is_refused_or_read_as_the_caller_bounds_it() {
        let long = format!("<GDALMetadata><Item name=\"{}\">v</Item></GDALMetadata>", "x".repeat(100 << 20));
        assert!(matches!(parse(long.as_bytes(), Bounds::default()), Err(XmlError::TooLong { .. })));
        assert!(parse(long.as_bytes(), Bounds::default().with_bytes(200 << 20)).is_ok());
    }

    #[test]
    fn many_keys_and_domains_take_linear_time() {
        let start = std::time::Instant::now();
        let items: String =
            (0..100_000).map(|i| format!("<Item name=\"k{i}\" domain=\"d{}\">v</Item>", i % 50_000)).collect();
        let metadata = read(&items);
        assert_eq!(metadata.domains.len(), 50_000);
        assert!(start.elapsed().as_secs() < 10);
    }
}
