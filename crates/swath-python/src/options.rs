//! What Python's keywords mean to the engine.

use std::num::NonZeroU32;

use pyo3::{exceptions::PyException, prelude::*, types::PyDict};
use swath::{
    Alpha, BigTiff, Blocks, Error, Interleave, Limits, Mode, OpenOptions, Overviews, ReadOptions, Resampling, Window,
    WriteOptions, names,
    structure::{ByteOrder, Planar, emit::Field, value::FieldType},
};

use crate::errors::{self, OrRaise};

/// Who decodes or encodes.
pub fn mode(py: Python<'_>, word: &str) -> PyResult<Mode> {
    match word {
        "cpu" => Ok(Mode::Cpu),
        "cuda" => Ok(Mode::Cuda),
        "auto" => Ok(Mode::Auto),
        _ => Err(errors::usage(py, &format!("device: {word:?} is not cpu, cuda or auto"))),
    }
}

/// How bands lie in memory.
pub fn interleave(py: Python<'_>, word: &str) -> PyResult<Interleave> {
    match word {
        "band" => Ok(Interleave::Band),
        "pixel" => Ok(Interleave::Pixel),
        _ => Err(errors::usage(py, &format!("interleave: {word:?} is not band or pixel"))),
    }
}

/// How a file is opened.
#[derive(FromPyObject, Default)]
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
        // A caller who says how many samples may be read has thought about it: our own guesses about bytes are left aside. A
        // tile may be as large as that many of the largest samples.
        if let Some(samples) = self.max_pixels {
            let limits = Limits::default();
            let tile_bytes = limits.tile_bytes.max(samples.saturating_mul(16));
            let limits = limits.with_decoded_bytes(u64::MAX).with_expansion(u64::MAX);
            options = options.with_limits(limits.with_tile_bytes(tile_bytes));
        }
        options
    }
}

/// What is read.
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

/// A value that Python gave for a word: text, a number, or a sequence of numbers.
#[derive(FromPyObject)]
enum Choice {
    Flag(bool),
    Number(u32),
    Numbers(Vec<u32>),
    Word(String),
}

/// A value as text. Python handles signals in `str()`; unlike `to_string`, this passes a Ctrl-C on as an error.
pub fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.str()?.extract()
}

/// From a dictionary of the words that `_swath.pyi` lists.
pub fn write_options(given: &Bound<'_, PyDict>) -> PyResult<WriteOptions> {
    let py = given.py();
    let mut options = WriteOptions::default();
    for (key, value) in given.iter() {
        if value.is_none() {
            continue;
        }
        let key = text(&key)?;
        options = write_option(py, options, &key, &value).map_err(|error| named(py, &key, error))?;
    }
    Ok(options)
}

/// An error that says which word was wrong; an interrupt stays one.
fn named(py: Python<'_>, key: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    match text(error.value(py)) {
        Ok(detail) => errors::usage(py, &format!("{key}: {detail}")),
        Err(interrupt) => interrupt,
    }
}

