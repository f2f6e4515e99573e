//! The coordinate reference system that a set of GeoKeys describes.
//!
//! A code that the EPSG dataset knows is taken from there; everything else is put together from its keys as WKT2:2019.
//! Codes are never guessed: a definition that only looks like UTM has no `epsg` (see [`Crs::find_epsg`]).

use super::citation::{self, esri_string};
use super::epsg;
use super::geodetic::{self, Geodetic};
use super::identify;
use super::keys::{GeoKeys, USER_DEFINED};
use super::names;
use super::projection::{self, Axes, Conversion};
use super::units::{self, Unit};
use super::vertical::{self, Vertical};
use super::wkt::Node;

/// What sort of system it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrsKind {
    /// Map coordinates in a unit of length.
    Projected,
    /// Longitude and latitude.
    Geographic,
    /// X, Y, Z from the Earth's centre.
    Geocentric,
    /// Heights alone.
    Vertical,
    /// A horizontal system and a vertical one.
    Compound,
    /// A site's own grid, or one whose relation to the Earth is not given.
    Engineering,
    /// Named by a code without a definition here.
    Unknown,
}

/// Who gave a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authority {
    /// The EPSG Dataset.
    Epsg,
    /// Esri's own ranges.
    Esri,
}

/// A coordinate reference system.
#[derive(Debug, Clone, PartialEq)]
pub struct Crs {
    /// Its name: EPSG's for a code, else the file's citation.
    pub name: String,
    /// The EPSG code the file states. For a compound system put together from two codes, the horizontal one.
    pub epsg: Option<u32>,
    /// The Esri code the file states, where it is in one of Esri's ranges.
    pub esri: Option<u32>,
    /// The EPSG code of the vertical part.
    pub vertical_epsg: Option<u32>,
    /// The definition, on one line. WKT2:2019, but for an Esri citation, which stays the WKT1 it was.
    pub wkt2: Option<String>,
    /// What sort of system it is.
    pub kind: CrsKind,
    /// Unit of the horizontal axes.
    pub unit: Option<Unit>,
    /// Unit of the vertical axis, where there is one.
    pub vertical_unit: Option<Unit>,
    /// For a compound system, its horizontal part on its own.
    pub horizontal: Option<Box<Crs>>,
    /// What was wrong or left out, as sentences for a person.
    pub problems: Vec<String>,
}

impl Crs {
    /// Reads the keys; `None` where there are none.
    #[must_use]
    pub fn from_keys(keys: &GeoKeys) -> Option<Self> {
        if keys.entries.is_empty() {
            return None;
        }
        let mut problems = Vec::new();
        let mut crs = horizontal(keys, &mut problems);
        crs.problems = problems;
        Some(with_vertical(crs, keys))
    }

