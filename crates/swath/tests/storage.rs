//! Files that cuFile reads to the device, on the fake driver with a stand-in for cuFile: `tools/fake-driver/README.md`
//! documents its scripts and its log.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)]
#[path = "gpu/driver.rs"]
mod driver;

use std::{
    collections::{HashMap, HashSet},
    ffi::{CString, c_char, c_int, c_ulonglong},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use swath::{
    Blocks, Cancel, Compression, Dataset, Error, ErrorKind, Interleave, Metadata, Mode, OpenOptions, Raster,
    ReadOptions, Rows, SampleType, Shape, WriteOptions, Writer,
    gpu::{DeviceError, DeviceReport, Gpu, GpuOptions, StorageMethod},
    io::MemorySink,
};

/// Everything, as a recent cuFile has it.
const WHOLE: &str = "libraries";
/// As cuFile was before it had batches.
const WITHOUT_BATCH: &str = "without-batch";
/// As cuFile was at first.
const BLOCKING_ONLY: &str = "blocking-only";

/// One form of the stand-in, loaded beside the engine's own handle of it.
struct Library {
    script: unsafe extern "C" fn(*const c_char) -> c_int,
    count: unsafe extern "C" fn(*const c_char) -> c_ulonglong,
    log: unsafe extern "C" fn(*mut c_char, usize) -> usize,
}

/// The fake driver, a form of the stand-in, and a GPU that uses both.
struct Fixture {
    fake: driver::Fake,
    library: Library,
    gpu: Arc<Gpu>,
}

fn folder(form: &str) -> PathBuf {
    driver::path("").canonicalize().unwrap().with_file_name(form)
}

fn options_for(form: &str) -> GpuOptions {
    GpuOptions::default().with_driver(driver::path("").canonicalize().unwrap()).with_libraries(folder(form))
}

/// Builds the stand-ins; false where there is no compiler.
fn built() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    *BUILT.get_or_init(|| {
        let builder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fake-driver/libraries.sh");
        assert!(Command::new("bash").arg(builder).status().is_ok_and(|status| status.success()), "libraries.sh");
        true
    })
}

#[allow(unsafe_code)]
impl Fixture {
    /// `None` where there is no compiler.
    fn new(form: &str, driver_script: &str, script: &str, way: Option<StorageMethod>) -> Option<Self> {
        let fake = driver::fake()?;
        built();
        // SAFETY: our own library, whose start-up code does nothing.
        let library = unsafe { libloading::Library::new(folder(form).join("libcufile.so.0")) }.unwrap();
        // SAFETY: the types are those of storage.cpp.
        let (set, count, log) = unsafe {
            (
                *library.get(b"swath_fake_storage_script\0").unwrap(),
                *library.get(b"swath_fake_storage_count\0").unwrap(),
                *library.get(b"swath_fake_storage_log\0").unwrap(),
            )
        };
        std::mem::forget(library);
        fake.script(driver_script);
        let library = Library { script: set, count, log };
        let options = options_for(form).with_cufile(true);
        let options = way.map_or(options.clone(), |way| options.with_storage_method(way));
        let fixture = Self { fake, library, gpu: Gpu::open(&options).unwrap() };
        fixture.script(script);
        Some(fixture)
    }

    fn script(&self, script: &str) {
        let words = CString::new(script).unwrap();
        // SAFETY: the text ends with a zero and is copied.
        assert_eq!(unsafe { (self.library.script)(words.as_ptr()) }, 0, "script '{script}'");
    }

    fn count(&self, what: &str) -> u64 {
        let words = CString::new(what).unwrap();
        // SAFETY: the text ends with a zero.
        unsafe { (self.library.count)(words.as_ptr()) }
    }

    fn log(&self) -> Vec<Call> {
        // SAFETY: there is room for nothing, and nothing is written.
        let len = unsafe { (self.library.log)(std::ptr::null_mut(), 0) };
        let mut text = vec![0_u8; len];
        // SAFETY: there is room for as many.
        unsafe { (self.library.log)(text.as_mut_ptr().cast(), len) };
        String::from_utf8(text).unwrap().lines().map(Call::parse).collect()
    }

