//! Reads the geographic part of a definition from its keys: datum, ellipsoid, prime meridian and angular unit.

use swath_crs::{Unit, epsg, unit::angle as angle_unit, wkt::Node};

use crate::geo::{
    crs::{citation, unit},
    keys::GeoKeys,
};

/// A geographic system, looked up by code or built from keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Geodetic {
    pub name: String,
    /// `DATUM[…]` or `ENSEMBLE[…]`.
    pub datum: Node,
    /// `PRIMEM[…]`; `None` for Greenwich.
    pub meridian: Option<Node>,
    pub angle: Unit,
    /// The EPSG code of the whole system, if the file states a known one.
    pub epsg: Option<u32>,
}

/// Metres by which the axes of two ellipsoids must differ to be more than a rounding of each other.
const SAME_AXIS: f64 = 0.001;
/// Radians by which longitudes must differ to be more than a rounding of each other: 0.06 mm on the ground.
const SAME_LONGITUDE: f64 = 1e-11;

impl Geodetic {
    /// Reads keys 2048 to 2062. Never fails: like GDAL, it falls back to WGS 84's ellipsoid, with a problem.
    pub fn read(keys: &GeoKeys, problems: &mut Vec<String>) -> Self {
        let stated_angle = unit::from_keys(keys, 2054, Some(2055), angle_unit, problems);
        if let Some(code) = keys.code(2048).map(u32::from) {
            let code = epsg::successor(code).unwrap_or(code);
            if let Some(mut found) = Self::from_definition(code) {
                found.apply_contradicting_keys(keys, problems);
                // The parameters of a projection are in the unit of this key, even if the system has another unit.
                found.angle = stated_angle.unwrap_or(found.angle);
                return found;
            }
            problems.push(format!("GeographicTypeGeoKey {code} is not in the EPSG dataset"));
        }
        let angle = stated_angle.unwrap_or_else(Unit::degree);
        let citation = keys.ascii(2049);
        let datum = datum(keys, citation, problems);
        let meridian = meridian(keys, citation, &angle, problems);
        let name = citation
            .map(|c| citation::name(c, "GCS Name"))
            .or_else(|| keys.code(2050).and(datum.name()).map(str::to_owned));
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        Self { name, datum, meridian, angle, epsg: None }
    }

    /// The geographic part of an EPSG system of any kind.
    pub fn from_definition(code: u32) -> Option<Self> {
        let node = epsg::definition(code)?;
        let node = node.child(&["PROJCRS"]).cloned().unwrap_or(node);
        let (part, is_base) = match node.child(&["BASEGEOGCRS", "BASEGEODCRS", "GEOGCRS"]) {
            Some(base) => (base, true),
            None => (&node, false),
        };
        let geographic = if is_base { part.epsg().and_then(epsg::definition) } else { Some(node.clone()) };
        let angle = geographic.as_ref().filter(|n| n.is("GEOGCRS")).and_then(epsg::axis_unit);
        Some(Self {
            name: part.name()?.to_owned(),
            datum: part.child(&["DATUM", "ENSEMBLE"])?.clone(),
            meridian: part.child(&["PRIMEM"]).cloned(),
            angle: angle.unwrap_or_else(Unit::degree),
            epsg: part.epsg(),
        })
    }

    /// Replaces the datum, ellipsoid and meridian by those of keys that contradict this system's code. Like GDAL, this trusts the
    /// keys; the system then keeps its name and loses its code.
    pub fn apply_contradicting_keys(&mut self, keys: &GeoKeys, problems: &mut Vec<String>) {
        let Some(code) = self.epsg else { return };
        let named = keys.code(2050).filter(|&code| self.datum.epsg() != Some(code.into())).and_then(epsg::datum);
        let datum = with_stated_ellipsoid(named.unwrap_or_else(|| self.datum.clone()), keys, problems);
        if datum != self.datum {
            problems.push(format!("the datum given with EPSG:{code} is not its own; the given one is used"));
            self.datum = datum;
            self.epsg = None;
        }
        let unknown = keys.code(2051).is_some_and(|code| epsg::prime_meridian(code.into()).is_none());
        if keys.short(2051).is_none() || unknown {
            return;
        }
        let angle = self.angle.clone();
        let meridian = meridian(keys, None, &angle, problems);
        let (own, given) = (longitude(self.meridian.as_ref()), longitude(meridian.as_ref()));
        if own.zip(given).is_some_and(|(own, given)| (own - given).abs() > SAME_LONGITUDE) {
            problems.push(format!("the prime meridian given with EPSG:{code} is not its own; the given one is used"));
            self.meridian = meridian;
            self.epsg = None;
        }
    }

    fn start(&self, keyword: &str) -> Node {
        let node = Node::named(keyword, &self.name);
        let dynamic = self.epsg.and_then(epsg::definition).and_then(|d| d.child(&["DYNAMIC"]).cloned());
        node.with_some(dynamic).with(self.datum.clone()).with_some(self.meridian.clone())
    }

    fn finish(&self, node: Node) -> Node {
        match self.epsg {
            Some(code) => node.with_epsg(code),
            None => node,
        }
    }

