//! Parses the document of tag 42112.

use std::collections::BTreeMap;

use crate::geo::{
    domain::DomainsBuilder,
    gdal_xml::model::{BandMetadata, GdalMetadata},
    number::{self, Decimal},
    problems::{Problems, shorten},
    xml::{Bounds, Tree, XmlError, decode, unescape},
};

/// Parses the bytes of the tag.
///
/// # Errors
///
/// As in GDAL, a document that is not well formed yields nothing; see [`XmlError`]. The raster is readable without it, so callers
/// turn the error into a warning.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<GdalMetadata, XmlError> {
    let mut problems = Problems::default();
    let text = decode(bytes, bounds, &mut problems)?;
    let tree = Tree::parse(&text, bounds)?;
    let root = tree.root();
    if !root.is("GDALMetadata") {
        return Err(XmlError::Root { found: shorten(root.name()), expected: "GDALMetadata" });
    }
    if tree.trailer {
        problems.add(|| "text after </GDALMetadata> was not read".to_owned());
    }

    let mut dataset = DomainsBuilder::default();
    let mut structure = DomainsBuilder::default();
    let mut bands: BTreeMap<u32, (DomainsBuilder, BandMetadata)> = BTreeMap::new();
    for item in root.children() {
        if !item.is("Item") {
            problems.add(|| format!("<{}> is not an Item", shorten(item.name())));
            continue;
        }
        let Some(key) = item.attribute("name") else {
            problems.add(|| "an Item without a name".to_owned());
            continue;
        };
        // GDAL drops an empty Item too
        let Some(value) = item.value() else { continue };
        let (twice, cut_again) = unescape(&value.unescaped);
        if value.cut || cut_again {
            problems.add(|| format!("the value of {} is cut at an escape that cannot be read", shorten(&key)));
        }
        let value = twice.into_owned();
        let domain = item.attribute("domain").unwrap_or_default();
        let sample = match item.attribute("sample") {
            None => -1,
            Some(text) => match number::integer_prefix(&text) {
                Some(sample @ -1..=65_535) => sample,
                // GDAL uses atoi, so that text which is not a number means the first band
                None if !text.bytes().any(|byte| byte.is_ascii_digit()) => 0,
                _ => {
                    problems.add(|| format!("{} is for sample {}", shorten(&key), shorten(&text)));
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
        let (domains, band_metadata) = bands.entry(band).or_default();
        // a role applies in any domain, and an unknown role is ignored
        let role = item.attribute("role").unwrap_or_default().to_ascii_lowercase();
        match role.as_str() {
            "offset" | "scale" => match number::prefix(&value, Decimal::PointOrComma) {
                Some(number) if role == "scale" => band_metadata.scale = Some(number),
                Some(number) => band_metadata.offset = Some(number),
                None => problems.add(|| format!("the {role} of band {band} is not a number: {}", shorten(&value))),
            },
            "unittype" => band_metadata.unit = Some(value),
            "description" => band_metadata.description = Some(value),
            "colorinterp" => band_metadata.color_interp = Some(value),
            _ => domains.set_any(&domain, &key, value),
        }
    }

    let bands = bands.into_iter().map(|(band, (domains, band_metadata))| {
        let (domains, xml_domains) = domains.finish();
        (band, BandMetadata { domains, xml_domains, ..band_metadata })
    });
    let bands = bands.collect();
    let (domains, xml_domains) = dataset.finish();
    let image_structure = structure.finish().0.into_iter().flat_map(|domain| domain.items).collect();
    Ok(GdalMetadata { domains, bands, xml_domains, image_structure, problems: problems.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::domain::XmlDomain;

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
    fn value_escaped_once_is_cut_as_in_gdal_with_a_warning() {
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
    fn image_structure_items_do_not_describe_the_file() {
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
