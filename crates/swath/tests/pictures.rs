//! Image codecs of NVIDIA's libraries, and files that the device reads itself, on the fake driver with stand-ins for
//! these libraries: `tools/fake-driver/pictures.cpp` documents how they decode a stream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)]
#[path = "gpu/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "gpu/driver.rs"]
mod driver;

use std::{path::Path, process::Command, sync::Arc};

use swath::{
    Blocks, Compression, Dataset, Error, ErrorKind, Interleave, Limits, Metadata, Mode, OpenOptions, Raster,
    ReadOptions, Rows, SampleType, Shape, Window, WriteOptions, Writer,
    gpu::{DeviceError, Gpu, GpuOptions},
    io::{MemorySink, MemorySource},
    tiff::structure::{Planar, value::Value},
};

use cases::Rng;

/// A GPU of the fake driver, scripted, with the stand-ins beside it; `None` where there is no compiler.
fn stand_in(script: &str, cufile: bool) -> Option<(driver::Fake, Arc<Gpu>)> {
    let fake = driver::fake()?;
    let builder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fake-driver/libraries.sh");
    assert!(Command::new("bash").arg(builder).status().is_ok_and(|status| status.success()), "libraries.sh");
    fake.script(script);
    let driver = driver::path("").canonicalize().unwrap();
    let libraries = driver.with_file_name("libraries");
    let options = GpuOptions::default().with_driver(driver).with_libraries(libraries).with_cufile(cufile);
    Some((fake, Gpu::open(&options).unwrap()))
}

/// Drops the GPU: libraries release what they kept for its streams before the streams are destroyed.
fn gone(fake: &driver::Fake, gpu: Arc<Gpu>) {
    assert_eq!(Arc::strong_count(&gpu), 1);
    drop(gpu);
    fake.expect_nothing_left("a read by libraries");
}

fn samples(shape: Shape) -> Vec<u8> {
    let len = shape.width as usize * shape.height as usize * usize::from(shape.bands) * shape.sample.size();
    (0..len).map(|at| (at * 7 % 251 + at / 97 % 40) as u8 >> 1).collect()
}

fn write(shape: Shape, options: &WriteOptions) -> Vec<u8> {
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), options).unwrap();
    writer.push(&Rows::from_bytes(&samples(shape), Interleave::Band)).unwrap();
    writer.finish().unwrap();
    memory.take().unwrap()
}

fn open(file: &[u8]) -> Dataset {
    let source = MemorySource::new("test.tif", Arc::<[u8]>::from(file));
    OpenOptions::default().with_limits(Limits::none()).with_tile_cache(0).open_source(Arc::new(source)).unwrap()
}

fn read(dataset: &Dataset, gpu: &Arc<Gpu>, options: ReadOptions) -> Raster {
    dataset.read_device(&options.with_gpu(gpu.clone())).and_then(|raster| raster.to_host()).unwrap()
}

const SHAPE: Shape = Shape { width: 701, height: 140, bands: 3, sample: SampleType::U8 };
const TILE: (u32, u32) = (32, 48);

fn tiled(compression: Compression) -> WriteOptions {
    WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(TILE.0, TILE.1))
}

fn sample_at(raster: &Raster, band: usize, x: u32, y: u32) -> u16 {
    let size = raster.sample().size();
    let at = ((band * raster.height() as usize + y as usize) * raster.width() as usize + x as usize) * size;
    let bytes = &raster.bytes()[at..at + size];
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u16::from(*byte))
}

/// Whether the samples of every tile are its pattern; planes that are tiles of their own have their own hash each.
fn check_pattern(raster: &Raster, planar: Planar) {
    let mask = if raster.sample().size() == 1 { 0xff } else { 0xffff };
    for band in 0..raster.bands() as usize {
        for y in 0..raster.height() {
            for x in 0..raster.width() {
                let (tile_x, tile_y) = (x / TILE.0 * TILE.0, y / TILE.1 * TILE.1);
                let (first, step) = if planar == Planar::Contig { (0, 50 * band as u32) } else { (band, 0) };
                let origin = u32::from(sample_at(raster, first, tile_x, tile_y));
                let want = origin + (x - tile_x) + 3 * (y - tile_y) + step;
                assert_eq!(u32::from(sample_at(raster, band, x, y)), want & mask, "{band} {x} {y}");
            }
        }
    }
}

