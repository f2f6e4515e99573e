//! Reads the coordinate reference system that a set of GeoKeys describes.
//!
//! A code that the EPSG dataset has is looked up there; any other system is built from its keys as WKT2:2019. Codes are never
//! guessed: a definition that only looks like UTM has no `epsg` (see [`Crs::find_epsg`]).

mod citation;
mod geodetic;
mod projection;
mod unit;
mod vertical;

use swath_crs::{
    Crs, CrsKind, Unit,
    axes::{self, Axes},
    epsg, same_conversion,
    unit::{angle as angle_unit, length as length_unit},
    wkt::Node,
};

pub(super) use citation::ESRI_MARK;
use citation::esri_string;
use geodetic::Geodetic;
use projection::Conversion;
use vertical::Vertical;

use crate::geo::{
    key_names::{self, USER_DEFINED},
    keys::GeoKeys,
};

impl GeoKeys {
    /// The system that the keys describe; `None` where there are no keys.
    #[must_use]
    pub fn crs(&self) -> Option<Crs> {
        if self.entries.is_empty() {
            return None;
        }
        let mut problems = Vec::new();
        let mut crs = horizontal(self, &mut problems);
        crs.problems = problems;
        Some(with_vertical(crs, self))
    }

    /// The part of `crs`, the system of these keys, that GDAL reports with its default settings: of a compound system in a
    /// GeoTIFF 1.0 file (key revision 1.0), only the horizontal part.
    #[must_use]
    pub fn crs_as_gdal_reports<'a>(&self, crs: &'a Crs) -> &'a Crs {
        let [_, _, minor] = self.version;
        match &crs.horizontal {
            Some(horizontal) if minor == 0 => horizontal,
            _ => crs,
        }
    }
}

/// Reads the system without its vertical part.
fn horizontal(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    let model = keys.short(key_names::GT_MODEL_TYPE);
    // Like GDAL, read a projected code without a model type, but no other code.
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
                    let key = key_names::key_or_number(id);
                    problems.push(format!("{key} is {code}, but GTModelTypeGeoKey does not say how to use it; read as a local system, as GDAL does"));
                }
            }
            engineering(keys, keys.ascii(1026).or_else(|| keys.ascii(2049)), problems)
        }
    }
}

fn projected(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    let stated = keys.code(3072).map(u32::from);
    let length = unit::from_keys(keys, 3076, Some(3077), length_unit, problems);
    let code = stated.map(|c| epsg::successor(c).unwrap_or(c));
    if let (Some(old), Some(new)) = (stated, code)
        && old != new
    {
        problems.push(format!("EPSG:{old} is deprecated; read as its successor EPSG:{new}, as GDAL does"));
    }
    if let Some(node) = code.and_then(epsg::definition) {
        return projected_from_code(&node, keys, length, problems);
    }
    let esri_code = code.filter(|&c| is_esri(c));
    if let (Some(code), None) = (code, esri_code) {
        problems.push(format!("ProjectedCSTypeGeoKey {code} is not in the EPSG dataset"));
    }
    let before = problems.len();
    let geodetic = Geodetic::read(keys, problems);
    let length = length.unwrap_or_else(Unit::metre);
    let axis_unit = citation::unit(keys, &[3073, 1026]).unwrap_or_else(|| length.clone());
    let citation = keys.ascii(3073).or_else(|| keys.ascii(1026));
    let mut crs = match conversion(keys, &geodetic.angle, &length, problems) {
        Some(conversion) => {
            let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "PCS Name"));
            let node = projected_node(&name, &geodetic, &conversion, &axis_unit);
            let bound = geodetic::bound(&node, keys, problems);
            Crs::from_node(bound.as_ref().unwrap_or(&node))
        }
        // GDAL returns a local system here even if the citation holds the whole definition. The definition is the better answer.
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
    // A code without a definition is still the code that the file states, unless other keys define the system in full.
    if crs.kind == CrsKind::Engineering && esri_code.is_none() {
        crs.epsg = code;
    }
    crs
}