    fn options(&self) -> ReadOptions {
        ReadOptions::default().with_device(Mode::Cuda).with_gpu(self.gpu.clone())
    }

    fn read(&self, dataset: &Dataset) -> Result<Raster, Error> {
        dataset.read_device(&self.options()).and_then(|raster| raster.to_host())
    }

    /// A read in several batches.
    fn read_in_batches(&self, dataset: &Dataset) -> Raster {
        let options = self.options();
        let error = dataset.read_device(&options.clone().with_max_device_memory(1)).unwrap_err();
        let ErrorKind::Device(DeviceError::Memory { required, .. }) = error.kind() else { panic!("{error}") };
        // One and a half times the memory for one tile row has room for a few.
        let raster = dataset.read_device(&options.with_max_device_memory(required + required / 2)).unwrap();
        assert!(raster.report().batches > 2, "{:?}", raster.report());
        raster.to_host().unwrap()
    }

    /// Drops the GPU, and checks that everything was released.
    fn gone(self, what: &str) {
        assert_eq!(Arc::strong_count(&self.gpu), 1, "{what}");
        let Self { fake, library, gpu } = self;
        drop(gpu);
        fake.expect_nothing_left(what);
        for count in ["errors", "live"] {
            let words = CString::new(count).unwrap();
            // SAFETY: the text ends with a zero.
            assert_eq!(unsafe { (library.count)(words.as_ptr()) }, 0, "{count} of cuFile after '{what}'");
        }
    }
}

/// A call that the stand-in saw.
#[derive(Debug, Clone)]
struct Call {
    thread: String,
    what: String,
    offset: u64,
    len: u64,
}

impl Call {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        Self { thread: words[0].to_owned(), what: words[1].to_owned(), offset: number(2), len: number(3) }
    }

    fn is_read(&self) -> bool {
        ["batch", "async", "read"].contains(&self.what.as_str())
    }
}

/// How often a thread went from waiting back to submitting, counting the first time. One thread submits a batch and waits
/// for it, so this is the number of batches if every batch submits all its reads before it waits for the first.
fn phases(log: &[Call]) -> usize {
    let mut waiting: HashMap<&str, bool> = HashMap::new();
    let mut phases = 0;
    for call in log {
        let waits = waiting.insert(&call.thread, !call.is_read());
        phases += usize::from(call.is_read() && waits.unwrap_or(true));
    }
    phases
}

fn reads(log: &[Call]) -> Vec<Call> {
    log.iter().filter(|call| call.is_read()).cloned().collect()
}

const SIDE: u32 = 1024;
/// Tiles of a file.
const TILES: u64 = 256;
const DIRECT: &str = "cuFile, compatibility mode";
const PINNED: &str = "pinned copies";

fn shape(side: u32) -> Shape {
    Shape { width: side, height: side, bands: 1, sample: SampleType::U8 }
}

fn samples(shape: Shape) -> Vec<u8> {
    let len = shape.width as usize * shape.height as usize;
    (0..len).map(|at| (at * 7 % 251 + at / 97 % 40) as u8 >> 1).collect()
}

