//! Many windows in one call to a GPU: the samples of the CPU, one wait, and every tile decoded once.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Dataset, Error, ErrorKind, Interleave, Mode, Overviews, ReadOptions, SampleType, Shape,
    Window, WriteOptions,
    gpu::{DeviceError, DeviceReport, Gpu},
    tiff::structure::{ByteOrder, Planar},
};

use crate::{
    build::{Directory, File, Tag, zlib},
    cases::{self, Case, ON_DEVICE, Rng},
    driver::{self, Fake},
    written::{self, PushMethod},
};

/// Cases of each script.
const CASES: usize = 40;

fn file(compression: Compression, planar: Planar) -> Arc<[u8]> {
    let shape = Shape { width: 100, height: 90, bands: 2, sample: SampleType::U16 };
    let options =
        WriteOptions::default().with_compression(compression).with_planar(planar).with_blocks(Blocks::Tiles(32, 32));
    cases::write(shape, &cases::samples(shape, &mut Rng::new(3)), &cases::nodata_of(""), &options).unwrap()
}

fn options(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone()).with_threads(2)
}

/// Windows of one size that overlap, repeat, and touch all edges.
fn draw(rng: &mut Rng, dataset: &Dataset, count: usize) -> Vec<Window> {
    let (width, height) = (dataset.main().layout().width, dataset.main().layout().height);
    let (w, h) = (rng.within(1..width + 1), rng.within(1..height + 1));
    let (right, lower) = (width - w, height - h);
    let mut windows = vec![Window::new(right, lower, w, h), Window::new(0, 0, w, h), Window::new(right, 0, w, h)];
    while windows.len() < count {
        let again = rng.pick(&windows);
        let other = Window::new(rng.within(0..right + 1), rng.within(0..lower + 1), w, h);
        windows.push(if rng.chance(4) { again } else { other });
    }
    windows.truncate(count);
    windows
}

/// The samples of each window, read alone by the CPU.
fn expected(dataset: &Dataset, plain: &ReadOptions, windows: &[Window]) -> Vec<Vec<u8>> {
    let read = |window: &Window| dataset.read(&plain.clone().with_window(*window)).unwrap().bytes().to_vec();
    windows.iter().map(read).collect()
}

/// Windows one after the other, as they follow each other in the raster.
fn below_each_other(windows: &[Vec<u8>], bands: usize, interleave: Interleave) -> Vec<u8> {
    if interleave == Interleave::Pixel {
        return windows.concat();
    }
    let plane = windows.first().map_or(1, |window| window.len() / bands);
    (0..bands)
        .flat_map(|band| windows.iter().flat_map(move |window| &window[band * plane..][..plane]))
        .copied()
        .collect()
}

/// Fails unless a batch to the device, and one through it, equal the windows read alone.
fn agree(
    dataset: &Dataset,
    plain: &ReadOptions,
    device: &ReadOptions,
    windows: &[Window],
) -> Result<DeviceReport, String> {
    let singles = expected(dataset, plain, windows);
    let raster = dataset.read_windows_device(device, windows).map_err(|error| error.to_string())?;
    let (bands, interleave) = (raster.bands() as usize, raster.interleave());
    let shape = (raster.width(), raster.height());
    if shape != (windows[0].width, windows[0].height * windows.len() as u32) {
        return Err(format!("shape {shape:?}"));
    }
    if raster.to_host().unwrap().bytes() != below_each_other(&singles, bands, interleave) {
        return Err("other samples on the device".into());
    }
    let report = raster.report().clone();
    drop(raster);
    let mut out = vec![0xa5; dataset.read_windows_len(device, windows).unwrap()];
    dataset.read_windows_into(device, windows, &mut out).map_err(|error| error.to_string())?;
    if out != singles.concat() {
        return Err("other samples through the device".into());
    }
    Ok(report)
}

