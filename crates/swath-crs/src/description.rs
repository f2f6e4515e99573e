//! One description of a system for all dialects of WKT, so that its users need not know who wrote the text.
//!
//! WKT1 (OGC's and Esri's) and WKT2 differ in keywords, in the position of units and in the names of methods and
//! parameters. They describe the same things, which the types here hold.

use crate::{
    epsg,
    method::{Parameters, Projection},
    unit::Unit,
    wkt::Node,
};

/// An ellipsoid.
#[derive(Debug, Clone, PartialEq)]
pub struct Ellipsoid {
    /// Its name.
    pub name: String,
    /// Semi-major axis in metres.
    pub a: f64,
    /// 0 for a sphere.
    pub inverse_flattening: f64,
    /// Its EPSG code, if stated.
    pub epsg: Option<u32>,
}

/// A prime meridian other than Greenwich.
#[derive(Debug, Clone, PartialEq)]
pub struct PrimeMeridian {
    /// Its name.
    pub name: String,
    /// Its longitude in `unit`.
    pub longitude: f64,
    /// Unit of the longitude.
    pub unit: Unit,
    /// Its EPSG code, if stated.
    pub epsg: Option<u32>,
}

/// A geographic system, the base of a projected one, or the datum of a geocentric one.
#[derive(Debug, Clone, PartialEq)]
pub struct Geographic {
    /// Its name.
    pub name: String,
    /// Its EPSG code, if stated.
    pub epsg: Option<u32>,
    /// Name of the datum.
    pub datum: String,
    /// EPSG code of the datum, if stated.
    pub datum_epsg: Option<u32>,
    /// The datum's ellipsoid.
    pub ellipsoid: Ellipsoid,
    /// `None` for Greenwich. Other planets have a meridian of longitude 0 with another name.
    pub meridian: Option<PrimeMeridian>,
    /// Unit of longitudes and latitudes.
    pub angle: Unit,
    /// Whether the system has a height axis.
    pub has_height: bool,
    /// Three or seven terms of the transformation to WGS 84, in the position vector convention; empty where none is given.
    pub to_wgs84: Vec<f64>,
}

/// A projected system.
#[derive(Debug, Clone, PartialEq)]
pub struct Projected {
    /// Its name.
    pub name: String,
    /// Its EPSG code, if stated.
    pub epsg: Option<u32>,
    /// The geographic system that it projects.
    pub base: Geographic,
    /// Method and parameters.
    pub projection: Projection,
    /// Unit of the axes.
    pub unit: Unit,
    /// Whether the system has a height axis.
    pub has_height: bool,
}

/// A vertical system.
#[derive(Debug, Clone, PartialEq)]
pub struct Vertical {
    /// Its name.
    pub name: String,
    /// Its EPSG code, if stated.
    pub epsg: Option<u32>,
    /// Name of the datum.
    pub datum: String,
    /// EPSG code of the datum, if stated.
    pub datum_epsg: Option<u32>,
    /// Unit of the axis.
    pub unit: Unit,
    /// Whether the axis points up (heights) or down (depths).
    pub points_up: bool,
}

/// A system of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum System {
    /// Longitude and latitude.
    Geographic(Geographic),
    /// Map coordinates.
    Projected(Box<Projected>),
    /// X, Y, Z from the Earth's centre, in this unit.
    Geocentric(Geographic, Unit),
    /// Heights alone.
    Vertical(Vertical),
    /// Name, horizontal part and vertical part.
    Compound(String, Box<System>, Vertical),
    /// Name and unit of a local grid.
    Local(String, Unit),
    /// A kind that these types do not describe.
    Other,
}

const BASES: &[&str] = &["BASEGEOGCRS", "BASEGEODCRS", "GEOGCS"];
const DATUMS: &[&str] = &["DATUM", "ENSEMBLE", "GEODETICDATUM", "TRF"];
const VERTICAL_DATUMS: &[&str] = &["VDATUM", "VERT_DATUM", "VERTICALDATUM", "VRF", "ENSEMBLE"];
const ANGLES: &[&str] = &["ANGLEUNIT", "UNIT"];
const LENGTHS: &[&str] = &["LENGTHUNIT", "UNIT"];

fn name(node: &Node) -> String {
    node.name().unwrap_or("unnamed").to_owned()
}

fn unit(node: &Node, keywords: &[&str]) -> Option<Unit> {
    let node = node.child(keywords)?;
    let unit = Unit { epsg: node.epsg_in_any_wkt(), ..Unit::from_wkt(node)? };
    (unit.factor.is_finite() && unit.factor > 0.0).then_some(unit)
}

/// The unit that follows the axes, or that of the first axis: WKT2 allows both.
fn axis_unit(node: &Node, keywords: &[&str]) -> Option<Unit> {
    unit(node, keywords).or_else(|| node.nodes().filter(|n| n.is("AXIS")).find_map(|axis| unit(axis, keywords)))
}

