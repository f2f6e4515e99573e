//! Looks up EPSG codes offline: systems, and the datums, conversions, ellipsoids and meridians that they are made of.
//!
//! Most definitions come from the crate `epsg-utils` (EPSG Dataset v12.055 as WKT2:2019). It lacks some 540 systems that EPSG
//! has deprecated or that old files still name (EPSG:2163, 3785, 4019, 4035 …). Those are in `deprecated.txt`, taken from the
//! EPSG Dataset v12.029 as distributed with PROJ, together with all ellipsoids and prime meridians.
//!
//! The EPSG Dataset is owned by the International Association of Oil & Gas Producers (IOGP), <https://epsg.org>, and is used
//! under its terms (<https://epsg.org/terms-of-use.html>; redistributors of the data must point to them): it may be copied
//! and distributed, whole or in part and inside a product, if IOGP's ownership is acknowledged and no charge is made for the
//! data itself; values may change form only where they stay numerically equivalent. `deprecated.txt` rearranges the values and
//! [`definition`] changes their form in two places, both within that rule.

use std::borrow::Cow;
use std::collections::HashMap;

use once_cell::race::OnceBox;

mod index;

use crate::{
    unit::{self, Unit},
    wkt::{Item, Node},
};
use index::{COMPOUND, DATUMS, GEOCENTRIC, PROJECTED, VERTICAL_DATUMS};

/// The definition as WKT2:2019 on one line; [`Node::pretty`] spreads it out. `None` for an unknown code.
#[must_use]
pub fn wkt2(code: u32) -> Option<Cow<'static, str>> {
    match dataset(code) {
        Some(text) if !text.contains("PRIMEM[") && !text.contains("BASEVERTCRS[") => Some(Cow::Borrowed(text)),
        _ => definition(code).map(|node| Cow::Owned(node.to_string())),
    }
}

/// The system's name, for example `WGS 84 / UTM zone 33N`.
#[must_use]
pub fn name(code: u32) -> Option<String> {
    definition(code)?.name().map(str::to_owned)
}

/// The unit of the system's first axis.
#[must_use]
pub fn unit(code: u32) -> Option<Unit> {
    axis_unit(&definition(code)?)
}

/// Whether a definition of this code is available.
#[must_use]
pub fn is_known(code: u32) -> bool {
    dataset(code).is_some()
        || u16::try_from(code)
            .is_ok_and(|c| deprecated().systems.contains_key(&c) || deprecated().successors.contains_key(&c))
}

/// The successor of a deprecated code, where GDAL silently replaces the code by it (3785 → 3857).
#[must_use]
pub fn successor(code: u32) -> Option<u32> {
    deprecated().successors.get(&u16::try_from(code).ok()?).copied()
}

/// The definition as a tree.
#[must_use]
pub fn definition(code: u32) -> Option<Node> {
    match dataset(code) {
        // Every text of the dataset parses: a test tries all of them.
        Some(text) => Node::parse(text).ok().map(comparable),
        None => deprecated_definition(code, 0),
    }
}

fn dataset(code: u32) -> Option<&'static str> {
    epsg_utils::epsg_to_wkt2(i32::try_from(code).ok()?).ok()
}

/// Changes EPSG's text so that other software recognises the system. The text rounds prime meridians to nine decimals, which
/// moves Ferro by 30 µm and fails PROJ's comparison; the exact values replace them. It derives heights in another unit, and
/// depths, from a base system, which PROJ reads as another kind of system; a system directly on the datum means the same.
fn comparable(mut node: Node) -> Node {
    let exact = node.child(&["PRIMEM"]).and_then(Node::epsg).and_then(prime_meridian);
    if let Some(exact) = exact {
        node = node.replacing(&["PRIMEM"], exact);
    }
    let datum = node.child(&["BASEVERTCRS"]).and_then(|base| base.child(&["VDATUM", "ENSEMBLE"])).cloned();
    if let Some(datum) = datum {
        node = node.replacing(&["BASEVERTCRS"], datum);
        node.items.retain(|i| !matches!(i, Item::Node(n) if n.is("DERIVINGCONVERSION")));
    }
    for item in &mut node.items {
        if let Item::Node(child) = item
            && ["BASEGEOGCRS", "PROJCRS", "GEOGCRS", "VERTCRS"].iter().any(|k| child.is(k))
        {
            *child = comparable(std::mem::replace(child, Node::new("")));
        }
    }
    node
}