/// A file that is removed when this is dropped.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, shape: Shape, options: &WriteOptions) -> Self {
        let (sink, memory) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), options).unwrap();
        writer.push(&Rows::from_bytes(&samples(shape), Interleave::Band)).unwrap();
        writer.finish().unwrap();
        let path = std::env::temp_dir().join(format!("swath-storage-{}-{name}.tif", std::process::id()));
        std::fs::write(&path, memory.take().unwrap()).unwrap();
        Self(path)
    }

    fn tiles(name: &str) -> Self {
        let options = WriteOptions::default().with_compression(Compression::Deflate);
        Self::new(name, shape(SIDE), &options.with_blocks(Blocks::Tiles(64, 64)))
    }

    fn open(&self) -> Dataset {
        OpenOptions::default().with_tile_cache(0).open(&self.0).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn report(raster: &Raster) -> &DeviceReport {
    raster.report().unwrap()
}

#[test]
fn all_reads_of_a_batch_are_submitted_before_its_first_wait() {
    let file = TestFile::tiles("order");
    for (form, what, script) in [
        (WHOLE, "batch", ""),
        (WHOLE, "batch", "batch=16"),
        (WHOLE, "batch", "batch=100 events=7"),
        (WITHOUT_BATCH, "async", ""),
        (WHOLE, "async", "setup_from=1"),
    ] {
        let name = format!("{form}, {script}");
        // Seed 1: streams run only awaited work, so that a read runs when its batch is awaited.
        let Some(fixture) = Fixture::new(form, "async=1 seed=1 leaks=1", script, None) else { return };
        let dataset = file.open();
        let raster = fixture.read(&dataset).unwrap();
        assert!(raster.bytes() == samples(shape(SIDE)), "{name}");
        let log = fixture.log();
        assert_eq!(phases(&log), 1, "{name}: {log:?}");
        let submitted = reads(&log);
        assert!(submitted.iter().all(|call| call.what == what), "{name}");
        assert_eq!(submitted.iter().map(|call| call.offset).collect::<HashSet<_>>().len() as u64, TILES, "{name}");
        let counters = report(&raster).counters;
        let bytes: u64 = submitted.iter().map(|call| call.len).sum();
        assert_eq!((counters.storage_reads, counters.storage_waits), (TILES, 1), "{name}");
        assert_eq!((counters.storage_bytes, fixture.count("bytes")), (bytes, bytes), "{name}");
        assert_eq!((fixture.count("reads"), fixture.count("most_under_way")), (TILES, TILES), "{name}");
        assert_eq!(report(&raster).storage, DIRECT, "{name}");

        fixture.script(script);
        let raster = fixture.read_in_batches(&dataset);
        assert!(raster.bytes() == samples(shape(SIDE)), "{name}");
        let (log, batches) = (fixture.log(), report(&raster).batches);
        assert_eq!(phases(&log) as u32, batches, "{name}: {log:?}");
        assert_eq!(reads(&log).len() as u64, TILES, "{name}");
        let counters = report(&raster).counters;
        assert_eq!((counters.storage_reads, counters.storage_waits), (TILES, batches.into()), "{name}");
        assert_eq!(counters.storage_bytes, bytes, "{name}");
        fixture.gone(&name);
    }
}

#[test]
fn groups_of_a_batch_are_awaited_one_by_one_and_submitted_together() {
    let large = shape(6000);
    let options = WriteOptions::default().with_compression(Compression::None).with_blocks(Blocks::Tiles(256, 256));
    let file = TestFile::new("groups", large, &options);
    for form in [WHOLE, WITHOUT_BATCH] {
        let Some(fixture) = Fixture::new(form, "async=1 seed=1 leaks=1", "fail=3 short=500", None) else { return };
        let raster = fixture.read(&file.open()).unwrap();
        assert!(raster.bytes() == samples(large), "{form}");
        let counters = report(&raster).counters;
        assert_eq!(phases(&fixture.log()), 1, "{form}");
        assert!(counters.storage_waits > 1 && counters.storage_reads > 500, "{form}: {counters:?}");
        assert_eq!(counters.storage_reads, fixture.count("reads"), "{form}");
        assert_eq!(report(&raster).notices.len(), 1, "{form}: {:?}", report(&raster).notices);
        fixture.gone(form);
    }
}

/// The expected result of a read.
struct Expected {
    /// The calls that were used last.
    what: &'static str,
    storage: &'static str,
    /// Tiles that the engine reads through pinned memory; `None` where that depends on threads.
    missed: Option<u64>,
    /// A part of the one notice, where there is one.
    notice: Option<&'static str>,
}

#[test]
fn pixels_are_right_with_one_notice_whatever_cufile_refuses_or_loses() {
    let io = Some("I/O error");
    let less = Some("fewer bytes than requested");
    let case = |what, storage, missed, notice| Expected { what, storage, missed, notice };
    let no_batch = Some("instead of batches");
    let blocking = Some("blocking calls were used");
    let cases = [
        // Batches.
        (WHOLE, "", case("batch", DIRECT, Some(0), None)),
        (WHOLE, "fail=7", case("batch", DIRECT, Some(1), io)),
        (WHOLE, "fail=1", case("batch", DIRECT, Some(1), io)),
        (WHOLE, "fail_from=101", case("batch", DIRECT, Some(TILES - 100), io)),
        (WHOLE, "fail_from=1", case("batch", PINNED, Some(TILES), io)),
        (WHOLE, "short=256", case("batch", DIRECT, Some(1), less)),
        (WHOLE, "short_from=1", case("batch", PINNED, Some(TILES), less)),
        (WHOLE, "fail=3 short=200 batch=10 events=3", case("batch", DIRECT, Some(2), io)),
        // Fewer at once than a batch has, and none for a moment.
        (WHOLE, "batch=16 batches=2", case("batch", DIRECT, Some(0), None)),
        (WHOLE, "setup=2", case("batch", DIRECT, Some(0), None)),
        (WHOLE, "submit=2", case("batch", DIRECT, Some(0), None)),
        (WHOLE, "setup_from=2", case("batch", DIRECT, Some(TILES - 128), Some("could not be set up"))),
        // No batches.
        (WHOLE, "setup_from=1", case("async", DIRECT, Some(0), no_batch)),
        (WHOLE, "submit_from=1", case("async", DIRECT, Some(0), no_batch)),
        (WHOLE, "setup_from=1 fail=9", case("async", DIRECT, Some(1), io)),
        (WITHOUT_BATCH, "", case("async", DIRECT, Some(0), Some("does not have it"))),
        (WITHOUT_BATCH, "fail=9 short=33", case("async", DIRECT, Some(2), io)),
        (WITHOUT_BATCH, "fail_from=1", case("async", PINNED, Some(TILES), io)),
        (WITHOUT_BATCH, "short_from=1", case("async", PINNED, Some(TILES), less)),
        (WITHOUT_BATCH, "async=20", case("async", DIRECT, Some(1), Some("not supported"))),
        // Neither.
        (WHOLE, "setup_from=1 async_from=1", case("read", DIRECT, Some(0), blocking)),
        (WITHOUT_BATCH, "async_from=1", case("read", DIRECT, Some(0), blocking)),
        (BLOCKING_ONLY, "", case("read", DIRECT, Some(0), blocking)),
        (BLOCKING_ONLY, "fail=9", case("read", DIRECT, Some(1), io)),
        (BLOCKING_ONLY, "fail_from=1", case("read", PINNED, Some(TILES), io)),
        (BLOCKING_ONLY, "short_from=1", case("read", PINNED, Some(TILES), less)),
        (BLOCKING_ONLY, "fail_from=100", case("read", DIRECT, None, io)),
        // Nothing at all.
        (WHOLE, "register=5008", case("", PINNED, None, Some("cuFile was requested and is not used"))),
    ];
    let file = TestFile::tiles("faults");
    let dataset = file.open();
    // Bytes of all tiles, as the first case reads them.
    let mut whole = 0;
    for (seed, (form, script, expected)) in cases.into_iter().enumerate() {
        let name = format!("{form}, {script}");
        let driver_script = format!("async=1 seed={seed} leaks=1");
        let Some(fixture) = Fixture::new(form, &driver_script, script, None) else { return };
        for in_batches in [false, true] {
            fixture.script(script);
            let raster = if in_batches { fixture.read_in_batches(&dataset) } else { fixture.read(&dataset).unwrap() };
            let (report, name) = (report(&raster), format!("{name}, in bands: {in_batches}"));
            assert!(raster.bytes() == samples(shape(SIDE)), "{name}");
            assert_eq!(report.device_tiles, TILES, "{name}");
            let notices = &report.notices;
            match expected.notice {
                // The first cuFile batch of one of our batches may be refused.
                _ if in_batches && ["setup=2", "submit=2", "setup_from=2"].contains(&script) => {
                    assert!(notices.len() <= 1, "{name}: {notices:?}");
                }
                None => assert!(notices.is_empty(), "{name}: {notices:?}"),
                // Batches run at once: either fault may be the first that the engine sees.
                _ if in_batches && script.contains("fail=") && script.contains("short=") => {
                    assert!(notices.len() == 1, "{name}: {notices:?}");
                    assert!(
                        [io, less].into_iter().flatten().any(|part| notices[0].contains(part)),
                        "{name}: {notices:?}"
                    );
                }
                Some(part) => assert!(notices.len() == 1 && notices[0].contains(part), "{name}: {notices:?}"),
            }
            let submitted = reads(&fixture.log());
            let counters = &report.counters;
            assert_eq!(counters.storage_reads, submitted.len() as u64, "{name}");
            assert_eq!(counters.storage_waits > 0, !submitted.is_empty(), "{name}");
            if !in_batches {
                assert_eq!(report.storage, expected.storage, "{name}");
                assert_eq!(submitted.last().map_or("", |call| &call.what), expected.what, "{name}");
            }
            // One copy for the tables of each batch, one for each tile that storage did not deliver.
            if let Some(missed) = expected.missed.filter(|_| !in_batches) {
                assert_eq!(counters.uploads, 1 + missed, "{name}");
                whole = whole.max(submitted.iter().map(|call| call.len).sum());
                assert_eq!(counters.storage_bytes == whole, missed == 0, "{name}");
                assert_eq!(counters.storage_bytes == 0, missed == TILES, "{name}");
            }
        }
        fixture.gone(&name);
    }
}

#[test]
fn a_file_that_shrinks_under_the_read_is_an_error_and_never_old_bytes() {
    for form in [WHOLE, WITHOUT_BATCH, BLOCKING_ONLY] {
        // The second stand-in reports success where there was none.
        for (seed, lie) in ["", " lie=1"].iter().enumerate() {
            let file = TestFile::tiles("shrinks");
            let len = std::fs::metadata(&file.0).unwrap().len();
            let dataset = file.open();
            let name = format!("{form},{lie}");
            let Some(fixture) = Fixture::new(form, &format!("async=1 seed={seed} leaks=1"), "", None) else { return };
            fixture.script(&format!("cut={}{lie}", len / 2));
            let error = fixture.read(&dataset).unwrap_err();
            assert_eq!(std::fs::metadata(&file.0).unwrap().len(), len / 2, "{name}");
            // With the CPU's message.
            let cpu = dataset.read(&ReadOptions::default()).unwrap_err();
            let [device, cpu] = [error, cpu].map(|error| std::mem::discriminant(error.kind()));
            assert_eq!(device, cpu, "{name}");
            fixture.gone(&name);
        }
    }
}

#[test]
fn reads_of_a_batch_wait_together_and_not_for_each_other() {
    // As little work besides the reads as possible.
    let small = shape(256);
    let options = WriteOptions::default().with_compression(Compression::None).with_blocks(Blocks::Tiles(16, 16));
    let file = TestFile::new("latency", small, &options);
    let dataset = file.open();
    let mut best = Vec::new();
    for way in [StorageMethod::Serial, StorageMethod::Batch] {
        let Some(fixture) = Fixture::new(WHOLE, "async=1 seed=1", "", Some(way)) else { return };
        // The first read loads kernels and takes memory.
        assert!(fixture.read(&dataset).unwrap().bytes() == samples(small), "{way:?}");
        let mut took = Vec::new();
        for _ in 0..3 {
            fixture.script("latency=1000");
            let begun = Instant::now();
            let raster = fixture.read(&dataset).unwrap();
            took.push(begun.elapsed());
            assert!(raster.bytes() == samples(small), "{way:?}");
            let report = report(&raster);
            assert!(report.notices.is_empty() && report.storage == DIRECT, "{report:?}");
            let at_once = if way == StorageMethod::Serial { 1 } else { TILES };
            assert_eq!((fixture.count("reads"), fixture.count("most_under_way")), (TILES, at_once), "{way:?}");
        }
        best.push(took.into_iter().min().unwrap());
        fixture.gone("latency");
    }
    // 256 reads of 1 ms: one after the other they take 256 ms at the least, in batches little more than 1.
    let timing = format!("one after the other {:?}, in batches {:?}", best[0], best[1]);
    println!("{timing}");
    assert!(best[0] >= 6 * best[1], "{timing}");
}

#[test]
fn a_cancelled_read_waits_for_submitted_reads() {
    let file = TestFile::tiles("cancel");
    let dataset = file.open();
    for form in [WHOLE, WITHOUT_BATCH] {
        let Some(fixture) = Fixture::new(form, "async=1 seed=1 leaks=1", "latency=10000", None) else { return };
        let cancel = Cancel::new();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                while fixture.count("reads") == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                cancel.cancel();
            });
            dataset.read_device(&fixture.options().with_cancel(cancel.clone())).map(|_| ()).unwrap_err()
        });
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
        fixture.gone(form);
    }
}

