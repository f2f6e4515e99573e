//! Decodes progressive scans (T.81 G): each adds bits or frequencies to the frame's coefficients.

use super::baseline::BlockGroup;
use super::bits::{Reader, Restarts};
use super::error::{Fault, JpegError};
use super::huffman::{Table, extend};
use super::markers::{Scan, ZIGZAG};
use crate::jpeg::dct::LANES;
use swath_raster::simd::HotLoop;

/// A block's coefficients in natural order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub coefs: [i16; 64],
    /// Bit mask of the non-zero coefficients in zigzag order: refinement jumps from one to the next instead of testing each.
    nonzero: u64,
}

impl Default for Block {
    fn default() -> Self {
        Self { coefs: [0; 64], nonzero: 0 }
    }
}

impl Block {
    #[inline(always)]
    fn set(&mut self, k: usize, value: i16) {
        // Indices past the end select the last coefficient, as in `ZIGZAG`.
        let bit = k.min(63);
        self.coefs[usize::from(ZIGZAG[bit] & 63)] = value;
        self.nonzero = self.nonzero & !(1 << bit) | u64::from(value != 0) << bit;
    }
}

/// The kind of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

impl Pass {
    /// Checks the scan's parameters as libjpeg does.
    pub fn of(scan: &Scan) -> Result<Self, JpegError> {
        let band = match scan.start {
            0 => scan.end == 0,
            start => start <= scan.end && scan.end < 64 && scan.components().len() == 1,
        };
        if !band || scan.low > 13 || (scan.high != 0 && scan.high - 1 != scan.low) {
            return Err(JpegError::Malformed { what: "invalid progression parameters", offset: scan.offset });
        }
        Ok(match (scan.start, scan.high) {
            (0, 0) => Self::DcFirst,
            (0, _) => Self::DcRefine,
            (_, 0) => Self::AcFirst,
            _ => Self::AcRefine,
        })
    }
}

/// A component of a progressive scan.
pub(super) struct ScanComponent<'a> {
    pub h: usize,
    pub v: usize,
    /// The table the pass needs; none for DC refinement.
    pub table: Option<&'a Table>,
    pub prediction: i32,
    /// Index of its first block, and blocks in a row.
    pub first: usize,
    pub stride: usize,
}

/// One row of MCUs.
pub(super) struct McuRow<'t, 'a> {
    pub components: &'t mut [Option<ScanComponent<'a>>; 4],
    pub blocks: &'t mut [Block],
    pub restarts: &'t mut Restarts<'a>,
    pub reader: Reader<'a>,
    /// Blocks that remain in the current end-of-band run.
    pub run: &'t mut u32,
    pub pass: Pass,
    pub scan: &'t Scan,
    pub mcus: usize,
    pub row: usize,
}

impl<'a> HotLoop for McuRow<'_, 'a> {
    type Output = Reader<'a>;

    #[inline(always)]
    fn run(self) -> Reader<'a> {
        let Self { components, blocks, restarts, mut reader, run, pass, scan, mcus, row } = self;
        let (start, end, low) = (usize::from(scan.start), usize::from(scan.end), u32::from(scan.low));
        for mcu in 0..mcus {
            if restarts.due(1) {
                reader = restarts.restart();
                components.iter_mut().flatten().for_each(|c| c.prediction = 0);
                *run = 0;
            }
            if restarts.exhausted {
                continue;
            }
            let mut bad = false;
            for component in components.iter_mut().flatten() {
                for (v, h) in (0..component.v).flat_map(|v| (0..component.h).map(move |h| (v, h))) {
                    let at = component.first + (row * component.v + v) * component.stride + mcu * component.h + h;
                    let Some(block) = blocks.get_mut(at) else { continue };
                    reader.refill();
                    match (pass, component.table) {
                        (Pass::DcFirst, Some(table)) => {
                            component.prediction =
                                component.prediction.wrapping_add(table.difference(&mut reader, &mut bad));
                            block.coefs[0] = (component.prediction << low) as i16;
                        }
                        (Pass::AcFirst, Some(table)) => {
                            ac_first(&mut reader, table, block, start, end, low, run, &mut bad);
                        }
                        (Pass::AcRefine, Some(table)) => {
                            ac_refine(&mut reader, table, block, start, end, low, run, &mut bad);
                        }
                        _ => block.coefs[0] |= (reader.take(1) << low) as i16,
                    }
                }
            }
            if bad {
                restarts.fault(Fault::BadCode);
            }
            if reader.overrun() {
                restarts.exhausted = true;
                restarts.fault(Fault::Truncated);
            }
        }
        reader
    }
}

