//! JPEG tiles (compression 7). [`crate::jpeg`] handles the streams; [`Jpeg`] and [`JpegEncoder`] apply it to tiles.

#![forbid(unsafe_code)]

use std::sync::Arc;

use swath_raster::memory::collect;
use swath_tiff::{Photometric, SampleType};

use crate::{
    decode::{Decode, Fill, Form},
    encode::{Encode, Settings},
    error::CodecError,
    jpeg::{Checked, Color, Decoded, Header, JpegError, Options, decode, encode},
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// Name of the codec in errors.
const NAME: &str = "JPEG";

/// The decoder of JPEG tiles, which uses the tables of the directory.
#[derive(Debug, Clone, Copy)]
pub struct Jpeg;

impl Decode for Jpeg {
    fn form(&self, _spec: &TileSpec) -> Form {
        Form::Native
    }

    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let (header, options) = picture(spec, rows, src)?;
        let row_len = spec.native_row_len();
        // Like libtiff, this accepts a last strip at full height, and leaves the rest zero where a frame is too small.
        let too_high = header.height > rows;
        let tables = spec.jpeg_tables.as_deref();
        let frame_len = row_len.saturating_mul(header.height as usize);
        let outcome = if too_high {
            let mut frame = take(&mut scratch.between, frame_len)?;
            let outcome = decode::decode(tables, src, options, &mut frame, row_len, scratch.of_default()?);
            dst.copy_from_slice(frame.get(..dst.len()).unwrap_or_default());
            scratch.between = frame;
            outcome
        } else {
            if header.height < rows || header.width < spec.width {
                dst.fill(0);
            }
            decode::decode(
                tables,
                src,
                options,
                dst.get_mut(..frame_len).unwrap_or_default(),
                row_len,
                scratch.of_default()?,
            )
        };
        match outcome {
            // libjpeg continues after damage and returns grey or garbage, which are not data.
            Ok(Decoded { damage: Some(damage), .. }) => Err(corrupt(damage)),
            Ok(_) => Ok(if too_high { Fill::Surplus } else { Fill::Exact }),
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(error: JpegError) -> CodecError {
    match error {
        JpegError::NoMemory { bytes } => CodecError::NoMemory(bytes),
        error => corrupt(error),
    }
}

fn corrupt(error: impl std::fmt::Display) -> CodecError {
    CodecError::corrupt(NAME, error.to_string())
}

/// Reads the header of a JPEG tile, checks it against the directory, and returns the options for decoding.
fn picture(spec: &TileSpec, rows: u32, src: &[u8]) -> Result<(Header, Options), CodecError> {
    let header = decode::read_header(src).map_err(corrupt)?;
    if header.components.len() != usize::from(spec.samples) {
        return Err(corrupt(format!("{} components for {} samples", header.components.len(), spec.samples)));
    }
    if u16::from(header.precision) != spec.bits {
        let detail = format!("{} bits a sample where the directory says {}", header.precision, spec.bits);
        return Err(corrupt(detail));
    }
    if header.width > spec.width || (header.height > rows && (spec.tiled || header.width != spec.width)) {
        let detail = format!("a picture of {}x{} in a tile of {}x{rows}", header.width, header.height, spec.width);
        return Err(corrupt(detail));
    }
    // A header of a few bytes can ask for the coefficients of a whole tile, which are more than its samples.
    let asked = decode::frame_memory(&header);
    let allowed = spec.limits.plausible(src.len() as u64).min(spec.limits.tile_bytes);
    if asked > allowed {
        return Err(CodecError::Limit { codec: NAME, asked, allowed });
    }
    let ycbcr = spec.photometric == Some(Photometric::YCbCr) && spec.samples == 3;
    let color = if ycbcr { Color::YcbcrToRgb } else { Color::Raw };
    Ok((header, Options { color, max_pixels: spec.limits.tile_bytes }))
}

impl Jpeg {
    /// Checks a sequential tile without decoding it, for GPU decoders that do not report damage. It fails exactly where
    /// [`Decode::decode`] fails. Returns the offset of the end of the last scan, after which decoders ignore the stream; `None` for
    /// progressive and lossless tiles, which only decoding can check.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn check(spec: &TileSpec, rows: u32, src: &[u8], scratch: &mut Scratch) -> Result<Option<usize>, CodecError> {
        let (_, options) = picture(spec, rows, src)?;
        match decode::check(spec.jpeg_tables.as_deref(), src, options, scratch.of_default()?).map_err(failed)? {
            Checked::Sound(end) => Ok(Some(end)),
            Checked::Damaged(damage) => Err(corrupt(damage)),
            Checked::Unchecked => Ok(None),
        }
    }
}

/// The encoder of JPEG tiles, whose tables go to the tag JPEGTables.
#[derive(Debug, Clone)]
pub struct JpegEncoder(encode::Encoder);

impl JpegEncoder {
    /// Creates the encoder for tiles of this spec.
    ///
    /// # Errors
    /// When JPEG does not support the samples or the quality.
    pub fn make(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
        let samples = matches!((spec.sample, spec.bits), (SampleType::U8, 8) | (SampleType::U16, 12));
        if !samples || spec.samples > 4 {
            let detail = format!("{} samples of type {} and {} bits", spec.samples, spec.sample, spec.bits);
            return Err(CodecError::unsupported(NAME, detail + " (it takes up to four of 8 or 12 bits)"));
        }
        let ycbcr = spec.photometric == Some(Photometric::YCbCr) && spec.samples == 3;
        let color = match spec.photometric {
            _ if ycbcr => encode::Color::YCbCr,
            Some(Photometric::Rgb) if spec.samples == 3 => encode::Color::Rgb,
            _ => encode::Color::Gray,
        };
        let subsampling = spec.ycbcr.as_ref().filter(|_| ycbcr).map_or((1, 1), |ycbcr| ycbcr.subsampling);
        let encoder = encode::Encoder::new(encode::Settings {
            quality: settings.quality.unwrap_or(75).min(255) as u8,
            subsampling: (subsampling.0.min(255) as u8, subsampling.1.min(255) as u8),
            color,
            components: spec.samples as u8,
            precision: spec.bits as u8,
            // GDAL's default: a few per cent smaller than with the standard tables.
            huffman: encode::Huffman::PerTile,
        });
        Ok(Arc::new(Self(encoder.map_err(|detail| CodecError::encode(NAME, detail))?)))
    }
}

impl Encode for JpegEncoder {
    fn form(&self) -> Form {
        Form::Native
    }

    fn jpeg_tables(&self) -> Option<Vec<u8>> {
        Some(self.0.tables())
    }

    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        // A coefficient takes at most 16 bits of code and 15 of value, and every byte may need a stuffed zero. Blocks come in whole
        // groups of two by two.
        let blocks = (spec.width as usize).div_ceil(16) * (rows as usize).div_ceil(16) * 4 * usize::from(spec.samples);
        1024 + blocks * 64 * 31 / 4
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let work = scratch.of_default()?;
        let done = if spec.bits == 8 {
            self.0.encode(spec.width, rows, src, dst, work)
        } else {
            let words = collect(src.as_chunks::<2>().0.iter().map(|raw| u16::from_ne_bytes(*raw)))?;
            self.0.encode(spec.width, rows, &words[..], dst, work)
        };
        done.map_err(|refusal| match refusal {
            encode::Refusal::Memory(error) => error.into(),
            refusal => CodecError::encode(NAME, refusal.to_string()),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing;

    #[test]
    fn rejects_a_header_that_asks_for_gigabytes_of_coefficients() {
        let mut stream = include_bytes!("../jpeg/decode/testdata/progressive.jpg").to_vec();
        let header = decode::read_header(&stream).unwrap();
        let (samples, side) = (header.components.len() as u16, 18_000_u16);
        // The frame header: SOF2, its length and precision, then rows and columns.
        let at = stream.windows(2).position(|two| two == [0xff, 0xc2]).unwrap() + 5;
        stream[at..at + 2].copy_from_slice(&side.to_be_bytes());
        stream[at + 2..at + 4].copy_from_slice(&side.to_be_bytes());
        let spec = testing::spec(SampleType::U8, samples, side.into());
        let mut scratch = Scratch::default();
        let decoded = Jpeg.decode(&spec, side.into(), &stream, &mut [], &mut scratch).unwrap_err();
        assert!(matches!(decoded, CodecError::Limit { codec: "JPEG", asked, .. } if asked > 1 << 30), "{decoded:?}");
        assert_eq!(Jpeg::check(&spec, side.into(), &stream, &mut scratch).unwrap_err(), decoded);
    }
}
