//! Writes the document of tag 42112, spelled as by GDAL.

use std::fmt::Write as _;

use crate::geo::{
    domain::{Domain, XmlDomain},
    gdal_xml::model::{BandMetadata, GdalMetadata},
    printf::g17,
};

/// The text of tag 42112; empty where there is no metadata, and the tag is then left out, as in GDAL.
///
/// These are not written, because other tags hold them and GDAL reads them from there: `AREA_OR_POINT` and `TIFFTAG_*` of the default
/// domain, the domains `RPC` and `COLOR_PROFILE`, the document `xml:XMP` (tag 700), and no-data values (tag 42113).
#[must_use]
pub fn write(metadata: &GdalMetadata) -> String {
    let mut out = String::new();
    for (key, value) in &metadata.image_structure {
        item(&mut out, key, &Attributes { domain: "IMAGE_STRUCTURE", ..Attributes::default() }, value);
    }
    domains(&mut out, &metadata.domains, &metadata.xml_domains, None);
    for (&band, band_metadata) in &metadata.bands {
        // Samples count from 0, bands from 1.
        if let Some(sample) = band.checked_sub(1) {
            band_items(&mut out, sample, band_metadata);
        }
    }
    if out.is_empty() { out } else { format!("<GDALMetadata>\n{out}</GDALMetadata>\n") }
}

/// The attributes of an `<Item>` besides its name.
#[derive(Default)]
struct Attributes<'a> {
    sample: Option<u32>,
    domain: &'a str,
    role: &'a str,
}

fn domains(out: &mut String, list: &[Domain], documents: &[XmlDomain], sample: Option<u32>) {
    for domain in list {
        if ["RPC", "COLOR_PROFILE", "IMAGE_STRUCTURE"].iter().any(|d| domain.name.eq_ignore_ascii_case(d)) {
            continue;
        }
        for (key, value) in &domain.items {
            if !(sample.is_none() && domain.name.is_empty() && held_by_other_tags(key)) {
                item(out, key, &Attributes { sample, domain: &domain.name, role: "" }, value);
            }
        }
    }
    for document in documents {
        if !document.name.eq_ignore_ascii_case("xml:XMP") {
            item(out, "doc", &Attributes { sample, domain: &document.name, role: "" }, &document.text);
        }
    }
}

fn held_by_other_tags(key: &str) -> bool {
    let tiff = key.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("TIFFTAG_"));
    tiff || key.eq_ignore_ascii_case("AREA_OR_POINT")
}

fn band_items(out: &mut String, sample: u32, band: &BandMetadata) {
    let sample = Some(sample);
    domains(out, &band.domains, &band.xml_domains, sample);
    let mut role = |name: &str, value: &str| {
        item(out, name, &Attributes { sample, domain: "", role: &name.to_ascii_lowercase() }, value);
    };
    // Like GDAL, write both: a reader takes a missing one as 0 or 1.
    if band.offset.is_some() || band.scale.is_some() {
        role("OFFSET", &g17(band.offset.unwrap_or(0.0)));
        role("SCALE", &g17(band.scale.unwrap_or(1.0)));
    }
    let texts = [("UNITTYPE", &band.unit), ("DESCRIPTION", &band.description), ("COLORINTERP", &band.color_interp)];
    for (name, text) in texts {
        if let Some(text) = text.as_deref().filter(|t| !t.is_empty()) {
            role(name, text);
        }
    }
}

fn item(out: &mut String, key: &str, attributes: &Attributes<'_>, value: &str) {
    let _ = write!(out, "  <Item name=\"{}\"", escape(key));
    if let Some(sample) = attributes.sample {
        let _ = write!(out, " sample=\"{sample}\"");
    }
    if !attributes.domain.is_empty() {
        let _ = write!(out, " domain=\"{}\"", escape(attributes.domain));
    }
    if !attributes.role.is_empty() {
        let _ = write!(out, " role=\"{}\"", attributes.role);
    }
    // GDAL drops an item whose element is empty, but keeps one with an empty CDATA section.
    if value.is_empty() {
        out.push_str("><![CDATA[]]></Item>\n");
        return;
    }
    // GDAL escapes a value twice, and its reader relies on that.
    let _ = writeln!(out, ">{}</Item>", escape(&with_leading_space_escaped(&escape(value))));
}

