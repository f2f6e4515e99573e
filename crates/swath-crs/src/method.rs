//! Projection methods under all their names, and the numbers of one conversion.

use crate::{unit::Unit, wkt::Node};

/// What a parameter means, whatever a dialect calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Latitude of the origin.
    Lat,
    /// Longitude of the origin.
    Lon,
    /// Latitude of the first standard parallel.
    Std1,
    /// Latitude of the second standard parallel.
    Std2,
    /// Azimuth of the initial line.
    Azimuth,
    /// Angle from the rectified to the skew grid.
    GridAngle,
    /// Scale factor at the origin.
    Scale,
    /// False easting.
    East,
    /// False northing.
    North,
}

use Quantity::{Azimuth, East, GridAngle, Lat, Lon, North, Scale, Std1, Std2};

/// The methods that can be recognised under any name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Method {
    TransverseMercator,
    TransverseMercatorSouth,
    ObliqueMercatorA,
    ObliqueMercatorB,
    LabordeObliqueMercator,
    MercatorA,
    MercatorB,
    LambertConformal1,
    LambertConformal2,
    LambertAzimuthal,
    Albers,
    AzimuthalEquidistant,
    EquidistantConic,
    Stereographic,
    PolarStereographicA,
    PolarStereographicB,
    ObliqueStereographic,
    EquidistantCylindrical,
    Cassini,
    Gnomonic,
    Miller,
    Orthographic,
    Polyconic,
    Robinson,
    Sinusoidal,
    VanDerGrinten,
    NewZealandMapGrid,
    CylindricalEqualArea,
}

/// A method, its EPSG code (0 where EPSG has none) and its names in [`plain`] form.
const METHODS: &[(Method, u32, &[&str])] = &[
    (Method::TransverseMercator, 9807, &["transversemercator", "gausskruger"]),
    (Method::TransverseMercatorSouth, 9808, &["transversemercatorsouthorientated", "transversemercatorsouthoriented"]),
    (
        Method::ObliqueMercatorA,
        9812,
        &[
            "hotineobliquemercatorvarianta",
            "hotineobliquemercator",
            "hotineobliquemercatorazimuthnaturalorigin",
            "rectifiedskeworthomorphicnaturalorigin",
        ],
    ),
    (
        Method::ObliqueMercatorB,
        9815,
        &[
            "hotineobliquemercatorvariantb",
            "hotineobliquemercatorazimuthcenter",
            "rectifiedskeworthomorphiccenter",
            "obliquemercator",
        ],
    ),
    (Method::LabordeObliqueMercator, 9813, &["labordeobliquemercator"]),
    (Method::MercatorA, 9804, &["mercatorvarianta", "mercator1sp"]),
    (Method::MercatorB, 9805, &["mercatorvariantb", "mercator2sp"]),
    (Method::LambertConformal1, 9801, &["lambertconicconformal1sp", "lambertconformalconic1sp"]),
    (Method::LambertConformal2, 9802, &["lambertconicconformal2sp", "lambertconformalconic2sp"]),
    (Method::LambertAzimuthal, 9820, &["lambertazimuthalequalarea"]),
    (Method::Albers, 9822, &["albersequalarea", "albersconicequalarea", "albers"]),
    (Method::AzimuthalEquidistant, 1125, &["azimuthalequidistant"]),
    (Method::EquidistantConic, 1119, &["equidistantconic"]),
    (Method::Stereographic, 0, &["stereographic"]),
    (Method::PolarStereographicA, 9810, &["polarstereographicvarianta"]),
    (Method::PolarStereographicB, 9829, &["polarstereographicvariantb"]),
    (Method::ObliqueStereographic, 9809, &["obliquestereographic", "doublestereographic"]),
    (Method::EquidistantCylindrical, 1028, &["equidistantcylindrical", "equirectangular", "platecarree"]),
    (Method::Cassini, 9806, &["cassinisoldner", "cassini"]),
    (Method::Gnomonic, 0, &["gnomonic"]),
    (Method::Miller, 0, &["millercylindrical"]),
    (Method::Orthographic, 9840, &["orthographic"]),
    (Method::Polyconic, 9818, &["americanpolyconic", "polyconic"]),
    (Method::Robinson, 0, &["robinson"]),
    (Method::Sinusoidal, 0, &["sinusoidal"]),
    (Method::VanDerGrinten, 0, &["vandergrinten", "vandergrinteni"]),
    (Method::NewZealandMapGrid, 9811, &["newzealandmapgrid"]),
    (Method::CylindricalEqualArea, 9835, &["lambertcylindricalequalarea", "cylindricalequalarea"]),
];

/// EPSG's methods for the sphere, and the same methods on an ellipsoid.
const SPHERICAL: &[(u32, u32)] = &[(1026, 9804), (1027, 9820), (1029, 1028), (9834, 9835)];

/// The parameters of one conversion, angles in the unit of the base and lengths in that of the axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    /// The recognised parameters.
    pub known: Vec<(Quantity, f64)>,
    /// Names of the parameters that [`Quantity`] does not have.
    pub unrecognized: Vec<String>,
    quarter_turn: f64,
}

