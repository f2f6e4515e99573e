//! A window of a remote file, and its cost.

use swath::{Error, OpenOptions, ReadOptions, Window, io::RemoteOptions};

/// Reads a corner of the file and prints requests and bytes.
pub fn run(address: &str) -> Result<(), Error> {
    let remote = RemoteOptions::default().with_anonymous(true).with_max_bytes(64 << 20);
    let dataset = OpenOptions::default().with_remote(remote).open(address)?;
    let window = Window::new(0, 0, dataset.width().min(512), dataset.height().min(512));
    let raster = dataset.read(&ReadOptions::default().with_window(window))?;
    let traffic = dataset.traffic().unwrap_or_default();
    println!(
        "{} x {} pixels in {} requests and {} bytes",
        raster.width(),
        raster.height(),
        traffic.requests,
        traffic.received
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://localhost:8000/demo/terrain-cog.tif".into());
    run(&address)
}
