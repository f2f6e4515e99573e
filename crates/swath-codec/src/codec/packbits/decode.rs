//! Decodes PackBits streams.

use super::LONGEST_PACKET;
use std::fmt;
use swath_raster::simd::{HotLoop, widest};

/// The no-op header.
const NOP: u8 = 128;
/// Bytes that the fast loop writes for every packet before testing its length; most packets of real rasters are shorter.
const CHUNK: usize = 32;

/// How a stream that filled the output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackBitsEnd {
    /// At the last byte of the output. Trailing no-op headers, or a header without data, are ignored.
    Exact,
    /// The stream holds more bytes than the output; they were dropped.
    Surplus,
}

/// Why a stream could not fill the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackBitsError {
    /// The input ended before the output was full.
    Short {
        /// Bytes decoded.
        got: usize,
        /// Bytes of the output.
        want: usize,
    },
}

impl fmt::Display for PackBitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { got, want } => write!(f, "PackBits stream ends after {got} of {want} bytes"),
        }
    }
}

impl std::error::Error for PackBitsError {}

/// Decodes the PackBits stream `src` into `dst`.
///
/// As in libtiff, a packet that exceeds `dst` is cut, even where its own data are incomplete.
///
/// # Errors
///
/// [`PackBitsError::Short`] where `src` ends before `dst` is full.
pub fn decode(src: &[u8], dst: &mut [u8]) -> Result<PackBitsEnd, PackBitsError> {
    widest(Decode { src, dst })
}

/// Whether a packet crosses the end of a row of `row_len` bytes within the first `want` bytes of the output. The end of the last row
/// does not count.
pub fn crosses_rows(mut src: &[u8], row_len: usize, want: usize) -> bool {
    let (mut left, mut to) = (row_len, 0);
    while to < want
        && let Some((&header, data)) = src.split_first()
    {
        let (write, read) = match header {
            NOP => (0, 0),
            ..NOP => (usize::from(header) + 1, usize::from(header) + 1),
            _ => (257 - usize::from(header), 1),
        };
        if write > left && to + left < want {
            return true;
        }
        to += write;
        left = left.saturating_sub(write);
        if left == 0 {
            left = row_len;
        }
        src = data.get(read..).unwrap_or_default();
    }
    false
}

struct Decode<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
}

impl HotLoop for Decode<'_> {
    type Output = Result<PackBitsEnd, PackBitsError>;
    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { src, dst } = self;
        let (from, to) = fast(src, dst);
        careful(src, dst, from, to)
    }
}

/// Decodes packets while input and output have room for the longest packet; returns the positions reached in `src` and `dst`.
#[inline(always)]
fn fast(src: &[u8], dst: &mut [u8]) -> (usize, usize) {
    let (mut from, mut to) = (0, 0);
    while let Some([header, data @ ..]) = src.get(from..).and_then(|rest| rest.first_chunk::<{ LONGEST_PACKET + 1 }>())
    {
        let Some(out) = dst.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<LONGEST_PACKET>()) else { break };
        // Two branches instead of a masked select: the CPU predicts literals and runs well, and with a predicted run it need not
        // wait for the header to find the next packet.
        if *header < NOP {
            let n = usize::from(*header) + 1;
            out[..CHUNK].copy_from_slice(&data[..CHUNK]);
            if n > CHUNK {
                out[CHUNK..].copy_from_slice(&data[CHUNK..]);
            }
            from += 1 + n;
            to += n;
        } else if *header > NOP {
            let n = 257 - usize::from(*header);
            out[..CHUNK].fill(data[0]);
            if n > CHUNK {
                out[CHUNK..].fill(data[0]);
            }
            from += 2;
            to += n;
        } else {
            from += 1;
        }
    }
    (from, to)
}

