//! Parses the text that a user types for a reference system: a code or WKT.

use crate::{
    crs::{Crs, CrsKind},
    epsg, esri,
    unit::Unit,
    wkt::Node,
};

/// Longest accepted text, in bytes. EPSG's longest definition is below 20 kB.
const MAX_TEXT: usize = 1 << 20;

/// Parses the system that `text` names: `EPSG:32633`, `EPSG:32633+5773`, `32633`, `ESRI:54009`, `OGC:CRS84`, a `urn:ogc:def:crs:…`
/// or `http://www.opengis.net/def/crs/…` name, or WKT (WKT1, Esri's WKT1, WKT2).
///
/// # Errors
/// A sentence for the user that says why the text names no known system.
pub fn parse_user(text: &str) -> Result<Crs, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the reference system is empty".to_owned());
    }
    if text.len() > MAX_TEXT {
        return Err(format!("the reference system has {} bytes, more than any definition", text.len()));
    }
    if text.starts_with('{') {
        return Err(
            "PROJJSON is not supported; give the system as WKT or by its code, for example EPSG:32633".to_owned()
        );
    }
    if text.contains(['[', '(']) {
        return from_wkt(text);
    }
    let lower = text.to_ascii_lowercase();
    if lower.starts_with('+') || lower.contains("+proj=") || lower.contains("+init=") || lower.starts_with("proj=") {
        return Err(
            "PROJ strings are not supported; give the system as WKT or by its code, for example EPSG:32633".to_owned()
        );
    }
    let (authority, code) = authority_and_code(text).ok_or_else(|| {
        let shown: String = text.chars().take(60).collect();
        format!("{shown:?} is neither a code such as EPSG:32633 nor WKT")
    })?;
    match authority.to_ascii_uppercase().as_str() {
        "EPSG" => from_epsg(code),
        "ESRI" => from_esri(code),
        "OGC" | "CRS" => from_ogc(code),
        other => Err(format!("{other} is not a known authority; the known ones are EPSG, ESRI and OGC")),
    }
}

fn authority_and_code(text: &str) -> Option<(&str, &str)> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(("EPSG", text));
    }
    let lower = text.to_ascii_lowercase();
    for (prefix, separator) in [("urn:ogc:def:crs:", ':'), ("http://www.opengis.net/def/crs/", '/')] {
        let prefix = if prefix.starts_with("http") && lower.starts_with("https") {
            "https://www.opengis.net/def/crs/"
        } else {
            prefix
        };
        if lower.starts_with(prefix) {
            // Authority, version, code; the version may be empty.
            let mut parts = text.get(prefix.len()..)?.split(separator);
            let (authority, _, code) = (parts.next()?, parts.next()?, parts.next()?);
            return parts.next().is_none().then_some((authority, code));
        }
    }
    text.split_once(':')
}

fn number(code: &str) -> Result<u32, String> {
    code.trim().parse().map_err(|_| format!("{code:?} is not a code"))
}

fn known(code: u32) -> Result<Node, String> {
    epsg::definition(code).ok_or_else(|| format!("EPSG:{code} is not in the EPSG dataset"))
}

fn from_epsg(code: &str) -> Result<Crs, String> {
    let Some((horizontal, vertical)) = code.split_once('+') else {
        return Ok(Crs::from_node(&known(number(code)?)?));
    };
    let vertical = vertical.trim();
    let vertical = match vertical.get(..5) {
        Some(head) if head.eq_ignore_ascii_case("EPSG:") => vertical.get(5..).unwrap_or_default(),
        _ => vertical,
    };
    let (horizontal, vertical) = (number(horizontal)?, number(vertical)?);
    let (horizontal_node, vertical_node) = (known(horizontal)?, known(vertical)?);
    let is_horizontal = horizontal_node.is("PROJCRS") || horizontal_node.is("GEOGCRS");
    if !is_horizontal || !vertical_node.is("VERTCRS") {
        return Err(format!("EPSG:{horizontal}+{vertical} is not a horizontal system and a vertical one"));
    }
    let name = format!("{} + {}", horizontal_node.name().unwrap_or_default(), vertical_node.name().unwrap_or_default());
    let horizontal_epsg = Crs::from_node(&horizontal_node).epsg;
    let mut crs = Crs::from_node(&Node::named("COMPOUNDCRS", &name).with(horizontal_node).with(vertical_node));
    // `Crs::epsg` of a compound system is the horizontal code.
    crs.epsg = horizontal_epsg;
    Ok(crs)
}

fn from_esri(code: &str) -> Result<Crs, String> {
    let code = number(code)?;
    // Esri's number for Web Mercator.
    if matches!(code, 102_100 | 102_113) {
        return from_epsg("3857");
    }
    let node = esri::codes::definition(code)
        .ok_or_else(|| format!("ESRI:{code} is not a known Esri system; give its WKT instead"))?;
    Ok(Crs { esri: Some(code), ..Crs::from_node(&node) })
}

