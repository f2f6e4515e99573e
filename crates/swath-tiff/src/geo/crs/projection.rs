//! Turns ProjCoordTransGeoKey and its parameter keys into a WKT2 conversion.
//!
//! The parameter keys of GeoTIFF overlap (three keys can hold the longitude of the origin), and writers disagree on which to use.
//! Like libgeotiff, this looks for each parameter in all of them: natural origin, then false origin, then centre.

use swath_crs::{Unit, axes::Axes, wkt::Node};

use crate::geo::keys::GeoKeys;

/// A conversion and the axes it implies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conversion {
    pub node: Node,
    pub axes: Axes,
}

/// The keys that a parameter's value comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Lat,
    Lon,
    PoleLon,
    Std1,
    Std2,
    /// The latitude of origin, in place of a missing standard parallel.
    LatAsStd,
    Azimuth,
    GridAngle,
    Scale,
    East,
    North,
}

type Parameter = (u32, &'static str, Source);

use Source::{Azimuth, East, GridAngle, Lat, LatAsStd, Lon, North, PoleLon, Scale, Std1, Std2};

const LAT: Parameter = (8801, "Latitude of natural origin", Lat);
const LON: Parameter = (8802, "Longitude of natural origin", Lon);
const POLE_LON: Parameter = (8802, "Longitude of natural origin", PoleLon);
const SCALE: Parameter = (8805, "Scale factor at natural origin", Scale);
const FE: Parameter = (8806, "False easting", East);
const FN: Parameter = (8807, "False northing", North);
const C_LAT: Parameter = (8811, "Latitude of projection centre", Lat);
const C_LON: Parameter = (8812, "Longitude of projection centre", Lon);
const C_AZIMUTH: Parameter = (8813, "Azimuth at projection centre", Azimuth);
const C_GRID: Parameter = (8814, "Angle from Rectified to Skew Grid", GridAngle);
const C_SCALE: Parameter = (8815, "Scale factor at projection centre", Scale);
const C_E: Parameter = (8816, "Easting at projection centre", East);
const C_N: Parameter = (8817, "Northing at projection centre", North);
const F_LAT: Parameter = (8821, "Latitude of false origin", Lat);
const F_LON: Parameter = (8822, "Longitude of false origin", Lon);
const STD1: Parameter = (8823, "Latitude of 1st standard parallel", Std1);
const STD2: Parameter = (8824, "Latitude of 2nd standard parallel", Std2);
const LAT_STD1: Parameter = (8823, "Latitude of 1st standard parallel", LatAsStd);
const F_E: Parameter = (8826, "Easting at false origin", East);
const F_N: Parameter = (8827, "Northing at false origin", North);
const P_STD: Parameter = (8832, "Latitude of standard parallel", Lat);
const P_LON: Parameter = (8833, "Longitude of origin", PoleLon);

const CENTRED: &[Parameter] = &[LAT, LON, FE, FN];
const SCALED: &[Parameter] = &[LAT, LON, SCALE, FE, FN];
const CONIC: &[Parameter] = &[F_LAT, F_LON, STD1, STD2, F_E, F_N];
const CYLINDRICAL: &[Parameter] = &[STD1, LON, FE, FN];
const WORLD: &[Parameter] = &[LON, FE, FN];

/// Methods that stand for one EPSG method: number in ProjCoordTransGeoKey, name, EPSG code (0: EPSG has none), parameters.
const METHODS: &[(u16, &str, u32, &[Parameter])] = &[
    (1, "Transverse Mercator", 9807, SCALED),
    (3, "Hotine Oblique Mercator (variant A)", 9812, &[C_LAT, C_LON, C_AZIMUTH, C_GRID, C_SCALE, FE, FN]),
    (4, "Laborde Oblique Mercator", 9813, &[C_LAT, C_LON, C_AZIMUTH, C_SCALE, FE, FN]),
    // Rosenmund's is the Swiss grid. EPSG defines it as variant B with both angles 90°, which are the defaults below.
    (5, "Hotine Oblique Mercator (variant B)", 9815, &[C_LAT, C_LON, C_AZIMUTH, C_GRID, C_SCALE, C_E, C_N]),
    (8, "Lambert Conic Conformal (2SP)", 9802, CONIC),
    (9, "Lambert Conic Conformal (1SP)", 9801, SCALED),
    (10, "Lambert Azimuthal Equal Area", 9820, CENTRED),
    (11, "Albers Equal Area", 9822, CONIC),
    (12, "Azimuthal Equidistant", 1125, CENTRED),
    (13, "Equidistant Conic", 1119, CONIC),
    (14, "Stereographic", 0, SCALED),
    (16, "Oblique Stereographic", 9809, SCALED),
    (18, "Cassini-Soldner", 9806, CENTRED),
    (19, "Gnomonic", 0, CENTRED),
    (20, "Miller Cylindrical", 0, WORLD),
    (21, "Orthographic", 9840, CENTRED),
    (22, "American Polyconic", 9818, CENTRED),
    (23, "Robinson", 0, WORLD),
    (24, "Sinusoidal", 0, WORLD),
    (25, "Van Der Grinten", 0, WORLD),
    (26, "New Zealand Map Grid", 9811, CENTRED),
    (27, "Transverse Mercator (South Orientated)", 9808, SCALED),
    (28, "Lambert Cylindrical Equal Area", 9835, CYLINDRICAL),
    (9815, "Hotine Oblique Mercator (variant B)", 9815, &[C_LAT, C_LON, C_AZIMUTH, C_GRID, C_SCALE, C_E, C_N]),
];

const MERCATOR_A: (&str, u32, &[Parameter]) = ("Mercator (variant A)", 9804, SCALED);
const MERCATOR_B: (&str, u32, &[Parameter]) = ("Mercator (variant B)", 9805, CYLINDRICAL);
const MERCATOR_B_LAT: (&str, u32, &[Parameter]) = ("Mercator (variant B)", 9805, &[LAT_STD1, LON, FE, FN]);
const POLAR_A: (&str, u32, &[Parameter]) = ("Polar Stereographic (variant A)", 9810, &[LAT, POLE_LON, SCALE, FE, FN]);
const POLAR_B: (&str, u32, &[Parameter]) = ("Polar Stereographic (variant B)", 9829, &[P_STD, P_LON, FE, FN]);
const EQUIRECTANGULAR: (&str, u32, &[Parameter]) = ("Equidistant Cylindrical", 1028, CYLINDRICAL);
const EQUIRECTANGULAR_LAT: (&str, u32, &[Parameter]) = ("Equidistant Cylindrical", 1028, &[STD1, LAT, LON, FE, FN]);

/// The parameter keys and the unit of their angles.
struct Parameters<'a> {
    keys: &'a GeoKeys,
    method: u16,
    angle: &'a Unit,
}

