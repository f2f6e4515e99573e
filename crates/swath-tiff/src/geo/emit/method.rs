//! The GeoKeys that hold a projection's parameters.
//!
//! The keys are those that GDAL 3.12 writes (observed in its output). Readers differ in which of the overlapping parameter
//! keys they look at, and all of them were tested on GDAL's files.

use swath_crs::method::{
    Method, Projection,
    Quantity::{self, Azimuth, East, GridAngle, Lat, Lon, North, Scale, Std1, Std2},
};

/// The keys of one method: which quantity goes into which key.
type Keys = &'static [(Quantity, u16)];

const NATURAL: Keys = &[(Lat, 3081), (Lon, 3080), (Scale, 3092), (East, 3082), (North, 3083)];
const NATURAL_UNSCALED: Keys = &[(Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const CENTRE: Keys = &[(Lat, 3089), (Lon, 3088), (East, 3082), (North, 3083)];
const CENTRE_SCALED: Keys = &[(Lat, 3089), (Lon, 3088), (Scale, 3092), (East, 3082), (North, 3083)];
const WORLD: Keys = &[(Lon, 3088), (East, 3082), (North, 3083)];
const CONIC: Keys = &[(Std1, 3078), (Std2, 3079), (Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const CONIC_FALSE: Keys = &[(Std1, 3078), (Std2, 3079), (Lat, 3085), (Lon, 3084), (East, 3086), (North, 3087)];
const OBLIQUE: Keys =
    &[(Lat, 3089), (Lon, 3088), (Azimuth, 3094), (GridAngle, 3096), (Scale, 3093), (East, 3082), (North, 3083)];
const LABORDE: Keys = &[(Lat, 3089), (Lon, 3088), (Azimuth, 3094), (Scale, 3093), (East, 3082), (North, 3083)];
const MERCATOR_B: Keys = &[(Std1, 3078), (Lat, 3081), (Lon, 3080), (East, 3082), (North, 3083)];
const POLAR: Keys = &[(Lat, 3081), (Lon, 3095), (Scale, 3092), (East, 3082), (North, 3083)];
const EQUIDISTANT_CYLINDRICAL: Keys = &[(Std1, 3078), (Lat, 3089), (Lon, 3088), (East, 3082), (North, 3083)];
const CYLINDRICAL_EQUAL_AREA: Keys = &[(Std1, 3078), (Lon, 3080), (East, 3082), (North, 3083)];

/// ProjCoordTransGeoKey and the keys of a method.
fn geotiff_method(method: Method) -> Option<(u16, Keys)> {
    Some(match method {
        Method::TransverseMercator => (1, NATURAL),
        Method::TransverseMercatorSouth => (27, NATURAL),
        Method::ObliqueMercatorA => (3, OBLIQUE),
        Method::ObliqueMercatorB => (9815, OBLIQUE),
        Method::LabordeObliqueMercator => (4, LABORDE),
        Method::MercatorA => (7, NATURAL),
        Method::MercatorB => (7, MERCATOR_B),
        Method::LambertConformal1 => (9, NATURAL),
        Method::LambertConformal2 => (8, CONIC_FALSE),
        Method::LambertAzimuthal => (10, CENTRE),
        Method::Albers => (11, CONIC),
        Method::AzimuthalEquidistant => (12, CENTRE),
        Method::EquidistantConic => (13, CONIC),
        Method::Stereographic => (14, CENTRE_SCALED),
        Method::PolarStereographicA | Method::PolarStereographicB => (15, POLAR),
        Method::ObliqueStereographic => (16, NATURAL),
        Method::EquidistantCylindrical => (17, EQUIDISTANT_CYLINDRICAL),
        Method::Cassini => (18, NATURAL_UNSCALED),
        Method::Gnomonic => (19, CENTRE),
        Method::Miller => (20, CENTRE),
        Method::Orthographic => (21, CENTRE),
        Method::Polyconic => (22, NATURAL),
        Method::Robinson => (23, WORLD),
        Method::Sinusoidal => (24, WORLD),
        Method::VanDerGrinten => (25, WORLD),
        Method::NewZealandMapGrid => (26, NATURAL_UNSCALED),
        Method::CylindricalEqualArea => (28, CYLINDRICAL_EQUAL_AREA),
        _ => return None,
    })
}

/// ProjCoordTransGeoKey and the values of the parameter keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MethodKeys {
    pub method: u16,
    pub values: Vec<(u16, f64)>,
}

/// The keys of a projection, or `None` where GeoTIFF has no such method or no key for one of its parameters.
pub(super) fn method_keys(projection: &Projection) -> Option<MethodKeys> {
    let method = projection.method()?;
    let (code, keys) = geotiff_method(method)?;
    let parameters = &projection.parameters;
    if !parameters.unrecognized.is_empty() {
        return None;
    }
    let pole = parameters.at_pole();
    let unscaled = parameters.get_or_default(Scale) == 1.0;
    match method {
        // In a file only the latitude distinguishes the two variants.
        Method::PolarStereographicA if !pole => return None,
        Method::PolarStereographicB if pole || !unscaled => return None,
        // Here the standard parallel distinguishes them, and readers would drop a scale factor beside it.
        Method::MercatorB if !unscaled => return None,
        Method::MercatorA if parameters.get_or_default(Lat) != 0.0 => return None,
        _ => {}
    }
    // A parameter without a key must have the value that the method assumes.
    let lost = |&(quantity, value): &(Quantity, f64)| {
        let is_default = match quantity {
            Scale => value == 1.0,
            Std1 => Some(value) == parameters.get(Lat),
            GridAngle => Some(value) == parameters.get(Azimuth),
            _ => value == 0.0,
        };
        !keys.iter().any(|(with_key, _)| *with_key == quantity) && !is_default
    };
    if parameters.known.iter().any(lost) {
        return None;
    }
    let values: Vec<_> = keys.iter().map(|&(quantity, key)| (key, parameters.get_or_default(quantity))).collect();
    values.iter().all(|(_, value)| value.is_finite()).then_some(MethodKeys { method: code, values })
}
