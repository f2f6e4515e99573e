//! Encodes PackBits streams, searching for runs a word at a time.
//!
//! A run is worth a packet from three bytes on: two bytes of the packet and one for the header of the next literal are never more
//! than the run itself. A pair is worth a packet only where no literal next to it can include it.
#![forbid(unsafe_code)]

use super::LONGEST_PACKET;
use swath_raster::{
    memory::OutOfMemory,
    simd::{HotLoop, widest},
};

/// Bytes copied of every literal before testing its length; most literals of real rasters are shorter.
const CHUNK: usize = 32;
/// Bytes searched at once in a long literal.
const BLOCK: usize = 32;
/// Bytes that a literal may overwrite past its end.
const SLACK: usize = LONGEST_PACKET + 1;

const ONES: u64 = u64::from_le_bytes([1; 8]);
const TOPS: u64 = u64::from_le_bytes([0x80; 8]);

/// Returns an upper bound for the bytes that [`encode`] appends for `len` bytes in rows of `row_len`.
#[must_use]
pub fn max_encoded_len(len: usize, row_len: usize) -> usize {
    // A run saves at least one byte, which pays for the header of the next literal. So a row of literals only is the worst case.
    let rows = len.checked_div(row_len).unwrap_or(0);
    let rest = len - rows * row_len;
    let headers = rows.saturating_mul(row_len.div_ceil(LONGEST_PACKET)).saturating_add(rest.div_ceil(LONGEST_PACKET));
    len.saturating_add(headers)
}

/// Appends the packets of `src` to `dst`. No packet crosses from one row of `row_len` bytes to the next.
///
/// The last row may be short. With a `row_len` of 0 all of `src` is one row.
///
/// # Errors
/// When the system has no memory for the longest stream; `dst` is then unchanged.
pub fn encode(src: &[u8], row_len: usize, dst: &mut Vec<u8>) -> Result<(), OutOfMemory> {
    // Rows are encoded into twice the room that one may need.
    let row = if row_len == 0 { src.len() } else { row_len.min(src.len()) };
    let room = max_encoded_len(row, 0).saturating_add(SLACK).saturating_mul(2);
    let most = max_encoded_len(src.len(), row_len).saturating_add(room);
    dst.try_reserve(most).map_err(|_| OutOfMemory { bytes: most as u64 })?;
    widest(Encode { src, row_len, dst });
    Ok(())
}

struct Encode<'a> {
    src: &'a [u8],
    row_len: usize,
    dst: &'a mut Vec<u8>,
}

impl HotLoop for Encode<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Self { src, row_len, dst } = self;
        let mut pos = dst.len();
        let step = if row_len == 0 { src.len() } else { row_len };
        let mut from = 0;
        while from < src.len() {
            let to = src.len().min(from.saturating_add(step));
            // Room for this row and as much again, not for all rows at once: where rows compress well, zeroing all of it would
            // be wasted.
            let room = max_encoded_len(to - from, 0) + SLACK;
            if dst.len() - pos < room {
                dst.resize(pos + 2 * room, 0);
            }
            pos = row(src, from, to, dst, pos);
            from = to;
        }
        dst.truncate(pos);
    }
}

/// Encodes `src[from..to]` to `out[pos..]`; returns the end of the packets.
#[inline(always)]
fn row(src: &[u8], from: usize, to: usize, out: &mut [u8], pos: usize) -> usize {
    let (mut from, mut pos) = (from, pos);
    while from < to {
        let start = triple(src, from, to);
        if start > from {
            pos = literal(src, from, start, out, pos);
        }
        let Some(&byte) = src.get(start..to).and_then(|rest| rest.first()) else { break };
        let mut left = run_len(src, start, to, byte);
        from = start + left;
        while left > 2 {
            let n = left.min(LONGEST_PACKET);
            pos = run(n, byte, out, pos);
            left -= n;
        }
        // The next literal begins with the one or two bytes beyond whole packets.
        from -= left;
    }
    pos
}