/// Reads the length of an end-of-band run of category `run`.
#[inline(always)]
fn band_run(reader: &mut Reader<'_>, run: u32) -> u32 {
    (1 << run) + if run == 0 { 0 } else { reader.take(run) }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the state of one inner loop")]
fn ac_first(
    reader: &mut Reader<'_>,
    table: &Table,
    block: &mut Block,
    start: usize,
    end: usize,
    low: u32,
    band: &mut u32,
    bad: &mut bool,
) {
    if *band > 0 {
        *band -= 1;
        return;
    }
    let mut k = start;
    while k <= end {
        reader.ensure32();
        let (run, size) = table.run_size(reader, bad);
        if size != 0 {
            k += run as usize;
            *bad |= k > end;
            block.set(k, (extend(reader.take(size), size) << low) as i16);
            k += 1;
        } else if run == 15 {
            k += 16;
        } else {
            *band = band_run(reader, run) - 1;
            break;
        }
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the state of one inner loop")]
fn ac_refine(
    reader: &mut Reader<'_>,
    table: &Table,
    block: &mut Block,
    start: usize,
    end: usize,
    low: u32,
    band: &mut u32,
    bad: &mut bool,
) {
    let plus = (1i32 << low) as i16;
    let mut k = start;
    if *band == 0 {
        while k <= end {
            reader.ensure32();
            let (mut run, size) = table.run_size(reader, bad);
            let mut fresh = 0;
            if size != 0 {
                fresh = if reader.take(1) != 0 { plus } else { -plus };
            } else if run != 15 {
                *band = band_run(reader, run);
                break;
            }
            // Skips to the zero after `run` zeros, correcting non-zero coefficients in between.
            loop {
                let next = following(block, k, end);
                let zeros = next - k;
                if (run as usize) < zeros {
                    k += run as usize;
                    break;
                }
                run -= zeros as u32;
                k = next;
                if k > end {
                    break;
                }
                refine(reader, block, k, plus);
                k += 1;
            }
            if fresh != 0 {
                *bad |= k > end;
                block.set(k, fresh);
            }
            k += 1;
        }
    }
    if *band > 0 {
        loop {
            k = following(block, k, end);
            if k > end {
                break;
            }
            refine(reader, block, k, plus);
            k += 1;
        }
        *band -= 1;
    }
}

/// Returns the first non-zero coefficient from `k` on, or `end + 1`.
#[inline(always)]
fn following(block: &Block, k: usize, end: usize) -> usize {
    let rest = if k < 64 { block.nonzero >> k } else { 0 };
    (k + rest.trailing_zeros() as usize).min(end + 1).max(k)
}

/// Applies a correction bit: moves a coefficient away from zero, unless it already has this bit.
#[inline(always)]
fn refine(reader: &mut Reader<'_>, block: &mut Block, k: usize, plus: i16) {
    let coef = &mut block.coefs[usize::from(ZIGZAG[k & 127] & 63)];
    reader.ensure32();
    if reader.take(1) != 0 && *coef & plus == 0 {
        *coef = coef.wrapping_add(if *coef >= 0 { plus } else { -plus });
    }
}

/// Copies blocks to the lanes of a group.
pub(super) fn gather(blocks: &[Block], group: &mut BlockGroup) {
    for (lane, block) in blocks.iter().enumerate() {
        for (coef, to) in block.coefs.iter().zip(group.coefs.chunks_exact_mut(LANES)) {
            to[lane % LANES] = *coef;
        }
    }
    group.used = 64;
}
