//! Checks on a real GPU what other tests check on the fake driver: the CPU's samples and errors, at the promised cost.

#[allow(dead_code)]
#[path = "../../../crates/swath/tests/gpu/cases.rs"]
pub mod cases;
#[allow(dead_code)]
#[path = "../../../crates/swath/tests/gpu/served.rs"]
mod served;
#[path = "../../../crates/swath/tests/gpu/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../../../crates/swath/tests/gpu/summed.rs"]
mod summed;
#[allow(dead_code)]
#[path = "../../../crates/swath/tests/gpu/written.rs"]
mod written;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};
use swath::{
    Blocks, Compression, Dataset, ErrorKind, Limits, Mode, OpenOptions, ReadOptions, SampleType, Shape, Window,
    WriteOptions,
    gpu::{Counters, DeviceError, Gpu, GpuOptions},
    io::MemorySource,
    statistics::StatisticsOptions,
};

use crate::{Fault, corrupt, flag, option, stock::Codec};
use cases::{Case, ON_DEVICE, Rng};

/// The most failures of a group that are printed.
const MAX_PRINTED: usize = 8;

/// The number of cases.
struct Scale {
    matrix: u64,
    written: u64,
    summed: usize,
    /// Files of 64 tiles that are damaged, for each codec.
    batches: u64,
    /// Tiles of each codec that are damaged without a file around them.
    corrupted: u64,
    large_side: u32,
    sparse_windows: u32,
    sparse_side: u32,
    concurrent: u64,
}

const FULL: Scale = Scale {
    matrix: 2400,
    written: 600,
    summed: 800,
    batches: 157,
    corrupted: 200_000,
    large_side: 6000,
    sparse_windows: 12,
    sparse_side: 8192,
    concurrent: 60,
};
const SMALL: Scale = Scale {
    matrix: 60,
    written: 20,
    summed: 32,
    batches: 2,
    corrupted: 1000,
    large_side: 700,
    sparse_windows: 2,
    sparse_side: 1500,
    concurrent: 5,
};

/// The results of one group of checks.
#[derive(Default)]
struct Tally {
    cases: u64,
    faults: Vec<String>,
    /// Figures for the report, which are neither right nor wrong.
    notes: Vec<String>,
}

impl Tally {
    fn check(&mut self, found: Result<(), String>) {
        self.cases += 1;
        self.faults.extend(found.err());
    }
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

fn text(error: &swath::Error) -> String {
    error.to_string()
}

/// Large files with every codec and layout: the CPU's pixels, and the same bytes for any batches.
fn written_large(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    use written::{ENCODED_ON_GPU, PushMethod, same_pixels};
    for compression in ENCODED_ON_GPU {
        for (sample, tile) in [(SampleType::F32, 512), (SampleType::U16, 256), (SampleType::U8, 512)] {
            let shape = Shape { width: side, height: side / 2 + 37, bands: 1, sample };
            let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(tile, tile));
            let case = written::large(shape, options, "");
            let run = || -> Result<(), String> {
                let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).map_err(|error| text(&error))?;
                let cuda = case.on(gpu, Mode::Cuda);
                let device = PushMethod::Device(u32::MAX, swath::Interleave::Band);
                let (file, report) = case.write(&cuda, device, gpu).map_err(|error| text(&error))?;
                same_pixels(&case.what, &cpu, &file)?;
                let counters = report.device.counters;
                let batches = u64::from(report.device.batches);
                ensure(counters.synchronisations == batches && counters.downloads == 2 * batches, || {
                    format!("{}: {counters:?} for {batches} batches", case.what)
                })?;
                for (method, batch) in [(device, 1), (PushMethod::Rows(300), 2), (device, 1000), (PushMethod::Whole, 3)]
                {
                    let options = cuda.clone().with_batch(batch);
                    let (again, _) = case.write(&options, method, gpu).map_err(|error| text(&error))?;
                    ensure(again == file, || format!("{}: {method:?}, batches of {batch}: other bytes", case.what))?;
                }
                // Read back by the GPU.
                let read = ReadOptions::default().with_device(Mode::Auto).with_gpu(gpu.clone());
                let raster = cases::open(&file).and_then(|file| file.read_device(&read)?.to_host());
                let raster = raster.map_err(|error| text(&error))?;
                ensure(raster.bytes() == case.samples, || format!("{}: read by the GPU it differs", case.what))
            };
            tally.check(run());
        }
    }
}

