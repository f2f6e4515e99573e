//! Codecs for every TIFF compression, what happens to samples after and before them, and the CPU as a device.
//!
//! Codecs know neither files nor offsets: they see the compressed bytes of one tile and a [`TileSpec`].

pub mod adapt;
pub mod codec;
pub mod conformance;
pub mod decode;
pub mod encode;
pub mod error;
pub mod host;
pub mod memory;
pub mod post;
pub mod pre;
pub mod registry;
pub mod scratch;
pub mod shrink;
pub mod simd;
pub mod spec;
mod working;

pub use decode::{Decode, Fill, Form};
pub use encode::Encode;
pub use error::CodecError;
pub use registry::Registry;
pub use scratch::Scratch;
pub use spec::TileSpec;
