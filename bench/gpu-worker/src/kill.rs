//! Kills processes that write from the GPU over a file, and checks that the name always holds a whole file.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use swath::{
    Blocks, Compression, Mode, OpenOptions, ReadOptions, SampleType, Shape, WriteOptions, Writer,
    gpu::{DeviceSamples, Gpu, GpuOptions},
    io::MemorySource,
};

use crate::{
    Fault, checksum, option,
    test::cases::{self, Rng},
};

/// Width and height of the rasters.
const SIDE: u32 = 3000;
/// Processes that write at the same time, each in a folder of its own.
const WRITERS: u64 = 8;
/// The ways to write: codec, and whether as a COG.
const KINDS: [(&str, bool); 4] = [("deflate", false), ("zstd", false), ("deflate", true), ("zstd", true)];

/// Counts of one folder, or of all.
#[derive(Default)]
struct Tally {
    kills: u64,
    old: u64,
    new: u64,
    lost: u64,
    strays: u64,
    faults: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.old += other.old;
        self.new += other.new;
        self.lost += other.lost;
        self.strays += other.strays;
        self.faults.extend(other.faults);
    }
}

/// `kill [--count N] [--dir DIR] [--json FILE]`: kills N writers, each at a random moment.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let count: u64 = option(words, "--count").unwrap_or("1000").parse()?;
    let folder = PathBuf::from(option(words, "--dir").unwrap_or("/dev/shm/swath-kill"));
    let (start, killed) = (Instant::now(), AtomicU64::new(0));
    let results: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let (folder, killed) = (&folder, &killed);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let work = move || kill_in(&folder.join(number.to_string()), number, count, killed);
                scope.spawn(move || work().map_err(|fault| fault.to_string()))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let _ = fs::remove_dir_all(&folder);
    let mut tally = Tally::default();
    for result in results {
        tally.add(result?);
    }
    let ok = tally.lost == 0 && tally.strays == 0 && tally.faults.is_empty();
    let answer = json!({
        "ok": ok, "kills": tally.kills, "old": tally.old, "new": tally.new, "lost": tally.lost,
        "strays": tally.strays, "faults": tally.faults, "seconds": start.elapsed().as_secs_f64(),
    });
    if let Some(path) = option(words, "--json") {
        fs::write(path, format!("{answer:#}\n"))?;
    }
    if ok { Ok(answer) } else { Err(format!("{answer}").into()) }
}

/// Kills writers of one kind in one folder until `count` were killed in all folders.
fn kill_in(folder: &Path, number: u64, count: u64, killed: &AtomicU64) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut rng = Rng::new(number);
    let kind = number as usize % KINDS.len();
    fs::create_dir_all(folder)?;
    let target = folder.join("a.tif");
    // The two files that the name may hold from now on.
    let mut writers = Writers::start("steps", kind, &target)?;
    let [first, second] = [writers.next_file(&target)?, writers.next_file(&target)?];
    writers.finish()?;
    while killed.fetch_add(1, Ordering::Relaxed) < count {
        let writers = Writers::start("endless", kind, &target)?;
        std::thread::sleep(Duration::from_micros(rng.below(400_000)));
        writers.kill()?;
        tally.kills += 1;
        match fs::read(&target).map(|bytes| checksum(&bytes)) {
            Ok(sum) if sum == first => tally.old += 1,
            Ok(sum) if sum == second => tally.new += 1,
            found => {
                tally.lost += 1;
                tally.faults.push(format!("{}, kind {kind}: neither file, but {found:?}", target.display()));
            }
        }
    }
    // The next writer removes the leftovers of killed ones.
    let mut writers = Writers::start("steps", kind, &target)?;
    writers.next_file(&target)?;
    writers.finish()?;
    for entry in fs::read_dir(folder)?.flatten().filter(|entry| entry.path() != target) {
        tally.strays += 1;
        tally.faults.push(format!("{} was left behind", entry.path().display()));
    }
    Ok(tally)
}

/// A process that writes one file and the other in turn.
struct Writers {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Writers {
    /// Starts it, and waits until its GPU is open and it begins to write.
    fn start(pace: &str, kind: usize, target: &Path) -> Result<Self, Fault> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["kill-case", pace, &kind.to_string()])
            .arg(target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut writers = Self { child, lines };
        writers.line()?;
        Ok(writers)
    }

    /// The next line that it prints: "ready" once, then one for each file that is complete.
    fn line(&mut self) -> Result<String, Fault> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the writer ended by itself".into());
        }
        Ok(line)
    }

    /// Lets it complete one more file; the checksum of that file.
    fn next_file(&mut self, target: &Path) -> Result<String, Fault> {
        let input = self.child.stdin.as_mut().ok_or("no standard input")?;
        input.write_all(b"one\n")?;
        self.line()?;
        Ok(checksum(&fs::read(target)?))
    }

    fn kill(mut self) -> Result<(), Fault> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends its input, after which it exits by itself.
    fn finish(mut self) -> Result<(), Fault> {
        drop(self.child.stdin.take());
        if self.child.wait()?.success() { Ok(()) } else { Err("a writer failed that was not killed".into()) }
    }
}

/// `kill-case steps|endless KIND TARGET`: the process that is killed. It writes two files under one name in turn: one
/// for each line of its input, or without end.
pub fn case(words: &[String]) -> Result<Value, Fault> {
    let [pace, kind, target] = words else { return Err("kill-case steps|endless KIND TARGET".into()) };
    let (compression, cog) = KINDS.get(kind.parse::<usize>()?).copied().ok_or("no such kind")?;
    let compression = if compression == "zstd" { Compression::Zstd } else { Compression::Deflate };
    let gpu = Gpu::open(&GpuOptions::default())?;
    let shape = Shape { width: SIDE, height: SIDE, bands: 1, sample: SampleType::U16 };
    let plain = if cog { WriteOptions::cog() } else { WriteOptions::default() };
    let options = plain
        .with_compression(compression)
        .with_blocks(Blocks::Tiles(256, 256))
        .with_device(Mode::Cuda)
        .with_gpu(gpu.clone());
    let metadata = cases::nodata_of("");
    let [first, second] = [1, 2].map(|seed| raster_on(&gpu, shape, seed));
    let rasters = [first?, second?];
    println!("ready");
    let mut lines = std::io::stdin().lines();
    for raster in rasters.iter().cycle() {
        if pace == "steps" && lines.next().is_none() {
            break;
        }
        let mut writer = Writer::create(target, shape, &metadata, &options)?;
        writer.push_device(&DeviceSamples::of_raster(raster)?)?;
        writer.finish()?;
        println!("written");
    }
    Ok(json!({ "ok": true }))
}

/// A raster in device memory.
fn raster_on(gpu: &Arc<Gpu>, shape: Shape, seed: u64) -> Result<swath::gpu::DeviceRaster, Fault> {
    let samples = cases::samples(shape, &mut Rng::new(seed));
    let file = cases::write(shape, &samples, &cases::nodata_of(""), &WriteOptions::default())?;
    let dataset = OpenOptions::default().open_source(Arc::new(MemorySource::new("made.tif", file)))?;
    Ok(dataset.read_device(&ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone()))?)
}
