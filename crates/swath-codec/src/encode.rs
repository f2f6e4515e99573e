//! The trait of encoders, and the settings that users choose for them.

use std::{fmt, ops::RangeInclusive};

use crate::{decode::Form, error::CodecError, scratch::Scratch, spec::TileSpec};

/// How hard, and how exactly, to compress. A codec ignores the settings that it does not have.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Effort: Deflate 1 to 12, Zstd 1 to 22, LZMA 0 to 9. `None` is the codec's default. Up to Deflate 9 and Zstd 12 a level
    /// stands for a compressed size: where a faster search gives the same size within about one per cent, the encoder uses it.
    pub level: Option<u32>,
    /// Quality of JPEG, WebP and JPEG 2000, 1 to 100. `None` is the codec's default.
    pub quality: Option<u32>,
    /// Whether a codec that has both modes (WebP, JPEG 2000) is lossless.
    pub lossless: bool,
    /// The largest error that LERC may introduce; 0 is lossless.
    pub max_z_error: f64,
    /// The compression around LERC blobs.
    pub lerc_wrap: LercWrap,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: None, quality: None, lossless: true, max_z_error: 0.0, lerc_wrap: LercWrap::None }
    }
}

/// The compression around LERC blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum LercWrap {
    #[default]
    None,
    Deflate,
    Zstd,
}

/// Working memory of the encoders that need the same for tiles of any size: tables and contexts.
pub(crate) const TABLES: usize = 1 << 20;

/// An encoder for the tiles of one directory, which holds its settings. It never panics, whatever the input.
pub trait Encode: fmt::Debug + Send + Sync {
    /// Returns the form of the tiles that the encoder takes.
    fn form(&self) -> Form {
        Form::Stored
    }

    /// Returns the content of the tag JPEGTables; `None` for other codecs than JPEG.
    fn jpeg_tables(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns an upper bound for the compressed length of a tile of `rows` rows.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize;

    /// Returns the most bytes of memory that encoding a tile of `rows` rows takes beside `src` and `dst`.
    fn working_len(&self, _spec: &TileSpec, _rows: u32) -> usize {
        TABLES
    }

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

/// Returns the given setting, or the default where none is given.
///
/// # Errors
/// When the setting is outside the range that the codec allows.
pub(crate) fn within(
    codec: &'static str,
    name: &str,
    given: Option<u32>,
    default: u32,
    allowed: RangeInclusive<u32>,
) -> Result<u32, CodecError> {
    let value = given.unwrap_or(default);
    if allowed.contains(&value) {
        return Ok(value);
    }
    let detail = format!("{name} {value} is not among {} to {}", allowed.start(), allowed.end());
    Err(CodecError::encode(codec, detail))
}

/// Makes room for `len` more bytes in `dst`.
///
/// # Errors
/// When the system has no memory for them.
pub(crate) fn reserve(dst: &mut Vec<u8>, len: usize) -> Result<(), CodecError> {
    dst.try_reserve(len).map_err(|_| CodecError::NoMemory(len as u64))
}

/// Appends to `dst`: `write` fills up to `bound` bytes and returns how many it used.
pub(crate) fn append(
    dst: &mut Vec<u8>,
    bound: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, CodecError>,
) -> Result<(), CodecError> {
    let start = dst.len();
    reserve(dst, bound)?;
    dst.resize(start + bound, 0);
    let outcome = write(dst.get_mut(start..).unwrap_or_default());
    dst.truncate(start + outcome.as_ref().map_or(0, |len| *len));
    outcome.map(|_| ())
}
