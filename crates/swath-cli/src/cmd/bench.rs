//! `swath bench`: measures what this machine reaches with a file, beside what bounds it.

mod bound;
mod figure;
mod measure;
mod read;
mod report;
mod scratch;
mod subject;
mod svg;
mod write;

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use swath::{
    Cancel, Dataset, ErrorKind, OpenOptions,
    codec::CodecError,
    describe::facts,
    gpu::{Gpu, GpuOptions, copy_speeds, survey},
    statistics::portions,
};

use crate::{
    args::{Bench, BenchDevice, BenchWork},
    console::{self, Status},
    device, job, numbers, remote,
};
use figure::{Figure, FileFigures, GpuSpeeds, Machine, ProcessorKind, Timing, Work};
use measure::Pace;
use scratch::Scratch;
use subject::{Allowance, Processor, Settings, Skipped, Subject};

/// Sides of the windows that are read.
const SIDES: [u32; 3] = [256, 512, 1024];
/// Bytes that are received for a remote raster unless `--max-remote-bytes` says otherwise.
const REMOTE_BYTES: u64 = 64 << 20;
/// Bytes that are copied to measure the speed of memory, where it allows: more than caches hold.
const COPIED: u64 = 128 << 20;

/// Runs `swath bench`.
pub fn run(args: &Bench) -> Result<ExitCode> {
    let settings = settings(args)?;
    let time = Duration::try_from_secs_f64(args.seconds)
        .with_context(|| format!("--seconds: {} is not a number of seconds", args.seconds))?;
    if let Some(path) = &args.svg {
        remote::check_local(path)?;
    }
    let scratch = match wants(args, BenchWork::Write) {
        true => Some(Arc::new(Scratch::new(&args.temp_dir.clone().unwrap_or_else(std::env::temp_dir))?)),
        false => None,
    };
    stop_on_interrupt(&settings.cancel, scratch.clone());
    let bench = Runner { args, settings: &settings, time, scratch: scratch.as_deref() };
    let measured = bench.measure();
    // The temporary folder is gone before anything is printed, whatever happened.
    if let Some(scratch) = &scratch {
        scratch.remove();
    }
    let (machine, files) = match measured {
        // An error after an interrupt is its consequence.
        Err(_) if settings.cancel.is_cancelled() => {
            console::report("interrupted: the files that were written are removed\n");
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    if args.json {
        console::print_json(&report::document(&machine, &files))?;
    } else {
        let texts: Vec<String> = files.iter().map(report::file_text).collect();
        console::print(&format!("{}\n{}", report::machine_text(&machine), texts.join("\n")))?;
    }
    if let Some(path) = &args.svg {
        swath::io::write_file(path, |out| out.write_all(svg::draw(&machine, &files).as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &Bench) -> Result<Settings> {
    let device_memory = args.max_device_memory.as_deref().map(|text| numbers::bytes(text, "--max-device-memory"));
    Ok(Settings {
        max_memory: numbers::bytes(&args.max_memory, "--max-memory")? as u64,
        runs: args.runs,
        cancel: Cancel::new(),
        max_device_memory: device_memory.transpose()?.map(|bytes| bytes as u64),
        trust_input: args.trust_input,
    })
}

fn wants(args: &Bench, work: BenchWork) -> bool {
    args.only.is_empty() || args.only.contains(&work)
}

/// Makes Ctrl-C end the work in an orderly way, and remove the temporary folder where that takes too long.
fn stop_on_interrupt(cancel: &Cancel, scratch: Option<Arc<Scratch>>) {
    let cancel = cancel.clone();
    job::on_interrupt(move || {
        cancel.cancel();
        std::thread::sleep(job::GRACE);
        swath::io::abandon_unfinished();
        if let Some(scratch) = &scratch {
            scratch.remove();
        }
        std::process::exit(130);
    });
}

/// What all files have in common.
struct Runner<'a> {
    args: &'a Bench,
    settings: &'a Settings,
    time: Duration,
    scratch: Option<&'a Scratch>,
}

impl Runner<'_> {
    fn measure(&self) -> Result<(Machine, Vec<FileFigures>)> {
        // A wrong name is reported before minutes are spent on the files before it.
        let datasets: Vec<Dataset> = self.args.files.iter().map(|path| self.open(path)).collect::<Result<_>>()?;
        let threads = self.args.threads.map_or_else(cores, |threads| threads.max(1));
        let (processors, machine) = self.processors(threads)?;
        let mut files = Vec::new();
        for (dataset, path) in datasets.iter().zip(&self.args.files) {
            files.push(self.file(dataset, path, &processors, &machine)?);
            device::warn(dataset);
        }
        Ok((machine, files))
    }

    fn open(&self, path: &Path) -> Result<Dataset> {
        let mut remote = self.args.remote.clone();
        remote.max_remote_bytes.get_or_insert_with(|| REMOTE_BYTES.to_string());
        let limits = job::limits(self.args.unlimited);
        let dataset = job::open_as(OpenOptions::default().with_tile_cache(0).with_limits(limits), path, &remote)?;
        portions::check_size(&dataset)?;
        Ok(dataset)
    }

    /// Returns the CPUs and GPUs to measure, and the speeds that bound them.
    fn processors(&self, threads: usize) -> Result<(Vec<Processor>, Machine)> {
        let status = Status::new();
        status.show("measuring memory copies");
        let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
        let len = usize::try_from(COPIED.min(self.settings.max_memory / 4)).unwrap_or(usize::MAX).max(1);
        let memory_copy = counts.iter().map(|count| bound::memory_copy(*count, len)).collect::<Result<Vec<_>>>()?;
        let mut processors = Vec::new();
        if self.args.device != BenchDevice::Cuda {
            processors.extend(counts.iter().map(|count| Processor {
                kind: ProcessorKind::Cpu(*count),
                threads: *count,
                gpu: None,
            }));
        }
        let mut machine = Machine { cpu: cpu_name(), threads, memory_copy, gpus: Vec::new(), no_gpu: Vec::new() };
        if self.args.device != BenchDevice::Cpu {
            status.show("looking for GPUs");
            add_gpus(&mut processors, &mut machine, threads);
        }
        if processors.is_empty() {
            bail!("--device cuda: there is no GPU to measure: {}", machine.no_gpu.join("; "));
        }
        Ok((processors, machine))
    }

    fn file(&self, dataset: &Dataset, path: &Path, processors: &[Processor], machine: &Machine) -> Result<FileFigures> {
        let is_remote = dataset.traffic().is_some();
        let sides: Vec<u32> =
            SIDES.into_iter().filter(|side| *side <= dataset.width() && *side <= dataset.height()).collect();
        // Over a network, a run with one thread measures only the network again, and it costs requests.
        let processors: Vec<&Processor> = processors
            .iter()
            .filter(|processor| !is_remote || processor.gpu.is_some() || processor.threads == machine.threads)
            .collect();
        let allowance = match is_remote {
            true => {
                let given = self.args.remote.max_remote_bytes.as_deref();
                let total = given.map(|text| numbers::bytes(text, "--max-remote-bytes")).transpose()?;
                Some(Allowance::of(total.map_or(REMOTE_BYTES, |bytes| bytes as u64), processors.len(), sides.len()))
            }
            false => None,
        };
        let mut tasks = Vec::new();
        if wants(self.args, BenchWork::Read) {
            tasks.push(Work::Read);
        }
        if wants(self.args, BenchWork::Windows) {
            tasks.extend(sides.iter().map(|side| Work::Windows(*side)));
        }
        if wants(self.args, BenchWork::Write) {
            tasks.extend([Work::WriteGeoTiff, Work::WriteCog]);
        }
        let mut subject = Subject::new(dataset, self.settings, allowance, &machine.memory_copy);
        let mut pace = Pace::new(self.time, tasks.len() * processors.len() + machine.memory_copy.len());
        let status = Status::new();
        let name = remote::shown(path);
        for speed in machine.memory_copy.iter().filter(|speed| !is_remote || speed.threads == machine.threads) {
            status.show(&format!("{name}: bytes of the file"));
            let (most, passes) = allowance.map_or((u64::MAX, 3), |allowance| (allowance.raw, 0));
            let source = dataset.source().as_ref();
            let found =
                bound::file_read(source, speed.threads, most, passes, pace.next_budget(), &self.settings.cancel);
            subject.file_read.push(found.with_context(|| dataset.name().to_owned())?);
        }
        let mut samples = None;
        let mut figures = Vec::new();
        for work in tasks {
            for processor in &processors {
                if self.settings.cancel.is_cancelled() {
                    bail!("interrupted");
                }
                status.show(&format!("{name}: {}, {}", work.name(), processor.kind.name()));
                let mut notes = Vec::new();
                let budget = pace.next_budget();
                let timed = match (work, self.scratch) {
                    (Work::Read, _) => read::whole(&mut subject, processor, budget, &mut notes),
                    (Work::Windows(side), _) => read::windows(&mut subject, processor, side, budget, &mut notes),
                    (_, Some(scratch)) => {
                        let samples = match &mut samples {
                            Some(samples) => Ok(samples),
                            none => write::Samples::load(&subject).map(|loaded| none.insert(loaded)),
                        };
                        samples.and_then(|samples| {
                            write::write(&subject, processor, work, samples, scratch, budget, &mut notes)
                        })
                    }
                    // The folder is made whenever writes are measured.
                    (_, None) => continue,
                };
                let outcome = outcome(timed, work, processor)?;
                figures.push(Figure { work, processor: processor.kind.clone(), outcome, notes });
            }
        }
        Ok(described(dataset, &subject, figures, is_remote))
    }
}

/// Returns the reason where something cannot be measured, and the error where something is wrong.
fn outcome(timed: Result<Timing>, work: Work, processor: &Processor) -> Result<Result<Timing, String>> {
    let error = match timed {
        Ok(timing) => return Ok(Ok(timing)),
        Err(error) => error,
    };
    if let Some(Skipped(reason)) = error.downcast_ref() {
        return Ok(Err(reason.clone()));
    }
    let writes = matches!(work, Work::WriteGeoTiff | Work::WriteCog);
    let fault = error.downcast_ref::<swath::Error>();
    match fault.map(swath::Error::kind) {
        Some(kind) if writes && fault.and_then(swath::Error::limit) == Some("max_memory") => {
            Ok(Err(format!("{kind}, or raise --max-memory")))
        }
        Some(kind @ ErrorKind::Device(_)) if processor.gpu.is_some() => Ok(Err(kind.to_string())),
        // Not everything that can be read can be written.
        Some(
            kind @ (ErrorKind::Unsupported(_)
            | ErrorKind::Usage(_)
            | ErrorKind::Limit(_)
            | ErrorKind::Codec(
                CodecError::NoEncoder(_) | CodecError::NotBuilt { .. } | CodecError::Encode { .. },
            )),
        ) if writes => Ok(Err(kind.to_string())),
        _ => Err(error),
    }
}

/// Opens every GPU and measures how fast this machine copies to it.
fn add_gpus(processors: &mut Vec<Processor>, machine: &mut Machine, threads: usize) {
    let found = survey(&GpuOptions::default());
    match &found.driver {
        Err(error) => machine.no_gpu.push(error.to_string()),
        Ok(_) if found.devices.is_empty() => machine.no_gpu.push("the driver sees no device".to_owned()),
        Ok(_) => {}
    }
    for device in &found.devices {
        let (ordinal, name) = (device.facts.ordinal, device.facts.name.clone());
        let opened = device.free.clone().and_then(|_| {
            let gpu = Gpu::open(&GpuOptions::default().with_ordinal(ordinal))?;
            let copies = copy_speeds(&gpu)?;
            Ok((gpu, copies))
        });
        match opened {
            Ok((gpu, copies)) => {
                machine.gpus.push(GpuSpeeds { ordinal, name: name.clone(), copies });
                processors.push(Processor {
                    kind: ProcessorKind::Gpu(ordinal, name),
                    threads,
                    gpu: Some((gpu, copies)),
                });
            }
            Err(error) => machine.no_gpu.push(format!("GPU {ordinal}, {name}: {error}")),
        }
    }
}

fn described(dataset: &Dataset, subject: &Subject<'_>, figures: Vec<Figure>, remote: bool) -> FileFigures {
    let image = dataset.main();
    let layout = image.layout();
    FileFigures {
        name: dataset.name().to_owned(),
        size: dataset.size(),
        shape: (dataset.width(), dataset.height(), dataset.bands()),
        dtype: dataset.sample().to_string(),
        compression: (layout.compression.to_string(), facts::compress(image)),
        predictor: facts::predictor(image),
        block: (layout.tile_width, facts::block_height(image)),
        tiled: layout.tiled,
        sample_bytes: subject.sample_bytes(),
        file_read: subject.file_read.clone(),
        remote,
        figures,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the name of the CPU where Linux lists it, and the architecture elsewhere.
fn cpu_name() -> String {
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = listed.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
