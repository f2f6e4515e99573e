//! Codec contexts and buffers that a thread reuses from tile to tile.

use swath_raster::memory::{Buffer, zeroed};

use crate::{
    codec::{ccitt, deflate, lzw, zstd},
    error::CodecError,
    jpeg,
};

/// Codec contexts and buffers that a thread reuses from tile to tile, created on first use.
#[derive(Default)]
pub struct Scratch {
    pub(crate) inflater: Option<libdeflater::Decompressor>,
    pub(crate) zstd: Option<zstd_safe::DCtx<'static>>,
    pub(crate) deflate: deflate::EncodeScratch,
    pub(crate) zstd_encoder: zstd::EncodeScratch,
    pub(crate) lzw: lzw::decode::LzwScratch,
    pub(crate) lzw_encode: Option<Box<lzw::encode::LzwEncoder>>,
    pub(crate) jpeg: jpeg::decode::Scratch,
    pub(crate) jpeg_encode: jpeg::encode::Scratch,
    pub(crate) fax: ccitt::FaxScratch,
    /// Bytes between two stages of a codec (a LERC blob inside Deflate, for instance).
    pub(crate) between: Vec<u8>,
    /// A tile in stored form, for the encoder.
    pub(crate) stored: Vec<u8>,
    /// A decoded tile.
    pub(crate) tile: Buffer,
    /// Rows of native samples.
    pub(crate) native: Buffer,
    /// A notice about the tile decoded last.
    pub(crate) notice: Option<String>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("tile", &self.tile.len()).finish_non_exhaustive()
    }
}

/// Takes `buffer` out and returns it as `len` bytes of unspecified content. Memory is cleared only when the buffer grows.
///
/// # Errors
/// When the system has no memory for it.
pub(crate) fn take(buffer: &mut Vec<u8>, len: usize) -> Result<Vec<u8>, CodecError> {
    let mut taken = std::mem::take(buffer);
    if taken.len() < len {
        // Extending would copy the old content, which is not needed.
        drop(taken);
        taken = zeroed(len)?;
    } else {
        taken.truncate(len);
    }
    Ok(taken)
}

impl Scratch {
    /// Takes the notice about the tile decoded last: damage that the decoder repaired, or a stream that other readers decode to
    /// other samples.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Frees buffers longer than `max_len` bytes.
    pub fn shrink(&mut self, max_len: usize) {
        for buffer in [&mut self.between, &mut self.stored] {
            if buffer.capacity() > max_len {
                *buffer = Vec::new();
            }
        }
        for buffer in [&mut self.tile, &mut self.native] {
            if buffer.len() > max_len {
                *buffer = Buffer::default();
            }
        }
    }
}