/// The least memory that a batch needs, as its error states it.
fn least(dataset: &Dataset, device: &ReadOptions, windows: &[Window]) -> u64 {
    let error = dataset.read_windows_device(&device.clone().with_max_device_memory(1), windows).unwrap_err();
    match error.kind() {
        ErrorKind::Device(DeviceError::Memory { required, .. }) => *required,
        _ => panic!("{error}"),
    }
}

#[test]
fn a_batch_equals_its_windows_one_by_one() {
    let Some(fake) = driver::fake() else { return };
    let mut batched = 0;
    for (seed, script) in ["", "async=1 seed=0", "sms=60", "async=1 seed=5"].into_iter().enumerate() {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(seed as u64 + 20);
            for number in 0..CASES {
                let case = Case::draw(&mut rng);
                let dataset = cases::open(&case.file).unwrap();
                let count = rng.within(1..9) as usize;
                let windows = draw(&mut rng, &dataset, count);
                let mode = if case.on_device { Mode::Cuda } else { Mode::Auto };
                let device = case.options.clone().with_device(mode).with_gpu(gpu.clone());
                let what = || format!("{script}, case {number}: {count} windows like {}, {}", windows[0], case.what);
                let report = agree(&dataset, &case.options, &device, &windows);
                let report = report.unwrap_or_else(|fault| panic!("{}: {fault}", what()));
                assert_eq!(report.counters.synchronisations, 1, "{}", what());
                assert_eq!(report.host_tiles == 0, case.on_device || report.device_tiles + report.host_tiles == 0);
                if number % 3 != 0 {
                    continue;
                }
                let least = least(&dataset, &device, &windows);
                for budget in [least, least * 5 / 4] {
                    gpu.trim();
                    let limited = device.clone().with_max_device_memory(budget);
                    let report = agree(&dataset, &case.options, &limited, &windows);
                    let report = report.unwrap_or_else(|fault| panic!("{}, {budget} bytes: {fault}", what()));
                    assert!(report.counters.peak_bytes <= budget, "{}: {report:?} of {budget}", what());
                    assert_eq!(report.counters.synchronisations, 1, "{}", what());
                    batched += u32::from(report.batches > 1);
                }
            }
        });
    }
    assert!(batched > 8, "{batched} in batches");
}

#[test]
fn one_wait_and_each_tile_once() {
    let Some(fake) = driver::fake() else { return };
    for compression in ON_DEVICE {
        for (planar, planes) in [(Planar::Contig, 1), (Planar::Separate, 2)] {
            let what = format!("{compression}, {planar:?}");
            fake.with("async=1 seed=4", |gpu| {
                let dataset = cases::open(&file(compression, planar)).unwrap();
                // Two by two tiles, four windows at their common corner and one inside the first tile.
                let places = [(20, 20), (24, 28), (30, 17), (20, 20), (3, 5)];
                let windows = places.map(|(x, y)| Window::new(x, y, 25, 20));
                let device = options(gpu, Mode::Cuda).with_cpu_decode(true);
                fake.script("async=1 seed=4");
                let raster = dataset.read_windows_device(&device, &windows).unwrap();
                let report = raster.report();
                assert_eq!(fake.count("sync"), 1, "{what}");
                assert_eq!(report.counters.synchronisations, 1, "{what}");
                assert_eq!(report.batches, 1, "{what}");
                assert_eq!(report.counters.uploads_before_first_wait, report.counters.uploads, "{what}");
                let tiles = report.device_tiles + report.host_tiles;
                // Each window reads its own rows of uncompressed tiles.
                let expected = if compression == Compression::None { 4 * 4 + 1 } else { 4 };
                assert_eq!(tiles, expected * planes, "{what}");
                drop(raster);
                agree(&dataset, &ReadOptions::default(), &device, &windows).unwrap();
            });
        }
    }
}