/// The unit of a definition's first axis, in any style of WKT.
#[must_use]
pub fn axis_unit(node: &Node) -> Option<Unit> {
    const UNITS: &[&str] = &["LENGTHUNIT", "ANGLEUNIT", "UNIT"];
    let inner = node
        .child(&["PROJCRS", "GEOGCRS", "ENGCRS", "SOURCECRS", "PROJCS", "GEOGCS"])
        .filter(|_| node.child(&["CS"]).is_none());
    if let Some(inner) = inner.filter(|_| !node.is("PROJCS")) {
        return axis_unit(inner);
    }
    let direct = node.child(UNITS);
    direct.or_else(|| node.child(&["AXIS"])?.child(UNITS)).and_then(Unit::from_wkt)
}

/// `DATUM[…]` or `ENSEMBLE[…]` of a geodetic datum code.
#[must_use]
pub fn datum(code: u16) -> Option<Node> {
    let node = definition(system_on_datum(code)?)?;
    let base = node.child(&["BASEGEOGCRS", "BASEGEODCRS"]).unwrap_or(&node);
    base.child(&["DATUM", "ENSEMBLE"]).filter(|n| n.epsg() == Some(u32::from(code))).cloned()
}

/// The code of the geographic system on a datum, preferably the 2D one.
#[must_use]
pub fn system_on_datum(code: u16) -> Option<u32> {
    first(DATUMS, code).or_else(|| {
        let of_datum = |fields: &&Vec<&str>| matches!(fields.as_slice(), [_, "G", _, d, ..] if *d == code.to_string());
        deprecated().systems.values().filter(of_datum).filter_map(|f| f.first()?.parse().ok()).min()
    })
}

/// `VDATUM[…]` of a vertical datum code.
#[must_use]
pub fn vertical_datum(code: u16) -> Option<Node> {
    let node = definition(first(VERTICAL_DATUMS, code)?)?;
    node.child(&["VDATUM", "ENSEMBLE"]).filter(|n| n.epsg() == Some(u32::from(code))).cloned()
}

/// The code of the first geodetic datum whose name `matches`. Parses one definition for each datum, which takes milliseconds.
#[must_use]
pub fn datum_named(matches: impl Fn(&str) -> bool) -> Option<u16> {
    DATUMS.iter().map(|e| e.0).find(|&code| datum(code).as_ref().and_then(Node::name).is_some_and(&matches))
}

/// The code of the first vertical datum whose name `matches`.
#[must_use]
pub fn vertical_datum_named(matches: impl Fn(&str) -> bool) -> Option<u16> {
    let codes = VERTICAL_DATUMS.iter().map(|e| e.0);
    codes.into_iter().find(|&code| vertical_datum(code).as_ref().and_then(Node::name).is_some_and(&matches))
}

/// `CONVERSION[…]` of a conversion code (UTM zones, state plane zones …).
#[must_use]
pub fn conversion(code: u16) -> Option<Node> {
    let deprecated_user = || {
        let with = |f: &&Vec<&str>| matches!(f.as_slice(), [_, "P", _, _, c, ..] if *c == code.to_string());
        deprecated().systems.values().find(with).and_then(|f| f.first()?.parse().ok())
    };
    let start = PROJECTED.partition_point(|e| e.0 < code);
    let user = PROJECTED.get(start).filter(|e| e.0 == code).map(|e| u32::from(e.2));
    let node = definition(user.or_else(deprecated_user)?)?;
    node.child(&["CONVERSION"]).filter(|n| n.epsg() == Some(u32::from(code))).cloned()
}