/// Returns the first position in `from..to` where three equal bytes begin, all before `to`; else `to`.
#[inline(always)]
fn triple(src: &[u8], from: usize, to: usize) -> usize {
    let mut at = from;
    while at + 2 < to {
        let Some(&[a, b, c, d, e, f, g, h, i, j]) = src.get(at..).and_then(|rest| rest.first_chunk()) else {
            let rest = src.get(at..to).unwrap_or_default();
            return rest.windows(3).position(|w| w[0] == w[1] && w[1] == w[2]).map_or(to, |found| at + found);
        };
        let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let second = u64::from_le_bytes([b, c, d, e, f, g, h, i]);
        let third = u64::from_le_bytes([c, d, e, f, g, h, i, j]);
        let differ = (word ^ second) | (word ^ third);
        // The lowest mark is exact; those above it may come from a borrow.
        let marks = differ.wrapping_sub(ONES) & !differ & TOPS;
        if marks != 0 {
            let found = at + (marks.trailing_zeros() / 8) as usize;
            return if found + 2 < to { found } else { to };
        }
        at += 8;
        // Few literals are much longer than a word, but those take most of the time.
        if at >= from + 24 {
            while let Some(block) = src.get(at..).and_then(|rest| rest.first_chunk::<{ BLOCK + 2 }>()) {
                let some = (0..BLOCK)
                    .fold(0, |some, k| some | u8::from(block[k] == block[k + 1]) & u8::from(block[k] == block[k + 2]));
                if some != 0 || at >= to {
                    break;
                }
                at += BLOCK;
            }
        }
    }
    to
}

/// Returns the length of the run of `byte` at `from`, up to `to`.
#[inline(always)]
fn run_len(src: &[u8], from: usize, to: usize, byte: u8) -> usize {
    let mut at = from;
    while at < to {
        let Some(word) = src.get(at..).and_then(|rest| rest.first_chunk()) else {
            let rest = src.get(at..to).unwrap_or_default();
            return at - from + rest.iter().take_while(|&&other| other == byte).count();
        };
        let differ = u128::from_le_bytes(*word) ^ u128::from_le_bytes([byte; 16]);
        if differ != 0 {
            return (at + (differ.trailing_zeros() / 8) as usize).min(to) - from;
        }
        at += 16;
    }
    to - from
}

#[inline(always)]
fn run(n: usize, byte: u8, out: &mut [u8], pos: usize) -> usize {
    if let Some(slot) = out.get_mut(pos..).and_then(|rest| rest.first_chunk_mut()) {
        *slot = [(257 - n) as u8, byte];
    }
    pos + 2
}

/// Writes bytes without runs of three.
#[inline(always)]
fn literal(src: &[u8], from: usize, to: usize, out: &mut [u8], pos: usize) -> usize {
    if to - from <= LONGEST_PACKET && src.get(from) != src.get(from + 1) {
        return packet(src, from, to - from, out, pos);
    }
    long_literal(src, from, to, out, pos)
}

/// Does the same as `literal` for the rare ones that may save a header.
#[inline(always)]
fn long_literal(src: &[u8], from: usize, to: usize, out: &mut [u8], pos: usize) -> usize {
    let (mut from, mut to, mut pos) = (from, to, pos);
    let bytes = src.get(from..to).unwrap_or_default();
    let (pairs, odd) = bytes.as_chunks::<2>();
    if odd.is_empty() && pairs.iter().all(|[a, b]| a == b) {
        for pair in pairs {
            pos = run(2, pair[0], out, pos);
        }
        return pos;
    }
    // A pair at either end costs two bytes in any case; as a packet of its own it may save the last literal packet.
    let mut after = None;
    if bytes.len() > LONGEST_PACKET && matches!(bytes.len() % LONGEST_PACKET, 1 | 2) {
        match bytes {
            [a, b, ..] if a == b => {
                pos = run(2, *a, out, pos);
                from += 2;
            }
            [.., a, b] if a == b => {
                after = Some(*a);
                to -= 2;
            }
            _ => {}
        }
    }
    while from < to {
        let n = LONGEST_PACKET.min(to - from);
        pos = packet(src, from, n, out, pos);
        from += n;
    }
    after.map_or(pos, |byte| run(2, byte, out, pos))
}

/// Writes one literal of `n <= 128` bytes.
#[inline(always)]
fn packet(src: &[u8], from: usize, n: usize, out: &mut [u8], pos: usize) -> usize {
    let Some([header, data @ ..]) = out.get_mut(pos..).and_then(|rest| rest.first_chunk_mut::<SLACK>()) else {
        return pos;
    };
    *header = n.wrapping_sub(1) as u8;
    if let Some(bytes) = src.get(from..).and_then(|rest| rest.first_chunk::<LONGEST_PACKET>()) {
        data[..CHUNK].copy_from_slice(&bytes[..CHUNK]);
        if n > CHUNK {
            data[CHUNK..].copy_from_slice(&bytes[CHUNK..]);
        }
    } else if let (Some(data), Some(bytes)) = (data.get_mut(..n), src.get(from..from + n)) {
        data.copy_from_slice(bytes);
    }
    pos + 1 + n
}