    /// The code in `AUTHORITY:CODE` form: `EPSG:32633`, `EPSG:32633+5773`, `ESRI:54009`.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        match (self.epsg, self.esri) {
            (Some(code), _) => match (self.vertical_epsg, &self.horizontal) {
                (Some(vertical), Some(h)) if h.epsg == Some(code) => Some(format!("EPSG:{code}+{vertical}")),
                // A vertical part without a code cannot be written in this form.
                (None, Some(h)) if h.epsg == Some(code) => None,
                _ => Some(format!("EPSG:{code}")),
            },
            (None, Some(code)) => Some(format!("ESRI:{code}")),
            (None, None) => None,
        }
    }

    /// Who gave the code.
    #[must_use]
    pub fn authority(&self) -> Option<Authority> {
        self.epsg.map(|_| Authority::Epsg).or(self.esri.map(|_| Authority::Esri))
    }

    /// What GDAL reports with its default settings: of a compound system in a GeoTIFF 1.0 file (key revision 1.0), only the
    /// horizontal part.
    #[must_use]
    pub fn as_gdal_reports(&self, keys: &GeoKeys) -> &Self {
        let [_, _, minor] = keys.version;
        match &self.horizontal {
            Some(horizontal) if minor == 0 => horizontal,
            _ => self,
        }
    }

    /// The EPSG system that this one is, or is equal to: the stated code, else a system with the same base, method, numbers
    /// and unit. What rasterio's `to_epsg` answers for a user-defined system; the file itself does not say so. Takes
    /// milliseconds for a projected system without code.
    #[must_use]
    pub fn find_epsg(&self) -> Option<u32> {
        identify::find(self)
    }

    /// The definition over several lines.
    #[must_use]
    pub fn wkt2_pretty(&self) -> Option<String> {
        Node::parse(self.wkt2.as_deref()?).ok().map(|n| n.pretty())
    }

    /// The system with an EPSG code, if the dataset has it.
    #[must_use]
    pub fn from_epsg(code: u32) -> Option<Self> {
        Some(Self::from_node(&epsg::definition(code)?))
    }

    pub(crate) fn from_node(node: &Node) -> Self {
        let inner = if node.is("BOUNDCRS") { node.child(&["SOURCECRS"]).and_then(|s| s.nodes().next()) } else { None };
        let inner = inner.unwrap_or(node);
        let kind = match inner.keyword.to_ascii_uppercase().as_str() {
            "PROJCRS" | "PROJCS" => CrsKind::Projected,
            "GEOGCRS" | "GEOGCS" => CrsKind::Geographic,
            "GEODCRS" | "GEOCCS" => CrsKind::Geocentric,
            "VERTCRS" | "VERT_CS" => CrsKind::Vertical,
            "COMPOUNDCRS" | "COMPD_CS" => CrsKind::Compound,
            "ENGCRS" | "LOCAL_CS" => CrsKind::Engineering,
            _ => CrsKind::Unknown,
        };
        let unit = epsg::axis_unit(inner);
        let upright = inner.nodes().find(|n| n.is("VERTCRS"));
        Self {
            name: inner.name().unwrap_or("unnamed").to_owned(),
            epsg: inner.epsg(),
            esri: None,
            vertical_epsg: if kind == CrsKind::Vertical { inner.epsg() } else { upright.and_then(Node::epsg) },
            wkt2: Some(node.to_string()),
            kind,
            vertical_unit: if kind == CrsKind::Vertical { unit.clone() } else { upright.and_then(epsg::axis_unit) },
            unit: if kind == CrsKind::Vertical { None } else { unit },
            horizontal: inner
                .child(&["PROJCRS", "GEOGCRS"])
                .filter(|_| upright.is_some())
                .map(|h| Box::new(Self::from_node(h))),
            problems: Vec::new(),
        }
    }
}

/// The system without its vertical part.
fn horizontal(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    let model = keys.short(names::GT_MODEL_TYPE);
    // GDAL reads a projected code without a model, but no other code.
    let model = match model {
        None | Some(USER_DEFINED) if keys.code(3072).is_some() => Some(1),
        model => model,
    };
    match model {
        Some(1) => projected(keys, problems),
        Some(2) => geographic(keys, problems),
        Some(3) => geocentric(keys, problems),
        _ => {
            if let Some(node) = esri_string(keys, problems) {
                return Crs::from_node(&node);
            }
            for id in [2048, 3072] {
                if let Some(code) = keys.code(id) {
                    let key = names::key_or_number(id);
                    problems.push(format!("{key} is {code}, but GTModelTypeGeoKey does not say how to use it; read as a local system, as GDAL does"));
                }
            }
            engineering(keys, keys.ascii(1026).or_else(|| keys.ascii(2049)), problems)
        }
    }
}

fn projected(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    let stated = keys.code(3072).map(u32::from);
    let length = units::from_keys(keys, 3076, Some(3077), units::length, problems);
    let code = stated.map(|c| epsg::successor(c).unwrap_or(c));
    if let (Some(old), Some(new)) = (stated, code)
        && old != new
    {
        problems.push(format!("EPSG:{old} is deprecated; read as its successor EPSG:{new}, as GDAL does"));
    }
    if let Some(node) = code.and_then(epsg::definition) {
        return coded(&node, keys, length, problems);
    }
    let esri_code = code.filter(|&c| is_esri(c));
    if let (Some(code), None) = (code, esri_code) {
        problems.push(format!("ProjectedCSTypeGeoKey {code} is not in the EPSG dataset"));
    }
    let before = problems.len();
    let geodetic = Geodetic::read(keys, problems);
    let length = length.unwrap_or_else(Unit::metre);
    let axes = citation::unit(keys, &[3073, 1026]).unwrap_or_else(|| length.clone());
    let citation = keys.ascii(3073).or_else(|| keys.ascii(1026));
    let mut crs = match conversion(keys, &geodetic.angle, &length, problems) {
        Some(conversion) => {
            let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "PCS Name"));
            let node = projected_node(&name, &geodetic, &conversion, &axes);
            let bound = geodetic::bound(&node, keys, problems);
            Crs::from_node(bound.as_ref().unwrap_or(&node))
        }
        // GDAL gives a local system here even where the citation holds all of it; the string is the better answer.
        None => match esri_string(keys, problems) {
            Some(node) => {
                problems.truncate(before);
                Crs::from_node(&node)
            }
            None => {
                problems.push("the projected system has no known code and no known projection".to_owned());
                engineering(keys, citation, problems)
            }
        },
    };
    crs.esri = esri_code;
    // A code without definition is still what the file states, but not the code of what other keys define in full.
    if crs.kind == CrsKind::Engineering && esri_code.is_none() {
        crs.epsg = code;
    }
    crs
}

