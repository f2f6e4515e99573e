//! Finds the EPSG system that a definition without a code is equal to.

use crate::{
    crs::{Crs, CrsKind},
    epsg,
    unit::Unit,
    wkt::Node,
};

/// Largest difference of equal angles, in radians: 0.06 mm on the ground. EPSG's own text is off by 5e-15.
const SAME_ANGLE: f64 = 1e-11;
/// Largest difference of equal lengths, in metres.
const SAME_LENGTH: f64 = 1e-5;
/// Largest difference of equal scale factors.
const SAME_SCALE: f64 = 1e-10;

impl Crs {
    /// The EPSG code of this system: the stated one, else that of a system with the same base, method, parameters and unit.
    /// Answers what rasterio's `to_epsg` answers for a user-defined system. Takes milliseconds for a projected system without
    /// a code.
    #[must_use]
    pub fn find_epsg(&self) -> Option<u32> {
        find(self)
    }
}

fn find(crs: &Crs) -> Option<u32> {
    if let Some(horizontal) = &crs.horizontal
        && crs.epsg == horizontal.epsg
    {
        return epsg::compound_of(find(horizontal)?, crs.vertical_epsg?);
    }
    if crs.epsg.is_some() {
        return crs.epsg;
    }
    let node = Node::parse(crs.wkt2.as_deref()?).ok()?;
    let inner = node.child(&["SOURCECRS"]).and_then(|s| s.nodes().next()).unwrap_or(&node);
    match crs.kind {
        CrsKind::Projected if inner.is("PROJCS") => web_mercator(inner),
        CrsKind::Projected => projected(inner),
        CrsKind::Geographic => geographic(inner, crs.unit.as_ref()?),
        CrsKind::Geocentric if is_greenwich(inner) && crs.unit.as_ref()?.factor == 1.0 => {
            epsg::geocentric_on(inner.child(&["DATUM", "ENSEMBLE"])?.epsg()?)
        }
        _ => None,
    }
}

fn is_greenwich(node: &Node) -> bool {
    node.child(&["PRIMEM"]).is_none()
}

/// Finds a geographic system by its datum's code, prime meridian and unit.
fn geographic(node: &Node, unit: &Unit) -> Option<u32> {
    let datum = node.child(&["DATUM", "ENSEMBLE"])?.epsg()?;
    let system = epsg::system_on_datum(u16::try_from(datum).ok()?)?;
    let known = epsg::definition(system).filter(|n| n.is("GEOGCRS"))?;
    let longitude = |n: &Node| n.child(&["PRIMEM"]).map_or(Some(0.0), radians);
    let same = (longitude(node)? - longitude(&known)?).abs() < SAME_ANGLE;
    (same && epsg::axis_unit(&known)?.same_size(unit)).then_some(system)
}

fn radians(node: &Node) -> Option<f64> {
    Some(node.nth_number(0)? * Unit::from_wkt(node.child(&["ANGLEUNIT"])?)?.factor)
}

/// Finds a projected system by its base, method and parameters. Several systems can agree in all of these and differ in the
/// order of their axes (EPSG:31467 and 5677). A raster's first axis runs east, so a system whose first axis does is preferred.
fn projected(node: &Node) -> Option<u32> {
    let base = node.child(&["BASEGEOGCRS"])?;
    let base = match base.epsg() {
        Some(code) => code,
        None => geographic(base, &Unit::degree())?,
    };
    let conversion = node.child(&["CONVERSION"])?;
    let unit = epsg::axis_unit(node)?;
    let mut found = None;
    for (code, system) in epsg::projected_on(base) {
        // Where the definition states a conversion code, only systems with that code are parsed, not all on this base.
        if conversion.epsg().is_some_and(|own| own != code) {
            continue;
        }
        let Some(known) = epsg::definition(system) else { continue };
        let equal = epsg::axis_unit(&known).is_some_and(|u| u.same_size(&unit))
            && known.child(&["CONVERSION"]).is_some_and(|other| same_conversion(conversion, other));
        if equal {
            let east_first = known.child(&["AXIS"]).is_some_and(|axis| axis.to_string().contains(",east"));
            if east_first {
                return Some(system);
            }
            found = found.or(Some(system));
        }
    }
    found
}

/// Whether two `CONVERSION[…]` nodes have the same method and, within small tolerances, the same parameters.
#[must_use]
pub fn same_conversion(a: &Node, b: &Node) -> bool {
    let method = |n: &Node| n.child(&["METHOD"]).and_then(Node::epsg);
    let count = |n: &Node| n.nodes().filter(|p| p.is("PARAMETER")).count();
    method(a).is_some()
        && method(a) == method(b)
        && count(a) == count(b)
        && a.nodes().filter(|p| p.is("PARAMETER")).all(|p| {
            b.nodes().find(|q| q.is("PARAMETER") && q.epsg() == p.epsg()).is_some_and(|q| same_parameter(p, q))
        })
}

fn same_parameter(a: &Node, b: &Node) -> bool {
    let value = |n: &Node| {
        let unit = n.child(&["ANGLEUNIT", "LENGTHUNIT", "SCALEUNIT"])?;
        Some((n.nth_number(0)? * Unit::from_wkt(unit)?.factor, unit.keyword.clone()))
    };
    let (Some((a, kind)), Some((b, _))) = (value(a), value(b)) else { return false };
    let tolerance = match kind.as_str() {
        "ANGLEUNIT" => SAME_ANGLE,
        "LENGTHUNIT" => SAME_LENGTH,
        _ => SAME_SCALE,
    };
    (a - b).abs() <= tolerance
}

/// EPSG:3857 where the definition is Esri's WKT1 of it, whose parameters EPSG does not have.
fn web_mercator(node: &Node) -> Option<u32> {
    let plain = node.nodes().filter(|n| n.is("PARAMETER")).all(|n| n.nth_number(0) == Some(0.0));
    let web = node.child(&["PROJECTION"])?.name() == Some("Mercator_Auxiliary_Sphere");
    let wgs84 = node.child(&["GEOGCS"])?.child(&["DATUM"])?.name() == Some("D_WGS_1984");
    (plain && web && wgs84 && epsg::axis_unit(node)?.factor == 1.0).then_some(3857)
}
