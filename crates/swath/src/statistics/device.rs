//! Statistics on a GPU: it decodes and sums up some portions while it reads the next, and only the sums come back.

use std::{collections::VecDeque, sync::Arc};

use swath_cuda::{
    Gpu,
    summary::{DataRule, Planes, summarise, summary_bytes},
};
use swath_tiff::Window;

use super::{
    portions::Portion,
    runs::{Run, Runs},
    summary::Summary,
    work::{Totals, Work},
};
use crate::{
    device::{DeviceOptions, DeviceReport, Mode},
    error::Error,
    raster::device::DeviceRaster,
    read::ReadOptions,
};

/// Most samples that are read at once, in bytes. The tiles of one read have to fill the device.
const MOST_RUN: u64 = 1 << 30;
/// Runs that are on the device at once: one is decoded while the other is read.
const LANES: u64 = 2;
/// A read takes up to about this many times its samples: themselves, decoded tiles, compressed tiles, and scratch.
const TIMES: u64 = 4;

/// How runs are computed.
struct Runner<'a> {
    work: &'a Work<'a>,
    gpu: &'a Arc<Gpu>,
    /// The options of every read: the GPU, and one lane's share of its memory.
    device: DeviceOptions,
    share: u64,
}

/// The sums of a run, portion by portion, and the most device memory it held.
type Found = (Vec<Vec<Summary>>, u64);

/// Computes all portions.
pub(super) fn run(
    work: &Work<'_>,
    gpu: &Arc<Gpu>,
    portions: impl Iterator<Item = Portion>,
    totals: &mut Totals<'_>,
) -> Result<(), Error> {
    let sample_len = work.dataset.sample().size();
    let budget = match work.dataset.device.memory_budget(gpu) {
        Ok(budget) => budget,
        Err(error) => return step_down(work, error.into(), portions, totals),
    };
    let mut portions = portions.peekable();
    let pixels = |portion: &Portion| portion.window.pixels().saturating_mul(portion.bands.len() as u64);
    let first = portions.peek().map_or(0, |first| pixels(first).saturating_mul(sample_len as u64));
    let fits_twice = first.saturating_mul(TIMES * LANES) <= budget;
    let lanes = if fits_twice { LANES } else { 1 };
    let share = budget / lanes;
    let device = DeviceOptions { gpu: Some(gpu.clone()), ..work.dataset.device.clone() };
    let device = DeviceOptions { max_memory: Some(share), ..device };
    let runner = Runner { work, gpu, device, share };
    let mut runs = Runs::new(portions, sample_len, MOST_RUN.min(share / TIMES));
    let (mut peak, mut before) = (0, 0);
    let failed = std::thread::scope(|scope| {
        let runner = &runner;
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < lanes as usize
                && let Some(run) = runs.next()
            {
                let mine = run.clone();
                let thread = std::thread::Builder::new();
                // If the system has no more threads, this one does the work.
                let found = swath_io::fork::starting(|| thread.spawn_scoped(scope, move || runner.run(mine)))
                    .map_err(|_| runner.run(run.clone()));
                under_way.push_back((run, found));
            }
            let Some((run, found)) = under_way.pop_front() else { return Ok(None) };
            let found = match found {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the statistics panicked")))
                }
                Err(found) => found,
            };
            match found {
                Ok((summaries, held)) => {
                    // Neighbours are on the device together.
                    peak = peak.max(before + held);
                    before = if lanes > 1 { held } else { 0 };
                    for (portion, summaries) in run.portions.iter().zip(&summaries) {
                        totals.add(portion, summaries);
                    }
                }
                Err(error) if work.dataset.device.mode == Some(Mode::Auto) && error.is_device() => {
                    let rest: Vec<Run> = std::iter::once(run).chain(under_way.drain(..).map(|(run, _)| run)).collect();
                    return Ok(Some((error, rest)));
                }
                Err(error) => return Err(error),
            }
        }
    })?;
    let mut report = DeviceReport { device: gpu.facts().name.clone(), ..DeviceReport::default() };
    report.counters.peak_bytes = peak;
    work.dataset.add_report(Some(&report));
    match failed {
        None => Ok(()),
        Some((error, rest)) => {
            let left = rest.into_iter().chain(runs).flat_map(|run| run.portions);
            step_down(work, error, left, totals)
        }
    }
}

/// Has the CPU do the rest, with a notice; or fails where only the GPU may work.
fn step_down(
    work: &Work<'_>,
    error: Error,
    portions: impl Iterator<Item = Portion>,
    totals: &mut Totals<'_>,
) -> Result<(), Error> {
    if work.dataset.device.mode != Some(Mode::Auto) {
        return Err(error);
    }
    let notices = vec![format!("decoded and summed up by the CPU: {}", error.kind())];
    work.dataset.add_report(Some(&DeviceReport { notices, ..DeviceReport::default() }));
    let device = DeviceOptions { mode: Some(Mode::Cpu), ..work.dataset.device.clone() };
    work.by_cpu(portions, &device, totals)
}

