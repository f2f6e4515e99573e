//! Reading a window, into new memory and into the caller's.

use std::path::Path;

use swath::{Dataset, Error, Interleave, ReadOptions, Window};

/// Reads a window of 256 x 256 pixels from the middle of a file.
pub fn run(path: &Path) -> Result<(), Error> {
    let dataset = Dataset::open(path)?;
    let size = dataset.width().min(dataset.height()).min(256);
    let window = Window::new((dataset.width() - size) / 2, (dataset.height() - size) / 2, size, size);
    let options = ReadOptions::default().with_window(window).with_interleave(Interleave::Pixel);

    let raster = dataset.read(&options)?;
    println!("{:?} samples of {}", raster.shape(), raster.sample());

    // The same into a buffer that is reused.
    let mut buffer = vec![0; dataset.read_len(&options)?];
    dataset.read_into(&options, &mut buffer)?;
    println!("the buffer holds the same bytes: {}", buffer == raster.bytes());
    Ok(())
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/terrain.tif".into());
    run(Path::new(&path))
}
