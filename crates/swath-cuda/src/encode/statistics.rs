//! Statistics of the tiles of a batch: of their rows when they are cut, of whole tiles when the batch is encoded.

use std::sync::Arc;

use crate::{
    counters::Meter,
    driver::{
        launch::{
            cut::GridTiles,
            moments::{MomentsParams, RawMoments, RowMoments, join_moments, launch_moments},
            slice::BufferSlice,
        },
        memory::{
            pool::{DeviceBuffer, Memory},
            row_ring::RowRing,
            streams::Streams,
        },
    },
    encode::tile_slots::{WORK_STREAM, read_fact},
    error::DeviceError,
};

/// The statistics of a batch's tiles.
#[derive(Debug)]
pub(super) struct TileStatistics {
    params: MomentsParams,
    rows: RowMoments,
    /// Offset of the statistics of whole tiles in the facts.
    at: usize,
    /// Positions of the batch.
    used: u32,
}

impl TileStatistics {
    /// Returns the bytes of the statistics of whole tiles, for so many positions.
    pub(super) fn facts_len(bands: u16, positions: u32) -> usize {
        positions as usize * usize::from(bands) * size_of::<RawMoments>()
    }

    /// Returns the bytes of the statistics of rows, `tile_height` for each tile.
    pub(super) fn rows_len(bands: u16, positions: u32, tile_height: u32) -> usize {
        Self::facts_len(bands, positions).saturating_mul(tile_height as usize)
    }

    /// Allocates the memory for `positions` positions, whose statistics come to lie at `at` of the facts.
    pub(super) fn new(
        memory: &Arc<Memory>,
        meter: &Arc<Meter>,
        params: MomentsParams,
        positions: u32,
        tile_height: u32,
        at: usize,
    ) -> Result<Self, DeviceError> {
        let buffer = memory.buffer(Self::rows_len(params.bands, positions, tile_height), meter)?;
        Ok(Self { params, rows: RowMoments { buffer, room: tile_height }, at, used: 0 })
    }

    /// Takes the tiles at more positions.
    pub(super) fn take(
        &mut self,
        streams: &Streams,
        ring: &RowRing,
        mask: Option<&RowRing>,
        positions: &GridTiles,
    ) -> Result<(), DeviceError> {
        launch_moments(streams, WORK_STREAM, &self.params, ring, mask, positions, self.used, &self.rows)?;
        self.used += positions.count;
        Ok(())
    }

    /// Makes the statistics of whole tiles.
    pub(super) fn join(&self, streams: &Streams, facts: &DeviceBuffer) -> Result<(), DeviceError> {
        let count = self.used * u32::from(self.params.bands);
        let len = Self::facts_len(self.params.bands, self.used);
        join_moments(streams, WORK_STREAM, &self.rows, count, BufferSlice { buffer: facts, offset: self.at, len })
    }

    /// Returns the number of statistics: one for each band of each position.
    pub(super) fn count(&self) -> usize {
        self.used as usize * usize::from(self.params.bands)
    }

    /// Returns statistics number `index`, read from the facts.
    pub(super) fn read(&self, facts: &[u8], index: usize) -> Result<RawMoments, DeviceError> {
        let raw: [u8; size_of::<RawMoments>()] = read_fact(facts, self.at + index * size_of::<RawMoments>())?;
        Ok(bytemuck::pod_read_unaligned(&raw))
    }

    /// Begins the next batch.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}
