//! One function for each kernel of a write: checks every length, then launches.

use std::ffi::c_void;

use bytemuck::{Pod, Zeroable};

use crate::{
    error::DeviceError,
    ffi::{
        kernels::{Part, RawRows},
        memory::{DeviceBuffer, Function, Memory},
        streams::Streams,
    },
    ring::Ring,
};

macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!("../../kernels/ptx/", $name, ".ptx"))
    };
}

/// `TakeArgs` of `kernels/take.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TakeArgs {
    rows: RawRows,
    src: u64,
    row_step: i64,
    pixel_step: i64,
    band_step: i64,
    first: u32,
    count: u32,
    bands: u32,
    first_band: u32,
    sample_len: u32,
    replace: u32,
    nodata: [u8; 16],
}

/// Rows that are on the device: where the first sample is, and how far it is to the next along each axis.
#[derive(Debug, Clone)]
pub struct DeviceRows {
    address: u64,
    row_step: i64,
    pixel_step: i64,
    band_step: i64,
    keeps: Option<DeviceBuffer>,
    /// Rows, columns and bands that there are, and the bytes of a sample, where that is known.
    bounds: Option<([u32; 3], usize)>,
    /// A stream of someone else that has work on the samples under way.
    after: Option<Foreign>,
}

/// A stream of someone else.
#[derive(Debug, Clone, Copy)]
struct Foreign(*mut c_void);

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl DeviceRows {
    /// Rows at an address, with the bytes from row to row, from pixel to pixel and from band to band.
    ///
    /// # Safety
    /// Every sample of the rows that are handed in with this lies in live memory of the device, of the context that they are
    /// handed to, until the call that takes them returns.
    pub unsafe fn new(address: u64, row_step: i64, pixel_step: i64, band_step: i64) -> Self {
        Self { address, row_step, pixel_step, band_step, keeps: None, bounds: None, after: None }
    }

    /// Rows in a buffer of ours: the bytes from row to row, from pixel to pixel and from band to band, and how many there are
    /// of each.
    ///
    /// # Errors
    /// When they are not all in it.
    pub fn of_buffer(
        buffer: &DeviceBuffer,
        steps: [usize; 3],
        counts: [u32; 3],
        sample_len: usize,
    ) -> Result<Self, DeviceError> {
        let reach = steps.iter().zip(counts).try_fold(sample_len, |sum, (step, count)| {
            sum.checked_add(step.checked_mul(count.saturating_sub(1) as usize)?)
        });
        let address = buffer.part(0, reach.unwrap_or(usize::MAX))?;
        let [row_step, pixel_step, band_step] = steps.map(|step| step as i64);
        let (keeps, bounds) = (Some(buffer.clone()), Some((counts, sample_len)));
        Ok(Self { address, row_step, pixel_step, band_step, keeps, bounds, after: None })
    }

    /// After the work that this stream (`CUstream`; null is the default stream) was given until the rows are taken. Without it
    /// the samples are taken to be there.
    ///
    /// # Safety
    /// The stream is alive until the call that takes the rows returns, and of the context that they are handed to.
    #[must_use]
    pub unsafe fn after(mut self, stream: *mut c_void) -> Self {
        self.after = Some(Foreign(stream));
        self
    }

    /// The same from row `row` on.
    pub fn at_row(&self, row: u32) -> Self {
        let offset = self.row_step.wrapping_mul(row.into());
        let less = |([rows, columns, bands], len): ([u32; 3], usize)| ([rows.saturating_sub(row), columns, bands], len);
        let (address, bounds) = (self.address.wrapping_add_signed(offset), self.bounds.map(less));
        Self { address, bounds, ..self.clone() }
    }
}

/// What is taken where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take<'a> {
    pub(crate) ring: &'a Ring,
    /// First row of the level, rows, bands, and the first band of the ring.
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) bands: u16,
    pub(crate) first_band: u16,
    /// Bytes of a float whose NaNs become `nodata`; 0 to leave all samples alone.
    pub(crate) replace: u32,
    pub(crate) nodata: [u8; 16],
}

