//! Launches the kernels that make overviews.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::{
            rows::RawRows,
            slice::{BufferSlice, ptx},
        },
        memory::{kernels::Function, pool::Memory, row_ring::RowRing, streams::Streams},
    },
    error::DeviceError,
};

/// `shrink::Args` of `kernels/shrink/shrink.cuh` without the rows.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ShrinkParams {
    pub(crate) columns: u64,
    pub(crate) rows: u64,
    pub(crate) weights: u64,
    pub(crate) weights_len: u64,
    pub(crate) avoid: f64,
    pub(crate) instead: f64,
    pub(crate) nodata: u64,
    pub(crate) fill: u64,
    pub(crate) source_height: u32,
    pub(crate) target_height: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) bands: u32,
    pub(crate) kind: u32,
    pub(crate) plan: u32,
    pub(crate) flags: u32,
}

/// `shrink::Args` of `kernels/shrink/shrink.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ShrinkArgs {
    source: RawRows,
    target: RawRows,
    valid: RawRows,
    tables: u64,
    tables_len: u64,
    params: ShrinkParams,
}

/// A kernel that makes overviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShrinkKernel {
    Nearest,
    Average,
    Min,
    Max,
    Median,
    Mode,
    Rms,
    Taps,
    ComplexAverage,
    ComplexMode,
    ComplexRms,
}

impl ShrinkKernel {
    /// Returns the kernel; its module loads on first use.
    pub(crate) fn function(self, memory: &Memory) -> Result<Function, DeviceError> {
        let (module, ptx) = match self {
            Self::Nearest | Self::Average => ("shrink", ptx!("shrink")),
            Self::Min | Self::Max | Self::Median | Self::Mode => ("shrink_rank", ptx!("shrink_rank")),
            Self::Rms => ("shrink_rms", ptx!("shrink_rms")),
            Self::Taps => ("shrink_taps", ptx!("shrink_taps")),
            Self::ComplexAverage | Self::ComplexMode | Self::ComplexRms => ("shrink_complex", ptx!("shrink_complex")),
        };
        let name = match self {
            Self::Nearest => "swath_shrink_nearest",
            Self::Average => "swath_shrink_average",
            Self::Min => "swath_shrink_min",
            Self::Max => "swath_shrink_max",
            Self::Median => "swath_shrink_median",
            Self::Mode => "swath_shrink_mode",
            Self::Rms => "swath_shrink_rms",
            Self::Taps => "swath_shrink_taps",
            Self::ComplexAverage => "swath_shrink_complex_average",
            Self::ComplexMode => "swath_shrink_complex_mode",
            Self::ComplexRms => "swath_shrink_complex_rms",
        };
        memory.function(module, ptx, name)
    }
}

/// What a launch works on. The first band of the source becomes the first band of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShrinkLaunch<'a> {
    /// The rows and their first band.
    pub(crate) source: (&'a RowRing, u16),
    pub(crate) target: (&'a RowRing, u16),
    pub(crate) valid: Option<(&'a RowRing, u16)>,
    pub(crate) tables: Option<BufferSlice<'a>>,
}

/// Makes rows of the next level.
pub(crate) fn launch_shrink(
    streams: &Streams,
    stream: usize,
    kernel: ShrinkKernel,
    params: ShrinkParams,
    batch: &ShrinkLaunch<'_>,
) -> Result<(), DeviceError> {
    if params.count == 0 || params.bands == 0 {
        return Ok(());
    }
    let function = kernel.function(streams.memory())?;
    let args = ShrinkArgs {
        source: RawRows::new(batch.source.0, batch.source.1)?,
        target: RawRows::new(batch.target.0, batch.target.1)?,
        valid: batch.valid.map_or(Ok(RawRows::default()), |(ring, band)| RawRows::new(ring, band))?,
        tables: batch.tables.map_or(Ok(0), |tables| tables.address())?,
        tables_len: batch.tables.map_or(0, |tables| tables.len) as u64,
        params,
    };
    // A warp makes four rows of as many columns as it has lanes. No more blocks than fill the device several times
    // over.
    let columns = batch.target.0.width.div_ceil(32);
    let warps = u64::from(columns) * u64::from(params.count.div_ceil(4)) * u64::from(params.bands);
    let wanted = warps.div_ceil(u64::from(function.threads / 32).max(1));
    let blocks = wanted.clamp(1, u64::from(function.resident.max(1)) * 8) as u32;
    let mut buffers = vec![&batch.source.0.buffer, &batch.target.0.buffer];
    buffers.extend(batch.valid.map(|(ring, _)| &ring.buffer));
    buffers.extend(batch.tables.map(|tables| tables.buffer));
    // SAFETY: rows and tables were checked to lie in their buffers, and the kernel checks what the tables name against
    // them.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}
