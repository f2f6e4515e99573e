//! What a write on the device is to be, and what memory that takes.

use std::sync::Arc;

use swath_codec::shrink::Shrink;
use swath_tiff::SampleType;

use super::bench::Bench;
use crate::{
    band::held, error::DeviceError, ffi::encoding::RawMoments, gpu::Gpu, press::TileRule, ring::Ring,
    shrink::DeviceShrink,
};

/// Batches whose bytes can be on the device: one that leaves and one that is made.
pub(super) const PARCELS: usize = 2;
/// Bytes of rows on their way from the host, at a time.
const STAGING: usize = 16 << 20;

/// One level of the image: the image itself, or an overview.
#[derive(Debug, Clone)]
pub struct LevelRule {
    /// Columns and rows.
    pub size: (u32, u32),
    /// Columns and rows of a tile.
    pub tile: (u32, u32),
    /// Rows that are on the device at once.
    pub capacity: u32,
    /// How the next level is made of this one.
    pub shrink: Option<Shrinks>,
}

/// How the next level is made: samples, and the mask or the alpha band.
#[derive(Debug, Clone)]
pub struct Shrinks {
    /// Of the bands.
    pub samples: Shrink,
    /// Of the mask, and of alpha.
    pub mask: Shrink,
}

/// Everything about a write that is known before the first row.
#[derive(Debug, Clone)]
pub struct EncodePlan {
    /// The image, then overviews from the largest.
    pub levels: Vec<LevelRule>,
    /// Bands of the image, and their type.
    pub bands: u16,
    /// Their type.
    pub sample: SampleType,
    /// The tiles of the image and its overviews.
    pub image: TileRule,
    /// Planes that have tiles of their own.
    pub planes: u32,
    /// The tiles of the masks, where there are any.
    pub mask: Option<TileRule>,
    /// The band whose bytes say how opaque the others are.
    pub alpha: Option<u16>,
    /// Whether alpha says which samples count when overviews are made.
    pub alpha_counts: bool,
    /// Whether statistics of the image's tiles are wanted; the sample that is no data.
    pub statistics: Option<Option<Vec<u8>>>,
    /// What samples that are not a number become.
    pub replace_nan: Option<Vec<u8>>,
}

/// What a batch can hold, in slots for tiles of the image and for tiles of masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// For tiles of the image and its overviews.
    pub image: u32,
    /// For tiles of their masks.
    pub mask: u32,
}

/// Where the facts about the tiles of a bench stand in the buffer of all facts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FactsAt {
    pub(super) lens: usize,
    pub(super) sizes: usize,
    pub(super) checks: usize,
    pub(super) wholes: usize,
    pub(super) offsets: usize,
    pub(super) end: usize,
}

impl FactsAt {
    fn new(start: usize, slots: u32, pieces: u32) -> Self {
        let slots = slots as usize;
        let mut at = start;
        let mut next = |len: usize| {
            let start = at;
            at = (at + len).next_multiple_of(16);
            start
        };
        let (lens, sizes) = (next(slots * 4), next(slots * 4 * pieces as usize));
        let (checks, wholes, offsets) = (next(slots * 4), next(slots * 4), next(slots * 8));
        Self { lens, sizes, checks, wholes, offsets, end: at }
    }
}

impl EncodePlan {
    pub(super) fn ring_bytes(&self, level: &LevelRule) -> Result<[usize; 2], DeviceError> {
        let too_much = || DeviceError::Usage("the rows of a level are larger than memory".into());
        let (width, rows) = (level.size.0, level.capacity);
        let samples = Ring::bytes(self.bands, width, rows, self.sample.size()).ok_or_else(too_much)?;
        let mask = match self.mask {
            Some(_) => Ring::bytes(1, width, rows, 1).ok_or_else(too_much)?,
            None => 0,
        };
        Ok([samples, mask])
    }

    /// Room for rows on their way from the host: one at the least.
    pub(super) fn staging_len(&self) -> usize {
        let width = self.levels.first().map_or(0, |level| level.size.0) as usize;
        STAGING.max(width * usize::from(self.bands) * self.sample.size())
    }

    pub(super) fn moments_room(&self, slots: Slots) -> u32 {
        if self.statistics.is_some() { slots.image / self.planes.max(1) + 2 } else { 0 }
    }

    pub(super) fn moments_len(&self, slots: Slots) -> usize {
        self.moments_room(slots) as usize * usize::from(self.bands) * size_of::<RawMoments>()
    }

    /// Bytes that all slots can become, at most.
    pub fn parcel_len(&self, slots: Slots) -> usize {
        let of = |rule: &TileRule, slots: u32| match rule.press.is_picture() {
            true => 0,
            false => rule.max_whole().saturating_mul(slots as usize),
        };
        of(&self.image, slots.image).saturating_add(self.mask.as_ref().map_or(0, |rule| of(rule, slots.mask))).max(16)
    }

    /// Device memory that a write takes with so many slots.
    ///
    /// # Errors
    /// When a library that is needed does not say.
    pub fn device_bytes(&self, gpu: &Arc<Gpu>, slots: Slots, host_rows: bool) -> Result<u64, DeviceError> {
        let mut sum = 0_u64;
        let mut add = |len: usize| sum = sum.saturating_add(held(len as u64));
        for level in &self.levels {
            self.ring_bytes(level)?.into_iter().for_each(&mut add);
            if let Some(shrink) = &level.shrink {
                add(DeviceShrink::bytes(&shrink.samples).unwrap_or(0));
                add(DeviceShrink::bytes(&shrink.mask).unwrap_or(0));
            }
        }
        for (rule, count) in [(Some(&self.image), slots.image), (self.mask.as_ref(), slots.mask)] {
            let Some(rule) = rule else { continue };
            for len in Bench::buffers(gpu, rule, count)? {
                add(len);
            }
        }
        add(self.image.press.picture_memory(self.image.tile_len()));
        add(self.facts_len(slots));
        for _ in 0..PARCELS {
            add(self.parcel_len(slots));
        }
        if host_rows {
            add(self.staging_len());
        }
        Ok(sum)
    }

    pub(super) fn facts_at(&self, slots: Slots) -> (FactsAt, FactsAt, usize) {
        let image = FactsAt::new(16, slots.image, self.image.pieces());
        let mask = match &self.mask {
            Some(rule) => FactsAt::new(image.end, slots.mask, rule.pieces()),
            None => FactsAt { end: image.end, ..FactsAt::default() },
        };
        let moments = mask.end;
        (image, mask, moments)
    }

    pub(super) fn facts_len(&self, slots: Slots) -> usize {
        self.ranges_at(slots) + self.ranges_len(slots)
    }

    pub(super) fn ranges_at(&self, slots: Slots) -> usize {
        let (_, _, moments) = self.facts_at(slots);
        moments + self.moments_len(slots)
    }

    /// Room for the range of samples of each tile, where a codec needs that.
    fn ranges_len(&self, slots: Slots) -> usize {
        let positions = slots.image as usize / self.planes.max(1) as usize + 1;
        let of_one = usize::from(self.bands) * size_of::<RawMoments>();
        if self.image.press.needs_ranges() { positions * of_one } else { 0 }
    }
}