/// Copies rows of a caller into a ring.
pub(crate) fn take(streams: &Streams, stream: usize, source: &DeviceRows, take: &Take<'_>) -> Result<(), DeviceError> {
    let ring = take.ring;
    if take.count == 0 || take.bands == 0 {
        return Ok(());
    }
    let bands = u32::from(take.first_band) + u32::from(take.bands);
    if take.count > ring.capacity || bands > u32::from(ring.bands) {
        return Err(DeviceError::Usage("more rows or bands are taken than the ring holds".into()));
    }
    let wanted = [take.count, ring.width, take.bands.into()];
    if let Some((counts, sample_len)) = source.bounds
        && (sample_len != ring.sample_len || counts.iter().zip(wanted).any(|(there, wanted)| *there < wanted))
    {
        return Err(DeviceError::Usage(format!("rows of {wanted:?} are taken where {counts:?} are")));
    }
    if let Some(Foreign(other)) = source.after {
        // SAFETY: alive, as who made the rows promised.
        unsafe { streams.wait_foreign(stream, other) }?;
    }
    let function = streams.memory().function("take", ptx!("take"), "swath_take")?;
    let args = TakeArgs {
        rows: RawRows::new(ring, 0)?,
        src: source.address,
        row_step: source.row_step,
        pixel_step: source.pixel_step,
        band_step: source.band_step,
        first: take.first,
        count: take.count,
        bands: take.bands.into(),
        first_band: take.first_band.into(),
        sample_len: ring.sample_len as u32,
        replace: take.replace,
        nodata: take.nodata,
    };
    let mut buffers = vec![&ring.buffer];
    buffers.extend(&source.keeps);
    let bytes = u64::from(take.count) * ring.row_step() * u64::from(take.bands);
    let blocks = blocks_for(bytes, function);
    // SAFETY: the ring was checked; the source was, or is the promise of who made it.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// Enough blocks that each thread has some 64 bytes, and no more than fill the device four times.
fn blocks_for(bytes: u64, function: Function) -> u32 {
    let wanted = bytes.div_ceil(u64::from(function.threads) * 64);
    wanted.clamp(1, u64::from(function.resident) * 4) as u32
}

/// `CutArgs` of `kernels/cut.cuh`.
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
pub(crate) struct CutRule {
    pub(crate) stored_row: u64,
    pub(crate) samples: u32,
    pub(crate) sample_len: u32,
    pub(crate) word: u32,
    pub(crate) bits: u32,
    pub(crate) swap: bool,
    pub(crate) predictor: u32,
    pub(crate) edge: u32,
    /// Tiles with nothing but this sample are left out.
    pub(crate) fill: Option<[u8; 16]>,
    pub(crate) tiled: bool,
}

/// The grid of one level, and some tiles of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutTiles {
    pub(crate) height: u32,
    pub(crate) tile_width: u32,
    pub(crate) tile_height: u32,
    pub(crate) across: u32,
    pub(crate) planes: u32,
    /// Row of the grid, tiles from its start on to be left out, and how many to cut.
    pub(crate) first_row: u32,
    pub(crate) skip: u32,
    pub(crate) count: u32,
}