#[test]
fn overviews_and_pieces_are_read_in_batches() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=3", |gpu| {
        for planar in [Planar::Contig, Planar::Separate] {
            let shape = Shape { width: 600, height: 530, bands: 2, sample: SampleType::F32 };
            let layout = WriteOptions::cog().with_blocks(Blocks::Tiles(256, 256)).with_overviews(Overviews::Levels(1));
            let layout = layout.with_planar(planar).with_compression(Compression::Deflate);
            let case = written::large(shape, layout, "");
            let (file, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
            let dataset = cases::open(&file).unwrap();
            let places = [(500, 420), (0, 0), (230, 240), (100, 250), (0, 0)];
            let windows = places.map(|(x, y)| Window::new(x, y, 100, 110));
            let report = agree(&dataset, &ReadOptions::default(), &options(gpu, Mode::Cuda), &windows).unwrap();
            assert!(report.pieces > 0 && report.notices.is_empty(), "{planar:?}: {report:?}");
            assert_eq!(report.counters.synchronisations, 1, "{planar:?}");
            let windows = [(200, 155), (3, 4), (130, 130)].map(|(x, y)| Window::new(x, y, 100, 110));
            let plain = ReadOptions::default().with_overview(0).with_bands([2, 1, 2]);
            let device = options(gpu, Mode::Cuda).with_overview(0).with_bands([2, 1, 2]);
            agree(&dataset, &plain, &device, &windows).unwrap();
        }
    });
}

/// A little-endian file whose tile 12 the CPU refuses.
fn damaged(compression: Compression) -> Arc<[u8]> {
    let shape = Shape { width: 128, height: 128, bands: 1, sample: SampleType::U16 };
    let layout = WriteOptions::default()
        .with_compression(compression)
        .with_order(ByteOrder::Little)
        .with_blocks(Blocks::Tiles(16, 16));
    let data = cases::samples(shape, &mut Rng::new(1));
    let mut bytes = cases::write(shape, &data, &cases::nodata_of(""), &layout).unwrap().to_vec();
    cases::shorten(&mut bytes, 12, 3);
    bytes.into()
}

#[test]
fn a_damaged_tile_gives_the_cpus_error_and_other_windows_are_right() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for compression in [Compression::Deflate, Compression::Lzw, Compression::PackBits] {
            let dataset = cases::open(&damaged(compression)).unwrap();
            let whole = [Window::new(0, 0, 20, 20), Window::new(100, 100, 20, 20), Window::new(90, 20, 20, 20)];
            let bad = Window::new(60, 10, 20, 20);
            let windows = [whole[0], bad, whole[1], bad];
            let cpu = dataset.read(&ReadOptions::default().with_window(bad)).unwrap_err();
            for mode in [Mode::Cuda, Mode::Auto] {
                let device = options(gpu, mode);
                let error = dataset.read_windows_device(&device, &windows).unwrap_err();
                assert_eq!(error.to_string(), cpu.to_string(), "{compression} {mode:?}");
                let mut out = vec![0; dataset.read_windows_len(&device, &windows).unwrap()];
                let error = dataset.read_windows_into(&device, &windows, &mut out).unwrap_err();
                assert_eq!(error.to_string(), cpu.to_string(), "{compression} {mode:?}");
                agree(&dataset, &ReadOptions::default(), &device, &whole).unwrap();
            }
        }
    });
}

/// Strips whose last one is stored at full height, which the CPU accepts and the kernels do not.
fn long_strip() -> Arc<[u8]> {
    let strip = |number: u8| zlib(&(0..32 * 16).map(|at| (at as u8).wrapping_mul(number + 3)).collect::<Vec<u8>>());
    let tags = [(256, 32), (257, 40), (258, 8), (259, 8), (262, 1), (277, 1), (278, 16)];
    let tags = tags.map(|(number, value)| (number, Tag::Short(vec![value]))).to_vec();
    File::of(Directory { tags, tiles: vec![strip(0), strip(1), strip(2)] }).bytes().into()
}

