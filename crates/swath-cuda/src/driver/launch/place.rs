//! Launches the kernel that places decoded samples in the output.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::slice::{BufferSlice, check_len, ptx},
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    error::DeviceError,
};

/// One tile and its placement: `PlaceTile` of `kernels/place/place.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PlaceTile {
    pub(crate) src: u64,
    pub(crate) src_len: u64,
    pub(crate) status: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) to_x: u32,
    pub(crate) to_y: u32,
    pub(crate) slot: u32,
    pub(crate) sparse: u32,
    pub(crate) unused: u32,
}

/// `PlaceArgs` of `kernels/place/place.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PlaceArgs {
    src: u64,
    src_len: u64,
    dst: u64,
    dst_len: u64,
    tiles: u64,
    status: u64,
    statuses: u64,
    samples: u64,
    row_step: u64,
    pixel_step: u64,
    band_step: u64,
    stored_row: u64,
    count: u32,
    parts: u32,
    tile_width: u32,
    tile_samples: u32,
    takes: u32,
    form: u32,
    bits: u32,
    sample_len: u32,
    word: u32,
    swap: u32,
    predictor: u32,
    unused: u32,
    fill: [u8; 16],
}

/// How tiles of a read become samples: what all placements have in common.
#[derive(Debug, Clone)]
pub(crate) struct PlaceParams {
    pub(crate) row_step: u64,
    pub(crate) pixel_step: u64,
    pub(crate) band_step: u64,
    pub(crate) stored_row: u64,
    pub(crate) tile_width: u32,
    pub(crate) tile_samples: u32,
    pub(crate) takes: u32,
    pub(crate) form: SampleForm,
    pub(crate) bits: u32,
    pub(crate) sample_len: u32,
    pub(crate) word: u32,
    pub(crate) swap: bool,
    pub(crate) predictor: u32,
    pub(crate) fill: [u8; 16],
}

/// How stored bits become a sample: `PlaceForm` of `kernels/place/place.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SampleForm {
    Whole = 0,
    Packed = 1,
    UInt24Little = 2,
    UInt24Big = 3,
    Float24Little = 4,
    Float24Big = 5,
}

/// The placements of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceLaunch<'a> {
    pub(crate) source: BufferSlice<'a>,
    pub(crate) output: &'a DeviceBuffer,
    /// Entries of [`PlaceTile`].
    pub(crate) tiles: BufferSlice<'a>,
    /// One `u32` for each tile of the read; `None` where all tiles are good.
    pub(crate) status: Option<BufferSlice<'a>>,
    /// One `u16` for each output band that a tile fills.
    pub(crate) samples: BufferSlice<'a>,
    pub(crate) count: u32,
    /// Rows of the tallest placement.
    pub(crate) rows: u32,
}

/// Places samples in the output.
pub(crate) fn launch_place(
    streams: &Streams,
    stream: usize,
    params: &PlaceParams,
    batch: &PlaceLaunch<'_>,
) -> Result<(), DeviceError> {
    if batch.count == 0 {
        return Ok(());
    }
    let function = streams.memory().function("place", ptx!("place"), "swath_place")?;
    let count = batch.count as usize;
    check_len("placements", batch.tiles.len, count * size_of::<PlaceTile>())?;
    check_len("samples", batch.samples.len, params.takes as usize * size_of::<u16>())?;
    // Enough blocks to fill the device several times over, but no more than there are rows for eight warps each.
    let wanted = (function.resident * 4).div_ceil(batch.count).max(1);
    let parts = wanted.min(batch.rows.div_ceil(8)).max(1);
    let blocks = batch
        .count
        .checked_mul(parts)
        .filter(|blocks| *blocks <= i32::MAX as u32)
        .ok_or_else(|| DeviceError::Usage("more placements than a launch can have".into()))?;
    let args = PlaceArgs {
        src: batch.source.address()?,
        src_len: batch.source.len as u64,
        dst: batch.output.address(),
        dst_len: batch.output.len() as u64,
        tiles: batch.tiles.address()?,
        status: batch.status.as_ref().map_or(Ok(0), BufferSlice::address)?,
        statuses: batch.status.as_ref().map_or(0, |status| status.len / size_of::<u32>()) as u64,
        samples: batch.samples.address()?,
        row_step: params.row_step,
        pixel_step: params.pixel_step,
        band_step: params.band_step,
        stored_row: params.stored_row,
        count: batch.count,
        parts,
        tile_width: params.tile_width,
        tile_samples: params.tile_samples,
        takes: params.takes,
        form: params.form as u32,
        bits: params.bits,
        sample_len: params.sample_len,
        word: params.word,
        swap: params.swap.into(),
        predictor: params.predictor,
        unused: 0,
        fill: params.fill,
    };
    let mut buffers = vec![batch.source.buffer, batch.output, batch.tiles.buffer, batch.samples.buffer];
    buffers.extend(batch.status.map(|status| status.buffer));
    // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}
