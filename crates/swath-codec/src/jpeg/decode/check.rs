//! Checks the coded data of a sequential frame without decoding it, for GPU decoders that do not report damage. It looks up every
//! code and skips every extra bit, but stores no coefficient and transforms nothing.
//!
//! Markers, tables, scans and restarts are handled by the decoder's functions ([`visit`](super::lossy::visit),
//! [`FrameState::scan_components`], [`Restarts`]); only the loop over the codes of a block differs, because it can skip several at once.

use super::Stream;
use super::bits::{Reader, Restarts};
use super::error::{Fault, JpegError};
use super::huffman::{END, NO_SKIP, SKIP_BITS, SkipTable, Table};
use super::lossy::{FrameState, MCU_BLOCKS, Visitor, Work, entropy};
use super::markers::{Scan, StreamTables};
use swath_raster::simd::{HotLoop, widest};

/// Visits the scans of a sequential frame.
pub(super) struct Check<'f> {
    pub frame_state: FrameState<'f>,
}

impl<'f> Visitor<'f> for Check<'f> {
    fn frame_state(&mut self) -> &mut FrameState<'f> {
        &mut self.frame_state
    }

    fn scan(
        &mut self,
        stream: &Stream<'_>,
        stream_tables: &StreamTables,
        scan: &Scan,
        work: &mut Work,
    ) -> Result<usize, JpegError> {
        let sequential = self.frame_state.scan_components(stream_tables, scan)?;
        let (mut restarts, end) = entropy(stream, scan, &sequential.walk, &mut work.entropy, &mut work.segments)?;
        let mut blocks = [None; MCU_BLOCKS];
        for (block, mcu_block) in blocks.iter_mut().zip(sequential.mcu_blocks()) {
            if let Some(component) = sequential.components.get(mcu_block.component).and_then(Option::as_ref) {
                let (dc_skips, ac_skips) = (component.dc.skips()?, component.ac.skips()?);
                *block = Some(Block { dc: component.dc, dc_skips, ac: component.ac, ac_skips });
            }
        }
        let mcus = sequential.walk.mcus_w * sequential.walk.mcus_h;
        widest(Pass { blocks: &blocks, restarts: &mut restarts, mcus });
        self.frame_state.damage = self.frame_state.damage.or(restarts.damage);
        Ok(end)
    }
}

/// The tables of one block of an MCU.
#[derive(Clone, Copy)]
struct Block<'a> {
    dc: &'a Table,
    dc_skips: &'a SkipTable,
    ac: &'a Table,
    ac_skips: &'a SkipTable,
}

/// Checks the MCUs of a scan, up to the first damage.
struct Pass<'t, 'a> {
    blocks: &'t [Option<Block<'a>>; MCU_BLOCKS],
    restarts: &'t mut Restarts<'a>,
    mcus: usize,
}

impl HotLoop for Pass<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { blocks, restarts, mcus } = self;
        let mut reader = restarts.reader();
        for _ in 0..mcus {
            if restarts.due(1) {
                reader = restarts.restart();
            }
            for block in blocks.iter().map_while(Option::as_ref) {
                if !block.pass(&mut reader) {
                    restarts.fault(Fault::BadCode);
                    break;
                }
            }
            if reader.overrun() {
                restarts.fault(Fault::Truncated);
            }
            if restarts.damage.is_some() {
                return;
            }
        }
    }
}

// A refill must suffice for two skips in `Block::pass`, the last code of each with 15 extra bits.
const _: () = assert!(2 * (SKIP_BITS + 15) <= 56);

impl Block<'_> {
    /// Skips one block; returns `false` where a code or a run is invalid.
    #[inline(always)]
    fn pass(&self, reader: &mut Reader<'_>) -> bool {
        let at = |reader: &Reader<'_>| (reader.buf >> (64 - SKIP_BITS)) as usize;
        reader.refill();
        let skip = self.dc_skips[at(reader)];
        if skip >> 16 < NO_SKIP {
            reader.drop(skip);
        } else {
            let mut bad = false;
            self.dc.difference(reader, &mut bad);
            if bad {
                return false;
            }
        }
        let mut k = 1;
        loop {
            // Enough for two skips.
            reader.refill();
            for _ in 0..2 {
                let skip = self.ac_skips[at(reader)];
                if k + (skip >> 16) >= 64 {
                    match self.single(reader, k) {
                        Some(next) if next < 64 => k = next,
                        ended => return ended.is_some(),
                    }
                    break;
                }
                reader.drop(skip);
                k += skip >> 8 & 255;
                if k >= 64 {
                    // The last coefficient, or the end of the block.
                    return k == 64 || k >= END as u32;
                }
            }
        }
    }

    /// Skips one code at coefficient `k`, where a skip would leave the block or the code is long; returns the next coefficient, or
    /// `None` where the code or the run is invalid.
    #[inline(always)]
    fn single(&self, reader: &mut Reader<'_>, k: u32) -> Option<u32> {
        reader.refill();
        let mut bad = false;
        let (run, size) = self.ac.run_size(reader, &mut bad);
        reader.drop(size);
        match (run, size) {
            _ if bad => None,
            (15, 0) => Some(k + 16),
            (_, 0) => Some(64),
            _ => Some(k + run + 1).filter(|next| *next <= 64),
        }
    }
}
