//! Turns arguments into options of the engine.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use swath::{Dataset, Limits, Mode, OpenOptions, ReadOptions, Window};

use crate::{
    args::{Device, DeviceChoice, Remote, Selection},
    console, numbers, remote,
};

/// Opens a file to read it once from end to end. The engine caches tiles that a window uses only in part; here these are the
/// padded tiles at the edges, which are not needed again, so `cache` bytes may be 0.
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

/// Returns the limits on what a file may demand.
pub fn limits(unlimited: bool) -> Limits {
    if unlimited { Limits::none() } else { Limits::default() }
}

/// Opens a file or an address.
pub fn open_as(options: OpenOptions, path: &Path, remote: &Remote) -> Result<Dataset> {
    remote::check_scheme(path)?;
    let dataset = options.with_remote(remote.options()?).open(path)?;
    for lost in dataset.lost_tags().into_iter().chain(dataset.unusable_side_files()) {
        let _ = writeln!(io::stderr(), "warning: {}", console::safe(&format!("{}: {lost}", dataset.name())));
    }
    Ok(dataset)
}

/// Adds the device options to those of opening a file.
pub fn on_device(options: OpenOptions, device: &Device) -> Result<OpenOptions> {
    let options = options.with_device(mode(device)).with_trust_input(device.trust_input);
    Ok(match device_memory(device)? {
        Some(bytes) => options.with_max_device_memory(bytes),
        None => options,
    })
}

/// Returns the requested device mode.
pub fn mode(device: &Device) -> Mode {
    match device.device {
        DeviceChoice::Auto => Mode::Auto,
        DeviceChoice::Cpu => Mode::Cpu,
        DeviceChoice::Cuda => Mode::Cuda,
    }
}

/// Returns the most device memory to use, in bytes.
pub fn device_memory(device: &Device) -> Result<Option<u64>> {
    let text = device.max_device_memory.as_deref();
    text.map(|text| Ok(numbers::bytes(text, "--max-device-memory")? as u64)).transpose()
}

/// How long an interrupt waits for the work at hand before the process ends without it.
pub const GRACE: Duration = Duration::from_millis(600);

/// Makes Ctrl-C remove incomplete files before the process exits.
pub fn clear_up_on_interrupt() {
    on_interrupt(|| {
        swath::io::abandon_unfinished();
        std::process::exit(130);
    });
}

/// Makes Ctrl-C run `work`, on a thread of its own. Where the system starts no more threads, Ctrl-C ends the process as usual,
/// and the next write removes the leftovers: a handler without its thread would swallow the signal.
pub fn on_interrupt(work: impl FnMut() + Send + 'static) {
    let thread = swath::io::fork::starting(|| std::thread::Builder::new().spawn(|| {}));
    if thread.is_ok_and(|thread| thread.join().is_ok()) {
        // Setting a second handler would fail, and this is the only one.
        let _ = ctrlc::set_handler(work);
    }
}

/// Returns the read options of a selection.
pub fn read_options(selection: &Selection) -> Result<ReadOptions> {
    let mut options = ReadOptions::default();
    if let Some(text) = &selection.window {
        let [x, y, width, height] = numbers::exactly(text, "--window")?;
        options = options.with_window(Window::new(x, y, width, height));
    }
    if let Some(text) = &selection.bands {
        options = options.with_bands(numbers::list(text, "--bands")?);
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

/// How sample values are mapped to brightness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stretch {
    /// Values at these percentiles become black and white.
    Percentiles(f64, f64),
    /// The smallest and largest value become black and white.
    MinMax,
    /// The ends of the range of the sample type become black and white.
    None,
}

impl Stretch {
    /// Parses `2,98`, `minmax` or `none`.
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
            bail!("--stretch: percentiles must increase and be between 0 and 100: {low},{high}");
        }
        Ok(Self::Percentiles(low, high))
    }
}

/// Returns the bands of a list, or all bands; checks each against the number of bands.
pub fn bands(text: Option<&str>, count: u32) -> Result<Vec<u32>> {
    let Some(text) = text else { return Ok((1..=count).collect()) };
    let bands = numbers::list(text, "--bands")?;
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
}
