//! Decodes tiles on the CPU: from compressed bytes to samples in the output.

use std::{ops::Range, sync::Arc};

use swath_raster::memory::{collect, zeroed};
use swath_tiff::{Compression, Window, structure::Predictor};

use super::swaps_native;
use crate::{
    decode::{Decode, Form, Stream},
    error::CodecError,
    post::{self, Decoded, Take, ycbcr},
    registry::Registry,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// Decodes the tiles of one directory on the CPU. It has no mutable state; every thread passes its own [`Scratch`].
#[derive(Clone)]
pub struct Host {
    spec: Arc<TileSpec>,
    decoder: Arc<dyn Decode>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The output for the samples of a tile.
#[derive(Debug)]
pub enum Target<'a> {
    /// Contiguous rows with samples in the tile's order, so that the decoder can write there directly.
    Whole(&'a mut [u8]),
    /// One slice per row; for separate bands all rows of the first band, then of the next.
    Rows(Vec<&'a mut [u8]>),
}

impl Host {
    /// Creates a decoder for tiles of this spec.
    ///
    /// # Errors
    /// When no decoder is registered for its compression.
    pub fn new(spec: Arc<TileSpec>, registry: &Registry) -> Result<Self, CodecError> {
        let decoder = registry.decoder(spec.compression)?.clone();
        Ok(Self { spec, decoder })
    }

    /// Returns the spec of the tiles.
    pub fn spec(&self) -> &TileSpec {
        &self.spec
    }

    /// Returns the bytes that the codec produces for `rows` rows.
    pub fn decoded_len(&self, rows: u32) -> usize {
        match self.decoder.form(&self.spec) {
            Form::Stored => self.spec.stored_len(rows),
            Form::Native => self.native_len(rows),
        }
    }

    /// Returns the bytes of `rows` rows of native samples.
    pub fn native_len(&self, rows: u32) -> usize {
        self.spec.native_row_len().saturating_mul(rows as usize)
    }

    /// Whether the codec can write directly to the output ([`Target::Whole`]): a decoded row must be as long as an output row.
    pub fn decodes_in_place(&self) -> bool {
        self.spec.packed_subsampling.is_none()
            && match self.decoder.form(&self.spec) {
                Form::Stored => self.spec.stored_row_len() == self.spec.native_row_len(),
                Form::Native => true,
            }
    }

    /// Decodes a whole tile to native samples, interleaved by pixel.
    ///
    /// # Errors
    /// When the tile is corrupt.
    pub fn decode_native(
        &self,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let inside = Window::new(0, 0, self.spec.width, rows);
        let take = Take::Pixels { samples: collect(0..self.spec.samples)?, first: 0, stride: self.spec.samples };
        let row_len = self.spec.native_row_len();
        if dst.len() != row_len * rows as usize {
            return Err(CodecError::Limit {
                codec: "tile",
                asked: (row_len * rows as usize) as u64,
                allowed: dst.len() as u64,
            });
        }
        let mut target = if self.decodes_in_place() {
            Target::Whole(dst)
        } else {
            Target::Rows(collect(dst.chunks_exact_mut(row_len.max(1)))?)
        };
        self.decode(rows, src, inside, &take, &mut target, scratch)
    }

    /// Decodes the rows `range` of a tile of `rows` rows to native samples, interleaved by pixel.
    ///
    /// # Errors
    /// When the part of the tile that these rows need is corrupt.
    pub fn decode_rows(
        &self,
        rows: u32,
        range: Range<u32>,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        if range == (0..rows) {
            return self.decode_native(rows, src, dst, scratch);
        }
        let inside = Window::new(0, range.start, self.spec.width, range.end.saturating_sub(range.start));
        let take = Take::Pixels { samples: collect(0..self.spec.samples)?, first: 0, stride: self.spec.samples };
        let mut target = Target::Rows(collect(dst.chunks_exact_mut(self.spec.native_row_len().max(1)))?);
        self.decode(rows, src, inside, &take, &mut target, scratch)
    }

    /// Returns how many rows of a tile of `rows` rows must be decoded to get the rows before `end`.
    pub fn rows_to_decode(&self, rows: u32, end: u32) -> u32 {
        // Subsampled rows are stored in groups, so a prefix of rows is not a prefix of bytes.
        if self.decoder.stops_early() && self.spec.packed_subsampling.is_none() { end } else { rows }
    }

    /// Returns a decoder of a tile that can stop after any row and continue later; `None` where the codec has none or rows are not
    /// separate bytes.
    pub fn stream(&self) -> Option<Box<dyn Stream>> {
        let separate_rows = self.spec.packed_subsampling.is_none() && !self.spec.bits_reversed;
        if separate_rows && self.decoder.form(&self.spec) == Form::Stored { self.decoder.stream() } else { None }
    }

    /// Converts the part `inside` of stored rows, which [`Host::stream`] decoded, and copies it to the output.
    ///
    /// # Errors
    /// When the system has no memory for the conversion.
    pub fn place_stored(
        &self,
        rows: &mut [u8],
        inside: Window,
        samples: &Take,
        target: &mut [&mut [u8]],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        post::place(&self.spec, Decoded::Stored(rows), inside, samples, target, scratch)
    }

    /// Copies the part `inside` of a tile that [`Host::decode_native`] decoded to the output.
    ///
    /// # Errors
    /// As [`Host::place_stored`].
    pub fn place_native(
        &self,
        tile: &[u8],
        inside: Window,
        samples: &Take,
        target: &mut Target<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        match target {
            Target::Rows(out) => post::place(&self.spec, Decoded::Native(tile), inside, samples, out, scratch)?,
            Target::Whole(out) => out.iter_mut().zip(tile).for_each(|(out, byte)| *out = *byte),
        }
        Ok(())
    }

    /// Decodes the part `inside` of a tile of `rows` rows into the output.
    ///
    /// # Errors
    /// When the tile is corrupt.
    pub fn decode(
        &self,
        rows: u32,
        src: &[u8],
        inside: Window,
        take_samples: &Take,
        target: &mut Target<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let spec = &*self.spec;
        let form = self.decoder.form(spec);
        let rows = self.rows_to_decode(rows, inside.y + inside.height);
        if let Target::Whole(dst) = target {
            self.run_decoder(rows, src, dst, scratch)?;
            if form == Form::Stored {
                post::fix_in_place(spec, dst, scratch)?;
            }
            return Ok(());
        }
        let Target::Rows(out) = target else { return Ok(()) };
        if spec.compression == Compression::None && spec.predictor == Predictor::None && spec.stored_is_native() {
            // Uncompressed samples are copied from the source bytes directly to the output.
            let len = self.decoded_len(rows);
            let stored = src.get(..len).filter(|_| !spec.bits_reversed);
            if let Some(stored) = stored {
                return post::place(spec, Decoded::Native(stored), inside, take_samples, out, scratch);
            }
        }
        let mut buffer = std::mem::take(&mut scratch.tile);
        let len = self.decoded_len(rows);
        let tile = buffer.room(len).ok_or(CodecError::NoMemory(len as u64))?;
        let mut placed = || {
            self.run_decoder(rows, src, tile, scratch)?;
            match (form, spec.packed_subsampling) {
                (Form::Stored, Some(_)) => {
                    // A predictor occurs only with blocks of one pixel. It is undone before the conversion to RGB.
                    post::fix_in_place(spec, tile, scratch)?;
                    let mut native = take(&mut scratch.between, self.native_len(rows))?;
                    ycbcr::unpack_to_rgb(spec, rows, tile, &mut native);
                    let placed = post::place(spec, Decoded::Native(&native), inside, take_samples, out, scratch);
                    scratch.between = native;
                    placed
                }
                (Form::Stored, None) => post::place(spec, Decoded::Stored(tile), inside, take_samples, out, scratch),
                (Form::Native, _) => post::place(spec, Decoded::Native(tile), inside, take_samples, out, scratch),
            }
        };
        let placed = placed();
        scratch.tile = buffer;
        placed
    }

    /// Runs the codec on the bytes, with their bits reversed first where the file says so. Some codecs handle the bit order
    /// themselves.
    fn run_decoder(&self, rows: u32, src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<(), CodecError> {
        use Compression as C;
        let spec = &*self.spec;
        let handles_bit_order = matches!(
            spec.compression,
            C::Jpeg | C::CcittRle | C::CcittRleWord | C::CcittT4 | C::CcittT6 | C::WebP | C::JpegXl | C::Jpeg2000
        );
        if !spec.bits_reversed || handles_bit_order {
            self.decoder.decode(spec, rows, src, dst, scratch)?;
        } else {
            let mut reversed = zeroed(src.len())?;
            reversed.copy_from_slice(src);
            post::unpack::reverse_bits_in_place(&mut reversed);
            self.decoder.decode(spec, rows, &reversed, dst, scratch)?;
        }
        if swaps_native(spec) && spec.order.is_foreign() {
            post::unpack::swap_in_place(dst, spec.sample.word());
        }
        Ok(())
    }
}
