//! Names of GeoKeys and of their common values, spelled as `listgeo` spells them.

/// The value "user-defined" of every code key: other keys hold the definition.
pub const USER_DEFINED: u16 = 32767;

/// Kind of system: 1 projected, 2 geographic, 3 geocentric.
pub const GT_MODEL_TYPE: u16 = 1024;
/// The meaning of a pixel's coordinates: 1 its area's, 2 its centre's.
pub const GT_RASTER_TYPE: u16 = 1025;
/// Name of the whole system.
pub const GT_CITATION: u16 = 1026;

/// The keys of GeoTIFF 1.0 and 1.1, sorted by number.
const KEYS: &[(u16, &str)] = &[
    (1024, "GTModelTypeGeoKey"),
    (1025, "GTRasterTypeGeoKey"),
    (1026, "GTCitationGeoKey"),
    (2048, "GeographicTypeGeoKey"),
    (2049, "GeogCitationGeoKey"),
    (2050, "GeogGeodeticDatumGeoKey"),
    (2051, "GeogPrimeMeridianGeoKey"),
    (2052, "GeogLinearUnitsGeoKey"),
    (2053, "GeogLinearUnitSizeGeoKey"),
    (2054, "GeogAngularUnitsGeoKey"),
    (2055, "GeogAngularUnitSizeGeoKey"),
    (2056, "GeogEllipsoidGeoKey"),
    (2057, "GeogSemiMajorAxisGeoKey"),
    (2058, "GeogSemiMinorAxisGeoKey"),
    (2059, "GeogInvFlatteningGeoKey"),
    (2060, "GeogAzimuthUnitsGeoKey"),
    (2061, "GeogPrimeMeridianLongGeoKey"),
    (2062, "GeogTOWGS84GeoKey"),
    (3072, "ProjectedCSTypeGeoKey"),
    (3073, "PCSCitationGeoKey"),
    (3074, "ProjectionGeoKey"),
    (3075, "ProjCoordTransGeoKey"),
    (3076, "ProjLinearUnitsGeoKey"),
    (3077, "ProjLinearUnitSizeGeoKey"),
    (3078, "ProjStdParallel1GeoKey"),
    (3079, "ProjStdParallel2GeoKey"),
    (3080, "ProjNatOriginLongGeoKey"),
    (3081, "ProjNatOriginLatGeoKey"),
    (3082, "ProjFalseEastingGeoKey"),
    (3083, "ProjFalseNorthingGeoKey"),
    (3084, "ProjFalseOriginLongGeoKey"),
    (3085, "ProjFalseOriginLatGeoKey"),
    (3086, "ProjFalseOriginEastingGeoKey"),
    (3087, "ProjFalseOriginNorthingGeoKey"),
    (3088, "ProjCenterLongGeoKey"),
    (3089, "ProjCenterLatGeoKey"),
    (3090, "ProjCenterEastingGeoKey"),
    (3091, "ProjCenterNorthingGeoKey"),
    (3092, "ProjScaleAtNatOriginGeoKey"),
    (3093, "ProjScaleAtCenterGeoKey"),
    (3094, "ProjAzimuthAngleGeoKey"),
    (3095, "ProjStraightVertPoleLongGeoKey"),
    (3096, "ProjRectifiedGridAngleGeoKey"),
    (4096, "VerticalCSTypeGeoKey"),
    (4097, "VerticalCitationGeoKey"),
    (4098, "VerticalDatumGeoKey"),
    (4099, "VerticalUnitsGeoKey"),
    (5120, "CoordinateEpochGeoKey"),
];

/// Values of ProjCoordTransGeoKey.
const COORD_TRANS: &[(u16, &str)] = &[
    (1, "CT_TransverseMercator"),
    (2, "CT_TransvMercator_Modified_Alaska"),
    (3, "CT_ObliqueMercator"),
    (4, "CT_ObliqueMercator_Laborde"),
    (5, "CT_ObliqueMercator_Rosenmund"),
    (6, "CT_ObliqueMercator_Spherical"),
    (7, "CT_Mercator"),
    (8, "CT_LambertConfConic_2SP"),
    (9, "CT_LambertConfConic_Helmert"),
    (10, "CT_LambertAzimEqualArea"),
    (11, "CT_AlbersEqualArea"),
    (12, "CT_AzimuthalEquidistant"),
    (13, "CT_EquidistantConic"),
    (14, "CT_Stereographic"),
    (15, "CT_PolarStereographic"),
    (16, "CT_ObliqueStereographic"),
    (17, "CT_Equirectangular"),
    (18, "CT_CassiniSoldner"),
    (19, "CT_Gnomonic"),
    (20, "CT_MillerCylindrical"),
    (21, "CT_Orthographic"),
    (22, "CT_Polyconic"),
    (23, "CT_Robinson"),
    (24, "CT_Sinusoidal"),
    (25, "CT_VanDerGrinten"),
    (26, "CT_NewZealandMapGrid"),
    (27, "CT_TransvMercator_SouthOriented"),
    (28, "CT_CylindricalEqualArea"),
    (9815, "CT_HotineObliqueMercatorAzimuthCenter"),
];