#[test]
fn libraries_decode_any_part_of_pictures() {
    let cases = [
        (Compression::Jpeg, SampleType::U8, 3, Planar::Contig),
        (Compression::Jpeg, SampleType::U8, 3, Planar::Separate),
        (Compression::Jpeg, SampleType::U8, 1, Planar::Contig),
        (Compression::Jpeg2000, SampleType::U8, 3, Planar::Contig),
        (Compression::Jpeg2000, SampleType::U16, 1, Planar::Contig),
        (Compression::Jpeg2000, SampleType::I16, 4, Planar::Contig),
        (Compression::Jpeg2000, SampleType::U16, 3, Planar::Separate),
    ];
    for (seed, (compression, sample, bands, planar)) in cases.into_iter().enumerate() {
        let Some((fake, gpu)) = stand_in(&format!("async=1 leaks=1 seed={seed}"), false) else { return };
        let shape = Shape { sample, bands, ..SHAPE };
        let dataset = open(&write(shape, &tiled(compression).with_planar(planar)));
        let whole = read(&dataset, &gpu, ReadOptions::default().with_device(Mode::Cuda));
        let report = whole.report().unwrap();
        assert_eq!((report.host_tiles, report.storage), (0, "host memory"), "{compression}: {report:?}");
        assert_eq!(report.counters.synchronisations, 2, "once for the read, once for the copy");
        check_pattern(&whole, planar);
        // In many batches, and only a part of the image.
        let batched = (0..16).find_map(|step| {
            let memory = whole.bytes().len() as u64 + (16_u64 << 20) * 4_u64.pow(step) / 5_u64.pow(step);
            let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let raster =
                dataset.read_device(&options.with_max_device_memory(memory)).and_then(|raster| raster.to_host());
            raster.ok().filter(|raster| raster.report().is_some_and(|report| report.batches > 1))
        });
        assert!(
            batched.expect("there is memory for some batches").bytes() == whole.bytes(),
            "{compression} in batches"
        );
        let window = Window::new(37, 40, 201, 83);
        let list: Vec<u32> = if bands == 1 { vec![1, 1] } else { vec![3, 1] };
        let part = ReadOptions::default().with_device(Mode::Cuda).with_window(window).with_bands(list.clone());
        let part = read(&dataset, &gpu, part.with_interleave(Interleave::Pixel));
        let size = sample.size();
        for (at, found) in part.bytes().chunks_exact(size).enumerate() {
            let (pixel, slot) = (at / 2, at % 2);
            let (x, y) = ((pixel % 201) as u32 + window.x, (pixel / 201) as u32 + window.y);
            let want = sample_at(&whole, list[slot] as usize - 1, x, y);
            assert_eq!(found, &want.to_le_bytes()[..size], "{compression} {x} {y} {slot}");
        }
        gone(&fake, gpu);
    }
}

fn device(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone())
}

/// The tile of that number, in a grid as wide as [`SHAPE`].
fn window_of(tile: usize) -> Window {
    let across = SHAPE.width.div_ceil(TILE.0);
    let (x, y) = (tile as u32 % across * TILE.0, tile as u32 / across * TILE.1);
    Window::new(x, y, TILE.0.min(SHAPE.width - x), TILE.1.min(SHAPE.height - y))
}