/// Cuts tiles into slots `first` and on of a buffer with slots of `stride` bytes.
#[allow(clippy::too_many_arguments)]
pub(crate) fn cut(
    streams: &Streams,
    stream: usize,
    rule: &CutRule,
    ring: &Ring,
    tiles: &CutTiles,
    to: &DeviceBuffer,
    stride: usize,
    first: u32,
    lens: Part<'_>,
) -> Result<(), DeviceError> {
    if tiles.count == 0 {
        return Ok(());
    }
    let slots = u64::from(first) + u64::from(tiles.count);
    has("tiles", to.len() as u64, slots * stride as u64)?;
    has("lengths of tiles", lens.len as u64, slots * 4)?;
    has("a tile", stride as u64, rule.stored_row * u64::from(tiles.tile_height))?;
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
        stored_row: rule.stored_row,
        height: tiles.height,
        tile_width: tiles.tile_width,
        tile_height: tiles.tile_height,
        tiled: rule.tiled.into(),
        across: tiles.across,
        planes: tiles.planes,
        samples: rule.samples,
        first_row: tiles.first_row,
        skip: tiles.skip,
        first,
        count: tiles.count,
        parts,
        sample_len: rule.sample_len,
        word: rule.word,
        bits: rule.bits,
        swap: rule.swap.into(),
        predictor: rule.predictor,
        edge: rule.edge,
        sparse: rule.fill.is_some().into(),
        unused: 0,
        fill: rule.fill.unwrap_or_default(),
    };
    // SAFETY: slots and lengths were checked to lie in their buffers; the kernel checks the ring.
    unsafe { streams.launch(stream, function, blocks, &args, &[&ring.buffer, to, lens.buffer]) }
}

/// `Moments` of `kernels/moments.cuh`.
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

/// `MomentsArgs` of `kernels/moments.cuh`.
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

/// What counts as data, for statistics.
#[derive(Debug, Clone)]
pub(crate) struct MomentsRule {
    pub(crate) kind: u32,
    pub(crate) bands: u16,
    pub(crate) nodata: Option<[u8; 8]>,
}

/// Statistics of positions of the grid, to elements `first` and on.
#[allow(clippy::too_many_arguments)]
pub(crate) fn moments(
    streams: &Streams,
    stream: usize,
    rule: &MomentsRule,
    ring: &Ring,
    mask: Option<&Ring>,
    positions: &CutTiles,
    first: u32,
    out: Part<'_>,
) -> Result<(), DeviceError> {
    if positions.count == 0 {
        return Ok(());
    }
    let elements = (u64::from(first) + u64::from(positions.count)) * u64::from(rule.bands);
    has("statistics", out.len as u64, elements * size_of::<RawMoments>() as u64)?;
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
        bands: rule.bands.into(),
        first_row: positions.first_row,
        skip: positions.skip,
        first,
        count: positions.count,
        kind: rule.kind,
        has_nodata: rule.nodata.is_some().into(),
        unused: 0,
        nodata: rule.nodata.unwrap_or_default(),
    };
    let blocks = (u64::from(positions.count) * u64::from(rule.bands)).clamp(1, u64::from(function.resident) * 4) as u32;
    let mut buffers = vec![&ring.buffer, out.buffer];
    buffers.extend(mask.map(|mask| &mask.buffer));
    // SAFETY: the elements were checked to lie in their buffer; the kernel checks the rings.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// `AdlerArgs` of `kernels/adler.cuh`.
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

/// The Adler-32 of each of the first `count` slots.
pub(crate) fn adler(
    streams: &Streams,
    stream: usize,
    tiles: &DeviceBuffer,
    stride: usize,
    lens: Part<'_>,
    checks: Part<'_>,
    count: u32,
) -> Result<(), DeviceError> {
    has("tiles", tiles.len() as u64, u64::from(count) * stride as u64)?;
    has("lengths and checks of tiles", lens.len.min(checks.len) as u64, u64::from(count) * 4)?;
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

/// `EncodeArgs` of `kernels/encode.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EncodeArgs {
    src: u64,
    src_len: u64,
    src_stride: u64,
    dst: u64,
    dst_len: u64,
    dst_stride: u64,
    lens: u64,
    sizes: u64,
    scratch: u64,
    scratch_len: u64,
    tiles: u32,
    pieces: u32,
    piece_len: u32,
    effort: u32,
    row_len: u32,
    pixel_len: u32,
}

/// An encoding kernel of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    PackBits,
    Lzw,
    Deflate,
    Zstd,
}

