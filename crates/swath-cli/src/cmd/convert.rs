//! `swath convert`: a raster as another file.

use std::{
    io::{self, IsTerminal, Write},
    num::NonZeroU32,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use swath::{
    BigTiff, Blocks, Cancel, ConvertOptions, Dataset, OpenOptions, Overviews, Progress, Resampling, SampleType, Scale,
    StreamSink, Window, WriteOptions, Written,
    geo::{self, Nodata, nodata::nodata_text},
    names, pieces,
    structure::{ByteOrder, Planar},
};

use crate::{args::Convert, cmd::stats, device, job, remote, traffic::Cost};

/// Runs `swath convert`.
pub fn run(args: &Convert) -> Result<ExitCode> {
    let open = OpenOptions::default().with_tile_cache(0).with_limits(job::limits(args.unlimited));
    let mut open = job::on_device(open, &args.device)?;
    if let Some(threads) = args.threads {
        open = open.with_threads(threads);
    }
    remote::check_scheme(&args.output)?;
    let dataset = job::open_as(open, &args.input, &args.remote)?;
    pieces::check_size(&dataset)?;
    let convert = convert_options(args, &dataset)?;
    let cancel = Cancel::new();
    stop_on_interrupt(&cancel);
    let bar = Bar::new(args, &dataset);
    let shown = bar.clone();
    let write =
        write_options(args)?.with_cancel(cancel.clone()).with_progress(Arc::new(move |progress| shown.show(progress)));
    let converted = if args.output.as_os_str() == "-" {
        let sink = || Ok(Box::new(StreamSink::new("standard output", io::stdout())?) as Box<dyn swath::Sink>);
        dataset.convert_to(sink, &convert, &write)
    } else {
        dataset.convert(&args.output, &convert, &write)
    };
    bar.clear();
    let converted = match converted {
        // What fails after an interrupt fails because of it; what is complete in spite of it is complete.
        Err(_) if cancel.is_cancelled() => {
            let whole = if swath::remote::is_remote(&args.output.to_string_lossy()) { ", or whole" } else { "" };
            eprintln!("interrupted: {} is as it was{whole}", remote::shown(&args.output));
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    device::warn(&dataset);
    if !args.quiet {
        for note in &converted.notes {
            eprintln!("note: {note}");
        }
        bar.finish(&converted.written, &args.output);
    }
    let cost = Cost::with_written(Cost::of([&dataset]), converted.written.traffic);
    device::tell_report(&args.device, &converted.written.device, cost, args.quiet);
    Ok(ExitCode::SUCCESS)
}

/// How long tiles that are being compressed may hold up an interrupt.
const GRACE: Duration = Duration::from_millis(600);

/// Ctrl-C ends the write in an orderly way. The slowest codecs take many seconds for a tile; they are not waited for.
fn stop_on_interrupt(cancel: &Cancel) {
    let cancel = cancel.clone();
    job::on_interrupt(move || {
        cancel.cancel();
        std::thread::sleep(GRACE);
        swath::abandon_unfinished();
        swath::abandon_uploads();
        std::process::exit(130);
    });
}

/// A bar with rate and time left, where a person looks at standard error.
#[derive(Clone)]
struct Bar {
    shown: Arc<Mutex<Option<Instant>>>,
    started: Instant,
    on: bool,
    quiet: bool,
    row_len: f64,
}

impl Bar {
    fn new(args: &Convert, dataset: &Dataset) -> Self {
        let on = !args.quiet && (args.progress || io::stderr().is_terminal());
        let row_len = f64::from(dataset.width()) * f64::from(dataset.bands()) * dataset.sample().size() as f64;
        Self { shown: Arc::default(), started: Instant::now(), on, quiet: args.quiet, row_len }
    }

    fn show(&self, progress: Progress) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let early = shown.map_or(self.started.elapsed() < Duration::from_millis(300), |at| {
            at.elapsed() < Duration::from_millis(100)
        });
        if !self.on || early {
            return;
        }
        *shown = Some(Instant::now());
        let part = f64::from(progress.rows) / f64::from(progress.of.max(1));
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = self.row_len * f64::from(progress.rows) / seconds / 1e6;
        let left = if part > 0.0 { seconds / part - seconds } else { 0.0 };
        let filled = (part * 30.0).round() as usize;
        let _ = write!(
            io::stderr(),
            "\r\x1b[K[{}{}] {:3.0} %  {rate:.0} MB/s  {} left",
            "=".repeat(filled),
            " ".repeat(30 - filled.min(30)),
            part * 100.0,
            clock(left)
        );
    }

    fn clear(&self) {
        if self.shown.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// One line at the end, for a person only.
    fn finish(&self, written: &Written, path: &Path) {
        if !self.on || self.quiet {
            return;
        }
        let big = if written.big { ", BigTIFF" } else { "" };
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!(
            "{}: {} bytes, {} overviews{big}, {seconds:.1} s",
            remote::shown(path),
            written.size,
            written.overviews
        );
    }
}

fn clock(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    format!("{:02}:{:02}", whole / 60, whole % 60)
}

fn convert_options(args: &Convert, dataset: &Dataset) -> Result<ConvertOptions> {
    let mut options = ConvertOptions::default();
    if let Some(text) = &args.window {
        let [x, y, width, height] = job::numbers(text, "--window")?;
        options = options.with_window(Window::new(x, y, width, height));
    }
    if let Some(text) = &args.bbox {
        let [west, south, east, north] = bbox(text)?;
        options = options.with_window(dataset.window_of(west, south, east, north).context("--bbox")?);
    }
    if let Some(text) = &args.bands {
        options = options.with_bands(job::bands(Some(text), dataset.bands())?);
    }
    if let Some(level) = args.overview {
        options = options.with_overview(level);
    }
    let sample = args.dtype.as_deref().map(names::sample_type).transpose().context("--dtype")?;
    if let Some(sample) = sample {
        options = options.with_sample(sample);
    }
    if let Some(text) = &args.scale {
        options = options.with_scale(scale(text, args, dataset, sample.unwrap_or(dataset.sample()))?);
    }
    if let Some(text) = &args.nodata {
        let nodata = match text.to_lowercase().as_str() {
            "none" => None,
            _ => Some(nodata(text)?),
        };
        options = options.with_nodata(nodata);
    }
    if let Some(text) = &args.crs {
        let definition = std::fs::read_to_string(text).unwrap_or_else(|_| text.clone());
        let crs = geo::parse_user(definition.trim()).map_err(|error| anyhow::anyhow!("--crs: {error}"))?;
        options = options.with_crs(crs);
    }
    Ok(options)
}

/// Whole numbers keep every digit.
fn nodata(text: &str) -> Result<Nodata> {
    let number = match text.trim().parse::<i128>() {
        Ok(whole) => whole.to_string(),
        Err(_) => nodata_text(text.trim().parse::<f64>().with_context(|| format!("--nodata: {text:?} is no number"))?),
    };
    Nodata::parse(number.as_bytes()).with_context(|| format!("--nodata: {text:?} is no number"))
}

fn bbox(text: &str) -> Result<[f64; 4]> {
    let numbers: Vec<f64> = text
        .split(',')
        .map(|part| part.trim().parse().with_context(|| format!("--bbox: {part:?} is no number")))
        .collect::<Result<_>>()?;
    <[f64; 4]>::try_from(numbers).map_err(|_| anyhow::anyhow!("--bbox takes west,south,east,north: {text}"))
}

fn scale(text: &str, args: &Convert, dataset: &Dataset, sample: SampleType) -> Result<Scale> {
    let mut parts = text.split(',').map(str::trim).peekable();
    let mut numbers: Vec<f64> = Vec::new();
    if parts.next_if(|part| part.eq_ignore_ascii_case("auto")).is_some() {
        let bands = job::bands(args.bands.as_deref(), dataset.bands())?;
        let range = stats::summarise(dataset, bands)?.range();
        let (low, high) =
            range.with_context(|| format!("{}: there is no valid pixel to take a range from", dataset.name()))?;
        numbers.extend([low, high]);
    }
    for part in parts {
        numbers.push(part.parse().with_context(|| format!("--scale: {part:?} is no number"))?);
    }
    let (from, to) = match numbers[..] {
        [low, high] => ((low, high), ends(sample)),
        [low, high, to_low, to_high] => ((low, high), (to_low, to_high)),
        _ => bail!("--scale takes auto or two numbers, and perhaps two more: {text}"),
    };
    if !numbers.iter().all(|number| number.is_finite()) || from.0 == from.1 {
        bail!("--scale: {text} gives no line to stretch values along");
    }
    Ok(Scale { from, to })
}

/// What a stretch goes to, where nobody says: the ends of the type, and of a byte for types that have no ends.
fn ends(sample: SampleType) -> (f64, f64) {
    match sample {
        SampleType::U16 => (0.0, 65535.0),
        SampleType::I8 => (-128.0, 127.0),
        SampleType::I16 => (-32768.0, 32767.0),
        SampleType::U32 => (0.0, f64::from(u32::MAX)),
        SampleType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (0.0, 255.0),
    }
}

fn write_options(args: &Convert) -> Result<WriteOptions> {
    let (compression, wrap) = names::compression(&args.compress).context("--compress")?;
    let mut options = WriteOptions::default()
        .with_cog(args.cog)
        .with_compression(compression)
        .with_lerc_wrap(wrap)
        .with_max_z_error(args.max_z_error)
        .with_sparse(args.sparse)
        .with_max_memory(job::bytes(&args.max_memory, "--max-memory")?);
    if let Some(level) = args.level {
        options = options.with_level(level);
    }
    if let Some(quality) = args.quality {
        options = options.with_quality(quality);
    }
    if args.lossless {
        options = options.with_lossless(true);
    }
    if let Some(predictor) = names::predictor(&args.predictor).context("--predictor")? {
        options = options.with_predictor(predictor);
    }
    options = options.with_blocks(match args.strips {
        Some(rows) => Blocks::Strips(NonZeroU32::new(rows)),
        None => match job::list(&args.tile, "--tile")?[..] {
            [side] => Blocks::Tiles(side, side),
            [width, height] => Blocks::Tiles(width, height),
            _ => bail!("--tile takes N or W,H: {}", args.tile),
        },
    });
    options = options.with_overviews(match args.overviews.to_lowercase().as_str() {
        "auto" => Overviews::Auto,
        "none" => Overviews::None,
        text => match job::list(text, "--overviews")?[..] {
            [count] if !text.contains(',') => Overviews::Levels(count),
            ref factors => Overviews::Factors(factors.to_vec()),
        },
    });
    if let Some(name) = &args.resampling {
        let resampling: Resampling =
            name.to_lowercase().parse().map_err(|error| anyhow::anyhow!("--resampling: {error}"))?;
        options = options.with_resampling(resampling);
    }
    options = options.with_bigtiff(match args.bigtiff.to_lowercase().as_str() {
        "auto" => BigTiff::Auto,
        "yes" => BigTiff::Always,
        "no" => BigTiff::Never,
        other => bail!("--bigtiff: {other:?} is not auto, yes or no"),
    });
    options = match args.interleave.to_lowercase().as_str() {
        "pixel" => options,
        "band" | "tile" => options.with_planar(Planar::Separate),
        other => bail!("--interleave: {other:?} is not pixel or band"),
    };
    if let Some(bits) = args.nbits {
        options = options.with_bits(bits);
    }
    if let Some(name) = &args.photometric {
        options = options.with_photometric(names::photometric(name).context("--photometric")?);
    }
    options = options.with_subsampling(match args.subsampling.as_str() {
        "420" => (2, 2),
        "422" => (2, 1),
        "444" => (1, 1),
        other => bail!("--subsampling: {other:?} is not 420, 422 or 444"),
    });
    options = match args.statistics.to_lowercase().as_str() {
        "auto" => options,
        "yes" => options.with_statistics(true),
        "no" => options.with_statistics(false),
        other => bail!("--statistics: {other:?} is not auto, yes or no"),
    };
    if args.big_endian {
        options = options.with_order(ByteOrder::Big);
    }
    if let Some(threads) = args.threads {
        options = options.with_threads(threads);
    }
    options = options.with_device(job::mode(&args.device)).with_nvcomp(args.nvcomp).with_remote(args.remote.options()?);
    if let Some(bytes) = job::device_memory(&args.device)? {
        options = options.with_max_device_memory(bytes);
    }
    Ok(options.with_nan_to_nodata(args.nan_to_nodata))
}
