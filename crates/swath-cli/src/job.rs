//! What the arguments mean.

use anyhow::{Context, Result, bail};
use swath::{ReadOptions, Window};

use crate::args::Selection;

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
