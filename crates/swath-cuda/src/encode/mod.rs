//! One write on the device: rows go in, compressed tiles come out by batches.
//!
//! An [`Encoder`] holds the rows of every level that are still needed, in rings. Tiles are cut out of them into the slots of a
//! batch; a batch is compressed and packed at once, its lengths are read in one small copy, for which the host waits, and its
//! bytes leave the device in another, to pinned memory, while the next batch is worked on. All work is on one stream, so what
//! was asked for first is done first: a ring may be filled again as soon as what reads it was asked for.

mod bench;
mod plan;

use std::sync::Arc;

use swath_codec::{pre::moments::Moments, shrink::Shrink};
use swath_tiff::SampleType;

pub use bench::Pressed;
use bench::{Bench, read_u32};
use plan::PARCELS;
pub use plan::{EncodePlan, LevelRule, Shrinks, Slots};

pub use crate::ffi::encoding::DeviceRows;
use crate::{
    counters::{Counters, Meter},
    error::DeviceError,
    ffi::{
        encoding::{self, CutTiles, MomentsRule, RawMoments, Take},
        kernels::Part,
        landing::{Landing, PinnedBuffer},
        memory::DeviceBuffer,
        streams::Streams,
    },
    gpu::Gpu,
    pictures,
    press::Press,
    ring::Ring,
    shrink::DeviceShrink,
};

/// The stream that everything runs on, and the one that bytes leave by.
const WORK: usize = 0;
const LEAVE: usize = 1;

/// Rows of one level, and how the next is made of them.
#[derive(Debug)]
struct Level {
    samples: Ring,
    mask: Option<Ring>,
    shrink: Option<(DeviceShrink, DeviceShrink)>,
}

/// A batch that was compressed.
#[derive(Debug)]
pub struct Batch {
    /// The tiles of the image and its overviews, by slot.
    pub image: Vec<Pressed>,
    /// The tiles of masks.
    pub mask: Vec<Pressed>,
    /// The sizes of the pieces of each tile of the image, where its codec has pieces; tile by tile.
    pub pieces: Vec<u32>,
    /// Statistics, in the order they were asked for, band by band.
    pub moments: Vec<Moments>,
    /// The bytes, on their way.
    pub landing: Option<Landing>,
}

/// What is known of the tiles of a batch before they are compressed.
#[derive(Debug)]
pub struct Pending {
    /// Whether each tile of the image holds anything, by slot.
    pub image: Vec<bool>,
    /// Whether each tile of a mask does.
    pub mask: Vec<bool>,
    /// Statistics, in the order they were asked for, band by band.
    pub moments: Vec<Moments>,
}

/// One write on the device.
#[derive(Debug)]
pub struct Encoder {
    gpu: Arc<Gpu>,
    plan: EncodePlan,
    /// Before the buffers, which its work uses until it is waited for at the end.
    streams: Streams,
    meter: Arc<Meter>,
    levels: Vec<Level>,
    image: Bench,
    mask: Option<Bench>,
    facts: DeviceBuffer,
    moments_at: usize,
    /// Where the ranges of tiles stand, where a codec needs them.
    ranges_at: Option<usize>,
    moments_used: u32,
    moments_room: u32,
    moments_rule: Option<MomentsRule>,
    parcels: Vec<DeviceBuffer>,
    parcel: usize,
    /// When the bytes that were in each parcel have left.
    left: Vec<Option<crate::ffi::streams::Mark>>,
    staging: Option<DeviceBuffer>,
}

