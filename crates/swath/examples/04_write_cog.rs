//! Writing a COG row by row, and a part of a file as another.

use std::path::Path;

use swath::{
    Compression, ConvertOptions, Dataset, Error, Metadata, Rows, SampleType, Shape, Window, WriteOptions, Writer,
    geo::{Crs, GeoTransform},
};

/// Writes a wave of 1500 x 1200 pixels, then cuts a window out of it.
pub fn run(path: &Path, part: &Path) -> Result<(), Error> {
    let shape = Shape { width: 1500, height: 1200, bands: 1, sample: SampleType::F32 };
    let mut metadata = Metadata::default();
    metadata.georeference.crs = Crs::from_epsg(32633);
    metadata.georeference.transform = Some(GeoTransform([500_000.0, 10.0, 0.0, 5_200_000.0, 0.0, -10.0]));
    let options = WriteOptions::cog().with_compression(Compression::Zstd);

    let mut writer = Writer::create(path, shape, &metadata, &options)?;
    for y in 0..shape.height {
        let row: Vec<f32> = (0..shape.width).map(|x| (x as f32 / 50.0).sin() * (y as f32 / 70.0).cos()).collect();
        writer.push(&Rows::pixels(&row))?;
    }
    let written = writer.finish()?;
    println!("{} bytes with {} overviews", written.size, written.overviews);

    let window = ConvertOptions::default().with_window(Window::new(200, 100, 512, 512));
    Dataset::open(path)?.convert(part, &window, &WriteOptions::default().with_compression(Compression::Lzw))?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/wave.tif".into());
    run(Path::new(&path), Path::new(&format!("{path}.part.tif")))
}
