// The result of decoding a tile. Shared with Rust: src/decode/status.rs has the same numbers, and a test compares them.
#pragma once
#include "core/base.cuh"

enum Status : u32 {
    STATUS_OK = 0,
    STATUS_SHORT = 1,     // the stream ends before the tile is full
    STATUS_LONG = 2,      // the stream holds more than the tile (where that matters)
    STATUS_CORRUPT = 3,   // the stream is damaged
    STATUS_CHECKSUM = 4,  // the stream is whole, but its checksum does not match
    STATUS_UNUSUAL = 5,   // the kernel does not support such a stream; the CPU may
    STATUS_UNDONE = 0xffffffffu,  // no kernel has reached the tile: the initial value
};
