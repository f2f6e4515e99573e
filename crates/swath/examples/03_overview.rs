//! Reading the whole scene at a size that fits a screen.

use std::path::Path;

use swath::{Dataset, Error, ReadOptions};

/// Reads the smallest overview that still has 200 x 200 pixels.
pub fn run(path: &Path) -> Result<(), Error> {
    let dataset = Dataset::open(path)?;
    let options = match dataset.best_overview(200, 200)? {
        Some(level) => ReadOptions::default().with_overview(level),
        None => ReadOptions::default(),
    };
    let raster = dataset.read(&options)?;
    let mask = dataset.read_mask(&options)?;
    let data = mask.bytes().iter().filter(|byte| **byte != 0).count();
    println!("{} x {} pixels, {data} of them data", raster.width(), raster.height());
    Ok(())
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/terrain.tif".into());
    run(Path::new(&path))
}
