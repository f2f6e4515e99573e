//! `swath convert`: writes a raster as another file.

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
    Blocks, Cancel, Compression, ConvertOptions, Dataset, OpenOptions, Overviews, Resampling, SampleType, Window,
    WriteOptions, Written,
    codec::LercWrap,
    convert::Scale,
    geo::{self, Nodata, nodata::nodata_text},
    io::StreamSink,
    names,
    statistics::portions,
    tiff::structure::{ByteOrder, Planar, Predictor},
    write::{BigTiff, Progress},
};

use crate::{args::Convert, cmd::stats, console, device, job, numbers, remote, traffic::Cost};

/// Runs `swath convert`.
pub fn run(args: &Convert) -> Result<ExitCode> {
    let open = OpenOptions::default().with_tile_cache(0).with_limits(job::limits(args.unlimited));
    let mut open = job::on_device(open, &args.device)?;
    if let Some(threads) = args.threads {
        open = open.with_threads(threads);
    }
    remote::check_scheme(&args.output)?;
    check_target(&args.output)?;
    let dataset = job::open_as(open, &args.input, &args.remote)?;
    portions::check_size(&dataset)?;
    let (convert, write) = options(args, &dataset)?;
    let cancel = Cancel::new();
    stop_on_interrupt(&cancel);
    let bar = Bar::new(args, &dataset);
    let shown = bar.clone();
    let write = write.with_cancel(cancel.clone()).with_progress(Arc::new(move |progress| shown.show(progress)));
    let converted = if args.output.as_os_str() == "-" {
        let sink = || Ok(Box::new(StreamSink::new("standard output", io::stdout())?) as Box<dyn swath::io::Sink>);
        dataset.convert_to(sink, &convert, &write)
    } else {
        dataset.convert(&args.output, &convert, &write)
    };
    bar.clear();
    let converted = match converted {
        // An error after an interrupt is its consequence. A file that was completed in spite of it counts as written.
        Err(_) if cancel.is_cancelled() => {
            let complete =
                if swath::io::remote::is_remote(&args.output.to_string_lossy()) { ", or complete" } else { "" };
            console::report(&format!("interrupted: {} is unchanged{complete}\n", remote::shown(&args.output)));
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    device::warn(&dataset);
    if !args.quiet {
        for notice in &converted.notices {
            console::report(&format!("note: {notice}\n"));
        }
        bar.finish(&converted.written, &args.output);
    }
    let cost = Cost::with_written(Cost::of([&dataset]), converted.written.traffic);
    device::write_report(&args.device, &converted.written.device, cost, args.quiet);
    if args.device.show_stats {
        console::report(&predictor_line(&converted.written));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line of `--stats` about the predictor.
fn predictor_line(written: &Written) -> String {
    let name = match written.predictor {
        Predictor::None => "none (1)",
        Predictor::Horizontal => "horizontal (2)",
        Predictor::FloatingPoint => "float (3)",
    };
    let by = if written.predictor_by_samples { ", chosen by the samples" } else { "" };
    format!("predictor    {name}{by}\n")
}

/// Returns the engine's options that the arguments mean for this file.
pub fn options(args: &Convert, dataset: &Dataset) -> Result<(ConvertOptions, WriteOptions)> {
    Ok((convert_options(args, dataset)?, write_options(args)?))
}

/// Makes Ctrl-C end the write in an orderly way, but without waiting for the slowest codecs, which take seconds for a tile.
fn stop_on_interrupt(cancel: &Cancel) {
    let cancel = cancel.clone();
    job::on_interrupt(move || {
        cancel.cancel();
        std::thread::sleep(job::GRACE);
        swath::io::abandon_unfinished();
        swath::io::abandon_uploads();
        std::process::exit(130);
    });
}

/// A progress bar with rate and time left, where standard error is a terminal.
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

    /// Prints one line about the written file, where the bar is shown.
    fn finish(&self, written: &Written, path: &Path) {
        if !self.on || self.quiet {
            return;
        }
        let big = if written.big { ", BigTIFF" } else { "" };
        let seconds = self.started.elapsed().as_secs_f64();
        console::report(&format!(
            "{}: {} bytes, {} overviews{big}, {seconds:.1} s\n",
            remote::shown(path),
            written.size,
            written.overviews
        ));
    }
}

fn clock(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    format!("{:02}:{:02}", whole / 60, whole % 60)
}

fn convert_options(args: &Convert, dataset: &Dataset) -> Result<ConvertOptions> {
    let mut options = ConvertOptions::default();
    if let Some(text) = &args.window {
        let [x, y, width, height] = numbers::exactly(text, "--window")?;
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

/// Parses a nodata value; integers keep every digit.
fn nodata(text: &str) -> Result<Nodata> {
    let number = match text.trim().parse::<i128>() {
        Ok(whole) => whole.to_string(),
        Err(_) => {
            nodata_text(text.trim().parse::<f64>().with_context(|| format!("--nodata: {text:?} is not a number"))?)
        }
    };
    Nodata::parse(number.as_bytes()).with_context(|| format!("--nodata: {text:?} is not a number"))
}

fn bbox(text: &str) -> Result<[f64; 4]> {
    let numbers: Vec<f64> = text
        .split(',')
        .map(|part| part.trim().parse().with_context(|| format!("--bbox: {part:?} is not a number")))
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
            range.with_context(|| format!("{}: there is no valid pixel to take the range from", dataset.name()))?;
        numbers.extend([low, high]);
    }
    for part in parts {
        numbers.push(part.parse().with_context(|| format!("--scale: {part:?} is not a number"))?);
    }
    let (from, to) = match numbers[..] {
        [low, high] => ((low, high), default_range(sample)),
        [low, high, to_low, to_high] => ((low, high), (to_low, to_high)),
        _ => bail!("--scale takes auto or two numbers, and optionally two more: {text}"),
    };
    if !numbers.iter().all(|number| number.is_finite()) || from.0 == from.1 {
        bail!("--scale: {text} does not define a range to scale from");
    }
    Ok(Scale { from, to })
}

/// Returns the default output range of a scale: that of the type, or 0 to 255 for 64-bit integers and floats.
fn default_range(sample: SampleType) -> (f64, f64) {
    match sample {
        SampleType::U16 => (0.0, 65535.0),
        SampleType::I8 => (-128.0, 127.0),
        SampleType::I16 => (-32768.0, 32767.0),
        SampleType::U32 => (0.0, f64::from(u32::MAX)),
        SampleType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (0.0, 255.0),
    }
}

/// Refuses options that do nothing with the codec.
fn check_codec_options(args: &Convert, compression: Compression, wrap: LercWrap) -> Result<()> {
    let (has, codec) = (names::codec_options(compression, wrap), &args.compress);
    match (args.level, has.levels) {
        (Some(level), None) => bail!("--level {level}: {codec} has no levels; leave --level out"),
        (Some(level), Some(levels)) if !levels.contains(&level) => {
            bail!("--level {level}: {codec} has levels from {} to {}", levels.start(), levels.end())
        }
        _ => {}
    }
    match args.quality {
        Some(quality) if !has.quality => {
            bail!(
                "--quality {quality}: {codec} has no quality; leave it out, or give --compress jpeg, webp or jpeg2000"
            )
        }
        Some(quality) if !(1..=100).contains(&quality) => bail!("--quality {quality}: give a number from 1 to 100"),
        _ => {}
    }
    if args.lossless && !has.lossless {
        let always = compression != Compression::Jpeg && !has.max_z_error;
        let fact = if always { "keeps every sample in any case" } else { "has no such choice" };
        bail!("--lossless: {codec} {fact}; leave it out, or give --compress webp or jpeg2000");
    }
    if args.max_z_error > 0.0 && !has.max_z_error {
        let error = args.max_z_error;
        bail!("--max-z-error {error}: {codec} has no error limit; leave it out, or give --compress lerc");
    }
    if args.subsampling.is_some() && compression != Compression::Jpeg {
        bail!("--subsampling: {codec} has no chroma subsampling; leave it out, or give --compress jpeg");
    }
    Ok(())
}

/// Refuses a target whose name has the ending of another format.
fn check_target(output: &Path) -> Result<()> {
    match names::other_format(&output.to_string_lossy()) {
        Some(ending) => bail!(
            "{}: convert writes GeoTIFF and COG, not .{ending}: give a name that ends in .tif{}",
            remote::shown(output),
            if matches!(ending.as_str(), "png" | "jpg" | "jpeg") {
                ", or use `swath preview` for a picture"
            } else {
                ""
            }
        ),
        None => Ok(()),
    }
}

fn write_options(args: &Convert) -> Result<WriteOptions> {
    let (compression, wrap) = names::compression(&args.compress).context("--compress")?;
    check_codec_options(args, compression, wrap)?;
    let mut options = WriteOptions::default()
        .with_cog(args.cog)
        .with_compression(compression)
        .with_lerc_wrap(wrap)
        .with_max_z_error(args.max_z_error)
        .with_sparse(args.sparse);
    if let Some(max_memory) = &args.max_memory {
        options = options.with_max_memory(numbers::bytes(max_memory, "--max-memory")?);
    }
    if let Some(level) = args.level {
        options = options.with_level(level);
    }
    if let Some(quality) = args.quality {
        options = options.with_quality(quality);
    }
    if args.lossless {
        options = options.with_lossless(true);
    }
    options = options.with_predictor_rule(names::predictor(&args.predictor).context("--predictor")?);
    options = options.with_blocks(match args.strips {
        Some(rows) => Blocks::Strips(NonZeroU32::new(rows)),
        None => match numbers::list(&args.tile, "--tile")?[..] {
            [side] => Blocks::Tiles(side, side),
            [width, height] => Blocks::Tiles(width, height),
            _ => bail!("--tile takes N or W,H: {}", args.tile),
        },
    });
    options = options.with_overviews(match args.overviews.to_lowercase().as_str() {
        "auto" => Overviews::Auto,
        "none" => Overviews::None,
        text => match numbers::list(text, "--overviews")?[..] {
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
    if let Some(name) = &args.subsampling {
        options = options.with_subsampling(match name.as_str() {
            "420" => (2, 2),
            "422" => (2, 1),
            "444" => (1, 1),
            other => bail!("--subsampling: {other:?} is not 420, 422 or 444"),
        });
    }
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
