//! Remote files: few requests, no unneeded bytes, and none twice.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use swath::{
    Blocks, Cancel, Compression, Dataset, ErrorKind, Interleave, OpenOptions, ReadOptions, SampleType, Window,
    WriteOptions,
    io::{Access, MemorySource, ReadInto, Source, SourceError},
    tiff::structure::Planar,
};

use crate::scene::{Feed, Scene, shape};

/// Bytes that arrive a few at a time, and a log of requests.
#[derive(Debug)]
struct Far {
    inner: MemorySource,
    asked: Mutex<Vec<Range<u64>>>,
    /// The offset from which on reads fail.
    lost: Option<u64>,
    /// How long each answer takes.
    latency: Duration,
}

impl Far {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            inner: MemorySource::new("far", bytes),
            asked: Mutex::default(),
            lost: None,
            latency: Duration::ZERO,
        })
    }

    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Source for Far {
    fn name(&self) -> &str {
        "far"
    }

    fn size(&self) -> Result<u64, SourceError> {
        self.inner.size()
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads.iter() {
            let range = read.offset..read.offset + read.buffer.len() as u64;
            if self.lost.is_some_and(|lost| range.end > lost) {
                return Err(SourceError::BeyondEnd { offset: range.start, len: 1, size: 0 });
            }
            self.asked.lock().unwrap().push(range);
        }
        self.inner.read_many(reads)
    }

    fn read_streamed(
        &self,
        offset: u64,
        buffer: &mut [u8],
        _stop: &(dyn Fn() -> bool + Sync),
        arrived: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SourceError> {
        self.asked.lock().unwrap().push(offset..offset + buffer.len() as u64);
        std::thread::sleep(self.latency);
        self.inner.read_at(offset, buffer)?;
        for step in (0..=buffer.len()).step_by(7001).chain([buffer.len()]) {
            if self.lost.is_some_and(|lost| offset + step as u64 > lost) {
                return Err(SourceError::BeyondEnd { offset, len: 1, size: 0 });
            }
            arrived(&buffer[..step]);
        }
        Ok(())
    }

    fn access(&self) -> Access {
        Access::REMOTE
    }
}

fn open(far: &Arc<Far>) -> Dataset {
    OpenOptions::default().open_source(far.clone()).unwrap()
}

fn cog() -> (Scene, Vec<u8>) {
    let scene = Scene::new(shape(2048, 1500, 1, SampleType::U16), 7);
    let bytes = scene.write(&WriteOptions::cog().with_blocks(Blocks::Tiles(128, 128)), Feed::WholeBands).unwrap();
    (scene, bytes)
}

fn expected(scene: &Scene, window: Window) -> Vec<u8> {
    let (size, width) = (scene.shape.sample.size(), scene.shape.width as usize);
    let plane = width * scene.shape.height as usize * size;
    let row = |band: &[u8], y: u32| {
        let start = (y as usize * width + window.x as usize) * size;
        band[start..start + window.width as usize * size].to_vec()
    };
    let rows = |band: &[u8]| (window.y..window.y + window.height).flat_map(|y| row(band, y)).collect::<Vec<u8>>();
    scene.samples.chunks_exact(plane).flat_map(rows).collect()
}

/// Bytes of the tiles that a window touches.
fn tile_bytes(dataset: &Dataset, window: Window) -> u64 {
    let image = dataset.main();
    let (columns, rows) = image.grid().span(&window);
    let tiles = rows.flat_map(|row| columns.clone().map(move |column| (column, row)));
    let len = |(column, row)| dataset.tile_bytes(image, column, row, 0).unwrap().unwrap().len() as u64;
    tiles.map(len).sum()
}

#[test]
fn header_takes_one_request_and_a_row_of_tiles_another() {
    let (scene, bytes) = cog();
    let far = Far::new(bytes);
    let dataset = open(&far);
    assert_eq!(dataset.overviews().unwrap().len(), 4);
    let _ = dataset.metadata();
    assert_eq!(far.take().len(), 1, "directories, tables and metadata lie in the first bytes");
    for window in [Window::new(128, 256, 256, 256), Window::new(300, 300, 256, 256), Window::new(0, 0, 2048, 128)] {
        let dataset = open(&far);
        far.take();
        let raster = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
        assert!(raster.bytes() == expected(&scene, window), "{window}");
        let asked = far.take();
        let rows = dataset.main().grid().span(&window).1.len();
        assert!(asked.len() <= rows, "{window}: {asked:?}");
        let read: u64 = asked.iter().map(|range| range.end - range.start).sum();
        assert!(read * 100 <= tile_bytes(&dataset, window) * 115, "{window}: {read} bytes");
    }
}

#[test]
fn fetched_tiles_are_not_fetched_again() {
    let (scene, bytes) = cog();
    let far = Far::new(bytes);
    let dataset = open(&far);
    let window = Window::new(128, 128, 256, 256);
    let read = || dataset.read(&ReadOptions::default().with_window(window)).unwrap().bytes().to_vec();
    assert!(read() == expected(&scene, window));
    far.take();
    assert!(read() == expected(&scene, window));
    assert_eq!(far.take(), [], "tiles that the window covers wholly are kept too");
    assert_eq!(dataset.cache_hits(), 4);
}

#[test]
fn tables_are_fetched_in_slices_and_together() {
    // So many tiles that their tables are far longer than the first read.
    let scene = Scene::new(shape(4096, 4096, 1, SampleType::U8), 3);
    let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16));
    let bytes = scene.write(&options, Feed::WholeBands).unwrap();
    let far = Far::new(bytes);
    let dataset = open(&far);
    let _ = (dataset.overviews().unwrap(), dataset.metadata());
    assert_eq!(far.take().len(), 1);
    let window = Window::new(2000, 2000, 64, 64);
    let raster = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
    assert!(raster.bytes() == expected(&scene, window));
    let asked = far.take();
    let rows = dataset.main().grid().span(&window).1.len();
    assert!(asked.len() <= rows + 2, "one slice of each table, one read for each row: {asked:?}");
    assert!(asked.iter().map(|range| range.end - range.start).sum::<u64>() < 64 << 10, "{asked:?}");
}

