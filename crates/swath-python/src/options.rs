//! Turns the options that Python passes into the engine's.

use std::num::NonZeroU32;

use pyo3::{exceptions::PyException, prelude::*, types::PyDict};
use swath::{
    Blocks, Error, Interleave, Limits, Mode, OpenOptions, Overviews, ReadOptions, Resampling, Window, WriteOptions,
    names,
    tiff::structure::{ByteOrder, Planar, emit::Field, value::FieldType},
    write::{Alpha, BigTiff},
};

use crate::errors::{self, OrRaise};

/// Returns the device that a word names.
pub fn mode(py: Python<'_>, word: &str) -> PyResult<Mode> {
    match word {
        "cpu" => Ok(Mode::Cpu),
        "cuda" => Ok(Mode::Cuda),
        "auto" => Ok(Mode::Auto),
        _ => Err(errors::usage(py, &format!("device: {word:?} is not cpu, cuda or auto"))),
    }
}

/// Returns the order of bands in memory that a word names.
pub fn interleave(py: Python<'_>, word: &str) -> PyResult<Interleave> {
    match word {
        "band" => Ok(Interleave::Band),
        "pixel" => Ok(Interleave::Pixel),
        _ => Err(errors::usage(py, &format!("interleave: {word:?} is not band or pixel"))),
    }
}

/// The options of opening a file.
#[derive(Default)]
pub struct Opening {
    pub threads: Option<usize>,
    pub tile_cache: Option<usize>,
    pub max_pixels: Option<u64>,
    pub max_device_memory: Option<u64>,
    pub trust_input: bool,
    pub ifd: Option<usize>,
}

impl Opening {
    pub fn options(&self, mode: Option<Mode>) -> OpenOptions {
        let mut options = OpenOptions::default().with_trust_input(self.trust_input);
        if let Some(threads) = self.threads {
            options = options.with_threads(threads);
        }
        if let Some(bytes) = self.tile_cache {
            options = options.with_tile_cache(bytes);
        }
        if let Some(mode) = mode {
            options = options.with_device(mode);
        }
        if let Some(bytes) = self.max_device_memory {
            options = options.with_max_device_memory(bytes);
        }
        if let Some(index) = self.ifd {
            options = options.with_ifd(index);
        }
        // A caller's own limit replaces the engine's guesses about a plausible number of bytes. A tile may be as large as
        // that many samples of the largest type, which has 16 bytes.
        if let Some(samples) = self.max_pixels {
            let limits = Limits::default();
            let tile_bytes = limits.tile_bytes.max(samples.saturating_mul(16));
            let limits = limits.with_decoded_bytes(u64::MAX).with_expansion(u64::MAX);
            options = options.with_limits(limits.with_tile_bytes(tile_bytes));
        }
        options
    }
}

/// The options of a read.
#[derive(Default)]
pub struct Reading {
    pub window: Option<(u32, u32, u32, u32)>,
    pub bands: Option<Vec<u32>>,
    pub overview: Option<usize>,
    pub ifd: Option<usize>,
    pub threads: Option<usize>,
    pub max_device_memory: Option<u64>,
    pub trust_input: Option<bool>,
    pub cpu_decode: Option<bool>,
}

impl Reading {
    pub fn options(self, interleave: Interleave, mode: Option<Mode>) -> ReadOptions {
        let mut options = ReadOptions::default().with_interleave(interleave);
        if let Some((x, y, width, height)) = self.window {
            options = options.with_window(Window::new(x, y, width, height));
        }
        if let Some(bands) = self.bands {
            options = options.with_bands(bands);
        }
        if let Some(level) = self.overview {
            options = options.with_overview(level);
        }
        if let Some(index) = self.ifd {
            options = options.with_ifd(index);
        }
        if let Some(threads) = self.threads {
            options = options.with_threads(threads);
        }
        if let Some(mode) = mode {
            options = options.with_device(mode);
        }
        if let Some(bytes) = self.max_device_memory {
            options = options.with_max_device_memory(bytes);
        }
        if let Some(trusted) = self.trust_input {
            options = options.with_trust_input(trusted);
        }
        if let Some(allowed) = self.cpu_decode {
            options = options.with_cpu_decode(allowed);
        }
        options
    }
}

