//! The launch of the kernels that make overviews.

use bytemuck::{Pod, Zeroable};

use crate::{
    error::DeviceError,
    ffi::{
        kernels::{Part, RawRows},
        memory::{Function, Memory},
        streams::Streams,
    },
    ring::Ring,
};

/// `shrink::Args` of `kernels/shrink.cuh`, all but the rows.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ShrinkRule {
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

/// `shrink::Args` of `kernels/shrink.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ShrinkArgs {
    source: RawRows,
    target: RawRows,
    valid: RawRows,
    tables: u64,
    tables_len: u64,
    rule: ShrinkRule,
}

/// A kernel that makes overviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shrinking {
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

macro_rules! ptx {
    ($name:literal) => {
        ($name, include_str!(concat!("../../kernels/ptx/", $name, ".ptx")))
    };
}

impl Shrinking {
    /// The kernel, loaded when first asked for.
    pub(crate) fn function(self, memory: &Memory) -> Result<Function, DeviceError> {
        let (module, ptx) = match self {
            Self::Nearest | Self::Average => ptx!("shrink"),
            Self::Min | Self::Max | Self::Median | Self::Mode => ptx!("shrink_rank"),
            Self::Rms => ptx!("shrink_rms"),
            Self::Taps => ptx!("shrink_taps"),
            Self::ComplexAverage | Self::ComplexMode | Self::ComplexRms => ptx!("shrink_complex"),
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

/// What a launch works on. The first band of the source goes to the first of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShrinkBatch<'a> {
    /// Rows and their first band.
    pub(crate) source: (&'a Ring, u16),
    pub(crate) target: (&'a Ring, u16),
    pub(crate) valid: Option<(&'a Ring, u16)>,
    pub(crate) tables: Option<Part<'a>>,
}

/// Makes rows of the next level.
pub(crate) fn shrink(
    streams: &Streams,
    stream: usize,
    kernel: Shrinking,
    rule: ShrinkRule,
    batch: &ShrinkBatch<'_>,
) -> Result<(), DeviceError> {
    if rule.count == 0 || rule.bands == 0 {
        return Ok(());
    }
    let function = kernel.function(streams.memory())?;
    let args = ShrinkArgs {
        source: RawRows::new(batch.source.0, batch.source.1)?,
        target: RawRows::new(batch.target.0, batch.target.1)?,
        valid: batch.valid.map_or(Ok(RawRows::default()), |(ring, band)| RawRows::new(ring, band))?,
        tables: batch.tables.map_or(Ok(0), |tables| tables.address())?,
        tables_len: batch.tables.map_or(0, |tables| tables.len) as u64,
        rule,
    };
    // A warp makes four rows of as many columns as its lanes have; no more blocks than fill the device several times
    // over.
    let columns = batch.target.0.width.div_ceil(32);
    let warps = u64::from(columns) * u64::from(rule.count.div_ceil(4)) * u64::from(rule.bands);
    let wanted = warps.div_ceil(u64::from(function.threads / 32).max(1));
    let blocks = wanted.clamp(1, u64::from(function.resident.max(1)) * 8) as u32;
    let mut buffers = vec![&batch.source.0.buffer, &batch.target.0.buffer];
    buffers.extend(batch.valid.map(|(ring, _)| &ring.buffer));
    buffers.extend(batch.tables.map(|tables| tables.buffer));
    // SAFETY: rows and tables were checked to lie in their buffers, and the kernel checks what the tables name against
    // them.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}
