//! Which EPSG system a definition is equal to, where the file states no code.

use super::crs::{Crs, CrsKind};
use super::epsg;
use super::units::Unit;
use super::wkt::Node;

/// Angles that agree to this, in radians, are the same: 0.06 mm on the ground. EPSG's own text is off by 5e-15.
const SAME_ANGLE: f64 = 1e-11;
/// Lengths that agree to this, in metres.
const SAME_LENGTH: f64 = 1e-5;
/// Scale factors that agree to this.
const SAME_SCALE: f64 = 1e-10;

pub(crate) fn find(crs: &Crs) -> Option<u32> {
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
        CrsKind::Geocentric if greenwich(inner) && crs.unit.as_ref()?.factor == 1.0 => {
            epsg::geocentric_on(inner.child(&["DATUM", "ENSEMBLE"])?.epsg()?)
        }
        _ => None,
    }
}

fn greenwich(node: &Node) -> bool {
    node.child(&["PRIMEM"]).is_none()
}

/// By datum code: the system on it with the same meridian and unit.
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

/// By base, method and numbers. Several systems can agree in all and differ in the order of their axes (EPSG:31467 and
/// 5677); a raster's first axis runs east, so the one that does is preferred.
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
        // A conversion code settles it without looking at the numbers, and a thousand systems need not be unpacked.
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

/// Same method, same numbers.
pub(crate) fn same_conversion(a: &Node, b: &Node) -> bool {
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

/// Esri's name for EPSG:3857, whose parameters have no common form.
fn web_mercator(node: &Node) -> Option<u32> {
    let plain = node.nodes().filter(|n| n.is("PARAMETER")).all(|n| n.nth_number(0) == Some(0.0));
    let web = node.child(&["PROJECTION"])?.name() == Some("Mercator_Auxiliary_Sphere");
    let wgs84 = node.child(&["GEOGCS"])?.child(&["DATUM"])?.name() == Some("D_WGS_1984");
    (plain && web && wgs84 && epsg::axis_unit(node)?.factor == 1.0).then_some(3857)
}
