//! Projection methods under all their names, and the GeoKeys that hold each one's parameters.
//!
//! The keys are those that GDAL 3.12 writes (found by asking it), because readers differ in which of the overlapping
//! parameter keys they look into, and all of them were tried on GDAL's files.

use super::model::epsg_of;
use crate::geo::units::Unit;
use crate::geo::wkt::Node;

/// What a parameter means, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Lat,
    Lon,
    Std1,
    Std2,
    Azimuth,
    GridAngle,
    Scale,
    East,
    North,
}

use Quantity::{Azimuth, East, GridAngle, Lat, Lon, North, Scale, Std1, Std2};

/// The parameters of one conversion, angles in the unit of the base and lengths in that of the axes: what GeoKeys want.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Parameters {
    known: Vec<(Quantity, f64)>,
    /// Names of parameters that no GeoKey holds and whose value is not the default.
    pub foreign: Vec<String>,
    quarter_turn: f64,
}

/// A method with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Projection {
    /// The name in lower case letters and digits, for comparison.
    pub key: String,
    pub epsg: Option<u32>,
    pub parameters: Parameters,
}

/// Name reduced to what all spellings share. The plus stays: CH1903 and CH1903+ are two datums.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '+').map(|c| c.to_ascii_lowercase()).collect()
}

fn quantity(code: Option<u32>, name: &str) -> Option<Quantity> {
    let by_code = match code {
        Some(8801 | 8811 | 8821 | 8832) => Some(Lat),
        Some(8802 | 8812 | 8822 | 8833) => Some(Lon),
        Some(8823) => Some(Std1),
        Some(8824) => Some(Std2),
        Some(8813) => Some(Azimuth),
        Some(8814) => Some(GridAngle),
        Some(8805 | 8815) => Some(Scale),
        Some(8806 | 8816 | 8826) => Some(East),
        Some(8807 | 8817 | 8827) => Some(North),
        Some(_) => return None,
        None => None,
    };
    by_code.or_else(|| match plain(name).as_str() {
        "latitudeoforigin" | "latitudeofcenter" | "latitudeofcentre" | "latitudeofnaturalorigin" => Some(Lat),
        "latitudeofprojectioncentre" | "latitudeoffalseorigin" | "latitudeofstandardparallel" => Some(Lat),
        "centralparallel" => Some(Lat),
        "centralmeridian" | "longitudeoforigin" | "longitudeofcenter" | "longitudeofcentre" => Some(Lon),
        "longitudeofnaturalorigin" | "longitudeofprojectioncentre" | "longitudeoffalseorigin" => Some(Lon),
        "straightverticallongitudefrompole" => Some(Lon),
        "standardparallel1" | "latitudeof1ststandardparallel" => Some(Std1),
        "standardparallel2" | "latitudeof2ndstandardparallel" => Some(Std2),
        "azimuth" | "azimuthofinitialline" | "azimuthatprojectioncentre" => Some(Azimuth),
        "rectifiedgridangle" | "anglefromrectifiedtoskewgrid" | "xyplanerotation" => Some(GridAngle),
        "scalefactor" | "scalefactoratnaturalorigin" | "scalefactoratprojectioncentre" => Some(Scale),
        "falseeasting" | "eastingatprojectioncentre" | "eastingatfalseorigin" => Some(East),
        "falsenorthing" | "northingatprojectioncentre" | "northingatfalseorigin" => Some(North),
        _ => None,
    })
}

