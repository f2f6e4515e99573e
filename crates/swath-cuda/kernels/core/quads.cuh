// Reads a tile of any length 16 bytes at a time.
#pragma once
#include "core/memory.cuh"
#include "core/span.cuh"

// The 16 bytes from `at` on, with zeros beyond the end. `at` is a multiple of 16, and so is the start of the tile.
SWATH_FN Quad quad_at(const Span<const u8>& src, u32 at) {
    if (u64(at) + 16 <= src.len) return load_quad(src.data + at);
    Quad quad = {{0, 0, 0, 0}};
    SWATH_UNROLL
    for (u32 k = 0; k < 16; k++) quad.words[k / 4] |= u32(src.get(u64(at) + k)) << (k % 4 * 8);
    return quad;
}

// Takes the first word and moves the others up. Indexing with a number known only at run time would put the quad into
// memory.
SWATH_FN u32 next_word(Quad& quad) {
    const u32 word = quad.words[0];
    quad.words[0] = quad.words[1];
    quad.words[1] = quad.words[2];
    quad.words[2] = quad.words[3];
    return word;
}
