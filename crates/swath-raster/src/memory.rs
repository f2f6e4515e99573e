//! Allocates memory for samples, and reports a lack of it instead of ending the process.

use memmap2::MmapMut;

/// The system has no memory for a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no memory for {bytes} bytes")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: u64,
}

/// Buffers of at least this many bytes are mapped from the system, in huge pages where it has them: a page fault for every
/// 4 KiB costs more than decoding the samples that go there. Smaller buffers come from the heap, whose pages are already
/// mapped in a program that reads often.
const HUGE: usize = 4 << 20;
/// Whether the system takes the advice to use huge pages.
const HUGE_PAGES: bool = cfg!(target_os = "linux");

/// A zeroed buffer, aligned for every sample type.
#[derive(Debug)]
pub enum Buffer {
    /// Heap memory in words, for their alignment, and the length in bytes.
    Words(Vec<u64>, usize),
    /// Pages mapped from the system.
    Pages(MmapMut),
}

impl Default for Buffer {
    fn default() -> Self {
        Self::Words(Vec::new(), 0)
    }
}

impl Buffer {
    /// Allocates `len` zero bytes. Returns `None` when the system has no memory for them.
    pub fn zeroed(len: usize) -> Option<Self> {
        if len >= HUGE {
            return Some(Self::Pages(pages(len, HUGE_PAGES)?));
        }
        Some(Self::Words(zeroed(len.div_ceil(8)).ok()?, len))
    }

    /// Returns `len` bytes of unspecified content, growing the buffer where it is too short. Returns `None` when the system has
    /// no memory for them.
    pub fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.len() < len {
            // Frees the old buffer first, so that the two never exist at once.
            *self = Self::default();
            *self = Self::zeroed(len)?;
        }
        self.bytes_mut().get_mut(..len)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Words(_, len) => *len,
            Self::Pages(pages) => pages.len(),
        }
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice::<u64, u8>(words).get(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }

    /// Returns the bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice_mut::<u64, u8>(words).get_mut(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }
}

/// Maps zeroed pages from the system: huge ones where it takes that advice, ordinary ones elsewhere.
fn pages(len: usize, huge: bool) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(len).ok()?;
    #[cfg(target_os = "linux")]
    if huge {
        // Advice only: if the kernel refuses, the pages are small and nothing else changes.
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = huge;
    Some(pages)
}

/// Allocates a vector of `len` zeros.
///
/// # Errors
/// When the system has no memory for them.
pub fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    grow(&mut values, len)?;
    Ok(values)
}

/// Appends zeros until the vector has `len` values.
///
/// # Errors
/// When the system has no memory for them.
pub fn grow<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    let missing = len.saturating_sub(values.len());
    values
        .try_reserve_exact(missing)
        .map_err(|_| OutOfMemory { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) })?;
    values.resize(values.len() + missing, T::default());
    Ok(())
}

/// Gives the vector exactly `len` values; new ones are zero.
///
/// # Errors
/// When the system has no memory for them.
pub fn resize<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    values.truncate(len);
    grow(values, len)
}

/// Appends values. Capacity at least doubles where it grows, as `Vec` does.
///
/// # Errors
/// When the system has no memory for them.
pub fn append<T: Copy>(values: &mut Vec<T>, more: &[T]) -> Result<(), OutOfMemory> {
    values.try_reserve(more.len()).map_err(|_| OutOfMemory { bytes: size_of_val(more) as u64 })?;
    values.extend_from_slice(more);
    Ok(())
}

/// Copies a slice.
///
/// # Errors
/// When the system has no memory for it.
pub fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, OutOfMemory> {
    collect(values.iter().copied())
}

/// Moves a value to the heap, as an array of one: stable Rust has no `Box::try_new`.
///
/// # Errors
/// When the system has no memory for it.
pub fn boxed<T>(value: T) -> Result<Box<[T; 1]>, OutOfMemory> {
    let lacking = OutOfMemory { bytes: size_of::<T>() as u64 };
    let mut values = Vec::new();
    values.try_reserve_exact(1).map_err(|_| lacking)?;
    values.push(value);
    values.into_boxed_slice().try_into().map_err(|_| lacking)
}

/// Collects the items of an iterator whose number is known in advance.
///
/// # Errors
/// When the system has no memory for them.
pub fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    let bytes = (items.len() as u64).saturating_mul(size_of::<T>() as u64);
    values.try_reserve_exact(items.len()).map_err(|_| OutOfMemory { bytes })?;
    values.extend(items);
    Ok(values)
}

/// Whether the system can map `len` bytes at this moment.
pub fn is_available(len: u64) -> bool {
    usize::try_from(len).is_ok_and(|len| MmapMut::map_anon(len.max(1)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "megabytes take Miri too long")]
    fn every_size_is_zero_and_aligned() {
        for len in [0, 1, 7, 8, 4096, HUGE - 1, HUGE, HUGE + 5] {
            let buffer = Buffer::zeroed(len).unwrap();
            assert_eq!((buffer.len(), buffer.bytes().len()), (len, len));
            assert!(buffer.bytes().iter().all(|byte| *byte == 0));
            assert_eq!(buffer.bytes().as_ptr() as usize % 8, 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes take Miri too long")]
    fn mapped_pages_are_zero_with_and_without_huge_ones() {
        for huge in [false, true] {
            let mapped = pages(HUGE + 5, huge).unwrap();
            assert!(mapped.len() == HUGE + 5 && mapped.iter().all(|byte| *byte == 0));
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
