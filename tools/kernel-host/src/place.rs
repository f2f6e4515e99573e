//! Runs the placing kernel with arguments made from a tile's spec.

use std::io;

use swath_codec::TileSpec;
use swath_tiff::{
    SampleFormat,
    structure::{ByteOrder, Predictor},
};

use crate::server::{Argument, Buffer, KernelHost};

/// One tile, or one plane of it, and its place in the output: `PlaceTile` of kernels/place/place.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the names of the kernel, explained there")]
pub struct PlaceTile {
    pub src: u64,
    pub src_len: u64,
    pub status: u32,
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    pub to_x: u32,
    pub to_y: u32,
    pub slot: u32,
    pub sparse: u32,
}

impl PlaceTile {
    fn raw(&self) -> Vec<u8> {
        let mut raw = [self.src, self.src_len].map(u64::to_le_bytes).concat();
        let numbers = [self.status, self.x, self.y, self.width, self.height, self.to_x, self.to_y, self.slot];
        for number in numbers.into_iter().chain([self.sparse, 0]) {
            raw.extend(number.to_le_bytes());
        }
        raw
    }
}

/// The layout of the output.
#[derive(Debug, Clone)]
pub struct Output {
    /// Bytes from row to row.
    pub row_step: u64,
    /// Bytes from pixel to pixel.
    pub pixel_step: u64,
    /// Bytes from band to band.
    pub band_step: u64,
    /// The sample of the tile for each band.
    pub samples: Vec<u16>,
    /// One sample for sparse tiles.
    pub fill: [u8; 16],
}

/// Decoded tiles of one spec.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Their bytes.
    pub src: &'a [u8],
    /// The place of each in the bytes and in the output.
    pub tiles: &'a [PlaceTile],
    /// The decoding status of each.
    pub statuses: &'a [u32],
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Lanes of a block.
    pub lanes: u32,
    /// Blocks that share a tile.
    pub parts: u32,
    /// Bytes by which the buffers are misaligned.
    pub shift: usize,
}

/// Places tiles. `dst` is the output before; returns the output after.
///
/// # Errors
/// When the kernel fails.
pub fn place(
    host: &mut KernelHost,
    spec: &TileSpec,
    launch: Launch,
    batch: Batch<'_>,
    output: &Output,
    dst: &[u8],
) -> io::Result<Vec<u8>> {
    let Batch { src, tiles, statuses } = batch;
    let shifted = |bytes: &[u8]| [&vec![0; launch.shift], bytes].concat();
    let (shifted_src, shifted_dst) = (shifted(src), shifted(dst));
    let raw_tiles: Vec<u8> = tiles.iter().flat_map(PlaceTile::raw).collect();
    let raw_statuses: Vec<u8> = statuses.iter().flat_map(|status| status.to_le_bytes()).collect();
    let raw_samples: Vec<u8> = output.samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let buffers = [
        Buffer::In(&shifted_src),
        Buffer::InOut(&shifted_dst),
        Buffer::In(&raw_tiles),
        Buffer::In(&raw_statuses),
        Buffer::In(&raw_samples),
    ];
    let steps = [output.row_step, output.pixel_step, output.band_step, spec.stored_row_len() as u64];
    let numbers = [
        tiles.len() as u32,
        launch.parts,
        spec.width,
        spec.samples.into(),
        output.samples.len() as u32,
        form(spec),
        spec.bits.into(),
        spec.sample.size() as u32,
        spec.sample.word() as u32,
        spec.order.is_foreign().into(),
        match spec.predictor {
            Predictor::None => 0,
            Predictor::Horizontal => 2,
            Predictor::FloatingPoint => 3,
        },
        0,
    ];
    let mut rest = steps.map(u64::to_le_bytes).concat();
    rest.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    rest.extend(output.fill);
    let shift = launch.shift as u64;
    let arguments = [
        Argument::Pointer(0, shift),
        Argument::Bytes(&(src.len() as u64).to_le_bytes()),
        Argument::Pointer(1, shift),
        Argument::Bytes(&(dst.len() as u64).to_le_bytes()),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Bytes(&(statuses.len() as u64).to_le_bytes()),
        Argument::Pointer(4, 0),
        Argument::Bytes(&rest),
    ];
    let blocks = tiles.len() as u32 * launch.parts;
    let mut back = host.run("swath_place", blocks, launch.lanes, &buffers, &arguments)?;
    let mut out = back.pop().unwrap_or_default();
    Ok(out.split_off(launch.shift))
}

/// Returns the form of the stored samples, as a number of the kernels' `PlaceForm`.
fn form(spec: &TileSpec) -> u32 {
    match (spec.bits, spec.format) {
        (24, SampleFormat::Float) => 4 + u32::from(spec.order == ByteOrder::Big),
        // The opposite of the byte order of the file, as on the CPU.
        (24, _) => 2 + u32::from(spec.order == ByteOrder::Little),
        (bits, _) if usize::from(bits) == 8 * spec.sample.size() => 0,
        _ => 1,
    }
}
