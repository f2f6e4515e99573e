//! The slots of a batch for tiles of one kind: cut, encoded, packed.

use std::sync::Arc;

use crate::{
    driver::{
        launch::{
            encode::EncodeLaunch,
            pack::{PackLaunch, launch_adler, launch_pack},
            slice::BufferSlice,
        },
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    encode::{
        encoded::EncodedTile,
        nvcomp_slots::NvcompSlots,
        tile_format::{TileFormat, encoded_stride},
    },
    error::DeviceError,
    gpu::Gpu,
};

/// The stream that all work of a write runs on, in the order of the calls.
pub(super) const WORK_STREAM: usize = 0;

/// Offsets of the facts about the tiles of one kind in the buffer of all facts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FactOffsets {
    pub(super) lens: usize,
    pub(super) sizes: usize,
    pub(super) checks: usize,
    pub(super) wholes: usize,
    pub(super) offsets: usize,
    pub(super) end: usize,
}

impl FactOffsets {
    pub(super) fn new(start: usize, slots: u32, pieces: u32) -> Self {
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

/// The slots for tiles of one kind.
#[derive(Debug)]
pub(super) struct TileSlots {
    pub(super) format: TileFormat,
    pub(super) slots: u32,
    pub(super) used: u32,
    /// Bytes from slot to slot.
    pub(super) stride: usize,
    pub(super) pieces: u32,
    pub(super) encoded_stride: usize,
    pub(super) tiles: DeviceBuffer,
    /// `None` where tiles are packed as they are.
    pub(super) encoded: Option<DeviceBuffer>,
    pub(super) scratch: Option<DeviceBuffer>,
    pub(super) nvcomp: Option<NvcompSlots>,
    pub(super) facts: FactOffsets,
}

impl TileSlots {
    /// Returns the lengths of the buffers.
    pub(super) fn buffers(gpu: &Arc<Gpu>, format: &TileFormat, slots: u32) -> Result<Vec<usize>, DeviceError> {
        let (slots, len) = (slots as usize, format.tile_len());
        let stride = len.next_multiple_of(16);
        let pieces = format.pieces() as usize;
        let mut lens = vec![slots * stride + 16];
        if let Some(encoding) = format.path.encoding() {
            lens.push(slots * pieces * encoded_stride(format.path, len, format.row_len()));
            lens.push(encoding.scratch_len(&gpu.memory, slots, pieces, stride, format.path.effort())?);
        }
        if format.path.is_nvcomp() {
            lens.extend(NvcompSlots::buffers(gpu, format.path, slots, len)?);
        }
        Ok(lens)
    }

    pub(super) fn new(
        gpu: &Arc<Gpu>,
        streams: &Streams,
        format: TileFormat,
        slots: u32,
        facts: FactOffsets,
    ) -> Result<Self, DeviceError> {
        let (memory, meter) = (&gpu.memory, streams.meter());
        let mut lens = Self::buffers(gpu, &format, slots)?.into_iter();
        let missing = || DeviceError::Internal("there are fewer buffers than the slots need".into());
        // Some encoders need no scratch, and no buffer is empty.
        let mut next = || memory.buffer(lens.next().ok_or_else(missing)?.max(1), meter);
        let len = format.tile_len();
        let tiles = next()?;
        let (encoded, scratch) = match format.path.encoding() {
            Some(_) => (Some(next()?), Some(next()?)),
            None => (None, None),
        };
        let at = (&tiles, len.next_multiple_of(16));
        let nvcomp = match format.path.is_nvcomp() {
            true => Some(NvcompSlots::new(gpu, streams, format.path, slots as usize, len, at)?),
            false => None,
        };
        Ok(Self {
            slots,
            used: 0,
            stride: len.next_multiple_of(16),
            pieces: format.pieces(),
            encoded_stride: encoded_stride(format.path, len, format.row_len()),
            tiles,
            encoded,
            scratch,
            nvcomp,
            facts,
            format,
        })
    }

    pub(super) fn facts_slice<'a>(&self, facts: &'a DeviceBuffer, offset: usize, len: usize) -> BufferSlice<'a> {
        BufferSlice { buffer: facts, offset, len: len * self.slots as usize }
    }

