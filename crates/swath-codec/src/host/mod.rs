//! The CPU as a device: decodes one tile from compressed bytes to samples, and encodes it back.

pub mod decode;
pub mod encode;

use swath_tiff::Compression;

pub use decode::{Host, Target};
pub use encode::HostEncoder;

pub use crate::post::Take;
use crate::spec::TileSpec;

/// Whether a codec of native samples takes and returns them byte-swapped in a file of the foreign byte order. libtiff swaps the
/// samples of these codecs as if the codec stored plain bytes, so the numbers inside the streams are swapped.
fn swaps_native(spec: &TileSpec) -> bool {
    matches!(spec.compression, Compression::Lerc | Compression::JpegXl)
}