#[test]
fn every_layout_is_the_same_over_a_network() {
    for (planar, bands, compression) in [
        (Planar::Contig, 3, Compression::Deflate),
        (Planar::Separate, 3, Compression::Zstd),
        (Planar::Separate, 2, Compression::None),
        (Planar::Contig, 1, Compression::None),
    ] {
        let scene = Scene::new(shape(300, 280, bands, SampleType::U16), 11);
        let options = WriteOptions::default().with_planar(planar).with_compression(compression);
        for blocks in [Blocks::Tiles(64, 64), Blocks::Strips(None)] {
            let bytes = scene.write(&options.clone().with_blocks(blocks), Feed::WholeBands).unwrap();
            for window in [
                Window::new(0, 0, 300, 280),
                Window::new(70, 100, 129, 65),
                Window::new(64, 128, 64, 64),
                Window::new(299, 279, 1, 1),
            ] {
                let far = Far::new(bytes.clone());
                let raster = open(&far).read(&ReadOptions::default().with_window(window)).unwrap();
                assert!(raster.bytes() == expected(&scene, window), "{planar:?} {compression} {blocks:?} {window}");
                let dataset = open(&far);
                for _ in 0..2 {
                    let again = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
                    assert!(again.bytes() == expected(&scene, window), "again: {window}");
                }
                let windows = [window, Window::new(0, 0, window.width, window.height)];
                let options = ReadOptions::default();
                let mut both = vec![0; dataset.read_windows_len(&options, &windows).unwrap()];
                dataset.read_windows_into(&options, &windows, &mut both).unwrap();
                assert!(both == windows.map(|window| expected(&scene, window)).concat(), "batch: {window}");
            }
        }
    }
}

#[test]
fn read_that_breaks_off_fails_and_names_the_place() {
    let (scene, bytes) = cog();
    let whole = bytes.len() as u64;
    for lost in [whole - 5, whole / 2, whole / 4] {
        let mut far = Far::new(bytes.clone());
        Arc::get_mut(&mut far).unwrap().lost = Some(lost);
        let dataset = open(&far);
        let error = dataset.read(&ReadOptions::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Source(_)), "{error}");
        assert!(error.to_string().starts_with("far: IFD 0, tile ("), "{error}");
        // The rest can still be read.
        if lost > whole / 2 {
            let window = Window::new(0, 0, 128, 128);
            let raster = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
            assert!(raster.bytes() == expected(&scene, window));
        }
    }
}