impl Parameters {
    pub fn read(holder: &Node, angle: &Unit, length: &Unit) -> Self {
        let mut all = Self { quarter_turn: std::f64::consts::FRAC_PI_2 / angle.factor, ..Self::default() };
        if angle.same_size(&Unit::degree()) {
            all.quarter_turn = 90.0;
        }
        for node in holder.nodes().filter(|n| n.is("PARAMETER")) {
            let name = node.name().unwrap_or_default();
            let value = node.nth_number(0).unwrap_or(f64::NAN);
            let Some(quantity) = quantity(epsg_of(node), name) else {
                all.foreign.push(name.to_owned());
                continue;
            };
            let own = node.child(&["ANGLEUNIT", "LENGTHUNIT", "SCALEUNIT", "UNIT"]).and_then(Unit::from_wkt);
            let target = match quantity {
                Scale => None,
                East | North => Some(length),
                _ => Some(angle),
            };
            let value = match (own, target) {
                (Some(own), Some(target)) => convert(value, &own, target),
                (Some(own), None) => value * own.factor,
                (None, _) => value,
            };
            all.known.push((quantity, value));
        }
        all
    }

    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        self.known.iter().find(|(q, _)| *q == quantity).map(|(_, v)| *v)
    }

    pub fn all_zero(&self) -> bool {
        self.known.iter().all(|(q, v)| *v == if *q == Scale { 1.0 } else { 0.0 })
    }

    fn get_or_default(&self, quantity: Quantity) -> f64 {
        self.get(quantity).unwrap_or_else(|| match quantity {
            Scale => 1.0,
            // Esri's oblique Mercator has no grid angle: its grid is turned by the azimuth.
            GridAngle => self.get(Azimuth).unwrap_or(self.quarter_turn),
            _ => 0.0,
        })
    }

    fn at_pole(&self) -> bool {
        (self.get_or_default(Lat).abs() - self.quarter_turn).abs() < 1e-8 * self.quarter_turn
    }

    fn set(&mut self, quantity: Quantity, value: f64) {
        self.known.retain(|(q, _)| *q != quantity);
        self.known.push((quantity, value));
    }
}

/// A value in another unit; untouched where the units are the same, so that 0.1 stays 0.1.
fn convert(value: f64, from: &Unit, to: &Unit) -> f64 {
    if from.same_size(to) { value } else { value * from.factor / to.factor }
}

/// Keys of one method: which quantity goes where.
type Keys = &'static [(Quantity, u16)];

