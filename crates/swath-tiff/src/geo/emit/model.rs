//! One description of a system for all spellings of WKT, so that the key writer need not know who wrote the text.
//!
//! WKT1 (OGC and Esri) and WKT2 differ in keywords, in where units stand and in the names of methods and parameters; what
//! they say is the same, and this is it.

use super::method::{Parameters, Projection};
use crate::geo::units::Unit;
use crate::geo::wkt::{Item, Node};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ellipsoid {
    pub name: String,
    pub a: f64,
    /// 0 for a sphere.
    pub inverse_flattening: f64,
    pub epsg: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Meridian {
    pub name: String,
    pub value: f64,
    pub unit: Unit,
    pub epsg: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Geographic {
    pub name: String,
    pub epsg: Option<u32>,
    pub datum: String,
    pub datum_epsg: Option<u32>,
    pub ellipsoid: Ellipsoid,
    /// `None` for Greenwich; other planets have a meridian of 0 with another name.
    pub meridian: Option<Meridian>,
    pub angle: Unit,
    /// With a height axis.
    pub solid: bool,
    /// Three or seven terms to WGS 84, position vector convention.
    pub to_wgs84: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Projected {
    pub name: String,
    pub epsg: Option<u32>,
    pub base: Geographic,
    pub projection: Projection,
    pub unit: Unit,
    pub solid: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Upright {
    pub name: String,
    pub epsg: Option<u32>,
    pub datum: String,
    pub datum_epsg: Option<u32>,
    pub unit: Unit,
    /// A height; depths count down.
    pub up: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum System {
    Geographic(Geographic),
    Projected(Box<Projected>),
    Geocentric(Geographic, Unit),
    Vertical(Upright),
    Compound(String, Box<System>, Upright),
    Local(String, Unit),
    /// A kind that GeoKeys have no words for.
    Other,
}

const BASES: &[&str] = &["BASEGEOGCRS", "BASEGEODCRS", "GEOGCS"];
const DATUMS: &[&str] = &["DATUM", "ENSEMBLE", "GEODETICDATUM", "TRF"];
const UPRIGHT_DATUMS: &[&str] = &["VDATUM", "VERT_DATUM", "VERTICALDATUM", "VRF", "ENSEMBLE"];
const ANGLES: &[&str] = &["ANGLEUNIT", "UNIT"];
const LENGTHS: &[&str] = &["LENGTHUNIT", "UNIT"];

/// The EPSG code of a node itself: `ID["EPSG",4326]` or WKT1's `AUTHORITY["EPSG","4326"]`.
pub(super) fn epsg_of(node: &Node) -> Option<u32> {
    node.nodes().filter(|n| n.is("ID") || n.is("AUTHORITY")).find_map(|id| {
        let mut words = id.items.iter().filter_map(|i| match i {
            Item::Text(text) | Item::Word(text) => Some(text.as_str()),
            _ => None,
        });
        words.next().filter(|a| a.eq_ignore_ascii_case("EPSG"))?;
        words.next()?.trim().parse().ok()
    })
}

fn name(node: &Node) -> String {
    node.name().unwrap_or("unnamed").to_owned()
}

fn unit(node: &Node, keywords: &[&str]) -> Option<Unit> {
    let node = node.child(keywords)?;
    let unit = Unit { epsg: epsg_of(node), ..Unit::from_wkt(node)? };
    (unit.factor.is_finite() && unit.factor > 0.0).then_some(unit)
}

/// The unit after the axes, or of the first axis, as the two styles of WKT2 have it.
fn axis_unit(node: &Node, keywords: &[&str]) -> Option<Unit> {
    unit(node, keywords).or_else(|| node.nodes().filter(|n| n.is("AXIS")).find_map(|axis| unit(axis, keywords)))
}

fn dimensions(node: &Node) -> Option<f64> {
    node.child(&["CS"])?.nth_number(0)
}

/// Describes a definition; `None` where a part that its kind needs is missing.
pub(super) fn read(node: &Node) -> Option<System> {
    if node.is("BOUNDCRS") {
        return bound(node);
    }
    let any = |keywords: &[&str]| keywords.iter().any(|k| node.is(k));
    // A derived system has its base's datum but not its coordinates.
    if node.child(&["DERIVINGCONVERSION"]).is_some() && !any(&["VERTCRS", "VERTICALCRS"]) {
        return Some(System::Other);
    }
    if any(&["PROJCRS", "PROJCS", "PROJECTEDCRS"]) {
        return projected(node).map(|p| System::Projected(Box::new(p)));
    }
    if any(&["GEOGCRS", "GEOGCS", "GEOGRAPHICCRS", "GEODCRS", "GEODETICCRS"]) {
        let cartesian = node.child(&["CS"]).is_some_and(|cs| cs.to_string().to_ascii_lowercase().contains("cartesian"));
        if !cartesian {
            return geographic(node).map(System::Geographic);
        }
        return geocentric(node);
    }
    if any(&["GEOCCS"]) {
        return geocentric(node);
    }
    if any(&["VERTCRS", "VERT_CS", "VERTICALCRS"]) {
        return upright(node).map(System::Vertical);
    }
    if any(&["COMPOUNDCRS", "COMPD_CS"]) {
        return compound(node);
    }
    if any(&["ENGCRS", "LOCAL_CS", "ENGINEERINGCRS"]) {
        // A local system in keys is a plane with a unit of length.
        let plane = dimensions(node).is_none_or(|d| d == 2.0) && node.child(&["ANGLEUNIT", "SCALEUNIT"]).is_none();
        let unit = axis_unit(node, LENGTHS).filter(|_| plane);
        return Some(unit.map_or(System::Other, |unit| System::Local(name(node), unit)));
    }
    Some(System::Other)
}

fn bound(node: &Node) -> Option<System> {
    let mut system = read(node.child(&["SOURCECRS"])?.nodes().next()?)?;
    let terms = to_wgs84(node);
    match (&mut system, terms) {
        (System::Geographic(g) | System::Geocentric(g, _), Some(terms)) => g.to_wgs84 = terms,
        (System::Projected(p), Some(terms)) => p.base.to_wgs84 = terms,
        // Grid files and heights have no key; the system itself is still right.
        _ => {}
    }
    Some(system)
}

/// Position vector terms of an abridged transformation; `None` for a method that is not three or seven numbers.
fn to_wgs84(bound: &Node) -> Option<Vec<f64>> {
    let target = bound.child(&["TARGETCRS"]).and_then(|t| t.nodes().next());
    let change = bound.child(&["ABRIDGEDTRANSFORMATION"])?;
    let method = change.child(&["METHOD"])?;
    let value = |code: u32| {
        let all = change.nodes().filter(|n| n.is("PARAMETER"));
        all.filter(|n| epsg_of(n) == Some(code)).find_map(|n| n.nth_number(0))
    };
    // Any realisation of WGS 84 serves as the target, nothing else does.
    target.and_then(Node::name).filter(|n| n.contains("WGS"))?;
    let three = [value(8605)?, value(8606)?, value(8607)?];
    // PROJ names its codes 9606 and 9607 for geographic 2D; 1033, 1032 and 1037, 1038 are the same in other dimensions.
    let turn = match epsg_of(method)? {
        9603 | 1031 | 1035 => return Some(three.to_vec()),
        9606 | 1033 | 1037 => 1.0,
        9607 | 1032 | 1038 => -1.0,
        _ => return None,
    };
    let turns = [turn * value(8608)?, turn * value(8609)?, turn * value(8610)?];
    let scale = value(8611)?;
    // The abridged form gives a factor; rounding keeps 1.0000067 at 6.7 parts per million.
    let ppm = if (scale - 1.0).abs() < 0.1 { ((scale - 1.0) * 1e15).round() / 1e9 } else { scale };
    Some(three.into_iter().chain(turns).chain([ppm]).collect())
}

fn geocentric(node: &Node) -> Option<System> {
    let length = axis_unit(node, LENGTHS).unwrap_or_else(Unit::metre);
    Some(System::Geocentric(Geographic { angle: Unit::degree(), ..geographic(node)? }, length))
}

/// A geographic system or base; also the datum of a geocentric one.
pub(super) fn geographic(node: &Node) -> Option<Geographic> {
    let datum = node.child(DATUMS)?;
    let round = datum.child(&["ELLIPSOID", "SPHEROID"])?;
    let scale = unit(round, LENGTHS).map_or(1.0, |u| u.factor);
    let ellipsoid = Ellipsoid {
        name: name(round),
        a: round.nth_number(0)? * scale,
        inverse_flattening: round.nth_number(1)?,
        epsg: epsg_of(round),
    };
    if !(ellipsoid.a.is_finite() && ellipsoid.a > 0.0 && ellipsoid.inverse_flattening.is_finite()) {
        return None;
    }
    let angle = axis_unit(node, ANGLES).filter(|u| u.factor < 1.1);
    let esri = datum.name().is_some_and(|n| n.starts_with("D_"));
    let meridian = node.child(&["PRIMEM", "PRIMEMERIDIAN"]).and_then(|m| meridian(m, angle.as_ref(), esri));
    let terms = datum.child(&["TOWGS84"]).map(|t| (0..7).map_while(|i| t.nth_number(i)).collect::<Vec<_>>());
    let usable = |t: &Vec<f64>| matches!(t.len(), 3 | 7) && t.iter().all(|v| v.is_finite());
    let angle = angle.or_else(|| own_angle(node)).unwrap_or_else(Unit::degree);
    Some(Geographic {
        name: name(node),
        epsg: epsg_of(node),
        datum: name(datum),
        datum_epsg: epsg_of(datum),
        ellipsoid,
        meridian,
        angle,
        solid: dimensions(node) == Some(3.0),
        to_wgs84: terms.filter(usable).unwrap_or_default(),
    })
}

/// The base of a projected system has no coordinate system in WKT2; its code knows the unit.
fn own_angle(node: &Node) -> Option<Unit> {
    let known = crate::geo::epsg::definition(epsg_of(node)?)?;
    axis_unit(&known, ANGLES)
}

fn meridian(node: &Node, angle: Option<&Unit>, esri: bool) -> Option<Meridian> {
    let value = node.nth_number(0).filter(|v| v.is_finite())?;
    if value == 0.0 && node.name().is_none_or(|name| name.eq_ignore_ascii_case("Greenwich")) {
        return None;
    }
    let own = unit(node, ANGLES);
    // Esri always means degrees, and so does whoever writes Paris in degrees next to grads.
    let degrees = esri || (value - 2.337_229_17).abs() < 1e-8;
    let system = angle.filter(|_| !degrees).cloned();
    let unit = own.or(system).unwrap_or_else(Unit::degree);
    Some(Meridian { name: name(node), value, unit, epsg: epsg_of(node) })
}

fn projected(node: &Node) -> Option<Projected> {
    let mut base = geographic(node.child(BASES)?)?;
    let unit = axis_unit(node, LENGTHS)?;
    let conversion = node.child(&["CONVERSION"]);
    let holder = conversion.unwrap_or(node);
    let method = holder.child(&["METHOD", "PROJECTION"])?;
    // Without a unit of its own the base speaks in that of the parameters.
    let stated = holder.nodes().filter(|n| n.is("PARAMETER")).find_map(|p| self::unit(p, &["ANGLEUNIT"]));
    let bare = node.child(BASES)?.child(ANGLES).is_none() && own_angle(node.child(BASES)?).is_none();
    if let Some(stated) = stated.filter(|_| bare) {
        base.angle = stated;
    }
    let parameters = Parameters::read(holder, &base.angle, &unit);
    let name = name(node);
    let esri = base.datum.starts_with("D_");
    let sphere = base.ellipsoid.inverse_flattening == 0.0;
    let projection = match node.child(&["EXTENSION"]) {
        // GDAL's WKT1 has no name for Web Mercator: it says Mercator and overrules that in an extension.
        Some(extension) if extension.to_string().contains("+nadgrids=@null") => {
            Projection::new("Popular Visualisation Pseudo Mercator", None, parameters, false, false)
        }
        // What else an extension overrules cannot be told from the parameters.
        Some(_) => return None,
        None => Projection::new(method.name()?, epsg_of(method), parameters, esri, sphere),
    };
    Some(Projected { name, epsg: epsg_of(node), base, projection, unit, solid: dimensions(node) == Some(3.0) })
}

fn upright(node: &Node) -> Option<Upright> {
    let holder = node.child(&["BASEVERTCRS"]).unwrap_or(node);
    let datum = holder.child(UPRIGHT_DATUMS)?;
    let down = node.child(&["AXIS"]).is_some_and(|axis| axis.to_string().to_ascii_lowercase().contains(",down"));
    Some(Upright {
        name: name(node),
        epsg: epsg_of(node),
        datum: name(datum),
        datum_epsg: epsg_of(datum),
        unit: axis_unit(node, LENGTHS).unwrap_or_else(Unit::metre),
        up: !down,
    })
}

fn compound(node: &Node) -> Option<System> {
    let mut parts = node.nodes().filter(|n| !n.is("ID") && !n.is("AUTHORITY") && !n.is("USAGE"));
    let floor = read(parts.next()?)?;
    let height = match read(parts.next()?)? {
        System::Vertical(height) => height,
        _ => return Some(System::Other),
    };
    if !matches!(floor, System::Geographic(_) | System::Projected(_)) {
        return Some(System::Other);
    }
    Some(System::Compound(name(node), Box::new(floor), height))
}
