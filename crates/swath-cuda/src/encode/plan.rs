//! The plan of a write on the device, and the memory that it takes.

use std::sync::Arc;

use swath_raster::shrink::Shrink;
use swath_tiff::SampleType;

use crate::{
    driver::memory::{pool::allocated_len, row_ring::RowRing},
    encode::{
        overview::DeviceShrink,
        statistics::TileStatistics,
        tile_format::TileFormat,
        tile_slots::{FactOffsets, TileSlots},
    },
    error::DeviceError,
    gpu::Gpu,
};

/// Parcels (packed batches) on the device: one is copied to the host while the next is made.
pub(super) const PARCELS: usize = 2;
/// Bytes of rows that are uploaded at a time.
const STAGING: usize = 16 << 20;

/// One level of the image: the image itself, or an overview.
#[derive(Debug, Clone)]
pub struct LevelSpec {
    /// Columns and rows.
    pub size: (u32, u32),
    /// Columns and rows of a tile.
    pub tile: (u32, u32),
    /// Rows that the ring holds.
    pub capacity: u32,
    /// How the next level is made from this one.
    pub shrink: Option<Shrinks>,
}

/// How the next level is made.
#[derive(Debug, Clone)]
pub struct Shrinks {
    /// The shrink of the bands.
    pub samples: Shrink,
    /// The shrink of the mask and of alpha.
    pub mask: Shrink,
}

/// Everything about a write that is known before the first row.
#[derive(Debug, Clone)]
pub struct EncodePlan {
    /// The image, then overviews from the largest.
    pub levels: Vec<LevelSpec>,
    /// Number of bands.
    pub bands: u16,
    /// Type of the samples.
    pub sample: SampleType,
    /// Format of the tiles of the image and its overviews.
    pub image: TileFormat,
    /// Planes that have tiles of their own.
    pub planes: u32,
    /// Format of the tiles of masks, where there are masks.
    pub mask: Option<TileFormat>,
    /// The alpha band.
    pub alpha: Option<u16>,
    /// Whether alpha decides which samples count in overviews.
    pub alpha_counts: bool,
    /// Whether to compute statistics of the image's tiles, and the nodata sample.
    pub statistics: Option<Option<Vec<u8>>>,
    /// The sample that replaces NaN.
    pub replace_nan: Option<Vec<u8>>,
}

/// The slots of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Slots for tiles of the image and its overviews.
    pub image: u32,
    /// Slots for tiles of masks.
    pub mask: u32,
}

impl EncodePlan {
    pub(super) fn ring_bytes(&self, level: &LevelSpec) -> Result<[usize; 2], DeviceError> {
        let too_much = || DeviceError::Usage("the rows of a level are larger than memory".into());
        let (width, rows) = (level.size.0, level.capacity);
        let samples = RowRing::bytes(self.bands, width, rows, self.sample.size()).ok_or_else(too_much)?;
        let mask = match self.mask {
            Some(_) => RowRing::bytes(1, width, rows, 1).ok_or_else(too_much)?,
            None => 0,
        };
        Ok([samples, mask])
    }

    /// Returns the bytes of the buffer for uploaded rows: room for one row at least.
    pub(super) fn staging_len(&self) -> usize {
        let width = self.levels.first().map_or(0, |level| level.size.0) as usize;
        STAGING.max(width * usize::from(self.bands) * self.sample.size())
    }

    /// Returns the positions of a batch that may have statistics.
    pub(super) fn positions(&self, slots: Slots) -> u32 {
        slots.image / self.planes.max(1) + 2
    }

    /// Returns the rows of the highest tile of all levels.
    pub(super) fn tile_height(&self) -> u32 {
        self.levels.iter().map(|level| level.tile.1).max().unwrap_or(0)
    }

    fn statistics_len(&self, slots: Slots) -> usize {
        if self.statistics.is_some() { TileStatistics::facts_len(self.bands, self.positions(slots)) } else { 0 }
    }

    /// Returns the most bytes that the tiles of all slots can become.
    pub fn parcel_len(&self, slots: Slots) -> usize {
        let of = |format: &TileFormat, slots: u32| match format.path.uses_image_library() {
            true => 0,
            false => format.max_whole().saturating_mul(slots as usize),
        };
        of(&self.image, slots.image)
            .saturating_add(self.mask.as_ref().map_or(0, |format| of(format, slots.mask)))
            .max(16)
    }

    /// Returns the device memory that a write takes with these slots.
    ///
    /// # Errors
    /// When a library fails to report what it needs.
    pub fn device_bytes(&self, gpu: &Arc<Gpu>, slots: Slots, host_rows: bool) -> Result<u64, DeviceError> {
        let mut sum = 0_u64;
        let mut add = |len: usize| sum = sum.saturating_add(allocated_len(len as u64));
        for level in &self.levels {
            self.ring_bytes(level)?.into_iter().for_each(&mut add);
            if let Some(shrink) = &level.shrink {
                add(DeviceShrink::bytes(&shrink.samples).unwrap_or(0));
                add(DeviceShrink::bytes(&shrink.mask).unwrap_or(0));
            }
        }
        for (format, count) in [(Some(&self.image), slots.image), (self.mask.as_ref(), slots.mask)] {
            let Some(format) = format else { continue };
            for len in TileSlots::buffers(gpu, format, count)? {
                add(len);
            }
        }
        add(self.image.path.image_library_memory(self.image.tile_len()));
        add(self.facts_len(slots));
        let of_rows = TileStatistics::rows_len(self.bands, self.positions(slots), self.tile_height());
        for wanted in [self.statistics.is_some(), self.image.path.needs_ranges()] {
            add(if wanted { of_rows } else { 0 });
        }
        for _ in 0..PARCELS {
            add(self.parcel_len(slots));
        }
        if host_rows {
            add(self.staging_len());
        }
        Ok(sum)
    }

    pub(super) fn facts_at(&self, slots: Slots) -> (FactOffsets, FactOffsets, usize) {
        let image = FactOffsets::new(16, slots.image, self.image.pieces());
        let mask = match &self.mask {
            Some(format) => FactOffsets::new(image.end, slots.mask, format.pieces()),
            None => FactOffsets { end: image.end, ..FactOffsets::default() },
        };
        (image, mask, mask.end)
    }

    pub(super) fn facts_len(&self, slots: Slots) -> usize {
        self.ranges_at(slots) + self.ranges_len(slots)
    }

    pub(super) fn ranges_at(&self, slots: Slots) -> usize {
        let (_, _, statistics) = self.facts_at(slots);
        statistics + self.statistics_len(slots)
    }

    /// Returns the bytes for the value range of each tile, where a codec needs it.
    fn ranges_len(&self, slots: Slots) -> usize {
        let needed = self.image.path.needs_ranges();
        if needed { TileStatistics::facts_len(self.bands, self.positions(slots)) } else { 0 }
    }
}
