// What kernels of the write path share: sums that cannot wrap round, wide accesses wherever bytes stand, the copy.
#pragma once
#include "core/memory.cuh"
#include "core/rows.cuh"
#include "core/span.cuh"

namespace moving {

// Products and sums that stop at the top instead of wrapping round: what does not fit is then found too long.
SWATH_FN u64 times(u32 count, u64 step) {
    const u64 low = u64(count) * u32(step), high = u64(count) * (step >> 32);
    return high > (~low >> 32) ? ~0ull : low + (high << 32);
}
SWATH_FN u64 plus(u64 a, u64 b) { return a + b < a ? ~0ull : a + b; }

// Whether the rows of so many bands are there, and their samples of `sample_len` bytes stand at multiples of `word`.
// The memory begins at a multiple of 4, so that words in line with it may be read.
SWATH_FN bool rows_fit(const Rows& rows, u32 bands, u32 sample_len, u32 word) {
    if (rows.ring == 0 || rows.width == 0 || bands == 0 || rows.row_step != u64(rows.width) * sample_len) return false;
    const u64 end = plus(times(bands - 1, rows.band_step), times(rows.ring, rows.row_step));
    const bool in_line = aligned_to(rows.data, max_of(word, 4u)) && (rows.band_step & (word - 1)) == 0;
    return end <= rows.len && in_line;
}

// A number at a multiple of its size, in memory that no lane writes meanwhile.
template <class T> SWATH_FN T fetch(const u8* at) {
#if SWATH_DEVICE
    return __ldg(reinterpret_cast<const T*>(at));
#else
    return *reinterpret_cast<const T*>(at);
#endif
}

// A number anywhere.
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

// Whether so many words from `at` on can be read at once, or by sixteen bytes.
SWATH_FN bool words_in_line(const u8* at, u32 count) { return aligned_to(at, min_of(4 * count, 16u)); }

// Two, four or eight words from `at` on. Those that are not in line are made of words that are; all of the one that
// holds the fourth byte after the last of them is touched.
template <bool IN_LINE, u32 COUNT> SWATH_FN void fetch_words(const u8* at, u32 (&words)[COUNT]) {
    if constexpr (IN_LINE && COUNT == 2) {
        const u64 both = fetch<u64>(at);
        words[0] = u32(both);
        words[1] = u32(both >> 32);
    } else if constexpr (IN_LINE) {
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

// How a copy leaves everything as it is; what else a copy is given has the same two functions.
template <class T> struct Same {
    SWATH_FN void quad(u32 (&)[4]) const {}
    SWATH_FN T one(T number) const { return number; }
};

// Units of sixteen bytes, so many of them under way at once.
template <u32 AHEAD, bool IN_LINE, class Lanes, class Change>
SWATH_FN void copy_units(const Lanes& lanes, const u8* from, u8* to, u64 units, const Change& change) {
    for (u64 unit = lanes.lane(); unit < units; unit += u64(AHEAD) * lanes.size()) {
        u32 words[AHEAD][4];
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u64 at = unit + k * lanes.size();
            if (at < units) fetch_words<IN_LINE>(from + 16 * at, words[k]);
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

// `len` bytes by the lanes of a group, and none beside them touched. `to` stands at a multiple of T's size, of which
// `len` is one too; `change` is handed each T, or those of sixteen bytes at once.
template <class T, class Lanes, class Change>
SWATH_FN void copy(const Lanes& lanes, const u8* from, u8* to, u64 len, const Change& change) {
    u64 head = min_of(u64((0 - reinterpret_cast<u64>(to)) & 15), len);
    const u32 skew = u32(reinterpret_cast<u64>(from) + head) & 3;
    // Words that are not in line reach before the first byte of a unit and beyond its last.
    if (head < skew) head = min_of(head + 16, len);
    const bool in_line = words_in_line(from + head, 4);
    u64 units = (len - head) / 16;
    if (!in_line && units > 0 && len - head - 16 * units < 4 - skew) units--;
    if (in_line) copy_units<4, true>(lanes, from + head, to + head, units, change);
    else copy_units<2, false>(lanes, from + head, to + head, units, change);
    const u64 lone = len - 16 * units;
    for (u64 byte = lanes.lane() * sizeof(T); byte < lone; byte += lanes.size() * sizeof(T)) {
        const u64 at = byte < head ? byte : byte + 16 * units;
        put<T>(to + at, change.one(fetch_anywhere<T>(from + at)));
    }
}

}  // namespace moving