/// Files under a limit of device memory: the same bytes, and no more memory than allowed.
fn written_capped(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    use written::PushMethod;
    for compression in [Compression::Deflate, Compression::Zstd, Compression::Lzw] {
        let shape = Shape { width: side, height: side, bands: 1, sample: SampleType::F32 };
        let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(256, 256));
        let case = written::large(shape, options, "");
        let cuda = case.on(gpu, Mode::Cuda);
        let free = case.write(&cuda, PushMethod::Whole, gpu).map_err(|error| text(&error));
        for limit in [96_u64 << 20, 256 << 20, 512 << 20] {
            gpu.trim();
            tally.check(free.clone().and_then(|(free, _)| {
                let options = cuda.clone().with_max_device_memory(limit);
                match case.write(&options, PushMethod::Rows(1000), gpu) {
                    Ok((file, written)) => {
                        ensure(file == free, || format!("{compression} under {limit}: other bytes"))?;
                        let peak = written.device.counters.peak_bytes;
                        ensure(peak <= limit, || format!("{compression}: {peak} bytes under a limit of {limit}"))
                    }
                    Err(error) => ensure(error.to_string().contains("max_device_memory"), || text(&error)),
                }
            }));
        }
    }
}

/// Runs all checks, or those of the groups whose name has a word in it (`--only`); an error when any failed.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let scale = if flag(words, "--small") { &SMALL } else { &FULL };
    let gpu = Gpu::open(&GpuOptions::default())?;
    let mut groups = Vec::new();
    let mut failed = 0;
    println!("{:<20} {:>7} {:>7} {:>9}", "group", "cases", "failed", "seconds");
    let only = option(words, "--only");
    let mut group = |name: &str, body: &dyn Fn(&mut Tally)| {
        if only.is_some_and(|only| !name.contains(only)) {
            return;
        }
        let mut tally = Tally::default();
        let start = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&mut tally))) {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            tally.faults.push(format!("panic: {}", words.unwrap_or_default()));
        }
        let seconds = start.elapsed().as_secs_f64();
        let faults = tally.faults.len();
        println!("{name:<20} {:>7} {faults:>7} {seconds:>9.2}", tally.cases);
        failed += faults;
        tally.faults.truncate(MAX_PRINTED);
        for fault in &tally.faults {
            println!("    {fault}");
        }
        for note in &tally.notes {
            println!("    {note}");
        }
        groups.push(json!({
            "name": name,
            "notes": tally.notes,
            "cases": tally.cases,
            "failed": faults,
            "seconds": seconds,
            "first_failures": tally.faults,
        }));
    };
    group("matrix", &|tally| matrix(tally, &gpu, scale.matrix));
    group("large", &|tally| large(tally, &gpu, scale.large_side));
    group("statistics", &|tally| summed_up(tally, &gpu, scale.summed));
    if let Some(folder) = option(words, "--corpus") {
        group("corpus", &|tally| corpus(tally, &gpu, Path::new(folder)));
    }
    for compression in [Compression::Deflate, Compression::Lzw, Compression::PackBits, Compression::Zstd] {
        group(&format!("damaged {compression}"), &|tally| damaged(tally, &gpu, compression, scale.batches));
    }
    for codec in Codec::ALL {
        group(&format!("corrupted {codec}"), &|tally| corrupted(tally, &gpu, codec, scale.corrupted));
    }
    group("written", &|tally| written::matrix(&gpu, 77, scale.written, |found| tally.check(found)));
    group("written large", &|tally| written_large(tally, &gpu, scale.large_side));
    group("written capped", &|tally| written_capped(tally, &gpu, scale.large_side));
    group("pictures", &|tally| pictures(tally, &gpu, scale.large_side / 4));
    group("picture costs", &|tally| picture_costs(tally, &gpu, scale.large_side));
    group("damaged JPEG", &|tally| damaged_jpeg(tally, &gpu, scale.batches));
    group("trusted", &|tally| trusted(tally, &gpu, scale.large_side));
    group("counters", &|tally| counters(tally, &gpu));
    group("batches", &|tally| batches(tally, &gpu, scale.large_side));
    group("sparse 64 GiB", &|tally| sparse(tally, &gpu, scale));
    group("served", &|tally| served_files(tally, &gpu, scale.large_side));
    group("concurrent", &|tally| concurrent(tally, &gpu, scale.concurrent));
    let answer = json!({ "ok": failed == 0, "device": gpu.facts().name, "groups": groups });
    if let Some(path) = option(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    if failed > 0 {
        return Err(format!("{failed} checks failed").into());
    }
    Ok(json!({ "ok": true, "groups": groups.len() }))
}