impl Encoder {
    /// Takes the memory for a write.
    ///
    /// # Errors
    /// When the device has not that much, a kernel cannot be loaded, or a library is missing.
    pub fn new(gpu: &Arc<Gpu>, plan: EncodePlan, slots: Slots, host_rows: bool) -> Result<Self, DeviceError> {
        let meter = Arc::new(Meter::default());
        let memory = &gpu.memory;
        let count = LEAVE + plan.image.press.picture_streams().max(1);
        let streams = Streams::new(memory.clone(), meter.clone(), count)?;
        let mut levels = Vec::new();
        for rule in &plan.levels {
            let [samples, mask] = plan.ring_bytes(rule)?;
            let samples = memory.buffer(samples, &meter)?;
            let width = rule.size.0;
            let mask = match mask {
                0 => None,
                len => Some(Ring::new(memory.buffer(len, &meter)?, 1, width, rule.capacity, 1)?),
            };
            let shrink = match &rule.shrink {
                None => None,
                Some(shrink) => {
                    let made = |shrink: &Shrink| {
                        DeviceShrink::new(&streams, WORK, &meter, shrink)?.ok_or_else(|| {
                            DeviceError::Declined("the GPU does not make overviews of such samples in this way".into())
                        })
                    };
                    Some((made(&shrink.samples)?, made(&shrink.mask)?))
                }
            };
            let samples = Ring::new(samples, plan.bands, width, rule.capacity, plan.sample.size())?;
            levels.push(Level { samples, mask, shrink });
        }
        let (image_at, mask_at, moments_at) = plan.facts_at(slots);
        let image = Bench::new(gpu, &streams, plan.image.clone(), slots.image, image_at)?;
        let mask = plan.mask.clone().map(|rule| Bench::new(gpu, &streams, rule, slots.mask, mask_at)).transpose()?;
        let facts = memory.buffer(plan.facts_len(slots), &meter)?;
        let parcels: Vec<DeviceBuffer> =
            (0..PARCELS).map(|_| memory.buffer(plan.parcel_len(slots), &meter)).collect::<Result<_, _>>()?;
        let staging = host_rows.then(|| memory.buffer(plan.staging_len(), &meter)).transpose()?;
        let moments_rule = match &plan.statistics {
            Some(nodata) => Some(MomentsRule {
                kind: moment_kind(plan.sample)
                    .ok_or_else(|| DeviceError::Declined("there are no statistics of complex samples".into()))?,
                bands: plan.bands,
                nodata: nodata.as_ref().map(|bytes| first_bytes(bytes)),
            }),
            None => None,
        };
        let encoder = Self {
            gpu: gpu.clone(),
            streams,
            meter,
            levels,
            image,
            mask,
            facts,
            moments_at,
            ranges_at: plan.image.press.needs_ranges().then(|| plan.ranges_at(slots)),
            moments_used: 0,
            moments_room: plan.moments_room(slots),
            moments_rule,
            left: (0..PARCELS).map(|_| None).collect(),
            parcels,
            parcel: 0,
            staging,
            plan,
        };
        encoder.clear_facts()?;
        Ok(encoder)
    }

    /// No tile has a length yet, and nothing is packed.
    fn clear_facts(&self) -> Result<(), DeviceError> {
        self.streams.fill(WORK, &self.facts, 0, self.facts.len(), 0)
    }

    fn level(&self, index: usize) -> Result<&Level, DeviceError> {
        self.levels.get(index).ok_or_else(|| DeviceError::Usage(format!("there is no level {index}")))
    }

    /// Takes rows that are on the device: `count` of `rows` from `from` on become rows `first` and on of the image. They are
    /// read when [`Encoder::settle`] returns, or a batch was submitted.
    ///
    /// # Errors
    /// When the ring has not that much room, or a call fails.
    pub fn take(&self, rows: &DeviceRows, from: u32, first: u32, count: u32) -> Result<(), DeviceError> {
        let level = self.level(0)?;
        self.take_into(&level.samples, &rows.at_row(from), first, count, self.plan.bands, 0)
    }

