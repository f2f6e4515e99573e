//! Launches the kernels around an encoder: checksums, packed streams, and lengths in the width that a library uses.

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::slice::{BufferSlice, check_len, ptx},
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    error::DeviceError,
};

/// `AdlerArgs` of `kernels/deflate/adler.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AdlerArgs {
    src: u64,
    src_len: u64,
    src_stride: u64,
    lens: u64,
    checks: u64,
    tiles: u32,
    unused: u32,
}

/// Computes the Adler-32 checksum of each of the first `count` slots.
pub(crate) fn launch_adler(
    streams: &Streams,
    stream: usize,
    tiles: &DeviceBuffer,
    stride: usize,
    lens: BufferSlice<'_>,
    checks: BufferSlice<'_>,
    count: u32,
) -> Result<(), DeviceError> {
    check_len("tiles", tiles.len() as u64, u64::from(count) * stride as u64)?;
    check_len("lengths and checks of tiles", lens.len.min(checks.len) as u64, u64::from(count) * 4)?;
    let function = streams.memory().function("adler", ptx!("adler"), "swath_adler")?;
    let args = AdlerArgs {
        src: tiles.address(),
        src_len: tiles.len() as u64,
        src_stride: stride as u64,
        lens: lens.address()?,
        checks: checks.address()?,
        tiles: count,
        unused: 0,
    };
    let blocks = count.clamp(1, function.resident * 4);
    // SAFETY: all was checked to lie in its buffer.
    unsafe { streams.launch(stream, function, blocks, &args, &[tiles, lens.buffer, checks.buffer]) }
}

/// `PackArgs` of `kernels/write/pack.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackArgs {
    src: u64,
    src_len: u64,
    src_stride: u64,
    dst: u64,
    dst_len: u64,
    lens: u64,
    sizes: u64,
    checks: u64,
    wholes: u64,
    offsets: u64,
    total: u64,
    tiles: u32,
    pieces: u32,
    head_len: u32,
    tail: u32,
    frame: u32,
    len_in_head: u32,
    head: [u8; 16],
}

/// The bytes around the pieces of a tile.
#[derive(Debug, Clone, Default)]
pub(crate) struct TileFraming {
    pub(crate) head: Vec<u8>,
    /// The length of the tile replaces the last four bytes of the head.
    pub(crate) len_in_head: bool,
    pub(crate) adler: bool,
    pub(crate) frame: bool,
}

/// The encoded pieces to pack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackLaunch<'a> {
    pub(crate) encoded: &'a DeviceBuffer,
    pub(crate) encoded_stride: usize,
    pub(crate) packed: &'a DeviceBuffer,
    pub(crate) lens: BufferSlice<'a>,
    pub(crate) sizes: BufferSlice<'a>,
    pub(crate) checks: Option<BufferSlice<'a>>,
    pub(crate) wholes: BufferSlice<'a>,
    pub(crate) offsets: BufferSlice<'a>,
    pub(crate) total: BufferSlice<'a>,
    pub(crate) count: u32,
    pub(crate) pieces: u32,
}

/// Packs the pieces of all tiles one after the other, behind the tiles that were packed before.
pub(crate) fn launch_pack(
    streams: &Streams,
    stream: usize,
    wrap: &TileFraming,
    batch: &PackLaunch<'_>,
) -> Result<(), DeviceError> {
    let (count, pieces) = (u64::from(batch.count), u64::from(batch.pieces));
    if count == 0 {
        return Ok(());
    }
    check_len("pieces", batch.encoded.len() as u64, count * pieces * batch.encoded_stride as u64)?;
    check_len("lengths of tiles", batch.lens.len.min(batch.wholes.len) as u64, count * 4)?;
    check_len("sizes of pieces", batch.sizes.len as u64, count * pieces * 4)?;
    check_len("offsets of tiles", batch.offsets.len as u64, count * 8)?;
    check_len("the sum of tiles", batch.total.len as u64, 8)?;
    if let Some(checks) = &batch.checks {
        check_len("checks of tiles", checks.len as u64, count * 4)?;
    }
    let mut head = [0; 16];
    match head.get_mut(..wrap.head.len()) {
        Some(place) => place.copy_from_slice(&wrap.head),
        None => return Err(DeviceError::Internal("the head of a tile is too long".into())),
    }
    let args = PackArgs {
        src: batch.encoded.address(),
        src_len: batch.encoded.len() as u64,
        src_stride: batch.encoded_stride as u64,
        dst: batch.packed.address(),
        dst_len: batch.packed.len() as u64,
        lens: batch.lens.address()?,
        sizes: batch.sizes.address()?,
        checks: batch.checks.as_ref().map_or(Ok(0), BufferSlice::address)?,
        wholes: batch.wholes.address()?,
        offsets: batch.offsets.address()?,
        total: batch.total.address()?,
        tiles: batch.count,
        pieces: batch.pieces,
        head_len: wrap.head.len() as u32,
        tail: (wrap.adler && batch.checks.is_some()).into(),
        frame: wrap.frame.into(),
        len_in_head: wrap.len_in_head.into(),
        head,
    };
    let mut buffers = vec![
        batch.encoded,
        batch.packed,
        batch.lens.buffer,
        batch.sizes.buffer,
        batch.wholes.buffer,
        batch.offsets.buffer,
        batch.total.buffer,
    ];
    buffers.extend(batch.checks.map(|checks| checks.buffer));
    let layout = streams.memory().function("pack", ptx!("pack"), "swath_layout")?;
    let pack = streams.memory().function("pack", ptx!("pack"), "swath_pack")?;
    let blocks = (count * pieces).clamp(1, u64::from(pack.resident) * 4) as u32;
    // SAFETY: all was checked to lie in its buffer.
    unsafe { streams.launch(stream, layout, 1, &args, &buffers) }?;
    // SAFETY: as above.
    unsafe { streams.launch(stream, pack, blocks, &args, &buffers) }
}

/// `WordsArgs` of `kernels/write/words.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WordsArgs {
    narrow: u64,
    wide: u64,
    status: u64,
    count: u64,
    most: u64,
}

/// Widens the lengths of tiles for a library. With the library's statuses and the longest stream that is allowed,
/// narrows the lengths of its streams for us instead.
pub(crate) fn launch_words(
    streams: &Streams,
    stream: usize,
    narrow: BufferSlice<'_>,
    wide: BufferSlice<'_>,
    status: Option<(BufferSlice<'_>, usize)>,
    count: u32,
) -> Result<(), DeviceError> {
    let most = status.map_or(0, |(_, most)| most as u64);
    let status = status.map(|(status, _)| status);
    let need = u64::from(count) * 4;
    check_len("lengths", narrow.len as u64, need)?;
    check_len("lengths for a library", wide.len as u64, need * 2)?;
    if let Some(status) = &status {
        check_len("statuses", status.len as u64, need)?;
    }
    let name = if status.is_some() { "swath_narrow" } else { "swath_widen" };
    let function = streams.memory().function("words", ptx!("words"), name)?;
    let args = WordsArgs {
        narrow: narrow.address()?,
        wide: wide.address()?,
        status: status.as_ref().map_or(Ok(0), BufferSlice::address)?,
        count: count.into(),
        most,
    };
    let blocks = count.div_ceil(function.threads).clamp(1, function.resident);
    let mut buffers = vec![narrow.buffer, wide.buffer];
    buffers.extend(status.map(|status| status.buffer));
    // SAFETY: the arrays were checked to hold `count` elements.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}
