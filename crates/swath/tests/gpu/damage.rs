//! A damaged tile gives the CPU's error; its neighbours and the next read are right.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use swath::{
    Blocks, Cancel, Compression, ErrorKind, Limits, Mode, OpenOptions, ReadOptions, SampleType, Shape, Window,
    WriteOptions,
    gpu::{DeviceError, Gpu},
    io::{MemorySource, ReadInto, Source, SourceError},
};

use crate::{
    build::{Directory, File, Tag, zlib},
    cases::{self, Rng},
    driver,
};

/// Square tiles, as many across as down.
#[derive(Clone, Copy)]
struct Grid {
    across: u32,
    tile: u32,
}

const MANY: Grid = Grid { across: 8, tile: 16 };
/// Large enough that several blocks share a tile.
const LARGE: Grid = Grid { across: 3, tile: 160 };

fn file(compression: Compression, seed: u64, grid: Grid) -> Arc<[u8]> {
    let mut rng = Rng::new(seed);
    let sample = rng.pick(&[SampleType::U8, SampleType::U16, SampleType::F32]);
    let side = grid.across * grid.tile;
    let shape = Shape { width: side, height: side, bands: 1, sample };
    let blocks = Blocks::Tiles(grid.tile, grid.tile);
    let options = WriteOptions::default().with_compression(compression).with_blocks(blocks);
    cases::write(shape, &cases::samples(shape, &mut rng), &cases::nodata_of(""), &options).unwrap()
}

fn window(grid: Grid, tile: u32) -> Window {
    let Grid { across, tile: side } = grid;
    Window::new(tile % across * side, tile / across * side, side, side)
}

fn auto(gpu: &Arc<Gpu>) -> ReadOptions {
    ReadOptions::default().with_device(Mode::Auto).with_gpu(gpu.clone())
}

/// Damages every tile of a file and reads each by itself, then some tiles and reads them all.
fn spoiled(compression: Compression, script: &str, grid: Grid, rounds: u64) {
    let Some(fake) = driver::fake() else { return };
    fake.with(script, |gpu| {
        let (mut refused, mut unharmed) = (0, 0);
        for round in 0..rounds {
            let mut rng = Rng::new(round + 100);
            let good = file(compression, round, grid);
            let ranges = cases::tiles(&good).unwrap();
            let mut bad = good.to_vec();
            for (number, range) in ranges.iter().enumerate() {
                cases::spoil(&mut bad, range, number, &mut rng);
            }
            let bad: Arc<[u8]> = bad.into();
            for tile in 0..ranges.len() as u32 {
                let what = || format!("{compression} {script}, file {round}, tile {tile}");
                let window = window(grid, tile);
                let plain = ReadOptions::default().with_window(window);
                match cases::agree(&bad, &plain, &auto(gpu).with_window(window)) {
                    Ok(Some(report)) => {
                        unharmed += 1;
                        assert_eq!(report.notices.len() as u64, report.host_tiles, "{}: {report:?}", what());
                    }
                    Ok(None) => refused += 1,
                    Err(fault) => panic!("{}: {fault}", what()),
                }
            }
            let mut few = good.to_vec();
            for _ in 0..rng.within(1..4) {
                let number = rng.below(ranges.len() as u64) as usize;
                cases::spoil(&mut few, &ranges[number], number, &mut rng);
            }
            for bad in [bad, few.into()] {
                // With one thread the first damaged tile is found first.
                cases::agree(&bad, &ReadOptions::default().with_threads(1), &auto(gpu))
                    .unwrap_or_else(|fault| panic!("{compression} {script}, file {round}: {fault}"));
            }
            let next = cases::agree(&good, &ReadOptions::default(), &auto(gpu).with_device(Mode::Cuda));
            assert!(matches!(next, Ok(Some(_))), "{compression}, after file {round}: {next:?}");
        }
        assert!(refused > rounds, "{compression}: {refused} refused, {unharmed} not");
    });
}

