//! Smallest and largest value, mean and standard deviation of bands, read portion by portion.

mod device;
// For the front ends, which walk over pixels in the same way.
#[doc(hidden)]
pub mod portions;
mod runs;
#[doc(hidden)]
pub mod samples;
mod summary;
mod work;

use std::sync::Arc;

use serde_json::{Value, json};
use swath_tiff::{SampleType, Window};

use crate::{
    cancel::Cancel,
    describe::number::{self, Exact},
    error::Error,
    open::dataset::Dataset,
    read::ReadOptions,
};
use portions::{BUDGET, TileLayout};
use summary::Summary;
use work::{Totals, Work};

/// Called after every portion, from the thread that asked, with how many samples are done and how many there are.
pub type OnSamples = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Options of [`Dataset::statistics`]. The default is every band, all cores.
#[derive(Clone, Default)]
pub struct StatisticsOptions {
    bands: Option<Vec<u32>>,
    threads: Option<usize>,
    progress: Option<OnSamples>,
    cancel: Option<Cancel>,
}

impl std::fmt::Debug for StatisticsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatisticsOptions").field("bands", &self.bands).field("threads", &self.threads).finish()
    }
}

impl StatisticsOptions {
    /// Only these bands, in this order, counted from 1.
    pub fn with_bands(mut self, bands: impl IntoIterator<Item = u32>) -> Self {
        self.bands = Some(bands.into_iter().collect());
        self
    }

    /// Threads to use; by default those that the file was opened with. Results do not depend on it.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Called with the progress of the work.
    pub fn with_progress(mut self, progress: OnSamples) -> Self {
        self.progress = Some(progress);
        self
    }

    /// A token that ends the work.
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }
}

/// Statistics of some bands of a file. Made by [`Dataset::statistics`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Name of the file.
    pub name: String,
    /// Type of its samples; figures of complex ones are of their magnitude.
    pub sample: SampleType,
    /// The bands, in the order they were asked for.
    pub bands: Vec<BandStatistics>,
}

/// Statistics of a band. Values are `None` where no pixel is valid.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BandStatistics {
    /// The band, counted from 1.
    pub band: u32,
    /// Smallest valid value.
    pub min: Option<Exact>,
    /// Largest valid value.
    pub max: Option<Exact>,
    /// Mean of the valid values.
    pub mean: Option<f64>,
    /// Standard deviation of the valid values, of the population, as in GDAL.
    pub std: Option<f64>,
    /// Pixels that are valid.
    pub valid: u64,
    /// Pixels that are nodata, masked or NaN.
    pub nodata: u64,
}

impl BandStatistics {
    fn new(band: u32, summary: &Summary) -> Self {
        Self {
            band,
            min: summary.min(),
            max: summary.max(),
            mean: summary.mean(),
            std: summary.std(),
            valid: summary.valid(),
            nodata: summary.missing(),
        }
    }

    /// Share of valid pixels, in per cent.
    pub fn percent_valid(&self) -> f64 {
        self.valid as f64 / (self.valid + self.nodata).max(1) as f64 * 100.0
    }
}

impl Statistics {
    /// Smallest and largest valid value of all bands together; `None` where no pixel is valid.
    pub fn range(&self) -> Option<(f64, f64)> {
        let ends = self.bands.iter().filter_map(|band| Some((band.min?.to_f64(), band.max?.to_f64())));
        ends.reduce(|(low, high), (min, max)| (low.min(min), high.max(max)))
    }

    /// As JSON: what `swath stats --json` prints. <https://swath-raster.github.io/swath/cli-json.html> lists its keys.
    pub fn document(&self) -> Value {
        let rows = self.bands.iter().map(|band| {
            let [mean, std] = [band.mean, band.std].map(|value| value.map_or(Value::Null, number::json));
            let [min, max] = [band.min, band.max].map(|value| value.map_or(Value::Null, Exact::json));
            json!({
                "band": band.band,
                "min": min,
                "max": max,
                "mean": mean,
                "std": std,
                "valid": band.valid,
                "nodata": band.nodata,
                "percent_valid": band.percent_valid(),
            })
        });
        json!({
            "name": self.name,
            "dtype": self.sample.name(),
            "of": if self.sample.is_complex() { "magnitude" } else { "value" },
            "bands": rows.collect::<Value>(),
        })
    }
}

