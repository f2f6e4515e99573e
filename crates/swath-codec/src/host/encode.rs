//! Encodes tiles on the CPU: from native samples to compressed bytes.

use std::sync::Arc;

use swath_raster::memory::grow;
use swath_tiff::structure::Predictor;

use super::swaps_native;
use crate::{
    decode::Form,
    encode::{Encode, Settings},
    error::CodecError,
    post::unpack::swap_in_place,
    pre::{Edge, pack},
    predictor::encode as predict,
    registry::Registry,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// Encodes the tiles of one directory on the CPU. It has no mutable state; every thread passes its own [`Scratch`].
#[derive(Debug, Clone)]
pub struct HostEncoder {
    spec: Arc<TileSpec>,
    encoder: Arc<dyn Encode>,
}

impl HostEncoder {
    /// Creates an encoder for tiles of this spec.
    ///
    /// # Errors
    /// When no encoder supports such tiles with these settings.
    pub fn new(spec: Arc<TileSpec>, settings: &Settings, registry: &Registry) -> Result<Self, CodecError> {
        let encoder = registry.encoder(&spec, settings)?;
        Ok(Self { spec, encoder })
    }

    /// Returns the spec of the tiles.
    pub fn spec(&self) -> &TileSpec {
        &self.spec
    }

    /// Returns the content of the tag JPEGTables; `None` for other codecs than JPEG.
    pub fn jpeg_tables(&self) -> Option<Vec<u8>> {
        self.encoder.jpeg_tables()
    }

    /// Returns how to fill the part of a tile beyond the edge of the image.
    pub fn edge(&self) -> Edge {
        use swath_tiff::Compression as C;
        match (self.spec.compression, self.spec.predictor) {
            (C::Jpeg, _) => Edge::Repeat,
            (_, Predictor::None) => Edge::Zero,
            _ => Edge::RepeatColumns,
        }
    }

    /// Returns an upper bound for the compressed length of a tile of `rows` rows.
    pub fn max_encoded_len(&self, rows: u32) -> usize {
        self.encoder.max_encoded_len(&self.spec, rows)
    }

    /// Returns the bytes that preparing a tile for the codec needs: its samples in stored form, packed or predicted.
    pub fn scratch_len(&self, rows: u32) -> usize {
        self.spec.stored_len(rows).max(self.spec.native_row_len() * rows as usize)
    }

    /// Returns the most bytes of memory that the codec itself takes to encode a tile of `rows` rows.
    pub fn working_len(&self, rows: u32) -> usize {
        self.encoder.working_len(&self.spec, rows)
    }

    /// Whether the codec takes whole native samples, not the form that the file stores.
    pub fn takes_native(&self) -> bool {
        self.encoder.form() == Form::Native
    }

    /// Whether a codec of native samples takes them byte-swapped.
    pub fn takes_swapped(&self) -> bool {
        self.takes_native() && self.spec.order.is_foreign() && swaps_native(&self.spec)
    }

    /// Appends the compressed tile to `out`. `prepared` is `rows` rows in the codec's form: predicted, byte-swapped and packed.
    ///
    /// # Errors
    /// When the codec cannot encode the samples.
    pub fn compress(
        &self,
        rows: u32,
        prepared: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        self.encoder.encode(&self.spec, rows, prepared, out, scratch)
    }

    /// Appends the compressed tile to `out`. `tile` is `rows` rows of native samples, interleaved by pixel; encoding overwrites it.
    ///
    /// # Errors
    /// When the codec cannot encode the samples.
    pub fn encode(
        &self,
        rows: u32,
        tile: &mut [u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let spec = &*self.spec;
        if self.encoder.form() == Form::Native {
            if spec.order.is_foreign() && swaps_native(spec) {
                swap_in_place(tile, spec.sample.word());
            }
            return self.encoder.encode(spec, rows, tile, out, scratch);
        }
        let row_len = spec.native_row_len();
        let word = spec.sample.word();
        let samples = usize::from(spec.samples);
        if usize::from(spec.bits) != spec.sample.size() * 8 {
            let stored_row = spec.stored_row_len();
            let mut stored = take(&mut scratch.stored, spec.stored_len(rows))?;
            for (row, target) in tile.chunks_exact(row_len.max(1)).zip(stored.chunks_exact_mut(stored_row.max(1))) {
                pack::pack_row(row, spec.sample, spec.bits, target);
            }
            let result = self.encoder.encode(spec, rows, &stored, out, scratch);
            scratch.stored = stored;
            return result;
        }
        match spec.predictor {
            Predictor::None => {
                if spec.order.is_foreign() {
                    swap_in_place(tile, word);
                }
                self.encoder.encode(spec, rows, tile, out, scratch)
            }
            Predictor::Horizontal => {
                let mut stored = take(&mut scratch.stored, tile.len())?;
                predict::horizontal(tile, &mut stored, row_len, samples, word, spec.order.is_foreign());
                let result = self.encoder.encode(spec, rows, &stored, out, scratch);
                scratch.stored = stored;
                result
            }
            Predictor::FloatingPoint => {
                let mut stored = take(&mut scratch.stored, tile.len())?;
                let mut plane = std::mem::take(&mut scratch.between);
                grow(&mut plane, row_len)?;
                predict::floating_point(tile, &mut stored, row_len, samples, word, &mut plane);
                scratch.between = plane;
                let result = self.encoder.encode(spec, rows, &stored, out, scratch);
                scratch.stored = stored;
                result
            }
        }
    }
}