/// What an encoding kernel works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodeBatch<'a> {
    pub(crate) tiles: &'a DeviceBuffer,
    pub(crate) stride: usize,
    pub(crate) pressed: &'a DeviceBuffer,
    pub(crate) pressed_stride: usize,
    /// One `u32` for each tile.
    pub(crate) lens: Part<'a>,
    /// One `u32` for each piece.
    pub(crate) sizes: Part<'a>,
    pub(crate) scratch: Option<&'a DeviceBuffer>,
    pub(crate) count: u32,
    pub(crate) pieces: u32,
    pub(crate) piece_len: usize,
    pub(crate) effort: u32,
    pub(crate) row_len: usize,
    pub(crate) pixel_len: usize,
}

/// `PackArgs` of `kernels/pack.cuh`.
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

/// What stands around the pieces of a tile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wrap {
    pub(crate) head: Vec<u8>,
    /// The last four bytes of the head become the length of the tile.
    pub(crate) len_in_head: bool,
    pub(crate) adler: bool,
    pub(crate) frame: bool,
}

/// What is packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackBatch<'a> {
    pub(crate) pressed: &'a DeviceBuffer,
    pub(crate) pressed_stride: usize,
    pub(crate) packed: &'a DeviceBuffer,
    pub(crate) lens: Part<'a>,
    pub(crate) sizes: Part<'a>,
    pub(crate) checks: Option<Part<'a>>,
    pub(crate) wholes: Part<'a>,
    pub(crate) offsets: Part<'a>,
    pub(crate) total: Part<'a>,
    pub(crate) count: u32,
    pub(crate) pieces: u32,
}

/// Puts the pieces of all tiles one after the other, behind what was packed before.
pub(crate) fn pack(streams: &Streams, stream: usize, wrap: &Wrap, batch: &PackBatch<'_>) -> Result<(), DeviceError> {
    let (count, pieces) = (u64::from(batch.count), u64::from(batch.pieces));
    if count == 0 {
        return Ok(());
    }
    has("pieces", batch.pressed.len() as u64, count * pieces * batch.pressed_stride as u64)?;
    has("lengths of tiles", batch.lens.len.min(batch.wholes.len) as u64, count * 4)?;
    has("sizes of pieces", batch.sizes.len as u64, count * pieces * 4)?;
    has("offsets of tiles", batch.offsets.len as u64, count * 8)?;
    has("the sum of tiles", batch.total.len as u64, 8)?;
    if let Some(checks) = &batch.checks {
        has("checks of tiles", checks.len as u64, count * 4)?;
    }
    let mut head = [0; 16];
    match head.get_mut(..wrap.head.len()) {
        Some(place) => place.copy_from_slice(&wrap.head),
        None => return Err(DeviceError::Usage("the head of a tile is too long".into())),
    }
    let args = PackArgs {
        src: batch.pressed.address(),
        src_len: batch.pressed.len() as u64,
        src_stride: batch.pressed_stride as u64,
        dst: batch.packed.address(),
        dst_len: batch.packed.len() as u64,
        lens: batch.lens.address()?,
        sizes: batch.sizes.address()?,
        checks: batch.checks.as_ref().map_or(Ok(0), Part::address)?,
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
        batch.pressed,
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

pub(super) fn has(what: &str, have: u64, need: u64) -> Result<(), DeviceError> {
    if have < need {
        return Err(DeviceError::Usage(format!("{what}: {have} bytes where {need} are needed")));
    }
    Ok(())
}

impl EncodeBatch<'_> {
    fn args(&self) -> Result<EncodeArgs, DeviceError> {
        let (count, pieces) = (u64::from(self.count), u64::from(self.pieces));
        has("tiles", self.tiles.len() as u64, count * self.stride as u64)?;
        has("pieces", self.pressed.len() as u64, count * pieces * self.pressed_stride as u64)?;
        has("lengths of tiles", self.lens.len as u64, count * 4)?;
        has("sizes of pieces", self.sizes.len as u64, count * pieces * 4)?;
        let whole = |len: usize| {
            u32::try_from(len).map_err(|_| DeviceError::Usage(format!("tiles of {len} bytes are too long for a GPU")))
        };
        Ok(EncodeArgs {
            src: self.tiles.address(),
            src_len: self.tiles.len() as u64,
            src_stride: self.stride as u64,
            dst: self.pressed.address(),
            dst_len: self.pressed.len() as u64,
            dst_stride: self.pressed_stride as u64,
            lens: self.lens.address()?,
            sizes: self.sizes.address()?,
            scratch: self.scratch.map_or(0, DeviceBuffer::address),
            scratch_len: 0,
            tiles: self.count,
            pieces: self.pieces,
            piece_len: whole(self.piece_len)?,
            effort: self.effort,
            row_len: whole(self.row_len)?,
            pixel_len: whole(self.pixel_len)?,
        })
    }
}

/// `WordsArgs` of `kernels/words.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WordsArgs {
    narrow: u64,
    wide: u64,
    status: u64,
    count: u64,
    most: u64,
}

