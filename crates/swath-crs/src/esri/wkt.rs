//! Esri's dialect of WKT1, for definitions that are written as text.
//!
//! Esri's software reads only this dialect, so it is used for the methods and datums whose Esri names are certain. GDAL's
//! reader takes any WKT (tested with 3.12: WKT1 and WKT2, every kind of system), so all other definitions stay as they are.

use crate::{
    description::{Geographic, System},
    method::{Parameters, Quantity},
    unit::Unit,
    wkt::{self, Item, Node},
};

use Quantity::{East, Lat, Lon, North, Std1};

type Labels = &'static [(&'static str, Quantity)];

const WORLD: Labels = &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon)];
const WITH_PARALLEL: Labels =
    &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon), ("Standard_Parallel_1", Std1)];
const LOXIMUTHAL: Labels =
    &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon), ("Central_Parallel", Lat)];

/// The method in plain form, Esri's name for it, and Esri's parameters.
const METHODS: &[(&str, &str, Labels)] = &[
    ("mollweide", "Mollweide", WORLD),
    ("eckerti", "Eckert_I", WORLD),
    ("eckertii", "Eckert_II", WORLD),
    ("eckertiii", "Eckert_III", WORLD),
    ("eckertiv", "Eckert_IV", WORLD),
    ("eckertv", "Eckert_V", WORLD),
    ("eckertvi", "Eckert_VI", WORLD),
    ("gallstereographic", "Gall_Stereographic", WORLD),
    ("quarticauthalic", "Quartic_Authalic", WORLD),
    ("flatpolarquartic", "Flat_Polar_Quartic", WORLD),
    ("crasterparabolic", "Craster_Parabolic", WORLD),
    ("times", "Times", WORLD),
    ("aitoff", "Aitoff", WORLD),
    ("naturalearth", "Natural_Earth", WORLD),
    ("naturalearthii", "Natural_Earth_II", WORLD),
    ("equalearth", "Equal_Earth", WORLD),
    ("patterson", "Patterson", WORLD),
    ("winkeli", "Winkel_I", WITH_PARALLEL),
    ("winkelii", "Winkel_II", WITH_PARALLEL),
    ("winkeltripel", "Winkel_Tripel", WITH_PARALLEL),
    ("loximuthal", "Loximuthal", LOXIMUTHAL),
];

/// EPSG's datum code, then Esri's names of the geographic system, the datum and the ellipsoid.
const DATUMS: &[(u32, &str, &str, &str)] = &[
    (6326, "GCS_WGS_1984", "D_WGS_1984", "WGS_1984"),
    (6269, "GCS_North_American_1983", "D_North_American_1983", "GRS_1980"),
    (6258, "GCS_ETRS_1989", "D_ETRS_1989", "GRS_1980"),
];

/// The text of a definition: in Esri's dialect where that certainly means the same, else the WKT as given, without remarks.
/// `datum` is the verified EPSG code of the datum.
#[must_use]
pub fn definition(node: &Node, system: Option<&System>, datum: Option<u16>) -> String {
    system.and_then(|s| dialect(s, datum)).unwrap_or_else(|| without_remarks(node.clone()).to_string())
}

fn dialect(system: &System, datum: Option<u16>) -> Option<String> {
    let System::Projected(p) = system else { return None };
    let plain_units = p.unit.factor == 1.0 && p.base.angle.same_size(&Unit::degree());
    if !plain_units || p.has_height || p.base.meridian.is_some() || !p.base.to_wgs84.is_empty() {
        return None;
    }
    let (_, name, list) = METHODS.iter().find(|m| m.0 == p.projection.key)?;
    let parameters = &p.projection.parameters;
    if !parameters.unrecognized.is_empty() || !covers(parameters, list) {
        return None;
    }
    let mut node = Node::named("PROJCS", &underscored(&p.name)).with(geographic(&p.base, datum?)?);
    node = node.with(Node::named("PROJECTION", name));
    for (label, quantity) in *list {
        node = node.with(Node::named("PARAMETER", label).word(&with_point(parameters.get(*quantity)?)));
    }
    Some(node.with(Node::named("UNIT", "Meter").word("1.0")).to_string())
}

/// Whether `list` names every parameter that differs from its default.
fn covers(parameters: &Parameters, list: &[(&str, Quantity)]) -> bool {
    let all = [Lat, Lon, Std1, Quantity::Std2, Quantity::Azimuth, Quantity::GridAngle, East, North];
    let named = |q: &Quantity| list.iter().any(|(_, known)| known == q);
    all.iter().all(|q| named(q) || parameters.get(*q).is_none_or(|v| v == 0.0))
        && parameters.get(Quantity::Scale).is_none_or(|v| v == 1.0)
}

fn geographic(base: &Geographic, datum: u16) -> Option<Node> {
    let (_, name, datum, ellipsoid) = DATUMS.iter().find(|d| d.0 == u32::from(datum))?;
    let spheroid = Node::named("SPHEROID", ellipsoid).word(&with_point(base.ellipsoid.a));
    let spheroid = spheroid.word(&with_point(base.ellipsoid.inverse_flattening));
    let node = Node::named("GEOGCS", name).with(Node::named("DATUM", datum).with(spheroid));
    let node = node.with(Node::named("PRIMEM", "Greenwich").word("0.0"));
    Some(node.with(Node::named("UNIT", "Degree").word("0.0174532925199433")))
}

/// A number as Esri writes it, always with a decimal point.
fn with_point(value: f64) -> String {
    let text = wkt::number(value);
    if text.contains(['.', 'E']) { text } else { format!("{text}.0") }
}

fn underscored(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Drops areas of use and remarks: they define nothing and make up most of the text.
fn without_remarks(mut node: Node) -> Node {
    const PROSE: &[&str] = &["USAGE", "SCOPE", "AREA", "BBOX", "REMARK", "VERTICALEXTENT", "TIMEEXTENT"];
    node.items.retain(|i| !matches!(i, Item::Node(n) if PROSE.iter().any(|p| n.is(p))));
    for item in &mut node.items {
        if let Item::Node(child) = item {
            *child = without_remarks(std::mem::replace(child, Node::new("")));
        }
    }
    node
}
