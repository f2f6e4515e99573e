use super::*;
use crate::geo::domain::Domain;

fn read(inner: &str) -> SideMetadata {
    parse(format!("<PAMDataset>{inner}</PAMDataset>").as_bytes(), Bounds::default()).unwrap()
}

fn band(inner: &str) -> (SideBand, SideMetadata) {
    let mut side = read(&format!("<PAMRasterBand band=\"1\">{inner}</PAMRasterBand>"));
    (side.bands.remove(&1).unwrap(), side)
}

#[test]
fn first_srs_counts_with_its_axes_and_epoch() {
    let side =
        read(r#"<SRS dataAxisToSRSAxisMapping="2,1" coordinateEpoch="2021.3">GEOGCS[&quot;x&quot;]</SRS><SRS>b</SRS>"#);
    let want = SideSrs { text: "GEOGCS[\"x\"]".into(), axis_mapping: Some(vec![2, 1]), coordinate_epoch: Some(2021.3) };
    assert_eq!(side.srs, Some(want));
    assert_eq!(side.problems.len(), 1);
}

#[test]
fn empty_srs_is_none_and_bad_axes_are_reported() {
    assert_eq!(read("<SRS></SRS>").srs, None);
    let side = read(r#"<SRS dataAxisToSRSAxisMapping="2,99">x</SRS>"#);
    assert_eq!(side.srs.unwrap().axis_mapping, None);
    assert_eq!(side.problems.len(), 1);
}

#[test]
fn geotransform_of_any_other_shape_than_six_finite_numbers_is_dropped() {
    let want = Some([1.0, 2.0, 0.0, 3.0, 0.0, -2.0]);
    for good in ["1,2,0,3,0,-2", "  1.0e+00,  2.0,0, 3, 0,-2", "1,,2,0,3,0,-2,"] {
        assert_eq!(read(&format!("<GeoTransform>{good}</GeoTransform>")).geo_transform, want, "{good}");
    }
    for bad in ["1,2,0,3,0", "1 2 0 3 0 -2", "1,2,0,3,0,-2,5", "1,abc,0,3,0,-2", "nan,2,0,3,0,-2", "1,inf,0,3,0,-2"] {
        let side = read(&format!("<GeoTransform>{bad}</GeoTransform>"));
        assert_eq!((side.geo_transform, side.problems.len()), (None, 1), "{bad}");
    }
}

#[test]
fn control_point_with_a_bad_coordinate_is_skipped_alone() {
    let side = read(
        r#"<GCPList Projection="EPSG:4326"><GCP Id="1" Info="i" Pixel="0" Line="0" X="1" Y="2" Z="3"/>
           <GCP Id="" Pixel="4.5" Line="0" X="2" Y="2" GCPZ="7"/><GCP Id="3" Pixel="x"/><Foo/></GCPList>"#,
    );
    assert_eq!(side.gcps.len(), 2);
    assert_eq!((side.gcps[1].pixel, side.gcps[1].z), (4.5, 7.0));
    assert_eq!(side.gcp_srs.unwrap().text, "EPSG:4326");
    assert_eq!(side.unrecognised, ["PAMDataset/GCPList/Foo"]);
    assert_eq!(side.problems.len(), 1);
}

#[test]
fn metadata_is_unescaped_once_and_empty_items_are_dropped() {
    let side = read(
        r#"<Metadata><MDI key="a"></MDI><MDI key="e">p<!--c-->q</MDI><MDI key="f"><![CDATA[ x&amp;<y ]]></MDI>
           <MDI key="g">a &amp;amp; b</MDI><MDI key="h">a & b</MDI><MDI>v</MDI></Metadata><Metadata domain="E"/>
           <Metadata domain="xml:D" format="xml"> <r a="1"><!-- c --></r><s/> </Metadata>"#,
    );
    let items: Vec<_> = side.domains[0].items.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(items, [("e", "p"), ("f", " x&amp;<y "), ("g", "a &amp; b"), ("h", "a ")]);
    assert_eq!(side.domains[1], Domain { name: "E".into(), items: vec![] });
    assert_eq!(side.xml_domains[0].text, r#"<r a="1"><!-- c --></r><s/>"#);
}

#[test]
fn nodata_bits_beat_decimals_and_text_without_digits_is_none() {
    for (xml, want) in [
        ("<NoDataValue>5</NoDataValue>", Some(5.0)),
        ("<NoDataValue le_hex_equiv=\"0000000000001440\">9</NoDataValue>", Some(5.0)),
        ("<NoDataValue le_hex_equiv=\"00001440\">9</NoDataValue>", Some(9.0)),
        ("<NoDataValue le_hex_equiv=\"+000000000001440\">9</NoDataValue>", Some(9.0)),
        ("<NoDataValue>abc</NoDataValue>", None),
        ("<NoDataValue/>", None),
    ] {
        assert_eq!(band(xml).0.nodata.map(|nodata| nodata.value), want, "{xml}");
    }
    assert!(band("<NoDataValue>-nan</NoDataValue>").0.nodata.unwrap().value.is_nan());
    assert_eq!(band("<NoDataValue>9223372036854775807 </NoDataValue>").0.nodata.unwrap().text, "9223372036854775807");
}

#[test]
fn scale_and_offset_are_a_pair_and_comma_is_no_decimal_here() {
    assert_eq!(band("<Scale>2</Scale>").0.offset, Some(0.0));
    assert_eq!(band("<Offset>2</Offset>").0.scale, Some(1.0));
    assert_eq!(band("<Scale>1,5</Scale>").0.scale, Some(1.0));
    let (about, side) = band("<Scale>abc</Scale>");
    assert_eq!((about.scale, about.offset, side.problems.len()), (None, None, 1));
}

#[test]
fn band_without_number_out_of_range_or_twice() {
    let side = read(
        r#"<PAMRasterBand><Scale>3</Scale></PAMRasterBand><PAMRasterBand band="0"/><PAMRasterBand band="4294967297"/>
           <PAMRasterBand band="2"><Description>A</Description><Metadata><MDI key="k">1</MDI></Metadata></PAMRasterBand>
           <PAMRasterBand band="2"><Scale>9</Scale><Metadata><MDI key="l">1</MDI></Metadata></PAMRasterBand>"#,
    );
    assert_eq!(side.bands.len(), 1);
    let about = &side.bands[&2];
    assert_eq!((about.description.as_deref(), about.scale), (None, Some(9.0)));
    assert_eq!(about.domains[0].items.len(), 2);
    assert_eq!(side.problems.len(), 3);
}

#[test]
fn tables_categories_histograms_and_the_unknown_are_listed() {
    let (about, side) = band(
        r#"<CategoryNames><Category>a</Category><Category/><Category>c</Category></CategoryNames>
           <ColorTable><Entry c1="1" c2="2" c3="3" c4="4"/><Entry c1="99999"/></ColorTable>
           <Histograms><HistItem><HistMin>-0.5</HistMin><HistMax>2.5</HistMax><BucketCount>3</BucketCount>
             <IncludeOutOfRange>1</IncludeOutOfRange><Approximate>0</Approximate><HistCounts>1|0|5</HistCounts></HistItem>
             <HistItem><HistMin>0</HistMin><HistMax>1</HistMax><BucketCount>9</BucketCount><HistCounts>1</HistCounts></HistItem></Histograms>
           <Minimum>0</Minimum><Maximum>7</Maximum><Mean>1</Mean>
           <GDALRasterAttributeTable/>"#,
    );
    assert_eq!(about.category_names, ["a", "", "c"]);
    assert_eq!(about.color_table, [[1, 2, 3, 4], [0, 0, 0, 255]]);
    assert_eq!(about.histograms.len(), 1);
    assert_eq!(about.histograms[0].counts, [1, 0, 5]);
    assert!(about.histograms[0].include_out_of_range && !about.histograms[0].approximate);
    assert_eq!((about.min_max, about.mean_stddev), (Some((0.0, 7.0)), None));
    assert_eq!(side.unrecognised, ["PAMRasterBand 1/GDALRasterAttributeTable"]);
    assert_eq!(side.problems.len(), 1);
}

const XFORM: &str = r#"<GeodataXform xsi:type="typens:PolynomialXform"><PolynomialOrder>1</PolynomialOrder>
    <SpatialReference><WKT>PROJCS[&quot;x&quot;]</WKT></SpatialReference>"#;
const COEFFS: &str = "<CoeffX><Double>100</Double><Double>2</Double><Double>0.5</Double></CoeffX>
    <CoeffY><Double>200</Double><Double>0.25</Double><Double>3</Double></CoeffY></GeodataXform>";
const POINTS: &str = "<SourceGCPs><Double>0.5</Double><Double>-1</Double><Double>4</Double><Double>-2</Double></SourceGCPs>
    <TargetGCPs><Double>10</Double><Double>20</Double><Double>30</Double><Double>20</Double></TargetGCPs></GeodataXform>";

#[test]
fn esri_coefficients_count_rows_upwards_from_the_pixel_centre() {
    // GDAL 3.12 reads this file as (99.25, 2.0, -0.5, 201.375, 0.25, -3.0)
    for source in [
        format!("<?xml version=\"1.0\"?>{XFORM}{COEFFS}"),
        format!("<PAMDataset><Metadata domain=\"xml:ESRI\" format=\"xml\">{XFORM}{COEFFS}</Metadata></PAMDataset>"),
        format!("{XFORM}{COEFFS}").replace("GeodataXform", "Esri:GeodataXform"),
    ] {
        let side = parse(source.as_bytes(), Bounds::default()).unwrap();
        assert_eq!(side.geo_transform, Some([99.25, 2.0, -0.5, 201.375, 0.25, -3.0]), "{source}");
        assert_eq!(side.srs.unwrap().text, "PROJCS[\"x\"]");
        assert_eq!(side.xml_domains[0].name, "xml:ESRI");
    }
}

#[test]
fn esri_points_take_the_reference_system_with_them() {
    let side = parse(format!("{XFORM}{POINTS}").as_bytes(), Bounds::default()).unwrap();
    assert_eq!(side.gcps.len(), 2);
    assert_eq!((side.gcps[1].pixel, side.gcps[1].line, side.gcps[1].x), (4.0, 2.0, 30.0));
    assert_eq!(side.srs, None);
    assert_eq!(side.gcp_srs.unwrap().text, "PROJCS[\"x\"]");
}

#[test]
fn esri_place_yields_to_pam_but_its_reference_system_does_not() {
    let side = read(&format!(
        "<SRS>EPSG:4326</SRS><GeoTransform>1,2,0,3,0,-2</GeoTransform><Metadata domain=\"xml:ESRI\" format=\"xml\">{XFORM}{POINTS}</Metadata>"
    ));
    assert_eq!(side.geo_transform, Some([1.0, 2.0, 0.0, 3.0, 0.0, -2.0]));
    assert!(side.gcps.is_empty());
    assert_eq!(side.srs.unwrap().text, "PROJCS[\"x\"]");
}

#[test]
fn esri_lists_of_unequal_length_or_with_words_give_no_points() {
    for points in [
        POINTS.replace("<Double>30</Double>", ""),
        POINTS.replace("30", "x"),
        POINTS.replace("<Double>4</Double>", "").replace("<Double>30</Double>", ""),
    ] {
        let side = parse(format!("{XFORM}{points}").as_bytes(), Bounds::default()).unwrap();
        assert!(side.gcps.is_empty());
        assert!(side.srs.is_some());
    }
}

#[test]
fn declaration_before_pamdataset_hides_it_as_in_gdal() {
    for prolog in ["<?xml version=\"1.0\"?>\n", "<!-- c -->"] {
        let source = format!("{prolog}<PAMDataset><SRS>EPSG:4326</SRS></PAMDataset>");
        let side = parse(source.as_bytes(), Bounds::default()).unwrap();
        assert_eq!((side.srs, side.problems.len()), (None, 1));
    }
    assert!(
        parse("\u{feff}<PAMDataset><SRS>EPSG:4326</SRS></PAMDataset>".as_bytes(), Bounds::default())
            .unwrap()
            .srs
            .is_some()
    );
}

#[test]
fn hostile_side_files_are_refused() {
    for source in [
        "<!DOCTYPE P [<!ENTITY a \"b\">]><PAMDataset>&a;</PAMDataset>".to_owned(),
        "<PAMDataset>".to_owned(),
        "<Other/>".to_owned(),
        "<PAMDataset>".to_owned() + &"<x>".repeat(100_000),
    ] {
        assert!(parse(source.as_bytes(), Bounds::default()).is_err());
    }
    let many = "<Foo/>".repeat(100_000);
    assert!(read(&many).unrecognised.len() < 100);
}