fn spoiled_in_all_ways(compression: Compression) {
    spoiled(compression, "", MANY, 12);
    spoiled(compression, "async=1 seed=3", MANY, 3);
    spoiled(compression, "", LARGE, 8);
    spoiled(compression, "sms=60 async=1 seed=4", LARGE, 8);
}

#[test]
fn damaged_deflate_tiles_fail_as_on_the_cpu() {
    spoiled_in_all_ways(Compression::Deflate);
}

#[test]
fn damaged_lzw_tiles_fail_as_on_the_cpu() {
    spoiled_in_all_ways(Compression::Lzw);
}

#[test]
fn damaged_packbits_tiles_fail_as_on_the_cpu() {
    spoiled_in_all_ways(Compression::PackBits);
}

#[test]
fn damaged_zstd_tiles_fail_as_on_the_cpu() {
    spoiled_in_all_ways(Compression::Zstd);
}

#[test]
fn the_error_names_tile_and_byte_and_neighbours_are_whole() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for compression in [Compression::Deflate, Compression::Lzw, Compression::PackBits, Compression::Zstd] {
            let good = file(compression, 1, MANY);
            let ranges = cases::tiles(&good).unwrap();
            let mut bad = good.to_vec();
            // Too short for any codec.
            cases::shorten(&mut bad, 27, 3);
            let bad: Arc<[u8]> = bad.into();
            let dataset = cases::open(&bad).unwrap();
            let cpu = dataset.read(&ReadOptions::default()).unwrap_err();
            for mode in [Mode::Cuda, Mode::Auto] {
                let error = dataset.read_device(&auto(gpu).with_device(mode)).unwrap_err();
                assert_eq!(error.to_string(), cpu.to_string(), "{compression} {mode:?}");
                assert_eq!(error.place().tile, Some((3, 3)), "{error}");
                assert_eq!(error.place().offset, Some(ranges[27].start as u64), "{error}");
                let read = dataset.read(&auto(gpu).with_device(mode)).unwrap_err();
                assert_eq!(read.to_string(), cpu.to_string(), "{compression} {mode:?}");
            }
            for tile in [18, 19, 20, 26, 28, 34, 35, 36] {
                let plain = ReadOptions::default().with_window(window(MANY, tile));
                let report =
                    cases::agree(&bad, &plain, &auto(gpu).with_device(Mode::Cuda).with_window(window(MANY, tile)));
                assert!(matches!(report, Ok(Some(_))), "{compression}, tile {tile}: {report:?}");
            }
        }
    });
}

/// Strips whose last one is stored at full height, which the CPU accepts and the kernels do not.
fn long_strip() -> Arc<[u8]> {
    let strip = |number: u8| zlib(&(0..32 * 16).map(|at| (at as u8).wrapping_mul(number + 3)).collect::<Vec<u8>>());
    let tags = vec![
        (256, Tag::Long(vec![32])),
        (257, Tag::Long(vec![40])),
        (258, Tag::Short(vec![8])),
        (259, Tag::Short(vec![8])),
        (262, Tag::Short(vec![1])),
        (277, Tag::Short(vec![1])),
        (278, Tag::Long(vec![16])),
    ];
    File::of(Directory { tags, tiles: vec![strip(0), strip(1), strip(2)] }).bytes().into()
}

