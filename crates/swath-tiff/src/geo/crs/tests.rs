use super::*;
use crate::geo::keys::{GeoKey, GeoValue};

const U: u16 = USER_DEFINED;

fn keys(shorts: &[(u16, u16)], doubles: &[(u16, f64)], texts: &[(u16, &str)]) -> GeoKeys {
    let mut keys = GeoKeys { version: [1, 1, 1], ..GeoKeys::default() };
    keys.entries.extend(shorts.iter().map(|&(id, v)| GeoKey { id, value: GeoValue::Short(v) }));
    keys.entries.extend(doubles.iter().map(|&(id, v)| GeoKey { id, value: GeoValue::Doubles(vec![v]) }));
    keys.entries.extend(texts.iter().map(|&(id, v)| GeoKey { id, value: GeoValue::Ascii(v.to_owned()) }));
    keys
}

fn read(shorts: &[(u16, u16)]) -> Crs {
    keys(shorts, &[], &[]).crs().unwrap()
}

const TM: &[(u16, f64)] = &[(3080, 9.0), (3081, 0.0), (3092, 0.9996), (3082, 500_000.0), (3083, 0.0)];

#[test]
fn no_keys_is_no_system() {
    assert!(GeoKeys::default().crs().is_none());
}

#[test]
fn states_the_codes_the_file_states() {
    let crs = read(&[(1024, 1), (3072, 32633)]);
    assert_eq!((crs.epsg, crs.kind, crs.code().as_deref()), (Some(32633), CrsKind::Projected, Some("EPSG:32633")));
    assert_eq!(crs.unit.unwrap().name, "metre");
    let crs = read(&[(1024, 2), (2048, 4326)]);
    assert_eq!((crs.epsg, crs.kind), (Some(4326), CrsKind::Geographic));
    let crs = read(&[(1024, 3), (2048, 4978)]);
    assert_eq!((crs.epsg, crs.kind), (Some(4978), CrsKind::Geocentric));
}

#[test]
fn reads_a_projected_code_without_a_model_but_no_geographic_one() {
    assert_eq!(read(&[(3072, 32633)]).epsg, Some(32633));
    let crs = read(&[(2048, 4326)]);
    assert_eq!((crs.epsg, crs.kind), (None, CrsKind::Engineering));
    assert_eq!(crs.problems.len(), 1);
}

#[test]
fn compound_of_two_codes_names_both_and_hides_the_second_from_geotiff_1_0() {
    let mut k = keys(&[(1024, 1), (3072, 32633), (4096, 5773)], &[], &[]);
    let crs = k.crs().unwrap();
    assert_eq!((crs.kind, crs.code().as_deref()), (CrsKind::Compound, Some("EPSG:32633+5773")));
    assert!(crs.wkt2.as_deref().unwrap().starts_with("COMPOUNDCRS[\"WGS 84 / UTM zone 33N + EGM96 height\",PROJCRS["));
    assert_eq!(k.crs_as_gdal_reports(&crs).kind, CrsKind::Compound);
    k.version = [1, 1, 0];
    assert_eq!(k.crs_as_gdal_reports(&crs).code().as_deref(), Some("EPSG:32633"));
    let crs = read(&[(1024, 1), (3072, 7415)]);
    assert_eq!((crs.code().as_deref(), crs.vertical_epsg), (Some("EPSG:7415"), Some(5709)));
}

#[test]
fn ellipsoidal_heights_make_the_system_three_dimensional() {
    assert_eq!(read(&[(1024, 2), (2048, 4326), (4096, 5030)]).epsg, Some(4979));
    let crs = read(&[(1024, 1), (3072, 32633), (4096, 4979)]);
    assert!(crs.wkt2.unwrap().contains("CS[Cartesian,3]"));
}

#[test]
fn unknown_codes_are_reported_not_dropped() {
    let crs = read(&[(1024, 1), (3072, 30000)]);
    assert_eq!(crs.epsg, Some(30000));
    assert!(!crs.problems.is_empty());
    let crs = read(&[(1024, 2), (2048, 29999)]);
    assert_eq!((crs.epsg, crs.kind, crs.wkt2), (Some(29999), CrsKind::Unknown, None));
    assert_eq!(read(&[(1024, 1), (3072, 54009)]).code().as_deref(), Some("ESRI:54009"));
    assert_eq!(read(&[(1024, 1), (3072, 32633), (4096, 31000)]).vertical_epsg, Some(31000));
}

#[test]
fn user_defined_utm_gets_no_code_but_names_its_equal() {
    let k = keys(&[(1024, 1), (3072, U), (2048, 4326), (3075, 1), (3076, 9001)], TM, &[(3073, "mine")]);
    let crs = k.crs().unwrap();
    assert_eq!((crs.name.as_str(), crs.epsg, crs.find_epsg()), ("mine", None, Some(32632)));
    let crs = read(&[(1024, 1), (3072, U), (2048, 4267), (3074, 16011), (3076, 9001)]);
    assert_eq!((crs.epsg, crs.find_epsg()), (None, Some(26711)));
}

