// Bit tricks, and a reader of bits (least significant first) from words in shared memory.
#pragma once
#include "core/base.cuh"

// The 32 bits of `low` and `high` that start at bit `shift` (0 to 31) of `low`.
SWATH_FN u32 joined(u32 low, u32 high, u32 shift) {
#if SWATH_DEVICE
    return __funnelshift_r(low, high, shift);
#else
    return u32((u64(high) << 32 | low) >> shift);
#endif
}

// The same for any shift, of which the lower five bits count.
SWATH_FN u32 joined_by(u32 low, u32 high, u32 shift) {
#if SWATH_DEVICE
    return __funnelshift_r(low, high, shift);
#else
    return joined(low, high, shift & 31);
#endif
}
// The upper word of `high` and `low` after a left shift by the lower five bits of `shift`.
SWATH_FN u32 upper_after(u32 high, u32 low, u32 shift) {
#if SWATH_DEVICE
    return __funnelshift_l(low, high, shift);
#else
    return u32((u64(high) << 32 | low) << (shift & 31) >> 32);
#endif
}

SWATH_FN u32 reversed(u32 bits) {
#if SWATH_DEVICE
    return __brev(bits);
#else
    bits = (bits >> 1 & 0x55555555u) | (bits & 0x55555555u) << 1;
    bits = (bits >> 2 & 0x33333333u) | (bits & 0x33333333u) << 2;
    bits = (bits >> 4 & 0x0f0f0f0fu) | (bits & 0x0f0f0f0fu) << 4;
    bits = (bits >> 8 & 0x00ff00ffu) | (bits & 0x00ff00ffu) << 8;
    return bits >> 16 | bits << 16;
#endif
}

SWATH_FN u32 ones_in(u64 bits) {
#if SWATH_DEVICE
    return u32(__popcll(bits));
#else
    return u32(__builtin_popcountll(bits));
#endif
}

// Index of the lowest set bit; `bits` must not be 0.
SWATH_FN u32 lowest_one(u32 bits) {
#if SWATH_DEVICE
    return u32(__ffs(int(bits))) - 1;
#else
    return u32(__builtin_ctz(bits));
#endif
}

// Index of the highest set bit; `bits` must not be 0.
SWATH_FN u32 highest_one(u32 bits) {
#if SWATH_DEVICE
    return 31 - u32(__clz(int(bits)));
#else
    return 31 - u32(__builtin_clz(bits));
#endif
}

SWATH_FN u32 low_bits(u32 bits, u32 count) { return bits & ((1u << count) - 1); }

// A position in words that were loaded before. The caller guarantees that the two words from `pos` on exist, at the start
// and after every skip.
struct BitCursor {
    const u32* words;
    u32 pos;
    u32 low, high;

    SWATH_FN BitCursor(const u32* words, u32 pos) : words(words), pos(pos) {
        low = words[pos >> 5];
        high = words[(pos >> 5) + 1];
    }
    // The next 32 bits.
    SWATH_FN u32 peek() const { return joined(low, high, pos & 31); }
    // Moves on by at most 32 bits.
    SWATH_FN void skip(u32 count) {
        const u32 next = pos + count;
        if ((next ^ pos) & 32) {
            low = high;
            high = words[(next >> 5) + 1];
        }
        pos = next;
    }
    SWATH_FN u32 take(u32 count) {
        const u32 value = low_bits(peek(), count);
        skip(count);
        return value;
    }
};
