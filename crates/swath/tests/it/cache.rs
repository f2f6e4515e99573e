//! Tiles kept between windows never change what a window holds.

use std::sync::Arc;

use swath::{
    OpenOptions, ReadOptions, Window,
    io::{MemorySource, Source, SourceError},
};

use crate::build::{Directory, File};

/// Counts bytes, to see that kept tiles are not read again.
#[derive(Debug)]
struct Counting(MemorySource, std::sync::atomic::AtomicU64);

impl Source for Counting {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn size(&self) -> Result<u64, SourceError> {
        self.0.size()
    }
    fn read_many(&self, reads: &mut [swath::io::ReadInto<'_>]) -> Result<(), SourceError> {
        self.1.fetch_add(reads.iter().map(|read| read.buffer.len() as u64).sum(), std::sync::atomic::Ordering::Relaxed);
        self.0.read_many(reads)
    }
}

#[test]
fn windows_are_the_same_with_and_without_a_cache() {
    let value = |x: u32, y: u32| (x ^ (y * 3)) as u8;
    let file = File::of(Directory::tiled(256, 256, 64, value).deflated()).bytes();
    for budget in [0, 40_000, 1 << 20] {
        let source = Arc::new(Counting(MemorySource::new("m", file.clone()), 0.into()));
        let dataset = OpenOptions::default().with_tile_cache(budget).open_source(source.clone()).unwrap();
        for round in 0..3 {
            let before = source.1.load(std::sync::atomic::Ordering::Relaxed);
            for step in 0..60u32 {
                let (x, y) = ((step * 37) % 200, (step * 53) % 200);
                let raster = dataset.read(&ReadOptions::default().with_window(Window::new(x, y, 50, 50))).unwrap();
                for (index, byte) in raster.bytes().iter().enumerate() {
                    assert_eq!(*byte, value(x + index as u32 % 50, y + index as u32 / 50));
                }
            }
            let read = source.1.load(std::sync::atomic::Ordering::Relaxed) - before;
            if budget == 1 << 20 && round == 2 {
                assert_eq!(read, 0, "every tile was kept");
            }
        }
    }
}
