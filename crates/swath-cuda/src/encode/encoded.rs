//! The result of encoding a batch.

use swath_raster::moments::Moments;

use crate::driver::memory::readback::Readback;

/// An encoded batch.
#[derive(Debug)]
pub struct EncodedBatch {
    /// The tiles of the image and its overviews, by slot.
    pub image: Vec<EncodedTile>,
    /// The tiles of masks.
    pub mask: Vec<EncodedTile>,
    /// The sizes of the pieces of each tile of the image, tile by tile, where its codec has pieces.
    pub pieces: Vec<u32>,
    /// Statistics in the order in which the tiles were cut, band by band.
    pub moments: Vec<Moments>,
    /// The copy of the bytes to the host.
    pub readback: Option<Readback>,
}

/// Facts about the tiles of a batch, known before encoding.
#[derive(Debug)]
pub struct PendingTiles {
    /// Whether each tile of the image has any data, by slot.
    pub image: Vec<bool>,
    /// Whether each tile of a mask has any data, by slot.
    pub mask: Vec<bool>,
    /// Statistics in the order in which the tiles were cut, band by band.
    pub moments: Vec<Moments>,
}

/// The result of encoding a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodedTile {
    /// The tile holds only the fill value and is left out.
    Empty,
    /// These bytes of the copy to the host, including the tile's framing.
    Packed(std::ops::Range<usize>),
    /// These bytes, which a library left in host memory, without framing.
    OnHost(Vec<u8>),
    /// The device could not encode it, for this reason.
    Refused(String),
}
