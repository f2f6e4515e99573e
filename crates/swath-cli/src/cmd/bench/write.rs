//! Times of writes: a GeoTIFF and a COG of the raster's samples, with its own codec, in a temporary folder.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use swath::{
    Blocks, Compression, Interleave, Limits, Mode, OpenOptions, ReadOptions, Rows, Shape, Window, WriteOptions, Writer,
    codec::LercWrap,
    gpu::{DeviceRaster, DeviceSamples},
    tiff::structure::Layout,
};

use super::{
    bound::{self, with_threads},
    figure::{Bound, Checked, Timing, Work},
    measure::{self, TimeBudget},
    scratch::Scratch,
    subject::{Processor, Subject, room},
};

/// The samples that are written: the first pixels of the raster, as many as fit in memory, of all bands.
pub struct Samples {
    window: Window,
    shape: Shape,
    bytes: Vec<u8>,
}

impl Samples {
    /// Reads the samples that will be written.
    pub fn load(subject: &Subject<'_>) -> Result<Self> {
        let most_stored = subject.allowance.map(|allowance| allowance.write);
        let window = subject.first_window(subject.most_samples(), most_stored)?;
        let options = ReadOptions::default().with_window(window).with_cancel(subject.settings.cancel.clone());
        let mut bytes = Vec::new();
        let len = subject.dataset.read_len(&options)?;
        subject.dataset.read_into(&options, room(&mut bytes, len)?)?;
        let bands = u16::try_from(subject.dataset.bands()).context("there are more bands than a file can have")?;
        let shape = Shape { width: window.width, height: window.height, bands, sample: subject.dataset.sample() };
        Ok(Self { window, shape, bytes })
    }
}

/// Writes the samples again and again, and reads each file back. Adds what there is to say to `notes`.
pub fn write(
    subject: &Subject<'_>,
    processor: &Processor,
    work: Work,
    samples: &Samples,
    scratch: &Scratch,
    budget: TimeBudget,
    notes: &mut Vec<String>,
) -> Result<Timing> {
    let path = scratch.file(if work == Work::WriteCog { "cog.tif" } else { "geotiff.tif" });
    let layout = subject.dataset.main().layout();
    let options = options(subject, processor, layout, work, samples.bytes.len() as u64);
    let on_device = match &processor.gpu {
        // The CPU may decode what the GPU cannot: only the write is timed.
        Some(_) => {
            let read = subject.options(processor).with_cpu_decode(true).with_window(samples.window);
            Some(subject.dataset.read_device(&read)?)
        }
        None => None,
    };
    let lossy = layout.compression == Compression::Jpeg;
    let mut stored = 0;
    let mut known = None;
    let mut run = || -> Result<Duration> {
        let (time, written) = write_once(subject, samples, on_device.as_ref(), &options, &path)?;
        stored = written.size;
        notes.extend(written.device.notices);
        if written.device.host_tiles > 0 {
            notes.push("the CPU compressed tiles".to_owned());
        }
        let sum = read_back(subject, samples, &path, lossy)?;
        if *known.get_or_insert(sum) != sum {
            bail!("{}: a file that was written twice reads differently. Please report this", subject.dataset.name());
        }
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        Ok(time)
    };
    run()?;
    let times = budget.repeat(subject.settings.runs, run)?;
    notes.sort();
    notes.dedup();
    let bytes = samples.bytes.len() as u64;
    let ratio = bytes as f64 / (stored as f64).max(1.0);
    let folder = bound::file_write(&scratch.file("bound"), stored)?;
    let mut bounds = vec![Bound { what: "folder × compression ratio", rate: folder * ratio }];
    match &processor.gpu {
        Some((_, copies)) => {
            bounds.push(Bound { what: "copy from the GPU × compression ratio", rate: copies.from_device * ratio });
        }
        None => {
            let copy = with_threads(subject.memory_copy, processor.threads);
            bounds.extend(copy.map(|rate| Bound { what: "memory copy", rate }));
        }
    }
    let checked = if lossy { Checked::EqualButLossy } else { Checked::Equal };
    Ok(Timing { bytes, windows: None, stored, times, latency: None, bounds, checked })
}

/// Writes one file from memory or from the GPU, and returns the time until it is complete on its disk.
fn write_once(
    subject: &Subject<'_>,
    samples: &Samples,
    on_device: Option<&DeviceRaster>,
    options: &WriteOptions,
    path: &Path,
) -> Result<(Duration, swath::Written)> {
    let metadata = subject.dataset.metadata();
    let began = Instant::now();
    let mut writer = Writer::create(path, samples.shape, metadata, options)?;
    match on_device {
        Some(raster) => writer.push_device(&DeviceSamples::of_raster(raster)?)?,
        None => writer.push(&Rows::from_bytes(&samples.bytes, Interleave::Band))?,
    }
    let written = writer.finish()?;
    Ok((began.elapsed(), written))
}

/// Returns the write options that make a file like the one that is measured.
fn options(subject: &Subject<'_>, processor: &Processor, layout: &Layout, work: Work, held: u64) -> WriteOptions {
    let settings = subject.settings;
    // An eighth is for reading the file back.
    let left = settings.max_memory.saturating_sub(held + settings.max_memory / 8);
    let mut options = like(layout, work == Work::WriteCog)
        .with_threads(processor.threads)
        .with_cancel(settings.cancel.clone())
        .with_max_memory(usize::try_from(left).unwrap_or(usize::MAX));
    if let Some((gpu, _)) = &processor.gpu {
        options = options.with_device(Mode::Cuda).with_gpu(gpu.clone());
        if let Some(bytes) = settings.max_device_memory {
            options = options.with_max_device_memory(bytes);
        }
    }
    options
}