impl Dataset {
    /// Computes statistics of the first image, a portion at a time, so memory does not grow with the image. The CPU or a GPU does
    /// it, as set when the file was opened, with the same result. From a GPU only the statistics come back.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), swath::Error> {
    /// use swath::{Dataset, statistics::StatisticsOptions};
    ///
    /// let statistics = Dataset::open("scene.tif")?.statistics(&StatisticsOptions::default())?;
    /// for band in &statistics.bands {
    ///     println!("band {}: mean {:?}, {:.1} % valid", band.band, band.mean, band.percent_valid());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a band does not exist, the image is larger than its file can hold, bytes cannot be read, a tile is corrupt, or
    /// the work is cancelled.
    pub fn statistics(&self, options: &StatisticsOptions) -> Result<Statistics, Error> {
        statistics(self, options)
    }
}

fn statistics(dataset: &Dataset, options: &StatisticsOptions) -> Result<Statistics, Error> {
    portions::check_size(dataset)?;
    let sample = dataset.sample();
    let bands = options.bands.clone().unwrap_or_else(|| (1..=dataset.bands()).collect());
    // Report bands that do not exist before the first of many portions is read.
    dataset.read_len(&ReadOptions::default().with_window(Window::new(0, 0, 1, 1)).with_bands(bands.clone()))?;
    let work = Work::new(dataset, options, &bands)?;
    // Reading a mask takes as much again, and a copy of it.
    let budget = if work.masked.contains(&true) { BUDGET / 3 } else { BUDGET };
    let mut totals = Totals::new(&work);
    let portions = TileLayout::of(dataset.main()).portions(&bands, sample, budget);
    match dataset.device.open_if_wanted() {
        // Without a GPU each read says why the CPU decodes, or fails.
        Ok((None, _)) | Err(_) => work.by_cpu(portions, &dataset.device, &mut totals)?,
        Ok((Some(gpu), _)) => device::run(&work, &gpu, portions, &mut totals)?,
    }
    let bands = bands.iter().zip(&totals.found).map(|(band, summary)| BandStatistics::new(*band, summary)).collect();
    Ok(Statistics { name: dataset.name().to_owned(), sample, bands })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use swath_io::{MemorySink, MemorySource};
    use swath_tiff::structure::Planar;

    use super::*;
    use crate::{ErrorKind, Metadata, OpenOptions, Rows, Shape, WriteOptions, Writer};

    /// Three bands of 4 × 2 pixels in planes: 1 to 8, ten times as much, and all 7.
    fn planes() -> Dataset {
        let shape = Shape { width: 4, height: 2, bands: 3, sample: SampleType::U8 };
        let samples: Vec<u8> = (1..=8).chain((1..=8).map(|value| value * 10)).chain([7; 8]).collect();
        let (sink, memory) = MemorySink::new("memory");
        let options = WriteOptions::default().with_planar(Planar::Separate);
        let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
        writer.push(&Rows::bands(&samples)).unwrap();
        writer.finish().unwrap();
        OpenOptions::default().open_source(Arc::new(MemorySource::new("planes", memory.take().unwrap()))).unwrap()
    }

    #[test]
    fn bands_come_in_the_order_they_were_asked_for() {
        let found = statistics(&planes(), &StatisticsOptions::default().with_bands([3, 1])).unwrap();
        let means: Vec<(u32, Option<f64>)> = found.bands.iter().map(|band| (band.band, band.mean)).collect();
        assert_eq!(means, [(3, Some(7.0)), (1, Some(4.5))]);
        assert_eq!(found.range(), Some((1.0, 8.0)));
        assert_eq!(found.document()["bands"][1]["max"], 8);
    }

    #[test]
    fn progress_rises_to_the_number_of_samples() {
        let reports: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let sink = reports.clone();
        let progress: OnSamples = Arc::new(move |done, all| sink.lock().unwrap().push((done, all)));
        statistics(&planes(), &StatisticsOptions::default().with_progress(progress)).unwrap();
        assert_eq!(*reports.lock().unwrap(), [(8, 24), (16, 24), (24, 24)]);
    }

    #[test]
    fn cancelled_work_ends() {
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let options =
            StatisticsOptions::default().with_cancel(cancel).with_progress(Arc::new(move |_, _| stop.cancel()));
        let error = statistics(&planes(), &options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    }

    #[test]
    fn bands_that_do_not_exist_are_refused_before_any_is_read() {
        let calls: Arc<Mutex<u32>> = Arc::default();
        for bands in [vec![1, 4], vec![0], vec![]] {
            let counter = calls.clone();
            let options = StatisticsOptions::default().with_bands(bands.clone());
            let options = options.with_progress(Arc::new(move |_, _| *counter.lock().unwrap() += 1));
            assert!(statistics(&planes(), &options).is_err(), "{bands:?}");
        }
        assert_eq!(*calls.lock().unwrap(), 0);
    }
}