fn options(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone())
}

/// Files of every kind, read in every way.
fn matrix(tally: &mut Tally, gpu: &Arc<Gpu>, count: u64) {
    let mut rng = Rng::new(1);
    for _ in 0..count {
        let case = Case::draw(&mut rng);
        tally.check(case.check(gpu, |options| options).and_then(|report| {
            // The CPU's decoding causes a notice, and so does a library that decodes pictures.
            let notices = report.notices.len();
            let no_tiles = report.device_tiles + report.host_tiles == 0;
            let right = if case.on_device { notices == 0 } else { notices == 1 || (notices == 0 && no_tiles) };
            ensure(right, || format!("{}: {:?}", case.what, report.notices))
        }));
    }
}

/// Statistics of every type and layout: the CPU's to the last bit, and no pixel comes back.
fn summed_up(tally: &mut Tally, gpu: &Arc<Gpu>, count: usize) {
    let mut rng = Rng::new(21);
    for case in (0..count).filter_map(|number| summed::draw(number, &mut rng)) {
        tally.check(case.check(gpu, None).map(|_| ()));
    }
    for compression in [Compression::None, Compression::Deflate, Compression::Zstd] {
        for memory in [None, Some(200 << 20), Some(16 << 20)] {
            let run = || {
                let file = summed::large(compression).map_err(|error| text(&error))?;
                let report = summed::agree(&file, &StatisticsOptions::default(), gpu, Mode::Cuda, memory)?;
                let peak = report.map_or(0, |report| report.counters.peak_bytes);
                ensure(memory.is_none_or(|most| peak <= most), || format!("{compression}: {peak} bytes, {memory:?}"))
            };
            tally.check(run());
        }
    }
}

/// A raster that is smooth enough to compress and large enough for many copies and launches.
fn raster(sample: SampleType, side: u32, bands: u16, options: &WriteOptions, seed: u64) -> Result<Arc<[u8]>, String> {
    let shape = Shape { width: side, height: side - side / 7, bands, sample };
    let mut rng = Rng::new(seed);
    cases::write(shape, &cases::samples(shape, &mut rng), &cases::nodata_of(""), options).map_err(|error| text(&error))
}

/// Rasters of many tiles and of few, in many copies and launches.
fn large(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    let kinds = [
        (SampleType::U8, 3, Blocks::Tiles(256, 256)),
        (SampleType::U16, 1, Blocks::Tiles(512, 512)),
        (SampleType::F32, 1, Blocks::Strips(None)),
    ];
    for (seed, compression) in (0..).zip(ON_DEVICE) {
        for (sample, bands, blocks) in kinds {
            let written = WriteOptions::default().with_compression(compression).with_blocks(blocks);
            let found = raster(sample, side, bands, &written, seed + 3).and_then(|file| {
                cases::agree(&file, &ReadOptions::default(), &options(gpu, Mode::Cuda))?.ok_or_else(|| "unread".into())
            });
            tally.check(found.map(|_| ()).map_err(|fault| format!("{compression} {sample} {blocks:?}: {fault}")));
        }
    }
}

/// JPEG and lossless JPEG 2000, by NVIDIA's libraries where they are found.
fn pictures(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    let kinds = [
        (Compression::Jpeg, SampleType::U8, 1, gpu.has_nvjpeg().is_ok()),
        (Compression::Jpeg, SampleType::U8, 3, gpu.has_nvjpeg().is_ok()),
        (Compression::Jpeg2000, SampleType::U8, 3, gpu.has_nvjpeg2000().is_ok()),
        (Compression::Jpeg2000, SampleType::U16, 1, gpu.has_nvjpeg2000().is_ok()),
        (Compression::Jpeg2000, SampleType::I16, 1, gpu.has_nvjpeg2000().is_ok()),
    ];
    for (seed, (compression, sample, bands, by_library)) in (0..).zip(kinds) {
        let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(256, 256));
        let found = raster(sample, side, bands, &written, seed).and_then(|file| {
            let report = cases::agree(&file, &ReadOptions::default(), &options(gpu, Mode::Auto))?;
            let report = report.ok_or_else(|| String::from("unread"))?;
            ensure((report.host_tiles == 0) == by_library, || format!("{:?}", report.notices))
        });
        tally.check(found.map_err(|fault| format!("{compression} {sample} {bands}: {fault}")));
    }
}