impl Parameters<'_> {
    fn first(&self, ids: &[u16]) -> Option<f64> {
        ids.iter().find_map(|&id| self.keys.double(id))
    }

    fn get(&self, source: Source) -> Option<f64> {
        match source {
            Lat | LatAsStd => self.first(&[3081, 3085, 3089]),
            Lon => self.first(&[3080, 3084, 3088]),
            PoleLon => self.first(&[3095, 3080, 3084, 3088]),
            Std1 => self.first(&[3078]),
            Std2 => self.first(&[3079]),
            Azimuth => self.first(&[3094]),
            GridAngle => self.first(&[3096]),
            Scale => self.first(&[3092, 3093]),
            East => self.first(&[3082, 3086, 3090]),
            North => self.first(&[3083, 3087, 3091]),
        }
    }

    fn get_or_default(&self, source: Source) -> f64 {
        self.get(source).unwrap_or(match source {
            Scale => 1.0,
            GridAngle => self.quarter_turn(),
            Azimuth if self.method == 5 => self.quarter_turn(),
            _ => 0.0,
        })
    }

    fn quarter_turn(&self) -> f64 {
        if self.is_degrees() { 90.0 } else { std::f64::consts::FRAC_PI_2 / self.angle.factor }
    }

    fn is_degrees(&self) -> bool {
        self.angle.same_size(&Unit::degree())
    }

    fn degrees(&self, source: Source) -> f64 {
        let value = self.get_or_default(source);
        if self.is_degrees() { value } else { (value * self.angle.factor).to_degrees() }
    }
}