/// Whether a tile of a raster of [`SHAPE`] holds the pattern that the stand-ins decode to.
fn is_pattern(raster: &Raster, tile: usize) -> bool {
    let window = window_of(tile);
    let origin = u32::from(sample_at(raster, 0, window.x, window.y));
    (0..raster.bands() as usize).all(|band| {
        (0..window.height).all(|y| {
            (0..window.width).all(|x| {
                let want = origin + x + 3 * y + 50 * band as u32;
                u32::from(sample_at(raster, band, window.x + x, window.y + y)) == want & 0xff
            })
        })
    })
}

/// Whether two rasters of [`SHAPE`] have the same samples in a tile.
fn is_same(one: &Raster, other: &Raster, tile: usize) -> bool {
    let window = window_of(tile);
    (0..one.bands() as usize).all(|band| {
        (window.y..window.y + window.height).all(|y| {
            (window.x..window.x + window.width).all(|x| sample_at(one, band, x, y) == sample_at(other, band, x, y))
        })
    })
}

fn is_declined(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Device(DeviceError::Declined(_)))
}

#[test]
fn damaged_jpeg_gives_the_cpus_error_and_never_reaches_the_library() {
    let Some((fake, gpu)) = stand_in("async=1 seed=4", false) else { return };
    let good: Arc<[u8]> = write(SHAPE, &tiled(Compression::Jpeg)).into();
    let tiles = cases::tiles(&good).unwrap();
    let (mut damaged, mut sound, mut declined) = (0, 0, 0);
    for seed in 0..80 {
        let mut rng = Rng::new(seed);
        let number = rng.below(tiles.len() as u64) as usize;
        let mut bad = good.to_vec();
        cases::spoil(&mut bad, &tiles[number], number, &mut rng);
        let dataset = open(&bad);
        let what = format!("damage {seed}, tile {number}");
        let window = ReadOptions::default().with_window(window_of(number));
        let cpu = dataset.read(&window);
        let both = [Mode::Cuda, Mode::Auto].map(|mode| dataset.read_device(&device(&gpu, mode)));
        match (cpu, both) {
            (Err(cpu), both) => {
                damaged += 1;
                for error in both.map(Result::unwrap_err) {
                    assert_eq!(error.to_string(), cpu.to_string(), "{what}");
                    assert!(error.place().tile.is_some() && error.place().offset.is_some(), "{what}: {error}");
                }
            }
            // The CPU accepts the stream, and so does the library, which decodes all tiles.
            (Ok(_), [Ok(cuda), Ok(_)]) => {
                sound += 1;
                let raster = cuda.to_host().unwrap();
                assert_eq!(raster.report().unwrap().host_tiles, 0, "{what}");
                check_pattern(&raster, Planar::Contig);
            }
            // For example a picture of another size, which only the CPU accepts.
            (Ok(_), [Err(cuda), Ok(auto)]) => {
                declined += 1;
                assert!(is_declined(&cuda) && cuda.to_string().contains("Auto"), "{what}: {cuda}");
                let (auto, cpu) = (auto.to_host().unwrap(), dataset.read(&ReadOptions::default()).unwrap());
                assert_eq!(auto.report().unwrap().host_tiles, 1, "{what}");
                for tile in 0..tiles.len() {
                    assert!(
                        if tile == number { is_same(&auto, &cpu, tile) } else { is_pattern(&auto, tile) },
                        "{what}"
                    );
                }
            }
            (Ok(_), [cuda, auto]) => panic!("{what}: the CPU reads it; {:?}, {:?}", cuda.err(), auto.err()),
        }
    }
    assert!(damaged > 30 && sound > 3, "{damaged} damaged, {sound} sound, {declined} declined");
    gone(&fake, gpu);
}