/// The cost of a read of pictures: one pool, one wait, one copy back, and nothing allocated the second time.
fn picture_costs(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    let kinds = [
        (Compression::Jpeg, 1, gpu.has_nvjpeg().is_ok()),
        (Compression::Jpeg, 3, gpu.has_nvjpeg().is_ok()),
        (Compression::Jpeg2000, 3, gpu.has_nvjpeg2000().is_ok()),
    ];
    for (compression, bands, _) in kinds.into_iter().filter(|(.., by_library)| *by_library) {
        // Lossless pictures are slow to write here.
        let side = if compression == Compression::Jpeg2000 { side / 4 } else { side };
        for tile in [256, 512] {
            let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(tile, tile));
            let found = raster(SampleType::U8, side.max(tile), bands, &written, 12).and_then(|file| {
                let dataset = cases::open(&file).map_err(|error| text(&error))?;
                let mut note = String::new();
                for number in 0..3 {
                    let start = Instant::now();
                    let read = dataset.read_device(&options(gpu, Mode::Cuda)).map_err(|error| text(&error))?;
                    let speed = read.len() as f64 / start.elapsed().as_secs_f64() / 1e9;
                    let (tiles, counters) = (read.report().device_tiles, read.report().counters);
                    promised(&counters, 1)?;
                    let again = counters.allocations + counters.pinned_allocations;
                    ensure(number == 0 || again == 0, || format!("read {number} allocates: {counters:?}"))?;
                    let Counters { buffers, uploads, downloads, synchronisations, library_waits, .. } = counters;
                    note = format!(
                        "{compression}, {bands} bands, {tiles} tiles of {tile}: {speed:.2} GB/s, {buffers} buffers, \
                         {again} allocations, {uploads} copies to the device, {downloads} back, {synchronisations} \
                         waits, {library_waits} for states of the library"
                    );
                }
                Ok(note)
            });
            match found {
                Ok(note) => {
                    tally.check(Ok(()));
                    tally.notes.push(note);
                }
                Err(fault) => tally.check(Err(format!("{compression} {bands}, tiles of {tile}: {fault}"))),
            }
        }
    }
}

/// Damaged JPEG tiles, each read by itself: the GPU fails where the CPU fails, with the same message, and nowhere else. If both
/// decode a damaged tile, their samples are not compared: decoders round coefficients that no encoder writes in different ways.
fn damaged_jpeg(tally: &mut Tally, gpu: &Arc<Gpu>, batches: u64) {
    const ACROSS: u32 = 8;
    if gpu.has_nvjpeg().is_err() {
        return;
    }
    let (mut damaged, mut sound, mut declined) = (0, 0, 0);
    for batch in 0..batches {
        let mut rng = Rng::new(batch * 11 + 3);
        let (tile, bands) = (rng.pick(&[16, 64, 128, 256]), rng.pick(&[1, 3]));
        let shape = Shape { width: tile * ACROSS, height: tile * ACROSS, bands, sample: SampleType::U8 };
        let blocks = Blocks::Tiles(tile, tile);
        let written = WriteOptions::default().with_compression(Compression::Jpeg).with_blocks(blocks);
        let data = cases::samples(shape, &mut rng);
        let made = cases::write(shape, &data, &cases::nodata_of(""), &written);
        let made = made.and_then(|file| cases::tiles(&file).map(|ranges| (file, ranges)));
        let (mut bad, ranges) = match made {
            Ok((file, ranges)) => (file.to_vec(), ranges),
            Err(error) => return tally.check(Err(text(&error))),
        };
        for (number, range) in ranges.iter().enumerate() {
            cases::spoil(&mut bad, range, number, &mut rng);
        }
        let Ok(dataset) = cases::open(&bad.into()) else { continue };
        for number in 0..ranges.len() as u32 {
            let window = Window::new(number % ACROSS * tile, number / ACROSS * tile, tile, tile);
            let cpu = dataset.read(&ReadOptions::default().with_window(window)).map(drop).map_err(|error| text(&error));
            let [cuda, auto] = [Mode::Cuda, Mode::Auto].map(|mode| {
                let read = dataset.read_device(&options(gpu, mode).with_window(window));
                read.map(drop).map_err(|error| text(&error))
            });
            let agreed = match (&cpu, &cuda) {
                (Err(_), _) => {
                    damaged += 1;
                    cpu == cuda && cpu == auto
                }
                (Ok(()), Ok(())) => {
                    sound += 1;
                    auto.is_ok()
                }
                // The library refuses it, and the CPU accepts it.
                (Ok(()), Err(error)) => {
                    declined += 1;
                    auto.is_ok() && error.contains("use the device auto")
                }
            };
            tally.check(ensure(agreed, || {
                format!("file {batch}, tile {number}: CPU {cpu:?}, Cuda {cuda:?}, Auto {auto:?}")
            }));
        }
    }
    tally.notes.push(format!("{damaged} damaged tiles, {sound} decoded by nvJPEG, {declined} decoded by the CPU only"));
}

fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_in(&path, found);
        } else if path.extension().is_some_and(|end| end == "tif" || end == "tiff") {
            found.push(path);
        }
    }
}

/// Every image and overview of every file: the same samples or the same error.
fn corpus(tally: &mut Tally, gpu: &Arc<Gpu>, folder: &Path) {
    let mut files = Vec::new();
    files_in(folder, &mut files);
    files.sort();
    if files.is_empty() {
        tally.check(Err(format!("no files in {}", folder.display())));
    }
    for path in files {
        // A file that does not open never reaches the GPU.
        let Ok(dataset) = Dataset::open(&path) else { continue };
        let images = dataset.images().map_or(1, Iterator::count);
        let overviews = dataset.overviews().map_or(0, |overviews| overviews.len());
        let levels = (0..overviews).map(|level| ReadOptions::default().with_overview(level));
        for plain in (0..images).map(|index| ReadOptions::default().with_ifd(index)).chain(levels) {
            // One thread meets the first damaged tile first.
            let plain = plain.with_threads(1);
            let options = plain.clone().with_device(Mode::Auto).with_gpu(gpu.clone());
            let found = cases::agree_on(&dataset, &plain, &options, cases::by_device);
            tally.check(found.map(|_| ()).map_err(|fault| format!("{}: {plain:?}: {fault}", path.display())));
        }
    }
}

/// Tiles with flipped bits, truncated, overwritten: alone, a few among many, all at once; then a good file.
fn damaged(tally: &mut Tally, gpu: &Arc<Gpu>, compression: Compression, batches: u64) {
    const ACROSS: u32 = 8;
    for batch in 0..batches {
        let mut rng = Rng::new(batch * 7 + 1);
        let sample = rng.pick(&[SampleType::U8, SampleType::U16, SampleType::F32, SampleType::I32]);
        // Streams of large tiles are shared among blocks.
        let tile = rng.pick(&[16, 32, 64, 128, 192]);
        let shape = Shape { width: tile * ACROSS, height: tile * ACROSS, bands: 1, sample };
        let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(tile, tile));
        let data = cases::samples(shape, &mut rng);
        let made = cases::write(shape, &data, &cases::nodata_of(""), &written);
        let made = made.and_then(|file| cases::tiles(&file).map(|ranges| (file, ranges)));
        let (good, ranges) = match made {
            Ok(made) => made,
            Err(error) => return tally.check(Err(text(&error))),
        };
        let spoil = |numbers: &[usize], rng: &mut Rng| -> Arc<[u8]> {
            let mut bad = good.to_vec();
            for number in numbers {
                if let Some(range) = ranges.get(*number) {
                    cases::spoil(&mut bad, range, *number, rng);
                }
            }
            bad.into()
        };
        let auto = options(gpu, Mode::Auto);
        let all: Vec<usize> = (0..ranges.len()).collect();
        let bad = spoil(&all, &mut rng);
        for number in 0..ranges.len() as u32 {
            let window = Window::new(number % ACROSS * tile, number / ACROSS * tile, tile, tile);
            let plain = ReadOptions::default().with_window(window);
            let found = cases::agree(&bad, &plain, &auto.clone().with_window(window));
            tally.check(found.map(|_| ()).map_err(|fault| format!("file {batch}, tile {number}: {fault}")));
        }
        let few: Vec<usize> = (0..rng.within(1..5)).map(|_| rng.below(ranges.len() as u64) as usize).collect();
        for bad in [bad, spoil(&few, &mut rng)] {
            // One thread meets the first damaged tile first.
            let found = cases::agree(&bad, &ReadOptions::default().with_threads(1), &auto);
            tally.check(found.map(|_| ()).map_err(|fault| format!("file {batch}: {fault}")));
        }
        // The context is alive, and no damage is left in it.
        let found = cases::agree(&good, &ReadOptions::default(), &auto);
        let alive = found.and_then(|report| {
            let report = report.ok_or("unread")?;
            ensure(report.host_tiles == 0, || format!("the CPU decoded sound tiles: {:?}", report.notices))
        });
        let died = alive.is_err();
        tally.check(alive.map_err(|fault| format!("after file {batch}: {fault}")));
        if died {
            return;
        }
    }
}

