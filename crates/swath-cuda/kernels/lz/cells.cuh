// Cells: 16 bits for each byte of the window that a decoder fills. A cell holds the byte, or a pointer to the byte that
// it copies.
#pragma once
#include "core/racing.cuh"

// The upper bits of a cell that holds a byte.
constexpr u32 CELL_BYTE = 0x8000;

struct alignas(16) EightCells {
    u32 pairs[4];

    SWATH_FN u32 get(u32 part) const { return part % 2 ? pairs[part / 2] >> 16 : pairs[part / 2] & 0xffff; }
    SWATH_FN bool all_bytes() const {
        constexpr u32 BYTES = CELL_BYTE << 16 | CELL_BYTE;
        return (((pairs[0] ^ BYTES) | (pairs[1] ^ BYTES) | (pairs[2] ^ BYTES) | (pairs[3] ^ BYTES)) & 0xff00ff00u) == 0;
    }
};

// Loads eight cells from a multiple of eight on. No other lane changes them.
SWATH_FN EightCells load_cells(const u16* cells) {
#if SWATH_DEVICE
    return *reinterpret_cast<const EightCells*>(cells);
#else
    EightCells eight;
    for (u32 part = 0; part < 4; part++) eight.pairs[part] = cells[2 * part] | u32(cells[2 * part + 1]) << 16;
    return eight;
#endif
}
// Stores eight cells, while other lanes may read them.
SWATH_FN void share_cells(u16* cells, const EightCells& eight) {
#if SWATH_DEVICE
    *reinterpret_cast<EightCells*>(cells) = eight;
#else
    for (u32 part = 0; part < 8; part++) store_racing(cells + part, u16(eight.get(part)));
#endif
}

// The bytes of four cells, of which each word holds two.
SWATH_FN u32 even_bytes(u32 low, u32 high) {
#if SWATH_DEVICE
    return __byte_perm(low, high, 0x6420);
#else
    return (low & 255) | (low >> 16 & 255) << 8 | (high & 255) << 16 | (high >> 16 & 255) << 24;
#endif
}

// Makes cells of eight bytes.
SWATH_FN EightCells byte_cells(u64 bytes) {
    EightCells eight;
    SWATH_UNROLL
    for (u32 part = 0; part < 4; part++) {
        const u32 pair = u32(bytes >> (16 * part));
        eight.pairs[part] = (pair & 255) | (pair & 0xff00) << 8 | (CELL_BYTE << 16 | CELL_BYTE);
    }
    return eight;
}
