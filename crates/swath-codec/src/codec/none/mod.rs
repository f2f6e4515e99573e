//! Tiles without compression.

mod decode;
mod encode;

pub use encode::encoder;

/// Stores tiles without compression.
#[derive(Debug, Clone, Copy)]
pub struct None;
