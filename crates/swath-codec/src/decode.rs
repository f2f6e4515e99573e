//! The seam between compressed bytes and samples.

use crate::{error::CodecError, scratch::Scratch, spec::TileSpec};

/// How a stream and its tile agreed in length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// The stream held exactly the tile.
    Exact,
    /// The stream held more than the tile; the rest was not looked at.
    Surplus,
}

/// What a decoder leaves in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Bytes as they were stored: file byte order, packed bits, predictor not undone.
    Stored,
    /// Whole samples in native byte order, pixel by pixel.
    Native,
}

/// What a step of a [`Stream`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are done with.
    pub read: usize,
    /// Bytes of the output that were written.
    pub made: usize,
    /// Whether the stream has ended, and its checksum, if it has one, is right.
    pub ended: bool,
}

/// A decompressor that stops anywhere and goes on there later. No input makes it panic.
pub trait Stream: Send {
    /// Goes on from where the last step stopped: `src` is what follows the input that was read, `dst` takes what comes next.
    ///
    /// # Errors
    /// When the stream is damaged.
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, CodecError>;
}

/// A decompressor. No input makes it panic.
pub trait Decode: Send + Sync {
    /// What this decoder leaves in the buffer.
    fn form(&self, spec: &TileSpec) -> Form {
        let _ = spec;
        Form::Stored
    }

    /// Whether it can stop early, so that a buffer for the first rows of a tile is enough.
    fn stops_early(&self) -> bool {
        false
    }

    /// The same decompressor, from the beginning of a tile and step by step, where it is one that keeps its own history.
    fn stream(&self) -> Option<Box<dyn Stream>> {
        None
    }

    /// Fills `dst`, which is exactly as long as `rows` rows of the tile in this decoder's [`Form`]. Where the decoder
    /// [stops early](Decode::stops_early) it may be called with fewer rows than the tile has.
    ///
    /// # Errors
    /// When the stream is damaged, too short, or not of a kind this decoder reads.
    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError>;
}
