//! A tile spec for the unit tests of this crate.

use swath_codec::TileSpec;
use swath_tiff::{
    Compression, Limits, SampleType,
    structure::{ByteOrder, Predictor},
};

/// Tiles of 40 columns.
pub(crate) fn spec(compression: Compression, sample: SampleType, samples: u16) -> TileSpec {
    TileSpec {
        compression,
        compression_code: 0,
        predictor: Predictor::None,
        bits: sample.size() as u16 * 8,
        format: sample.format(),
        sample,
        samples,
        width: 40,
        height: 24,
        one_strip: false,
        tiled: true,
        order: ByteOrder::Little,
        bits_reversed: false,
        photometric: None,
        ycbcr: None,
        packed_subsampling: None,
        t4_options: 0,
        lerc: Vec::new(),
        extra_samples: Vec::new(),
        jpeg_tables: None,
        limits: Limits::none(),
    }
}
