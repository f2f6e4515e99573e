//! What one thread keeps from tile to tile.

use crate::{
    codec::{ccitt, deflate, jpeg, lzw, lzw_encode, zstd},
    error::CodecError,
    memory::{Buffer, zeroed},
};

/// What one thread keeps from tile to tile: codec contexts and buffers, made on first use.
#[derive(Default)]
pub struct Scratch {
    pub(crate) inflater: Option<libdeflater::Decompressor>,
    pub(crate) zstd: Option<zstd_safe::DCtx<'static>>,
    pub(crate) deflate: deflate::EncodeScratch,
    pub(crate) zstd_encoder: zstd::EncodeScratch,
    pub(crate) lzw: lzw::LzwScratch,
    pub(crate) lzw_encode: Option<Box<lzw_encode::LzwEncoder>>,
    pub(crate) jpeg: jpeg::Scratch,
    pub(crate) jpeg_encode: jpeg::encode::Scratch,
    pub(crate) fax: ccitt::FaxScratch,
    /// Bytes of a stage in between (LERC inside Deflate, bit-reversed input …).
    pub(crate) between: Vec<u8>,
    /// A tile as it is stored, on its way to the encoder.
    pub(crate) stored: Vec<u8>,
    /// A decoded tile on its way to its place.
    pub(crate) tile: Buffer,
    /// Native rows on their way to their place.
    pub(crate) native: Buffer,
    /// What was remarkable about a tile that was decoded.
    pub(crate) remark: Option<String>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("tile", &self.tile.len()).finish_non_exhaustive()
    }
}

/// A buffer of exactly `len` bytes whose content does not matter. Growing is the only time memory is cleared.
///
/// # Errors
/// When the system has no memory for it.
pub(crate) fn take(buffer: &mut Vec<u8>, len: usize) -> Result<Vec<u8>, CodecError> {
    let mut taken = std::mem::take(buffer);
    if taken.len() < len {
        // A buffer that is extended is copied first; its old content is of no use.
        drop(taken);
        taken = zeroed(len)?;
    } else {
        taken.truncate(len);
    }
    Ok(taken)
}

impl Scratch {
    /// What was remarkable about the tile that was decoded last, though it is no error: damage that was read past, or a stream
    /// of which other readers make other samples.
    pub fn take_remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    /// Lets go of buffers longer than `keep` bytes.
    pub fn shrink(&mut self, keep: usize) {
        for buffer in [&mut self.between, &mut self.stored] {
            if buffer.capacity() > keep {
                *buffer = Vec::new();
            }
        }
        for buffer in [&mut self.tile, &mut self.native] {
            if buffer.len() > keep {
                *buffer = Buffer::default();
            }
        }
    }
}
