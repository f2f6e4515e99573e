//! Reads the vertical part of a definition from keys 4096 to 4099.

use swath_crs::{Unit, epsg, short_name, unit::length as length_unit, wkt::Node};

use crate::geo::{crs::unit, keys::GeoKeys};

/// The vertical system that the keys describe.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Vertical {
    /// A vertical system.
    System {
        /// `VERTCRS[…]`.
        node: Node,
        /// Its code, if the file states one.
        epsg: Option<u32>,
        /// Its unit.
        unit: Option<Unit>,
    },
    /// Heights above the ellipsoid, by the code of the three-dimensional geographic system.
    Ellipsoidal(u32),
    /// A code without a definition, which is reported but not used.
    Unknown(u32),
}

impl Vertical {
    /// Reads the keys; `None` where none describes heights. As in GDAL, a citation alone does not count.
    pub fn read(keys: &GeoKeys, problems: &mut Vec<String>) -> Option<Self> {
        if let Some(code) = keys.code(4096).map(u32::from) {
            return Some(Self::from_code(code, problems));
        }
        let present = [4096, 4098, 4099].iter().any(|&id| keys.short(id).is_some_and(|v| v != 0));
        if !present {
            return None;
        }
        let datum = keys.code(4098).and_then(|code| {
            let known = epsg::vertical_datum(code);
            if known.is_none() {
                problems.push(format!("VerticalDatumGeoKey {code} is not in the EPSG dataset"));
            }
            known
        });
        let datum = datum.unwrap_or_else(|| Node::named("VDATUM", "unknown"));
        let unit = unit::from_keys(keys, 4099, None, length_unit, problems).unwrap_or_else(Unit::metre);
        let name = keys.ascii(4097).map_or_else(|| "unknown".to_owned(), short_name);
        let node = Node::named("VERTCRS", &name).with(datum).with(Node::new("CS").word("vertical").word("1"));
        let node = node.with(Node::named("AXIS", "Gravity-related height (H)").word("up")).with(unit.wkt_length());
        Some(Self::System { node, epsg: None, unit: Some(unit) })
    }

    fn from_code(code: u32, problems: &mut Vec<String>) -> Self {
        // 5030 is GeoTIFF 1.0's VertCS_WGS_84_ellipsoid. Writers of 1.1 put the three-dimensional system itself here.
        if code == 5030 {
            return Self::Ellipsoidal(4979);
        }
        match epsg::definition(code) {
            Some(node) if is_3d_geographic(&node) => Self::Ellipsoidal(code),
            Some(node) if node.is("VERTCRS") => Self::System { unit: epsg::axis_unit(&node), node, epsg: Some(code) },
            _ => {
                problems.push(format!(
                    "VerticalCSTypeGeoKey {code} is not a vertical system of the EPSG dataset; heights have no system"
                ));
                Self::Unknown(code)
            }
        }
    }
}

/// Whether the system is geographic and has a height axis.
fn is_3d_geographic(node: &Node) -> bool {
    node.is("GEOGCRS") && node.child(&["CS"]).and_then(|cs| cs.nth_number(0)) == Some(3.0)
}

/// Adds the height axis of the geographic system `code` to a geographic or projected system; `None` where the two are on
/// different datums.
pub(super) fn with_ellipsoidal_height(horizontal: &Node, code: u32) -> Option<Node> {
    let with_height = epsg::definition(code)?;
    let datum = |node: &Node| node.child(&["DATUM", "ENSEMBLE"]).and_then(Node::epsg);
    let base = horizontal.child(&["BASEGEOGCRS"]);
    if datum(base.unwrap_or(horizontal))? != datum(&with_height)? {
        return None;
    }
    if horizontal.is("GEOGCRS") {
        return Some(with_height);
    }
    let node = Node::named("PROJCRS", horizontal.name()?)
        .with(epsg::base_of(&with_height))
        .with(horizontal.child(&["CONVERSION"])?.clone());
    let mut node = node.with(Node::new("CS").word("Cartesian").word("3"));
    let unit = epsg::axis_unit(horizontal)?;
    for axis in horizontal.nodes().filter(|n| n.is("AXIS")) {
        let without_unit = axis.child(&["LENGTHUNIT"]).is_none();
        node = node.with(axis.clone().with_some(without_unit.then(|| unit.wkt_length())));
    }
    Some(node.with(Node::named("AXIS", "Ellipsoidal height (h)").word("up").with(Unit::metre().wkt_length())))
}