#[test]
fn an_end_of_image_that_is_missing_or_hidden_does_not_matter() {
    let Some((fake, gpu)) = stand_in("async=1 seed=4", false) else { return };
    let mut file = write(SHAPE, &tiled(Compression::Jpeg));
    let tiles = cases::tiles(&file.clone().into()).unwrap();
    for (number, tile) in tiles.iter().enumerate() {
        assert!(file[..tile.end].ends_with(&[0xff, 0xd9]));
        match number % 3 {
            0 => file[tile.end - 2..tile.end].fill(0),
            1 => cases::shorten(&mut file, number, tile.len() - 2),
            _ => {}
        }
    }
    let dataset = open(&file);
    dataset.read(&ReadOptions::default()).unwrap();
    let raster = read(&dataset, &gpu, ReadOptions::default().with_device(Mode::Cuda));
    let report = raster.report().unwrap();
    assert_eq!((report.device_tiles, report.host_tiles), (tiles.len() as u64, 0), "{report:?}");
    check_pattern(&raster, Planar::Contig);
    gone(&fake, gpu);
}

/// Runs an ignored test in a process of its own, where the stand-ins see these variables.
fn in_a_process(test: &str, variables: &[(&str, String)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    let output = command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test} {variables:?}: {text}");
}

fn number_in(variable: &str) -> usize {
    std::env::var(variable).unwrap().parse().unwrap()
}

/// The hash by which the stand-ins refuse streams.
fn hash(stream: &[u8]) -> u32 {
    stream.iter().fold(2_166_136_261, |value: u32, byte| (value ^ u32::from(*byte)).wrapping_mul(16_777_619))
}

/// Pictures with some sparse tiles, and the tiles that are stored.
fn with_holes(compression: Compression) -> (Vec<u8>, Vec<usize>) {
    let (sink, memory) = MemorySink::new("memory");
    let options = tiled(compression).with_sparse(true);
    let mut writer = Writer::to_sink(Box::new(sink), SHAPE, &Metadata::default(), &options).unwrap();
    let mut data = samples(SHAPE);
    let across = SHAPE.width.div_ceil(TILE.0) as usize;
    for (at, sample) in data.iter_mut().enumerate() {
        let (x, y) = (at % SHAPE.width as usize, at / SHAPE.width as usize % SHAPE.height as usize);
        if (y / TILE.1 as usize * across + x / TILE.0 as usize) % 4 == 1 {
            *sample = 0;
        }
    }
    writer.push(&Rows::from_bytes(&data, Interleave::Band)).unwrap();
    writer.finish().unwrap();
    let file = memory.take().unwrap();
    let tiles = cases::tiles(&file.clone().into()).unwrap();
    let stored: Vec<usize> = (0..tiles.len()).filter(|number| !tiles[*number].is_empty()).collect();
    assert!(stored.len() > 40 && stored.len() < tiles.len(), "{} of {}", stored.len(), tiles.len());
    (file, stored)
}

/// The tiles whose streams the stand-ins refuse.
fn refused(file: &[u8], every: usize) -> Vec<usize> {
    let tables = match open(file).tag(347).unwrap() {
        Some(Value::Raw(field)) => field[2..field.len() - 2].to_vec(),
        _ => Vec::new(),
    };
    let tiles = cases::tiles(&file.to_vec().into()).unwrap();
    let is_refused = |number: &usize| {
        let tile = &file[tiles[*number].clone()];
        // The library gets whole streams, with the tables in them.
        !tile.is_empty() && (hash(&[&tile[..2], &tables, &tile[2..]].concat()) as usize).is_multiple_of(every)
    };
    (0..tiles.len()).filter(is_refused).collect()
}

#[test]
fn the_cpu_decodes_pictures_that_a_library_refuses() {
    let Some(fake) = driver::fake() else { return };
    drop(fake);
    for compression in [Compression::Jpeg, Compression::Jpeg2000] {
        let (file, _) = with_holes(compression);
        // Few refused tiles, which are decoded one by one, and so many that the CPU decodes all tiles.
        let few = (2..200).find(|every| (2..=6).contains(&refused(&file, *every).len())).unwrap();
        let many = (2..200).find(|every| (9..40).contains(&refused(&file, *every).len())).unwrap();
        for every in [few, many] {
            let variables = [("SWATH_FAKE_REFUSE", every.to_string()), ("SWATH_TEST_CODEC", compression.to_string())];
            in_a_process("refusing_library", &variables);
        }
    }
}