/// The codes of every projected system on a geographic base, each as (conversion, system).
pub fn projected_on(base: u32) -> impl Iterator<Item = (u32, u32)> {
    PROJECTED.iter().filter(move |e| u32::from(e.1) == base).map(|e| (u32::from(e.0), u32::from(e.2)))
}

/// The code of the geocentric system on a datum.
#[must_use]
pub fn geocentric_on(datum: u32) -> Option<u32> {
    first(GEOCENTRIC, u16::try_from(datum).ok()?)
}

/// The code of the compound of two systems.
#[must_use]
pub fn compound_of(horizontal: u32, vertical: u32) -> Option<u32> {
    let both = (u16::try_from(horizontal).ok()?, u16::try_from(vertical).ok()?);
    COMPOUND.iter().find(|e| (e.0, e.1) == both).map(|e| u32::from(e.2))
}

fn first(table: &[(u16, u16)], code: u16) -> Option<u32> {
    table.get(table.partition_point(|e| e.0 < code)).filter(|e| e.0 == code).map(|e| u32::from(e.1))
}

/// `ELLIPSOID[…]` of an ellipsoid code, axis in metres.
#[must_use]
pub fn ellipsoid(code: u16) -> Option<Node> {
    let [name, a, unit, rf] = deprecated().ellipsoids.get(&code)?;
    let unit = unit::length(unit.parse().ok()?)?;
    let node = Node::named("ELLIPSOID", name).word(a).word(rf);
    Some(node.with(unit.wkt_length()).with_epsg(u32::from(code)))
}

/// `PRIMEM[…]` of a prime meridian code.
#[must_use]
pub fn prime_meridian(code: u32) -> Option<Node> {
    let [name, longitude, unit] = deprecated().meridians.get(&u16::try_from(code).ok()?)?;
    let unit = unit::angle(unit.parse().ok()?)?;
    Some(Node::named("PRIMEM", name).word(longitude).with(unit.wkt_angle()).with_epsg(code))
}