/// Lengths of tiles for a library, or, with the statuses of what it made of them and the most that a stream may have, the sizes
/// of its streams for us.
pub(crate) fn words(
    streams: &Streams,
    stream: usize,
    narrow: Part<'_>,
    wide: Part<'_>,
    status: Option<(Part<'_>, usize)>,
    count: u32,
) -> Result<(), DeviceError> {
    let most = status.map_or(0, |(_, most)| most as u64);
    let status = status.map(|(status, _)| status);
    let need = u64::from(count) * 4;
    has("lengths", narrow.len as u64, need)?;
    has("lengths for a library", wide.len as u64, need * 2)?;
    if let Some(status) = &status {
        has("statuses", status.len as u64, need)?;
    }
    let name = if status.is_some() { "swath_narrow" } else { "swath_widen" };
    let function = streams.memory().function("words", ptx!("words"), name)?;
    let args = WordsArgs {
        narrow: narrow.address()?,
        wide: wide.address()?,
        status: status.as_ref().map_or(Ok(0), Part::address)?,
        count: count.into(),
        most,
    };
    let blocks = count.div_ceil(function.threads).clamp(1, function.resident);
    let mut buffers = vec![narrow.buffer, wide.buffer];
    buffers.extend(status.map(|status| status.buffer));
    // SAFETY: the arrays were checked to be as long as the count says.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// Scratch of a block of the Deflate kernel: `DeflateEncode::SCRATCH`.
const DEFLATE_SCRATCH: usize = 20480 * 8;
/// Of the Zstd kernel: `ZstdEncode::SCRATCH`.
const ZSTD_SCRATCH: usize = 16384 * 8 + 65536;
/// Bytes of an LZW segment, and codes of one that stand for no byte: `lzw_encode::SEGMENT` and `EXTRA`.
const LZW_SEGMENT: usize = 24576;
const LZW_EXTRA: usize = 16;
/// Bytes that a lane of the PackBits kernels takes: `packbits_encode::UNIT`.
const PACKBITS_UNIT: usize = 1024;

impl Encoding {
    /// The most bytes that a piece of `len` bytes, in rows of `row` bytes, can become.
    pub(crate) fn most(self, len: usize, row: usize) -> usize {
        match self {
            Self::PackBits => len.div_ceil(row.max(1)) * (row + row.div_ceil(128)),
            // Twelve bits a code.
            Self::Lzw => (len + (len.div_ceil(LZW_SEGMENT) + 1) * LZW_EXTRA) * 3 / 2 + 16,
            Self::Deflate => len + 5 * len.div_ceil(65535) + 5,
            Self::Zstd => len + 3,
        }
    }

    fn function(self, memory: &Memory) -> Result<Function, DeviceError> {
        match self {
            Self::PackBits => memory.function("packbits_encode", ptx!("packbits_encode"), "swath_packbits_encode"),
            Self::Lzw => memory.function("lzw_encode", ptx!("lzw_encode"), "swath_lzw_encode"),
            Self::Deflate => memory.function("deflate_encode", ptx!("deflate_encode"), "swath_deflate_encode"),
            Self::Zstd => memory.function("zstd_encode", ptx!("zstd_encode"), "swath_zstd_encode"),
        }
    }

    /// Bytes of scratch that a block takes, or that a tile does where blocks share it.
    fn scratch_of(self, stride: usize) -> usize {
        match self {
            Self::PackBits => (2 * stride.div_ceil(PACKBITS_UNIT) + 2) * 4,
            Self::Lzw => {
                let segments = stride.div_ceil(LZW_SEGMENT);
                (2 * (stride + segments * LZW_EXTRA) + 4 * segments).next_multiple_of(16)
            }
            Self::Deflate => DEFLATE_SCRATCH,
            Self::Zstd => ZSTD_SCRATCH,
        }
    }

    /// Whether its scratch belongs to tiles rather than to blocks.
    fn shares_scratch(self) -> bool {
        matches!(self, Self::PackBits | Self::Lzw)
    }

    /// Bytes of scratch for batches of `slots` tiles in `pieces` pieces, `stride` bytes apart.
    pub(crate) fn scratch_len(
        self,
        memory: &Memory,
        slots: usize,
        pieces: usize,
        stride: usize,
    ) -> Result<usize, DeviceError> {
        let shares = match self.shares_scratch() {
            true => slots,
            false => slots.saturating_mul(pieces).min(self.function(memory)?.resident as usize),
        };
        Ok(shares.saturating_mul(self.scratch_of(stride)).max(16))
    }

    /// Compresses a batch of tiles.
    pub(crate) fn launch(self, streams: &Streams, stream: usize, batch: &EncodeBatch<'_>) -> Result<(), DeviceError> {
        if batch.count == 0 {
            return Ok(());
        }
        let memory = streams.memory();
        let function = self.function(memory)?;
        let Some(scratch) = batch.scratch else { return Err(DeviceError::Usage("an encoder has no scratch".into())) };
        let each = self.scratch_of(batch.stride) as u64;
        let mut args = batch.args()?;
        let buffers = [batch.tiles, batch.pressed, batch.lens.buffer, batch.sizes.buffer, scratch];
        let items = u64::from(batch.count) * u64::from(batch.pieces);
        if !self.shares_scratch() {
            args.scratch_len = each;
            let blocks = items.min(function.resident.into()).min(scratch.len() as u64 / each);
            if blocks == 0 {
                return Err(DeviceError::Usage("the scratch of an encoder is too short".into()));
            }
            // SAFETY: tiles, pieces, lengths and sizes were checked to lie in their buffers; every block has its own part of
            // the scratch.
            return unsafe { streams.launch(stream, function, blocks as u32, &args, &buffers) };
        }
        args.scratch_len = scratch.len() as u64;
        has("the scratch of an encoder", args.scratch_len, u64::from(batch.count) * each)?;
        let launch = |function: Function, blocks: u64| {
            let blocks = blocks.clamp(1, i32::MAX as u64) as u32;
            // SAFETY: as above; the scratch was checked too.
            unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
        };
        let most = u64::from(function.resident) * 4;
        if self == Self::Lzw {
            let segments = items * batch.stride.div_ceil(LZW_SEGMENT) as u64;
            let join = memory.function("lzw_encode", ptx!("lzw_encode"), "swath_lzw_join")?;
            launch(function, segments.min(u64::from(function.resident)))?;
            return launch(join, segments.min(u64::from(join.resident) * 4));
        }
        let measure = memory.function("packbits_encode", ptx!("packbits_encode"), "swath_packbits_measure")?;
        let blocks = (items * batch.stride.div_ceil(PACKBITS_UNIT) as u64).div_ceil(u64::from(measure.threads));
        launch(measure, blocks.min(most))?;
        launch(function, items.min(most))
    }
}
