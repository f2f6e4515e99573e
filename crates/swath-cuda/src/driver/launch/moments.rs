//! Launches the kernel that computes the statistics of tiles.

use bytemuck::{Pod, Zeroable};

use swath_tiff::SampleType;

use crate::{
    driver::{
        launch::{
            cut::GridTiles,
            rows::RawRows,
            slice::{BufferSlice, check_len, ptx},
        },
        memory::{row_ring::RowRing, streams::Streams},
    },
    error::DeviceError,
};

/// `Moments` of `kernels/moments/moments.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawMoments {
    pub(crate) count: u64,
    pub(crate) all: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) squares: f64,
}

/// `MomentsArgs` of `kernels/moments/moments.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MomentsArgs {
    rows: RawRows,
    mask: RawRows,
    out: u64,
    out_len: u64,
    height: u32,
    tile_width: u32,
    tile_height: u32,
    across: u32,
    bands: u32,
    first_row: u32,
    skip: u32,
    first: u32,
    count: u32,
    kind: u32,
    has_nodata: u32,
    unused: u32,
    nodata: [u8; 8],
}

/// The samples that count in statistics.
#[derive(Debug, Clone)]
pub(crate) struct MomentsParams {
    pub(crate) kind: u32,
    pub(crate) bands: u16,
    pub(crate) nodata: Option<[u8; 8]>,
}

/// Computes statistics of grid positions into elements `first` and on.
#[allow(clippy::too_many_arguments)]
pub(crate) fn launch_moments(
    streams: &Streams,
    stream: usize,
    params: &MomentsParams,
    ring: &RowRing,
    mask: Option<&RowRing>,
    positions: &GridTiles,
    first: u32,
    out: BufferSlice<'_>,
) -> Result<(), DeviceError> {
    if positions.count == 0 {
        return Ok(());
    }
    let elements = (u64::from(first) + u64::from(positions.count)) * u64::from(params.bands);
    check_len("statistics", out.len as u64, elements * size_of::<RawMoments>() as u64)?;
    let function = streams.memory().function("moments", ptx!("moments"), "swath_moments")?;
    let args = MomentsArgs {
        rows: RawRows::new(ring, 0)?,
        mask: mask.map_or(Ok(RawRows::default()), |mask| RawRows::new(mask, 0))?,
        out: out.address()?,
        out_len: (out.len / size_of::<RawMoments>()) as u64,
        height: positions.height,
        tile_width: positions.tile_width,
        tile_height: positions.tile_height,
        across: positions.across,
        bands: params.bands.into(),
        first_row: positions.first_row,
        skip: positions.skip,
        first,
        count: positions.count,
        kind: params.kind,
        has_nodata: params.nodata.is_some().into(),
        unused: 0,
        nodata: params.nodata.unwrap_or_default(),
    };
    let blocks =
        (u64::from(positions.count) * u64::from(params.bands)).clamp(1, u64::from(function.resident) * 4) as u32;
    let mut buffers = vec![&ring.buffer, out.buffer];
    buffers.extend(mask.map(|mask| &mask.buffer));
    // SAFETY: the elements were checked to lie in their buffer; the kernel checks the rings.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// Returns the number by which kernels know a sample type: `Kind` of `kernels/shrink/sample.cuh` and
/// `kernels/moments/moments.cuh`. `None` for complex types.
pub(crate) fn sample_kind(sample: SampleType) -> Option<u32> {
    Some(match sample {
        SampleType::U8 => 0,
        SampleType::I8 => 1,
        SampleType::U16 => 2,
        SampleType::I16 => 3,
        SampleType::U32 => 4,
        SampleType::I32 => 5,
        SampleType::U64 => 6,
        SampleType::I64 => 7,
        SampleType::F16 => 8,
        SampleType::F32 => 9,
        SampleType::F64 => 10,
        _ => return None,
    })
}
