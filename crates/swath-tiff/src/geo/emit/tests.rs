//! This crate's own reader reads emitted keys back, for every kind of system and every method.

use super::*;
use crate::geo::keys::GeoKeys;
use crate::geo::transform::{self, ModelTags};
use swath_crs::{CrsKind, epsg, parse_user, wkt::Node};

const BASE: &str = "GEOGCS[\"My GCS\",DATUM[\"My_Datum\",SPHEROID[\"My ball\",6378000,298.5]],PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]]";

fn keys(tags: &GeoTags) -> GeoKeys {
    let keys = GeoKeys::parse(&tags.keys.directory, &tags.keys.doubles, &tags.keys.ascii);
    assert!(keys.problems.is_empty(), "{:?}", keys.problems);
    keys
}

fn emit(text: &str) -> (GeoTags, GeoKeys, Crs) {
    let crs = parse_user(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let tags = geo_tags(Reference::Crs(Some(&crs)), None, &[], None, false);
    let keys = keys(&tags);
    let back = keys.crs().unwrap();
    (tags, keys, back)
}

/// Numbers of a conversion by parameter name, in file order.
fn numbers(crs: &Crs) -> (String, Vec<f64>) {
    let node = Node::parse(crs.wkt2.as_deref().unwrap()).unwrap();
    let conversion = node.child(&["CONVERSION"]).unwrap_or_else(|| panic!("{node}"));
    let method = conversion.child(&["METHOD"]).and_then(Node::name).unwrap().to_owned();
    (method, conversion.nodes().filter(|n| n.is("PARAMETER")).filter_map(|n| n.nth_number(0)).collect())
}

#[test]
fn every_method_of_geotiff_comes_back_with_its_numbers() {
    let all = [
        ("latitude_of_origin", 40.0),
        ("central_meridian", -96.0),
        ("scale_factor", 0.9996),
        ("false_easting", 5e5),
        ("false_northing", 12.5),
        ("latitude_of_center", 41.0),
        ("longitude_of_center", -95.0),
        ("azimuth", 30.0),
        ("rectified_grid_angle", 31.0),
        ("standard_parallel_1", 29.5),
        ("standard_parallel_2", 45.5),
    ];
    let (tm, centred, conic) = (&[0, 1, 2, 3, 4][..], &[0, 1, 3, 4][..], &[0, 1, 9, 10, 3, 4][..]);
    let cases: &[(&str, u16, &str, &[usize])] = &[
        ("Transverse_Mercator", 1, "Transverse Mercator", tm),
        ("Transverse_Mercator_South_Orientated", 27, "Transverse Mercator (South Orientated)", tm),
        ("Hotine_Oblique_Mercator", 3, "Hotine Oblique Mercator (variant A)", &[5, 6, 7, 8, 2, 3, 4]),
        ("Hotine_Oblique_Mercator_Azimuth_Center", 9815, "Hotine Oblique Mercator (variant B)", &[5, 6, 7, 8, 2, 3, 4]),
        ("Laborde_Oblique_Mercator", 4, "Laborde Oblique Mercator", &[5, 6, 7, 2, 3, 4]),
        ("Mercator_1SP", 7, "Mercator (variant A)", &[1, 2, 3, 4]),
        ("Mercator_2SP", 7, "Mercator (variant B)", &[9, 1, 3, 4]),
        ("Lambert_Conformal_Conic_1SP", 9, "Lambert Conic Conformal (1SP)", tm),
        ("Lambert_Conformal_Conic_2SP", 8, "Lambert Conic Conformal (2SP)", conic),
        ("Lambert_Azimuthal_Equal_Area", 10, "Lambert Azimuthal Equal Area", &[5, 6, 3, 4]),
        ("Albers_Conic_Equal_Area", 11, "Albers Equal Area", &[5, 6, 9, 10, 3, 4]),
        ("Azimuthal_Equidistant", 12, "Azimuthal Equidistant", &[5, 6, 3, 4]),
        ("Equidistant_Conic", 13, "Equidistant Conic", &[5, 6, 9, 10, 3, 4]),
        ("Stereographic", 14, "Stereographic", tm),
        ("Polar_Stereographic", 15, "Polar Stereographic (variant B)", centred),
        ("Oblique_Stereographic", 16, "Oblique Stereographic", tm),
        ("Equirectangular", 17, "Equidistant Cylindrical", &[9, 0, 1, 3, 4]),
        ("Cassini_Soldner", 18, "Cassini-Soldner", centred),
        ("Gnomonic", 19, "Gnomonic", centred),
        ("Miller_Cylindrical", 20, "Miller Cylindrical", &[6, 3, 4]),
        ("Orthographic", 21, "Orthographic", centred),
        ("Polyconic", 22, "American Polyconic", centred),
        ("Robinson", 23, "Robinson", &[6, 3, 4]),
        ("Sinusoidal", 24, "Sinusoidal", &[6, 3, 4]),
        ("VanDerGrinten", 25, "Van Der Grinten", &[1, 3, 4]),
        ("New_Zealand_Map_Grid", 26, "New Zealand Map Grid", centred),
        ("Cylindrical_Equal_Area", 28, "Lambert Cylindrical Equal Area", &[9, 1, 3, 4]),
    ];
    for &(wkt1, number, method, indices) in cases {
        let given: Vec<(&str, f64)> = indices.iter().map(|&i| all[i]).collect();
        let parameters: String = given.iter().map(|(n, v)| format!(",PARAMETER[\"{n}\",{v}]")).collect();
        let text = format!("PROJCS[\"my {wkt1}\",{BASE},PROJECTION[\"{wkt1}\"]{parameters},UNIT[\"metre\",1]]");
        let (tags, keys, back) = emit(&text);
        assert_eq!(keys.short(3075), Some(number), "{wkt1}");
        assert!(tags.problems.is_empty(), "{wkt1}: {:?}", tags.problems);
        let (read, values) = numbers(&back);
        assert_eq!((read.as_str(), back.name.as_str()), (method, format!("my {wkt1}").as_str()));
        let mut want: Vec<f64> = given.iter().map(|p| p.1).collect();
        if wkt1 == "Mercator_1SP" {
            want.insert(0, 0.0);
        }
        assert_eq!(values, want, "{wkt1}");
        // From WKT2 the same keys are emitted.
        let again = geo_tags(Reference::Crs(Some(&back)), None, &[], None, false);
        assert_eq!(again, tags, "{wkt1}");
    }
}

#[test]
fn polar_variants_are_distinguished_by_the_latitude() {
    for (lat, scale, method) in [(90, 0.994, "(variant A)"), (-90, 0.994, "(variant A)"), (-71, 1.0, "(variant B)")] {
        let text = format!(
            "PROJCS[\"p\",{BASE},PROJECTION[\"Polar_Stereographic\"],PARAMETER[\"latitude_of_origin\",{lat}],PARAMETER[\"central_meridian\",-45],PARAMETER[\"scale_factor\",{scale}],PARAMETER[\"false_easting\",0],PARAMETER[\"false_northing\",0],UNIT[\"metre\",1]]"
        );
        let (read, _) = numbers(&emit(&text).2);
        assert!(read.ends_with(method), "{read}");
    }
}

#[test]
fn codes_come_back_as_codes() {
    for code in [
        "EPSG:4326",
        "EPSG:32633",
        "EPSG:3857",
        "EPSG:5514",
        "EPSG:27700",
        "EPSG:2193",
        "EPSG:3413",
        "EPSG:3031",
        "EPSG:2263",
        "EPSG:27572",
        "EPSG:4807",
        "EPSG:4979",
        "EPSG:4978",
        "EPSG:32633+5773",
        "EPSG:2263+6360",
    ] {
        let (tags, _, back) = emit(code);
        assert_eq!(back.code().as_deref(), Some(code));
        assert!(tags.problems.is_empty() && back.problems.is_empty(), "{code} {:?} {:?}", tags.problems, back.problems);
    }
    for code in [7405, 5554, 9707, 6349] {
        assert_eq!(emit(&format!("EPSG:{code}")).2.find_epsg(), Some(code));
    }
}

#[test]
fn keys_of_a_code_are_gdals() {
    let (tags, keys, _) = emit("EPSG:32633");
    assert_eq!(tags.keys.directory.first_chunk::<4>(), Some(&[1, 1, 0, 7]));
    assert_eq!(keys.ascii(1026), Some("WGS 84 / UTM zone 33N"));
    assert_eq!((keys.short(1024), keys.short(1025), keys.short(3072)), (Some(1), Some(1), Some(32633)));
    assert_eq!((keys.ascii(2049), keys.short(2054), keys.short(3076)), (Some("WGS 84"), Some(9102), Some(9001)));
    let (_, keys, _) = emit("EPSG:4979");
    assert_eq!((keys.version, keys.short(2048), keys.short(4096)), ([1, 1, 1], Some(4326), Some(4979)));
}

#[test]
fn wrong_code_in_the_text_is_ignored() {
    let good = epsg::wkt2(32633).unwrap().into_owned();
    let bad = good.replace("\"Longitude of natural origin\",15", "\"Longitude of natural origin\",16");
    assert_ne!(good, bad);
    let (_, keys, back) = emit(&bad);
    assert_eq!((keys.short(3072), keys.short(3075), keys.double(3080)), (Some(32767), Some(1), Some(16.0)));
    assert_eq!(back.epsg, None);
}

#[test]
fn the_code_of_a_compound_system_gives_those_of_its_parts() {
    // As PROJ writes EPSG:5845: only the whole and the base state a code.
    let text = "COMPOUNDCRS[\"SWEREF99 TM + RH2000 height\",PROJCRS[\"SWEREF99 TM\",BASEGEOGCRS[\"SWEREF99\",\
        DATUM[\"SWEREF99\",ELLIPSOID[\"GRS 1980\",6378137,298.257222101,LENGTHUNIT[\"metre\",1]]],\
        PRIMEM[\"Greenwich\",0,ANGLEUNIT[\"degree\",0.0174532925199433]],ID[\"EPSG\",4619]],CONVERSION[\"SWEREF99 TM\",\
        METHOD[\"Transverse Mercator\",ID[\"EPSG\",9807]],\
        PARAMETER[\"Latitude of natural origin\",0,ANGLEUNIT[\"degree\",0.0174532925199433],ID[\"EPSG\",8801]],\
        PARAMETER[\"Longitude of natural origin\",15,ANGLEUNIT[\"degree\",0.0174532925199433],ID[\"EPSG\",8802]],\
        PARAMETER[\"Scale factor at natural origin\",0.9996,SCALEUNIT[\"unity\",1],ID[\"EPSG\",8805]],\
        PARAMETER[\"False easting\",500000,LENGTHUNIT[\"metre\",1],ID[\"EPSG\",8806]],\
        PARAMETER[\"False northing\",0,LENGTHUNIT[\"metre\",1],ID[\"EPSG\",8807]]],CS[Cartesian,2],\
        AXIS[\"northing (N)\",north,ORDER[1],LENGTHUNIT[\"metre\",1]],AXIS[\"easting (E)\",east,ORDER[2],LENGTHUNIT[\"metre\",1]]],\
        VERTCRS[\"RH2000 height\",DYNAMIC[FRAMEEPOCH[2000]],VDATUM[\"Rikets hojdsystem 2000\"],CS[vertical,1],\
        AXIS[\"gravity-related height (H)\",up,LENGTHUNIT[\"metre\",1]]],ID[\"EPSG\",5845]]";
    let (_, keys, back) = emit(text);
    assert_eq!((keys.short(3072), keys.short(4096)), (Some(3006), Some(5613)));
    assert_eq!(back.find_epsg(), Some(5845));

    let (_, keys, _) = emit(&text.replace("natural origin\",15", "natural origin\",16"));
    assert_eq!((keys.short(3072), keys.short(4096)), (Some(32767), Some(5613)));
    let (_, keys, _) = emit(&text.replace("RH2000 height\",DYNAMIC", "My height\",DYNAMIC"));
    assert_eq!((keys.short(3072), keys.short(4096)), (Some(3006), Some(32767)));

    // EPSG has since put a realisation of ETRS89 into 9507. The text still means ETRS89.
    let text = "COMPOUNDCRS[\"ETRS89 + Ibiza height\",GEOGCRS[\"ETRS89\",\
        DATUM[\"European Terrestrial Reference System 1989\",\
        ELLIPSOID[\"GRS 1980\",6378137,298.257222101,LENGTHUNIT[\"metre\",1]]],\
        PRIMEM[\"Greenwich\",0,ANGLEUNIT[\"degree\",0.0174532925199433]],CS[ellipsoidal,2],\
        AXIS[\"geodetic latitude (Lat)\",north,ORDER[1],ANGLEUNIT[\"degree\",0.0174532925199433]],\
        AXIS[\"geodetic longitude (Lon)\",east,ORDER[2],ANGLEUNIT[\"degree\",0.0174532925199433]]],\
        VERTCRS[\"Ibiza height\",VDATUM[\"Ibiza\"],CS[vertical,1],\
        AXIS[\"gravity-related height\",up,LENGTHUNIT[\"metre\",1]]],ID[\"EPSG\",9507]]";
    let (_, keys, _) = emit(text);
    assert_eq!((keys.short(2048), keys.short(4096)), (Some(4258), Some(9394)));
}

#[test]
fn own_datum_units_meridian_and_shift_come_back() {
    let text = "PROJCS[\"p\",GEOGCS[\"s|t\",DATUM[\"D my\",SPHEROID[\"Bessel mine\",6377397.155,299.1528128],TOWGS84[598.1,73.7,418.2,0.202,0.045,-2.455,6.7]],PRIMEM[\"Foo\",12.5],UNIT[\"grad\",0.01570796326794897]],PROJECTION[\"Transverse_Mercator\"],PARAMETER[\"latitude_of_origin\",0],PARAMETER[\"central_meridian\",15],PARAMETER[\"scale_factor\",1],PARAMETER[\"false_easting\",1000],PARAMETER[\"false_northing\",0],UNIT[\"cubit\",0.45]]";
    let (_, keys, back) = emit(text);
    assert_eq!(keys.doubles(2062), [598.1, 73.7, 418.2, 0.202, 0.045, -2.455, 6.7]);
    let text = back.wkt2.as_deref().unwrap();
    for part in [
        "BOUNDCRS[",
        "\"D my\"",
        "\"Bessel mine\",6377397.155,299.1528128",
        "PRIMEM[\"Foo\",12.5",
        "\"s t\"",
        "\"grad\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!((back.unit.as_ref().map(|u| u.factor), back.name.as_str()), (Some(0.45), "p"));
    // Written again from WKT2, the shift is the same.
    let again = geo_tags(Reference::Crs(Some(&back)), None, &[], None, false);
    assert_eq!(super::tests::keys(&again).doubles(2062), keys.doubles(2062));
}

#[test]
fn local_vertical_and_foreign_systems_come_back() {
    let (tags, keys, back) = emit("LOCAL_CS[\"site\",UNIT[\"foot\",0.3048]]");
    assert_eq!((back.kind, back.name.as_str(), keys.short(3076)), (CrsKind::Engineering, "site", Some(9002)));
    assert!(tags.problems.is_empty());
    for (text, kind) in [("EPSG:5773", CrsKind::Vertical), ("ESRI:54009", CrsKind::Projected)] {
        let (tags, keys, back) = emit(text);
        assert_eq!((back.kind, tags.problems.len()), (kind, 1), "{text}");
        assert!(keys.ascii(3073).unwrap().starts_with("ESRI PE String = "));
    }
    let (tags, _, back) = emit("ESRI:102001");
    assert!(tags.problems.is_empty());
    assert_eq!(numbers(&back), ("Albers Equal Area".to_owned(), vec![40.0, -96.0, 50.0, 70.0, 0.0, 0.0]));
}

#[test]
fn transforms_come_back_to_the_last_bit() {
    let maps = [
        [100.3, 0.1, 0.0, 200.7, 0.0, -0.3],
        [100.3, 0.1, 0.0, 200.7, 0.0, 0.3],
        [100.3, -0.1, 0.0, 200.7, 0.0, -0.3],
        [100.3, 0.1, 0.2, 200.7, 0.3, -0.3],
        [0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
    ];
    for map in maps {
        for point in [false, true] {
            let tags = geo_tags(Reference::Crs(None), Some(&GeoTransform(map)), &[], None, point);
            let keys = GeoKeys::parse(&tags.keys.directory, &[], &[]);
            let scale = tags.pixel_scale.map(|s| s.to_vec()).unwrap_or_default();
            let matrix = tags.transformation.map(|m| m.to_vec()).unwrap_or_default();
            let model = ModelTags { pixel_scale: &scale, tiepoints: &tags.tiepoints, transformation: &matrix };
            assert_eq!(transform::read(&model, &keys).transform, Some(GeoTransform(map)), "{map:?} {point}");
            assert_eq!(tags.keys.directory.is_empty(), !point);
        }
    }
    let nan = geo_tags(Reference::Crs(None), Some(&GeoTransform([f64::NAN; 6])), &[], None, false);
    assert_eq!((nan.problems.len(), nan.pixel_scale, nan.transformation), (1, None, None));
}

#[test]
fn control_points_come_back_where_they_were() {
    let gcps: Vec<Gcp> =
        (1..4).map(|i| Gcp { id: i.to_string(), pixel: f64::from(i), line: 2.25, x: 3.0, y: 4.0, z: 5.0 }).collect();
    for point in [false, true] {
        let tags = geo_tags(Reference::Crs(None), None, &gcps, None, point);
        let keys = GeoKeys::parse(&tags.keys.directory, &[], &[]);
        let model = ModelTags { tiepoints: &tags.tiepoints, ..ModelTags::default() };
        assert_eq!(transform::read(&model, &keys).gcps, gcps);
    }
    let both = geo_tags(Reference::Crs(None), Some(&GeoTransform::IDENTITY), &gcps, None, false);
    assert!(both.tiepoints.is_empty() && both.problems.len() == 1);
}

#[test]
fn rpc_comes_back_and_nan_does_not_go_out() {
    let values: Vec<f64> = (0..92).map(f64::from).collect();
    let mut rpc = Rpc::parse(&values).unwrap();
    assert_eq!(geo_tags(Reference::Crs(None), None, &[], Some(&rpc), false).rpc, Some(values));
    rpc.lat_off = f64::NAN;
    let tags = geo_tags(Reference::Crs(None), None, &[], Some(&rpc), false);
    assert_eq!((tags.rpc, tags.problems.len()), (None, 1));
}

#[test]
fn damaged_definitions_cause_a_warning_not_a_panic() {
    let good = epsg::wkt2(27700).unwrap().into_owned();
    for cut in (0..good.len()).filter(|&i| good.is_char_boundary(i)) {
        let open = good[..cut].matches('[').count() - good[..cut].matches(']').count();
        if let Ok(crs) = parse_user(&format!("{}{}", &good[..cut], "]".repeat(open))) {
            let _ = geo_tags(Reference::Crs(Some(&crs)), None, &[], None, false);
        }
    }
    let crs = Crs { wkt2: None, ..parse_user("EPSG:4326").unwrap() };
    assert_eq!(geo_tags(Reference::Crs(Some(&crs)), None, &[], None, false).problems.len(), 1);
}