/// The lines of `deprecated.txt`, split into fields.
#[derive(Default)]
struct Deprecated {
    systems: HashMap<u16, Vec<&'static str>>,
    successors: HashMap<u16, u32>,
    ellipsoids: HashMap<u16, [&'static str; 4]>,
    meridians: HashMap<u16, [&'static str; 3]>,
    methods: HashMap<&'static str, &'static str>,
    parameters: HashMap<&'static str, &'static str>,
}

fn deprecated() -> &'static Deprecated {
    // Several threads that come first may all parse the file. If they waited for each other, a child process forked during the
    // wait would hang.
    static DEPRECATED: OnceBox<Deprecated> = OnceBox::new();
    DEPRECATED.get_or_init(|| {
        let mut tables = Deprecated::default();
        for line in include_str!("deprecated.txt").lines().filter(|l| !l.starts_with('#')) {
            let fields: Vec<&str> = line.split('|').collect();
            let Some(code) = fields.first().and_then(|c| c.parse().ok()) else { continue };
            match fields.as_slice() {
                [_, "e", name, a, unit, rf] => drop(tables.ellipsoids.insert(code, [name, a, unit, rf])),
                [_, "m", name, longitude, unit] => drop(tables.meridians.insert(code, [name, longitude, unit])),
                [_, "S", next] => drop(next.parse().map(|n| tables.successors.insert(code, n))),
                [code, "M", name] => drop(tables.methods.insert(code, name)),
                [code, "A", name] => drop(tables.parameters.insert(code, name)),
                _ => drop(tables.systems.insert(code, fields)),
            }
        }
        Box::new(tables)
    })
}

/// Builds the definition of a system in `deprecated.txt`. `depth` bounds the chain of references between lines.
fn deprecated_definition(code: u32, depth: usize) -> Option<Node> {
    let component = |code: &str| {
        let code = code.parse().ok()?;
        dataset(code)
            .and_then(|t| Node::parse(t).ok())
            .or_else(|| if depth < 3 { deprecated_definition(code, depth + 1) } else { None })
    };
    let Some(line) = deprecated().systems.get(&u16::try_from(code).ok()?) else {
        return component(&successor(code)?.to_string());
    };
    match line.as_slice() {
        [_, kind @ ("G" | "C"), name, datum, datum_name, ellipsoid_code, meridian, unit, axes] => {
            let ellipsoid = ellipsoid(ellipsoid_code.parse().ok()?)?;
            let datum = Node::named("DATUM", datum_name).with(ellipsoid).with_epsg(datum.parse().ok()?);
            let meridian = match *meridian {
                "8901" => None,
                code => Some(prime_meridian(code.parse().ok()?)?),
            };
            let (keyword, cs, unit) = match *kind {
                "G" => ("GEOGCRS", "ellipsoidal", unit::angle(unit.parse().ok()?)?),
                _ => ("GEODCRS", "Cartesian", unit::length(unit.parse().ok()?)?),
            };
            let node = Node::named(keyword, name).with(datum).with_some(meridian);
            Some(node.with_all(coordinate_system(cs, axes, &unit)?).with_epsg(code))
        }
        [_, "P", name, base, conversion, conversion_name, method, parameters, unit, axes] => {
            let base = base_of(&component(base)?);
            let method_name = deprecated().methods.get(method)?;
            let method = Node::named("METHOD", method_name).with_epsg(method.parse().ok()?);
            let mut conversion_node = Node::named("CONVERSION", conversion_name).with(method);
            for parameter in parameters.split(';') {
                let (id, value) = parameter.split_once('=')?;
                let (value, unit) = value.split_once(':')?;
                let unit = match unit {
                    "9201" => Node::named("SCALEUNIT", "unity").word("1").with_epsg(9201),
                    code => {
                        let code = code.parse().ok()?;
                        unit::angle(code)
                            .map(|u| u.wkt_angle())
                            .or_else(|| unit::length(code).map(|u| u.wkt_length()))?
                    }
                };
                let node = Node::named("PARAMETER", deprecated().parameters.get(id)?).word(value).with(unit);
                conversion_node = conversion_node.with(node.with_epsg(id.parse().ok()?));
            }
            let node =
                Node::named("PROJCRS", name).with(base).with(conversion_node.with_epsg(conversion.parse().ok()?));
            let unit = unit::length(unit.parse().ok()?)?;
            Some(node.with_all(coordinate_system("Cartesian", axes, &unit)?).with_epsg(code))
        }
        [_, "V", name, datum, datum_name, unit, axes] => {
            let datum = Node::named("VDATUM", datum_name).with_epsg(datum.parse().ok()?);
            let unit = unit::length(unit.parse().ok()?)?;
            let node = Node::named("VERTCRS", name).with(datum);
            Some(node.with_all(coordinate_system("vertical", axes, &unit)?).with_epsg(code))
        }
        [_, "K", name, horizontal, vertical] => {
            let node = Node::named("COMPOUNDCRS", name).with(component(horizontal)?).with(component(vertical)?);
            Some(node.with_epsg(code))
        }
        _ => None,
    }
}

/// `GEOGCRS[…]` as the base of a projected system: without coordinate system.
#[must_use]
pub fn base_of(geographic: &Node) -> Node {
    let mut base = Node::new("BASEGEOGCRS");
    base.items = geographic.items.clone();
    base.items.retain(|i| match i {
        Item::Node(n) => !["CS", "AXIS", "ANGLEUNIT", "LENGTHUNIT"].iter().any(|k| n.is(k)),
        _ => true,
    });
    base
}

/// `CS[…]`, its axes and units, from the short form in `deprecated.txt`: `E,N` or `South along 180°E,…`.
fn coordinate_system(kind: &str, axes: &str, unit: &Unit) -> Option<Vec<Node>> {
    let count = axes.split(',').count().to_string();
    let mut nodes = vec![Node::new("CS").word(kind).word(&count)];
    for axis in axes.split(',') {
        let ellipsoidal = kind == "ellipsoidal";
        let (name, direction) = match axis {
            "N" if ellipsoidal => ("Geodetic latitude (Lat)", "north"),
            "E" if ellipsoidal => ("Geodetic longitude (Lon)", "east"),
            "U" if ellipsoidal => ("Ellipsoidal height (h)", "up"),
            "E" => ("Easting (E)", "east"),
            "N" => ("Northing (N)", "north"),
            "W" => ("Westing (W)", "west"),
            "S" => ("Southing (S)", "south"),
            "U" => ("Gravity-related height (H)", "up"),
            "D" => ("Depth (D)", "down"),
            "X" => ("Geocentric X (X)", "geocentricX"),
            "Y" => ("Geocentric Y (Y)", "geocentricY"),
            "Z" => ("Geocentric Z (Z)", "geocentricZ"),
            "South along 180°E" => ("Northing (N)", "south"),
            "South along 90°W" => ("Easting (E)", "south"),
            _ => return None,
        };
        let node = Node::named("AXIS", name).word(direction);
        let along = match axis {
            "South along 180°E" => Some("180"),
            "South along 90°W" => Some("-90"),
            _ => None,
        };
        let along = along.map(|m| Node::new("MERIDIAN").word(m).with(Unit::degree().wkt_angle()));
        let unit = if ellipsoidal && axis != "U" {
            unit.wkt_angle()
        } else if ellipsoidal {
            Unit::metre().wkt_length()
        } else {
            unit.wkt_length()
        };
        nodes.push(node.with_some(along).with(unit));
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_index_still_matches_the_dataset() {
        for &(code, system) in DATUMS {
            assert!(datum(code).is_some(), "datum {code} in {system}");
        }
        for &(code, system) in VERTICAL_DATUMS {
            assert!(vertical_datum(code).is_some(), "vertical datum {code} in {system}");
        }
        for &(conversion, base, system) in PROJECTED {
            let node = definition(u32::from(system)).unwrap();
            assert_eq!(node.child(&["CONVERSION"]).and_then(Node::epsg), Some(u32::from(conversion)), "{system}");
            assert_eq!(node.child(&["BASEGEOGCRS"]).and_then(Node::epsg).unwrap_or(0), u32::from(base), "{system}");
        }
        for &(datum, system) in GEOCENTRIC {
            let node = definition(u32::from(system)).unwrap();
            assert_eq!(node.child(&["DATUM", "ENSEMBLE"]).and_then(Node::epsg), Some(u32::from(datum)), "{system}");
        }
        for &(horizontal, vertical, system) in COMPOUND {
            let node = definition(u32::from(system)).unwrap();
            assert_eq!(
                node.child(&["PROJCRS", "GEOGCRS"]).and_then(Node::epsg),
                Some(u32::from(horizontal)),
                "{system}"
            );
            assert_eq!(node.child(&["VERTCRS"]).and_then(Node::epsg), Some(u32::from(vertical)), "{system}");
        }
    }

    #[test]
    fn every_known_code_has_a_definition_that_parses() {
        let mut known = 0;
        for code in 0..=u32::from(u16::MAX) {
            if is_known(code) {
                known += 1;
                let node = definition(code).unwrap_or_else(|| panic!("EPSG:{code}"));
                let next = successor(code);
                assert!(node.epsg() == Some(code) || node.epsg() == next, "EPSG:{code}");
                assert!(name(code).is_some() && unit(code).is_some(), "EPSG:{code} {node}");
            }
        }
        assert_eq!(known, 7939);
    }

    #[test]
    fn knows_old_codes_that_files_still_name() {
        assert_eq!(successor(3785), Some(3857));
        assert_eq!(name(4035).as_deref(), Some("Unknown datum based upon the Authalic Sphere"));
        assert!(wkt2(32633).unwrap().starts_with("PROJCRS[\"WGS 84 / UTM zone 33N\""));
        assert_eq!(unit(2263).unwrap().name, "US survey foot");
        assert!(wkt2(0).is_none() && wkt2(u32::MAX).is_none());
    }
}