#[test]
fn a_tile_that_only_the_cpu_reads_fills_all_windows_that_need_it() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=1", |gpu| {
        let dataset = cases::open(&long_strip()).unwrap();
        let windows = [(0, 28), (12, 20), (5, 30), (0, 0)].map(|(x, y)| Window::new(x, y, 20, 10));
        let error = dataset.read_windows_device(&options(gpu, Mode::Cuda), &windows).unwrap_err();
        assert_eq!(error.place().tile, Some((0, 2)), "{error}");
        let report = agree(&dataset, &ReadOptions::default(), &options(gpu, Mode::Auto), &windows).unwrap();
        assert_eq!((report.device_tiles, report.host_tiles), (2, 1), "{report:?}");
        assert_eq!(report.notices.len(), 1, "{report:?}");
    });
}

#[test]
fn too_little_memory_is_refused_by_the_device_and_read_in_parts_to_the_host() {
    let Some(fake) = driver::fake() else { return };
    for (interleave, compression) in [(Interleave::Band, Compression::Lzw), (Interleave::Pixel, Compression::Deflate)] {
        fake.with("", |gpu| {
            let dataset = cases::open(&file(compression, Planar::Contig)).unwrap();
            let windows: Vec<Window> = (0..12).map(|n| Window::new(n * 7 % 60, n * 11 % 50, 40, 40)).collect();
            let plain = ReadOptions::default().with_interleave(interleave);
            let device = options(gpu, Mode::Cuda).with_interleave(interleave);
            let few = least(&dataset, &device, &windows[..3]);
            let all = least(&dataset, &device, &windows);
            assert!(few < all, "{few} {all}");
            let limited = device.clone().with_max_device_memory(few);
            let error = dataset.read_windows_device(&limited, &windows).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Device(DeviceError::Memory { .. })), "{error}");
            assert_eq!(fake.count("alloc"), 0);
            for budget in [few, least(&dataset, &device, &windows[..1])] {
                gpu.trim();
                let limited = device.clone().with_max_device_memory(budget);
                let mut out = vec![0; dataset.read_windows_len(&limited, &windows).unwrap()];
                dataset.read_windows_into(&limited, &windows, &mut out).unwrap();
                assert!(out == expected(&dataset, &plain, &windows).concat(), "{compression} {interleave:?}");
                let report = dataset.device_report();
                assert!(report.notices.is_empty() && report.counters.peak_bytes <= few, "{report:?}");
            }
            let mut out = vec![0; dataset.read_windows_len(&device, &windows).unwrap()];
            let hopeless = device.clone().with_max_device_memory(1000);
            assert!(dataset.read_windows_into(&hopeless, &windows, &mut out).is_err());
            let hopeless = hopeless.with_device(Mode::Auto);
            dataset.read_windows_into(&hopeless, &windows, &mut out).unwrap();
            assert!(out == expected(&dataset, &plain, &windows).concat());
            let notices = dataset.device_report().notices;
            assert!(notices.iter().any(|notice| notice.starts_with("decoded by the CPU: ")), "{notices:?}");
        });
    }
}

/// Fails the nth call of a kind, for every n.
fn every(fake: &Fake, key: &str, counts: &[&str]) {
    let file = file(Compression::Deflate, Planar::Contig);
    let windows: Vec<Window> = (0..4).map(|n| Window::new(n * 20, n * 17, 40, 30)).collect();
    let dataset = cases::open(&file).unwrap();
    let expected = expected(&dataset, &ReadOptions::default(), &windows);
    let mut failed = 0;
    for n in 1..400 {
        let reached = fake.with("", |gpu| {
            let script = format!("{key}={n} async=1 seed=2");
            fake.script(&script);
            match dataset.read_windows_device(&options(gpu, Mode::Cuda), &windows).and_then(|raster| raster.to_host()) {
                Ok(raster) => assert!(raster.bytes() == below_each_other(&expected, 2, Interleave::Band), "{script}"),
                Err(error) => {
                    let call = matches!(error.kind(), ErrorKind::Device(DeviceError::Call { .. }));
                    assert!(call, "{script}: {error}");
                    failed += 1;
                }
            }
            fake.script("");
            gpu.trim();
            fake.script(&script);
            let mut out = vec![0; dataset.read_windows_len(&options(gpu, Mode::Auto), &windows).unwrap()];
            let read = dataset.read_windows_into(&options(gpu, Mode::Auto), &windows, &mut out);
            read.unwrap_or_else(|error: Error| panic!("{script}: {error}"));
            assert!(out == expected.concat(), "{script}");
            fake.script("");
            gpu.trim();
            agree(&dataset, &ReadOptions::default(), &options(gpu, Mode::Cuda), &windows).unwrap();
            counts.iter().map(|count| fake.count(count)).sum::<u64>() >= n
        });
        if !reached {
            // A single failed allocation is retried.
            assert_eq!(failed > 0, key != "fail_alloc", "{key}: {failed} failed");
            return;
        }
    }
    panic!("{key}: no end");
}