#[test]
fn the_device_may_be_lost_at_any_call() {
    let file = TestFile::tiles("lost-device");
    let dataset = file.open();
    for form in [WHOLE, WITHOUT_BATCH, BLOCKING_ONLY] {
        let Some(fixture) = Fixture::new(form, "async=1 seed=5 leaks=1", "batch=50", None) else { return };
        let want = fixture.read(&dataset).unwrap();
        let calls = fixture.fake.count("calls");
        let (mut failed, mut after) = (0, 1);
        while after < calls {
            fixture.fake.script(&format!("async=1 seed=5 lose_after={after}"));
            match fixture.read(&dataset) {
                Ok(raster) => assert!(raster.bytes() == want.bytes(), "{form}: {after}"),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Device(_)), "{form}: {after}: {error}");
                    failed += 1;
                }
            }
            after += 1 + calls / 60;
        }
        assert!(failed > 20, "{form}: {failed} of {calls}");
        fixture.fake.script("leaks=1");
        fixture.gone(form);
    }
}

/// Runs an ignored test of this file with these variables.
fn child(name: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", name, "--nocapture"]).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn variables_mean_the_same_as_options() {
    if driver::fake().is_none() {
        return;
    }
    for (words, what) in [("always", "batch"), ("always,async", "async"), ("threads,always", "read"), ("never", "")] {
        let variables = [("SWATH_CUFILE", words), ("SWATH_FAKE_STORAGE", "fail=2"), ("EXPECTED", what)];
        child("reads_as_the_variables_say", &variables);
    }
}

