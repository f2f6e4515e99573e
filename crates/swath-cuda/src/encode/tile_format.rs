//! The format of all tiles of one kind: how they are stored, and how large they can become.

use swath_codec::{TileSpec, pre::Edge};
use swath_tiff::structure::Predictor;

use crate::{driver::launch::cut::CutParams, encode::path::EncodePath};

/// What all tiles of one kind have in common: those of an image and its overviews, or those of their masks.
#[derive(Debug, Clone)]
pub struct TileFormat {
    /// The tile spec.
    pub spec: TileSpec,
    /// How the tiles are encoded.
    pub path: EncodePath,
    /// What the tiles hold beyond the edge of the image.
    pub edge: Edge,
    /// Tiles that hold only this sample are left out.
    pub fill: Option<Vec<u8>>,
    /// Whether each tile is framed by its length before it and its last bytes after it, as in GDAL's COG layout.
    pub frame: bool,
    /// Rows of the largest tile.
    pub rows: u32,
    /// Whether the codec takes whole samples instead of the bytes that the file stores.
    pub native: bool,
    /// Whether the codec takes whole samples in the file's byte order.
    pub native_swapped: bool,
}

impl TileFormat {
    /// Returns the bytes of the largest tile before it is encoded.
    pub(crate) fn tile_len(&self) -> usize {
        self.row_len() * self.rows as usize
    }

    /// Returns the bytes of a row of a tile.
    pub(crate) fn row_len(&self) -> usize {
        self.cut_params(self.spec.width).stored_row as usize
    }

    /// Returns how tiles of `width` columns are stored: strips of an overview are narrower than those of the image.
    pub(crate) fn cut_params(&self, width: u32) -> CutParams {
        let spec = &TileSpec { width, ..self.spec.clone() };
        let whole = usize::from(spec.bits) == spec.sample.size() * 8;
        let native = self.native;
        let (stored_row, bits) = match whole || native {
            true => (spec.native_row_len(), spec.sample.size() as u32 * 8),
            false => (spec.stored_row_len(), spec.bits.into()),
        };
        CutParams {
            stored_row: stored_row as u64,
            samples: spec.samples.into(),
            sample_len: spec.sample.size() as u32,
            word: spec.sample.word() as u32,
            bits,
            swap: spec.order.is_foreign() && if native { self.native_swapped } else { whole },
            predictor: match spec.predictor {
                Predictor::Horizontal if whole && !native => 2,
                Predictor::FloatingPoint if whole && !native => 3,
                _ => 0,
            },
            edge: match self.edge {
                Edge::Repeat => 0,
                Edge::RepeatColumns => 1,
                Edge::Zero => 2,
            },
            fill: self.fill.as_ref().map(|fill| {
                let mut bytes = [0; 16];
                bytes.iter_mut().zip(fill).for_each(|(to, from)| *to = *from);
                bytes
            }),
            tiled: spec.tiled,
        }
    }

    /// Returns the number of pieces of the largest tile.
    pub fn pieces(&self) -> u32 {
        let len = self.tile_len();
        len.div_ceil(self.path.piece_len(len).max(1)).max(1) as u32
    }

    /// Returns the most bytes that a tile can become, including its framing.
    pub fn max_whole(&self) -> usize {
        let len = self.tile_len();
        let pieces = self.pieces() as usize;
        let wrap = self.path.wrap(self.frame);
        let around = wrap.head.len() + if wrap.adler { 4 } else { 0 } + if wrap.frame { 8 } else { 0 };
        pieces * encoded_stride(self.path, len, self.row_len()) + around
    }
}

/// Returns the most bytes that a piece of a tile of `len` bytes can become, rounded up to a multiple of 16.
pub(crate) fn encoded_stride(path: EncodePath, len: usize, row: usize) -> usize {
    let piece = path.piece_len(len).min(len.max(1));
    let most = match path {
        EncodePath::None | EncodePath::Host => piece,
        // nvCOMP can make more of a tile; the CPU encodes tiles again that do not fit.
        EncodePath::NvcompDeflate(_) | EncodePath::NvcompZstd => piece + piece / 16 + 1024,
        _ => path.encoding().map_or(piece, |encoding| encoding.most(piece, row)),
    };
    most.next_multiple_of(16)
}
