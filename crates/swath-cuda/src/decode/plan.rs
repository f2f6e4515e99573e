//! The plan of a read: what all its tiles have in common.

use std::sync::Arc;

use swath_codec::TileSpec;

use crate::decode::{path::DecodePath, placing::Output};

/// What all tiles of a read have in common.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    /// The format of the tiles.
    pub spec: Arc<TileSpec>,
    /// How the tiles are decoded.
    pub path: DecodePath,
    /// Where the samples go.
    pub output: Output,
    /// For each output band that a tile fills, the number of the tile's sample.
    pub samples: Vec<u16>,
    /// One output sample of the value that sparse tiles have.
    pub fill: Vec<u8>,
    /// Decoded bytes of the largest tile that the file can have: every tile of a read gets as much kernel scratch.
    pub largest: usize,
    /// Whether kernels are timed. If so, they all run after the last copy.
    pub timed: bool,
}