/// Values of the unit keys.
const UNITS: &[(u16, &str)] = &[
    (9001, "Linear_Meter"),
    (9002, "Linear_Foot"),
    (9003, "Linear_Foot_US_Survey"),
    (9004, "Linear_Foot_Modified_American"),
    (9005, "Linear_Foot_Clarke"),
    (9006, "Linear_Foot_Indian"),
    (9007, "Linear_Link"),
    (9008, "Linear_Link_Benoit"),
    (9009, "Linear_Link_Sears"),
    (9010, "Linear_Chain_Benoit"),
    (9011, "Linear_Chain_Sears"),
    (9012, "Linear_Yard_Sears"),
    (9013, "Linear_Yard_Indian"),
    (9014, "Linear_Fathom"),
    (9015, "Linear_Mile_International_Nautical"),
    (9101, "Angular_Radian"),
    (9102, "Angular_Degree"),
    (9103, "Angular_Arc_Minute"),
    (9104, "Angular_Arc_Second"),
    (9105, "Angular_Grad"),
    (9106, "Angular_Gon"),
    (9107, "Angular_DMS"),
    (9108, "Angular_DMS_Hemisphere"),
];

/// The datums, geographic systems and ellipsoids that `listgeo` users know by name.
const GEOGRAPHIC: &[(u16, &str)] = &[
    (4030, "GCSE_WGS84"),
    (4035, "GCSE_Sphere"),
    (4171, "GCS_RGF93"),
    (4230, "GCS_ED50"),
    (4258, "GCS_EUREF89"),
    (4267, "GCS_NAD27"),
    (4269, "GCS_NAD83"),
    (4277, "GCS_OSGB_1936"),
    (4283, "GCS_GDA94"),
    (4314, "GCS_DHDN"),
    (4322, "GCS_WGS_72"),
    (4326, "GCS_WGS_84"),
];

fn find(table: &[(u16, &'static str)], code: u16) -> Option<&'static str> {
    table.binary_search_by_key(&code, |e| e.0).ok().and_then(|i| table.get(i)).map(|e| e.1)
}

/// The name of key `id`.
#[must_use]
pub fn key(id: u16) -> Option<&'static str> {
    find(KEYS, id)
}

/// The name of key `id`, or `GeoKey 1234` for a key outside the standard.
#[must_use]
pub fn key_or_number(id: u16) -> String {
    key(id).map_or_else(|| format!("GeoKey {id}"), str::to_owned)
}

/// The name of `value` in key `id`, for the common values of keys that hold codes. [`swath_crs::epsg::name`] has the names of
/// whole systems.
#[must_use]
pub fn value(id: u16, value: u16) -> Option<&'static str> {
    if value == USER_DEFINED && matches!(id, 1024 | 2048..=2056 | 2060 | 3072..=3076 | 4096..=4099) {
        return Some("User-Defined");
    }
    match id {
        GT_MODEL_TYPE => match value {
            1 => Some("ModelTypeProjected"),
            2 => Some("ModelTypeGeographic"),
            3 => Some("ModelTypeGeocentric"),
            _ => None,
        },
        GT_RASTER_TYPE => match value {
            1 => Some("RasterPixelIsArea"),
            2 => Some("RasterPixelIsPoint"),
            _ => None,
        },
        2048 => find(GEOGRAPHIC, value),
        2050 => match value {
            6267 => Some("Datum_North_American_Datum_1927"),
            6269 => Some("Datum_North_American_Datum_1983"),
            6326 => Some("Datum_WGS84"),
            _ => None,
        },
        2051 => match value {
            8901 => Some("PM_Greenwich"),
            8903 => Some("PM_Paris"),
            _ => None,
        },
        2056 => match value {
            7004 => Some("Ellipse_Bessel_1841"),
            7008 => Some("Ellipse_Clarke_1866"),
            7019 => Some("Ellipse_GRS_1980"),
            7022 => Some("Ellipse_International_1924"),
            7030 => Some("Ellipse_WGS_84"),
            7035 => Some("Ellipse_Sphere"),
            _ => None,
        },
        2052 | 2054 | 2060 | 3076 | 4099 => find(UNITS, value),
        3075 => find(COORD_TRANS, value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_or_binary_search_would_miss() {
        for table in [KEYS, COORD_TRANS, UNITS, GEOGRAPHIC] {
            assert!(table.windows(2).all(|w| w[0].0 < w[1].0));
        }
    }

    #[test]
    fn names_keys_and_values_as_listgeo_does() {
        assert_eq!(key(3072), Some("ProjectedCSTypeGeoKey"));
        assert_eq!(value(1025, 2), Some("RasterPixelIsPoint"));
        assert_eq!(value(3076, 9003), Some("Linear_Foot_US_Survey"));
        assert_eq!(value(3072, 32767), Some("User-Defined"));
        assert_eq!(key_or_number(77), "GeoKey 77");
    }
}
