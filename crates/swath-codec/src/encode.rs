//! The seam between samples and compressed bytes.

use std::{fmt, ops::RangeInclusive};

use crate::{decode::Form, error::CodecError, scratch::Scratch, spec::TileSpec};

/// How hard, and how exactly, to compress. What a codec has no use for it does not look at.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Effort: Deflate 1 to 12, Zstd 1 to 22, LZMA 0 to 9. `None` is the codec's usual one. Up to Deflate 9 and Zstd 12 it
    /// stands for the size that comes of it, within a per cent or so; a tile that gets there faster is done faster.
    pub level: Option<u32>,
    /// Quality of JPEG, WebP and JPEG 2000, 1 to 100. `None` is the codec's usual one.
    pub quality: Option<u32>,
    /// Whether a codec that can do both (WebP, JPEG 2000) keeps every sample as it is.
    pub lossless: bool,
    /// Largest error LERC may make; 0 keeps every sample as it is.
    pub max_z_error: f64,
    /// What LERC blobs are wrapped in.
    pub lerc_wrap: LercWrap,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: None, quality: None, lossless: true, max_z_error: 0.0, lerc_wrap: LercWrap::None }
    }
}

/// What LERC blobs are wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum LercWrap {
    #[default]
    None,
    Deflate,
    Zstd,
}

/// A compressor for the tiles of one directory, with its settings in it. No input makes it panic.
pub trait Encode: fmt::Debug + Send + Sync {
    /// What it takes: bytes as they are stored, or whole samples in native byte order, pixel by pixel.
    fn form(&self) -> Form {
        Form::Stored
    }

    /// What belongs into JPEGTables, for the codec that has it.
    fn jpeg_tables(&self) -> Option<Vec<u8>> {
        None
    }

    /// The most bytes that a tile of `rows` rows can become.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize;

    /// Appends the compressed tile to `dst`. `src` is exactly `rows` rows in this encoder's [`Form`].
    ///
    /// # Errors
    /// When the codec cannot take such samples, or its library fails.
    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError>;
}

/// A setting within what the codec takes, or the usual one.
pub(crate) fn within(
    codec: &'static str,
    name: &str,
    given: Option<u32>,
    usual: u32,
    allowed: RangeInclusive<u32>,
) -> Result<u32, CodecError> {
    let value = given.unwrap_or(usual);
    if allowed.contains(&value) {
        return Ok(value);
    }
    let detail = format!("{name} {value} is not among {} to {}", allowed.start(), allowed.end());
    Err(CodecError::encode(codec, detail))
}

/// Has `write` fill some of `bound` bytes behind what `dst` holds, and keeps as many of them as it says.
pub(crate) fn append(
    dst: &mut Vec<u8>,
    bound: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, CodecError>,
) -> Result<(), CodecError> {
    let start = dst.len();
    dst.resize(start + bound, 0);
    let outcome = write(dst.get_mut(start..).unwrap_or_default());
    dst.truncate(start + outcome.as_ref().map_or(0, |len| *len));
    outcome.map(|_| ())
}