fn dimensions(node: &Node) -> Option<f64> {
    node.child(&["CS"])?.nth_number(0)
}

/// Describes a definition; `None` where a required part is missing.
#[must_use]
pub fn read(node: &Node) -> Option<System> {
    if node.is("BOUNDCRS") {
        return bound(node);
    }
    let is_any = |keywords: &[&str]| keywords.iter().any(|k| node.is(k));
    // A derived system has its base's datum but not its coordinates.
    if node.child(&["DERIVINGCONVERSION"]).is_some() && !is_any(&["VERTCRS", "VERTICALCRS"]) {
        return Some(System::Other);
    }
    if is_any(&["PROJCRS", "PROJCS", "PROJECTEDCRS"]) {
        return projected(node).map(|p| System::Projected(Box::new(p)));
    }
    if is_any(&["GEOGCRS", "GEOGCS", "GEOGRAPHICCRS", "GEODCRS", "GEODETICCRS"]) {
        let cartesian = node.child(&["CS"]).is_some_and(|cs| cs.to_string().to_ascii_lowercase().contains("cartesian"));
        if !cartesian {
            return geographic(node).map(System::Geographic);
        }
        return geocentric(node);
    }
    if is_any(&["GEOCCS"]) {
        return geocentric(node);
    }
    if is_any(&["VERTCRS", "VERT_CS", "VERTICALCRS"]) {
        return vertical(node).map(System::Vertical);
    }
    if is_any(&["COMPOUNDCRS", "COMPD_CS"]) {
        return compound(node);
    }
    if is_any(&["ENGCRS", "LOCAL_CS", "ENGINEERINGCRS"]) {
        // Only a plane with a unit of length is described here.
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
        // Grid files and height shifts are not numbers and stay out; the system itself is still right.
        _ => {}
    }
    Some(system)
}

/// Position vector terms of an abridged transformation; `None` for a method that is not three or seven numbers.
fn to_wgs84(bound: &Node) -> Option<Vec<f64>> {
    let target = bound.child(&["TARGETCRS"]).and_then(|t| t.nodes().next());
    let transformation = bound.child(&["ABRIDGEDTRANSFORMATION"])?;
    let method = transformation.child(&["METHOD"])?;
    let value = |code: u32| {
        let all = transformation.nodes().filter(|n| n.is("PARAMETER"));
        all.filter(|n| n.epsg_in_any_wkt() == Some(code)).find_map(|n| n.nth_number(0))
    };
    // The target must be a realisation of WGS 84.
    target.and_then(Node::name).filter(|n| n.contains("WGS"))?;
    let translations = [value(8605)?, value(8606)?, value(8607)?];
    // 9606 and 9607 are the methods for geographic 2D systems; 1033, 1032 and 1037, 1038 are the same in other dimensions.
    let sign = match method.epsg_in_any_wkt()? {
        9603 | 1031 | 1035 => return Some(translations.to_vec()),
        9606 | 1033 | 1037 => 1.0,
        9607 | 1032 | 1038 => -1.0,
        _ => return None,
    };
    let rotations = [sign * value(8608)?, sign * value(8609)?, sign * value(8610)?];
    let scale = value(8611)?;
    // The abridged form gives a factor; the rounding turns 1.0000067 into exactly 6.7 parts per million.
    let ppm = if (scale - 1.0).abs() < 0.1 { ((scale - 1.0) * 1e15).round() / 1e9 } else { scale };
    Some(translations.into_iter().chain(rotations).chain([ppm]).collect())
}

fn geocentric(node: &Node) -> Option<System> {
    let length = axis_unit(node, LENGTHS).unwrap_or_else(Unit::metre);
    Some(System::Geocentric(Geographic { angle: Unit::degree(), ..geographic(node)? }, length))
}

/// Describes a geographic system, the base of a projected one, or the datum of a geocentric one.
#[must_use]
pub fn geographic(node: &Node) -> Option<Geographic> {
    let datum = node.child(DATUMS)?;
    let spheroid = datum.child(&["ELLIPSOID", "SPHEROID"])?;
    let scale = unit(spheroid, LENGTHS).map_or(1.0, |u| u.factor);
    let ellipsoid = Ellipsoid {
        name: name(spheroid),
        a: spheroid.nth_number(0)? * scale,
        inverse_flattening: spheroid.nth_number(1)?,
        epsg: spheroid.epsg_in_any_wkt(),
    };
    if !(ellipsoid.a.is_finite() && ellipsoid.a > 0.0 && ellipsoid.inverse_flattening.is_finite()) {
        return None;
    }
    let angle = axis_unit(node, ANGLES).filter(|u| u.factor < 1.1);
    let esri = datum.name().is_some_and(|n| n.starts_with("D_"));
    let meridian = node.child(&["PRIMEM", "PRIMEMERIDIAN"]).and_then(|m| meridian(m, angle.as_ref(), esri));
    let terms = datum.child(&["TOWGS84"]).map(|t| (0..7).map_while(|i| t.nth_number(i)).collect::<Vec<_>>());
    let usable = |t: &Vec<f64>| matches!(t.len(), 3 | 7) && t.iter().all(|v| v.is_finite());
    let angle = angle.or_else(|| angle_of_code(node)).unwrap_or_else(Unit::degree);
    Some(Geographic {
        name: name(node),
        epsg: node.epsg_in_any_wkt(),
        datum: name(datum),
        datum_epsg: datum.epsg_in_any_wkt(),
        ellipsoid,
        meridian,
        angle,
        has_height: dimensions(node) == Some(3.0),
        to_wgs84: terms.filter(usable).unwrap_or_default(),
    })
}

