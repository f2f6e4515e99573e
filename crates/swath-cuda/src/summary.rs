//! Statistics of a raster in device memory. Only the results come back: 56 bytes for each band of each area.

use std::sync::Arc;

use swath_tiff::{SampleType, Window};

use crate::{
    counters::{Counters, Meter},
    driver::{
        launch::{
            slice::{ALIGN, BufferSlice},
            summary::{RawArea, RawRule, RawSummary, SummaryLaunch, launch_summary, number_kind},
        },
        memory::{
            pool::{DeviceBuffer, allocated_len},
            streams::Streams,
        },
    },
    error::DeviceError,
    gpu::Gpu,
};

/// Which samples of a band are data.
#[derive(Debug, Clone, Default)]
pub struct DataRule {
    /// Bytes of the nodata value: of a whole sample, or of the real part of a complex one.
    pub nodata: Option<Vec<u8>>,
    /// Whether pixels whose mask is 0 are no data.
    pub masked: bool,
}

/// A raster in device memory: one plane for each band.
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    /// The samples.
    pub samples: &'a DeviceBuffer,
    /// Their type.
    pub sample: SampleType,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// A plane of as many pixels, and the bytes of each; pixels of zeros are masked.
    pub mask: Option<(&'a DeviceBuffer, usize)>,
}

/// An extreme of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extreme {
    /// Of integers.
    Int(i128),
    /// Of floats, and of complex samples, which count by their magnitude.
    Float(f64),
}

/// Statistics of one band of an area. `swath::statistics` says what they are; they are its own, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AreaSummary {
    /// The smallest and the largest valid sample.
    pub extremes: Option<(Extreme, Extreme)>,
    /// Samples that are data.
    pub valid: u64,
    /// Samples that are not.
    pub missing: u64,
    /// The sum of the valid samples, and its rounding error.
    pub sum: (f64, f64),
    /// The sum of squared distances from the mean.
    pub spread: f64,
}

/// Bytes of the tables and results of some areas, one after the other.
struct Layout {
    rules: usize,
    parts: usize,
    totals: usize,
    end: usize,
}

impl Layout {
    fn new(areas: usize, chunks: u64, bands: usize) -> Option<Self> {
        let aligned = |len: usize| len.checked_next_multiple_of(ALIGN);
        let one = size_of::<RawSummary>();
        let rules = aligned(areas.checked_mul(size_of::<RawArea>())?)?;
        let parts = aligned(rules.checked_add(bands.checked_mul(size_of::<RawRule>())?)?)?;
        let chunks = usize::try_from(chunks).ok()?;
        let totals = aligned(parts.checked_add(chunks.checked_mul(bands)?.checked_mul(one)?)?)?;
        let end = totals.checked_add(areas.checked_mul(bands)?.checked_mul(one)?)?;
        Some(Self { rules, parts, totals, end })
    }
}

/// Returns the device memory that the statistics of some areas take besides the raster and its mask.
pub fn summary_bytes(areas: &[Window], bands: usize) -> u64 {
    let (_, chunks) = RawArea::list(areas);
    Layout::new(areas.len(), chunks, bands).map_or(u64::MAX, |layout| allocated_len(layout.end as u64))
}

/// Computes the statistics of areas of a raster: those of the first area for every rule (one for each band), then those of
/// the next. Two launches, one copy back, one wait.
///
/// # Errors
/// When the device has too little memory, a call fails, or the samples have no statistics.
pub fn summarise(
    gpu: &Arc<Gpu>,
    planes: &Planes<'_>,
    rules: &[DataRule],
    areas: &[Window],
) -> Result<(Vec<AreaSummary>, Counters), DeviceError> {
    let kind = number_kind(planes.sample)
        .ok_or_else(|| DeviceError::Declined(format!("statistics of samples of type {}", planes.sample)))?;
    let meter = Arc::new(Meter::default());
    let (list, chunks) = RawArea::list(areas);
    let layout = Layout::new(areas.len(), chunks, rules.len())
        .ok_or_else(|| DeviceError::Usage("the areas are larger than memory".into()))?;
    let buffer = gpu.memory.buffer(layout.end, &meter)?;
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let mut tables: Vec<u8> = bytemuck::cast_slice(&list).to_vec();
    tables.resize(layout.rules, 0);
    let raw_rules: Vec<RawRule> = rules.iter().map(raw_rule).collect::<Result<_, _>>()?;
    tables.extend_from_slice(bytemuck::cast_slice(&raw_rules));
    streams.upload_bytes(0, &tables, &buffer, 0)?;
    let part = |start: usize, end: usize| BufferSlice { buffer: &buffer, offset: start, len: end - start };
    let whole = |buffer: &'_ DeviceBuffer| buffer.len();
    let launch = SummaryLaunch {
        samples: BufferSlice { buffer: planes.samples, offset: 0, len: whole(planes.samples) },
        mask: planes.mask.map(|(mask, len)| (BufferSlice { buffer: mask, offset: 0, len: whole(mask) }, len as u32)),
        areas: part(0, layout.rules),
        rules: part(layout.rules, layout.parts),
        parts: part(layout.parts, layout.totals),
        totals: part(layout.totals, layout.end),
        chunks,
        area_count: areas.len() as u32,
        bands: rules.len() as u32,
        width: planes.width,
        height: planes.height,
        kind,
    };
    // Room that no kernel writes, such as that of an area outside the raster, holds zeros.
    streams.fill(0, &buffer, layout.totals, layout.end - layout.totals, 0)?;
    launch_summary(&streams, 0, &launch)?;
    let mut bytes = vec![0; layout.end - layout.totals];
    streams.finish(&buffer, layout.totals, &mut bytes)?;
    let found: Vec<RawSummary> =
        bytes.chunks_exact(size_of::<RawSummary>()).map(bytemuck::pod_read_unaligned).collect();
    let order = (0..areas.len()).flat_map(|area| (0..rules.len()).map(move |band| band * areas.len() + area));
    let summaries = order.filter_map(|at| found.get(at)).map(|raw| of_raw(planes.sample, raw)).collect();
    Ok((summaries, meter.counters()))
}

fn raw_rule(rule: &DataRule) -> Result<RawRule, DeviceError> {
    let mut raw = RawRule { masked: rule.masked.into(), ..RawRule::default() };
    if let Some(nodata) = &rule.nodata {
        let too_long = || DeviceError::Internal(format!("a nodata value of {} bytes", nodata.len()));
        raw.nodata.get_mut(..nodata.len()).ok_or_else(too_long)?.copy_from_slice(nodata);
        raw.nodata_len = nodata.len() as u32;
    }
    Ok(raw)
}

fn of_raw(sample: SampleType, raw: &RawSummary) -> AreaSummary {
    let extreme = |bits: u64| match sample {
        SampleType::U8 | SampleType::U16 | SampleType::U32 | SampleType::U64 => Extreme::Int(bits.into()),
        SampleType::I8 | SampleType::I16 | SampleType::I32 | SampleType::I64 => Extreme::Int((bits as i64).into()),
        _ => Extreme::Float(f64::from_bits(bits)),
    };
    AreaSummary {
        extremes: (raw.valid > 0).then(|| (extreme(raw.min), extreme(raw.max))),
        valid: raw.valid,
        missing: raw.missing,
        sum: (raw.sum, raw.lost),
        spread: raw.spread,
    }
}