impl Runner<'_> {
    /// Computes a run; where the device has no room for it, in parts.
    fn run(&self, run: Run) -> Result<Found, Error> {
        let (mut found, mut peak) = (Vec::new(), 0);
        let mut left = vec![run];
        while let Some(run) = left.pop() {
            match self.at_once(&run) {
                Ok((summaries, held)) => {
                    found.extend(summaries);
                    peak = peak.max(held);
                }
                Err(error) if error.is_out_of_device_memory() => {
                    // Blocks of other sizes would stay in the pool besides those that the halves take.
                    self.gpu.trim();
                    match run.clone().halves() {
                        Some([upper, lower]) => left.extend([lower, upper]),
                        None => found.extend(self.through_host(&run, &error)?),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok((found, peak))
    }

    /// Reads the samples of a run to the device, and sums them up there.
    fn at_once(&self, run: &Run) -> Result<Found, Error> {
        let work = self.work;
        let Some(whole) = run.whole() else { return Ok((Vec::new(), 0)) };
        let positions = whole.first..whole.first + whole.bands.len();
        let masked = work.masked.get(positions.clone()).unwrap_or_default();
        let nodata = work.nodata.get(positions).unwrap_or_default();
        let rules: Vec<DataRule> = masked
            .iter()
            .zip(nodata)
            .map(|(masked, nodata)| DataRule { nodata: nodata.clone(), masked: *masked })
            .collect();
        let origin = whole.window;
        let inside = |window: Window| Window { x: window.x - origin.x, y: window.y - origin.y, ..window };
        let areas: Vec<Window> = run.portions.iter().map(|portion| inside(portion.window)).collect();
        let tables = summary_bytes(&areas, rules.len());
        let raster = work.dataset.read_device(&self.within(work.read(&whole, &self.device), tables))?;
        let held = raster.len() as u64;
        let (mut peak, mut mask_held) = (raster.report().counters.peak_bytes, 0);
        let mask = if masked.contains(&true) {
            let options = work.read(&whole, &self.device);
            let mask = self.mask(&self.within(options, tables.saturating_add(held)))?;
            if let Some(mask) = &mask {
                peak = peak.max(held + mask.report().counters.peak_bytes);
                mask_held = mask.len() as u64;
            }
            mask
        } else {
            None
        };
        let planes = Planes {
            samples: raster.buffer(),
            sample: raster.sample(),
            width: raster.width(),
            height: raster.height(),
            mask: mask.as_ref().map(|mask| (mask.buffer(), mask.sample().size())),
        };
        let (found, counters) = summarise(self.gpu, &planes, &rules, &areas)
            .map_err(|error| Error::from(error).in_source(&work.dataset.name))?;
        let report = DeviceReport { device: self.gpu.facts().name.clone(), counters, ..DeviceReport::default() };
        work.dataset.add_report(Some(&report));
        let peak = peak.max(held + mask_held + counters.peak_bytes);
        let found: Vec<Summary> = found.iter().map(Summary::from).collect();
        Ok((found.chunks(rules.len().max(1)).map(<[Summary]>::to_vec).collect(), peak))
    }

    /// The options of a read that leaves this much of the lane's memory to others.
    fn within(&self, options: ReadOptions, taken: u64) -> ReadOptions {
        options.with_max_device_memory(self.share.saturating_sub(taken))
    }

    /// Reads the mask of a window to the device: a pixel whose bytes are all zero is no data. `None` where all pixels are. As
    /// `Dataset::read_mask`, for bands that have no nodata value of their own.
    fn mask(&self, options: &ReadOptions) -> Result<Option<DeviceRaster>, Error> {
        let dataset = self.work.dataset;
        if let Some((holder, mask)) = dataset.mask_image(dataset.width(), dataset.height())? {
            let raster = holder.read_device(&options.clone().with_bands([1]).with_ifd(mask.index as usize))?;
            if !std::ptr::eq(holder, dataset) {
                dataset.add_report(Some(raster.report()));
            }
            return Ok(Some(raster));
        }
        let bands = &dataset.metadata().bands;
        // A pixel is data when any band is, and a band whose type cannot hold its nodata value always is.
        if bands.iter().any(|band| band.nodata.is_some()) {
            return Ok(None);
        }
        let alpha = bands.iter().position(|band| band.color == "alpha");
        alpha.map(|alpha| dataset.read_device(&options.clone().with_bands([alpha as u32 + 1]))).transpose()
    }

    /// Reads a portion that does not fit on the device at once through it, and sums it up on the CPU.
    fn through_host(&self, run: &Run, reason: &Error) -> Result<Vec<Vec<Summary>>, Error> {
        let notices = vec![format!("some samples are summed up by the CPU: {}", reason.kind())];
        self.work.dataset.add_report(Some(&DeviceReport { notices, ..DeviceReport::default() }));
        let mut buffer = Vec::new();
        run.portions.iter().map(|portion| self.work.sum_up(portion, &self.device, &mut buffer)).collect()
    }
}
