// What every decoding kernel is handed: compressed tiles in one buffer, room for decoded tiles in another.
#pragma once
#include "core/base.cuh"

// One tile: where its stream lies in the compressed buffer and where its bytes go in the decoded one.
// The host places streams and tiles at multiples of 16; a stream is followed by at least 16 bytes that belong to the buffer.
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
    u8* scratch;  // scratch_len bytes for each block of the grid, or for each tile: a kernel says which
    u64 scratch_len;
    u32 count;
    u32 flags;  // a kernel's own
};