/// Reads the options of a write, which `EngineOptions` in `_engine_options.py` documents: the same names, and no others.
pub fn write_options(given: &Bound<'_, PyDict>) -> PyResult<WriteOptions> {
    Keywords::of(given)
        .set("cog", extract, WriteOptions::with_cog)?
        .set(
            "compression",
            |value| by_name(value, names::compression),
            |options, (codec, wrap)| options.with_compression(codec).with_lerc_wrap(wrap),
        )?
        .set("compression_level", extract, WriteOptions::with_level)?
        // A quality turns lossless encoding off, so `lossless` comes after it.
        .set("quality", extract, WriteOptions::with_quality)?
        .set("lossless", extract, WriteOptions::with_lossless)?
        .set("max_z_error", extract, WriteOptions::with_max_z_error)?
        .set("predictor", |value| by_name(value, names::predictor), WriteOptions::with_predictor_rule)?
        .set("tile_size", extract, |options, (width, height)| options.with_blocks(Blocks::Tiles(width, height)))?
        .set("strips", extract, |options, rows| options.with_blocks(Blocks::Strips(NonZeroU32::new(rows))))?
        .set("interleave", planar, WriteOptions::with_planar)?
        .set("nbits", extract, WriteOptions::with_bits)?
        .set("photometric", |value| by_name(value, names::photometric), WriteOptions::with_photometric)?
        .set("alpha", alpha, WriteOptions::with_alpha)?
        .set("subsampling", subsampling, WriteOptions::with_subsampling)?
        .set("big_endian", extract, |options, big| {
            options.with_order(if big { ByteOrder::Big } else { ByteOrder::Little })
        })?
        .set("bigtiff", bigtiff, WriteOptions::with_bigtiff)?
        .set("sparse", extract, WriteOptions::with_sparse)?
        .set("mask", extract, WriteOptions::with_mask)?
        .set("soft_mask", extract, WriteOptions::with_soft_mask)?
        .set("overview_levels", overviews, WriteOptions::with_overviews)?
        .set("overview_resampling", resampling, WriteOptions::with_resampling)?
        .set("statistics", extract, WriteOptions::with_statistics)?
        .set("nan_to_nodata", extract, WriteOptions::with_nan_to_nodata)?
        .set("extra_tags", extra_tags, WriteOptions::with_tags)?
        .set("device", |value| mode(value.py(), &text(value)?), WriteOptions::with_device)?
        .set("nvcomp", extract, WriteOptions::with_nvcomp)?
        .set("threads", extract, WriteOptions::with_threads)?
        .set("max_memory", extract, WriteOptions::with_max_memory)?
        .set("max_device_memory", extract, WriteOptions::with_max_device_memory)?
        .finish()
}

/// A dictionary of options, and the engine's options that are set from it one by one.
struct Keywords<'a, 'py> {
    given: &'a Bound<'py, PyDict>,
    known: Vec<&'static str>,
    options: WriteOptions,
}

impl<'a, 'py> Keywords<'a, 'py> {
    fn of(given: &'a Bound<'py, PyDict>) -> Self {
        Self { given, known: Vec::new(), options: WriteOptions::default() }
    }

    /// Reads one option and sets it; one that is missing or `None` keeps the engine's default.
    fn set<T>(
        mut self,
        name: &'static str,
        read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
        with: impl FnOnce(WriteOptions, T) -> WriteOptions,
    ) -> PyResult<Self> {
        self.known.push(name);
        if let Some(value) = self.given.get_item(name)?.filter(|value| !value.is_none()) {
            let value = read(&value).map_err(|error| named(self.given.py(), name, error))?;
            self.options = with(self.options, value);
        }
        Ok(self)
    }

    /// Returns the options, unless the dictionary has a name that none of them has.
    fn finish(self) -> PyResult<WriteOptions> {
        for key in self.given.keys() {
            let key = text(&key)?;
            if !self.known.contains(&key.as_str()) {
                return Err(self.unknown(&key)?);
            }
        }
        Ok(self.options)
    }

    /// Returns the error for a name that no option has; it names the nearest one.
    fn unknown(&self, key: &str) -> PyResult<PyErr> {
        let py = self.given.py();
        let near = py.import("difflib")?.call_method1("get_close_matches", (key, &self.known, 1))?;
        let hint = near.extract::<Vec<String>>()?.first().map(|name| format!("; did you mean {name}?"));
        let detail = format!("{key}: there is no such option{}", hint.unwrap_or_default());
        Ok(errors::usage(py, &detail))
    }
}

