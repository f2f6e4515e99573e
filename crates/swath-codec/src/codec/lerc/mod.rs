//! LERC, perhaps inside Deflate or Zstandard (compression 34887).
//!
//! [`decode`] follows the rules of libtiff's reader and [`encode`] those of its writer.

mod bitstuff;
mod blocks;
mod checksum;
mod decode;
mod encode;
mod fast;
mod header;
mod huffman;
mod mask;
#[cfg(test)]
mod tests;
mod value;

use lerc::DataType;
use swath_raster::memory::OutOfMemory;
use swath_tiff::SampleType;

pub use encode::encoder;

use crate::{error::CodecError, spec::TileSpec};

/// Name of the codec in errors.
const NAME: &str = "LERC";

/// LERC.
#[derive(Debug, Clone, Copy)]
pub struct Lerc;

/// Why a blob was not decoded.
#[derive(Debug)]
enum Trouble {
    Damaged(String),
    Memory(OutOfMemory),
}

impl From<String> for Trouble {
    fn from(detail: String) -> Self {
        Self::Damaged(detail)
    }
}

impl From<&str> for Trouble {
    fn from(detail: &str) -> Self {
        Self::Damaged(detail.to_owned())
    }
}

impl From<OutOfMemory> for Trouble {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

impl From<Trouble> for CodecError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged(detail) => Self::corrupt(NAME, detail),
            Trouble::Memory(error) => error.into(),
        }
    }
}

/// Returns the LERC data type of the tile's samples.
///
/// # Errors
/// When LERC has no such type.
fn data_type(spec: &TileSpec) -> Result<DataType, CodecError> {
    if usize::from(spec.bits) == spec.sample.size() * 8 {
        match spec.sample {
            SampleType::I8 => return Ok(DataType::Char),
            SampleType::U8 => return Ok(DataType::Byte),
            SampleType::I16 => return Ok(DataType::Short),
            SampleType::U16 => return Ok(DataType::UShort),
            SampleType::I32 => return Ok(DataType::Int),
            SampleType::U32 => return Ok(DataType::UInt),
            SampleType::F32 => return Ok(DataType::Float),
            SampleType::F64 => return Ok(DataType::Double),
            _ => {}
        }
    }
    Err(CodecError::unsupported(NAME, format!("a tile of {} bits in {}", spec.bits, spec.sample)))
}