fn codec_in(variable: &str) -> Compression {
    let name = std::env::var(variable).unwrap();
    let known = [Compression::Jpeg, Compression::Jpeg2000];
    known.into_iter().find(|compression| compression.to_string() == name).unwrap()
}

#[test]
#[ignore = "run by `the_cpu_decodes_pictures_that_a_library_refuses`, which sets SWATH_FAKE_REFUSE"]
fn refusing_library() {
    let (every, compression) = (number_in("SWATH_FAKE_REFUSE"), codec_in("SWATH_TEST_CODEC"));
    let (fake, gpu) = stand_in("async=1 seed=4", false).unwrap();
    let (file, stored) = with_holes(compression);
    let dataset = open(&file);
    let refused = refused(&file, every);
    let cpu = dataset.read(&ReadOptions::default()).unwrap();
    let (syncs, downloads) = (fake.count("sync"), fake.count("d2h"));
    let on_device = dataset.read_device(&device(&gpu, Mode::Auto)).unwrap();
    let (syncs, downloads) = (fake.count("sync") - syncs, fake.count("d2h") - downloads);
    let (report, raster) = (on_device.report().clone(), on_device.to_host().unwrap());
    drop(on_device);
    let notices = report.notices.join("; ");
    assert!(notices.contains("the GPU's decoder refused"), "{notices}");
    if refused.len() > 8 {
        assert_eq!((report.device_tiles, report.host_tiles), (0, stored.len() as u64), "{report:?}");
        assert!(raster.bytes() == cpu.bytes());
    } else {
        assert_eq!(report.host_tiles as usize, refused.len(), "{report:?}");
        assert_eq!(report.device_tiles as usize, stored.len() - refused.len(), "{report:?}");
        // Streams of pictures are on the host already: one copy brings the statuses, and nothing else comes back. The
        // host waits once for the read, and once for each tile that the CPU patches in.
        assert_eq!((downloads, syncs), (1, 1 + refused.len() as u64), "{report:?}");
        assert_eq!((report.counters.downloads, report.counters.synchronisations), (downloads, syncs));
        for tile in 0..cases::tiles(&file.clone().into()).unwrap().len() {
            let right = match stored.contains(&tile) {
                true if !refused.contains(&tile) => is_pattern(&raster, tile),
                _ => is_same(&raster, &cpu, tile),
            };
            assert!(right, "{compression}, tile {tile}");
        }
    }
    let error = dataset.read_device(&device(&gpu, Mode::Cuda)).unwrap_err();
    assert!(is_declined(&error) && error.to_string().contains("use the device auto"), "{error}");
    let across = SHAPE.width.div_ceil(TILE.0) as usize;
    let first = (refused[0] as u32 % across as u32, refused[0] as u32 / across as u32);
    assert_eq!(error.place().tile, Some(first), "{error}");
    gone(&fake, gpu);
}