/// Damaged tiles without a file around them: every status and every byte is compared with the CPU's.
fn corrupted(tally: &mut Tally, gpu: &Arc<Gpu>, codec: Codec, count: u64) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    match corrupt::throw(gpu, codec, count, threads, false) {
        Ok(found) => {
            tally.cases += found.cases();
            tally.faults.extend(found.faults());
        }
        Err(fault) => tally.check(Err(fault.to_string())),
    }
}

/// Sound files that are declared trusted: nvCOMP decodes LZ4 where it is found, else the CPU, with a notice. Our own
/// kernels decode Zstd all the same.
fn trusted(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    for compression in [Compression::Zstd, Compression::Lz4] {
        for (sample, tile) in [(SampleType::U8, 256), (SampleType::U16, 128), (SampleType::F32, 512)] {
            let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(tile, tile));
            let asked = options(gpu, Mode::Auto).with_trust_input(true);
            let found = raster(sample, side / 2, 1, &written, 11).and_then(|file| {
                let report = cases::agree(&file, &ReadOptions::default(), &asked)?.ok_or("unread")?;
                let by_device = compression == Compression::Zstd || gpu.has_nvcomp().is_ok();
                ensure((report.host_tiles == 0) == by_device, || format!("{report:?}"))?;
                ensure((report.host_tiles > 0) == (report.notices.len() == 1), || format!("{report:?}"))
            });
            tally.check(found.map_err(|fault| format!("{compression} {sample}: {fault}")));
        }
    }
}

fn promised(counters: &Counters, halves: u64) -> Result<(), String> {
    // Output, statuses, and scratch of a stream or in each half; there compressed bytes, decoded bytes and tables too.
    let buffers = 3 + 4 * halves;
    let kept = counters.synchronisations == 1
        && counters.downloads <= 1
        && counters.uploads_before_first_wait == counters.uploads
        && counters.buffers <= buffers
        && counters.allocations <= counters.buffers;
    ensure(kept, || format!("{counters:?}"))
}

/// One wait, one copy back, nothing allocated the second time.
fn counters(tally: &mut Tally, gpu: &Arc<Gpu>) {
    for compression in ON_DEVICE {
        let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
        let read = |number: u32| -> Result<(), String> {
            let file = raster(SampleType::U16, 900, 2, &written, 5)?;
            let asked = options(gpu, Mode::Auto).with_threads(1);
            let raster = cases::open(&file).and_then(|file| file.read_device(&asked)).map_err(|error| text(&error))?;
            let counters = raster.report().counters;
            promised(&counters, 1)?;
            let again = counters.allocations + counters.pinned_allocations;
            ensure(number == 0 || again == 0, || format!("the second read allocates: {counters:?}"))
        };
        for number in 0..3 {
            tally.check(read(number).map_err(|fault| format!("{compression}: {fault}")));
        }
    }
}

