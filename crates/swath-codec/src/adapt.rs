//! Our own codecs behind the seams: what TIFF adds to the bare streams.

use std::sync::Arc;

use swath_tiff::{Compression, SampleType, words::photometric::Photometric};

use crate::{
    codec::{
        ccitt::{self, Scheme},
        jpeg, lzw, lzw_encode, packbits, packbits_encode,
    },
    decode::{Decode, Fill, Form},
    encode::{Encode, Settings},
    error::CodecError,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// LZW, both bit orders.
#[derive(Debug, Clone, Copy)]
pub struct Lzw;

impl Decode for Lzw {
    fn stops_early(&self) -> bool {
        true
    }

    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        match lzw::decode(src, dst, &mut scratch.lzw) {
            Ok(lzw::LzwEnd::Exact) => Ok(Fill::Exact),
            Ok(lzw::LzwEnd::Surplus) => Ok(Fill::Surplus),
            Err(lzw::LzwError::Short { got, want }) => {
                Err(CodecError::Short { codec: "LZW", got: got as u64, wanted: want as u64 })
            }
            Err(error) => Err(CodecError::corrupt("LZW", error.to_string())),
        }
    }
}

/// GDAL reads a strip of more rows row by row where it is the only one of its image.
const SPLIT: u32 = 2000;

/// PackBits.
#[derive(Debug, Clone, Copy)]
pub struct PackBits;

impl Decode for PackBits {
    fn stops_early(&self) -> bool {
        true
    }

    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        if spec.one_strip && rows > SPLIT && packbits::crosses_rows(src, spec.stored_row_len(), dst.len()) {
            let detail = "PackBits: packets run across the ends of rows, which the format forbids; GDAL drops what lies beyond the \
                          end of a row where one strip has more than 2000, so it reads other samples";
            scratch.remark = Some(detail.to_owned());
        }
        match packbits::decode(src, dst) {
            Ok(packbits::PackBitsEnd::Exact) => Ok(Fill::Exact),
            Ok(packbits::PackBitsEnd::Surplus) => Ok(Fill::Surplus),
            Err(packbits::PackBitsError::Short { got, want }) => {
                Err(CodecError::Short { codec: "PackBits", got: got as u64, wanted: want as u64 })
            }
        }
    }
}

impl Encode for Lzw {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        lzw_encode::max_encoded_len(spec.stored_len(rows))
    }

    fn encode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        lzw_encode::encode(src, dst, scratch.lzw_encode.get_or_insert_default());
        Ok(())
    }
}

impl Encode for PackBits {
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        packbits_encode::max_encoded_len(spec.stored_len(rows), spec.stored_row_len())
    }

    fn encode(
        &self,
        spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        packbits_encode::encode(src, spec.stored_row_len(), dst);
        Ok(())
    }
}

/// JPEG, with the tables of the directory.
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
        // A last strip may come at full height, as libtiff allows; a frame that is too small leaves the rest at zero.
        let too_high = header.height > rows;
        let tables = spec.jpeg_tables.as_deref();
        let frame_len = row_len.saturating_mul(header.height as usize);
        let outcome = if too_high {
            let mut frame = take(&mut scratch.between, frame_len)?;
            let outcome = jpeg::decode(tables, src, options, &mut frame, row_len, &mut scratch.jpeg);
            dst.copy_from_slice(frame.get(..dst.len()).unwrap_or_default());
            scratch.between = frame;
            outcome
        } else {
            if header.height < rows || header.width < spec.width {
                dst.fill(0);
            }
            jpeg::decode(tables, src, options, dst.get_mut(..frame_len).unwrap_or_default(), row_len, &mut scratch.jpeg)
        };
        match outcome {
            // libjpeg goes on after damage and shows grey or garbage. Samples nobody wrote are not samples.
            Ok(jpeg::Decoded { damage: Some(damage), .. }) => Err(corrupt(damage)),
            Ok(_) => Ok(if too_high { Fill::Surplus } else { Fill::Exact }),
            Err(jpeg::JpegError::NoMemory { bytes }) => Err(CodecError::NoMemory(bytes)),
            Err(error) => Err(corrupt(error)),
        }
    }
}

const JPEG: &str = "JPEG";

fn corrupt(error: impl std::fmt::Display) -> CodecError {
    CodecError::corrupt(JPEG, error.to_string())
}

/// The header of a JPEG tile, where it is one that the directory allows, and how to decode it.
fn picture(spec: &TileSpec, rows: u32, src: &[u8]) -> Result<(jpeg::Header, jpeg::Options), CodecError> {
    let header = jpeg::read_header(src).map_err(corrupt)?;
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
    let ycbcr = spec.photometric == Some(Photometric::YCbCr) && spec.samples == 3;
    let color = if ycbcr { jpeg::Color::YcbcrToRgb } else { jpeg::Color::Raw };
    Ok((header, jpeg::Options { color, max_pixels: spec.limits.tile_bytes }))
}