#[test]
fn the_cpu_decodes_a_tile_that_the_gpu_refuses_where_allowed() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=1"] {
        fake.with(script, |gpu| {
            let file = long_strip();
            let dataset = cases::open(&file).unwrap();
            let expected = dataset.read(&ReadOptions::default()).unwrap();
            let error = dataset.read_device(&auto(gpu).with_device(Mode::Cuda)).unwrap_err();
            assert_eq!(error.place().tile, Some((0, 2)), "{error}");
            assert!(
                error.to_string().contains("refused this tile") && error.to_string().contains("device auto"),
                "{error}"
            );
            assert!(matches!(error.kind(), ErrorKind::Device(DeviceError::Declined(_))), "{error}");
            for options in [auto(gpu), auto(gpu).with_device(Mode::Cuda).with_cpu_decode(true)] {
                for raster in [dataset.read_device(&options).unwrap().to_host(), dataset.read(&options)] {
                    let raster = raster.unwrap();
                    assert!(raster.bytes() == expected.bytes());
                    let report = raster.report().unwrap();
                    assert_eq!((report.device_tiles, report.host_tiles), (2, 1));
                    assert_eq!(report.notices.len(), 1, "{report:?}");
                    assert!(report.notices[0].starts_with("some tiles were decoded by the CPU"), "{report:?}");
                }
            }
            // Parts of that tile, and budgets that leave no copy of it on the device.
            let refused = dataset.read_device(&auto(gpu).with_max_device_memory(1)).unwrap_err();
            let ErrorKind::Device(DeviceError::Memory { required, .. }) = refused.kind() else { panic!("{refused}") };
            for options in [auto(gpu), auto(gpu).with_max_device_memory(*required)] {
                let part = Window::new(5, 30, 20, 10);
                for window in [part, Window::new(0, 0, 32, 40)] {
                    let options = options.clone().with_window(window);
                    let report = cases::agree(&file, &ReadOptions::default().with_window(window), &options);
                    assert!(matches!(&report, Ok(Some(report)) if report.host_tiles <= 1), "{report:?}");
                }
            }
        });
    }
}

#[test]
fn a_truncated_file_fails_as_on_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for compression in [Compression::None, Compression::Deflate, Compression::Lzw, Compression::Zstd] {
            let whole = file(compression, 2, MANY);
            for parts in 1..12 {
                let cut: Arc<[u8]> = whole[..whole.len() * parts / 12].into();
                let what = || format!("{compression}, {parts} of 12");
                cases::agree(&cut, &ReadOptions::default().with_threads(1), &auto(gpu))
                    .unwrap_or_else(|fault| panic!("{}: {fault}", what()));
                for tile in [0, 31, 63] {
                    let plain = ReadOptions::default().with_window(window(MANY, tile));
                    cases::agree(&cut, &plain, &auto(gpu).with_window(window(MANY, tile)))
                        .unwrap_or_else(|fault| panic!("{}: {fault}", what()));
                }
            }
        }
    });
}

/// A file that becomes shorter, or whose reader cancels, after a number of reads.
#[derive(Debug)]
struct Turning {
    inner: MemorySource,
    left: AtomicU64,
    cancel: Option<Cancel>,
}

impl Source for Turning {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, SourceError> {
        self.inner.size()
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        match (left, &self.cancel) {
            (0, Some(cancel)) => cancel.cancel(),
            (0, None) => {
                let first = reads.first().map_or(0, |read| read.offset);
                return Err(SourceError::BeyondEnd { offset: first, len: 1, size: first });
            }
            _ => {}
        }
        self.inner.read_many(reads)
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error_of_the_file() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=2", |gpu| {
        let shape = Shape { width: 900, height: 900, bands: 1, sample: SampleType::F32 };
        let options = WriteOptions::default().with_compression(Compression::None).with_blocks(Blocks::Tiles(64, 64));
        let data = cases::samples(shape, &mut Rng::new(1));
        let file = cases::write(shape, &data, &cases::nodata_of(""), &options).unwrap();
        for cancels in [false, true] {
            let (mut failed, mut done) = (0, 0);
            for reads in 0..40 {
                let cancel = Cancel::new();
                let source = Arc::new(Turning {
                    inner: MemorySource::new("turning.tif", file.clone()),
                    left: u64::MAX.into(),
                    cancel: cancels.then(|| cancel.clone()),
                });
                let dataset = OpenOptions::default().with_limits(Limits::none()).open_source(source.clone()).unwrap();
                for mode in [Mode::Auto, Mode::Cuda] {
                    source.left.store(reads, Ordering::Relaxed);
                    let options = auto(gpu).with_device(mode).with_cancel(cancel.clone()).with_threads(2);
                    match dataset.read(&options) {
                        Ok(raster) => {
                            assert!(raster.bytes() == data, "{reads} {mode:?}");
                            done += 1;
                        }
                        Err(error) if cancels => {
                            assert!(matches!(error.kind(), ErrorKind::Cancelled), "{reads} {mode:?}: {error}");
                            failed += 1;
                        }
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::Source(_)), "{reads} {mode:?}: {error}");
                            assert!(error.place().tile.is_some(), "{reads} {mode:?}: {error}");
                            failed += 1;
                        }
                    }
                }
            }
            assert!(failed > 4 && done > 4, "cancels {cancels}: {failed} failed, {done} not");
        }
        let after = cases::agree(&file, &ReadOptions::default(), &auto(gpu).with_device(Mode::Cuda));
        assert!(matches!(after, Ok(Some(_))), "{after:?}");
    });
}