    /// `GEOGCRS[…]`, latitude first as in every EPSG definition.
    pub fn geographic(&self) -> Node {
        let node = self.start("GEOGCRS").with(Node::new("CS").word("ellipsoidal").word("2"));
        let node = node.with(Node::named("AXIS", "Geodetic latitude (Lat)").word("north"));
        let node = node.with(Node::named("AXIS", "Geodetic longitude (Lon)").word("east"));
        self.finish(node.with(self.angle.wkt_angle()))
    }

    /// `BASEGEOGCRS[…]`. In WKT2 the base has no unit; each parameter of the projection has its own.
    pub fn base(&self) -> Node {
        self.finish(self.start("BASEGEOGCRS"))
    }

    /// `GEODCRS[…]` with X, Y, Z axes.
    pub fn geocentric(&self, name: &str, length: &Unit) -> Node {
        let node = Node::named("GEODCRS", name).with(self.datum.clone()).with_some(self.meridian.clone());
        let node = node.with(Node::new("CS").word("Cartesian").word("3"));
        let axes = ["X", "Y", "Z"]
            .map(|a| Node::named("AXIS", &format!("Geocentric {a} ({a})")).word(&format!("geocentric{a}")));
        node.with_all(axes).with(length.wkt_length())
    }
}

fn datum(keys: &GeoKeys, citation: Option<&str>, problems: &mut Vec<String>) -> Node {
    if let Some(code) = keys.code(2050) {
        match epsg::datum(code) {
            Some(node) => return with_stated_ellipsoid(node, keys, problems),
            // Old files have a system's code here, or a datum of the 60xx series that shares its number with an ellipsoid.
            None => problems.push(format!("GeogGeodeticDatumGeoKey {code} is not in the EPSG dataset")),
        }
    }
    let name = citation.and_then(|c| citation::field(c, "Datum")).unwrap_or_else(|| "unnamed".to_owned());
    Node::named("DATUM", &name).with(ellipsoid(keys, citation, problems))
}

/// Replaces the ellipsoid of a known datum if the keys state another one. Like GDAL, this trusts the stated ellipsoid; the datum
/// then loses its code.
fn with_stated_ellipsoid(datum: Node, keys: &GeoKeys, problems: &mut Vec<String>) -> Node {
    let Some(known) = datum.child(&["ELLIPSOID"]) else { return datum };
    let stated = keys.code(2056).and_then(epsg::ellipsoid);
    let figure = stated.as_ref().unwrap_or(known);
    let (Some(own), Some((a, b))) = (axes(known), axes(figure)) else { return datum };
    let a = keys.double(2057).unwrap_or(a);
    let b = keys.double(2058).unwrap_or(b);
    let b = match keys.double(2059) {
        Some(f) if f != 0.0 => a - a / f,
        Some(_) => a,
        None => b,
    };
    let axis_is_metres = keys.code(2052).is_none_or(|u| u == 9001);
    let usable = a.is_finite() && b.is_finite() && a > 0.0 && b > 0.0;
    if !axis_is_metres || !usable || ((a - own.0).abs() <= SAME_AXIS && (b - own.1).abs() <= SAME_AXIS) {
        return datum;
    }
    let name = datum.name().unwrap_or("unnamed");
    let name = name.strip_suffix(" ensemble").unwrap_or(name);
    problems.push(format!("the ellipsoid given with datum \"{name}\" is not that datum's own; the given one is used"));
    let flattening = match keys.double(2059) {
        Some(f) => f,
        None if a == b => 0.0,
        None => a / (a - b),
    };
    let ellipsoid = Node::named("ELLIPSOID", figure.name().unwrap_or("unnamed")).number(a).number(flattening);
    Node::named("DATUM", name).with(ellipsoid.with(Unit::metre().wkt_length()))
}

/// The semi-axes of an ellipsoid, in metres.
fn axes(ellipsoid: &Node) -> Option<(f64, f64)> {
    // Some ellipsoids of the 19th century are given in feet.
    let unit = ellipsoid.child(&["LENGTHUNIT"]).and_then(Unit::from_wkt).map_or(1.0, |unit| unit.factor);
    let (a, f) = (ellipsoid.nth_number(0)? * unit, ellipsoid.nth_number(1)?);
    Some((a, if f == 0.0 { a } else { a - a / f }))
}

