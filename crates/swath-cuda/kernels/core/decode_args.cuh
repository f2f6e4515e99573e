// The arguments of every decoding kernel: compressed tiles in one buffer, room for decoded tiles in another.
#pragma once
#include "core/base.cuh"

// One tile: the place of its stream in the compressed buffer and of its bytes in the decoded buffer.
// The host puts streams and tiles at multiples of 16. At least 16 bytes after a stream belong to the buffer; their
// contents are undefined.
struct TileJob {
    u64 src;
    u64 src_len;
    u64 dst;
    u64 dst_len;
};

struct DecodeArgs {
    const u8* src;
    u64 src_len;
    u8* dst;
    u64 dst_len;
    const TileJob* tiles;
    u32* status;  // one per tile
    u8* scratch;  // scratch_len bytes for each block of the grid, or for each tile, as the kernel documents
    u64 scratch_len;
    u32 count;
    u32 flags;  // as the kernel documents
};