/// The angular unit that EPSG gives for the stated code: in WKT2 the base of a projected system has no unit.
fn angle_of_code(node: &Node) -> Option<Unit> {
    let known = epsg::definition(node.epsg_in_any_wkt()?)?;
    axis_unit(&known, ANGLES)
}

fn meridian(node: &Node, angle: Option<&Unit>, esri: bool) -> Option<PrimeMeridian> {
    let longitude = node.nth_number(0).filter(|v| v.is_finite())?;
    if longitude == 0.0 && node.name().is_none_or(|name| name.eq_ignore_ascii_case("Greenwich")) {
        return None;
    }
    let own = unit(node, ANGLES);
    // Esri always writes degrees here. So do writers that give the longitude of Paris in degrees next to a unit of grads.
    let in_degrees = esri || (longitude - 2.337_229_17).abs() < 1e-8;
    let angle = angle.filter(|_| !in_degrees).cloned();
    let unit = own.or(angle).unwrap_or_else(Unit::degree);
    Some(PrimeMeridian { name: name(node), longitude, unit, epsg: node.epsg_in_any_wkt() })
}

fn projected(node: &Node) -> Option<Projected> {
    let mut base = geographic(node.child(BASES)?)?;
    let unit = axis_unit(node, LENGTHS)?;
    let conversion = node.child(&["CONVERSION"]);
    // WKT1 puts the method and its parameters into the system itself.
    let conversion = conversion.unwrap_or(node);
    let method = conversion.child(&["METHOD", "PROJECTION"])?;
    // A base without a unit of its own has the unit of the parameters.
    let stated = conversion.nodes().filter(|n| n.is("PARAMETER")).find_map(|p| self::unit(p, &["ANGLEUNIT"]));
    let without_unit = node.child(BASES)?.child(ANGLES).is_none() && angle_of_code(node.child(BASES)?).is_none();
    if let Some(stated) = stated.filter(|_| without_unit) {
        base.angle = stated;
    }
    let parameters = Parameters::read(conversion, &base.angle, &unit);
    let name = name(node);
    let esri = base.datum.starts_with("D_");
    let sphere = base.ellipsoid.inverse_flattening == 0.0;
    let projection = match node.child(&["EXTENSION"]) {
        // GDAL's WKT1 has no name for Web Mercator: it writes Mercator and overrides it in an extension.
        Some(extension) if extension.to_string().contains("+nadgrids=@null") => {
            Projection::new("Popular Visualisation Pseudo Mercator", None, parameters, false, false)
        }
        // The parameters do not show what any other extension overrides.
        Some(_) => return None,
        None => Projection::new(method.name()?, method.epsg_in_any_wkt(), parameters, esri, sphere),
    };
    Some(Projected {
        name,
        epsg: node.epsg_in_any_wkt(),
        base,
        projection,
        unit,
        has_height: dimensions(node) == Some(3.0),
    })
}

fn vertical(node: &Node) -> Option<Vertical> {
    let base = node.child(&["BASEVERTCRS"]).unwrap_or(node);
    let datum = base.child(VERTICAL_DATUMS)?;
    let points_down = node.child(&["AXIS"]).is_some_and(|axis| axis.to_string().to_ascii_lowercase().contains(",down"));
    Some(Vertical {
        name: name(node),
        epsg: node.epsg_in_any_wkt(),
        datum: name(datum),
        datum_epsg: datum.epsg_in_any_wkt(),
        unit: axis_unit(node, LENGTHS).unwrap_or_else(Unit::metre),
        points_up: !points_down,
    })
}

fn compound(node: &Node) -> Option<System> {
    let mut parts = node.nodes().filter(|n| !n.is("ID") && !n.is("AUTHORITY") && !n.is("USAGE"));
    let horizontal = read(parts.next()?)?;
    let vertical = match read(parts.next()?)? {
        System::Vertical(vertical) => vertical,
        _ => return Some(System::Other),
    };
    if !matches!(horizontal, System::Geographic(_) | System::Projected(_)) {
        return Some(System::Other);
    }
    Some(System::Compound(name(node), Box::new(horizontal), vertical))
}