/// A projected code with a definition, corrected by keys that contradict it. GDAL believes the keys; the result then is no
/// longer the EPSG system and loses its code.
fn coded(node: &Node, keys: &GeoKeys, length: Option<Unit>, problems: &mut Vec<String>) -> Crs {
    let mut crs = Crs::from_node(node);
    let (Some(code), true) = (crs.epsg, node.is("PROJCRS")) else { return crs };
    let own_unit = epsg::axis_unit(node).unwrap_or_else(Unit::metre);
    let other_unit = citation::unit(keys, &[1026]).or(length).filter(|u| !u.same_size(&own_unit));
    let own_base = node.child(&["BASEGEOGCRS"]).and_then(Node::epsg);
    let other_base = base_of_keys(keys, own_base, problems);
    let own_conversion = node.child(&["CONVERSION"]);
    let other_numbers = own_conversion
        .and_then(|own| contradicting(keys, own, node, other_unit.as_ref().unwrap_or(&own_unit), problems));
    if other_unit.is_none() && other_base.is_none() && other_numbers.is_none() {
        return crs;
    }
    if other_numbers.is_some() {
        problems.push(format!(
            "the projection's parameters are not those of EPSG:{code}; the given ones are used and the code dropped"
        ));
    }
    let conversion = other_numbers.or_else(|| own_conversion.cloned());
    if other_base.is_some() {
        problems.push(format!(
            "the geographic keys are not those of EPSG:{code}'s base; they are used and the code dropped"
        ));
    }
    let geodetic = other_base.or_else(|| Geodetic::from_definition(own_base?));
    let (Some(mut conversion), Some(geodetic)) = (conversion, geodetic) else { return crs };
    if let Some(unit) = &other_unit {
        problems.push(format!(
            "the axes are in {}, which is not EPSG:{code}'s {}; the unit is replaced and the code dropped",
            unit.name, own_unit.name
        ));
        conversion = conversion.without_id();
    }
    let axes = projection::axes_of(&conversion);
    let unit = other_unit.unwrap_or(own_unit);
    let name = crs.name.clone();
    // The false easting keeps its own unit inside the conversion, so replacing the axis unit keeps the ground in place.
    crs = Crs::from_node(&projected_node(&name, &geodetic, &Conversion { node: conversion, axes }, &unit));
    crs
}

/// The base that the geographic keys give, where it is not a projected code's own. GDAL looks at them where they name a
/// system, a datum or an ellipsoid.
fn base_of_keys(keys: &GeoKeys, own: Option<u32>, problems: &mut Vec<String>) -> Option<Geodetic> {
    if let Some(code) = keys.code(2048).map(u32::from) {
        let known = epsg::definition(code).is_some_and(|n| n.is("GEOGCRS"));
        return known.then(|| Geodetic::read(keys, problems)).filter(|g| g.epsg.is_none() || g.epsg != own);
    }
    keys.code(2050).or_else(|| keys.code(2056))?;
    let mut base = Geodetic::from_definition(own?)?;
    base.overrule(keys, problems);
    Some(base).filter(|base| base.epsg.is_none())
}

/// The conversion of the parameter keys, where they are of the code's own method and give other numbers. Parameters of
/// another method are a different way to say the same (Web Mercator as plain Mercator), and the code is the better guide.
fn contradicting(keys: &GeoKeys, own: &Node, node: &Node, length: &Unit, problems: &mut Vec<String>) -> Option<Node> {
    let method = keys.code(3075)?;
    let base = node.child(&["BASEGEOGCRS"]).and_then(Node::epsg).and_then(Geodetic::from_definition)?;
    let angle = units::from_keys(keys, 2054, Some(2055), units::angle, problems).unwrap_or(base.angle);
    // What is missing or damaged in keys that only repeat a code is no problem.
    let stated = projection::conversion(keys, method, &angle, length, &mut Vec::new())?.node;
    let id = |n: &Node| n.child(&["METHOD"]).and_then(Node::epsg);
    let given = (3078..=3096).any(|key| keys.double(key).is_some());
    (given && id(&stated) == id(own) && !identify::same_conversion(&stated, own)).then_some(stated)
}