impl Jpeg {
    /// Checks a sequential tile without decoding it, for decoders that do not tell of damage: it is an error exactly where
    /// [`Decode::decode`] has one. Gives the offset where the last scan ends, behind which nothing counts; none for progressive
    /// and lossless tiles, which only decoding can check.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn check(spec: &TileSpec, rows: u32, src: &[u8], scratch: &mut Scratch) -> Result<Option<usize>, CodecError> {
        let (_, options) = picture(spec, rows, src)?;
        match jpeg::check(spec.jpeg_tables.as_deref(), src, options, &mut scratch.jpeg).map_err(corrupt)? {
            jpeg::Checked::Sound(end) => Ok(Some(end)),
            jpeg::Checked::Damaged(damage) => Err(corrupt(damage)),
            jpeg::Checked::Unchecked => Ok(None),
        }
    }
}

/// JPEG for writing, with the tables of the directory apart.
#[derive(Debug, Clone)]
pub struct JpegEncoder(jpeg::encode::Encoder);

impl JpegEncoder {
    /// The encoder for tiles of this spec.
    ///
    /// # Errors
    /// When JPEG does not take such samples or such a quality.
    pub fn make(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
        const CODEC: &str = "JPEG";
        let samples = matches!((spec.sample, spec.bits), (SampleType::U8, 8) | (SampleType::U16, 12));
        if !samples || spec.samples > 4 {
            let detail = format!("{} samples of type {} and {} bits", spec.samples, spec.sample, spec.bits);
            return Err(CodecError::unsupported(CODEC, detail + " (it takes up to four of 8 or 12 bits)"));
        }
        let ycbcr = spec.photometric == Some(Photometric::YCbCr) && spec.samples == 3;
        let color = match spec.photometric {
            _ if ycbcr => jpeg::encode::Color::YCbCr,
            Some(Photometric::Rgb) if spec.samples == 3 => jpeg::encode::Color::Rgb,
            _ => jpeg::encode::Color::Gray,
        };
        let subsampling = spec.ycbcr.as_ref().filter(|_| ycbcr).map_or((1, 1), |ycbcr| ycbcr.subsampling);
        let encoder = jpeg::encode::Encoder::new(jpeg::encode::Settings {
            quality: settings.quality.unwrap_or(75).min(255) as u8,
            subsampling: (subsampling.0.min(255) as u8, subsampling.1.min(255) as u8),
            color,
            components: spec.samples as u8,
            precision: spec.bits as u8,
            // As GDAL writes them: a few per cent smaller than with the standard tables.
            huffman: jpeg::encode::Huffman::PerTile,
        });
        Ok(Arc::new(Self(encoder.map_err(|detail| CodecError::encode(CODEC, detail))?)))
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
        // A coefficient takes at most 16 bits of code and 15 of value, and every byte may need a zero after it. Blocks are
        // whole, in groups of two by two.
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
        let work = &mut scratch.jpeg_encode;
        let done = if spec.bits == 8 {
            self.0.encode(spec.width, rows, src, dst, work)
        } else {
            let words: Vec<u16> = src.as_chunks::<2>().0.iter().map(|raw| u16::from_ne_bytes(*raw)).collect();
            self.0.encode(spec.width, rows, &words[..], dst, work)
        };
        done.map_err(|detail| CodecError::encode("JPEG", detail))
    }
}

/// CCITT fax.
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
        const CODEC: &str = "CCITT";
        if spec.bits != 1 || spec.samples != 1 {
            let detail = format!("{} samples of {} bits (it has one of one)", spec.samples, spec.bits);
            return Err(CodecError::unsupported(CODEC, detail));
        }
        let two_dimensional = spec.t4_options & 1 != 0;
        let scheme = match spec.compression {
            Compression::CcittRle => Scheme::Rle,
            Compression::CcittRleWord => Scheme::RleWordAligned,
            Compression::CcittT4 => Scheme::Group3 { two_dimensional, byte_aligned_eol: spec.t4_options & 4 != 0 },
            _ => Scheme::Group4,
        };
        dst.fill(0);
        let fax = &mut scratch.fax;
        let decode = if spec.tiled { ccitt::decode_tile } else { ccitt::decode };
        let end = decode(src, scheme, spec.bits_reversed, spec.width, rows, dst, fax)
            .map_err(|error| CodecError::corrupt(CODEC, error.to_string()))?;
        // Pixels that hang on what another strip left in memory are nobody's pixels.
        if end.depends_on_earlier || end.rows < rows {
            let detail = end.damage.map_or_else(|| format!("{} of {rows} rows", end.rows), |damage| damage.to_string());
            return Err(CodecError::corrupt(CODEC, detail));
        }
        scratch.remark = end.damage.map(|damage| format!("{damage}; such rows are repaired as libtiff repairs them"));
        Ok(Fill::Exact)
    }
}