const NATURAL: Keys = &[(Lat, 3081), (Lon, 3080), (Scale, 3092), (East, 3082), (North, 3083)];
const NATURAL_PLAIN: Keys = &[(Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const CENTRE: Keys = &[(Lat, 3089), (Lon, 3088), (East, 3082), (North, 3083)];
const CENTRE_SCALED: Keys = &[(Lat, 3089), (Lon, 3088), (Scale, 3092), (East, 3082), (North, 3083)];
const WORLD: Keys = &[(Lon, 3088), (East, 3082), (North, 3083)];
const CONIC: Keys = &[(Std1, 3078), (Std2, 3079), (Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const CONIC_FALSE: Keys = &[(Std1, 3078), (Std2, 3079), (Lat, 3085), (Lon, 3084), (East, 3086), (North, 3087)];
const OBLIQUE: Keys =
    &[(Lat, 3089), (Lon, 3088), (Azimuth, 3094), (GridAngle, 3096), (Scale, 3093), (East, 3082), (North, 3083)];
const LABORDE: Keys = &[(Lat, 3089), (Lon, 3088), (Azimuth, 3094), (Scale, 3093), (East, 3082), (North, 3083)];
const MERCATOR_1: Keys = NATURAL;
const MERCATOR_2: Keys = &[(Std1, 3078), (Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const POLAR: Keys = &[(Lat, 3081), (Lon, 3095), (Scale, 3092), (East, 3082), (North, 3083)];
const PLATE: Keys = &[(Std1, 3078), (Lat, 3089), (Lon, 3088), (East, 3082), (North, 3083)];
const EQUAL_CYLINDER: Keys = &[(Std1, 3078), (Lon, 3080), (East, 3082), (North, 3083)];

/// EPSG's methods for the sphere and what they are called on an ellipsoid.
const SPHERICAL: &[(u32, u32)] = &[(1026, 9804), (1027, 9820), (1029, 1028), (9834, 9835)];

/// ProjCoordTransGeoKey, the EPSG method, its names in [`plain`] form, and its keys.
const METHODS: &[(u16, u32, &[&str], Keys)] = &[
    (1, 9807, &["transversemercator", "gausskruger"], NATURAL),
    (27, 9808, &["transversemercatorsouthorientated", "transversemercatorsouthoriented"], NATURAL),
    (
        3,
        9812,
        &[
            "hotineobliquemercatorvarianta",
            "hotineobliquemercator",
            "hotineobliquemercatorazimuthnaturalorigin",
            "rectifiedskeworthomorphicnaturalorigin",
        ],
        OBLIQUE,
    ),
    (
        9815,
        9815,
        &[
            "hotineobliquemercatorvariantb",
            "hotineobliquemercatorazimuthcenter",
            "rectifiedskeworthomorphiccenter",
            "obliquemercator",
        ],
        OBLIQUE,
    ),
    (4, 9813, &["labordeobliquemercator"], LABORDE),
    (7, 9804, &["mercatorvarianta", "mercator1sp"], MERCATOR_1),
    (7, 9805, &["mercatorvariantb", "mercator2sp"], MERCATOR_2),
    (9, 9801, &["lambertconicconformal1sp", "lambertconformalconic1sp"], NATURAL),
    (8, 9802, &["lambertconicconformal2sp", "lambertconformalconic2sp"], CONIC_FALSE),
    (10, 9820, &["lambertazimuthalequalarea"], CENTRE),
    (11, 9822, &["albersequalarea", "albersconicequalarea", "albers"], CONIC),
    (12, 1125, &["azimuthalequidistant"], CENTRE),
    (13, 1119, &["equidistantconic"], CONIC),
    (14, 0, &["stereographic"], CENTRE_SCALED),
    (15, 9810, &["polarstereographicvarianta"], POLAR),
    (15, 9829, &["polarstereographicvariantb"], POLAR),
    (16, 9809, &["obliquestereographic", "doublestereographic"], NATURAL),
    (17, 1028, &["equidistantcylindrical", "equirectangular", "platecarree"], PLATE),
    (18, 9806, &["cassinisoldner", "cassini"], NATURAL_PLAIN),
    (19, 0, &["gnomonic"], CENTRE),
    (20, 0, &["millercylindrical"], CENTRE),
    (21, 9840, &["orthographic"], CENTRE),
    (22, 9818, &["americanpolyconic", "polyconic"], NATURAL),
    (23, 0, &["robinson"], WORLD),
    (24, 0, &["sinusoidal"], WORLD),
    (25, 0, &["vandergrinten", "vandergrinteni"], WORLD),
    (26, 9811, &["newzealandmapgrid"], NATURAL_PLAIN),
    (28, 9835, &["lambertcylindricalequalarea", "cylindricalequalarea"], EQUAL_CYLINDER),
];

/// ProjCoordTransGeoKey and the numbered keys of a conversion.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MethodKeys {
    pub method: u16,
    pub values: Vec<(u16, f64)>,
}

impl Projection {
    /// Esri and OGC give one name to what EPSG splits in two; which half is meant shows in the parameters. `esri`: the text
    /// is in Esri's dialect. `sphere`: the base is one, on which EPSG's spherical methods are the plain ones.
    pub fn new(name: &str, epsg: Option<u32>, mut parameters: Parameters, esri: bool, sphere: bool) -> Self {
        let mut key = plain(name);
        let mut epsg = epsg;
        if sphere && let Some(plain) = key.strip_suffix("spherical") {
            // Readers make the spherical method of the plain one again when they see the sphere.
            epsg = epsg.and_then(|code| SPHERICAL.iter().find(|s| s.0 == code)).map(|s| s.1);
            key = plain.to_owned();
        }
        let renamed = match key.as_str() {
            "mercator" if parameters.get(Std1).is_some() => Some("mercatorvariantb"),
            "mercator" => Some("mercatorvarianta"),
            "lambertconformalconic" if parameters.get(Std2).is_some() => Some("lambertconicconformal2sp"),
            "lambertconformalconic" => {
                // Esri's tangent cone repeats the latitude of origin as its standard parallel; two that differ are no 1SP.
                let std = parameters.get(Std1);
                let plain = std.is_none() || std == parameters.get(Lat);
                plain.then_some("lambertconicconformal1sp")
            }
            "stereographicnorthpole" | "stereographicsouthpole" | "polarstereographic" => {
                if let Some(std) = parameters.get(Std1) {
                    parameters.set(Lat, std);
                }
                if parameters.at_pole() {
                    Some("polarstereographicvarianta")
                } else {
                    Some("polarstereographicvariantb")
                }
            }
            "stereographic" if esri && parameters.at_pole() => Some("polarstereographicvarianta"),
            "platecarree" => Some("equidistantcylindrical"),
            _ => None,
        };
        if let (Some(renamed), None) = (renamed, epsg) {
            key = renamed.to_owned();
        }
        Self { key, epsg, parameters }
    }

    fn entry(&self) -> Option<&'static (u16, u32, &'static [&'static str], Keys)> {
        let by_code = self.epsg.and_then(|code| METHODS.iter().find(|m| m.1 == code));
        // A code that is not in the table names another method, whatever the text resembles.
        match self.epsg {
            Some(code) if code != 0 => by_code,
            _ => METHODS.iter().find(|m| m.2.contains(&self.key.as_str())),
        }
    }

    /// The keys, or `None` where GeoTIFF has no such method or no place for one of the numbers.
    pub fn keys(&self) -> Option<MethodKeys> {
        let &(method, epsg, _, keys) = self.entry()?;
        let parameters = &self.parameters;
        if !parameters.foreign.is_empty() {
            return None;
        }
        let pole = parameters.at_pole();
        match method {
            // The latitude alone tells the variants apart in a file.
            15 if (epsg == 9810) != pole => return None,
            15 if !pole && parameters.get_or_default(Scale) != 1.0 => return None,
            // So does the standard parallel here, and a scale factor next to one would be lost.
            7 if epsg == 9805 && parameters.get_or_default(Scale) != 1.0 => return None,
            7 if epsg == 9804 && parameters.get_or_default(Lat) != 0.0 => return None,
            _ => {}
        }
        // A number without a key of its own must be one that the method takes for granted.
        let homeless = |&(q, v): &(Quantity, f64)| {
            let default = match q {
                Scale => v == 1.0,
                Std1 => Some(v) == parameters.get(Lat),
                GridAngle => Some(v) == parameters.get(Azimuth),
                _ => v == 0.0,
            };
            !keys.iter().any(|(k, _)| *k == q) && !default
        };
        if parameters.known.iter().any(homeless) {
            return None;
        }
        let values: Vec<_> = keys.iter().map(|&(q, key)| (key, parameters.get_or_default(q))).collect();
        values.iter().all(|(_, v)| v.is_finite()).then_some(MethodKeys { method, values })
    }

    /// Same method and numbers, as far as both can be read; tolerances as in the reader's comparison.
    pub fn same(&self, other: &Self) -> bool {
        let entry = |p: &Self| p.entry().map(|e| (e.0, e.1));
        if entry(self) != entry(other) || (entry(self).is_none() && self.key != other.key) {
            return false;
        }
        let (a, b) = (&self.parameters, &other.parameters);
        [Lat, Lon, Std1, Std2, Azimuth, GridAngle, Scale, East, North].iter().all(|&q| {
            let tolerance = match q {
                East | North => 1e-4,
                Scale => 1e-10,
                _ => 1e-9,
            };
            (a.get_or_default(q) - b.get_or_default(q)).abs() <= tolerance
        })
    }
}
