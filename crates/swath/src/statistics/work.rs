//! What all portions of an image share, the CPU's way to sum one up, and the sums so far.

use super::{
    OnSamples, StatisticsOptions,
    portions::Portion,
    samples,
    summary::{Summarise, Summary},
};
use crate::{
    describe::MaskKind,
    device::DeviceOptions,
    error::{Error, ErrorKind},
    open::dataset::Dataset,
    read::ReadOptions,
    threads::cores,
};

/// The statistics that a caller asks for.
pub(super) struct Work<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) options: &'a StatisticsOptions,
    /// For each requested band, the bytes of its nodata value.
    pub(super) nodata: Vec<Option<Vec<u8>>>,
    /// For each requested band, whether the mask of the file counts.
    pub(super) masked: Vec<bool>,
}

impl<'a> Work<'a> {
    pub(super) fn new(dataset: &'a Dataset, options: &'a StatisticsOptions, bands: &[u32]) -> Result<Self, Error> {
        let masks = MaskKind::of_bands(dataset)?;
        let about = |band: u32| (band as usize).checked_sub(1);
        let nodata: Vec<Option<Vec<u8>>> = bands
            .iter()
            .map(|band| dataset.metadata().bands.get(about(*band)?)?.nodata_sample(dataset.sample()))
            .collect();
        // As in GDAL, a band's own nodata value counts before a mask of the whole file.
        let masked = bands.iter().zip(&nodata).map(|(band, nodata)| {
            let kind = about(*band).and_then(|index| masks.get(index));
            nodata.is_none() && matches!(kind, Some(MaskKind::PerDataset | MaskKind::Alpha))
        });
        let masked = masked.collect();
        Ok(Self { dataset, options, nodata, masked })
    }

    /// The options that read a portion.
    pub(super) fn read(&self, portion: &Portion, device: &DeviceOptions) -> ReadOptions {
        let mut options = ReadOptions::default().with_window(portion.window);
        options.threads = self.options.threads;
        options.cancel = self.options.cancel.clone();
        options.device = device.clone();
        options.with_bands(portion.bands.iter().copied())
    }

    /// Sums up portions on the CPU; `device` says what decodes them.
    pub(super) fn by_cpu(
        &self,
        portions: impl Iterator<Item = Portion>,
        device: &DeviceOptions,
        totals: &mut Totals<'_>,
    ) -> Result<(), Error> {
        let mut buffer = Vec::new();
        for portion in portions {
            let found = self.sum_up(&portion, device, &mut buffer)?;
            totals.add(&portion, &found);
        }
        Ok(())
    }

    /// Sums up a portion on the CPU: one summary for each of its bands.
    pub(super) fn sum_up(
        &self,
        portion: &Portion,
        device: &DeviceOptions,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<Summary>, Error> {
        let dataset = self.dataset;
        let sample = dataset.sample();
        let read = self.read(portion, device);
        buffer.resize(dataset.read_len(&read)?, 0);
        dataset.read_into(&read, buffer)?;
        let positions = portion.first..portion.first + portion.bands.len();
        let masked = self.masked.get(positions.clone()).unwrap_or_default();
        let mask = if masked.contains(&true) { Some(dataset.read_mask(&read)?) } else { None };
        let plane_len = portion.window.pixels() as usize * sample.size();
        let nodata = self.nodata.get(positions).unwrap_or_default();
        let threads = self.options.threads.or(dataset.threads).unwrap_or_else(cores);
        let bands = masked.iter().zip(nodata).zip(buffer.chunks_exact(plane_len.max(1)));
        bands
            .map(|((masked, nodata), plane)| {
                let work = Summarise {
                    nodata: nodata.as_deref(),
                    mask: mask.as_ref().filter(|_| *masked).map(|mask| mask.bytes()),
                    threads,
                };
                samples::visit(sample, plane, work).ok_or_else(|| {
                    let detail = format!("statistics of samples of type {sample}");
                    Error::new(ErrorKind::Unsupported(detail)).in_source(&dataset.name)
                })
            })
            .collect()
    }
}

/// The sums so far.
pub(super) struct Totals<'a> {
    /// One for each requested band.
    pub(super) found: Vec<Summary>,
    done: u64,
    all: u64,
    progress: Option<&'a OnSamples>,
}

impl<'a> Totals<'a> {
    pub(super) fn new(work: &Work<'a>) -> Self {
        let pixels = u64::from(work.dataset.width()) * u64::from(work.dataset.height());
        let bands = work.masked.len();
        Self {
            found: vec![Summary::default(); bands],
            done: 0,
            all: pixels.saturating_mul(bands as u64),
            progress: work.options.progress.as_ref(),
        }
    }

    /// Adds the next portion: one summary for each of its bands.
    pub(super) fn add(&mut self, portion: &Portion, summaries: &[Summary]) {
        for (total, part) in self.found.iter_mut().skip(portion.first).zip(summaries) {
            total.merge(part);
        }
        self.done = self.done.saturating_add(portion.window.pixels().saturating_mul(portion.bands.len() as u64));
        if let Some(progress) = self.progress {
            progress(self.done, self.all);
        }
    }
}
