//! The traits of decoders.

use crate::{error::CodecError, scratch::Scratch, spec::TileSpec};

/// Magic number of an LZ4 frame. No bare LZ4 block begins with it.
pub const LZ4_FRAME: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

/// How the length of a stream compares with its tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// The stream holds exactly the tile.
    Exact,
    /// The stream holds more than the tile; the decoder ignored the rest.
    Surplus,
}

/// The form of a tile between codec and samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Bytes as the file stores them: file byte order, packed bits, predictor applied.
    Stored,
    /// Whole samples in native byte order, interleaved by pixel.
    Native,
}

/// The outcome of [`Stream::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamProgress {
    /// Bytes of the input that the call consumed.
    pub read: usize,
    /// Bytes of the output that the call wrote.
    pub made: usize,
    /// Whether the stream has ended and its checksum, if any, is correct.
    pub ended: bool,
}

/// A decoder that can stop anywhere and continue later. It never panics, whatever the input.
pub trait Stream: Send {
    /// Continues where the last call stopped: `src` follows the input consumed so far, `dst` receives the next output.
    ///
    /// # Errors
    /// When the stream is corrupt.
    fn advance(&mut self, src: &[u8], dst: &mut [u8]) -> Result<StreamProgress, CodecError>;
}

/// A decoder. It never panics, whatever the input.
pub trait Decode: Send + Sync {
    /// Returns the form of the tiles that the decoder produces.
    fn form(&self, spec: &TileSpec) -> Form {
        let _ = spec;
        Form::Stored
    }

    /// Whether the decoder can stop early, so that a caller may pass a buffer for the first rows only.
    fn stops_early(&self) -> bool {
        false
    }

    /// Returns a decoder that decodes a tile step by step; `None` where the codec has none.
    fn stream(&self) -> Option<Box<dyn Stream>> {
        None
    }

    /// Fills `dst`, which is exactly as long as `rows` rows of the tile in this decoder's [`Form`]. Where the decoder
    /// [stops early](Decode::stops_early) it may be called with fewer rows than the tile has.
    ///
    /// # Errors
    /// When the stream is corrupt, too short, or of an unsupported kind.
    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError>;
}