#[test]
fn every_call_may_fail() {
    let Some(fake) = driver::fake() else { return };
    every(&fake, "fail_alloc", &["alloc"]);
    every(&fake, "fail_alloc_from", &["alloc"]);
    every(&fake, "fail_copy", &["h2d", "d2h"]);
    every(&fake, "fail_launch", &["launch"]);
}

#[test]
fn no_windows_are_an_empty_raster() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let dataset = cases::open(&file(Compression::Lzw, Planar::Contig)).unwrap();
        let raster = dataset.read_windows_device(&options(gpu, Mode::Cuda), &[]).unwrap();
        assert_eq!((raster.len(), raster.shape()), (0, [2, 0, 0]));
        assert!(raster.to_host().unwrap().bytes().is_empty());
        drop(raster);
        dataset.read_windows_into(&options(gpu, Mode::Cuda), &[], &mut []).unwrap();
        assert!(dataset.read_windows_device(&options(gpu, Mode::Cuda).with_bands([3]), &[]).is_err());
    });
}

#[test]
fn invalid_requests_are_refused_before_any_read() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let dataset = cases::open(&file(Compression::Lzw, Planar::Contig)).unwrap();
        let device = options(gpu, Mode::Cuda);
        let first = Window::new(0, 0, 10, 10);
        for (windows, message) in
            [([first, Window::new(0, 0, 10, 11)], "window 1 "), ([first, Window::new(91, 0, 10, 10)], "100x90")]
        {
            let error = dataset.read_windows_device(&device, &windows).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Usage(_)) && error.to_string().contains(message), "{error}");
        }
        let error = dataset.read_windows_device(&device.clone().with_upright(true), &[first]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        assert_eq!((fake.count("alloc"), fake.count("h2d")), (0, 0));
    });
}

#[test]
fn several_readers_share_a_gpu() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=6", |gpu| {
        let dataset = cases::open(&file(Compression::Deflate, Planar::Separate)).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    for _ in 0..3 {
                        let windows = draw(&mut rng, dataset, 6);
                        agree(dataset, &ReadOptions::default(), &options(gpu, Mode::Cuda), &windows).unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn without_a_gpu_auto_reads_with_the_cpu() {
    if swath::gpu::default_gpu().is_ok() {
        return;
    }
    let dataset = cases::open(&file(Compression::Deflate, Planar::Contig)).unwrap();
    let windows = [Window::new(5, 5, 40, 40), Window::new(60, 50, 40, 40)];
    let singles = expected(&dataset, &ReadOptions::default(), &windows);
    let auto = ReadOptions::default().with_device(Mode::Auto);
    let mut out = vec![0; dataset.read_windows_len(&auto, &windows).unwrap()];
    dataset.read_windows_into(&auto, &windows, &mut out).unwrap();
    assert!(out == singles.concat());
    let error = dataset.read_windows_into(&auto.with_device(Mode::Cuda), &windows, &mut out).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Device(_)), "{error}");
}