fn ellipsoid(keys: &GeoKeys, citation: Option<&str>, problems: &mut Vec<String>) -> Node {
    let code = keys.code(2056);
    let known = code.and_then(epsg::ellipsoid);
    if let (Some(code), None) = (code, &known) {
        problems.push(format!("GeogEllipsoidGeoKey {code} is not in the EPSG dataset"));
    }
    let Some(a) = keys.double(2057) else {
        return known.unwrap_or_else(|| fallback(problems, "the ellipsoid is not given"));
    };
    if !a.is_finite() || a <= 0.0 {
        return fallback(problems, &format!("the ellipsoid's semi-major axis is {a}"));
    }
    let of_known = known.as_ref().and_then(|k| k.nth_number(1));
    let flattening = match (keys.double(2059), keys.double(2058)) {
        (Some(f), _) if f != 0.0 && f.is_finite() => f,
        (_, Some(b)) if b == a => 0.0,
        (_, Some(b)) if b.is_finite() && b > 0.0 => a / (a - b),
        (Some(_), _) => 0.0,
        _ => of_known.unwrap_or(0.0),
    };
    if flattening != 0.0 && flattening.abs() <= 1.0 {
        return fallback(problems, &format!("the ellipsoid's inverse flattening is {flattening}"));
    }
    if let Some(known) = known
        && known.nth_number(0).is_some_and(|k| (k - a).abs() <= SAME_AXIS)
        && of_known.is_some_and(|k| (k - flattening).abs() < 1e-6)
    {
        return known;
    }
    // By the standard the axis is in the unit of GeogLinearUnits, but no writer follows that. Like GDAL, read metres.
    let name = citation.and_then(|c| citation::field(c, "Ellipsoid")).unwrap_or_else(|| "unnamed".to_owned());
    Node::named("ELLIPSOID", &name).number(a).number(flattening).with(Unit::metre().wkt_length())
}

fn fallback(problems: &mut Vec<String>, why: &str) -> Node {
    problems.push(format!("{why}; WGS 84's is used, as by GDAL"));
    let node = Node::named("ELLIPSOID", "unretrievable - using WGS84").number(6_378_137.0).number(298.257_223_563);
    node.with(Unit::metre().wkt_length())
}

/// Reads the prime meridian; `None` for Greenwich, which WKT2 allows to omit. A citation may give the meridian of longitude 0
/// another name, as on other planets.
fn meridian(keys: &GeoKeys, citation: Option<&str>, angle: &Unit, problems: &mut Vec<String>) -> Option<Node> {
    let name = citation.and_then(|c| citation::field(c, "Primem"));
    let longitude = match keys.code(2051) {
        Some(8901) => 0.0,
        Some(code) => {
            let known = epsg::prime_meridian(u32::from(code));
            if known.is_none() {
                problems.push(format!("GeogPrimeMeridianGeoKey {code} is not in the EPSG dataset; read as Greenwich"));
            }
            return known;
        }
        None => keys.double(2061).filter(|longitude| longitude.is_finite()).unwrap_or(0.0),
    };
    if longitude == 0.0 && name.as_deref().is_none_or(|name| name.eq_ignore_ascii_case("Greenwich")) {
        return None;
    }
    let name = name.unwrap_or_else(|| "unnamed".to_owned());
    Some(Node::named("PRIMEM", &name).number(longitude).with(angle.wkt_angle()))
}

/// The longitude of a prime meridian, in radians.
fn longitude(meridian: Option<&Node>) -> Option<f64> {
    match meridian {
        Some(node) => Some(node.nth_number(0)? * Unit::from_wkt(node.child(&["ANGLEUNIT"])?)?.factor),
        None => Some(0.0),
    }
}

/// `BOUNDCRS[…]` around a definition, if GeogTOWGS84GeoKey has three or seven terms and the keys name no datum. Like GDAL, this
/// ignores the key beside a named datum, for which better transformations are known.
pub(super) fn bound(source: &Node, keys: &GeoKeys, problems: &mut Vec<String>) -> Option<Node> {
    let terms = keys.doubles(2062);
    if terms.is_empty() || keys.code(2048).is_some() || keys.code(2050).is_some() {
        return None;
    }
    let mut seven = [0.0; 7];
    if !matches!(terms.len(), 3 | 7) || !terms.iter().all(|t| t.is_finite()) {
        problems.push(format!("GeogTOWGS84GeoKey has {} terms, or one that is not a number; not used", terms.len()));
        return None;
    }
    for (to, from) in seven.iter_mut().zip(terms) {
        *to = *from;
    }
    const NAMES: [(&str, u32); 7] = [
        ("X-axis translation", 8605),
        ("Y-axis translation", 8606),
        ("Z-axis translation", 8607),
        ("X-axis rotation", 8608),
        ("Y-axis rotation", 8609),
        ("Z-axis rotation", 8610),
        ("Scale difference", 8611),
    ];
    let name = source.name().unwrap_or("unknown");
    let mut transformation = Node::named("ABRIDGEDTRANSFORMATION", &format!("Transformation from {name} to WGS84"));
    transformation =
        transformation.with(Node::named("METHOD", "Position Vector transformation (geog2D domain)").with_epsg(9606));
    for ((name, code), value) in NAMES.into_iter().zip(seven) {
        // In the abridged form the scale is a factor, not parts per million.
        let value = if code == 8611 { 1.0 + value * 1e-6 } else { value };
        transformation = transformation.with(Node::named("PARAMETER", name).number(value).with_epsg(code));
    }
    let target = Node::new("TARGETCRS").with(epsg::definition(4326)?);
    Some(Node::new("BOUNDCRS").with(Node::new("SOURCECRS").with(source.clone())).with(target).with(transformation))
}
