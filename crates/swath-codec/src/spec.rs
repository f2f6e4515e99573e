//! The properties of a directory's tiles that codecs need.

use std::sync::Arc;

use swath_tiff::{
    Compression, Limits, Photometric, SampleFormat, SampleType,
    structure::{ByteOrder, Layout, Predictor, layout::YCbCr},
};

use crate::{error::CodecError, jpeg};

/// The properties of a directory's tiles that codecs need. Built once per directory.
#[derive(Debug, Clone)]
pub struct TileSpec {
    /// The compression.
    pub compression: Compression,
    /// The value of the tag Compression.
    pub compression_code: u16,
    /// The predictor.
    pub predictor: Predictor,
    /// Bits per stored sample.
    pub bits: u16,
    /// Number format of stored samples.
    pub format: SampleFormat,
    /// Type of a decoded sample.
    pub sample: SampleType,
    /// Samples per pixel of a tile; 1 for separate planes.
    pub samples: u16,
    /// Columns of a tile.
    pub width: u32,
    /// Rows of a tile, or the tag RowsPerStrip: the last strip may have fewer rows, and so may the image.
    pub height: u32,
    /// Whether the directory has tiles, not strips.
    pub tiled: bool,
    /// Whether one strip holds all rows of the image.
    pub one_strip: bool,
    /// Byte order of stored samples.
    pub order: ByteOrder,
    /// Whether the bits of each stored byte are reversed.
    pub bits_reversed: bool,
    /// The tag PhotometricInterpretation.
    pub photometric: Option<Photometric>,
    /// YCbCr parameters.
    pub ycbcr: Option<YCbCr>,
    /// Luma samples per chroma pair (across, down), where decompressed bytes are packed YCbCr.
    pub packed_subsampling: Option<(u16, u16)>,
    /// The tag T4Options.
    pub t4_options: u32,
    /// The tag LercParameters.
    pub lerc: Vec<u32>,
    /// The tag ExtraSamples.
    pub extra_samples: Vec<u16>,
    /// The tag JPEGTables, parsed.
    pub jpeg_tables: Option<Arc<jpeg::Tables>>,
    /// Limits for the memory of a tile.
    pub limits: Limits,
}

impl TileSpec {
    /// Builds the spec of a directory's tiles.
    ///
    /// # Errors
    /// When JPEGTables cannot be parsed.
    pub fn new(layout: &Layout, limits: Limits) -> Result<Self, CodecError> {
        let jpeg_tables =
            layout.jpeg_tables.as_deref().map(|raw| jpeg::Tables::parse(raw).map(Arc::new)).transpose().map_err(
                |error| match error {
                    jpeg::JpegError::NoMemory { bytes } => CodecError::NoMemory(bytes),
                    error => CodecError::corrupt("JPEGTables", error.to_string()),
                },
            )?;
        Ok(Self {
            compression: layout.compression,
            compression_code: layout.compression_code,
            predictor: layout.predictor,
            bits: layout.bits,
            format: layout.format,
            sample: layout.sample,
            samples: layout.samples_per_tile(),
            width: layout.tile_width,
            height: if layout.tiled { layout.tile_height } else { layout.rows_per_strip },
            tiled: layout.tiled,
            one_strip: !layout.tiled && layout.rows_per_strip >= layout.height,
            order: layout.order,
            bits_reversed: layout.bits_reversed,
            photometric: layout.photometric,
            ycbcr: layout.ycbcr.clone(),
            packed_subsampling: layout.packed_subsampling(),
            t4_options: layout.t4_options,
            lerc: layout.lerc.clone(),
            extra_samples: layout.extra_samples.clone(),
            jpeg_tables,
            limits,
        })
    }

    /// Returns the bytes of one stored row. Not for packed YCbCr, which has no rows.
    pub fn stored_row_len(&self) -> usize {
        (u64::from(self.width) * u64::from(self.bits) * u64::from(self.samples)).div_ceil(8) as usize
    }

    /// Returns the bytes of `rows` stored rows before compression.
    pub fn stored_len(&self, rows: u32) -> usize {
        match self.packed_subsampling {
            Some((across, down)) => {
                let blocks = u64::from(self.width).div_ceil(across.into());
                let block = (u64::from(across) * u64::from(down) + 2) * u64::from(self.bits);
                ((blocks * block).div_ceil(8) * u64::from(rows).div_ceil(down.into())) as usize
            }
            None => self.stored_row_len() * rows as usize,
        }
    }

    /// Returns the bytes of one decoded row: whole samples in native byte order.
    pub fn native_row_len(&self) -> usize {
        self.width as usize * usize::from(self.samples) * self.sample.size()
    }

    /// Whether a stored row is a native row once the predictor is undone.
    pub fn stored_is_native(&self) -> bool {
        self.packed_subsampling.is_none()
            && usize::from(self.bits) == self.sample.size() * 8
            && (self.sample.word() == 1 || !self.order.is_foreign())
    }
}