/// Applies XML's four escapes. Like GDAL, drops the control characters that XML 1.0 forbids.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

/// Escapes white space at the start of a value, which XML readers (GDAL's included) would skip. As a character reference inside
/// the first layer of escapes it survives.
fn with_leading_space_escaped(escaped: &str) -> String {
    let rest = escaped.trim_start_matches([' ', '\t', '\n', '\r']);
    let lead = escaped.get(..escaped.len() - rest.len()).unwrap_or_default();
    let mut out: String = lead.bytes().map(|b| format!("&#{b};")).collect();
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::gdal_xml::parse::parse;
    use crate::geo::xml::Bounds;

    fn domain(name: &str, items: &[(&str, &str)]) -> Domain {
        Domain { name: name.into(), items: items.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect() }
    }

    fn rich() -> GdalMetadata {
        let mut metadata = GdalMetadata {
            domains: vec![
                domain("", &[("A", "x<y & \"q\" 's' > \t\n é &amp; ]]>"), ("k<&\"'>", "v"), ("empty", "")]),
                domain("DOM & <co>", &[("q", "  lead and trail  "), ("blank", "   ")]),
            ],
            xml_domains: vec![XmlDomain { name: "xml:FOO".into(), text: "<a b=\"c\">é&amp;</a>".into() }],
            image_structure: vec![("MAX_Z_ERROR".into(), "0.1".into())],
            ..GdalMetadata::default()
        };
        let band = BandMetadata {
            domains: vec![domain("", &[("STATISTICS_MEAN", "3.5")]), domain("D2", &[("cc", "zz")])],
            xml_domains: vec![XmlDomain { name: "xml:B".into(), text: "<b/>".into() }],
            offset: Some(1e300),
            scale: Some(0.1),
            unit: Some("m<".into()),
            description: Some("des\"c".into()),
            color_interp: Some("Red".into()),
            nodata: None,
        };
        metadata.bands.insert(1, band);
        metadata.bands.insert(65_536, BandMetadata { color_interp: Some("Alpha".into()), ..BandMetadata::default() });
        metadata
    }

    #[test]
    fn hostile_characters_come_back() {
        let metadata = rich();
        let text = write(&metadata);
        assert_eq!(parse(text.as_bytes(), Bounds::default()).unwrap(), metadata, "{text}");
    }

    #[test]
    fn spelled_as_gdal_spells_it() {
        let text = write(&rich());
        for line in [
            "  <Item name=\"OFFSET\" sample=\"0\" role=\"offset\">1.0000000000000001e+300</Item>",
            "  <Item name=\"SCALE\" sample=\"0\" role=\"scale\">0.10000000000000001</Item>",
            "  <Item name=\"UNITTYPE\" sample=\"0\" role=\"unittype\">m&amp;lt;</Item>",
            "  <Item name=\"DESCRIPTION\" sample=\"0\" role=\"description\">des&amp;quot;c</Item>",
            "  <Item name=\"COLORINTERP\" sample=\"65535\" role=\"colorinterp\">Alpha</Item>",
            "  <Item name=\"k&lt;&amp;&quot;'&gt;\">v</Item>",
            "  <Item name=\"cc\" sample=\"0\" domain=\"D2\">zz</Item>",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.starts_with("<GDALMetadata>\n") && text.ends_with("</GDALMetadata>\n"));
    }

    #[test]
    fn values_of_other_tags_are_not_repeated() {
        let metadata = GdalMetadata {
            domains: vec![
                domain("", &[("AREA_OR_POINT", "Area"), ("TIFFTAG_SOFTWARE", "x")]),
                domain("RPC", &[("a", "b")]),
            ],
            xml_domains: vec![XmlDomain { name: "xml:XMP".into(), text: "<x/>".into() }],
            ..GdalMetadata::default()
        };
        assert_eq!(write(&metadata), "");
        assert_eq!(write(&GdalMetadata::default()), "");
    }

    #[test]
    fn half_a_scale_pair_is_completed() {
        let mut metadata = GdalMetadata::default();
        metadata.bands.insert(2, BandMetadata { scale: Some(2.0), ..BandMetadata::default() });
        let back = parse(write(&metadata).as_bytes(), Bounds::default()).unwrap();
        assert_eq!((back.bands[&2].scale, back.bands[&2].offset), (Some(2.0), Some(0.0)));
    }
}
