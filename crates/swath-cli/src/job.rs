//! What the arguments mean.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};
use swath::{Dataset, Limits, Mode, OpenOptions, ReadOptions, Window};

use crate::{
    args::{Decoder, Device, Selection},
    console,
    remote::{self, Remote},
};

/// Numbers between commas.
pub fn numbers<const N: usize>(text: &str, what: &str) -> Result<[u32; N]> {
    let list = list(text, what)?;
    <[u32; N]>::try_from(list)
        .map_err(|list: Vec<u32>| anyhow::anyhow!("{what} takes {N} numbers, not {}: {text}", list.len()))
}

/// Any number of numbers between commas.
pub fn list(text: &str, what: &str) -> Result<Vec<u32>> {
    text.split(',')
        .map(|part| part.trim().parse().with_context(|| format!("{what}: {part:?} is not a whole number")))
        .collect()
}

/// Opens a file to be read once from end to end. The engine keeps tiles of which a window took only a part; here these are
/// the padded tiles at the edges, which nobody asks for again, so `cache` bytes may be 0.
pub fn open(
    path: &Path,
    threads: Option<usize>,
    cache: usize,
    unlimited: bool,
    device: &Device,
    remote: &Remote,
) -> Result<Dataset> {
    let mut options = on_device(OpenOptions::default().with_tile_cache(cache), device)?.with_limits(limits(unlimited));
    if let Some(threads) = threads {
        options = options.with_threads(threads);
    }
    open_as(options, path, remote)
}

/// How much a file may ask for.
pub fn limits(unlimited: bool) -> Limits {
    if unlimited { Limits::none() } else { Limits::default() }
}

/// Opens a file or an address.
pub fn open_as(options: OpenOptions, path: &Path, remote: &Remote) -> Result<Dataset> {
    remote::check_scheme(path)?;
    let dataset = options.with_remote(remote.options()?).open(path)?;
    for lost in dataset.lost_tags() {
        let _ = writeln!(io::stderr(), "warning: {}", console::safe(&format!("{}: {lost}", dataset.name())));
    }
    Ok(dataset)
}

/// Options for files whose tiles are decoded by whoever was asked for.
pub fn on_device(options: OpenOptions, device: &Device) -> Result<OpenOptions> {
    let options = options.with_device(mode(device)).with_trust_input(device.trust_input);
    Ok(match device_memory(device)? {
        Some(bytes) => options.with_max_device_memory(bytes),
        None => options,
    })
}

/// Who was asked for.
pub fn mode(device: &Device) -> Mode {
    match device.device {
        Decoder::Auto => Mode::Auto,
        Decoder::Cpu => Mode::Cpu,
        Decoder::Cuda => Mode::Cuda,
    }
}

/// Device memory that may be used.
pub fn device_memory(device: &Device) -> Result<Option<u64>> {
    let text = device.max_device_memory.as_deref();
    text.map(|text| Ok(bytes(text, "--max-device-memory")? as u64)).transpose()
}

/// A number of bytes, as in 1000000, 256M or 2G.
pub fn bytes(text: &str, what: &str) -> Result<usize> {
    let wrong = || format!("{what}: {text:?} is no number of bytes, as in 256M");
    let trimmed = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let (digits, shift) = match trimmed.char_indices().next_back().with_context(wrong)? {
        (at, 'k' | 'K') => (&trimmed[..at], 10),
        (at, 'm' | 'M') => (&trimmed[..at], 20),
        (at, 'g' | 'G') => (&trimmed[..at], 30),
        _ => (trimmed, 0),
    };
    let number: f64 = digits.trim().parse().with_context(wrong)?;
    let bytes = number * f64::from(1_u32 << shift);
    if !(bytes.is_finite() && bytes >= 0.0) {
        bail!(wrong());
    }
    Ok(bytes as usize)
}

/// Has Ctrl-C leave nothing behind of a file that is not whole yet.
pub fn clear_up_on_interrupt() {
    on_interrupt(|| {
        swath::abandon_unfinished();
        std::process::exit(130);
    });
}