    /// Encodes and packs the tiles in the slots.
    pub(super) fn run(
        &self,
        streams: &Streams,
        facts: &DeviceBuffer,
        packed: &DeviceBuffer,
    ) -> Result<(), DeviceError> {
        let at = &self.facts;
        let lens = self.facts_slice(facts, at.lens, 4);
        let sizes = self.facts_slice(facts, at.sizes, 4 * self.pieces as usize);
        let checks = self.facts_slice(facts, at.checks, 4);
        let wrap = self.format.path.wrap(self.format.frame);
        if wrap.adler {
            launch_adler(streams, WORK_STREAM, &self.tiles, self.stride, lens, checks, self.used)?;
        }
        let (encoded, encoded_stride, sizes) = match (self.format.path.encoding(), &self.encoded, &self.nvcomp) {
            (Some(encoding), Some(encoded), _) => {
                let spec = &self.format.spec;
                let batch = EncodeLaunch {
                    tiles: &self.tiles,
                    stride: self.stride,
                    encoded,
                    encoded_stride: self.encoded_stride,
                    lens,
                    sizes,
                    scratch: self.scratch.as_ref(),
                    count: self.used,
                    pieces: self.pieces,
                    piece_len: self.format.path.piece_len(self.format.tile_len()),
                    effort: self.format.path.effort(),
                    row_len: self.format.row_len(),
                    pixel_len: (usize::from(spec.samples) * spec.sample.size()).max(1),
                };
                encoding.launch(streams, WORK_STREAM, &batch)?;
                (encoded, self.encoded_stride, sizes)
            }
            (_, _, Some(nvcomp)) => {
                nvcomp.run(streams, WORK_STREAM, &self.tiles, lens, sizes, self.used)?;
                (nvcomp.encoded(), nvcomp.stride(), sizes)
            }
            // Stored as they are: the lengths are the sizes.
            _ => (&self.tiles, self.stride, lens),
        };
        let batch = PackLaunch {
            encoded,
            encoded_stride,
            packed,
            lens,
            sizes,
            checks: wrap.adler.then_some(checks),
            wholes: self.facts_slice(facts, at.wholes, 4),
            offsets: self.facts_slice(facts, at.offsets, 8),
            total: BufferSlice { buffer: facts, offset: 0, len: 16 },
            count: self.used,
            pieces: if self.encoded.is_some() { self.pieces } else { 1 },
        };
        launch_pack(streams, WORK_STREAM, &wrap, &batch)
    }

    /// Returns the result of each tile, read from the facts.
    pub(super) fn results(&self, facts: &[u8]) -> Result<Vec<EncodedTile>, DeviceError> {
        let at = &self.facts;
        let result = |slot: usize| {
            let whole = read_u32(facts, at.wholes + slot * 4)?;
            let start = u64::from_ne_bytes(read_fact(facts, at.offsets + slot * 8)?) as usize;
            Ok(match whole {
                0 => EncodedTile::Empty,
                u32::MAX => EncodedTile::Refused("its stream is longer than the room reserved for it".into()),
                len => EncodedTile::Packed(start..start + len as usize),
            })
        };
        (0..self.used as usize).map(result).collect()
    }
}

pub(super) fn read_u32(facts: &[u8], at: usize) -> Result<u32, DeviceError> {
    read_fact(facts, at).map(u32::from_ne_bytes)
}

/// Returns the bytes of a fact. A fact that is not there has no default: a length of 0 would be a tile that is left out.
pub(super) fn read_fact<const LEN: usize>(facts: &[u8], at: usize) -> Result<[u8; LEN], DeviceError> {
    let fact = facts.get(at..).and_then(|rest| rest.first_chunk());
    fact.copied().ok_or_else(|| DeviceError::Internal(format!("the facts of a batch end before byte {}", at + LEN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_is_not_there_has_no_default() {
        let facts = [1, 0, 0, 0, 2, 0];
        assert_eq!(read_u32(&facts, 0), Ok(u32::from_ne_bytes([1, 0, 0, 0])));
        for at in [3, 6, 7] {
            assert!(matches!(read_u32(&facts, at), Err(DeviceError::Internal(_))));
        }
    }
}
