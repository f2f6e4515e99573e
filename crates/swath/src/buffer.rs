//! Memory for the samples of a raster.

use memmap2::MmapMut;

/// Above this, memory comes straight from the system in huge pages where it has them: filling 4 KiB pages one fault at a
/// time costs more than copying the samples.
const HUGE: usize = 4 << 20;

/// Memory for the samples of a raster, aligned for every sample type.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// Words, so that small rasters are aligned too.
    Words(Vec<u64>, usize),
    /// Pages of the system, cleared by it.
    Pages(MmapMut),
}

impl Buffer {
    /// `len` zero bytes; `None` when the system has not that much.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        if len >= HUGE {
            let pages = MmapMut::map_anon(len).ok()?;
            // Only advice: where it is refused, pages are small and everything else is the same.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            return Some(Self::Pages(pages));
        }
        Some(Self::Words(vec![0; len.div_ceil(8)], len))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice::<u64, u8>(words).get(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Words(words, len) => bytemuck::cast_slice_mut::<u64, u8>(words).get_mut(..*len).unwrap_or_default(),
            Self::Pages(pages) => pages,
        }
    }
}