/// The least memory, and some more: several batches, within the limit.
fn batches(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    for compression in ON_DEVICE {
        let written = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(128, 128));
        let check = || -> Result<(), String> {
            let file = raster(SampleType::U16, side, 1, &written, 6)?;
            let dataset = cases::open(&file).map_err(|error| text(&error))?;
            let limited = |bytes: u64| options(gpu, Mode::Cuda).with_max_device_memory(bytes);
            let least = least(&dataset, &limited(1))?;
            let refused = dataset.read_device(&limited(least - 1));
            ensure(refused.is_err(), || format!("{} of {least} bytes are enough", least - 1))?;
            let whole = dataset.read_device(&options(gpu, Mode::Cuda)).map_err(|error| text(&error))?;
            let peak = whole.report().counters.peak_bytes;
            drop(whole);
            for part in 0..4 {
                gpu.trim();
                let budget = least + peak.saturating_sub(least) / 4 * part;
                let found = cases::agree(&file, &ReadOptions::default(), &limited(budget))?;
                let report = found.ok_or("unread")?;
                let held = report.counters.peak_bytes;
                ensure(held <= budget, || format!("{held} bytes held, {budget} allowed"))?;
                let raster = dataset.read_device(&limited(budget)).map_err(|error| text(&error))?;
                promised(&raster.report().counters, 2)?;
                ensure(part > 0 || raster.report().batches > 1, || format!("one batch in {budget} bytes"))?;
            }
            Ok(())
        };
        tally.check(check().map_err(|fault| format!("{compression}: {fault}")));
    }
}

fn least(dataset: &Dataset, options: &ReadOptions) -> Result<u64, String> {
    match dataset.read_device(options) {
        Err(error) => match error.kind() {
            ErrorKind::Device(DeviceError::Memory { required, .. }) => Ok(*required),
            _ => Err(text(&error)),
        },
        Ok(_) => Err("it fits in one byte".into()),
    }
}

/// A sparse raster larger than host and device memory, read by windows.
fn sparse(tally: &mut Tally, gpu: &Arc<Gpu>, scale: &Scale) {
    const SIDE: u32 = 131_072;
    const BUDGET: u64 = 1 << 30;
    let source = MemorySource::new("sparse.tif", cases::sparse(SIDE, 512));
    let opened = OpenOptions::default().with_limits(Limits::none()).open_source(Arc::new(source));
    let Ok(dataset) = opened.map_err(|error| tally.check(Err(text(&error)))) else { return };
    let mut rng = Rng::new(9);
    let limited = options(gpu, Mode::Cuda).with_max_device_memory(BUDGET);
    for _ in 0..scale.sparse_windows {
        let side = scale.sparse_side;
        let window = Window::new(rng.within(0..SIDE - side), rng.within(0..SIDE - side), side, side);
        let check = || -> Result<(), String> {
            let raster = dataset.read_device(&limited.clone().with_window(window)).map_err(|error| text(&error))?;
            let held = raster.report().counters.peak_bytes;
            ensure(held <= BUDGET, || format!("{held} bytes held"))?;
            let host = raster.to_host().map_err(|error| text(&error))?;
            let samples = host.samples::<f32>().map_err(|error| text(&error))?;
            ensure(samples.iter().all(|sample| *sample == -1.0), || "other samples".into())
        };
        tally.check(check().map_err(|fault| format!("{window}: {fault}")));
    }
    let whole = least(&dataset, &limited);
    tally.check(whole.and_then(|least| ensure(least > 64 << 30, || format!("{least} bytes are enough"))));
}

/// Files on an HTTP server on loopback: the GPU gets the CPU's samples in few requests.
fn served_files(tally: &mut Tally, gpu: &Arc<Gpu>, side: u32) {
    for compression in ON_DEVICE {
        for tile in [64, 256] {
            let found = served::check(gpu, compression, side.max(tile * 4), tile);
            tally.check(found.map_err(|fault| format!("{compression}, tiles of {tile}: {fault}")));
        }
    }
}

/// Eight threads, one GPU.
fn concurrent(tally: &mut Tally, gpu: &Arc<Gpu>, count: u64) {
    let found: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let read = |seed: u64| {
            let mut rng = Rng::new(seed + 500);
            (0..count).map(|_| Case::draw(&mut rng).check(gpu, |options| options).map(|_| ())).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || read(seed))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|_| vec![Err("a thread panicked".into())]))
            .collect()
    });
    found.into_iter().for_each(|result| tally.check(result));
}
