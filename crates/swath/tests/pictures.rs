//! Pictures that a library decodes and files that the device reads itself, on the fake driver with stand-ins for
//! NVIDIA's libraries: `tools/fake-driver/pictures.cpp` says what they make of a stream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)]
#[path = "gpu/driver.rs"]
mod driver;

use std::{path::Path, process::Command, sync::Arc};

use swath::{
    Blocks, Compression, Dataset, Gpu, GpuOptions, Interleave, Limits, MemorySink, MemorySource, Metadata, Mode,
    OpenOptions, Raster, ReadOptions, Rows, SampleType, Shape, Window, WriteOptions, Writer, structure::Planar,
};

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

/// Lets go of the GPU: libraries give back what they kept for its streams before those are gone.
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
    writer.push(&Rows::bands(&samples(shape))).unwrap();
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
fn pictures_are_decoded_by_libraries_whatever_part_of_them_is_wanted() {
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
        // In many bands of tiles, and only a part of it.
        let banded = (0..16).find_map(|step| {
            let memory = whole.bytes().len() as u64 + (16_u64 << 20) * 4_u64.pow(step) / 5_u64.pow(step);
            let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let raster =
                dataset.read_device(&options.with_max_device_memory(memory)).and_then(|raster| raster.to_host());
            raster.ok().filter(|raster| raster.report().is_some_and(|report| report.bands > 1))
        });
        assert!(banded.expect("there is memory for some bands").bytes() == whole.bytes(), "{compression} in bands");
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

#[test]
fn a_picture_that_a_library_refuses_is_the_cpus() {
    let Some((fake, gpu)) = stand_in("async=1 seed=4", false) else { return };
    let options = tiled(Compression::Jpeg);
    let mut file = write(SHAPE, &options);
    // Without its end marker a tile is whole for the CPU and suspect for the library.
    let end = file.windows(2).rposition(|pair| pair == [0xff, 0xd9]).unwrap();
    file[end..end + 2].fill(0);
    let dataset = open(&file);
    let raster = read(&dataset, &gpu, ReadOptions::default().with_device(Mode::Auto));
    let report = raster.report().unwrap();
    assert_eq!(report.host_tiles, 1, "{report:?}");
    assert!(report.notices.iter().any(|notice| notice.contains("no end of image")), "{report:?}");
    let cpu = dataset.read(&ReadOptions::default()).unwrap();
    let (x, y) = ((SHAPE.width - 1) / TILE.0 * TILE.0, (SHAPE.height - 1) / TILE.1 * TILE.1);
    for band in 0..3 {
        assert_eq!(sample_at(&raster, band, x, y), sample_at(&cpu, band, x, y));
    }
    let error = dataset.read_device(&ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone())).unwrap_err();
    assert!(error.to_string().contains("no end of image"), "{error}");
    // Where many are, the CPU has all of them.
    for at in 1..file.len() {
        if file[at - 1..=at] == [0xff, 0xd9] {
            file[at - 1..=at].fill(0);
        }
    }
    let dataset = open(&file);
    let raster = read(&dataset, &gpu, ReadOptions::default().with_device(Mode::Auto));
    let report = raster.report().unwrap();
    assert_eq!((report.device_tiles, report.storage), (0, "pinned copies"), "{report:?}");
    assert!(report.notices.iter().any(|notice| notice.contains("no end of image")), "{report:?}");
    assert_eq!(raster.bytes(), dataset.read(&ReadOptions::default()).unwrap().bytes());
    gone(&fake, gpu);
}

#[test]
fn a_file_is_read_by_cufile_where_that_was_asked_for() {
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
    // Bytes in memory are no file.
    let options = tiled(Compression::Deflate);
    let raster = read(&open(&write(SHAPE, &options)), &gpu, ReadOptions::default().with_device(Mode::Cuda));
    assert_eq!(raster.report().unwrap().storage, "pinned copies");
    gone(&fake, gpu);
}

/// The same file by the CPU and by way of the GPU, whose report comes along.
fn written_by(gpu: &Arc<Gpu>, shape: Shape, options: &WriteOptions) -> (Dataset, Dataset, swath::DeviceReport) {
    let (sink, memory) = MemorySink::new("memory");
    let device = options.clone().with_device(Mode::Cuda).with_gpu(gpu.clone());
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &device).unwrap();
    writer.push(&Rows::bands(&samples(shape))).unwrap();
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
fn nvcomp_decompresses_lz4_of_trusted_files_and_nothing_else() {
    let shape = Shape { sample: SampleType::U16, ..SHAPE };
    for (compression, trusted, on_device) in [
        (Compression::Lz4, true, true),
        (Compression::Lz4, false, false),
        // Kernels of ours decode it, whatever is said of the file.
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
fn nvcomp_compresses_where_it_is_asked_for() {
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
    // Asked for and not there: the CPU compresses, and that is said.
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
