// Accesses wider than a byte, for device and host compilers alike.
#pragma once
#include "core/base.cuh"

// 16 bytes that are loaded and stored at once, at multiples of 16.
struct alignas(16) Quad {
    u32 words[4];
};

SWATH_FN bool aligned_to(const void* place, u64 bytes) { return (reinterpret_cast<u64>(place) & (bytes - 1)) == 0; }

SWATH_FN Quad load_quad(const u8* from) {
#if SWATH_DEVICE
    const uint4 got = *reinterpret_cast<const uint4*>(from);
    return Quad{{got.x, got.y, got.z, got.w}};
#else
    Quad got;
    __builtin_memcpy(&got, __builtin_assume_aligned(from, 16), 16);
    return got;
#endif
}

SWATH_FN void store_quad(u8* to, const Quad& quad) {
#if SWATH_DEVICE
    *reinterpret_cast<uint4*>(to) = make_uint4(quad.words[0], quad.words[1], quad.words[2], quad.words[3]);
#else
    __builtin_memcpy(__builtin_assume_aligned(to, 16), &quad, 16);
#endif
}

// The word with its bytes in reverse order.
SWATH_FN u32 swapped(u32 word) {
#if SWATH_DEVICE
    return __byte_perm(word, 0, 0x0123);
#else
    return __builtin_bswap32(word);
#endif
}

// Loads four bytes from a multiple of 4; the first becomes the most significant.
SWATH_FN u32 load_word(const u8* from) {
#if SWATH_DEVICE
    return swapped(*reinterpret_cast<const u32*>(from));
#else
    u32 got;
    __builtin_memcpy(&got, __builtin_assume_aligned(from, 4), 4);
    return swapped(got);
#endif
}

// 32 bits out of two words, from bit `skip % 32` of `high` on, counted from the most significant.
SWATH_FN u32 bits_from(u32 high, u32 low, u32 skip) {
#if SWATH_DEVICE
    return __funnelshift_l(low, high, skip);
#else
    return u32((u64(high) << 32 | low) >> (32 - (skip & 31)));
#endif
}

// Brings a cache line near before it is needed.
SWATH_FN void prefetch(const u8* from) {
#if SWATH_DEVICE
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
    (void)from;
#endif
}
