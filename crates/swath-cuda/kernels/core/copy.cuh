// What the kernels of the write path share: arithmetic that saturates, wide loads at any alignment, and the copy.
#pragma once
#include "core/memory.cuh"
#include "core/rows.cuh"
#include "core/span.cuh"

namespace moving {

// Products and sums that saturate instead of wrapping round: a length that does not fit then fails the bounds check.
SWATH_FN u64 saturating_mul(u32 count, u64 step) {
    const u64 low = u64(count) * u32(step), high = u64(count) * (step >> 32);
    return high > (~low >> 32) ? ~0ull : low + (high << 32);
}
SWATH_FN u64 saturating_add(u64 a, u64 b) { return a + b < a ? ~0ull : a + b; }

// Whether memory holds the rows of `bands` bands, and their samples of `sample_len` bytes lie at multiples of `word`. The
// memory begins at a multiple of 4, so that aligned words may be read.
SWATH_FN bool rows_fit(const Rows& rows, u32 bands, u32 sample_len, u32 word) {
    if (rows.ring == 0 || rows.width == 0 || bands == 0 || rows.row_step != u64(rows.width) * sample_len) return false;
    const u64 end = saturating_add(saturating_mul(bands - 1, rows.band_step), saturating_mul(rows.ring, rows.row_step));
    const bool aligned = aligned_to(rows.data, max_of(word, 4u)) && (rows.band_step & (word - 1)) == 0;
    return end <= rows.len && aligned;
}

// Loads an aligned number from memory that no lane writes during the launch.
template <class T> SWATH_FN T fetch(const u8* at) {
#if SWATH_DEVICE
    return __ldg(reinterpret_cast<const T*>(at));
#else
    return *reinterpret_cast<const T*>(at);
#endif
}

// Loads a number of any alignment.
template <class T> SWATH_FN T fetch_anywhere(const u8* at) {
    if (aligned_to(at, sizeof(T))) return fetch<T>(at);
    u64 value = 0;
    for (u32 byte = 0; byte < sizeof(T); byte++) value |= u64(fetch<u8>(at + byte)) << (8 * byte);
    return T(value);
}

template <class T> SWATH_FN void put(u8* at, T value) { *reinterpret_cast<T*>(at) = value; }

SWATH_FN Quad fetch_quad(const u8* at) {
#if SWATH_DEVICE
    const uint4 got = __ldg(reinterpret_cast<const uint4*>(at));
    return Quad{{got.x, got.y, got.z, got.w}};
#else
    return load_quad(at);
#endif
}

// Whether `count` words from `at` on can be loaded at once, or 16 bytes at a time.
SWATH_FN bool words_aligned(const u8* at, u32 count) { return aligned_to(at, min_of(4 * count, 16u)); }

// Loads two, four or eight words from `at` on. Unaligned words are put together from aligned ones; that touches the whole
// aligned word in which the fourth byte after the last of them lies.
template <bool ALIGNED, u32 COUNT> SWATH_FN void fetch_words(const u8* at, u32 (&words)[COUNT]) {
    if constexpr (ALIGNED && COUNT == 2) {
        const u64 both = fetch<u64>(at);
        words[0] = u32(both);
        words[1] = u32(both >> 32);
    } else if constexpr (ALIGNED) {
        SWATH_UNROLL
        for (u32 k = 0; k < COUNT; k += 4) {
            const Quad quad = fetch_quad(at + 4 * k);
            SWATH_UNROLL
            for (u32 j = 0; j < 4; j++) words[k + j] = quad.words[j];
        }
    } else {
        const u32 skew = u32(reinterpret_cast<u64>(at)) & 3;
        const u8* const base = at - skew;
        u32 low = fetch<u32>(base);
        SWATH_UNROLL
        for (u32 k = 0; k < COUNT; k++) {
            const u32 high = fetch<u32>(base + 4 * k + 4);
            words[k] = u32((u64(high) << 32 | low) >> (8 * skew));
            low = high;
        }
    }
}

// The change that changes nothing. Every `Change` of a copy has these two functions.
template <class T> struct Same {
    SWATH_FN void quad(u32 (&)[4]) const {}
    SWATH_FN T one(T number) const { return number; }
};

// Copies units of 16 bytes; each lane has `AHEAD` loads in flight.
template <u32 AHEAD, bool ALIGNED, class Lanes, class Change>
SWATH_FN void copy_units(const Lanes& lanes, const u8* from, u8* to, u64 units, const Change& change) {
    for (u64 unit = lanes.lane(); unit < units; unit += u64(AHEAD) * lanes.size()) {
        u32 words[AHEAD][4];
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u64 at = unit + k * lanes.size();
            if (at < units) fetch_words<ALIGNED>(from + 16 * at, words[k]);
        }
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u64 at = unit + k * lanes.size();
            if (at >= units) continue;
            change.quad(words[k]);
            store_quad(to + 16 * at, Quad{{words[k][0], words[k][1], words[k][2], words[k][3]}});
        }
    }
}

// The lanes of a group copy `len` bytes and touch no other byte. `to` and `len` are multiples of the size of T. `change`
// gets every T, or those of 16 bytes at once.
template <class T, class Lanes, class Change>
SWATH_FN void copy(const Lanes& lanes, const u8* from, u8* to, u64 len, const Change& change) {
    u64 head = min_of(u64((0 - reinterpret_cast<u64>(to)) & 15), len);
    const u32 skew = u32(reinterpret_cast<u64>(from) + head) & 3;
    // Unaligned words reach before the first byte of a unit and beyond its last.
    if (head < skew) head = min_of(head + 16, len);
    const bool aligned = words_aligned(from + head, 4);
    u64 units = (len - head) / 16;
    if (!aligned && units > 0 && len - head - 16 * units < 4 - skew) units--;
    if (aligned) copy_units<4, true>(lanes, from + head, to + head, units, change);
    else copy_units<2, false>(lanes, from + head, to + head, units, change);
    const u64 lone = len - 16 * units;
    for (u64 byte = lanes.lane() * sizeof(T); byte < lone; byte += lanes.size() * sizeof(T)) {
        const u64 at = byte < head ? byte : byte + 16 * units;
        put<T>(to + at, change.one(fetch_anywhere<T>(from + at)));
    }
}

}  // namespace moving
