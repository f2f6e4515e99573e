//! The CPU as a device: one tile from compressed bytes to its place in the output.

pub mod encode;

use std::{ops::Range, sync::Arc};

use swath_tiff::{Compression, Window, structure::Predictor};

use crate::{
    decode::{Decode, Form, Stream},
    error::CodecError,
    memory::zeroed,
    post::{self, Decoded, ycbcr},
    registry::Registry,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// Decodes the tiles of one directory on the CPU. Holds no state: every thread brings its own [`Scratch`].
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

/// Where the samples of a tile go.
#[derive(Debug)]
pub enum Target<'a> {
    /// The tile's rows follow each other in the output without a gap and samples keep their order, so that the tile can
    /// be decoded in place.
    Whole(&'a mut [u8]),
    /// One slice per row; with several bands apart from each other, all rows of the first band, then of the next.
    Rows(Vec<&'a mut [u8]>),
}

/// Which samples of a tile are taken, and how they lie in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// These samples of the tile, each to rows of its own.
    Bands(Vec<u16>),
    /// These samples of the tile, side by side from `slot` on in output pixels of `step` samples.
    Pixels {
        /// Samples of the tile, in output order.
        samples: Vec<u16>,
        /// Position of the first in the output pixel.
        slot: u16,
        /// Samples of an output pixel.
        step: u16,
    },
}

impl Host {
    /// A decoder for tiles of this spec.
    ///
    /// # Errors
    /// When no decoder is registered for its compression.
    pub fn new(spec: Arc<TileSpec>, registry: &Registry) -> Result<Self, CodecError> {
        let decoder = registry.decoder(spec.compression)?.clone();
        Ok(Self { spec, decoder })
    }

    /// What the tiles are like.
    pub fn spec(&self) -> &TileSpec {
        &self.spec
    }

    /// Bytes that the decoder produces for `rows` rows.
    pub fn decoded_len(&self, rows: u32) -> usize {
        match self.decoder.form(&self.spec) {
            Form::Stored => self.spec.stored_len(rows),
            Form::Native => self.native_len(rows),
        }
    }

    /// Bytes of `rows` rows of native samples.
    pub fn native_len(&self, rows: u32) -> usize {
        self.spec.native_row_len().saturating_mul(rows as usize)
    }

    /// Whether tiles of this spec can be decoded right where they belong ([`Target::Whole`]): a decoded row has to be as
    /// long as an output row.
    pub fn decodes_in_place(&self) -> bool {
        self.spec.packed_subsampling.is_none()
            && match self.decoder.form(&self.spec) {
                Form::Stored => self.spec.stored_row_len() == self.spec.native_row_len(),
                Form::Native => true,
            }
    }

    /// Decodes a whole tile to native samples, pixel by pixel.
    ///
    /// # Errors
    /// When the tile is damaged.
    pub fn decode_native(
        &self,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let inside = Window::new(0, 0, self.spec.width, rows);
        let samples: Vec<u16> = (0..self.spec.samples).collect();
        let take = Take::Pixels { samples, slot: 0, step: self.spec.samples };
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
            Target::Rows(dst.chunks_exact_mut(row_len.max(1)).collect())
        };
        self.decode(rows, src, inside, &take, &mut target, scratch)
    }

    /// Decodes the rows `wanted` of a tile of `rows` rows to native samples, pixel by pixel.
    ///
    /// # Errors
    /// When the tile is damaged, as far as those rows are concerned.
    pub fn decode_rows(
        &self,
        rows: u32,
        wanted: Range<u32>,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        if wanted == (0..rows) {
            return self.decode_native(rows, src, dst, scratch);
        }
        let inside = Window::new(0, wanted.start, self.spec.width, wanted.end.saturating_sub(wanted.start));
        let samples: Vec<u16> = (0..self.spec.samples).collect();
        let take = Take::Pixels { samples, slot: 0, step: self.spec.samples };
        let mut target = Target::Rows(dst.chunks_exact_mut(self.spec.native_row_len().max(1)).collect());
        self.decode(rows, src, inside, &take, &mut target, scratch)
    }

    /// How many rows of a tile of `rows` rows have to be decoded to have those before `end`.
    pub fn rows_to_decode(&self, rows: u32, end: u32) -> u32 {
        // Subsampled rows come in groups, so there a prefix of rows is not a prefix of bytes.
        if self.decoder.stops_early() && self.spec.packed_subsampling.is_none() { end } else { rows }
    }

    /// The decoder of a tile that stops after any row and goes on there later, where rows are bytes of their own and there is one.
    pub fn stream(&self) -> Option<Box<dyn Stream>> {
        let rows_apart = self.spec.packed_subsampling.is_none() && !self.spec.bits_reversed;
        if rows_apart && self.decoder.form(&self.spec) == Form::Stored { self.decoder.stream() } else { None }
    }

    /// Puts the part `inside` of rows as they are stored, which come from [`Host::stream`], where it belongs.
    ///
    /// # Errors
    /// When there is no memory to turn them into samples in.
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

    /// Puts the part `inside` of a tile that was decoded before ([`Host::decode_native`]) where it belongs.
    ///
    /// # Errors
    /// None but those of [`Host::place_stored`].
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

    /// Decodes the part `inside` of a tile of `rows` rows and puts it where it belongs.
    ///
    /// # Errors
    /// When the tile is damaged.
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
            let fill = self.run_decoder(rows, src, dst, scratch);
            fill?;
            if form == Form::Stored {
                post::fix_in_place(spec, dst, scratch)?;
            }
            return Ok(());
        }
        let Target::Rows(out) = target else { return Ok(()) };
        if spec.compression == Compression::None && spec.predictor == Predictor::None && spec.stored_is_native() {
            // Uncompressed samples go from the bytes that were read straight to their place.
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
                    // Only blocks of one pixel come with a predictor; its rows are undone before they become colours.
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

    /// Hands the bytes to the codec, bits turned round first where the file stores them so. JPEG and fax streams know
    /// about bit order themselves.
    fn run_decoder(&self, rows: u32, src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<(), CodecError> {
        use Compression as C;
        let spec = &*self.spec;
        let own_bit_order = matches!(
            spec.compression,
            C::Jpeg | C::CcittRle | C::CcittRleWord | C::CcittT4 | C::CcittT6 | C::WebP | C::JpegXl | C::Jpeg2000
        );
        if !spec.bits_reversed || own_bit_order {
            self.decoder.decode(spec, rows, src, dst, scratch)?;
        } else {
            let mut turned = zeroed(src.len())?;
            turned.copy_from_slice(src);
            post::unpack::reverse_bits_in_place(&mut turned);
            self.decoder.decode(spec, rows, &turned, dst, scratch)?;
        }
        // libtiff swaps what it hands to these codecs as if it were plain bytes, so the numbers inside are swapped.
        if matches!(spec.compression, C::Lerc | C::JpegXl) && spec.order.is_foreign() {
            post::unpack::swap_in_place(dst, spec.sample.word());
        }
        Ok(())
    }
}