/// The system of a projected code, corrected by keys that contradict it. Like GDAL, this trusts the keys; the result is then not
/// the EPSG system and has no code.
fn projected_from_code(node: &Node, keys: &GeoKeys, length: Option<Unit>, problems: &mut Vec<String>) -> Crs {
    let mut crs = Crs::from_node(node);
    let (Some(code), true) = (crs.epsg, node.is("PROJCRS")) else { return crs };
    let own_unit = epsg::axis_unit(node).unwrap_or_else(Unit::metre);
    let other_unit = citation::unit(keys, &[1026]).or(length).filter(|u| !u.same_size(&own_unit));
    let own_base = node.child(&["BASEGEOGCRS"]).and_then(Node::epsg);
    let other_base = contradicting_base(keys, own_base, problems);
    let own_conversion = node.child(&["CONVERSION"]);
    let other_numbers = own_conversion
        .and_then(|own| contradicting_conversion(keys, own, node, other_unit.as_ref().unwrap_or(&own_unit), problems));
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
    let directions = axes::axes_of(&conversion);
    let unit = other_unit.unwrap_or(own_unit);
    let name = crs.name.clone();
    // The false easting has its own unit inside the conversion, so replacing the axis unit does not move the image.
    crs = Crs::from_node(&projected_node(&name, &geodetic, &Conversion { node: conversion, axes: directions }, &unit));
    crs
}

/// The base that the geographic keys describe, if it is not `own`, the base of the projected code. Like GDAL, this reads the keys
/// only where they name a system, a datum or an ellipsoid.
fn contradicting_base(keys: &GeoKeys, own: Option<u32>, problems: &mut Vec<String>) -> Option<Geodetic> {
    if let Some(code) = keys.code(2048).map(u32::from) {
        let known = epsg::definition(code).is_some_and(|n| n.is("GEOGCRS"));
        return known.then(|| Geodetic::read(keys, problems)).filter(|g| g.epsg.is_none() || g.epsg != own);
    }
    keys.code(2050).or_else(|| keys.code(2056))?;
    let mut base = Geodetic::from_definition(own?)?;
    base.apply_contradicting_keys(keys, problems);
    Some(base).filter(|base| base.epsg.is_none())
}

/// The conversion of the parameter keys, if it has the method of `own`, the code's conversion, but other parameters. Parameters of
/// another method are an approximation of the same system (Web Mercator as plain Mercator), and the code is more reliable.
fn contradicting_conversion(
    keys: &GeoKeys,
    own: &Node,
    node: &Node,
    length: &Unit,
    problems: &mut Vec<String>,
) -> Option<Node> {
    let method = keys.code(3075)?;
    let base = node.child(&["BASEGEOGCRS"]).and_then(Node::epsg).and_then(Geodetic::from_definition)?;
    let angle = unit::from_keys(keys, 2054, Some(2055), angle_unit, problems).unwrap_or(base.angle);
    // Keys that only repeat a code may be missing or damaged; that is not reported.
    let stated = projection::conversion(keys, method, &angle, length, &mut Vec::new())?.node;
    let id = |n: &Node| n.child(&["METHOD"]).and_then(Node::epsg);
    let given = (3078..=3096).any(|key| keys.double(key).is_some());
    (given && id(&stated) == id(own) && !same_conversion(&stated, own)).then_some(stated)
}

fn conversion(keys: &GeoKeys, angle: &Unit, length: &Unit, problems: &mut Vec<String>) -> Option<Conversion> {
    if let Some(code) = keys.code(3074) {
        if let Some(node) = epsg::conversion(code) {
            let directions = axes::axes_of(&node);
            return Some(Conversion { node, axes: directions });
        }
        problems.push(format!("ProjectionGeoKey {code} is not in the EPSG dataset"));
    }
    let method = keys.code(3075)?;
    let found = projection::conversion(keys, method, angle, length, problems);
    if found.is_none() {
        let name = key_names::value(3075, method).unwrap_or("unknown");
        problems.push(format!("ProjCoordTransGeoKey {method} ({name}) could not be used"));
    }
    found
}

fn projected_node(name: &str, geodetic: &Geodetic, conversion: &Conversion, length: &Unit) -> Node {
    let node = Node::named("PROJCRS", name).with(geodetic.base()).with(conversion.node.clone());
    node.with_all(axes::coordinate_system(conversion.axes, length))
}