/// A method and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    /// The method's name in [`plain`] form.
    pub key: String,
    /// The method's EPSG code, if the definition states one.
    pub epsg: Option<u32>,
    /// The parameters.
    pub parameters: Parameters,
}

/// Reduces a name to lower-case letters and digits, which all spellings share. The plus stays: CH1903 and CH1903+ are two
/// datums.
#[must_use]
pub fn plain(name: &str) -> String {
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
    /// Reads the `PARAMETER` children of `node` and converts them to the given units.
    #[must_use]
    pub fn read(node: &Node, angle: &Unit, length: &Unit) -> Self {
        let mut all = Self { quarter_turn: std::f64::consts::FRAC_PI_2 / angle.factor, ..Self::default() };
        if angle.same_size(&Unit::degree()) {
            all.quarter_turn = 90.0;
        }
        for parameter in node.nodes().filter(|n| n.is("PARAMETER")) {
            let name = parameter.name().unwrap_or_default();
            let value = parameter.nth_number(0).unwrap_or(f64::NAN);
            let Some(quantity) = quantity(parameter.epsg_in_any_wkt(), name) else {
                all.unrecognized.push(name.to_owned());
                continue;
            };
            let own = parameter.child(&["ANGLEUNIT", "LENGTHUNIT", "SCALEUNIT", "UNIT"]).and_then(Unit::from_wkt);
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

    /// The value of `quantity`, if the conversion gives it.
    #[must_use]
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        self.known.iter().find(|(q, _)| *q == quantity).map(|(_, v)| *v)
    }

    /// Whether every parameter has its default: 1 for the scale factor, 0 for all others.
    #[must_use]
    pub fn all_default(&self) -> bool {
        self.known.iter().all(|(q, v)| *v == if *q == Scale { 1.0 } else { 0.0 })
    }

    /// The value of `quantity`, or the value that a definition without it implies.
    #[must_use]
    pub fn get_or_default(&self, quantity: Quantity) -> f64 {
        self.get(quantity).unwrap_or_else(|| match quantity {
            Scale => 1.0,
            // Esri's oblique Mercator has no grid angle: its grid is turned by the azimuth.
            GridAngle => self.get(Azimuth).unwrap_or(self.quarter_turn),
            _ => 0.0,
        })
    }

    /// Whether the origin is a pole.
    #[must_use]
    pub fn at_pole(&self) -> bool {
        (self.get_or_default(Lat).abs() - self.quarter_turn).abs() < 1e-8 * self.quarter_turn
    }

    fn set(&mut self, quantity: Quantity, value: f64) {
        self.known.retain(|(q, _)| *q != quantity);
        self.known.push((quantity, value));
    }
}

/// Converts a value to another unit. Units of equal size leave it untouched, so that 0.1 stays 0.1.
fn convert(value: f64, from: &Unit, to: &Unit) -> f64 {
    if from.same_size(to) { value } else { value * from.factor / to.factor }
}

impl Projection {
    /// Identifies a method by its name and code.
    ///
    /// Esri and OGC give one name to what EPSG splits in two; the parameters show which of the two is meant. `esri`: the
    /// text is in Esri's dialect. `sphere`: the base is a sphere, on which EPSG's spherical methods equal the plain ones.
    #[must_use]
    pub fn new(name: &str, epsg: Option<u32>, mut parameters: Parameters, esri: bool, sphere: bool) -> Self {
        let mut key = plain(name);
        let mut epsg = epsg;
        if sphere && let Some(ellipsoidal) = key.strip_suffix("spherical") {
            // Readers turn the plain method into the spherical one again when they see the sphere.
            epsg = epsg.and_then(|code| SPHERICAL.iter().find(|s| s.0 == code)).map(|s| s.1);
            key = ellipsoidal.to_owned();
        }
        let renamed = match key.as_str() {
            "mercator" if parameters.get(Std1).is_some() => Some("mercatorvariantb"),
            "mercator" => Some("mercatorvarianta"),
            "lambertconformalconic" if parameters.get(Std2).is_some() => Some("lambertconicconformal2sp"),
            "lambertconformalconic" => {
                // Esri's tangent cone repeats the latitude of origin as its standard parallel. Where the two differ, the
                // projection is not 1SP.
                let std = parameters.get(Std1);
                let tangent = std.is_none() || std == parameters.get(Lat);
                tangent.then_some("lambertconicconformal1sp")
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

    /// The method, if it is one of [`Method`].
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        let entry = match self.epsg {
            // A code that is not in the table names another method, even if the name resembles one here.
            Some(code) if code != 0 => METHODS.iter().find(|m| m.1 == code),
            _ => METHODS.iter().find(|m| m.2.contains(&self.key.as_str())),
        };
        entry.map(|m| m.0)
    }

    /// Whether both have the same method and numbers, within the tolerances of [`crate::same_conversion`].
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let method = self.method();
        if method != other.method() || (method.is_none() && self.key != other.key) {
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
