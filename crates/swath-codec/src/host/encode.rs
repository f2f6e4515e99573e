//! The CPU as a device, the other way: one tile from native samples to compressed bytes.

use std::sync::Arc;

use swath_tiff::structure::Predictor;

use crate::{
    decode::Form,
    encode::{Encode, Settings},
    error::CodecError,
    post::unpack::swap_in_place,
    pre::{Edge, pack, predict},
    registry::Registry,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// Encodes the tiles of one directory on the CPU. Holds no state: every thread brings its own [`Scratch`].
#[derive(Debug, Clone)]
pub struct HostEncoder {
    spec: Arc<TileSpec>,
    encoder: Arc<dyn Encode>,
}

impl HostEncoder {
    /// An encoder for tiles of this spec.
    ///
    /// # Errors
    /// When no encoder takes such tiles with these settings.
    pub fn new(spec: Arc<TileSpec>, settings: &Settings, registry: &Registry) -> Result<Self, CodecError> {
        let encoder = registry.encoder(&spec, settings)?;
        Ok(Self { spec, encoder })
    }

    /// What the tiles are like.
    pub fn spec(&self) -> &TileSpec {
        &self.spec
    }

    /// What belongs into JPEGTables, for the codec that has it.
    pub fn jpeg_tables(&self) -> Option<Vec<u8>> {
        self.encoder.jpeg_tables()
    }

    /// What tiles should hold where they hang over the edge of the image.
    pub fn edge(&self) -> Edge {
        use swath_tiff::Compression as C;
        match (self.spec.compression, self.spec.predictor) {
            (C::Jpeg, _) => Edge::Repeat,
            (_, Predictor::None) => Edge::Zero,
            _ => Edge::RepeatColumns,
        }
    }

    /// The most bytes that a tile of `rows` rows can become.
    pub fn max_encoded_len(&self, rows: u32) -> usize {
        self.encoder.max_encoded_len(&self.spec, rows)
    }

    /// Bytes that encoding a tile takes beside its samples and its result.
    pub fn scratch_len(&self, rows: u32) -> usize {
        self.spec.stored_len(rows).max(self.spec.native_row_len() * rows as usize)
    }

    /// Whether the codec takes whole native samples rather than what the file stores.
    pub fn takes_native(&self) -> bool {
        self.encoder.form() == Form::Native
    }

    /// Whether a codec of whole samples is handed them swapped.
    pub fn takes_swapped(&self) -> bool {
        self.takes_native() && self.spec.order.is_foreign() && swaps_native(&self.spec)
    }

    /// Appends the compressed tile to `out`. `prepared` is `rows` rows as the codec takes them: predicted, turned and packed.
    ///
    /// # Errors
    /// When the codec cannot take the samples.
    pub fn compress(
        &self,
        rows: u32,
        prepared: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        self.encoder.encode(&self.spec, rows, prepared, out, scratch)
    }

    /// Appends the compressed tile to `out`. `tile` is `rows` rows of native samples, pixel by pixel; it is spoilt.
    ///
    /// # Errors
    /// When the codec cannot take the samples.
    pub fn encode(
        &self,
        rows: u32,
        tile: &mut [u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let spec = &*self.spec;
        if self.encoder.form() == Form::Native {
            // libtiff swaps what these codecs hand out as if it were plain bytes, so it is swapped on the way in.
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
                predict::floating_point(tile, &mut stored, row_len, samples, word, &mut plane);
                scratch.between = plane;
                let result = self.encoder.encode(spec, rows, &stored, out, scratch);
                scratch.stored = stored;
                result
            }
        }
    }
}

/// Whether a codec of native samples sees them swapped in a file of the other byte order.
fn swaps_native(spec: &TileSpec) -> bool {
    use swath_tiff::Compression as C;
    matches!(spec.compression, C::Lerc | C::JpegXl)
}