fn geographic(keys: &GeoKeys, problems: &mut Vec<String>) -> Crs {
    // A geographic model type with only a projected code means the base of that code.
    let base_of_projected = || keys.code(3072).and_then(|c| Geodetic::from_definition(u32::from(c))?.epsg);
    let stated = keys.code(2048).map(u32::from).or_else(|| base_of_projected().filter(|_| keys.short(2048).is_none()));
    if let Some(code) = stated {
        let code = epsg::successor(code).unwrap_or(code);
        if let Some(crs) = Crs::from_epsg(code) {
            return corrected_geographic(&crs, keys, problems).unwrap_or(crs);
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
        // Only the code is known. A definition on the fallback ellipsoid would claim more than the file states.
        crs.kind = CrsKind::Unknown;
        crs.wkt2 = None;
        problems.truncate(before);
        problems.push(format!("GeographicTypeGeoKey {} has no definition here", stated.unwrap_or(0)));
    }
    crs
}

/// The system of a geographic code, corrected by keys that contradict it; `None` where none does. Follows GDAL, including its
/// exception: two-dimensional WGS 84 is always what its code says.
fn corrected_geographic(crs: &Crs, keys: &GeoKeys, problems: &mut Vec<String>) -> Option<Crs> {
    let is_2d = Node::parse(crs.wkt2.as_deref()?).ok()?.child(&["CS"])?.nth_number(0)? == 2.0;
    let code = crs.epsg.filter(|&code| is_2d && code != 4326)?;
    let mut geodetic = Geodetic::from_definition(code)?;
    geodetic.apply_contradicting_keys(keys, problems);
    if let Some(angle) = unit::from_keys(keys, 2054, Some(2055), angle_unit, problems)
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
    let length = unit::from_keys(keys, 2052, Some(2053), length_unit, problems);
    let length =
        length.or_else(|| unit::from_keys(keys, 3076, Some(3077), length_unit, problems)).unwrap_or_else(Unit::metre);
    let citation = keys.ascii(1026).or_else(|| keys.ascii(2049));
    let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "GCS Name"));
    Crs::from_node(&geodetic.geocentric(&name, &length))
}

/// A local system of which only a name and a unit are known.
fn engineering(keys: &GeoKeys, citation: Option<&str>, problems: &mut Vec<String>) -> Crs {
    let name = citation.map_or_else(|| "unnamed".to_owned(), |c| citation::name(c, "PCS Name"));
    let unit = unit::from_keys(keys, 3076, Some(3077), length_unit, problems);
    let projected = keys.short(key_names::GT_MODEL_TYPE) == Some(1);
    let unit = unit.unwrap_or_else(|| {
        if projected { Unit::metre() } else { Unit { name: "unknown".to_owned(), factor: 1.0, epsg: None } }
    });
    let node = Node::named("ENGCRS", &name).with(Node::named("EDATUM", "Unknown engineering datum"));
    Crs::from_node(&node.with_all(axes::coordinate_system(Axes::EastNorth, &unit)))
}

/// Whether a code is one of Esri's, which EPSG has never assigned. The larger ones (102xxx) do not fit a GeoKey.
fn is_esri(code: u32) -> bool {
    matches!(code, 37_001..=37_999 | 53_001..=54_999 | 65_061..=65_063 | 102_001..=104_999)
}

/// Adds the vertical system of the keys to `crs`.
fn with_vertical(mut crs: Crs, keys: &GeoKeys) -> Crs {
    let vertical_part = if matches!(crs.kind, CrsKind::Projected | CrsKind::Geographic) {
        Vertical::read(keys, &mut crs.problems)
    } else {
        if let Some(code) = keys.code(4096).filter(|_| crs.kind != CrsKind::Compound) {
            crs.problems.push(format!("VerticalCSTypeGeoKey {code} has no horizontal system beside it; not used"));
            crs.vertical_epsg = crs.vertical_epsg.or(Some(u32::from(code)));
        }
        None
    };
    let definition = crs.wkt2.as_deref().and_then(|t| Node::parse(t).ok());
    let (Some(vertical_part), Some(definition)) = (vertical_part, definition) else { return crs };
    match vertical_part {
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
            let horizontal = source.unwrap_or(&definition).clone();
            if !(horizontal.is("PROJCRS") || horizontal.is("GEOGCRS")) {
                crs.problems.push("the vertical system cannot be joined to an Esri definition; not used".to_owned());
                crs.vertical_epsg = epsg;
                return crs;
            }
            let name = format!("{} + {}", crs.name, node.name().unwrap_or("unknown"));
            let compound = Node::named("COMPOUNDCRS", &name).with(horizontal).with(node);
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
