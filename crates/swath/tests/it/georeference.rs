//! Georeferencing of a file.

use crate::build::{Directory, File, Tag};

#[test]
fn scale_tie_point_and_code_become_transform_and_crs() {
    let directory = Directory::tiled(16, 16, 16, |_, _| 0)
        .with(33550, Tag::Double(vec![10.0, 20.0, 0.0]))
        .with(33922, Tag::Double(vec![0.0, 0.0, 0.0, 500_000.0, 4_000_000.0, 0.0]))
        .with(34735, Tag::Short(vec![1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633]))
        .with(42113, Tag::Ascii("-9999"));
    let dataset = File::of(directory).open().unwrap();
    let metadata = dataset.metadata();
    let transform = metadata.georeference.transform.unwrap();
    assert_eq!(transform.to_affine(), [10.0, 0.0, 500_000.0, 0.0, -20.0, 4_000_000.0]);
    let crs = metadata.georeference.crs.as_ref().unwrap();
    assert_eq!(crs.code().as_deref(), Some("EPSG:32633"));
    assert!(crs.wkt2.as_ref().unwrap().starts_with("PROJCRS"));
    assert_eq!(metadata.nodata().unwrap().as_f64(), -9999.0);
}

#[test]
fn absurd_georeferencing_is_reported_and_pixels_are_read() {
    let directory = Directory::tiled(16, 16, 16, |_, _| 5)
        .with(33550, Tag::Double(vec![0.0, f64::NAN, 0.0]))
        .with(34735, Tag::Short(vec![1, 1, 0, 9999, 3072, 34736, 500, 60_000]))
        .with(
            42112,
            Tag::Ascii("<!DOCTYPE x [<!ENTITY a \"aaaa\">]><GDALMetadata><Item name=\"k\">&a;</Item></GDALMetadata>"),
        );
    let dataset = File::of(directory).open().unwrap();
    let metadata = dataset.metadata();
    assert!(metadata.georeference.transform.is_none());
    assert!(metadata.problems.len() >= 3, "{:?}", metadata.problems);
    assert_eq!(dataset.read(&swath::ReadOptions::default()).unwrap().bytes()[0], 5);
}