/// Returns an error that names the option; an interrupt stays an interrupt.
fn named(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    match text(error.value(py)) {
        Ok(detail) => errors::usage(py, &format!("{name}: {detail}")),
        Err(interrupt) => interrupt,
    }
}

/// Returns a value as text. Python handles signals in `str()`; unlike `to_string`, this passes a Ctrl-C on as an error.
pub fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.str()?.extract()
}

fn extract<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(value: &Bound<'py, PyAny>) -> PyResult<T> {
    value.extract()
}

/// Returns the meaning of a word in any case; the error lists the words.
fn one_of<T: Copy>(value: &Bound<'_, PyAny>, choices: &[(&str, T)], listed: &str) -> PyResult<T> {
    let word = text(value)?;
    let found = choices.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, choice)| *choice).ok_or_else(|| errors::usage(value.py(), &format!("{word} is not {listed}")))
}

/// Returns what the engine knows by a name.
fn by_name<T>(value: &Bound<'_, PyAny>, find: impl FnOnce(&str) -> Result<T, Error>) -> PyResult<T> {
    find(&text(value)?).or_raise(value.py())
}

fn planar(value: &Bound<'_, PyAny>) -> PyResult<Planar> {
    let choices = [("pixel", Planar::Contig), ("band", Planar::Separate), ("tile", Planar::Separate)];
    one_of(value, &choices, "pixel or band")
}

fn alpha(value: &Bound<'_, PyAny>) -> PyResult<Alpha> {
    let choices = [("unassociated", Alpha::Unassociated), ("premultiplied", Alpha::Premultiplied)];
    one_of(value, &choices, "unassociated or premultiplied")
}

fn subsampling(value: &Bound<'_, PyAny>) -> PyResult<(u16, u16)> {
    one_of(value, &[("420", (2, 2)), ("422", (2, 1)), ("444", (1, 1))], "420, 422 or 444")
}

fn bigtiff(value: &Bound<'_, PyAny>) -> PyResult<BigTiff> {
    let choices = [("auto", BigTiff::Auto), ("yes", BigTiff::Always), ("no", BigTiff::Never)];
    one_of(value, &choices, "auto, yes or no")
}

/// Reads `auto`, `none`, a number of levels, or a list of factors.
fn overviews(value: &Bound<'_, PyAny>) -> PyResult<Overviews> {
    if let Ok(count) = value.extract() {
        return Ok(Overviews::Levels(count));
    }
    if let Ok(factors) = value.extract() {
        return Ok(Overviews::Factors(factors));
    }
    let word = text(value)?;
    match word.to_lowercase().as_str() {
        "auto" => Ok(Overviews::Auto),
        "none" => Ok(Overviews::None),
        _ => {
            let detail = format!("{word} is not auto, none, a number of levels or a list of factors");
            Err(errors::usage(value.py(), &detail))
        }
    }
}

fn resampling(value: &Bound<'_, PyAny>) -> PyResult<Resampling> {
    let found: Result<Resampling, _> = text(value)?.to_lowercase().parse();
    found.map_err(|error| errors::usage(value.py(), &format!("{error}")))
}

/// Reads tags: number, type code, little-endian bytes.
fn extra_tags(value: &Bound<'_, PyAny>) -> PyResult<Vec<Field>> {
    let tags: Vec<(u16, u16, Vec<u8>)> = value.extract()?;
    let field = |(tag, kind, bytes): (u16, u16, Vec<u8>)| {
        Field::raw(tag, FieldType::from_code(kind), ByteOrder::Little, &bytes)
    };
    Ok(tags.into_iter().map(field).collect())
}

/// Returns an error for a read of more samples than the caller allows, before memory is allocated.
pub fn check_pixels(limit: Option<u64>, pixels: u64, name: &str) -> Result<(), Error> {
    match limit {
        Some(limit) if pixels > limit => Err(Error::new(swath::ErrorKind::Limit(format!(
            "{name}: the read has {pixels} samples, max_pixels allows {limit}"
        )))),
        _ => Ok(()),
    }
}
