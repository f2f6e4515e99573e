//! Reading to a GPU, where there is one.

use std::path::Path;

use swath::{Dataset, Error, Mode, ReadOptions, gpu::default_gpu};

/// Reads a file to GPU memory and prints its cost; without a GPU, reads it with the CPU and prints why.
pub fn run(path: &Path) -> Result<(), Error> {
    let dataset = Dataset::open(path)?;
    // With `Auto` the CPU decodes tiles that the GPU cannot, with a notice; `Cuda` would fail.
    let options = ReadOptions::default().with_device(Mode::Auto).with_max_device_memory(2 << 30);
    match default_gpu() {
        Ok(gpu) => {
            let raster = dataset.read_device(&options.with_gpu(gpu))?;
            println!("{:?} of {} on {}", raster.shape(), raster.sample(), raster.report().device);
            println!("{:?}", raster.report().counters);
            // Other libraries take the samples by address (`cuda_array`) or as a DLPack tensor; the host gets them in one copy.
            println!("{} bytes brought back", raster.to_host()?.bytes().len());
        }
        Err(reason) => {
            println!("{reason}");
            let raster = dataset.read(&options)?;
            println!("{:?}", raster.report().map(|report| &report.notices));
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/terrain.tif".into());
    run(Path::new(&path))
}