#[test]
fn refused_tiles_come_back_in_one_copy_whatever_lies_between_them() {
    let Some(fake) = driver::fake() else { return };
    for compression in [Compression::Deflate, Compression::Lzw, Compression::PackBits, Compression::Zstd] {
        fake.with("async=1 seed=3", |gpu| {
            // Every third tile is all nodata and so not stored.
            let shape = Shape { width: 128, height: 128, bands: 1, sample: SampleType::U8 };
            let mut data = cases::samples(shape, &mut Rng::new(2));
            for (at, sample) in data.iter_mut().enumerate() {
                *sample = if (at / 128 / 16 * 8 + at % 128 / 16) % 3 == 1 { 0 } else { (*sample).max(1) };
            }
            let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(16, 16));
            let good = cases::write(shape, &data, &cases::nodata_of("0"), &options.with_sparse(true)).unwrap();
            let ranges = cases::tiles(&good).unwrap();
            let stored = ranges.iter().filter(|range| !range.is_empty()).count() as u64;
            assert!(ranges[1].is_empty() && ranges[28].is_empty() && stored == 43, "{stored}");
            cases::agree(&good, &ReadOptions::default(), &auto(gpu).with_device(Mode::Cuda)).unwrap().unwrap();
            // Some neighbours of those are damaged: the first stored tile, ones in the middle, and the last.
            for bad_tiles in [&[27][..], &[0, 2], &[0, 27, 29, 63], &[26, 27, 29, 30, 32, 33, 35, 36, 38, 39, 41, 42]] {
                let mut bad = good.to_vec();
                for tile in bad_tiles {
                    assert!(!ranges[*tile].is_empty(), "{tile}");
                    cases::shorten(&mut bad, *tile, 2);
                }
                let bad: Arc<[u8]> = bad.into();
                let dataset = cases::open(&bad).unwrap();
                let cpu = dataset.read(&ReadOptions::default().with_threads(1)).unwrap_err().to_string();
                for mode in [Mode::Cuda, Mode::Auto] {
                    let what = format!("{compression} {mode:?}, damaged {bad_tiles:?}");
                    fake.script("async=1 seed=3");
                    let error = dataset.read_device(&auto(gpu).with_device(mode)).unwrap_err();
                    assert_eq!(error.to_string(), cpu, "{what}");
                    // The statuses, and the streams from the first to the last of them.
                    assert_eq!((fake.count("d2h"), fake.count("sync")), (2, 2), "{what}");
                    let streams = fake.count("d2h_bytes") - 4 * stored;
                    assert!(
                        streams >= 2 * bad_tiles.len() as u64 && streams < good.len() as u64 * 4,
                        "{what}: {streams}"
                    );
                }
            }
        });
    }
}

#[test]
fn a_cancelled_read_does_not_begin() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let file = file(Compression::Deflate, 3, MANY);
        let cancel = Cancel::new();
        cancel.cancel();
        for mode in [Mode::Auto, Mode::Cuda] {
            let options = auto(gpu).with_device(mode).with_cancel(cancel.clone());
            let dataset = cases::open(&file).unwrap();
            for error in [dataset.read(&options).map(|_| ()), dataset.read_device(&options).map(|_| ())] {
                assert!(matches!(error.unwrap_err().kind(), ErrorKind::Cancelled));
            }
        }
        // Each read copied no more than its tables.
        assert!(fake.count("h2d") <= 4 && fake.count("launch") == 0, "{} copies", fake.count("h2d"));
    });
}