/// The conversion of ProjCoordTransGeoKey `method`; `None` where the method is unknown or a parameter is not finite. Angles are in
/// `angle` and lengths in `length`, as in the standard and in GDAL.
pub(super) fn conversion(
    keys: &GeoKeys,
    method: u16,
    angle: &Unit,
    length: &Unit,
    problems: &mut Vec<String>,
) -> Option<Conversion> {
    let parameters = Parameters { keys, method, angle };
    let (name, epsg, list) = epsg_method(&parameters, problems)?;
    let id = |node: Node, code: u32| if code == 0 { node } else { node.with_epsg(code) };
    let mut node = Node::named("CONVERSION", "unnamed").with(id(Node::named("METHOD", name), epsg));
    for &(code, name, source) in list {
        let mut value = parameters.get_or_default(source);
        if source == Scale && value == 0.0 {
            problems.push("the projection's scale factor is 0; read as 1".to_owned());
            value = 1.0;
        }
        if !value.is_finite() {
            problems.push(format!("the projection's {} is {value}", name.to_lowercase()));
            return None;
        }
        if matches!(source, Std1 | Std2) && method != 17 && parameters.get(source).is_none() {
            problems.push(format!("the projection lacks its {}; read as 0", name.to_lowercase()));
        }
        let unit = match source {
            Scale => Node::named("SCALEUNIT", "unity").word("1").with_epsg(9201),
            East | North => length.wkt_length(),
            _ => angle.wkt_angle(),
        };
        node = node.with(Node::named("PARAMETER", name).number(value).with(unit).with_epsg(code));
    }
    let axes = match method {
        15 if parameters.degrees(Lat) > 0.0 => Axes::NorthPole(parameters.degrees(PoleLon)),
        15 => Axes::SouthPole(parameters.degrees(PoleLon)),
        27 => Axes::WestSouth,
        _ => Axes::EastNorth,
    };
    Some(Conversion { node, axes })
}

/// Picks the EPSG method. Three GeoTIFF methods stand for two EPSG variants each; the parameters show which is meant.
fn epsg_method(
    parameters: &Parameters<'_>,
    problems: &mut Vec<String>,
) -> Option<(&'static str, u32, &'static [Parameter])> {
    let scale = parameters.get_or_default(Scale);
    match parameters.method {
        7 if parameters.get(Std1).is_some() => Some(MERCATOR_B),
        7 if parameters.get_or_default(Lat) == 0.0 => Some(MERCATOR_A),
        7 if scale == 1.0 => Some(MERCATOR_B_LAT),
        7 => {
            problems.push("a Mercator projection has a scale factor and a latitude of origin other than 0".to_owned());
            Some(MERCATOR_A)
        }
        15 if (parameters.degrees(Lat).abs() - 90.0).abs() < 1e-9 => Some(POLAR_A),
        15 => {
            if scale != 1.0 {
                problems.push("a polar stereographic projection has a standard parallel and a scale factor; the factor is not used".to_owned());
            }
            Some(POLAR_B)
        }
        17 if parameters.get_or_default(Lat) == 0.0 => Some(EQUIRECTANGULAR),
        17 => Some(EQUIRECTANGULAR_LAT),
        method => METHODS.iter().find(|m| m.0 == method).map(|&(_, name, epsg, list)| (name, epsg, list)),
    }
}
