//! Device memory: a read that does not fit is refused before it allocates, or done in batches.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Error, ErrorKind, Interleave, Limits, Mode, OpenOptions, ReadOptions, SampleType, Shape,
    Window, WriteOptions,
    gpu::{DeviceError, Gpu},
    io::MemorySource,
};

use crate::{
    build::{Directory, File, Tag, zlib},
    cases::{self, ON_DEVICE, Rng},
    driver,
};

fn file(compression: Compression) -> Arc<[u8]> {
    let shape = Shape { width: 700, height: 670, bands: 3, sample: SampleType::I16 };
    let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(64, 48));
    cases::write(shape, &cases::samples(shape, &mut Rng::new(8)), &cases::nodata_of(""), &options).unwrap()
}

fn options(gpu: &Arc<Gpu>, budget: u64) -> ReadOptions {
    ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone()).with_max_device_memory(budget)
}

fn required(error: &Error) -> (u64, u64) {
    match error.kind() {
        ErrorKind::Device(DeviceError::Memory { required, available, .. }) => (*required, *available),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_byte_too_little_is_refused_and_takes_nothing() {
    let Some(fake) = driver::fake() else { return };
    for compression in ON_DEVICE {
        fake.with("", |gpu| {
            let dataset = cases::open(&file(compression)).unwrap();
            let expected = dataset.read(&ReadOptions::default()).unwrap();
            let error = dataset.read_device(&options(gpu, 1)).unwrap_err();
            let (least, available) = required(&error);
            assert_eq!(available, 1);
            assert!(least > expected.bytes().len() as u64, "{error}");
            let error = dataset.read_device(&options(gpu, least - 1)).unwrap_err();
            assert_eq!(required(&error), (least, least - 1), "{compression}");
            assert_eq!((fake.count("alloc"), fake.count("h2d"), fake.count("host_alloc")), (0, 0, 0), "{compression}");
            // The memory that the error asks for is enough.
            let raster = dataset.read_device(&options(gpu, least)).unwrap();
            assert!(
                raster.report().batches > 1 && raster.report().counters.peak_bytes <= least,
                "{:?}",
                raster.report()
            );
            assert!(fake.count("peak_bytes") <= least, "{compression}: {} of {least}", fake.count("peak_bytes"));
            assert!(raster.to_host().unwrap().bytes() == expected.bytes(), "{compression}");
        });
    }
}

#[test]
fn more_than_the_device_has_is_refused() {
    let Some(fake) = driver::fake() else { return };
    fake.with("free=400000", |gpu| {
        let dataset = cases::open(&file(Compression::Deflate)).unwrap();
        let read = ReadOptions::default().with_gpu(gpu.clone());
        let (least, available) = required(&dataset.read_device(&read.clone().with_device(Mode::Cuda)).unwrap_err());
        assert!(least > available && available <= 400_000, "{least} {available}");
        assert_eq!(fake.count("alloc"), 0);
    });
}

#[test]
fn too_little_memory_falls_back_to_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    let dataset = cases::open(&file(Compression::Lzw)).unwrap();
    let expected = dataset.read(&ReadOptions::default()).unwrap();
    for script in ["", "free=100000"] {
        fake.with(script, |gpu| {
            let budget = if script.is_empty() { 1000 } else { u64::MAX };
            let read = dataset.read(&options(gpu, budget).with_device(Mode::Auto)).unwrap();
            assert!(read.bytes() == expected.bytes());
            let report = read.report().unwrap();
            assert!(report.notices.len() == 1 && report.notices[0].starts_with("decoded by the CPU: "), "{report:?}");
            assert!(report.notices[0].contains("bytes of device memory"), "{report:?}");
            assert_eq!(fake.count("alloc"), 0);
            required(&dataset.read(&options(gpu, budget)).map(|_| ()).unwrap_err());
        });
    }
}

#[test]
fn to_the_host_everything_fits_in_batches() {
    let Some(fake) = driver::fake() else { return };
    for (seed, compression) in (0..).zip(ON_DEVICE) {
        for interleave in [Interleave::Band, Interleave::Pixel] {
            fake.with(&format!("async=1 seed={seed}"), |gpu| {
                let dataset = cases::open(&file(compression)).unwrap();
                let window = Window::new(3, 5, 690, 660);
                let plain = ReadOptions::default().with_window(window).with_bands([3, 1]).with_interleave(interleave);
                let expected = dataset.read(&plain).unwrap();
                // Memory for one tile row, and little more.
                let row = options(gpu, 1).with_window(Window::new(3, 48, 690, 48)).with_bands([3, 1]);
                let budget = required(&dataset.read_device(&row).unwrap_err()).0 * 5 / 4;
                let limited = plain.with_device(Mode::Cuda).with_gpu(gpu.clone()).with_max_device_memory(budget);
                let read = dataset.read(&limited).unwrap();
                assert!(read.bytes() == expected.bytes(), "{compression} {interleave:?}");
                let report = read.report().unwrap();
                assert!(report.notices.is_empty() && report.host_tiles == 0, "{report:?}");
                assert!(report.counters.peak_bytes <= budget, "{report:?}");
                assert!(report.counters.downloads >= 4, "{report:?}");
            });
        }
    }
}

/// Small files of huge size, under the limits that apply by default: refused for their numbers, like by the CPU.
#[test]
fn bombs_are_refused_before_the_device_is_asked_for_memory() {
    let Some(fake) = driver::fake() else { return };
    // 1 TiB of sparse tiles.
    let declared = cases::sparse(1 << 19, 4096);
    // 64 GiB of zeros in 16,384 tiles that share one stream of a few kilobytes.
    let tile = zlib(&vec![0; 2048 * 2048]);
    let side = 2048 * 128;
    let mut shared = Directory {
        tags: vec![
            (256, Tag::Long(vec![side])),
            (257, Tag::Long(vec![side])),
            (258, Tag::Short(vec![8])),
            (259, Tag::Short(vec![8])),
            (262, Tag::Short(vec![1])),
            (322, Tag::Long(vec![2048])),
            (323, Tag::Long(vec![2048])),
            (324, Tag::Long(vec![16; 128 * 128])),
            (325, Tag::Long(vec![tile.len() as u32; 128 * 128])),
        ],
        tiles: Vec::new(),
    };
    let at = File { big: true, ..File::of(shared.clone()) }.bytes().len() as u32;
    shared = shared.with(324, Tag::Long(vec![at; 128 * 128]));
    let mut expanding = File { big: true, ..File::of(shared) }.bytes();
    expanding.extend(&tile);
    let files: [(&str, Arc<[u8]>); 2] = [("declared", declared), ("expanding", expanding.into())];
    fake.with("", |gpu| {
        fake.script("");
        for (what, file) in files {
            let options = OpenOptions::default();
            let dataset = options.open_source(Arc::new(MemorySource::new("bomb.tif", file))).unwrap();
            let refused = dataset.read(&ReadOptions::default()).map(|_| ()).unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::Limit(_)), "{what}: {refused:?}");
            for mode in [Mode::Cuda, Mode::Auto] {
                let read = ReadOptions::default().with_device(mode).with_gpu(gpu.clone());
                for error in
                    [dataset.read(&read).map(|_| ()).unwrap_err(), dataset.read_device(&read).map(|_| ()).unwrap_err()]
                {
                    assert_eq!(error.to_string(), refused.to_string(), "{what}, {mode:?}");
                }
            }
            assert_eq!((fake.count("alloc"), fake.count("host_alloc"), fake.count("h2d")), (0, 0, 0), "{what}");
        }
    });
}

#[test]
fn sixty_four_gibibytes_of_nothing_are_read_by_windows() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let source = MemorySource::new("sparse.tif", cases::sparse(131_072, 512));
        let dataset = OpenOptions::default().with_limits(Limits::none()).open_source(Arc::new(source)).unwrap();
        let budget = 64 << 20;
        for (x, y) in [(0, 0), (65_537, 1), (131_072 - 4096, 131_072 - 2048)] {
            let window = Window::new(x, y, 4096, 2048);
            let raster = dataset.read_device(&options(gpu, budget).with_window(window)).unwrap();
            assert!(raster.report().counters.peak_bytes <= budget, "{:?}", raster.report());
            let read = raster.to_host().unwrap();
            assert!(read.samples::<f32>().unwrap().iter().all(|sample| *sample == -1.0));
        }
        assert!(fake.count("peak_bytes") <= budget);
        let error = dataset.read_device(&options(gpu, budget)).unwrap_err();
        assert!(required(&error).0 > 64 << 30, "{error}");
    });
}