#[cfg(test)]
mod tests {
    use super::super::decode::{PackBitsEnd, decode};
    use super::*;

    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize
        }

        fn runs(&mut self, len: usize, values: usize, most: usize) -> Vec<u8> {
            let mut out = Vec::new();
            while out.len() < len {
                let (byte, n) = (self.next() % values, 1 + self.next() % most);
                out.extend(std::iter::repeat_n(byte as u8, n));
            }
            out.truncate(len);
            out
        }
    }

    /// Checks that every row ends with a packet, that rows come back, and the bound.
    fn check(data: &[u8], row_len: usize) -> usize {
        let mut packed = b"kept".to_vec();
        encode(data, row_len, &mut packed).unwrap();
        let packed = packed.strip_prefix(b"kept").unwrap();
        assert!(packed.len() <= max_encoded_len(data.len(), row_len), "{} bytes by {row_len}", data.len());
        let mut out = vec![0; data.len()];
        assert_eq!(decode(packed, &mut out), Ok(PackBitsEnd::Exact));
        assert!(out == data, "{} bytes by {row_len}", data.len());
        let (mut at, mut made) = (0, 0);
        let mut turn = if row_len == 0 { data.len() } else { row_len };
        while at < packed.len() {
            assert_ne!(packed[at], 128);
            let (n, read) = if packed[at] < 128 {
                (usize::from(packed[at]) + 1, usize::from(packed[at]) + 2)
            } else {
                (257 - usize::from(packed[at]), 2)
            };
            at += read;
            made += n;
            assert!(made <= turn, "a packet crosses the end of a row");
            if made == turn {
                turn += row_len;
            }
        }
        assert_eq!((at, made), (packed.len(), data.len()));
        packed.len()
    }

    /// The fewest bytes there can be, by trying every packet.
    fn fewest(data: &[u8]) -> usize {
        let mut cost = vec![usize::MAX; data.len() + 1];
        cost[0] = 0;
        for at in 0..data.len() {
            let run = data[at..].iter().take_while(|&&b| b == data[at]).count();
            for n in 1..=LONGEST_PACKET.min(data.len() - at) {
                let packet = if n > 1 && n <= run { 2 } else { 1 + n };
                cost[at + n] = cost[at + n].min(cost[at] + packet);
            }
        }
        cost[data.len()]
    }

    #[test]
    fn round_trips_every_short_length() {
        let mut noise = Noise(1);
        for len in 0..600 {
            for (values, most) in [(256, 1), (2, 1), (3, 4), (5, 200), (256, 2), (1, 1)] {
                let data = noise.runs(len, values, most);
                for row_len in [0, 1, 2, 3, 7, 127, 128, 129, 256, len] {
                    check(&data, row_len);
                }
            }
        }
    }

    #[test]
    fn round_trips_long_data_of_all_kinds() {
        let mut noise = Noise(2);
        for round in 0..300 {
            let (values, most) = (1 + noise.next() % 256, 1 + noise.next() % if round % 3 == 0 { 400 } else { 4 });
            let (len, row_len) = (noise.next() % 60_000, noise.next() % 3000);
            check(&noise.runs(len, values, most), row_len);
        }
        assert_eq!(check(&vec![0; 1 << 20], 0), 1 << 14);
        assert_eq!(check(&vec![0; 1 << 20], 512), 1 << 14);
    }

    #[test]
    fn is_nearly_as_small_as_possible() {
        let mut noise = Noise(3);
        for round in 0..3000 {
            let (values, most) = (1 + noise.next() % 30, 1 + noise.next() % 6);
            let len = 1 + noise.next() % if round % 2 == 0 { 100 } else { 700 };
            let data = noise.runs(len, values, most);
            let (ours, best) = (check(&data, 0), fewest(&data));
            assert!(ours <= best + len / 128, "{ours} bytes, not {best}: {data:?}");
        }
    }

    #[test]
    fn packs_the_example_of_the_specification() {
        let data =
            [[0xaa, 0xaa, 0xaa, 0x80, 0, 0x2a].as_slice(), &[0xaa; 4], &[0x80, 0, 0x2a, 0x22], &[0xaa; 10]].concat();
        let mut packed = Vec::new();
        encode(&data, 0, &mut packed).unwrap();
        assert_eq!(packed, [0xfe, 0xaa, 2, 0x80, 0, 0x2a, 0xfd, 0xaa, 3, 0x80, 0, 0x2a, 0x22, 0xf7, 0xaa]);
    }

    #[test]
    fn the_bound_takes_any_length() {
        assert_eq!(max_encoded_len(usize::MAX, 1), usize::MAX);
        assert_eq!(max_encoded_len(1000, 0), 1008);
        assert_eq!(max_encoded_len(1000, 300), 1010);
    }
}