#[test]
fn a_read_of_pictures_takes_one_pool_and_one_wait_however_many_there_are() {
    // The batch sizes of the libraries, and the numbers that the stand-ins accept.
    const JPEG_BATCH: u64 = 512;
    const JPEG2000_LANES: u64 = 64;
    const STREAMS: u64 = 16;
    const SIDE: u32 = 16;
    for (compression, bands) in [(Compression::Jpeg, 3), (Compression::Jpeg2000, 1)] {
        for (tiles, script) in [(1_u64, ""), (7, "async=1 seed=3"), (64, ""), (65, "async=1 seed=4"), (600, "")] {
            let Some((fake, gpu)) = stand_in(script, false) else { return };
            let shape = Shape { width: SIDE * tiles as u32, height: SIDE, bands, sample: SampleType::U8 };
            let blocks = Blocks::Tiles(SIDE, SIDE);
            let options = WriteOptions::default().with_compression(compression).with_blocks(blocks);
            let dataset = open(&write(shape, &options));
            let batches = tiles.div_ceil(JPEG_BATCH);
            for round in 0..3 {
                let what = format!("{compression}, {tiles} tiles, {script}, read {round}");
                fake.script(script);
                let raster = dataset.read_device(&device(&gpu, Mode::Cuda).with_threads(1)).unwrap();
                let counters = raster.report().counters;
                assert_eq!((raster.report().device_tiles, raster.report().batches), (tiles, 1), "{what}");
                // Output, statuses, a byte for streams, planes of all tiles, and tables.
                assert_eq!(counters.buffers, 5, "{what}");
                assert_eq!(counters.allocations, if round == 0 { 5 } else { 0 }, "{what}");
                assert_eq!(fake.count("alloc"), counters.allocations, "{what}");
                if round > 0 {
                    assert_eq!((counters.pinned_allocations, fake.count("host_alloc")), (0, 0), "{what}");
                }
                assert_eq!((fake.count("sync"), counters.synchronisations), (1, 1), "{what}");
                assert_eq!((fake.count("d2h"), counters.downloads), (1, 1), "{what}");
                assert_eq!(fake.count("d2h_bytes"), 4 * tiles, "{what}");
                // Tables and statuses are ours; the stand-ins copy row by row.
                assert_eq!(counters.uploads, 2, "{what}");
                assert_eq!(fake.count("h2d"), 2 + tiles * u64::from(bands) * u64::from(SIDE), "{what}");
                assert_eq!((fake.count("launch"), counters.launches), (1, 1), "{what}");
                assert_eq!(fake.count("pageable"), 0, "{what}");
                let waits = match (compression, round) {
                    // The first batch of a read waits for the state of the previous read.
                    (Compression::Jpeg, 0) => batches - 1..=batches - 1,
                    (Compression::Jpeg, _) => batches..=batches,
                    _ if tiles <= JPEG2000_LANES => 0..=0,
                    // Each of the streams that share the lanes waits once for every batch of its own.
                    _ => 1..=(tiles - JPEG2000_LANES).div_ceil(JPEG2000_LANES / STREAMS) + STREAMS,
                };
                assert!(waits.contains(&counters.library_waits), "{what}: {counters:?} where {waits:?} were due");
            }
            gone(&fake, gpu);
        }
    }
}

#[test]
fn cufile_reads_a_file_on_request() {
    let Some((fake, gpu)) = stand_in("async=1 seed=3 leaks=1", true) else { return };
    let path = std::env::temp_dir().join(format!("swath-cufile-{}.tif", std::process::id()));
    for compression in [Compression::None, Compression::Deflate] {
        let options = tiled(compression);
        std::fs::write(&path, write(SHAPE, &options)).unwrap();
        let dataset = OpenOptions::default().with_tile_cache(0).open(&path).unwrap();
        let cpu = dataset.read(&ReadOptions::default()).unwrap();
        let raster = read(&dataset, &gpu, ReadOptions::default().with_device(Mode::Cuda));
        assert_eq!(raster.report().unwrap().storage, "cuFile, compatibility mode", "{:?}", raster.report());
        assert_eq!(raster.bytes(), cpu.bytes());
    }
    let _ = std::fs::remove_file(&path);
    // Bytes in memory are not a file.
    let options = tiled(Compression::Deflate);
    let raster = read(&open(&write(SHAPE, &options)), &gpu, ReadOptions::default().with_device(Mode::Cuda));
    assert_eq!(raster.report().unwrap().storage, "pinned copies");
    gone(&fake, gpu);
}

/// The same file by the CPU and through the GPU, with the GPU's report.
fn written_by(gpu: &Arc<Gpu>, shape: Shape, options: &WriteOptions) -> (Dataset, Dataset, swath::gpu::DeviceReport) {
    let (sink, memory) = MemorySink::new("memory");
    let device = options.clone().with_device(Mode::Cuda).with_gpu(gpu.clone());
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &device).unwrap();
    writer.push(&Rows::from_bytes(&samples(shape), Interleave::Band)).unwrap();
    let written = writer.finish().unwrap();
    (open(&write(shape, options)), open(&memory.take().unwrap()), written.device)
}

