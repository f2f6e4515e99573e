//! The batch of a write: tiles are cut into it, encoded together, and copied to the host.

use swath_raster::moments::Moments;

use crate::{
    driver::{
        launch::{
            cut::{GridTiles, launch_cut},
            moments::RawMoments,
        },
        memory::readback::PinnedBuffer,
    },
    encode::{
        encoded::{EncodedBatch, EncodedTile, PendingTiles},
        encoder::{Encoder, READBACK_STREAM, no_level},
        image_library::encode_images,
        path::EncodePath,
        plan::{LevelSpec, PARCELS, Slots},
        statistics::TileStatistics,
        tile_slots::{TileSlots, WORK_STREAM, read_u32},
    },
    error::DeviceError,
};

impl Encoder {
    /// Returns the free slots of the batch, for tiles of the image and of masks.
    pub fn free(&self) -> Slots {
        let mask = self.mask.as_ref().map_or(u32::MAX, |slots| slots.slots - slots.used);
        Slots { image: self.image.slots - self.image.used, mask }
    }

    /// Whether the batch has no tile.
    pub fn is_empty(&self) -> bool {
        self.image.used == 0 && self.mask.as_ref().is_none_or(|slots| slots.used == 0)
    }

    fn grid(&self, level: &LevelSpec, planes: u32, tile_row: u32, skip: u32, count: u32) -> GridTiles {
        GridTiles {
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

    /// Cuts `count` positions of a level's grid into the batch, from position `skip` of row `tile_row` on: all planes
    /// of each position, and its mask. The rows that the tiles cover are in the ring.
    ///
    /// # Errors
    /// When the batch has too few slots, or a call fails.
    pub fn cut(&mut self, index: usize, tile_row: u32, skip: u32, count: u32) -> Result<(), DeviceError> {
        let level_spec = self.plan.levels.get(index).ok_or_else(|| no_level(index))?;
        let planes = self.plan.planes;
        let free = self.free();
        if u64::from(count) * u64::from(planes) > free.image.into() || count > free.mask {
            return Err(DeviceError::Internal("more tiles than the batch has slots".into()));
        }
        let tiles = self.grid(level_spec, planes, tile_row, skip * planes, count * planes);
        let positions = self.grid(level_spec, 1, tile_row, skip, count);
        let level = self.level(index)?;
        let slots = &self.image;
        let lens = slots.facts_slice(&self.facts, slots.facts.lens, 4);
        let cut_params = slots.format.cut_params(tiles.tile_width);
        launch_cut(
            &self.streams,
            WORK_STREAM,
            &cut_params,
            &level.samples,
            &tiles,
            &slots.tiles,
            slots.stride,
            slots.used,
            lens,
        )?;
        let level = self.levels.get(index).ok_or_else(|| no_level(index))?;
        if let (0, Some(statistics)) = (index, &mut self.statistics) {
            statistics.take(&self.streams, &level.samples, level.mask.as_ref(), &positions)?;
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.take(&self.streams, &level.samples, None, &positions)?;
        }
        if let (Some(slots), Some(ring)) = (&self.mask, self.level(index)?.mask.as_ref()) {
            let lens = slots.facts_slice(&self.facts, slots.facts.lens, 4);
            let cut_params = slots.format.cut_params(positions.tile_width);
            launch_cut(
                &self.streams,
                WORK_STREAM,
                &cut_params,
                ring,
                &positions,
                &slots.tiles,
                slots.stride,
                slots.used,
                lens,
            )?;
        }
        self.image.used += count * planes;
        if let Some(slots) = &mut self.mask {
            slots.used += count;
        }
        Ok(())
    }

    /// Encodes the tiles that were cut, waits for their lengths, and starts the copy of their bytes. The batch is empty
    /// then, but [`Encoder::tile_bytes`] returns its tiles until the next tile is cut.
    ///
    /// # Errors
    /// When a call fails, or pinned memory cannot be allocated.
    pub fn submit(&mut self) -> Result<EncodedBatch, DeviceError> {
        let batch = self.compress()?;
        self.clear_facts()?;
        self.image.used = 0;
        if let Some(slots) = &mut self.mask {
            slots.used = 0;
        }
        for statistics in self.statistics.iter_mut().chain(&mut self.ranges) {
            statistics.clear();
        }
        Ok(batch)
    }

    /// Returns what is known of the tiles of a batch that could not be submitted.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn pending(&self) -> Result<PendingTiles, DeviceError> {
        let facts = self.fetch_facts()?;
        let used = |slots: &TileSlots| -> Result<Vec<bool>, DeviceError> {
            let is_used = |slot: usize| Ok(read_u32(&facts, slots.facts.lens + slot * 4)? > 0);
            (0..slots.used as usize).map(is_used).collect()
        };
        Ok(PendingTiles {
            image: used(&self.image)?,
            mask: self.mask.as_ref().map_or_else(|| Ok(Vec::new()), used)?,
            moments: self.moments(&facts)?,
        })
    }

    /// Returns the facts, with the statistics of all tiles.
    fn fetch_facts(&self) -> Result<Vec<u8>, DeviceError> {
        for statistics in self.statistics.iter().chain(&self.ranges) {
            statistics.join(&self.streams, &self.facts)?;
        }
        let mut facts = vec![0; self.facts.len()];
        self.streams.fetch(&self.facts, 0, &mut facts)?;
        Ok(facts)
    }

    fn moments(&self, facts: &[u8]) -> Result<Vec<Moments>, DeviceError> {
        let Some(statistics) = &self.statistics else { return Ok(Vec::new()) };
        let read = |at: usize| {
            let RawMoments { count, all, min, max, mean, squares } = statistics.read(facts, at)?;
            Ok(Moments { count, all, min, max, mean, squares })
        };
        (0..statistics.count()).map(read).collect()
    }

    fn compress(&mut self) -> Result<EncodedBatch, DeviceError> {
        self.parcel = (self.parcel + 1) % PARCELS;
        let no_parcel = || DeviceError::Internal("the batch has no parcel".into());
        let packed = self.parcels.get(self.parcel).ok_or_else(no_parcel)?;
        // The bytes of the batch before last must have left this buffer.
        if let Some(event) = self.parcel_free.get_mut(self.parcel).ok_or_else(no_parcel)?.take() {
            self.streams.wait(WORK_STREAM, &event)?;
        }
        let by_image_library = self.image.format.path.uses_image_library();
        let all_slots = std::iter::once(&self.image).filter(|_| !by_image_library).chain(&self.mask);
        for slots in all_slots.clone().filter(|slots| slots.used > 0) {
            slots.run(&self.streams, &self.facts, packed)?;
        }
        let facts = self.fetch_facts()?;
        let image = if by_image_library { self.encode_images(&facts)? } else { self.image.results(&facts)? };
        let mask = self.mask.as_ref().map_or_else(|| Ok(Vec::new()), |slots| slots.results(&facts))?;
        let end = image.iter().chain(&mask).filter_map(|tile| match tile {
            EncodedTile::Packed(range) => Some(range.end),
            _ => None,
        });
        let len = end.max().unwrap_or(0);
        let readback = match len {
            0 => None,
            len => {
                let pinned = PinnedBuffer::new(&self.gpu.memory, packed.len(), &self.meter)?;
                let readback = self.streams.read_back(READBACK_STREAM, packed, len, pinned)?;
                let free_event = self.parcel_free.get_mut(self.parcel).ok_or_else(no_parcel)?;
                *free_event = Some(self.streams.record(READBACK_STREAM)?);
                Some(readback)
            }
        };
        let slots = &self.image;
        let count = slots.used as usize * self.pieces() as usize;
        let pieces = (0..count).map(|piece| read_u32(&facts, slots.facts.sizes + piece * 4));
        let pieces = pieces.collect::<Result<_, _>>()?;
        let moments = self.moments(&facts)?;
        Ok(EncodedBatch { image, mask, pieces, moments, readback })
    }

    /// Encodes the tiles of the image with a library. The tiles are cut: the copy of the facts waited for that.
    fn encode_images(&self, facts: &[u8]) -> Result<Vec<EncodedTile>, DeviceError> {
        let slots = &self.image;
        let len_of = |slot: usize| Ok(read_u32(facts, slots.facts.lens + slot * 4)? as usize);
        let lens = (0..slots.used as usize).map(len_of).collect::<Result<Vec<usize>, DeviceError>>()?;
        let ranges = match &self.ranges {
            Some(ranges) => (0..lens.len()).map(|slot| self.range_of(facts, ranges, slot)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let over = READBACK_STREAM..READBACK_STREAM + slots.format.path.image_streams().max(1);
        encode_images(&self.streams, over, &slots.format, &slots.tiles, slots.stride, &lens, &ranges)
    }

    /// Returns the value range of the tile in a slot.
    fn range_of(&self, facts: &[u8], ranges: &TileStatistics, slot: usize) -> Result<u8, DeviceError> {
        let (planes, bands) = (self.plan.planes.max(1) as usize, usize::from(self.plan.bands));
        let (position, plane) = (slot / planes, slot % planes);
        let of = if planes > 1 { plane..plane + 1 } else { 0..bands };
        let mut widest = 0.0_f64;
        for band in of {
            let found = ranges.read(facts, position * bands + band)?;
            widest = widest.max(found.max - found.min);
        }
        Ok(widest.clamp(0.0, 255.0) as u8)
    }

    /// Returns the stored bytes of a tile of the last batch, of `width` columns and `rows` rows, from a slot of the
    /// image or of masks.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn tile_bytes(&self, mask: bool, slot: u32, width: u32, rows: u32) -> Result<Vec<u8>, DeviceError> {
        let slots = match (mask, &self.mask) {
            (false, _) => &self.image,
            (true, Some(slots)) => slots,
            (true, None) => return Err(DeviceError::Internal("the batch has no tiles of masks".into())),
        };
        let len = slots.format.cut_params(width).stored_row as usize * rows as usize;
        let mut bytes = vec![0; len];
        self.streams.fetch(&slots.tiles, slot as usize * slots.stride, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns how many pieces a tile of the image has, where readers can find the pieces; else 0.
    pub fn pieces(&self) -> u32 {
        if self.image.format.path.has_pieces() && self.image.pieces > 1 { self.image.pieces } else { 0 }
    }

    /// Returns how tiles of the image are encoded.
    pub fn path(&self) -> EncodePath {
        self.image.format.path
    }
}
