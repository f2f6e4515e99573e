//! Systems without a GeoKey form, as text in a citation: `ESRI PE String = …`.
//!
//! Esri began this, GDAL writes and reads it. GDAL's reader takes any WKT after the mark (tried with 3.12: WKT1 and WKT2, of
//! every kind of system), so nothing need be lost; Esri's own software reads only its own dialect, which is used for the
//! methods and datums whose Esri names are certain.

use super::method::{Parameters, Quantity};
use super::model::{Geographic, System};
use crate::geo::wkt::{Item, Node};

/// What stands before the definition.
pub(super) const MARK: &str = "ESRI PE String = ";

use Quantity::{East, Lat, Lon, North, Std1};

type Labels = &'static [(&'static str, Quantity)];

const WORLD: Labels = &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon)];
const WITH_PARALLEL: Labels =
    &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon), ("Standard_Parallel_1", Std1)];
const LOXIMUTHAL: Labels =
    &[("False_Easting", East), ("False_Northing", North), ("Central_Meridian", Lon), ("Central_Parallel", Lat)];

/// Method in plain form, Esri's name, Esri's parameters.
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

/// Datum, then Esri's names of the geographic system, the datum and the ellipsoid.
const DATUMS: &[(u32, &str, &str, &str)] = &[
    (6326, "GCS_WGS_1984", "D_WGS_1984", "WGS_1984"),
    (6269, "GCS_North_American_1983", "D_North_American_1983", "GRS_1980"),
    (6258, "GCS_ETRS_1989", "D_ETRS_1989", "GRS_1980"),
];

/// The citation's text for a definition: in Esri's dialect where that is certain to say the same, else as it is.
pub(super) fn citation(node: &Node, system: Option<&System>, datum: Option<u16>) -> String {
    let text = system.and_then(|s| dialect(s, datum)).unwrap_or_else(|| without_remarks(node.clone()).to_string());
    format!("{MARK}{text}")
}

fn dialect(system: &System, datum: Option<u16>) -> Option<String> {
    let System::Projected(p) = system else { return None };
    let metres = p.unit.factor == 1.0 && p.base.angle.same_size(&crate::geo::units::Unit::degree());
    if !metres || p.solid || p.base.meridian.is_some() || !p.base.to_wgs84.is_empty() {
        return None;
    }
    let (_, name, list) = METHODS.iter().find(|m| m.0 == p.projection.key)?;
    let parameters = &p.projection.parameters;
    if !parameters.foreign.is_empty() || !covers(parameters, list) {
        return None;
    }
    let mut node = Node::named("PROJCS", &underscored(&p.name)).with(geographic(&p.base, datum?)?);
    node = node.with(Node::named("PROJECTION", name));
    for (label, quantity) in *list {
        node = node.with(Node::named("PARAMETER", label).word(&point(parameters.get(*quantity)?)));
    }
    Some(node.with(Node::named("UNIT", "Meter").word("1.0")).to_string())
}

/// True where every number that is not a default has a name here.
fn covers(parameters: &Parameters, list: &[(&str, Quantity)]) -> bool {
    let all = [Lat, Lon, Std1, Quantity::Std2, Quantity::Azimuth, Quantity::GridAngle, East, North];
    let named = |q: &Quantity| list.iter().any(|(_, known)| known == q);
    all.iter().all(|q| named(q) || parameters.get(*q).is_none_or(|v| v == 0.0))
        && parameters.get(Quantity::Scale).is_none_or(|v| v == 1.0)
}

fn geographic(base: &Geographic, datum: u16) -> Option<Node> {
    let (_, name, datum, ellipsoid) = DATUMS.iter().find(|d| d.0 == u32::from(datum))?;
    let round = Node::named("SPHEROID", ellipsoid).word(&point(base.ellipsoid.a));
    let round = round.word(&point(base.ellipsoid.inverse_flattening));
    let node = Node::named("GEOGCS", name).with(Node::named("DATUM", datum).with(round));
    let node = node.with(Node::named("PRIMEM", "Greenwich").word("0.0"));
    Some(node.with(Node::named("UNIT", "Degree").word("0.0174532925199433")))
}

/// Esri writes a point into every number.
fn point(value: f64) -> String {
    let text = crate::geo::wkt::number(value);
    if text.contains(['.', 'E']) { text } else { format!("{text}.0") }
}

fn underscored(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Areas of use and remarks define nothing, and they are most of the text.
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
