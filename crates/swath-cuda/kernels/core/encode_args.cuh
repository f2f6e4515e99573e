// The arguments of every encoding kernel: tiles side by side in one buffer, room for their streams in another.
#pragma once
#include "core/base.cuh"

// Tile t is the first lens[t] bytes at src + t * src_stride. Where lens[t] is 0 there is no tile, and its sizes become 0.
// A tile is cut into `pieces` pieces of piece_len bytes; the last piece is shorter, and pieces beyond the end of the tile
// are empty, with size 0. Piece p becomes sizes[t * pieces + p] bytes at dst + (t * pieces + p) * dst_stride. The pieces
// of a tile, one after the other, with the head and tail that `PackArgs` adds, are its stream.
// A kernel never writes more than dst_stride bytes of a piece; the codec tells the host how many a piece may need. `src`
// and the strides are multiples of 16; the bytes between tiles belong to the buffer. The result depends on the tile,
// `effort`, `row_len` and `pixel_len` alone: not on the number of blocks, on other tiles, or on the order in which lanes
// run.
struct EncodeArgs {
    const u8* src;
    u64 src_len;
    u64 src_stride;
    u8* dst;
    u64 dst_len;
    u64 dst_stride;
    const u32* lens;
    u32* sizes;
    u8* scratch;      // what it holds is up to each codec
    u64 scratch_len;
    u32 tiles;
    u32 pieces;
    u32 piece_len;
    u32 effort;       // more effort makes smaller streams, more slowly; each codec documents its values
    u32 row_len;      // bytes of a row of the tile: a likely distance of matches
    u32 pixel_len;    // bytes of a pixel: another likely distance
};
