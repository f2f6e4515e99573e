//! Memory for samples.

use memmap2::MmapMut;

use crate::error::CodecError;

/// From here on memory comes straight from the system, in huge pages where it has them: a fault for every 4 KiB costs more
/// than decoding what goes there. Smaller buffers come from the heap, which is warm in a program that reads often.
const HUGE: usize = 4 << 20;

/// Zeroed memory, aligned for every sample type.
#[derive(Debug)]
pub enum Buffer {
    /// Words of the heap, so that small buffers are aligned too, and the length in bytes.
    Words(Vec<u64>, usize),
    /// Pages of the system.
    Pages(MmapMut),
}

impl Default for Buffer {
    fn default() -> Self {
        Self::Words(Vec::new(), 0)
    }
}

impl Buffer {
    /// `len` zero bytes; `None` when the system has not that much.
    pub fn zeroed(len: usize) -> Option<Self> {
        if len >= HUGE {
            let pages = MmapMut::map_anon(len).ok()?;
            // Only advice: where it is refused, pages are small and everything else is the same.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            return Some(Self::Pages(pages));
        }
        Some(Self::Words(zeroed(len.div_ceil(8)).ok()?, len))
    }

    /// A buffer of at least `len` bytes whose content does not matter: this one, or a new one where it is too short. `None` when
    /// the system has not that much.
    pub fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.len() < len {
            // The old one goes first, so that both are never there at once.
            *self = Self::default();
            *self = Self::zeroed(len)?;
        }
        self.bytes_mut().get_mut(..len)
    }

    /// Bytes it holds.
    pub fn len(&self) -> usize {
        match self {
            Self::Words(_, len) => *len,
            Self::Pages(pages) => pages.len(),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice::<u64, u8>(words).get(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice_mut::<u64, u8>(words).get_mut(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }
}

/// `len` values of zero.
///
/// # Errors
/// When the system has no memory for them.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, CodecError> {
    let mut values = Vec::new();
    grow(&mut values, len)?;
    Ok(values)
}

/// Adds zeros until there are `len` values.
///
/// # Errors
/// When the system has no memory for them.
pub(crate) fn grow<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> Result<(), CodecError> {
    let more = len.saturating_sub(values.len());
    values
        .try_reserve_exact(more)
        .map_err(|_| CodecError::NoMemory((len as u64).saturating_mul(size_of::<T>() as u64)))?;
    values.resize(values.len() + more, T::default());
    Ok(())
}

/// Whether the system has that much memory at this moment.
pub(crate) fn is_there(len: u64) -> bool {
    usize::try_from(len).is_ok_and(|len| MmapMut::map_anon(len.max(1)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_zero_and_aligned() {
        for len in [0, 1, 7, 8, 4096, HUGE - 1, HUGE, HUGE + 5] {
            let buffer = Buffer::zeroed(len).unwrap();
            assert_eq!((buffer.len(), buffer.bytes().len()), (len, len));
            assert!(buffer.bytes().iter().all(|byte| *byte == 0));
            assert_eq!(buffer.bytes().as_ptr() as usize % 8, 0);
        }
    }

    #[test]
    fn grows_once_and_is_used_again() {
        let mut buffer = Buffer::default();
        assert_eq!(buffer.room(100_000).unwrap().len(), 100_000);
        let place = buffer.bytes().as_ptr();
        assert_eq!(buffer.room(70_000).unwrap().len(), 70_000);
        assert_eq!(buffer.bytes().as_ptr(), place);
    }
}