#[test]
fn cancelled_remote_read_is_an_error() {
    let (_, bytes) = cog();
    let cancel = Cancel::new();
    cancel.cancel();
    let error = open(&Far::new(bytes)).read(&ReadOptions::default().with_cancel(cancel)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
}

#[test]
fn tile_that_another_read_is_fetching_is_not_fetched_again() {
    let (scene, bytes) = cog();
    let mut far = Far::new(bytes);
    Arc::get_mut(&mut far).unwrap().latency = Duration::from_millis(20);
    let dataset = open(&far);
    far.take();
    let windows: Vec<Window> = (0..40).map(|step| Window::new(step * 30, 100 + step % 7, 300, 200)).collect();
    let mut out = vec![0; dataset.read_windows_len(&ReadOptions::default(), &windows).unwrap()];
    dataset.read_windows_into(&ReadOptions::default(), &windows, &mut out).unwrap();
    for (window, found) in windows.iter().zip(out.chunks_exact(out.len() / windows.len())) {
        assert!(found == expected(&scene, *window), "{window}");
    }
    let mut asked = far.take();
    asked.sort_by_key(|range| range.start);
    assert!(asked.windows(2).all(|pair| pair[0].end <= pair[1].start), "{asked:?}");
    assert!(dataset.cache_hits() > 0);
}

#[test]
fn failed_fetch_wakes_waiting_reads() {
    let (scene, bytes) = &cog();
    let whole = bytes.len() as u64;
    let mut far = Far::new(bytes.clone());
    let remote = Arc::get_mut(&mut far).unwrap();
    (remote.latency, remote.lost) = (Duration::from_millis(5), Some(whole - whole / 3));
    let dataset = open(&far);
    // The last tile row is missing, the first is there; all windows overlap.
    let read = &|y: u32| dataset.read(&ReadOptions::default().with_window(Window::new(0, y, 2048, 200)));
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            scope.spawn(move || {
                for round in 0..4 {
                    if (thread + round) % 2 == 0 {
                        assert!(read(1300).is_err(), "{round}");
                    } else {
                        assert!(read(0).unwrap().bytes() == expected(scene, Window::new(0, 0, 2048, 200)));
                    }
                }
            });
        }
    });
}

#[test]
fn rows_of_uncompressed_tiles_and_planes_of_tiles_come_together() {
    let scene = Scene::new(shape(1024, 512, 3, SampleType::U16), 5);
    for (planar, compression) in [
        (Planar::Separate, Compression::Deflate),
        (Planar::Contig, Compression::None),
        (Planar::Separate, Compression::None),
    ] {
        let options = WriteOptions::default().with_planar(planar).with_compression(compression);
        let bytes = scene.write(&options.with_blocks(Blocks::Tiles(128, 128)), Feed::WholeBands).unwrap();
        for interleave in [Interleave::Band, Interleave::Pixel] {
            // Rows of tiles that are apart, plane by plane, are many ranges.
            if (planar, compression, interleave) == (Planar::Separate, Compression::None, Interleave::Pixel) {
                continue;
            }
            let far = Far::new(bytes.clone());
            let dataset = open(&far);
            far.take();
            let window = Window::new(100, 60, 700, 300);
            let read = ReadOptions::default().with_window(window).with_interleave(interleave);
            let raster = dataset.read(&read).unwrap();
            if interleave == Interleave::Band {
                assert!(raster.bytes() == expected(&scene, window), "{planar:?} {compression}");
            }
            // A remote source merges ranges that are requested together; this one counts each range.
            let asked = far.take();
            let merged = swath_io::coalesce::coalesce(&asked, Access::REMOTE.merge);
            let rows = dataset.main().grid().span(&window).1.len();
            let most = if planar == Planar::Separate { 3 * rows } else { rows };
            assert!(merged.len() <= most, "{planar:?} {compression} {interleave:?}: {merged:?}");
        }
    }
}