    /// The same for the mask, one byte a pixel.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_mask(&self, rows: &DeviceRows, from: u32, first: u32, count: u32) -> Result<(), DeviceError> {
        let ring = self.mask_ring()?;
        self.take_into(ring, &rows.at_row(from), first, count, 1, 0)
    }

    fn mask_ring(&self) -> Result<&Ring, DeviceError> {
        self.level(0)?.mask.as_ref().ok_or_else(|| DeviceError::Usage("the file has no mask".into()))
    }

    #[allow(clippy::too_many_arguments)]
    fn take_into(
        &self,
        ring: &Ring,
        source: &DeviceRows,
        first: u32,
        count: u32,
        bands: u16,
        first_band: u16,
    ) -> Result<(), DeviceError> {
        let float =
            self.plan.sample.is_float() && !self.plan.sample.is_complex() && ring.sample_len == self.plan.sample.size();
        let replace = self.plan.replace_nan.as_ref().filter(|_| float);
        let take = Take {
            ring,
            first,
            count,
            bands,
            first_band,
            replace: replace.map_or(0, |_| ring.sample_len as u32),
            nodata: replace.map_or([0; 16], |bytes| first_bytes(bytes)),
        };
        encoding::take(&self.streams, WORK, source, &take)
    }

    /// Takes rows that are on the host. `planes` are the bands one by one, or all of them pixel by pixel in one; each begins
    /// with the first of the rows. They are read when this returns.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_host(&self, planes: &[&[u8]], first: u32) -> Result<(), DeviceError> {
        let level = self.level(0)?;
        let bands = self.plan.bands;
        let together = planes.len() < usize::from(bands);
        for (band, plane) in (0..).zip(planes) {
            let (bands, first_band) = if together { (bands, 0) } else { (1, band) };
            self.stage(&level.samples, plane, first, bands, first_band)?;
        }
        Ok(())
    }

    /// The same for the mask.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_host_mask(&self, plane: &[u8], first: u32) -> Result<(), DeviceError> {
        self.stage(self.mask_ring()?, plane, first, 1, 0)
    }

    /// Uploads rows piece by piece and takes them from there.
    fn stage(&self, ring: &Ring, plane: &[u8], first: u32, bands: u16, first_band: u16) -> Result<(), DeviceError> {
        let Some(staging) = &self.staging else {
            return Err(DeviceError::Usage("no room was made for rows from the host".into()));
        };
        let pixel = ring.sample_len * usize::from(bands);
        let row = ring.width as usize * pixel;
        let at_once = (staging.len() / row.max(1)).max(1);
        for (number, piece) in plane.chunks(at_once * row.max(1)).enumerate() {
            let rows = (piece.len() / row.max(1)) as u32;
            self.streams.upload_bytes(WORK, piece, staging, 0)?;
            let steps = [row, pixel, ring.sample_len];
            let source = DeviceRows::of_buffer(staging, steps, [rows, ring.width, bands.into()], ring.sample_len)?;
            let first = first + (number * at_once) as u32;
            self.take_into(ring, &source, first, rows, bands, first_band)?;
        }
        Ok(())
    }

    /// Makes rows of the level below out of those that are there.
    ///
    /// # Errors
    /// When a call fails.
    pub fn shrink(&self, index: usize, rows: std::ops::Range<u32>) -> Result<(), DeviceError> {
        let (level, below) = (self.level(index)?, self.level(index + 1)?);
        let Some((samples, mask)) = &level.shrink else {
            return Err(DeviceError::Usage(format!("nothing is made of level {index}")));
        };
        let validity = match (&level.mask, self.plan.alpha) {
            (Some(ring), _) => Some((ring, 0)),
            (None, Some(band)) if self.plan.alpha_counts => Some((&level.samples, band)),
            _ => None,
        };
        let bands = self.plan.bands;
        // All bands but alpha, which is shrunk as masks are.
        let alpha = self.plan.alpha.unwrap_or(bands);
        for bands in [0..alpha, (alpha + 1).min(bands)..bands].into_iter().filter(|bands| !bands.is_empty()) {
            samples.launch(&self.streams, WORK, &level.samples, validity, &below.samples, bands, rows.clone())?;
        }
        if let Some(alpha) = self.plan.alpha {
            let bands = alpha..alpha + 1;
            let own = Some((&level.samples, alpha));
            mask.launch(&self.streams, WORK, &level.samples, own, &below.samples, bands, rows.clone())?;
        }
        if let (Some(from), Some(to)) = (&level.mask, &below.mask) {
            mask.launch(&self.streams, WORK, from, Some((from, 0)), to, 0..1, rows)?;
        }
        Ok(())
    }

    /// Slots of the batch that are free: for tiles of the image, and of masks.
    pub fn free(&self) -> Slots {
        let mask = self.mask.as_ref().map_or(u32::MAX, |bench| bench.slots - bench.used);
        Slots { image: self.image.slots - self.image.used, mask }
    }

    /// Whether the batch has no tile.
    pub fn is_empty(&self) -> bool {
        self.image.used == 0 && self.mask.as_ref().is_none_or(|bench| bench.used == 0)
    }

    fn grid(&self, level: &LevelRule, planes: u32, tile_row: u32, skip: u32, count: u32) -> CutTiles {
        CutTiles {
            height: level.size.1,
            tile_width: level.tile.0,
            tile_height: level.tile.1,
            across: level.size.0.div_ceil(level.tile.0.max(1)),
            planes,
            first_row: tile_row,
            skip,
            count,
        }
    }

    /// Cuts `count` positions of the grid of a level into the batch: all planes of each, and its mask, from position `skip` of
    /// row `tile_row` on. The rows that they cover are there.
    ///
    /// # Errors
    /// When the batch has not that many slots, or a call fails.
    pub fn cut(&mut self, index: usize, tile_row: u32, skip: u32, count: u32) -> Result<(), DeviceError> {
        let rule =
            self.plan.levels.get(index).ok_or_else(|| DeviceError::Usage(format!("there is no level {index}")))?;
        let planes = self.plan.planes;
        let free = self.free();
        if u64::from(count) * u64::from(planes) > free.image.into() || count > free.mask {
            return Err(DeviceError::Usage("more tiles than the batch has slots".into()));
        }
        let tiles = self.grid(rule, planes, tile_row, skip * planes, count * planes);
        let positions = self.grid(rule, 1, tile_row, skip, count);
        let level = self.level(index)?;
        let bench = &self.image;
        let lens = bench.part(&self.facts, bench.facts.lens, 4);
        let cut_rule = bench.rule.cut_rule(tiles.tile_width);
        encoding::cut(
            &self.streams,
            WORK,
            &cut_rule,
            &level.samples,
            &tiles,
            &bench.tiles,
            bench.stride,
            bench.used,
            lens,
        )?;
        if let (0, Some(rule)) = (index, &self.moments_rule) {
            let out = Part {
                buffer: &self.facts,
                offset: self.moments_at,
                len: self.moments_room as usize * usize::from(rule.bands) * size_of::<RawMoments>(),
            };
            encoding::moments(
                &self.streams,
                WORK,
                rule,
                &level.samples,
                level.mask.as_ref(),
                &positions,
                self.moments_used,
                out,
            )?;
            self.moments_used += count;
        }
        if let (Some(offset), Some(kind)) = (self.ranges_at, moment_kind(self.plan.sample)) {
            let out = Part { buffer: &self.facts, offset, len: self.facts.len() - offset };
            let rule = MomentsRule { kind, bands: self.plan.bands, nodata: None };
            let first = self.image.used / planes.max(1);
            encoding::moments(&self.streams, WORK, &rule, &self.level(index)?.samples, None, &positions, first, out)?;
        }
        if let (Some(bench), Some(ring)) = (&self.mask, self.level(index)?.mask.as_ref()) {
            let lens = bench.part(&self.facts, bench.facts.lens, 4);
            let cut_rule = bench.rule.cut_rule(positions.tile_width);
            encoding::cut(
                &self.streams,
                WORK,
                &cut_rule,
                ring,
                &positions,
                &bench.tiles,
                bench.stride,
                bench.used,
                lens,
            )?;
        }
        self.image.used += count * planes;
        if let Some(bench) = &mut self.mask {
            bench.used += count;
        }
        Ok(())
    }

    /// Compresses what was cut, waits for the lengths, and sends the bytes on their way. The batch is empty then; its tiles
    /// can still be asked for until the next one is cut.
    ///
    /// # Errors
    /// When a call fails, or pinned memory cannot be had.
    pub fn submit(&mut self) -> Result<Batch, DeviceError> {
        let batch = self.compress()?;
        self.clear_facts()?;
        self.image.used = 0;
        if let Some(bench) = &mut self.mask {
            bench.used = 0;
        }
        self.moments_used = 0;
        Ok(batch)
    }

    /// What is known of the tiles of a batch that could not be submitted.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn pending(&self) -> Result<Pending, DeviceError> {
        let mut facts = vec![0; self.facts.len()];
        self.streams.fetch(&self.facts, 0, &mut facts)?;
        let used = |bench: &Bench| {
            (0..bench.used as usize).map(|slot| read_u32(&facts, bench.facts.lens + slot * 4) > 0).collect()
        };
        Ok(Pending {
            image: used(&self.image),
            mask: self.mask.as_ref().map_or_else(Vec::new, used),
            moments: self.moments(&facts),
        })
    }

    fn moments(&self, facts: &[u8]) -> Vec<Moments> {
        let count = self.moments_used as usize * usize::from(self.plan.bands);
        let read = |at: usize| {
            let start = self.moments_at + at * size_of::<RawMoments>();
            let raw: RawMoments = facts
                .get(start..start + size_of::<RawMoments>())
                .map_or_else(RawMoments::default, bytemuck::pod_read_unaligned);
            let RawMoments { count, all, min, max, mean, squares } = raw;
            Moments { count, all, min, max, mean, squares }
        };
        (0..count).map(read).collect()
    }

    fn compress(&mut self) -> Result<Batch, DeviceError> {
        self.parcel = (self.parcel + 1) % PARCELS;
        let packed = self.parcels.get(self.parcel).ok_or_else(|| DeviceError::Usage("no parcel".into()))?;
        // What was in it before has to have left.
        if let Some(mark) = self.left.get_mut(self.parcel).and_then(Option::take) {
            self.streams.wait(WORK, &mark)?;
        }
        let picture = self.image.rule.press.is_picture();
        let benches = std::iter::once(&self.image).filter(|_| !picture).chain(&self.mask);
        for bench in benches.clone().filter(|bench| bench.used > 0) {
            bench.run(&self.streams, &self.facts, packed)?;
        }
        let mut facts = vec![0; self.facts.len()];
        self.streams.fetch(&self.facts, 0, &mut facts)?;
        let image = if picture { self.pictures(&facts)? } else { self.image.results(&facts) };
        let mask = self.mask.as_ref().map_or_else(Vec::new, |bench| bench.results(&facts));
        let end = image.iter().chain(&mask).filter_map(|tile| match tile {
            Pressed::At(range) => Some(range.end),
            _ => None,
        });
        let len = end.max().unwrap_or(0);
        let landing = match len {
            0 => None,
            len => {
                let pinned = PinnedBuffer::new(&self.gpu.memory, packed.len(), &self.meter)?;
                let landing = self.streams.land(LEAVE, packed, len, pinned)?;
                if let Some(left) = self.left.get_mut(self.parcel) {
                    *left = Some(self.streams.mark(LEAVE)?);
                }
                Some(landing)
            }
        };
        let bench = &self.image;
        let count = bench.used as usize * self.pieces() as usize;
        let pieces = (0..count).map(|piece| read_u32(&facts, bench.facts.sizes + piece * 4)).collect();
        let moments = self.moments(&facts);
        Ok(Batch { image, mask, pieces, moments, landing })
    }

    /// Has a library encode the tiles of the image. They were cut: the facts came after them.
    fn pictures(&self, facts: &[u8]) -> Result<Vec<Pressed>, DeviceError> {
        let bench = &self.image;
        let lens: Vec<usize> =
            (0..bench.used as usize).map(|slot| read_u32(facts, bench.facts.lens + slot * 4) as usize).collect();
        let ranges: Vec<u8> = match self.ranges_at {
            Some(start) => (0..lens.len()).map(|slot| self.range_of(facts, start, slot)).collect(),
            None => Vec::new(),
        };
        let over = LEAVE..LEAVE + bench.rule.press.picture_streams().max(1);
        pictures::encode(&self.streams, over, &bench.rule, &bench.tiles, bench.stride, &lens, &ranges)
    }

    /// How far the samples of the tile in a slot are apart.
    fn range_of(&self, facts: &[u8], start: usize, slot: usize) -> u8 {
        let (planes, bands) = (self.plan.planes.max(1) as usize, usize::from(self.plan.bands));
        let (position, plane) = (slot / planes, slot % planes);
        let of = if planes > 1 { plane..plane + 1 } else { 0..bands };
        let spread = |band: usize| {
            let at = start + (position * bands + band) * size_of::<RawMoments>();
            let found = facts.get(at..at + size_of::<RawMoments>());
            let found: RawMoments = found.map_or_else(RawMoments::default, bytemuck::pod_read_unaligned);
            found.max - found.min
        };
        of.map(spread).fold(0.0, f64::max).clamp(0.0, 255.0) as u8
    }

    /// The stored bytes of a tile of the last batch, of `width` columns and `rows` rows: in a slot of the image, or of masks.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn tile_bytes(&self, mask: bool, slot: u32, width: u32, rows: u32) -> Result<Vec<u8>, DeviceError> {
        let bench = match (&self.mask, mask) {
            (Some(bench), true) => bench,
            _ => &self.image,
        };
        let len = bench.rule.cut_rule(width).stored_row as usize * rows as usize;
        let mut bytes = vec![0; len];
        self.streams.fetch(&bench.tiles, slot as usize * bench.stride, &mut bytes)?;
        Ok(bytes)
    }

    /// Rows of a level, for who goes on without the device: the bands one after the other, then the mask.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn rows(&self, index: usize, rows: std::ops::Range<u32>) -> Result<Vec<Vec<u8>>, DeviceError> {
        let level = self.level(index)?;
        let mut planes = Vec::new();
        for (ring, bands) in [(Some(&level.samples), self.plan.bands), (level.mask.as_ref(), 1)] {
            let Some(ring) = ring else { continue };
            for band in 0..bands {
                let row_len = ring.row_step() as usize;
                let mut plane = vec![0; rows.len() * row_len];
                let mut row = rows.start;
                // A ring has at most one seam.
                while row < rows.end {
                    let at = row % ring.capacity;
                    let count = (ring.capacity - at).min(rows.end - row);
                    let to = (row - rows.start) as usize * row_len;
                    let offset = ring.band_step() as usize * usize::from(band) + at as usize * row_len;
                    if let Some(to) = plane.get_mut(to..to + count as usize * row_len) {
                        self.streams.fetch(&ring.buffer, offset, to)?;
                    }
                    row += count;
                }
                planes.push(plane);
            }
        }
        Ok(planes)
    }

    /// Waits until what was taken so far was read.
    ///
    /// # Errors
    /// When the device failed.
    pub fn settle(&self) -> Result<(), DeviceError> {
        self.streams.settle()
    }

    /// What the write cost so far.
    pub fn counters(&self) -> Counters {
        self.meter.counters()
    }

    /// Rows of a level that there is room for.
    pub fn capacity(&self, index: usize) -> u32 {
        self.levels.get(index).map_or(0, |level| level.samples.capacity)
    }

    /// Pieces that tiles of the image are cut into, where these can be told apart; else 0.
    pub fn pieces(&self) -> u32 {
        if self.image.rule.press.has_pieces() && self.image.pieces > 1 { self.image.pieces } else { 0 }
    }

    /// How tiles of the image are compressed.
    pub fn press(&self) -> Press {
        self.image.rule.press
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    first
}

