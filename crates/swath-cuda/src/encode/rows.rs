//! Rows of a write: taken from the caller, shrunk from level to level, and copied back to the host.

use std::ops::Range;

use crate::{
    driver::{
        launch::take::{DeviceRows, TakeRows, launch_take},
        memory::row_ring::RowRing,
    },
    encode::{
        encoder::{Encoder, first_bytes},
        tile_slots::WORK_STREAM,
    },
    error::DeviceError,
};

impl Encoder {
    /// Takes rows on the device: `count` of `rows` from `from` on become rows `first` and on of the image. The device
    /// has read them when [`Encoder::wait_for_rows`] returns or a batch was submitted.
    ///
    /// # Errors
    /// When the ring has too little room, or a call fails.
    pub fn take(&self, rows: &DeviceRows, from: u32, first: u32, count: u32) -> Result<(), DeviceError> {
        let level = self.level(0)?;
        self.take_into(&level.samples, &rows.at_row(from), first, count, self.plan.bands, 0)
    }

    /// As [`Encoder::take`] for the mask, one byte for each pixel.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_mask(&self, rows: &DeviceRows, from: u32, first: u32, count: u32) -> Result<(), DeviceError> {
        let ring = self.mask_ring()?;
        self.take_into(ring, &rows.at_row(from), first, count, 1, 0)
    }

    fn mask_ring(&self) -> Result<&RowRing, DeviceError> {
        self.level(0)?.mask.as_ref().ok_or_else(|| DeviceError::Internal("the file has no mask".into()))
    }

    #[allow(clippy::too_many_arguments)]
    fn take_into(
        &self,
        ring: &RowRing,
        source: &DeviceRows,
        first: u32,
        count: u32,
        bands: u16,
        first_band: u16,
    ) -> Result<(), DeviceError> {
        let float =
            self.plan.sample.is_float() && !self.plan.sample.is_complex() && ring.sample_len == self.plan.sample.size();
        let replace = self.plan.replace_nan.as_ref().filter(|_| float);
        let take = TakeRows {
            ring,
            first,
            count,
            bands,
            first_band,
            replace: replace.map_or(0, |_| ring.sample_len as u32),
            nodata: replace.map_or([0; 16], |bytes| first_bytes(bytes)),
        };
        launch_take(&self.streams, WORK_STREAM, source, &take)
    }

    /// Takes rows on the host. `planes` are the bands one by one, or one plane with all bands of each pixel side by
    /// side. Each begins with the first of the rows. The rows have been read when this returns.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_host(&self, planes: &[&[u8]], first: u32) -> Result<(), DeviceError> {
        let level = self.level(0)?;
        let bands = self.plan.bands;
        let together = planes.len() < usize::from(bands);
        if planes.len() != if together { 1 } else { usize::from(bands) } {
            return Err(DeviceError::Internal(format!("{} planes came for {bands} bands", planes.len())));
        }
        for (band, plane) in (0..).zip(planes) {
            let (bands, first_band) = if together { (bands, 0) } else { (1, band) };
            self.stage(&level.samples, plane, first, bands, first_band)?;
        }
        Ok(())
    }

    /// As [`Encoder::take_host`] for the mask.
    ///
    /// # Errors
    /// As [`Encoder::take`].
    pub fn take_host_mask(&self, plane: &[u8], first: u32) -> Result<(), DeviceError> {
        self.stage(self.mask_ring()?, plane, first, 1, 0)
    }

    /// Uploads some rows at a time into the staging buffer and takes them from there.
    fn stage(&self, ring: &RowRing, plane: &[u8], first: u32, bands: u16, first_band: u16) -> Result<(), DeviceError> {
        let Some(staging) = &self.staging else {
            return Err(DeviceError::Internal("the write has no staging buffer for rows from the host".into()));
        };
        let pixel = ring.sample_len * usize::from(bands);
        let row = ring.width as usize * pixel;
        if !plane.len().is_multiple_of(row.max(1)) {
            return Err(DeviceError::Internal(format!("{} bytes are not whole rows of {row}", plane.len())));
        }
        let at_once = (staging.len() / row.max(1)).max(1);
        for (number, part) in plane.chunks(at_once * row.max(1)).enumerate() {
            let rows = (part.len() / row.max(1)) as u32;
            self.streams.upload_bytes(WORK_STREAM, part, staging, 0)?;
            let steps = [row, pixel, ring.sample_len];
            let source = DeviceRows::of_buffer(staging, steps, [rows, ring.width, bands.into()], ring.sample_len)?;
            let first = first + (number * at_once) as u32;
            self.take_into(ring, &source, first, rows, bands, first_band)?;
        }
        Ok(())
    }

    /// Makes rows of the next level from rows of this one.
    ///
    /// # Errors
    /// When a call fails.
    pub fn shrink(&self, index: usize, rows: Range<u32>) -> Result<(), DeviceError> {
        let (level, below) = (self.level(index)?, self.level(index + 1)?);
        let Some((samples, mask)) = &level.shrink else {
            return Err(DeviceError::Internal(format!("level {index} has no next level")));
        };
        let validity = match (&level.mask, self.plan.alpha) {
            (Some(ring), _) => Some((ring, 0)),
            (None, Some(band)) if self.plan.alpha_counts => Some((&level.samples, band)),
            _ => None,
        };
        let bands = self.plan.bands;
        // All bands but alpha, which is shrunk like a mask.
        let alpha = self.plan.alpha.unwrap_or(bands);
        for bands in [0..alpha, (alpha + 1).min(bands)..bands].into_iter().filter(|bands| !bands.is_empty()) {
            samples.launch(
                &self.streams,
                WORK_STREAM,
                &level.samples,
                validity,
                &below.samples,
                bands,
                rows.clone(),
            )?;
        }
        if let Some(alpha) = self.plan.alpha {
            let bands = alpha..alpha + 1;
            let own = Some((&level.samples, alpha));
            mask.launch(&self.streams, WORK_STREAM, &level.samples, own, &below.samples, bands, rows.clone())?;
        }
        if let (Some(from), Some(to)) = (&level.mask, &below.mask) {
            mask.launch(&self.streams, WORK_STREAM, from, Some((from, 0)), to, 0..1, rows)?;
        }
        Ok(())
    }

    /// Copies rows of a level to the host, for a caller that continues without the device: the bands one after the
    /// other, then the mask.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn rows(&self, index: usize, rows: Range<u32>) -> Result<Vec<Vec<u8>>, DeviceError> {
        let level = self.level(index)?;
        let mut planes = Vec::new();
        for (ring, bands) in [(Some(&level.samples), self.plan.bands), (level.mask.as_ref(), 1)] {
            let Some(ring) = ring else { continue };
            for band in 0..bands {
                let row_len = ring.row_step() as usize;
                let mut plane = vec![0; rows.len() * row_len];
                let mut row = rows.start;
                // A ring wraps at most once.
                while row < rows.end {
                    let at = row % ring.capacity;
                    let count = (ring.capacity - at).min(rows.end - row);
                    let to = (row - rows.start) as usize * row_len;
                    let offset = ring.band_step() as usize * usize::from(band) + at as usize * row_len;
                    let to = plane.get_mut(to..to + count as usize * row_len);
                    let no_room = || DeviceError::Internal("rows that come back have no room".into());
                    self.streams.fetch(&ring.buffer, offset, to.ok_or_else(no_room)?)?;
                    row += count;
                }
                planes.push(plane);
            }
        }
        Ok(planes)
    }
}
