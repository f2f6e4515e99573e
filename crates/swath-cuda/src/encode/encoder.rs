//! One write on the device: its memory, its streams, and the rows of each level.

use std::sync::Arc;

use swath_raster::shrink::Shrink;

use crate::{
    counters::{Counters, Meter},
    driver::{
        launch::moments::{MomentsParams, sample_kind},
        memory::{
            pool::DeviceBuffer,
            row_ring::RowRing,
            streams::{Event, Streams},
        },
    },
    encode::{
        overview::DeviceShrink,
        plan::{EncodePlan, PARCELS, Slots},
        statistics::TileStatistics,
        tile_slots::{TileSlots, WORK_STREAM},
    },
    error::DeviceError,
    gpu::Gpu,
};

/// The stream that bytes leave the device by. Image libraries use it and those after it.
pub(super) const READBACK_STREAM: usize = 1;

/// The rows of one level, and how the next level is made from them.
#[derive(Debug)]
pub(super) struct LevelRings {
    pub(super) samples: RowRing,
    pub(super) mask: Option<RowRing>,
    pub(super) shrink: Option<(DeviceShrink, DeviceShrink)>,
}

/// One write on the device.
#[derive(Debug)]
pub struct Encoder {
    pub(super) gpu: Arc<Gpu>,
    pub(super) plan: EncodePlan,
    /// Declared before the buffers: dropping the streams waits for the work that uses them.
    pub(super) streams: Streams,
    pub(super) meter: Arc<Meter>,
    pub(super) levels: Vec<LevelRings>,
    pub(super) image: TileSlots,
    pub(super) mask: Option<TileSlots>,
    pub(super) facts: DeviceBuffer,
    /// Statistics of the image's tiles, where they are wanted.
    pub(super) statistics: Option<TileStatistics>,
    /// Value ranges of all tiles, where a codec needs them.
    pub(super) ranges: Option<TileStatistics>,
    pub(super) parcels: Vec<DeviceBuffer>,
    pub(super) parcel: usize,
    /// For each parcel, the event after the copy of its bytes.
    pub(super) parcel_free: Vec<Option<Event>>,
    pub(super) staging: Option<DeviceBuffer>,
}

impl Encoder {
    /// Allocates the memory for a write.
    ///
    /// # Errors
    /// When the device has too little memory, a kernel cannot be loaded, or a library is missing.
    pub fn new(gpu: &Arc<Gpu>, plan: EncodePlan, slots: Slots, host_rows: bool) -> Result<Self, DeviceError> {
        let meter = Arc::new(Meter::default());
        let memory = &gpu.memory;
        let count = READBACK_STREAM + plan.image.path.image_streams().max(1);
        let streams = Streams::new(memory.clone(), meter.clone(), count)?;
        let mut levels = Vec::new();
        for level in &plan.levels {
            let [samples, mask] = plan.ring_bytes(level)?;
            let samples = memory.buffer(samples, &meter)?;
            let width = level.size.0;
            let mask = match mask {
                0 => None,
                len => Some(RowRing::new(memory.buffer(len, &meter)?, 1, width, level.capacity, 1)?),
            };
            let shrink = match &level.shrink {
                None => None,
                Some(shrink) => {
                    let made = |shrink: &Shrink| {
                        DeviceShrink::new(&streams, WORK_STREAM, &meter, shrink)?.ok_or_else(|| {
                            DeviceError::Declined(
                                "the GPU does not make overviews of such samples with this resampling".into(),
                            )
                        })
                    };
                    Some((made(&shrink.samples)?, made(&shrink.mask)?))
                }
            };
            let samples = RowRing::new(samples, plan.bands, width, level.capacity, plan.sample.size())?;
            levels.push(LevelRings { samples, mask, shrink });
        }
        let (image_at, mask_at, statistics_at) = plan.facts_at(slots);
        let image = TileSlots::new(gpu, &streams, plan.image.clone(), slots.image, image_at)?;
        let mask =
            plan.mask.clone().map(|format| TileSlots::new(gpu, &streams, format, slots.mask, mask_at)).transpose()?;
        let facts = memory.buffer(plan.facts_len(slots), &meter)?;
        let parcels: Vec<DeviceBuffer> =
            (0..PARCELS).map(|_| memory.buffer(plan.parcel_len(slots), &meter)).collect::<Result<_, _>>()?;
        let staging = host_rows.then(|| memory.buffer(plan.staging_len(), &meter)).transpose()?;
        let kind = sample_kind(plan.sample);
        let summed = |nodata: Option<[u8; 8]>, at: usize| {
            let no_kind = || DeviceError::Declined("there are no statistics of complex samples".into());
            let params = MomentsParams { kind: kind.ok_or_else(no_kind)?, bands: plan.bands, nodata };
            TileStatistics::new(memory, &meter, params, plan.positions(slots), plan.tile_height(), at)
        };
        let nodata = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| first_bytes(bytes));
        let statistics = plan.statistics.as_ref().map(|bytes| summed(nodata(bytes), statistics_at)).transpose()?;
        // Complex samples have no range.
        let needs_ranges = plan.image.path.needs_ranges() && kind.is_some();
        let ranges = needs_ranges.then(|| summed(None, plan.ranges_at(slots))).transpose()?;
        let encoder = Self {
            gpu: gpu.clone(),
            streams,
            meter,
            levels,
            image,
            mask,
            facts,
            statistics,
            ranges,
            parcel_free: (0..PARCELS).map(|_| None).collect(),
            parcels,
            parcel: 0,
            staging,
            plan,
        };
        encoder.clear_facts()?;
        Ok(encoder)
    }

    /// Resets the facts: no tile has a length, and nothing is packed.
    pub(super) fn clear_facts(&self) -> Result<(), DeviceError> {
        self.streams.fill(WORK_STREAM, &self.facts, 0, self.facts.len(), 0)
    }

    pub(super) fn level(&self, index: usize) -> Result<&LevelRings, DeviceError> {
        self.levels.get(index).ok_or_else(|| no_level(index))
    }

    /// Waits until the device has read all rows taken so far.
    ///
    /// # Errors
    /// When the device failed.
    pub fn wait_for_rows(&self) -> Result<(), DeviceError> {
        self.streams.wait_for_first()
    }

    /// Returns what the write cost so far.
    pub fn counters(&self) -> Counters {
        self.meter.counters()
    }

    /// Returns how many rows of a level the ring holds.
    pub fn capacity(&self, index: usize) -> u32 {
        self.levels.get(index).map_or(0, |level| level.samples.capacity)
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

pub(super) fn no_level(index: usize) -> DeviceError {
    DeviceError::Internal(format!("there is no level {index}"))
}

pub(super) fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    first
}
