//! Reads the text of citation keys: names, a unit of length, and whole definitions in Esri's dialect.

use swath_crs::{Unit, short_name, wkt::Node};

use crate::geo::keys::GeoKeys;

/// The mark before a definition that a citation holds as text. Esri introduced it; GDAL writes and reads it.
pub(in crate::geo) const ESRI_MARK: &str = "ESRI PE String = ";
/// Longest Esri string that is parsed, in bytes. Real ones are below 3 kB.
const MAX_ESRI: usize = 65_536;

/// Units of length under Erdas's names, in metres. Its foot is the US survey foot.
const UNITS: &[(&[&str], f64)] = &[
    (&["meters", "meter", "m"], 1.0),
    (&["centimeters", "centimeter", "cm"], 0.01),
    (&["millimeters", "millimeter", "mm"], 0.001),
    (&["kilometers", "kilometer", "km"], 1000.0),
    (&["us_survey_feet", "us_survey_foot", "feet", "foot", "ft"], 12.0 / 39.37),
    (&["international_feet", "international_foot"], 0.3048),
    (&["inches", "inch", "in"], 1.0 / 39.37),
    (&["yards", "yard", "yd"], 0.9144),
];

/// The value of `field = value` in an Esri or Erdas citation, whose fields end in `|` or a new line.
pub(super) fn field(citation: &str, field: &str) -> Option<String> {
    citation.split(['|', '\n']).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        (name.trim() == field && !value.trim().is_empty()).then(|| short_name(value))
    })
}

fn by_erdas(citation: &str) -> bool {
    citation.contains("IMAGINE GeoTIFF")
}

/// The name in a citation: the value of `field` if present, else the text. Erdas puts a copyright notice first, which ends in the
/// `$` of a version-control mark.
pub(super) fn name(citation: &str, field: &str) -> String {
    let projection = || self::field(citation, "Projection Name").filter(|_| by_erdas(citation));
    if let Some(name) = self::field(citation, field).or_else(projection) {
        return name;
    }
    let own = match citation.rfind('$') {
        Some(end) if by_erdas(citation) => citation.get(end + 1..).unwrap_or_default().trim(),
        _ => citation,
    };
    let own = if own.len() < citation.len() { own.lines().next().unwrap_or_default() } else { own };
    short_name(own)
}

/// The unit of the axes that the first present citation names. Like GDAL, this overrides ProjLinearUnitsGeoKey, which remains the
/// unit of the projection's parameters. A unit of unknown name has the size of ProjLinearUnitSizeGeoKey.
pub(super) fn unit(keys: &GeoKeys, ids: &[u16]) -> Option<Unit> {
    let citation = ids.iter().find_map(|&id| keys.ascii(id))?;
    let name = field(citation, "LUnits").or_else(|| field(citation, "Units").filter(|_| by_erdas(citation)))?;
    let known = UNITS.iter().find(|(names, _)| names.iter().any(|known| known.eq_ignore_ascii_case(&name)));
    let factor = known.map(|(_, factor)| *factor).or_else(|| keys.double(3077));
    let factor = factor.filter(|factor| factor.is_finite() && *factor > 0.0)?;
    Some(Unit { name, factor, epsg: None })
}

/// The WKT1 that Esri writes into a citation where its system has no GeoTIFF form.
pub(super) fn esri_string(keys: &GeoKeys, problems: &mut Vec<String>) -> Option<Node> {
    let text = [3073, 1026, 2049].iter().find_map(|&id| keys.ascii(id)?.split_once(ESRI_MARK))?.1.trim();
    if text.len() > MAX_ESRI {
        problems.push(format!("the Esri string has {} bytes and is not read", text.len()));
        return None;
    }
    match Node::parse(text.trim_end_matches('|')) {
        Ok(node) => Some(node),
        Err(why) => {
            problems.push(format!("the Esri string in the citation is damaged: {why}"));
            None
        }
    }
}
