// The checksum at the end of a frame: the lower half of XXH64 of its decoded bytes.
#pragma once
#include "core/span.cuh"

// Four lanes compute the four sums side by side; one lane would do for the rest.
struct ZstdChecksum {
    static constexpr u64 P1 = 0x9e3779b185ebca87ull, P2 = 0xc2b2ae3d27d4eb4full, P3 = 0x165667b19e3779f9ull,
                         P4 = 0x85ebca77c2b2ae63ull, P5 = 0x27d4eb2f165667c5ull;

    // Returns the same in all lanes. `sums` is shared memory for four numbers.
    template <class Group> SWATH_FN static u32 of(const Group& group, const Span<u8>& bytes, u64* sums) {
        const u64 stripes = bytes.len / 32;
        for (u32 which = group.lane(); which < 4; which += group.size()) {
            u64 sum = which == 0 ? P1 + P2 : which == 1 ? P2 : which == 2 ? 0 : 0 - P1;
            for (u64 stripe = 0; stripe < stripes; stripe++) sum = round(sum, word(bytes, stripe * 32 + which * 8));
            sums[which] = sum;
        }
        group.sync();
        u64 hash = P5;
        if (stripes > 0) {
            hash = turned(sums[0], 1) + turned(sums[1], 7) + turned(sums[2], 12) + turned(sums[3], 18);
            for (u32 which = 0; which < 4; which++) hash = (hash ^ round(0, sums[which])) * P1 + P4;
        }
        hash += bytes.len;
        u64 at = stripes * 32;
        for (; at + 8 <= bytes.len; at += 8) hash = turned(hash ^ round(0, word(bytes, at)), 27) * P1 + P4;
        if (at + 4 <= bytes.len) {
            u64 half = 0;
            for (u32 part = 0; part < 4; part++) half |= u64(bytes.data[at + part]) << (8 * part);
            hash = turned(hash ^ half * P1, 23) * P2 + P3;
            at += 4;
        }
        for (; at < bytes.len; at++) hash = turned(hash ^ bytes.data[at] * P5, 11) * P1;
        hash = (hash ^ hash >> 33) * P2;
        hash = (hash ^ hash >> 29) * P3;
        group.sync();
        return u32(hash ^ hash >> 32);
    }

  private:
    SWATH_FN static u64 turned(u64 value, u32 bits) { return value << bits | value >> (64 - bits); }
    SWATH_FN static u64 round(u64 sum, u64 word) { return turned(sum + word * P2, 31) * P1; }
    // A frame may begin at any byte of a tile.
    SWATH_FN static u64 word(const Span<u8>& bytes, u64 at) {
        const u8* const from = bytes.data + at;
        if ((u64(from) & 7) == 0) return *reinterpret_cast<const u64*>(from);
        u64 value = 0;
        for (u32 part = 0; part < 8; part++) value |= u64(from[part]) << (8 * part);
        return value;
    }
};
