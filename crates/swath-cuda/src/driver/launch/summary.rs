//! Launches the kernels that compute the statistics of areas of a raster.

use bytemuck::{Pod, Zeroable};

use swath_tiff::{SampleType, Window};

use crate::{
    driver::{
        launch::slice::{BufferSlice, check_len, ptx},
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// Samples that the kernels sum up at once: `CHUNK` of `kernels/summary/summary.cuh`.
const CHUNK: u64 = 2048;

/// `Summary` of `kernels/summary/summary.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawSummary {
    pub(crate) valid: u64,
    pub(crate) missing: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: f64,
    pub(crate) lost: f64,
    pub(crate) spread: f64,
}

/// `SummaryArea` of `kernels/summary/summary.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawArea {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    first: u64,
}

impl RawArea {
    /// Returns the areas of a raster, and how many chunks they have in one band.
    pub(crate) fn list(areas: &[Window]) -> (Vec<Self>, u64) {
        let mut first = 0;
        let list = areas.iter().map(|area| {
            let raw = Self { x: area.x, y: area.y, width: area.width, height: area.height, first };
            first += area.pixels().div_ceil(CHUNK);
            raw
        });
        (list.collect(), first)
    }
}

/// `SummaryRule` of `kernels/summary/summary.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawRule {
    pub(crate) nodata: [u8; 16],
    pub(crate) nodata_len: u32,
    pub(crate) masked: u32,
}

/// `SummaryArgs` of `kernels/summary/summary.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SummaryArgs {
    samples: u64,
    samples_len: u64,
    mask: u64,
    mask_bytes: u64,
    areas: u64,
    rules: u64,
    parts: u64,
    parts_len: u64,
    totals: u64,
    totals_len: u64,
    chunks: u64,
    area_count: u32,
    bands: u32,
    width: u32,
    height: u32,
    kind: u32,
    mask_len: u32,
}

/// The buffers of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SummaryLaunch<'a> {
    /// One plane of `width` × `height` samples for each band.
    pub(crate) samples: BufferSlice<'a>,
    /// A plane of as many pixels, and the bytes of each.
    pub(crate) mask: Option<(BufferSlice<'a>, u32)>,
    /// Entries of [`RawArea`].
    pub(crate) areas: BufferSlice<'a>,
    /// One [`RawRule`] for each band.
    pub(crate) rules: BufferSlice<'a>,
    /// Room for a [`RawSummary`] of each chunk of each band.
    pub(crate) parts: BufferSlice<'a>,
    /// Room for one of each area of each band.
    pub(crate) totals: BufferSlice<'a>,
    pub(crate) chunks: u64,
    pub(crate) area_count: u32,
    pub(crate) bands: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) kind: u32,
}

/// Computes the statistics of every chunk, then those of every area.
pub(crate) fn launch_summary(streams: &Streams, stream: usize, launch: &SummaryLaunch<'_>) -> Result<(), DeviceError> {
    let (bands, areas) = (u64::from(launch.bands), u64::from(launch.area_count));
    if bands * areas == 0 {
        return Ok(());
    }
    let one = size_of::<RawSummary>() as u64;
    let parts = launch.chunks.saturating_mul(bands);
    check_len("areas", launch.areas.len as u64, areas * size_of::<RawArea>() as u64)?;
    check_len("rules", launch.rules.len as u64, bands * size_of::<RawRule>() as u64)?;
    check_len("statistics of chunks", launch.parts.len as u64, parts.saturating_mul(one))?;
    check_len("statistics of areas", launch.totals.len as u64, areas * bands * one)?;
    let (mask, mask_bytes, mask_len) = match &launch.mask {
        Some((mask, len)) => (mask.address()?, mask.len as u64, *len),
        None => (0, 0, 0),
    };
    let args = SummaryArgs {
        samples: launch.samples.address()?,
        samples_len: launch.samples.len as u64,
        mask,
        mask_bytes,
        areas: launch.areas.address()?,
        rules: launch.rules.address()?,
        parts: launch.parts.address()?,
        parts_len: launch.parts.len as u64 / one,
        totals: launch.totals.address()?,
        totals_len: launch.totals.len as u64 / one,
        chunks: launch.chunks,
        area_count: launch.area_count,
        bands: launch.bands,
        width: launch.width,
        height: launch.height,
        kind: launch.kind,
        mask_len,
    };
    let mut buffers = vec![launch.samples.buffer, launch.areas.buffer, launch.parts.buffer, launch.totals.buffer];
    buffers.extend([launch.rules.buffer]);
    buffers.extend(launch.mask.map(|(mask, _)| mask.buffer));
    let memory = streams.memory();
    let chunks = memory.function("summary", ptx!("summary"), "swath_summary_chunks")?;
    let blocks = parts.clamp(1, u64::from(chunks.resident) * 4) as u32;
    // SAFETY: the lengths are those of the slices, which were checked to lie in their buffers; the kernel checks samples,
    // mask and areas.
    unsafe { streams.launch(stream, chunks, blocks, &args, &buffers) }?;
    let totals = memory.function("summary", ptx!("summary"), "swath_summary_areas")?;
    let blocks = (areas * bands).div_ceil(totals.threads.into()).clamp(1, u64::from(totals.resident) * 4) as u32;
    // SAFETY: as above.
    unsafe { streams.launch(stream, totals, blocks, &args, &buffers) }
}

/// Returns the number by which the kernel knows a sample type: `NumberKind` of `kernels/summary/number.cuh`.
pub(crate) fn number_kind(sample: SampleType) -> Option<u32> {
    Some(match sample {
        SampleType::CI16 => 11,
        SampleType::CI32 => 12,
        SampleType::CF16 => 13,
        SampleType::CF32 => 14,
        SampleType::CF64 => 15,
        _ => return super::moments::sample_kind(sample),
    })
}
