//! The cost of opening a file.

use std::sync::Arc;

use swath::{
    OpenOptions, ReadOptions, Window,
    io::{MemorySource, ReadInto, Source, SourceError},
};

use crate::build::{Directory, File, Tag};

/// Records every range that is read.
#[derive(Debug)]
struct Log {
    inner: MemorySource,
    ranges: std::sync::Mutex<Vec<(u64, usize)>>,
}

impl Log {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { inner: MemorySource::new("log", bytes), ranges: Default::default() })
    }
    fn take(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.ranges.lock().unwrap())
    }
}

impl Source for Log {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn size(&self) -> Result<u64, SourceError> {
        self.inner.size()
    }
    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        self.ranges.lock().unwrap().extend(reads.iter().map(|read| (read.offset, read.buffer.len())));
        self.inner.read_many(reads)
    }
}

/// 100 000 tiles whose tables take 800 kB, all sparse but the last.
fn wide_file() -> Vec<u8> {
    let mut directory = Directory::tiled(16, 16, 16, |_, _| 42);
    let tile = directory.tiles.remove(0);
    directory.tiles = vec![Vec::new(); 99_999];
    directory.tiles.push(tile);
    File::of(directory.with(256, Tag::Long(vec![16 * 1000])).with(257, Tag::Long(vec![16 * 100]))).bytes()
}

#[test]
fn tile_tables_are_not_read_to_answer_questions_and_in_slices_for_a_window() {
    let log = Log::new(wide_file());
    let dataset = OpenOptions::default().open_source(log.clone()).unwrap();
    let _ = dataset.metadata();
    assert!(dataset.overviews().unwrap().is_empty());
    let opened = log.take();
    assert!(opened.len() <= 2, "{opened:?}");
    assert!(opened.iter().map(|(_, len)| len).sum::<usize>() <= 32 << 10, "{opened:?}");

    let raster = dataset.read(&ReadOptions::default().with_window(Window::new(15_999, 1599, 1, 1))).unwrap();
    assert_eq!(raster.bytes(), [42]);
    let read = log.take();
    assert!(read.len() <= 3, "two slices of tables and a tile: {read:?}");
    assert!(read.iter().map(|(_, len)| len).sum::<usize>() <= 20 << 10, "{read:?}");
}

#[test]
fn small_file_opens_in_one_read() {
    let log = Log::new(File::of(Directory::tiled(100, 100, 16, |x, _| x as u8)).bytes());
    let dataset = OpenOptions::default().open_source(log.clone()).unwrap();
    let _ = (dataset.metadata(), dataset.overviews().unwrap());
    assert_eq!(log.take().len(), 1);
}

#[test]
fn neighbouring_tiles_are_read_together() {
    let log = Log::new(File::of(Directory::tiled(64, 64, 16, |x, y| (x * y) as u8).deflated()).bytes());
    let dataset = OpenOptions::default().open_source(log.clone()).unwrap();
    log.take();
    dataset.read(&ReadOptions::default()).unwrap();
    assert!(log.take().len() <= 2);
}

#[test]
fn missing_file_is_a_source_error_with_the_name() {
    let error = swath::Dataset::open("no/such/file.tif").unwrap_err();
    assert!(error.to_string().contains("no/such/file.tif"), "{error}");
    assert!(
        matches!(error.kind(), swath::ErrorKind::Source(source) if source.io_kind() == Some(std::io::ErrorKind::NotFound))
    );
}