#[test]
fn a_unit_that_contradicts_the_code_wins_and_drops_it() {
    let crs = read(&[(1024, 1), (3072, 32617), (3076, 9003)]);
    assert_eq!((crs.epsg, crs.unit.unwrap().epsg), (None, Some(9003)));
    let crs = read(&[(1024, 1), (3072, 32617), (3076, 9001)]);
    assert_eq!(crs.epsg, Some(32617));
}

#[test]
fn parameters_that_contradict_the_code_win_and_those_that_repeat_it_do_not() {
    let all = |code, lon| {
        let k = keys(
            &[(1024, 1), (3072, code), (3075, 1)],
            &[(3080, lon), (3081, 0.0), (3092, 0.9996), (3082, 500_000.0), (3083, 0.0)],
            &[],
        );
        k.crs().unwrap()
    };
    assert_eq!(all(32632, 9.0).epsg, Some(32632));
    let other = all(32633, 9.0);
    assert_eq!((other.epsg, other.find_epsg(), other.problems.len()), (None, Some(32632), 1));
    let web = keys(&[(1024, 1), (3072, 3857), (3075, 7), (3076, 9001)], &[(3080, 0.0), (3081, 0.0), (3092, 1.0)], &[]);
    assert_eq!(web.crs().unwrap().epsg, Some(3857));
}

#[test]
fn every_projection_of_the_standard_becomes_wkt_that_parses() {
    for method in (1..=28).chain([9815]).filter(|m| ![2, 6].contains(m)) {
        let k = keys(&[(1024, 1), (3072, U), (2048, 4326), (3075, method), (3076, 9001)], TM, &[]);
        let crs = k.crs().unwrap();
        assert_eq!(crs.kind, CrsKind::Projected, "{method}: {:?}", crs.problems);
        assert!(Node::parse(&crs.wkt2.unwrap()).is_ok());
    }
}

#[test]
fn nan_in_a_projection_gives_no_projection() {
    let k = keys(&[(1024, 1), (3072, U), (2048, 4326), (3075, 1)], &[(3080, f64::NAN)], &[]);
    let crs = k.crs().unwrap();
    assert_eq!(crs.kind, CrsKind::Engineering);
    assert!(crs.problems[0].contains("NaN"));
}

#[test]
fn nonsense_ellipsoids_fall_back_with_a_warning() {
    for a in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let crs = keys(&[(1024, 2), (2048, U)], &[(2057, a), (2059, 298.0)], &[]).crs().unwrap();
        assert!(crs.wkt2.unwrap().contains("unretrievable - using WGS84") && !crs.problems.is_empty());
    }
    let crs = keys(&[(1024, 2), (2048, U)], &[(2057, 6371000.0), (2058, 6371000.0)], &[]).crs().unwrap();
    assert!(crs.wkt2.unwrap().contains("6371000,0,"));
}

#[test]
fn huge_citations_are_cut_and_quotes_escaped() {
    let text = "\"x".repeat(40_000);
    let k = keys(&[(1024, U)], &[], &[(1026, &text)]);
    let crs = k.crs().unwrap();
    assert_eq!(crs.name.chars().count(), 512);
    assert!(Node::parse(&crs.wkt2.unwrap()).is_ok());
}

#[test]
fn esri_string_in_a_citation_is_the_definition() {
    let pe = "ESRI PE String = PROJCS[\"My_Moll\",GEOGCS[\"GCS_WGS_1984\",DATUM[\"D_WGS_1984\",SPHEROID[\"WGS_1984\",6378137.0,298.257223563]],PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]],PROJECTION[\"Mollweide\"],UNIT[\"Meter\",1.0]]";
    let crs = keys(&[(1024, U)], &[], &[(3073, pe)]).crs().unwrap();
    assert_eq!((crs.name.as_str(), crs.kind), ("My_Moll", CrsKind::Projected));
    assert_eq!(crs.unit.unwrap().factor, 1.0);
    let crs = keys(&[(1024, U)], &[], &[(3073, &pe[..100])]).crs().unwrap();
    assert_eq!(crs.kind, CrsKind::Engineering);
    assert!(crs.problems[0].contains("damaged"));
}

#[test]
fn cleans_erdas_and_esri_citations() {
    let erdas = "IMAGINE GeoTIFF Support\nCopyright 1991 by ERDAS\n@(#)$RCSfile: egtf.c $ $Date: 2002 $\nUTM Zone 10N\nDatum = NAD27";
    assert_eq!(citation::name(erdas, "PCS Name"), "UTM Zone 10N");
    assert_eq!(citation::name("PCS Name = a b|", "PCS Name"), "a b");
    assert_eq!(citation::field("GCS Name = x|Datum = D_y|", "Datum").as_deref(), Some("D_y"));
}