fn conversion(keys: &GeoKeys, angle: &Unit, length: &Unit, problems: &mut Vec<String>) -> Option<Conversion> {
    if let Some(code) = keys.code(3074) {
        if let Some(node) = epsg::conversion(code) {
            let axes = projection::axes_of(&node);
            return Some(Conversion { node, axes });
        }
        problems.push(format!("ProjectionGeoKey {code} is not in the EPSG dataset"));
    }
    let method = keys.code(3075)?;
    let found = projection::conversion(keys, method, angle, length, problems);
    if found.is_none() {
        let name = names::value(3075, method).unwrap_or("unknown");
        problems.push(format!("ProjCoordTransGeoKey {method} ({name}) could not be used"));
    }
    found
}

fn projected_node(name: &str, geodetic: &Geodetic, conversion: &Conversion, length: &Unit) -> Node {
    let node = Node::named("PROJCRS", name).with(geodetic.base()).with(conversion.node.clone());
    node.with_all(projection::coordinate_system(conversion.axes, length))
}

fn geographic(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    // A geographic model with only a projected code means that code's base.
    let of_projected = || keys.code(3072).and_then(|c| Geodetic::from_definition(u32::from(c))?.epsg);
    let stated = keys.code(2048).map(u32::from).or_else(|| of_projected().filter(|_| keys.short(2048).is_none()));
    if let Some(code) = stated {
        let code = epsg::successor(code).unwrap_or(code);
        if let Some(crs) = Crs::from_epsg(code) {
            return overruled(&crs, keys, problems).unwrap_or(crs);
        }
    }
    if let Some(node) = esri_string(keys, problems) {
        return Crs::from_node(&node);
    }
    let before = problems.len();
    let geodetic = Geodetic::read(keys, problems);
    let node = geodetic.geographic();
    let bound = geodetic::bound(&node, keys, problems);
    let mut crs = Crs::from_node(bound.as_ref().unwrap_or(&node));
    crs.esri = stated.filter(|&c| is_esri(c));
    crs.epsg = stated.filter(|&c| !is_esri(c));
    if stated.is_some() && keys.code(2050).is_none() && keys.code(2056).is_none() && keys.double(2057).is_none() {
        // Only the code is known: a definition on a borrowed ellipsoid would claim more than the file says.
        crs.kind = CrsKind::Unknown;
        crs.wkt2 = None;
        problems.truncate(before);
        problems.push(format!("GeographicTypeGeoKey {} has no definition here", stated.unwrap_or(0)));
    }
    crs
}

/// A geographic code corrected by keys that contradict it, as GDAL does it. WGS 84 in two dimensions is GDAL's exception:
/// its code settles it.
fn overruled(crs: &Crs, keys: &GeoKeys, problems: &mut Vec<String>) -> Option<Crs> {
    let flat = Node::parse(crs.wkt2.as_deref()?).ok()?.child(&["CS"])?.nth_number(0)? == 2.0;
    let code = crs.epsg.filter(|&code| flat && code != 4326)?;
    let mut geodetic = Geodetic::from_definition(code)?;
    geodetic.overrule(keys, problems);
    if let Some(angle) = units::from_keys(keys, 2054, Some(2055), units::angle, problems)
        && !angle.same_size(&geodetic.angle)
    {
        problems.push(format!("GeogAngularUnitsGeoKey is {}, which is not EPSG:{code}'s unit; it is used", angle.name));
        geodetic.angle = angle;
        geodetic.epsg = None;
    }
    geodetic.epsg.is_none().then(|| Crs::from_node(&geodetic.geographic()))
}

fn geocentric(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    let code = keys.code(2048).or_else(|| keys.code(3072)).map(u32::from);
    if let Some(node) = code.and_then(epsg::definition).filter(|n| n.is("GEODCRS")) {
        return Crs::from_node(&node);
    }
    let geodetic = Geodetic::read(keys, problems);
    let length = units::from_keys(keys, 2052, Some(2053), units::length, problems);
    let length = length
        .or_else(|| units::from_keys(keys, 3076, Some(3077), units::length, problems))
        .unwrap_or_else(Unit::metre);
    let citation = keys.ascii(1026).or_else(|| keys.ascii(2049));
    let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "GCS Name"));
    Crs::from_node(&geodetic.geocentric(&name, &length))
}