/// Returns options with the codec and the layout of a file. A COG has tiles, whatever the file has.
fn like(layout: &Layout, cog: bool) -> WriteOptions {
    let compression = layout.compression;
    let mut options = WriteOptions::default().with_cog(cog).with_compression(compression).with_planar(layout.planar);
    if compression.takes_predictor() {
        options = options.with_predictor(layout.predictor);
    }
    let divides = |side: u32| side.is_multiple_of(16);
    if layout.tiled && divides(layout.tile_width) && divides(layout.tile_height) {
        options = options.with_blocks(Blocks::Tiles(layout.tile_width, layout.tile_height));
    } else if !layout.tiled && !cog {
        options = options.with_blocks(Blocks::Strips(std::num::NonZeroU32::new(layout.tile_height)));
    }
    if compression == Compression::Lerc {
        options = options.with_lerc_wrap(match layout.lerc.get(1) {
            Some(1) => LercWrap::Deflate,
            Some(2) => LercWrap::Zstd,
            _ => LercWrap::None,
        });
    }
    let full = usize::from(layout.bits) == layout.sample.size() * 8;
    let own_depth =
        matches!(compression, Compression::Lerc | Compression::WebP | Compression::JpegXl | Compression::Jpeg2000)
            || (compression == Compression::Jpeg && layout.bits != 12);
    // Floats of 24 bits cannot be written.
    if !full && !own_depth && layout.bits != 24 {
        options = options.with_bits(layout.bits);
    }
    options
}

/// Reads a written file in parts, compares it with the samples unless its codec is lossy, and returns a checksum.
fn read_back(subject: &Subject<'_>, samples: &Samples, path: &Path, lossy: bool) -> Result<u64> {
    let Shape { width, height, bands, sample } = samples.shape;
    let written = OpenOptions::default().with_tile_cache(0).with_limits(Limits::none()).open(path)?;
    let found = (written.width(), written.height(), written.bands(), written.sample());
    if found != (width, height, u32::from(bands), sample) {
        bail!("{}: the written file has another size or type. Please report this", subject.dataset.name());
    }
    let row = (width as usize).saturating_mul(sample.size()).max(1);
    let plane = row.saturating_mul(height as usize);
    let tile_rows = written.main().grid().tile_height.max(1);
    let most = (subject.settings.max_memory / 8) as usize / row.saturating_mul(bands.into()).max(1);
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    let rows = (most / tile_rows).max(1).saturating_mul(tile_rows).min(height).max(1);
    let mut buffer = Vec::new();
    let mut sum = 0;
    for y in (0..height).step_by(rows as usize) {
        let count = rows.min(height - y);
        let options = ReadOptions::default()
            .with_window(Window::new(0, y, width, count))
            .with_cancel(subject.settings.cancel.clone());
        let found = room(&mut buffer, written.read_len(&options)?)?;
        written.read_into(&options, found)?;
        sum = measure::checksum(found) ^ u64::rotate_left(sum, 1);
        let (from, len) = (y as usize * row, count as usize * row);
        let planes = samples.bytes.chunks_exact(plane.max(1)).map(|plane| plane.get(from..from + len));
        for (want, got) in planes.zip(found.chunks_exact(len.max(1))) {
            if !lossy && !want.is_some_and(|want| equal(want, got, sample)) {
                let place = format!("rows {y} to {}", y + count - 1);
                bail!("{}: {place} of the written file differ. Please report this", subject.dataset.name());
            }
        }
    }
    Ok(sum)
}

/// Whether samples are equal; every NaN equals every other, since LERC stores only that there is one.
fn equal(want: &[u8], got: &[u8], sample: swath::SampleType) -> bool {
    use swath::SampleType;
    if want == got {
        return true;
    }
    fn same<const N: usize, T: PartialEq>(want: &[u8], got: &[u8], number: impl Fn([u8; N]) -> T) -> bool {
        let pairs = want.as_chunks::<N>().0.iter().zip(got.as_chunks::<N>().0);
        // A number that does not equal itself is NaN.
        #[allow(clippy::eq_op)]
        let is_nan = |number: &T| number != number;
        want.len() == got.len()
            && pairs.into_iter().all(|(want, got)| {
                want == got || {
                    let (want, got) = (number(*want), number(*got));
                    want == got || (is_nan(&want) && is_nan(&got))
                }
            })
    }
    match sample {
        SampleType::F32 => same(want, got, f32::from_ne_bytes),
        SampleType::F64 => same(want, got, f64::from_ne_bytes),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath::SampleType;

    #[test]
    fn only_nan_may_have_other_bits() {
        let bytes = |numbers: [f32; 3]| numbers.map(f32::to_ne_bytes).concat();
        let odd = f32::from_bits(0x7fc0_0001);
        assert!(equal(&bytes([1.0, f32::NAN, 3.0]), &bytes([1.0, odd, 3.0]), SampleType::F32));
        assert!(!equal(&bytes([1.0, f32::NAN, 3.0]), &bytes([1.0, f32::NAN, 3.5]), SampleType::F32));
        assert!(!equal(&bytes([1.0, f32::NAN, 3.0]), &bytes([1.0, 2.0, 3.0]), SampleType::F32));
        assert!(!equal(&[1, 2], &[1, 3], SampleType::U8));
        assert!(!equal(&bytes([1.0, 2.0, 3.0])[..8], &bytes([1.0, 2.0, 3.0]), SampleType::F32));
    }
}
