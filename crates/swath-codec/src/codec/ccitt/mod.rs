//! CCITT fax: TIFF compressions 2, 3, 4 and 32771 (T.4, T.6). Decoded pixels match libtiff 4.7, for damaged data too.
//!
//! libtiff, and so GDAL, continues after most damage: a bad code makes the rest of its row white, a row of the wrong length is
//! trimmed or filled, a Group 4 strip may stop early. Such a strip is `Ok` here with the same pixels, and [`FaxEnd::damage`]
//! reports the first fault. What GDAL rejects is an error. So is uncompressed mode, which libtiff does not decode either but
//! treats as damage.

mod bits;
mod codes;
mod damage;
mod decode;
mod encode;
mod row;
#[cfg(test)]
mod tests;

use swath_tiff::Compression;

pub use damage::{Damage, Fault, FaxEnd, FaxError};
pub use decode::{FaxScratch, decode, decode_by_scanline, decode_tile};
pub use encode::encoder;

use crate::{
    decode::{Decode, Fill},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Name of the codec in errors.
const NAME: &str = "CCITT";

/// The coding of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Compression 2: one-dimensional rows that begin on bytes, without EOLs.
    Rle,
    /// Compression 32771: as [`Rle`](Scheme::Rle), rows begin on 16-bit words.
    RleWordAligned,
    /// Compression 3, with T4Options.
    Group3 {
        /// Bit 0: each row says whether it is coded relative to the row above.
        two_dimensional: bool,
        /// Bit 2: EOLs end on byte boundaries. The decoder ignores it, because it skips zeros before an EOL in any case.
        byte_aligned_eol: bool,
    },
    /// Compression 3 without EOLs. No tag announces it; [`FaxEnd::eol_missing`] reports it.
    Group3WithoutEol {
        /// As in [`Group3`](Scheme::Group3).
        two_dimensional: bool,
    },
    /// Compression 4.
    Group4,
}

/// CCITT fax: modified Huffman, T.4 and T.6.
#[derive(Debug, Clone, Copy)]
pub struct Ccitt;

impl Decode for Ccitt {
    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        if spec.bits != 1 || spec.samples != 1 {
            let detail = format!("{} samples of {} bits (it takes one sample of one bit)", spec.samples, spec.bits);
            return Err(CodecError::unsupported(NAME, detail));
        }
        let two_dimensional = spec.t4_options & 1 != 0;
        let scheme = match spec.compression {
            Compression::CcittRle => Scheme::Rle,
            Compression::CcittRleWord => Scheme::RleWordAligned,
            Compression::CcittT4 => Scheme::Group3 { two_dimensional, byte_aligned_eol: spec.t4_options & 4 != 0 },
            _ => Scheme::Group4,
        };
        dst.fill(0);
        let fax = scratch.of_default()?;
        let run = if spec.tiled { decode_tile } else { decode };
        let end = run(src, scheme, spec.bits_reversed, spec.width, rows, dst, fax)
            .map_err(|error| CodecError::corrupt(NAME, error.to_string()))?;
        // Pixels that depend on the memory of an earlier strip are not data.
        if end.depends_on_earlier || end.rows < rows {
            let detail = end.damage.map_or_else(|| format!("{} of {rows} rows", end.rows), |damage| damage.to_string());
            return Err(CodecError::corrupt(NAME, detail));
        }
        scratch.warning = end.damage.map(|damage| format!("{damage}; such rows are repaired as libtiff repairs them"));
        Ok(Fill::Exact)
    }
}