fn write_option(py: Python<'_>, options: WriteOptions, key: &str, value: &Bound<'_, PyAny>) -> PyResult<WriteOptions> {
    let word = || text(value);
    let wrong = |what: &str| match word() {
        Ok(word) => errors::usage(py, &format!("{word} is not {what}")),
        Err(interrupt) => interrupt,
    };
    Ok(match key {
        "compression" => {
            let (compression, wrap) = names::compression(&word()?).or_raise(py)?;
            options.with_compression(compression).with_lerc_wrap(wrap)
        }
        "level" => options.with_level(value.extract()?),
        "quality" => options.with_quality(value.extract()?),
        "lossless" => options.with_lossless(value.extract()?),
        "max_z_error" => options.with_max_z_error(value.extract()?),
        "predictor" => match names::predictor(&word()?).or_raise(py)? {
            Some(predictor) => options.with_predictor(predictor),
            None => options,
        },
        "tile" => {
            let (width, height) = value.extract()?;
            options.with_blocks(Blocks::Tiles(width, height))
        }
        "strips" => options.with_blocks(Blocks::Strips(NonZeroU32::new(value.extract()?))),
        "interleave" => match word()?.to_lowercase().as_str() {
            "pixel" => options.with_planar(Planar::Contig),
            "band" | "tile" => options.with_planar(Planar::Separate),
            _ => return Err(wrong("pixel or band")),
        },
        "nbits" => options.with_bits(value.extract::<u16>()?),
        "photometric" => options.with_photometric(names::photometric(&word()?).or_raise(py)?),
        "subsampling" => options.with_subsampling(match word()?.as_str() {
            "420" => (2, 2),
            "422" => (2, 1),
            "444" => (1, 1),
            _ => return Err(wrong("420, 422 or 444")),
        }),
        "alpha" => options.with_alpha(match word()?.as_str() {
            "unassociated" => Alpha::Unassociated,
            "premultiplied" => Alpha::Premultiplied,
            _ => return Err(wrong("unassociated or premultiplied")),
        }),
        "big_endian" => options.with_order(if value.extract()? { ByteOrder::Big } else { ByteOrder::Little }),
        "bigtiff" => options.with_bigtiff(match word()?.to_lowercase().as_str() {
            "auto" => BigTiff::Auto,
            "yes" => BigTiff::Always,
            "no" => BigTiff::Never,
            _ => return Err(wrong("auto, yes or no")),
        }),
        "mask" => options.with_mask(value.extract::<bool>()?),
        "sparse" => options.with_sparse(value.extract::<bool>()?),
        "cog" => options.with_cog(value.extract::<bool>()?),
        "overviews" => options.with_overviews(match value.extract::<Choice>()? {
            Choice::Flag(true) => Overviews::Auto,
            Choice::Flag(false) => Overviews::None,
            Choice::Number(count) => Overviews::Levels(count),
            Choice::Numbers(factors) => Overviews::Factors(factors),
            Choice::Word(word) => match word.to_lowercase().as_str() {
                "auto" => Overviews::Auto,
                "none" => Overviews::None,
                _ => return Err(wrong("auto, none, a number of levels or a list of factors")),
            },
        }),
        "resampling" => {
            let found: Result<Resampling, _> = word()?.to_lowercase().parse();
            options.with_resampling(found.map_err(|error| errors::usage(py, &format!("{error}")))?)
        }
        "statistics" => options.with_statistics(value.extract::<bool>()?),
        "extra_tags" => {
            let tags: Vec<(u16, u16, Vec<u8>)> = value.extract()?;
            let field = |(tag, kind, bytes): (u16, u16, Vec<u8>)| {
                Field::raw(tag, FieldType::from_code(kind), ByteOrder::Little, &bytes)
            };
            options.with_tags(tags.into_iter().map(field).collect::<Vec<_>>())
        }
        "max_memory" => options.with_max_memory(value.extract::<usize>()?),
        "threads" => options.with_threads(value.extract::<usize>()?),
        "batch" => options.with_batch(value.extract::<u32>()?),
        "device" => options.with_device(mode(py, &word()?)?),
        "max_device_memory" => options.with_max_device_memory(value.extract()?),
        "nvcomp" => options.with_nvcomp(value.extract::<bool>()?),
        "nan_to_nodata" => options.with_nan_to_nodata(value.extract::<bool>()?),
        _ => return Err(errors::usage(py, "there is no such option")),
    })
}

/// Refuses a read of more pixels than the caller allows, before memory is taken.
pub fn check_pixels(limit: Option<u64>, pixels: u64, name: &str) -> Result<(), Error> {
    match limit {
        Some(limit) if pixels > limit => Err(Error::new(swath::ErrorKind::Limit(format!(
            "{name}: {pixels} samples are asked for, max_pixels allows {limit}"
        )))),
        _ => Ok(()),
    }
}
