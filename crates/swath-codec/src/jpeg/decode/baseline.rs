//! Decodes sequential scans (T.81 F.2) into groups of blocks, which are transformed as soon as a group is full.

use super::bits::{Reader, Restarts};
use super::error::Fault;
use super::huffman::{END, FAST_BITS, PAIR, PAIR_END, Table, WHOLE, extend};
use super::idct;
use super::markers::ZIGZAG;
use super::sample::Sample;
use crate::jpeg::dct::{Group, LANES};
use swath_raster::simd::HotLoop;

/// MCUs decoded between transforms: as many as there are lanes, so that every component fills whole groups whatever its sampling.
pub(super) const MCUS_AT_ONCE: usize = LANES;

/// Index of the first lane of each zigzag position in a group.
const SPREAD: [u16; 128] = {
    let mut table = [0; 128];
    let mut k = 0;
    while k < 128 {
        table[k] = ZIGZAG[k] as u16 * LANES as u16;
        k += 1;
    }
    table
};

/// A group of blocks that wait for their transform, one per lane.
#[derive(Debug, Clone)]
pub(super) struct BlockGroup {
    pub coefs: Group<i16>,
    /// Number of coefficients in zigzag order, up to the last non-zero one of any block.
    pub used: usize,
}

impl Default for BlockGroup {
    fn default() -> Self {
        Self { coefs: [0; 64 * LANES], used: 0 }
    }
}

/// Intermediate values between the two passes of a transform.
#[derive(Debug)]
pub(super) struct Between(Group<i32>);

impl Default for Between {
    fn default() -> Self {
        Self([0; 64 * LANES])
    }
}

/// A component of a sequential scan.
pub(super) struct ScanComponent<'a> {
    pub index: usize,
    /// Blocks across and down in an MCU.
    pub h: usize,
    pub v: usize,
    pub stride: usize,
    pub dc: &'a Table,
    pub ac: &'a Table,
    pub quant: [u16; 64],
    pub prediction: i32,
    /// Index of its first group; it has `h` groups for each of `v` rows of blocks.
    pub first_group: usize,
}

/// One block of an MCU, in coding order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct McuBlock {
    /// Index of its component in the scan.
    pub component: usize,
    /// Its column in the MCU.
    pub x: usize,
    /// Index of the first group of its row of blocks.
    pub first_group: usize,
}

/// Entropy-decodes up to [`MCUS_AT_ONCE`] MCUs of a row. Separate from the transform, so that this loop has all registers.
pub(super) struct DecodeMcus<'t, 'a> {
    pub components: &'t mut [Option<ScanComponent<'a>>; 4],
    pub mcu_blocks: &'t [McuBlock],
    pub groups: &'t mut [BlockGroup],
    pub restarts: &'t mut Restarts<'a>,
    pub reader: Reader<'a>,
    pub mcus: usize,
}

impl<'a> HotLoop for DecodeMcus<'_, 'a> {
    type Output = Reader<'a>;

    #[inline(always)]
    fn run(self) -> Reader<'a> {
        let Self { components, mcu_blocks, groups, restarts, mut reader, mcus } = self;
        for mcu in 0..mcus {
            if restarts.due(1) {
                reader = restarts.restart();
                components.iter_mut().flatten().for_each(|c| c.prediction = 0);
            }
            if restarts.exhausted {
                continue;
            }
            let mut bad = false;
            for mcu_block in mcu_blocks {
                let Some(component) = components.get_mut(mcu_block.component).and_then(Option::as_mut) else {
                    continue;
                };
                let x = mcu * component.h + mcu_block.x;
                let Some(group) = groups.get_mut(mcu_block.first_group + x / LANES) else { continue };
                let used = block(&mut reader, component, &mut group.coefs, x % LANES, &mut bad);
                group.used = group.used.max(used);
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

/// Transforms a group into samples at `at` of its plane, and clears it.
pub(super) struct Transform<'t, S> {
    pub group: &'t mut BlockGroup,
    pub quant: &'t [u16; 64],
    pub between: &'t mut Between,
    pub plane: &'t mut [S],
    pub at: usize,
    pub stride: usize,
}

impl<S: Sample> HotLoop for Transform<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { group, quant, between, plane, at, stride } = self;
        let coefs = &mut group.coefs;
        // The first ten coefficients in zigzag order lie in the first four rows and columns.
        if group.used > 10 {
            idct::group::<S, false>(coefs, quant, &mut between.0, plane, at, stride);
            coefs.fill(0);
        } else if group.used > 1 {
            idct::group::<S, true>(coefs, quant, &mut between.0, plane, at, stride);
            coefs[..32 * LANES].fill(0);
        } else {
            idct::flat_group(coefs, quant[0], plane, at, stride);
            coefs[..LANES].fill(0);
        }
        group.used = 0;
    }
}

// A refill must suffice for three lookups in `block`.
const _: () = assert!(56 - 2 * FAST_BITS >= 32);

/// Decodes one block into a lane; returns the number of coefficients up to its last.
#[inline(always)]
fn block(
    reader: &mut Reader<'_>,
    component: &mut ScanComponent<'_>,
    coefs: &mut Group<i16>,
    lane: usize,
    bad: &mut bool,
) -> usize {
    reader.refill();
    component.prediction = component.prediction.wrapping_add(component.dc.difference(reader, bad));
    coefs[lane & 7] = component.prediction as i16;
    let ac = component.ac;
    let mut put = |k: usize, value: i16| coefs[(usize::from(SPREAD[k & 127]) + lane) & 511] = value;
    let mut k = 1usize;
    // One refill is enough for three lookups, and the last may be the longest code. A branch on the remaining bits would be
    // unpredictable.
    'refill: while k < PAIR_END {
        reader.refill();
        for _ in 0..3 {
            let pair = ac.pairs[(reader.buf >> (64 - FAST_BITS)) as usize];
            if pair < PAIR {
                let before = k;
                if !single(reader, ac, 0, &mut k, &mut put, bad) {
                    return before;
                }
                continue 'refill;
            }
            reader.drop(pair as u32);
            put(k + (pair >> 8 & 255) as usize, (pair >> 48) as i16);
            put(k + (pair >> 16 & 255) as usize, (pair >> 32) as i16);
            k += (pair >> 24 & 255) as usize;
            if k >= PAIR_END {
                break 'refill;
            }
        }
    }
    // A pair's second coefficient may lie past the block.
    *bad |= k & (END as usize - 1) > 64;
    if k >= END as usize {
        return k - END as usize;
    }
    while k < 64 {
        reader.ensure32();
        if !single(reader, ac, WHOLE, &mut k, &mut put, bad) {
            break;
        }
    }
    64
}

/// Decodes one code; returns `false` at the end of the block.
#[inline(always)]
fn single(
    reader: &mut Reader<'_>,
    ac: &Table,
    whole: u32,
    k: &mut usize,
    put: &mut impl FnMut(usize, i16),
    bad: &mut bool,
) -> bool {
    let entry = ac.entry(reader);
    let value;
    if whole != 0 && entry >= whole {
        *k += (entry >> 12 & 15) as usize;
        value = (entry as i32 >> 16) as i16;
        reader.drop(entry);
    } else {
        let symbol = ac.symbol(entry, reader, bad);
        let (run, size) = (symbol >> 4, symbol & 15);
        if size == 0 {
            *k += 16;
            return run == 15;
        }
        *k += run as usize;
        value = extend(reader.take(size), size) as i16;
    }
    *bad |= *k > 63;
    put(*k, value);
    *k += 1;
    true
}
