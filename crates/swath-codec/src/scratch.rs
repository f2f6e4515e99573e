//! Codec contexts and buffers that a thread reuses from tile to tile.

use std::any::Any;

use swath_raster::memory::{Buffer, OutOfMemory, zeroed};

use crate::error::CodecError;

/// Codec contexts and buffers that a thread reuses from tile to tile, created on first use.
#[derive(Default)]
pub struct Scratch {
    /// Contexts and tables of codecs. Each codec finds its own by their type, so that this module knows no codec.
    codecs: Vec<Box<dyn Any + Send>>,
    /// Bytes between two stages of a codec (a LERC blob inside Deflate, for instance).
    pub(crate) between: Vec<u8>,
    /// A tile in stored form, for the encoder.
    pub(crate) stored: Vec<u8>,
    /// A decoded tile.
    pub(crate) tile: Buffer,
    /// Rows of native samples.
    pub(crate) native: Buffer,
    /// A warning about the tile decoded last.
    pub(crate) warning: Option<String>,
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
    /// Returns the codec's own working memory of type `T`; the first call creates it with `make`.
    ///
    /// # Errors
    /// When `make` fails, or the system has no memory.
    pub(crate) fn of<T: Send + 'static>(
        &mut self,
        make: impl FnOnce() -> Result<T, CodecError>,
    ) -> Result<&mut T, CodecError> {
        if !self.codecs.iter().any(|known| known.is::<T>()) {
            self.codecs.try_reserve(1).map_err(|_| OutOfMemory { bytes: size_of::<T>() as u64 })?;
            self.codecs.push(Box::new(make()?));
        }
        let found = self.codecs.iter_mut().find_map(|known| known.downcast_mut());
        found.ok_or_else(|| CodecError::encode("scratch", "internal error: working memory of a codec is missing"))
    }

    /// Returns the codec's own working memory of type `T`, at first its default.
    ///
    /// # Errors
    /// When the system has no memory.
    pub(crate) fn of_default<T: Default + Send + 'static>(&mut self) -> Result<&mut T, CodecError> {
        self.of(|| Ok(T::default()))
    }

    /// Takes the warning about the tile decoded last: damage that the decoder repaired, or a stream that other readers decode to
    /// other samples.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_memory() {
        let mut scratch = Scratch::default();
        scratch.of_default::<Vec<u8>>().unwrap().push(7);
        scratch.of_default::<Vec<u16>>().unwrap().push(8);
        assert_eq!(scratch.of_default::<Vec<u8>>().unwrap(), &[7]);
        assert_eq!(scratch.of(|| Err::<u64, _>(CodecError::NoMemory(1))).unwrap_err(), CodecError::NoMemory(1));
        assert_eq!(scratch.of(|| Ok(5_u64)).unwrap(), &5);
        assert_eq!(scratch.codecs.len(), 3);
    }
}
