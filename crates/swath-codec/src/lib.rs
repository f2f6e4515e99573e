//! One tile, both ways: codecs for every TIFF compression, the steps before and after them, and the CPU that runs them.
//!
//! Codecs know neither files nor offsets: they see the compressed bytes of one tile and a [`TileSpec`].

pub mod codec;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod decode;
pub mod encode;
pub mod error;
pub mod host;
pub mod jpeg;
pub mod post;
pub mod pre;
pub mod predictor;
pub mod registry;
pub mod scratch;
pub mod spec;
#[cfg(any(feature = "jpeg2000", feature = "jpegxl", feature = "lerc", feature = "webp"))]
mod working;

pub use decode::{Decode, Fill, Form};
pub use encode::Encode;
pub use error::CodecError;
pub use registry::Registry;
pub use scratch::Scratch;
pub use spec::TileSpec;
