//! Unpacks the bit-stuffed integers of a LERC block.

use super::header::Bytes;

/// The longest supported side of a block; encoders use 8 and 16.
pub(super) const MAX_SIDE: usize = 16;
pub(super) const MAX_BLOCK: usize = MAX_SIDE * MAX_SIDE;

/// Reads the steps of a block; returns their number and their bits.
#[inline(always)]
pub(super) fn unpack(bytes: &mut Bytes<'_>, most: usize, steps: &mut [u32; MAX_BLOCK + 8]) -> Option<(usize, u32)> {
    let head = bytes.u8()?;
    let bits = u32::from(head & 31);
    let count = match head >> 6 {
        0 => bytes.u32()? as usize,
        1 => usize::from(u16::from_le_bytes(*bytes.take(2)?.first_chunk()?)),
        2 => usize::from(bytes.u8()?),
        _ => return None,
    };
    if count > most || count > MAX_BLOCK {
        return None;
    }
    if head & 32 == 0 {
        if bits == 0 {
            steps.get_mut(..count)?.fill(0);
        } else {
            unstuff(bytes, count, bits, steps)?;
        }
        return Some((count, bits));
    }
    // A table of the occurring steps, without zero, which always occurs, and indices into it.
    let entries = usize::from(bytes.u8()?).checked_sub(1)?;
    let mut table = [0_u32; MAX_BLOCK + 8];
    unstuff(bytes, entries, bits, &mut table)?;
    let index_bits = usize::BITS - entries.leading_zeros();
    unstuff(bytes, count, index_bits, steps)?;
    for step in steps.get_mut(..count)? {
        let place = *step as usize;
        if place > entries {
            return None;
        }
        *step = if place == 0 { 0 } else { *table.get(place - 1)? };
    }
    Some((count, bits))
}

/// Reads `count` numbers of `bits` bits each, the lowest bit first.
#[inline(always)]
fn unstuff(bytes: &mut Bytes<'_>, count: usize, bits: u32, out: &mut [u32; MAX_BLOCK + 8]) -> Option<()> {
    if count == 0 || bits == 0 || bits > 31 {
        return None;
    }
    let groups = count.div_ceil(8);
    // Eight numbers fill `bits` bytes; reading whole words needs up to eight bytes more.
    let reach = groups * bits as usize + 8;
    let all = bytes.0;
    let own = bytes.take((count * bits as usize).div_ceil(8))?;
    let out = out.as_chunks_mut::<8>().0.get_mut(..groups)?;
    match all.get(..reach) {
        Some(src) => groups_of_width(src, bits, out),
        None => last_groups(own, bits, out),
    }
    Some(())
}

/// Reads the numbers at the end of the blob through a padded copy.
#[cold]
#[inline(never)]
fn last_groups(own: &[u8], bits: u32, out: &mut [[u32; 8]]) {
    let mut copy = [0; MAX_BLOCK / 8 * 31 + 8];
    if let Some(copy) = copy.get_mut(..own.len()) {
        copy.copy_from_slice(own);
    }
    groups_of_width(&copy, bits, out);
}

#[inline(always)]
fn groups_of_width(src: &[u8], bits: u32, out: &mut [[u32; 8]]) {
    macro_rules! widths {
        ($($width:literal)*) => {
            match bits {
                $($width => groups_of::<$width>(src, out),)*
                _ => {}
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

/// With a constant width all shifts are constant, and the lanes of a vector extract their numbers from one word.
#[inline(always)]
fn groups_of<const BITS: usize>(src: &[u8], out: &mut [[u32; 8]]) {
    let word = |src: &[u8], at: usize| {
        src.get(at..).and_then(|src| src.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let mask = (1_u64 << BITS) - 1;
    for (nth, out) in out.iter_mut().enumerate() {
        let Some(src) = src.get(nth * BITS..nth * BITS + BITS + 8) else { return };
        if 4 * BITS + 4 <= 64 {
            let (first, second) = (word(src, 0), word(src, BITS / 2) >> (BITS % 2 * 4));
            let (out_first, out_second) = out.split_at_mut(4);
            for (lane, out) in out_first.iter_mut().enumerate() {
                *out = (first >> (lane * BITS) & mask) as u32;
            }
            for (lane, out) in out_second.iter_mut().enumerate() {
                *out = (second >> (lane * BITS) & mask) as u32;
            }
        } else {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = (word(src, lane * BITS / 8) >> (lane * BITS % 8) & mask) as u32;
            }
        }
    }
}
