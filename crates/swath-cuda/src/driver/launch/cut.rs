//! Launches the kernel that cuts tiles out of a ring of rows.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::{
            rows::RawRows,
            slice::{BufferSlice, check_len, ptx},
        },
        memory::{pool::DeviceBuffer, row_ring::RowRing, streams::Streams},
    },
    error::DeviceError,
};

/// `CutArgs` of `kernels/write/cut.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CutArgs {
    rows: RawRows,
    dst: u64,
    dst_len: u64,
    dst_stride: u64,
    lens: u64,
    stored_row: u64,
    height: u32,
    tile_width: u32,
    tile_height: u32,
    tiled: u32,
    across: u32,
    planes: u32,
    samples: u32,
    first_row: u32,
    skip: u32,
    first: u32,
    count: u32,
    parts: u32,
    sample_len: u32,
    word: u32,
    bits: u32,
    swap: u32,
    predictor: u32,
    edge: u32,
    sparse: u32,
    unused: u32,
    fill: [u8; 16],
}

/// How all tiles of one kind are stored.
#[derive(Debug, Clone)]
pub(crate) struct CutParams {
    pub(crate) stored_row: u64,
    pub(crate) samples: u32,
    pub(crate) sample_len: u32,
    pub(crate) word: u32,
    pub(crate) bits: u32,
    pub(crate) swap: bool,
    pub(crate) predictor: u32,
    pub(crate) edge: u32,
    /// Tiles that hold only this sample are left out.
    pub(crate) fill: Option<[u8; 16]>,
    pub(crate) tiled: bool,
}

/// The tile grid of one level, and the tiles of it to cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GridTiles {
    pub(crate) height: u32,
    pub(crate) tile_width: u32,
    pub(crate) tile_height: u32,
    pub(crate) across: u32,
    pub(crate) planes: u32,
    /// First tile row, tiles to skip from its start, and number of tiles to cut.
    pub(crate) first_row: u32,
    pub(crate) skip: u32,
    pub(crate) count: u32,
}

/// Cuts tiles into slots `first` and on of a buffer whose slots are `stride` bytes apart.
#[allow(clippy::too_many_arguments)]
pub(crate) fn launch_cut(
    streams: &Streams,
    stream: usize,
    params: &CutParams,
    ring: &RowRing,
    tiles: &GridTiles,
    to: &DeviceBuffer,
    stride: usize,
    first: u32,
    lens: BufferSlice<'_>,
) -> Result<(), DeviceError> {
    if tiles.count == 0 {
        return Ok(());
    }
    let slots = u64::from(first) + u64::from(tiles.count);
    check_len("tiles", to.len() as u64, slots * stride as u64)?;
    check_len("lengths of tiles", lens.len as u64, slots * 4)?;
    check_len("a tile", stride as u64, params.stored_row * u64::from(tiles.tile_height))?;
    let function = streams.memory().function("cut", ptx!("cut"), "swath_cut")?;
    let wanted = (function.resident * 2).div_ceil(tiles.count).max(1);
    let parts = wanted.min(tiles.tile_height.div_ceil(8)).max(1);
    let blocks = tiles
        .count
        .checked_mul(parts)
        .filter(|blocks| *blocks <= i32::MAX as u32)
        .ok_or_else(|| DeviceError::Usage("more tiles than a launch can have".into()))?;
    let args = CutArgs {
        rows: RawRows::new(ring, 0)?,
        dst: to.address(),
        dst_len: to.len() as u64,
        dst_stride: stride as u64,
        lens: lens.address()?,
        stored_row: params.stored_row,
        height: tiles.height,
        tile_width: tiles.tile_width,
        tile_height: tiles.tile_height,
        tiled: params.tiled.into(),
        across: tiles.across,
        planes: tiles.planes,
        samples: params.samples,
        first_row: tiles.first_row,
        skip: tiles.skip,
        first,
        count: tiles.count,
        parts,
        sample_len: params.sample_len,
        word: params.word,
        bits: params.bits,
        swap: params.swap.into(),
        predictor: params.predictor,
        edge: params.edge,
        sparse: params.fill.is_some().into(),
        unused: 0,
        fill: params.fill.unwrap_or_default(),
    };
    // SAFETY: slots and lengths were checked to lie in their buffers; the kernel checks the ring.
    unsafe { streams.launch(stream, function, blocks, &args, &[&ring.buffer, to, lens.buffer]) }
}
