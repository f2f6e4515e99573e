// Sixteen bytes at a time out of a tile that may end anywhere.
#pragma once
#include "core/memory.cuh"
#include "core/span.cuh"

// The bytes from `at`, a multiple of 16, on; zeros beyond the end. The tile begins at a multiple of 16.
SWATH_FN Quad quad_at(const Span<const u8>& src, u32 at) {
    if (u64(at) + 16 <= src.len) return load_quad(src.data + at);
    Quad quad = {{0, 0, 0, 0}};
    SWATH_UNROLL
    for (u32 k = 0; k < 16; k++) quad.words[k / 4] |= u32(src.get(u64(at) + k)) << (k % 4 * 8);
    return quad;
}

// The first word, which the others then move up for: a place that is only known later would take them to memory.
SWATH_FN u32 next_word(Quad& quad) {
    const u32 word = quad.words[0];
    quad.words[0] = quad.words[1];
    quad.words[1] = quad.words[2];
    quad.words[2] = quad.words[3];
    return word;
}
