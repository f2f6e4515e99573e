//! Launches the kernels that compute the statistics of tiles.

use bytemuck::{Pod, Zeroable};

use swath_tiff::SampleType;

use crate::{
    driver::{
        launch::{
            cut::GridTiles,
            rows::RawRows,
            slice::{BufferSlice, check_len, ptx},
        },
        memory::{pool::DeviceBuffer, row_ring::RowRing, streams::Streams},
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
    room: u32,
    nodata: [u8; 8],
}

/// `MomentsJoinArgs` of `kernels/moments/moments.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MomentsJoinArgs {
    rows: u64,
    rows_len: u64,
    out: u64,
    out_len: u64,
    room: u32,
    count: u32,
}

/// Rows that a block of `swath_moments` takes: `ROWS` of `kernels/moments/moments.cuh`.
const ROWS: u32 = 32;

/// The samples that count in statistics.
#[derive(Debug, Clone)]
pub(crate) struct MomentsParams {
    pub(crate) kind: u32,
    pub(crate) bands: u16,
    pub(crate) nodata: Option<[u8; 8]>,
}

/// The statistics of the rows of tiles, on the device: `room` elements for each band of a tile.
#[derive(Debug)]
pub(crate) struct RowMoments {
    pub(crate) buffer: DeviceBuffer,
    pub(crate) room: u32,
}

impl RowMoments {
    fn elements(&self) -> u64 {
        (self.buffer.len() / size_of::<RawMoments>()) as u64
    }
}

/// Computes the statistics of the rows of tiles at grid positions, for elements `first` and on of [`join_moments`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn launch_moments(
    streams: &Streams,
    stream: usize,
    params: &MomentsParams,
    ring: &RowRing,
    mask: Option<&RowRing>,
    positions: &GridTiles,
    first: u32,
    out: &RowMoments,
) -> Result<(), DeviceError> {
    if positions.count == 0 {
        return Ok(());
    }
    let elements = (u64::from(first) + u64::from(positions.count)) * u64::from(params.bands) * u64::from(out.room);
    check_len("statistics of rows", out.elements(), elements)?;
    check_len("rows of a tile", out.room, positions.tile_height)?;
    let function = streams.memory().function("moments", ptx!("moments"), "swath_moments")?;
    let args = MomentsArgs {
        rows: RawRows::new(ring, 0)?,
        mask: mask.map_or(Ok(RawRows::default()), |mask| RawRows::new(mask, 0))?,
        out: out.buffer.address(),
        out_len: out.elements(),
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
        room: out.room,
        nodata: params.nodata.unwrap_or_default(),
    };
    let parts = u64::from(out.room.div_ceil(ROWS));
    let jobs = u64::from(positions.count) * u64::from(params.bands) * parts;
    let blocks = jobs.clamp(1, u64::from(function.resident) * 4) as u32;
    let mut buffers = vec![&ring.buffer, &out.buffer];
    buffers.extend(mask.map(|mask| &mask.buffer));
    // SAFETY: the elements were checked to lie in their buffer; the kernel checks the rings.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// Adds up the rows of `count` elements, each a band of a tile.
pub(crate) fn join_moments(
    streams: &Streams,
    stream: usize,
    rows: &RowMoments,
    count: u32,
    out: BufferSlice<'_>,
) -> Result<(), DeviceError> {
    if count == 0 {
        return Ok(());
    }
    check_len("statistics", out.len as u64, u64::from(count) * size_of::<RawMoments>() as u64)?;
    check_len("statistics of rows", rows.elements(), u64::from(count) * u64::from(rows.room))?;
    let function = streams.memory().function("moments", ptx!("moments"), "swath_moments_join")?;
    let args = MomentsJoinArgs {
        rows: rows.buffer.address(),
        rows_len: rows.elements(),
        out: out.address()?,
        out_len: (out.len / size_of::<RawMoments>()) as u64,
        room: rows.room,
        count,
    };
    let blocks = count.min(function.resident.saturating_mul(4)).max(1);
    // SAFETY: both were checked to lie in their buffers.
    unsafe { streams.launch(stream, function, blocks, &args, &[&rows.buffer, out.buffer]) }
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
