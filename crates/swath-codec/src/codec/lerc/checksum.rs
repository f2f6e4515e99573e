//! Verifies the checksum of a LERC blob.

use swath_raster::simd::{HotLoop, widest};

use super::header::Header;

/// Compares the checksum, which covers the bytes after itself.
///
/// # Errors
/// When it differs.
pub(super) fn verify(blob: &[u8], header: &Header) -> Result<(), String> {
    let covered = blob.get(14..header.blob_len).unwrap_or_default();
    // Esri's sum folds its carries only once at the end, which for an odd length can leave a carry. Its result decides where the
    // two differ.
    if widest(Fletcher(covered)) == header.checksum || lerc::checksum::fletcher32(covered) == header.checksum {
        return Ok(());
    }
    Err("the checksum of the blob is wrong".into())
}

/// Fletcher's checksum over 16-bit words, the high byte first.
struct Fletcher<'a>(&'a [u8]);

impl HotLoop for Fletcher<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        // Each lane sums its own words. With N words in rows of LANES, the sum of sums counts the word of row t and lane l
        // N - t * LANES - l times, while the lane itself counts it N / LANES - t times. Multiplying the lane's sum by LANES and
        // subtracting l times its words corrects that. No sum overflows within a chunk.
        const LANES: usize = 16;
        const ROWS: usize = 256;
        let (mut low, mut high) = (0xffff_u64, 0xffff_u64);
        let (rows, rest) = self.0.as_chunks::<{ 2 * LANES }>();
        for rows in rows.chunks(ROWS) {
            let (mut lows, mut highs) = ([0_u32; LANES], [0_u32; LANES]);
            for row in rows {
                for (lane, word) in row.as_chunks::<2>().0.iter().enumerate() {
                    lows[lane] += u32::from(u16::from_be_bytes(*word));
                    highs[lane] += lows[lane];
                }
            }
            high += low * (rows.len() * LANES) as u64;
            for (lane, (sum, sums)) in lows.iter().zip(highs).enumerate() {
                low += u64::from(*sum);
                high += u64::from(sums) * LANES as u64 - u64::from(*sum) * lane as u64;
            }
            low %= 0xffff;
            high %= 0xffff;
        }
        for word in rest.chunks(2) {
            let second = word.get(1).copied().unwrap_or(0);
            low += u64::from(word.first().copied().unwrap_or(0)) << 8 | u64::from(second);
            high += low;
        }
        // Sums start at 0xffff and never fold to zero.
        let fold = |sum: u64| match sum % 0xffff {
            0 => 0xffff,
            sum => sum as u32,
        };
        fold(high) << 16 | fold(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing;

    #[test]
    fn checksum_is_that_of_the_library_at_every_length() {
        let bytes = testing::ramp(20_000);
        for len in (0..300).chain([8191, 8192, 8193, 16_384, 20_000]) {
            assert_eq!(widest(Fletcher(&bytes[..len])), lerc::checksum::fletcher32(&bytes[..len]), "{len}");
        }
        assert_eq!(widest(Fletcher(&[0xff; 10_000])), lerc::checksum::fletcher32(&[0xff; 10_000]));
    }
}
