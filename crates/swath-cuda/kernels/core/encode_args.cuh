// What every encoding kernel is handed: tiles side by side in one buffer, room for what becomes of them in another.
#pragma once
#include "core/base.cuh"

// Tile t is the first lens[t] bytes at src + t * src_stride; none where lens[t] is 0, and then its sizes become 0. It is
// cut into `pieces` pieces of piece_len bytes (the last one shorter; those beyond its end are empty, their size 0). Piece p
// becomes sizes[t * pieces + p] bytes at dst + (t * pieces + p) * dst_stride; the pieces of a tile, one after the other
// and between what `PackArgs` puts around them, are its stream. A kernel never writes more than dst_stride bytes of a piece:
// the host asks how many that can be. Strides are multiples of 16, and so is src; what lies between tiles belongs to the
// buffer. The bytes depend on the tile and on `effort`, `row_len` and `pixel_len` alone: not on the number of blocks, other
// tiles, or the order in which lanes run.
struct EncodeArgs {
    const u8* src;
    u64 src_len;
    u64 src_stride;
    u8* dst;
    u64 dst_len;
    u64 dst_stride;
    const u32* lens;
    u32* sizes;
    u8* scratch;      // scratch_len bytes for each block of the grid
    u64 scratch_len;
    u32 tiles;
    u32 pieces;
    u32 piece_len;
    u32 effort;       // a codec's own: more is smaller and slower
    u32 row_len;      // bytes of a row of a tile, a likely distance of matches
    u32 pixel_len;    // bytes of a pixel, another
};
