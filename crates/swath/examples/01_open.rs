//! Opening a file and printing its metadata, without reading a pixel.

use std::path::Path;

use swath::{Dataset, Error};

/// Prints the metadata of a file.
pub fn run(path: &Path) -> Result<(), Error> {
    let dataset = Dataset::open(path)?;
    println!("{} x {} pixels, {} bands of {}", dataset.width(), dataset.height(), dataset.bands(), dataset.sample());
    let georeference = &dataset.metadata().georeference;
    if let (Some(crs), Some(transform)) = (&georeference.crs, georeference.transform) {
        println!("{}: {:?}", crs.name, transform.bounds(dataset.width(), dataset.height()));
    }
    for problem in &dataset.metadata().problems {
        eprintln!("warning: {problem}");
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/terrain.tif".into());
    run(Path::new(&path))
}