#[test]
#[ignore = "run by another test, with variables"]
fn reads_as_the_variables_say() {
    let what = std::env::var("EXPECTED").unwrap_or_else(|_| "batch".into());
    let Some(fixture) = Fixture::new(WHOLE, "", "", None) else { return };
    let gpu = Gpu::open(&options_for(WHOLE)).unwrap();
    // Back to the script of the variable.
    // SAFETY: the function accepts null for that.
    #[allow(unsafe_code)]
    let code = unsafe { (fixture.library.script)(std::ptr::null()) };
    assert_eq!(code, 0);
    let file = TestFile::tiles("variables");
    let raster = file.open().read_device(&ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu)).unwrap();
    let calls = reads(&fixture.log());
    assert!(calls.iter().all(|call| call.what == what) && calls.is_empty() == what.is_empty(), "{what}");
    assert_eq!(raster.report().notices.len(), usize::from(!what.is_empty()), "{:?}", raster.report().notices);
    assert!(raster.to_host().unwrap().bytes() == samples(shape(SIDE)));
}

#[test]
fn memory_that_storage_may_still_write_to_is_never_reused() {
    if driver::fake().is_none() {
        return;
    }
    // In a process of its own: lost memory stays lost.
    child("loses_a_batch", &[]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn loses_a_batch() {
    let Some(fixture) = Fixture::new(WHOLE, "async=1", "status_from=1", None) else { return };
    let file = TestFile::tiles("lost");
    let dataset = file.open();
    let error = fixture.read(&dataset).unwrap_err();
    assert!(error.to_string().contains("cuFileBatchIOGetStatus"), "{error}");
    assert_eq!(fixture.count("errors"), 0, "a batch with reads is not destroyed, nor its file let go");
    let live = fixture.count("live");
    assert!(live > TILES, "{live}");
    // The GPU still works, and the memory of the lost reads is not in its pool.
    fixture.gpu.trim();
    assert!(fixture.fake.count("live_bytes") > 0);
    fixture.script("");
    let raster = fixture.read(&dataset).unwrap();
    assert!(raster.bytes() == samples(shape(SIDE)));
}
