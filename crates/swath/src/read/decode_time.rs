//! Estimates how long reading takes, to start only as many threads as are worth it.
//!
//! The figures are rounded from measurements of one core. An estimate that is wrong by a factor of two costs a few microseconds: either a
//! thread that has little to do, or one that would have helped a little.

use swath_tiff::Compression;

/// A thread is worth starting if it takes over work of this many nanoseconds. Starting it takes a tenth of that.
pub(super) const WORTH_A_THREAD: u64 = 150_000;

/// Nanoseconds that a thread takes to decode a tile of `stored` bytes to `decoded` bytes, and to place its samples. Entropy decoding takes
/// a time for each stored byte, everything else for each decoded byte.
pub(super) fn nanoseconds(compression: Compression, stored: u64, decoded: u64) -> u64 {
    let (for_stored, for_decoded) = picoseconds(compression);
    (stored.saturating_mul(for_stored)).saturating_add(decoded.saturating_mul(for_decoded)) / 1000
}

/// Picoseconds for each stored and for each decoded byte.
fn picoseconds(compression: Compression) -> (u64, u64) {
    match compression {
        // Copied.
        Compression::None => (0, 120),
        Compression::Lz4 | Compression::PackBits => (200, 300),
        Compression::Zstd => (1200, 150),
        Compression::Deflate => (2300, 120),
        Compression::Lzw => (5000, 300),
        Compression::Lzma => (30_000, 200),
        // Pictures: arithmetic for each pixel, or far more than that.
        Compression::Jpeg2000 | Compression::JpegXl => (0, 50_000),
        Compression::WebP => (0, 5000),
        _ => (0, 1500),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_that_compresses_well_takes_less_time() {
        for compression in [Compression::Deflate, Compression::Zstd, Compression::Lzw, Compression::Lzma] {
            let (noise, constant) =
                (nanoseconds(compression, 500 << 10, 512 << 10), nanoseconds(compression, 1 << 10, 512 << 10));
            assert!(noise > 3 * constant, "{compression:?}: {noise} against {constant}");
        }
    }

    #[test]
    fn sizes_that_a_file_claims_do_not_overflow() {
        assert!(nanoseconds(Compression::Lzma, u64::MAX, u64::MAX) > 0);
    }
}