fn from_ogc(code: &str) -> Result<Crs, String> {
    let (name, base) = match code.to_ascii_uppercase().as_str() {
        "CRS84" | "84" => ("WGS 84 (CRS84)", 4326),
        "CRS83" | "83" => ("NAD83 (CRS83)", 4269),
        "CRS27" | "27" => ("NAD27 (CRS27)", 4267),
        _ => return Err(format!("OGC:{code} is not known; the known ones are CRS84, CRS83 and CRS27")),
    };
    let mut node = Node::named("GEOGCRS", name);
    node = node.with_some(known(base)?.child(&["DATUM", "ENSEMBLE"]).cloned());
    node = node.with(Node::new("CS").word("ellipsoidal").word("2"));
    // These differ from the EPSG systems in that longitude comes first.
    node = node.with(Node::named("AXIS", "Geodetic longitude (Lon)").word("east"));
    node = node.with(Node::named("AXIS", "Geodetic latitude (Lat)").word("north"));
    let digits: String = code.chars().filter(char::is_ascii_digit).collect();
    let id = Node::named("ID", "OGC").text(&format!("CRS{digits}"));
    Ok(Crs::from_node(&node.with(Unit::degree().wkt_angle()).with(id)))
}

fn from_wkt(text: &str) -> Result<Crs, String> {
    let node = Node::parse(text).map_err(|e| format!("the reference system is not WKT: {e}"))?;
    const KINDS: &[&str] = &[
        "PROJCRS",
        "PROJECTEDCRS",
        "PROJCS",
        "GEOGCRS",
        "GEOGRAPHICCRS",
        "GEOGCS",
        "GEODCRS",
        "GEODETICCRS",
        "GEOCCS",
        "VERTCRS",
        "VERTICALCRS",
        "VERT_CS",
        "COMPOUNDCRS",
        "COMPD_CS",
        "ENGCRS",
        "ENGINEERINGCRS",
        "LOCAL_CS",
        "BOUNDCRS",
        "DERIVEDPROJCRS",
        "COORDINATEMETADATA",
    ];
    if !KINDS.iter().any(|k| node.is(k)) {
        return Err(format!("{} is not the keyword of a reference system", node.keyword));
    }
    if node.name().is_none() && node.nodes().next().is_none() {
        return Err(format!("{}[…] is empty", node.keyword));
    }
    let mut crs = Crs::from_node(&node);
    let inner = node.child(&["SOURCECRS"]).and_then(|s| s.nodes().next()).unwrap_or(&node);
    crs.epsg = crs.epsg.or_else(|| inner.epsg_in_any_wkt());
    if crs.kind == CrsKind::Vertical {
        crs.vertical_epsg = crs.vertical_epsg.or(crs.epsg);
    }
    if crs.kind == CrsKind::Compound && crs.vertical_epsg.is_none() {
        crs.vertical_epsg = node.nodes().find(|n| n.is("VERT_CS")).and_then(Node::epsg_in_any_wkt);
    }
    Ok(crs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_in_every_spelling() {
        for text in [
            "EPSG:32633",
            "epsg:32633",
            " 32633 ",
            "urn:ogc:def:crs:EPSG::32633",
            "http://www.opengis.net/def/crs/EPSG/0/32633",
            "https://www.opengis.net/def/crs/EPSG/0/32633",
        ] {
            let crs = parse_user(text).unwrap();
            assert_eq!((crs.epsg, crs.kind), (Some(32633), CrsKind::Projected), "{text}");
        }
        for text in ["EPSG:32633+5773", "EPSG:32633+EPSG:5773"] {
            let crs = parse_user(text).unwrap();
            assert_eq!(crs.code().as_deref(), Some("EPSG:32633+5773"));
            assert_eq!((crs.kind, crs.vertical_epsg), (CrsKind::Compound, Some(5773)));
        }
        assert_eq!(parse_user("ESRI:54009").unwrap().code().as_deref(), Some("ESRI:54009"));
        assert_eq!(parse_user("ESRI:102100").unwrap().epsg, Some(3857));
        assert_eq!(parse_user("OGC:CRS84").unwrap().name, "WGS 84 (CRS84)");
    }

    #[test]
    fn wkt_of_three_families() {
        let one = "GEOGCS[\"WGS 84\",DATUM[\"WGS_1984\",SPHEROID[\"WGS 84\",6378137,298.257223563]],PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433],AUTHORITY[\"EPSG\",\"4326\"]]";
        assert_eq!(parse_user(one).unwrap().epsg, Some(4326));
        let esri = "GEOGCS[\"GCS_WGS_1984\",DATUM[\"D_WGS_1984\",SPHEROID[\"WGS_1984\",6378137.0,298.257223563]],PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]]";
        assert_eq!(parse_user(esri).unwrap().kind, CrsKind::Geographic);
        let two = epsg::wkt2(32633).unwrap();
        assert_eq!(parse_user(&two).unwrap().epsg, Some(32633));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let refused = |text: &str| parse_user(text).unwrap_err();
        assert!(refused("{\"type\":\"GeographicCRS\"}").contains("PROJJSON"));
        assert!(refused("+proj=utm +zone=33").contains("PROJ strings"));
        assert!(refused("+init=epsg:4326").contains("PROJ strings"));
        for text in [
            "",
            "EPSG:",
            "EPSG:x",
            "EPSG:999999",
            "EPSG:4326+4326",
            "EPSG:32633+",
            "FOO:1",
            "hello",
            "ESRI:1",
            "OGC:X",
            "FOO[\"x\"]",
            "PROJCS[",
            "EPSG:-1",
            "PROJCS[]",
            "é:é",
        ] {
            assert!(!refused(text).is_empty(), "{text}");
        }
    }
}
