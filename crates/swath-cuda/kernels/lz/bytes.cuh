// Bytes that are read word by word, and the cost of numbers.
#pragma once
#include "core/bits.cuh"
#include "core/span.cuh"

// A part of a tile, read word by word. The whole words that hold its first and last byte belong to the buffer.
struct LzBytes {
    const u32* words;
    u32 skew, last, len;

    SWATH_FN explicit LzBytes(const Span<const u8>& src) {
        skew = u32(reinterpret_cast<u64>(src.data) & 3);
        words = reinterpret_cast<const u32*>(src.data - skew);
        len = u32(src.len);
        last = len > 0 ? (skew + len - 1) >> 2 : 0;
    }
    SWATH_FN u32 byte(u32 at) const { return words[(at + skew) >> 2] >> (((at + skew) & 3) * 8) & 0xff; }
    // The four bytes from `at` on, the first least significant. `at` lies in the part; bytes beyond the end are
    // undefined.
    SWATH_FN u32 four(u32 at) const {
        const u32 word = (at + skew) >> 2;
        return joined(words[word], words[min_of(word + 1, last)], ((at + skew) & 3) * 8);
    }
};

// log2 in sixteenths, linear between powers of two; 0 for 0.
SWATH_FN u32 log_of(u32 value) {
    if (value == 0) return 0;
    const u32 whole = highest_one(value);
    return whole * 16 + (u32(u64(value) * 16 >> whole) & 15);
}
