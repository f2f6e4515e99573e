//! `swath preview`: makes a picture of a file.

mod bands;
mod colour;
mod paint;
mod picture;
mod shrink;
mod stretch;

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use swath::{
    Dataset, ReadOptions, SampleType, Window,
    statistics::{
        portions::{self, BUDGET, Portion, TileLayout},
        samples::{self, ToFloats},
    },
};

use crate::{
    args::Preview,
    console::Progress,
    device,
    job::{self, Stretch},
    remote,
};
use bands::{Alpha, ShownBands};
use shrink::{Method, Shrink};

/// Number of samples converted to doubles at once: they stay in the second-level cache.
const GROUP: usize = 32 << 10;

/// Runs `swath preview`.
pub fn run(args: &Preview) -> Result<ExitCode> {
    remote::check_local(&args.out)?;
    job::clear_up_on_interrupt();
    let stretch = args.stretch.as_deref().map(Stretch::parse).transpose()?;
    let dataset = job::open(&args.file, args.threads, 0, args.unlimited, &args.device, &args.remote)?;
    let bands = ShownBands::choose(&dataset, args.bands.as_deref(), args.colormap)?;
    let target = target_size(dataset.width(), dataset.height(), args.size);
    let channels = read(&dataset, &bands, target)?;
    let picture = paint::paint(&dataset, &bands, &channels, target, stretch);
    // A map is stored upright; a photo may have been taken sideways.
    let orientation = dataset.main().layout().orientation;
    let picture =
        if dataset.metadata().georeference.transform.is_none() { picture.upright(orientation) } else { picture };
    picture.write(&args.out).with_context(|| args.out.display().to_string())?;
    device::report(&args.device, [&dataset]);
    Ok(ExitCode::SUCCESS)
}

/// Returns the size of the picture: as large as requested, but never larger than the image.
fn target_size(width: u32, height: u32, longest: u32) -> (u32, u32) {
    let side = width.max(height).max(1);
    if side <= longest {
        return (width.max(1), height.max(1));
    }
    let scaled = |len: u32| {
        let rounded = (u64::from(len) * u64::from(longest) + u64::from(side) / 2) / u64::from(side);
        (rounded as u32).max(1)
    };
    (scaled(width), scaled(height))
}

/// The bands of the image at the size of the picture: colour channels, and opacity (0 to 1) if there is any.
pub struct Channels {
    /// Values of each channel, NaN where there is no data.
    pub colour: Vec<Vec<f32>>,
    /// Opacity of each pixel.
    pub opacity: Option<Vec<f32>>,
}

/// Reads the smallest overview that is large enough, or otherwise the image itself, portion by portion.
fn read(dataset: &Dataset, shown: &ShownBands, target: (u32, u32)) -> Result<Channels> {
    let overviews = dataset.overviews()?;
    let level = dataset.best_overview(target.0, target.1)?;
    let overview = level.and_then(|level| overviews.get(level));
    if overview.is_none() {
        portions::check_size(dataset)?;
    }
    let size = overview.map_or((dataset.width(), dataset.height()), |overview| (overview.width, overview.height));
    let cut = match overview {
        None => TileLayout::of(dataset.main()),
        Some(overview) => {
            let image = dataset.images()?.find(|(image, _)| !overview.external && image.index() == overview.ifd);
            image.map_or(TileLayout::plain(size.0, size.1), |(image, _)| TileLayout::of(image))
        }
    };
    let at = |portion: &Portion| {
        let options = ReadOptions::default().with_window(portion.window);
        level.map_or(options.clone(), |level| options.with_overview(level))
    };
    let sample = dataset.sample();
    let method = if shown.is_palette() { Method::Nearest } else { Method::Average };
    let bands: Vec<u32> = shown.bands.iter().copied().chain(shown.alpha_band()).collect();
    let mut shrinks: Vec<Shrink> = bands.iter().map(|_| Shrink::new(size, target, method)).collect();
    let mut mask = (shown.alpha == Alpha::Mask).then(|| Shrink::new(size, target, Method::Average));
    let mut progress = Progress::new("reading", u64::from(size.0) * u64::from(size.1) * bands.len() as u64);
    let mut buffer = Vec::new();
    for portion in cut.portions(&bands, sample, BUDGET / 2) {
        let options = at(&portion).with_bands(portion.bands.iter().copied());
        buffer.resize(dataset.read_len(&options)?, 0);
        dataset.read_into(&options, &mut buffer)?;
        let plane_len = (portion.window.pixels() as usize * sample.size()).max(1);
        let planes = buffer.chunks_exact(plane_len).zip(shrinks.iter_mut().skip(portion.first)).zip(&portion.bands);
        // One thread for each band: shrinking costs about as much as decoding does.
        let planes = Mutex::new(planes);
        let next = || planes.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(((plane, shrink), band)) = next() {
                let nodata = shown.nodata(dataset, *band);
                add(shrink, &portion.window, sample, plane, nodata.as_deref());
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..portion.bands.len() {
                // Where the system starts no more threads, the existing ones do the work.
                if swath::io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
        if let (Some(mask), 0) = (&mut mask, portion.first) {
            let raster = dataset.read_mask(&at(&portion))?;
            add(mask, &portion.window, SampleType::U8, raster.bytes(), None);
        }
        progress.add(portion.window.pixels() * portion.bands.len() as u64);
    }
    let mut colour: Vec<Vec<f32>> = shrinks.into_iter().map(Shrink::finish).collect();
    let opacity = match shown.alpha {
        Alpha::None => None,
        Alpha::Mask => mask.map(|mask| opacity(mask.finish(), 255.0)),
        Alpha::Band(_) => colour.pop().map(|alpha| opacity(alpha, stretch::type_range(dataset.main()).1 as f32)),
    };
    Ok(Channels { colour, opacity })
}

/// Adds a portion to the smaller image, a few rows at a time.
fn add(shrink: &mut Shrink, window: &Window, sample: SampleType, plane: &[u8], nodata: Option<&[u8]>) {
    let width = (window.width as usize).max(1);
    let rows = (GROUP / width).max(1);
    let mut values = Vec::new();
    shrink.start(window.y);
    for (group, y) in plane.chunks(rows * width * sample.size()).zip((window.y..).step_by(rows)) {
        samples::visit(sample, group, ToFloats { nodata, out: &mut values });
        let height = (values.len() / width) as u32;
        shrink.add(&Window::new(window.x, y, window.width, height), &values);
    }
}

/// Returns opacity from 0 to 1, where `full` is opaque.
fn opacity(mut values: Vec<f32>, full: f32) -> Vec<f32> {
    values.iter_mut().for_each(|value| *value = (*value / full).clamp(0.0, 1.0));
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_keep_the_shape_and_are_never_larger_than_the_image() {
        assert_eq!(target_size(4000, 2000, 1024), (1024, 512));
        assert_eq!(target_size(10, 5, 1024), (10, 5));
        assert_eq!(target_size(1_000_000, 1, 1024), (1024, 1));
        assert_eq!(target_size(u32::MAX, u32::MAX, 16384), (16384, 16384));
    }
}