/// Has Ctrl-C do this, on a thread of its own. Where the system starts no thread Ctrl-C ends the process as usual, and the next
/// write removes what is left: a handler without its thread would swallow the signal.
pub fn on_interrupt(work: impl FnMut() + Send + 'static) {
    if std::thread::Builder::new().spawn(|| {}).is_ok_and(|thread| thread.join().is_ok()) {
        // A second handler in one process fails, and there is none.
        let _ = ctrlc::set_handler(work);
    }
}

/// The read that a selection asks for.
pub fn read_options(selection: &Selection) -> Result<ReadOptions> {
    let mut options = ReadOptions::default();
    if let Some(text) = &selection.window {
        let [x, y, width, height] = numbers(text, "--window")?;
        options = options.with_window(Window::new(x, y, width, height));
    }
    if let Some(text) = &selection.bands {
        options = options.with_bands(list(text, "--bands")?);
    }
    if let Some(level) = selection.overview {
        options = options.with_overview(level);
    }
    if let Some(index) = selection.ifd {
        if selection.overview.is_some() {
            bail!("--overview and --ifd cannot be used together");
        }
        options = options.with_ifd(index);
    }
    if let Some(threads) = selection.threads {
        options = options.with_threads(threads);
    }
    Ok(options)
}

/// How sample values become brightness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stretch {
    /// Values at these percentiles become black and white.
    Percentiles(f64, f64),
    /// The smallest and largest value do.
    MinMax,
    /// The range of the sample type does.
    None,
}

impl Stretch {
    /// From `2,98`, `minmax` or `none`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.trim().to_lowercase().as_str() {
            "minmax" => return Ok(Self::MinMax),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let wrong = || format!("--stretch takes two percentiles as in 2,98, minmax or none, not {text:?}");
        let (low, high) = text.split_once(',').with_context(wrong)?;
        let low: f64 = low.trim().parse().with_context(wrong)?;
        let high: f64 = high.trim().parse().with_context(wrong)?;
        if !(0.0 <= low && low < high && high <= 100.0) {
            bail!("--stretch: percentiles rise from 0 to 100, unlike {low},{high}");
        }
        Ok(Self::Percentiles(low, high))
    }
}

/// The bands of a list, or all; each checked against how many there are.
pub fn bands(text: Option<&str>, count: u32) -> Result<Vec<u32>> {
    let Some(text) = text else { return Ok((1..=count).collect()) };
    let bands = list(text, "--bands")?;
    match bands.iter().find(|band| **band == 0 || **band > count) {
        Some(band) => bail!("--bands: there is no band {band}; the image has bands 1 to {count}"),
        None => Ok(bands),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_two_rising_percentiles_or_a_word() {
        assert_eq!(Stretch::parse("2,98").ok(), Some(Stretch::Percentiles(2.0, 98.0)));
        assert_eq!(Stretch::parse(" MinMax").ok(), Some(Stretch::MinMax));
        for wrong in ["98,2", "2", "", "2,101", "nan,5", "a,b", "5,5"] {
            assert!(Stretch::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bands_outside_the_image_are_refused_by_number() {
        assert_eq!(bands(None, 3).ok(), Some(vec![1, 2, 3]));
        assert_eq!(bands(Some("3, 1"), 3).ok(), Some(vec![3, 1]));
        for wrong in ["0", "4", "x", ""] {
            assert!(bands(Some(wrong), 3).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, value) in [("256M", 256 << 20), ("2GiB", 2 << 30), ("1.5k", 1536), ("77", 77), ("1 MB", 1 << 20)] {
            assert_eq!(bytes(text, "--max-memory").ok(), Some(value), "{text}");
        }
        for wrong in ["", "M", "-1", "x", "nan"] {
            assert!(bytes(wrong, "--max-memory").is_err(), "{wrong}");
        }
    }
}