#[test]
fn pictures_are_encoded_by_libraries_and_read_by_all() {
    let shape = |bands, sample| Shape { width: 150, height: 90, bands, sample };
    let lossless = [
        (Compression::Jpeg2000, shape(1, SampleType::U8)),
        (Compression::Jpeg2000, shape(3, SampleType::U8)),
        (Compression::Jpeg2000, shape(2, SampleType::U16)),
    ];
    for (compression, shape) in lossless {
        let Some((fake, gpu)) = stand_in("async=1 seed=3 leaks=1", false) else { return };
        let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
        let (cpu, device, report) = written_by(&gpu, shape, &options);
        let [cpu, device] = [cpu, device].map(|file| file.read(&ReadOptions::default()).unwrap());
        assert!(cpu.bytes() == device.bytes(), "{compression} {shape:?}");
        assert!(report.notices.is_empty() && report.host_tiles == 0 && report.device_tiles > 0, "{report:?}");
        gone(&fake, gpu);
    }
    for (bands, subsampling) in [(1, (1, 1)), (3, (1, 1)), (3, (2, 2))] {
        let Some((fake, gpu)) = stand_in("async=1 seed=4 leaks=1", false) else { return };
        let options = tiled(Compression::Jpeg).with_quality(95).with_subsampling(subsampling);
        let (cpu, device, report) = written_by(&gpu, shape(bands, SampleType::U8), &options);
        let [cpu, device] = [cpu, device].map(|file| file.read(&ReadOptions::default()).unwrap());
        let apart = cpu.bytes().iter().zip(device.bytes()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        assert!(apart < 6 * cpu.bytes().len() as u64, "{bands} bands, {subsampling:?}: {apart}");
        assert!(report.notices.is_empty() && report.host_tiles == 0, "{report:?}");
        gone(&fake, gpu);
    }
}

#[test]
fn an_encoder_that_fails_midway_is_an_error_or_the_cpu_continues() {
    let Some(fake) = driver::fake() else { return };
    drop(fake);
    for compression in [Compression::Jpeg, Compression::Jpeg2000] {
        for mode in ["cuda", "auto"] {
            for from in [1, 14, 37] {
                let variables = [
                    ("SWATH_FAKE_ENCODE", from.to_string()),
                    ("SWATH_TEST_CODEC", compression.to_string()),
                    ("SWATH_TEST_MODE", mode.to_owned()),
                ];
                in_a_process("failing_encoder", &variables);
            }
        }
    }
}

#[test]
#[ignore = "run by `an_encoder_that_fails_midway_is_an_error_or_the_cpu_continues`, which sets SWATH_FAKE_ENCODE"]
fn failing_encoder() {
    let (from, compression) = (number_in("SWATH_FAKE_ENCODE") as u64, codec_in("SWATH_TEST_CODEC"));
    let (fake, gpu) = stand_in("async=1 seed=3 leaks=1", false).unwrap();
    let shape = Shape { width: 300, height: 180, bands: 3, sample: SampleType::U8 };
    let options = tiled(compression).with_quality(95);
    let options = if compression == Compression::Jpeg2000 { tiled(compression) } else { options };
    let tiles = u64::from(shape.width.div_ceil(TILE.0) * shape.height.div_ceil(TILE.1));
    assert!(from < tiles);
    let mode = if std::env::var("SWATH_TEST_MODE").unwrap() == "cuda" { Mode::Cuda } else { Mode::Auto };
    let (sink, memory) = MemorySink::new("memory");
    // A batch for each row of tiles, so that some are in the file when the encoder fails.
    let device = options.clone().with_device(mode).with_gpu(gpu.clone()).with_batch(1);
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &device).unwrap();
    drop(device);
    let pushed = writer.push(&Rows::from_bytes(&samples(shape), Interleave::Band));
    let written = pushed.and_then(|()| writer.finish());
    if mode == Mode::Cuda {
        let error = written.unwrap_err();
        let call = if compression == Compression::Jpeg { "nvjpegEncode" } else { "nvjpeg2kEncode" };
        assert!(matches!(error.kind(), ErrorKind::Device(_)) && error.to_string().contains(call), "{error}");
    } else {
        let report = written.unwrap().device;
        assert!(report.notices.iter().any(|notice| notice.contains("the CPU")), "{report:?}");
        let row = u64::from(shape.width.div_ceil(TILE.0));
        // The device encoded the batches before it; the CPU encoded the failed batch and the rest.
        assert_eq!((report.device_tiles, report.host_tiles), ((from - 1) / row * row, row), "{report:?}");
        let (cpu, device) = (open(&write(shape, &options)), open(&memory.take().unwrap()));
        let [cpu, device] = [cpu, device].map(|file| file.read(&ReadOptions::default()).unwrap());
        let apart = cpu.bytes().iter().zip(device.bytes()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        // The stand-in for nvJPEG rounds differently from our encoder; JPEG 2000 is lossless.
        let most = if compression == Compression::Jpeg { 6 * cpu.bytes().len() as u64 } else { 0 };
        assert!(apart <= most, "{compression}: {apart}");
    }
    drop(memory);
    gone(&fake, gpu);
}

#[test]
fn nvcomp_decompresses_lz4_of_trusted_files_and_nothing_else() {
    let shape = Shape { sample: SampleType::U16, ..SHAPE };
    for (compression, trusted, on_device) in [
        (Compression::Lz4, true, true),
        (Compression::Lz4, false, false),
        // Our own kernels decode it, trusted or not.
        (Compression::Zstd, true, true),
        (Compression::Zstd, false, true),
    ] {
        let Some((fake, gpu)) = stand_in("async=1 seed=3 leaks=1", false) else { return };
        let dataset = open(&write(shape, &tiled(compression)));
        let options = ReadOptions::default().with_device(Mode::Auto).with_trust_input(trusted);
        let raster = read(&dataset, &gpu, options);
        assert!(raster.bytes() == samples(shape), "{compression} {trusted}");
        let report = raster.report().unwrap();
        assert_eq!((report.host_tiles == 0, report.notices.is_empty()), (on_device, on_device), "{report:?}");
        gone(&fake, gpu);
    }
}

#[test]
fn nvcomp_compresses_on_request() {
    for (compression, level) in [(Compression::Deflate, 6), (Compression::Deflate, 1), (Compression::Zstd, 9)] {
        let Some((fake, gpu)) = stand_in("async=1 seed=2 leaks=1", false) else { return };
        let shape = Shape { width: 500, height: 260, bands: 2, sample: SampleType::U16 };
        let options = WriteOptions::cog().with_compression(compression).with_level(level);
        let options = options.with_blocks(Blocks::Tiles(128, 128)).with_nvcomp(true);
        let (cpu, device, report) = written_by(&gpu, shape, &options);
        let [cpu, device] = [cpu, device].map(|file| file.read(&ReadOptions::default()).unwrap());
        assert!(cpu.bytes() == device.bytes(), "{compression} {level}");
        assert!(report.device_tiles > 0, "{report:?}");
        gone(&fake, gpu);
    }
    // Requested and missing: the CPU compresses, with a notice.
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let shape = Shape { width: 100, height: 60, bands: 1, sample: SampleType::U16 };
        let (cpu, device, report) = written_by(gpu, shape, &tiled(Compression::Zstd).with_nvcomp(true));
        let [cpu, device] = [cpu, device].map(|file| file.read(&ReadOptions::default()).unwrap());
        assert!(cpu.bytes() == device.bytes());
        let absent = report.notices.iter().any(|notice| notice.contains("nvCOMP"));
        assert!(absent || report.host_tiles == 0, "{report:?}");
    });
}
