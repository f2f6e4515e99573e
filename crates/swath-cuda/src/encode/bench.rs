//! The slots of a batch for tiles of one kind: cut, compressed, packed.

use std::sync::Arc;

use super::{WORK, plan::FactsAt};
use crate::{
    error::DeviceError,
    ffi::{
        encoding::{self, EncodeBatch, PackBatch},
        kernels::Part,
        memory::DeviceBuffer,
        streams::Streams,
    },
    gpu::Gpu,
    nvcomp_bench::NvcompBench,
    press::{TileRule, pressed_stride},
};

/// The slots for tiles of one kind, and what becomes of them.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) rule: TileRule,
    pub(super) slots: u32,
    pub(super) used: u32,
    /// Bytes from slot to slot.
    pub(super) stride: usize,
    pub(super) pieces: u32,
    pub(super) pressed_stride: usize,
    pub(super) tiles: DeviceBuffer,
    /// `None` where tiles are packed as they are.
    pub(super) pressed: Option<DeviceBuffer>,
    pub(super) scratch: Option<DeviceBuffer>,
    pub(super) nvcomp: Option<NvcompBench>,
    pub(super) facts: FactsAt,
}

impl Bench {
    /// Lengths of the buffers that a bench has.
    pub(super) fn buffers(gpu: &Arc<Gpu>, rule: &TileRule, slots: u32) -> Result<Vec<usize>, DeviceError> {
        let (slots, len) = (slots as usize, rule.tile_len());
        let stride = len.next_multiple_of(16);
        let pieces = rule.pieces() as usize;
        let mut lens = vec![slots * stride + 16];
        if let Some(encoding) = rule.press.encoding() {
            lens.push(slots * pieces * pressed_stride(rule.press, len, rule.row_len()));
            lens.push(encoding.scratch_len(&gpu.memory, slots, pieces, stride)?);
        }
        if rule.press.is_nvcomp() {
            lens.extend(NvcompBench::buffers(gpu, rule.press, slots, len)?);
        }
        Ok(lens)
    }

    pub(super) fn new(
        gpu: &Arc<Gpu>,
        streams: &Streams,
        rule: TileRule,
        slots: u32,
        facts: FactsAt,
    ) -> Result<Self, DeviceError> {
        let (memory, meter) = (&gpu.memory, streams.meter());
        let mut lens = Self::buffers(gpu, &rule, slots)?.into_iter();
        let mut next = || memory.buffer(lens.next().unwrap_or(0).max(1), meter);
        let len = rule.tile_len();
        let tiles = next()?;
        let (pressed, scratch) = match rule.press.encoding() {
            Some(_) => (Some(next()?), Some(next()?)),
            None => (None, None),
        };
        let at = (&tiles, len.next_multiple_of(16));
        let nvcomp = match rule.press.is_nvcomp() {
            true => Some(NvcompBench::new(gpu, streams, rule.press, slots as usize, len, at)?),
            false => None,
        };
        Ok(Self {
            slots,
            used: 0,
            stride: len.next_multiple_of(16),
            pieces: rule.pieces(),
            pressed_stride: pressed_stride(rule.press, len, rule.row_len()),
            tiles,
            pressed,
            scratch,
            nvcomp,
            facts,
            rule,
        })
    }

    pub(super) fn part<'a>(&self, facts: &'a DeviceBuffer, offset: usize, len: usize) -> Part<'a> {
        Part { buffer: facts, offset, len: len * self.slots as usize }
    }

    /// Compresses and packs what the slots hold.
    pub(super) fn run(
        &self,
        streams: &Streams,
        facts: &DeviceBuffer,
        packed: &DeviceBuffer,
    ) -> Result<(), DeviceError> {
        let at = &self.facts;
        let lens = self.part(facts, at.lens, 4);
        let sizes = self.part(facts, at.sizes, 4 * self.pieces as usize);
        let checks = self.part(facts, at.checks, 4);
        let wrap = self.rule.press.wrap(self.rule.frame);
        if wrap.adler {
            encoding::adler(streams, WORK, &self.tiles, self.stride, lens, checks, self.used)?;
        }
        let (pressed, pressed_stride, sizes) = match (self.rule.press.encoding(), &self.pressed, &self.nvcomp) {
            (Some(encoding), Some(pressed), _) => {
                let spec = &self.rule.spec;
                let batch = EncodeBatch {
                    tiles: &self.tiles,
                    stride: self.stride,
                    pressed,
                    pressed_stride: self.pressed_stride,
                    lens,
                    sizes,
                    scratch: self.scratch.as_ref(),
                    count: self.used,
                    pieces: self.pieces,
                    piece_len: self.rule.press.piece_len(self.rule.tile_len()),
                    effort: self.rule.press.effort(),
                    row_len: self.rule.row_len(),
                    pixel_len: (usize::from(spec.samples) * spec.sample.size()).max(1),
                };
                encoding.launch(streams, WORK, &batch)?;
                (pressed, self.pressed_stride, sizes)
            }
            (_, _, Some(nvcomp)) => {
                nvcomp.run(streams, WORK, &self.tiles, lens, sizes, self.used)?;
                (nvcomp.pressed(), nvcomp.stride(), sizes)
            }
            // As they are: the lengths are the sizes.
            _ => (&self.tiles, self.stride, lens),
        };
        let batch = PackBatch {
            pressed,
            pressed_stride,
            packed,
            lens,
            sizes,
            checks: wrap.adler.then_some(checks),
            wholes: self.part(facts, at.wholes, 4),
            offsets: self.part(facts, at.offsets, 8),
            total: Part { buffer: facts, offset: 0, len: 16 },
            count: self.used,
            pieces: if self.pressed.is_some() { self.pieces } else { 1 },
        };
        encoding::pack(streams, WORK, &wrap, &batch)
    }

    /// What became of the tiles, as the facts say.
    pub(super) fn results(&self, facts: &[u8]) -> Vec<Pressed> {
        let at = &self.facts;
        (0..self.used as usize)
            .map(|slot| {
                let whole = read_u32(facts, at.wholes + slot * 4);
                let start = read_u64(facts, at.offsets + slot * 8) as usize;
                match whole {
                    0 => Pressed::Nothing,
                    u32::MAX => Pressed::Refused("its stream did not fit into the room that was made for it".into()),
                    len => Pressed::At(start..start + len as usize),
                }
            })
            .collect()
    }
}

/// What became of a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pressed {
    /// It is left out.
    Nothing,
    /// These bytes of what landed, with all that stands around it.
    At(std::ops::Range<usize>),
    /// These bytes, which a library handed out on the host, without anything around them.
    Host(Vec<u8>),
    /// The device could not compress it; in words why.
    Refused(String),
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u32::from_ne_bytes(*raw))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_ne_bytes(*raw))
}