fn moment_kind(sample: SampleType) -> Option<u32> {
    Some(match sample {
        SampleType::U8 => 0,
        SampleType::I8 => 1,
        SampleType::U16 => 2,
        SampleType::I16 => 3,
        SampleType::U32 => 4,
        SampleType::I32 => 5,
        SampleType::U64 => 6,
        SampleType::I64 => 7,
        SampleType::F16 => 8,
        SampleType::F32 => 9,
        SampleType::F64 => 10,
        _ => return None,
    })
}

/// Brings rows that lie on the device in any way to the host: `count` of them from `from` on, bands one after the other.
///
/// # Errors
/// When memory or a call fails.
pub fn fetch(
    gpu: &Arc<Gpu>,
    rows: &DeviceRows,
    from: u32,
    count: u32,
    (width, bands, sample_len): (u32, u16, usize),
) -> Result<Vec<u8>, DeviceError> {
    let meter = Arc::new(Meter::default());
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let len = Ring::bytes(bands, width, count, sample_len)
        .ok_or_else(|| DeviceError::Usage("the rows are larger than memory".into()))?;
    let ring = Ring::new(gpu.memory.buffer(len, &meter)?, bands, width, count, sample_len)?;
    let take = Take { ring: &ring, first: 0, count, bands, first_band: 0, replace: 0, nodata: [0; 16] };
    encoding::take(&streams, WORK, &rows.at_row(from), &take)?;
    let band = ring.row_step() as usize * count as usize;
    let mut bytes = vec![0; band * usize::from(bands)];
    for (number, plane) in bytes.chunks_mut(band.max(1)).enumerate() {
        streams.fetch(&ring.buffer, ring.band_step() as usize * number, plane)?;
    }
    Ok(bytes)
}