#[inline(always)]
fn careful(src: &[u8], dst: &mut [u8], from: usize, mut to: usize) -> Result<PackBitsEnd, PackBitsError> {
    let want = dst.len();
    let mut src = src.get(from..).unwrap_or_default();
    let mut out = dst.get_mut(to..).unwrap_or_default();
    while !out.is_empty() {
        let Some((&header, data)) = src.split_first() else { return Err(PackBitsError::Short { got: to, want }) };
        if header == NOP {
            src = data;
            continue;
        }
        let (write, read) = match usize::from(header) {
            header @ ..128 => (header + 1, header + 2),
            header => (257 - header, 2),
        };
        let n = write.min(out.len());
        let (now, later) = out.split_at_mut(n);
        if header > NOP {
            let Some(&byte) = data.first() else { return Err(PackBitsError::Short { got: to, want }) };
            now.fill(byte);
        } else {
            let Some(bytes) = data.get(..n) else { return Err(PackBitsError::Short { got: to, want }) };
            now.copy_from_slice(bytes);
        }
        if n < write {
            return Ok(PackBitsEnd::Surplus);
        }
        out = later;
        to += n;
        src = src.get(read..).unwrap_or_default();
    }
    while let [NOP, rest @ ..] = src {
        src = rest;
    }
    Ok(if src.len() < 2 { PackBitsEnd::Exact } else { PackBitsEnd::Surplus })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(src: &[u8], want: usize) -> Result<(Vec<u8>, bool), usize> {
        let (mut out, mut at) = (Vec::new(), 0);
        while out.len() < want {
            let Some(&h) = src.get(at) else { return Err(out.len()) };
            at += 1;
            match h {
                128 => {}
                0..128 => {
                    let n = (usize::from(h) + 1).min(want - out.len());
                    let Some(bytes) = src.get(at..at + n) else { return Err(out.len()) };
                    out.extend_from_slice(bytes);
                    if n < usize::from(h) + 1 {
                        return Ok((out, true));
                    }
                    at += n;
                }
                _ => {
                    let Some(&byte) = src.get(at) else { return Err(out.len()) };
                    at += 1;
                    let n = (257 - usize::from(h)).min(want - out.len());
                    out.extend(std::iter::repeat_n(byte, n));
                    if n < 257 - usize::from(h) {
                        return Ok((out, true));
                    }
                }
            }
        }
        while src.get(at) == Some(&128) {
            at += 1;
        }
        Ok((out, src.len().saturating_sub(at) >= 2))
    }

    #[test]
    fn agrees_with_the_plain_reading_on_any_bytes() {
        let mut seed = 1u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        for round in 0..100_000 {
            let len = next() % 700;
            let headers = round % 2 == 0;
            let src: Vec<u8> = (0..len)
                .map(|_| if headers && next() % 2 == 0 { ((next() % 6) as u8).wrapping_add(253) } else { next() as u8 })
                .collect();
            let want = next() % 1500;
            let mut dst = vec![0; want];
            let got = decode(&src, &mut dst);
            match reference(&src, want) {
                Ok((bytes, surplus)) => {
                    assert_eq!(got, Ok(if surplus { PackBitsEnd::Surplus } else { PackBitsEnd::Exact }));
                    assert_eq!(dst, bytes);
                }
                Err(came) => assert_eq!(got, Err(PackBitsError::Short { got: came, want })),
            }
        }
    }

    #[test]
    fn reads_the_example_of_the_specification() {
        let packed = [0xfe, 0xaa, 0x02, 0x80, 0x00, 0x2a, 0xfd, 0xaa, 0x03, 0x80, 0x00, 0x2a, 0x22, 0xf7, 0xaa];
        let mut out = [0; 24];
        assert_eq!(decode(&packed, &mut out), Ok(PackBitsEnd::Exact));
        assert_eq!(out[..7], [0xaa, 0xaa, 0xaa, 0x80, 0x00, 0x2a, 0xaa]);
        assert_eq!(out[14..], [0xaa; 10]);
    }

    #[test]
    fn reports_packets_that_cross_rows() {
        // Rows of three bytes.
        assert!(!crosses_rows(&[0xfe, 7, 2, 1, 2, 3], 3, 6));
        assert!(crosses_rows(&[0xfd, 7, 1, 1, 2], 3, 6), "four bytes in a row of three");
        assert!(!crosses_rows(&[0xfe, 7, 128, 0xfd, 7], 3, 6), "beyond the last row nothing is wanted");
        assert!(!crosses_rows(&[0xfd, 7], 3, 3));
        assert!(!crosses_rows(&[0xfe], 3, 6) && !crosses_rows(&[], 3, 6));
    }

    #[test]
    fn cuts_a_packet_at_the_end_of_the_output() {
        let mut out = [0; 3];
        assert_eq!(decode(&[9, 1, 2, 3], &mut out), Ok(PackBitsEnd::Surplus));
        assert_eq!(out, [1, 2, 3]);
        assert_eq!(decode(&[0x81, 7], &mut out), Ok(PackBitsEnd::Surplus));
        assert_eq!(out, [7; 3]);
    }

    #[test]
    fn rejects_input_that_ends_early() {
        let mut out = [0; 4];
        assert_eq!(decode(&[], &mut out), Err(PackBitsError::Short { got: 0, want: 4 }));
        assert_eq!(decode(&[0, 1, 0xfe], &mut out), Err(PackBitsError::Short { got: 1, want: 4 }));
        assert_eq!(decode(&[128, 128], &mut out), Err(PackBitsError::Short { got: 0, want: 4 }));
    }
}