#[test]
fn any_combination_of_keys_is_read_without_panic() {
    // A small linear congruential walk over key numbers and values; enough to visit every branch with odd neighbours.
    let mut state = 12345_u32;
    let mut next = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % n
    };
    let codes = [
        0, 1, 2, 3, 5, 7, 15, 17, 27, 99, 4326, 4979, 5030, 5773, 6326, 7004, 8903, 9001, 9003, 9102, 9105, 16033,
        32633, 7415, 54009, U, 65535,
    ];
    let numbers = [0.0, -0.0, 1.0, 90.0, -90.0, 1e308, -1e308, 1e-320, f64::NAN, f64::INFINITY, 6378137.0, 298.25];
    for _ in 0..3000 {
        let mut k = GeoKeys { version: [1, 1, next(2) as u16], ..GeoKeys::default() };
        for _ in 0..next(14) {
            let id = [
                1024, 1025, 1026, 2048, 2049, 2050, 2051, 2052, 2054, 2055, 2056, 2057, 2058, 2059, 2061, 2062, 3072,
                3073, 3074, 3075, 3076, 3077, 3078, 3080, 3081, 3082, 3092, 3095, 4096, 4097, 4098, 4099,
            ][next(32) as usize];
            let value = match next(4) {
                0 => GeoValue::Doubles((0..next(8)).map(|i| numbers[(i as usize * 5 + 3) % numbers.len()]).collect()),
                1 => GeoValue::Ascii("ESRI PE String = A[\"".chars().take(next(22) as usize).collect()),
                _ => GeoValue::Short(codes[next(codes.len() as u32) as usize]),
            };
            k.entries.push(GeoKey { id, value });
        }
        if let Some(crs) = k.crs()
            && let Some(wkt) = &crs.wkt2
        {
            assert!(Node::parse(wkt).is_ok(), "{wkt}");
        }
    }
}

#[test]
fn keys_that_contradict_a_code_win_and_drop_it() {
    let figure = [(2057, 6_378_140.0), (2059, 298.257)];
    let crs = keys(&[(1024, 2), (2048, 4269)], &figure, &[]).crs().unwrap();
    assert_eq!((crs.epsg, crs.name.as_str()), (None, "NAD83"));
    assert!(crs.wkt2.unwrap().contains("ELLIPSOID[\"GRS 1980\",6378140,298.257,"));
    // WGS 84 alone is what its code says.
    assert_eq!(keys(&[(1024, 2), (2048, 4326)], &figure, &[]).crs().unwrap().epsg, Some(4326));
    let base = keys(&[(1024, 1), (3072, 32611), (2048, 4326)], &figure, &[]).crs().unwrap();
    assert_eq!(base.epsg, None);
    assert!(base.wkt2.unwrap().contains("6378140,298.257,"));
    assert_eq!(read(&[(1024, 2), (2048, 4269), (2051, 8901)]).epsg, Some(4269));
    assert_eq!(read(&[(1024, 2), (2048, 4269), (2051, 8903)]).epsg, None);
    assert_eq!(read(&[(1024, 2), (2048, 4269), (2051, 9999)]).epsg, Some(4269));
    assert_eq!(read(&[(1024, 2), (2048, 4269), (2050, 6267)]).epsg, None);
    // EPSG gives this ellipsoid in feet, and a file its axis in metres.
    let michigan = [(2057, 6_378_450.047_548_9), (2059, 294.978_697_164_677)];
    assert_eq!(keys(&[(1024, 2), (2048, 4009)], &michigan, &[]).crs().unwrap().epsg, Some(4009));
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        assert_eq!(keys(&[(1024, 2), (2048, 4269)], &[(2057, bad)], &[]).crs().unwrap().epsg, Some(4269));
    }
}

#[test]
fn unit_of_an_erdas_citation_replaces_that_of_the_code() {
    let erdas = |unit: &str| format!("IMAGINE GeoTIFF Support\nProjection Name = Oregon\nUnits = {unit}");
    let of = |unit: &str| keys(&[(1024, 1), (3072, 2838)], &[], &[(1026, &erdas(unit))]).crs().unwrap();
    let feet = of("Feet");
    assert_eq!((feet.epsg, feet.unit.unwrap().factor), (None, 12.0 / 39.37));
    assert_eq!((of("meters").epsg, of("parsecs").epsg), (Some(2838), Some(2838)));
    let plain = keys(&[(1024, 1), (3072, 2838)], &[], &[(1026, "Units = feet")]);
    assert_eq!(plain.crs().unwrap().epsg, Some(2838));
}

#[test]
fn a_meridian_of_zero_keeps_its_name() {
    let of = |name: &str| {
        let citation = format!("GCS Name = Moon|Primem = {name}|");
        let k = keys(&[(1024, 2), (2048, U), (2051, U)], &[(2057, 1_737_400.0), (2061, 0.0)], &[(2049, &citation)]);
        k.crs().unwrap().wkt2.unwrap()
    };
    assert!(of("Reference Meridian").contains("PRIMEM[\"Reference Meridian\",0,"));
    assert!(!of("Greenwich").contains("PRIMEM"));
}
