//! Entropy-coded bytes: removes byte stuffing, finds restarts, and reads bits.
//!
//! Stuffing is undone for a whole scan before decoding (about 1 % of decode time), so the bit reader can refill eight bytes at a time without looking for 0xFF.

use super::error::{JpegError, grow};

/// Entropy-coded data between two markers, after unstuffing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub start: usize,
    pub end: usize,
    /// The marker that ends it, 0 where the stream does.
    pub marker: u8,
    /// Offset of that marker in the stream.
    pub offset: usize,
}

/// Whether a damaged scan may contain the marker without ending there: restarts, and codes that libjpeg skips as garbage.
fn stays_in_scan(marker: u8) -> bool {
    marker < 0xC0 || (0xD0..=0xD7).contains(&marker)
}

/// Unstuffs the scan at `from` into `out`; returns the offset of the marker that ends it (or the length of `src`).
///
/// Only `max_segments` segments are kept, so that a stream of bare restart markers cannot make the list larger than the frame justifies.
pub(super) fn unstuff(
    src: &[u8],
    from: usize,
    max_segments: usize,
    out: &mut Vec<u8>,
    segments: &mut Vec<Segment>,
) -> Result<usize, JpegError> {
    let src_len = src.len();
    grow(out, src_len.saturating_sub(from))?;
    segments.clear();
    let (mut i, mut o, mut start) = (from, 0usize, 0usize);
    loop {
        while let Some(chunk) = src.get(i..).and_then(|s| s.first_chunk::<16>()) {
            let stuffed = chunk.iter().fold(0u8, |seen, &b| seen | u8::from(b == 0xFF));
            let Some(to) = out.get_mut(o..o + 16) else { break };
            if stuffed != 0 {
                break;
            }
            to.copy_from_slice(chunk);
            i += 16;
            o += 16;
        }
        let marker = loop {
            let Some(&byte) = src.get(i) else { break 0 };
            i += 1;
            if byte == 0xFF {
                while src.get(i) == Some(&0xFF) {
                    i += 1;
                }
                match src.get(i) {
                    None => break 0,
                    Some(0) => i += 1,
                    Some(&marker) => break marker,
                }
            }
            // `o` trails `i - from`, so the slot exists.
            if let Some(slot) = out.get_mut(o) {
                *slot = byte;
            }
            o += 1;
            if byte == 0xFF {
                break 0xFF;
            }
        };
        if marker == 0xFF {
            continue;
        }
        let offset = if marker == 0 { src_len } else { i - 1 };
        if segments.len() < max_segments {
            let bytes = (segments.len() * size_of::<Segment>()) as u64;
            segments.try_reserve(1).map_err(|_| JpegError::NoMemory { bytes })?;
            segments.push(Segment { start, end: o, marker, offset });
        } else {
            o = start;
        }
        if marker == 0 || !stays_in_scan(marker) {
            return Ok(offset);
        }
        i += 1;
        start = o;
    }
}

/// MSB-first bit reader over unstuffed bytes; past the end it reads zeros, as libjpeg does.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
    /// Left-aligned; bits below the top `bits` are either zero or the true next bits.
    pub buf: u64,
    /// Number of bits in the low byte; the upper bytes are unspecified, so that a whole table entry can be subtracted.
    bits: u32,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, pos: 0, buf: 0, bits: 0 }
    }

    /// Leaves at least 56 bits in the buffer.
    #[inline(always)]
    pub fn refill(&mut self) {
        let word = match self.data.get(self.pos..).and_then(|d| d.first_chunk::<8>()) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => tail(self.data, self.pos),
        };
        let bits = self.bits & 63;
        self.buf |= word >> bits;
        self.pos += ((63 - bits) >> 3) as usize;
        self.bits = bits | 56;
    }

    /// Leaves at least 32 bits, which is the longest Huffman code and its extra bits.
    #[inline(always)]
    pub fn ensure32(&mut self) {
        if (self.bits as u8) < 32 {
            self.refill();
        }
    }

    /// Drops the number of bits in the low byte of `count`.
    #[inline(always)]
    pub fn drop(&mut self, count: u32) {
        self.buf <<= count & 63;
        self.bits = self.bits.wrapping_sub(count);
    }

    /// Returns the next `count` bits, 1 to 32, which must be in the buffer.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> u32 {
        let value = (self.buf >> ((64 - count) & 63)) as u32;
        self.drop(count);
        value
    }

    /// Whether more bits were consumed than the segment holds.
    #[inline(always)]
    pub fn overrun(&self) -> bool {
        self.pos * 8 > self.data.len() * 8 + (self.bits & 63) as usize
    }
}

#[cold]
#[inline(never)]
fn tail(data: &[u8], pos: usize) -> u64 {
    let mut bytes = [0u8; 8];
    if let Some(rest) = data.get(pos..) {
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
    }
    u64::from_be_bytes(bytes)
}

/// The restart segments of one scan, in order.
pub(super) struct Restarts<'a> {
    data: &'a [u8],
    segments: &'a [Segment],
    at: usize,
    interval: u32,
    to_go: u32,
    expected: u8,
    /// Set once the current segment has no more data; its remaining units are unchanged.
    pub exhausted: bool,
    pub damage: Option<super::Damage>,
}

impl<'a> Restarts<'a> {
    pub fn new(data: &'a [u8], segments: &'a [Segment], interval: u32) -> Self {
        Self { data, segments, at: 0, interval, to_go: interval, expected: 0, exhausted: false, damage: None }
    }

    pub fn reader(&self) -> Reader<'a> {
        let range = self.segments.get(self.at).map_or(0..0, |s| s.start..s.end);
        Reader::new(self.data.get(range).unwrap_or(&[]))
    }

    fn offset(&self) -> u64 {
        self.segments.get(self.at).or(self.segments.last()).map_or(0, |s| s.offset as u64)
    }

    /// Counts the next `mcus` MCUs (the restart interval must be a multiple of `mcus`); returns whether a restart is due before them.
    #[inline(always)]
    pub fn due(&mut self, mcus: u32) -> bool {
        let due = self.interval != 0 && self.to_go == 0;
        if due {
            self.to_go = self.interval;
        }
        self.to_go = self.to_go.saturating_sub(mcus);
        due
    }

    /// Moves to the segment after the expected restart marker, choosing as libjpeg's `jpeg_resync_to_restart` does when it is another.
    #[cold]
    #[inline(never)]
    pub fn restart(&mut self) -> Reader<'a> {
        let expected = self.expected;
        self.expected = (expected + 1) & 7;
        loop {
            let marker = self.segments.get(self.at).map_or(0, |s| s.marker);
            if marker != 0xD0 + expected {
                self.fault(super::Fault::MissingRestart);
            }
            let skip = match marker {
                0 => None,
                m if m < 0xC0 => Some(true),
                0xD0..=0xD7 => match (marker - 0xD0).wrapping_sub(expected) & 7 {
                    1 | 2 => None,
                    6 | 7 => Some(true),
                    _ => Some(false),
                },
                _ => None,
            };
            match skip {
                Some(true) => self.at += 1,
                Some(false) => {
                    self.at += 1;
                    self.exhausted = false;
                    return self.reader();
                }
                // The marker belongs to a later interval: keep it, and treat this interval as empty. `exhausted` is unchanged: libjpeg
                // decodes one MCU from zero bits unless the data before had run out too.
                None => return Reader::new(&[]),
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub fn fault(&mut self, fault: super::Fault) {
        if self.damage.is_none() {
            self.damage = Some(super::Damage { fault, offset: self.offset() });
        }
    }
}