/// A local system: a name and a unit, which is all that is known.
fn engineering(keys: &GeoKeys, citation: Option<&str>, problems: &mut Vec<String>) -> Crs {
    let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "PCS Name"));
    let unit = units::from_keys(keys, 3076, Some(3077), units::length, problems);
    let projected = keys.short(names::GT_MODEL_TYPE) == Some(1);
    let unit = unit.unwrap_or_else(|| {
        if projected { Unit::metre() } else { Unit { name: "unknown".to_owned(), factor: 1.0, epsg: None } }
    });
    let node = Node::named("ENGCRS", &name).with(Node::named("EDATUM", "Unknown engineering datum"));
    Crs::from_node(&node.with_all(projection::coordinate_system(Axes::EastNorth, &unit)))
}

/// Codes that Esri uses and EPSG has never given out; larger ones (102xxx) do not fit a GeoKey.
fn is_esri(code: u32) -> bool {
    matches!(code, 37_001..=37_999 | 53_001..=54_999 | 65_061..=65_063 | 102_001..=104_999)
}

fn with_vertical(mut crs: Crs, keys: &GeoKeys) -> Crs {
    let upright = if matches!(crs.kind, CrsKind::Projected | CrsKind::Geographic) {
        Vertical::read(keys, &mut crs.problems)
    } else {
        if let Some(code) = keys.code(4096).filter(|_| crs.kind != CrsKind::Compound) {
            crs.problems.push(format!("VerticalCSTypeGeoKey {code} has no horizontal system to stand on; not used"));
            crs.vertical_epsg = crs.vertical_epsg.or(Some(u32::from(code)));
        }
        None
    };
    let definition = crs.wkt2.as_deref().and_then(|t| Node::parse(t).ok());
    let (Some(upright), Some(definition)) = (upright, definition) else { return crs };
    match upright {
        Vertical::Unknown(code) => crs.vertical_epsg = Some(code),
        Vertical::Ellipsoidal(code) => match vertical::with_ellipsoidal_height(&definition, code) {
            Some(node) => {
                let problems = std::mem::take(&mut crs.problems);
                crs = Crs { problems, vertical_unit: Some(Unit::metre()), ..Crs::from_node(&node) };
            }
            None => crs.problems.push(format!(
                "heights are those of EPSG:{code}, but the horizontal system is on another datum; not used"
            )),
        },
        Vertical::System { node, epsg, unit } => {
            let source = if definition.is("BOUNDCRS") {
                definition.child(&["SOURCECRS"]).and_then(|s| s.nodes().next())
            } else {
                None
            };
            let floor = source.unwrap_or(&definition).clone();
            if !(floor.is("PROJCRS") || floor.is("GEOGCRS")) {
                crs.problems.push("the vertical system cannot be joined to an Esri definition; not used".to_owned());
                crs.vertical_epsg = epsg;
                return crs;
            }
            let name = format!("{} + {}", crs.name, node.name().unwrap_or("unknown"));
            let compound = Node::named("COMPOUNDCRS", &name).with(floor).with(node);
            let problems = std::mem::take(&mut crs.problems);
            return Crs {
                name,
                epsg: crs.epsg,
                esri: crs.esri,
                vertical_epsg: epsg,
                wkt2: Some(compound.to_string()),
                kind: CrsKind::Compound,
                unit: crs.unit.clone(),
                vertical_unit: unit,
                horizontal: Some(Box::new(crs)),
                problems,
            };
        }
    }
    crs
}

#[cfg(test)]
mod tests;

impl Crs {
    /// A system from the text of a side file: WKT, or `EPSG:` and a code.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let text = text.trim();
        let code = text.strip_prefix("EPSG:").and_then(|code| code.parse().ok());
        if let Some(known) = code.and_then(Self::from_epsg) {
            return known;
        }
        match Node::parse(text) {
            Ok(node) => {
                let mut crs = Self::from_node(&node);
                crs.wkt2 = Some(text.to_owned());
                crs.epsg = node.epsg();
                crs
            }
            Err(error) => Self {
                name: citation::short_text(text),
                epsg: code,
                esri: None,
                vertical_epsg: None,
                wkt2: None,
                kind: CrsKind::Unknown,
                unit: None,
                vertical_unit: None,
                horizontal: None,
                problems: vec![format!("the reference system of the side file cannot be parsed: {error}")],
            },
        }
    }
}
