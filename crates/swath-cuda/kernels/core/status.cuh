// What became of a tile. Shared with Rust: src/status.rs has the same numbers, and a test compares them.
#pragma once
#include "core/base.cuh"

enum Status : u32 {
    STATUS_OK = 0,
    STATUS_SHORT = 1,     // the stream ends before the tile is full
    STATUS_LONG = 2,      // the stream holds more than the tile (where that matters)
    STATUS_CORRUPT = 3,   // the stream is damaged
    STATUS_CHECKSUM = 4,  // the stream is whole, its checksum is another
    STATUS_UNUSUAL = 5,   // the stream is of a kind that is left to the host
    STATUS_UNDONE = 0xffffffffu,  // no kernel reached the tile: what statuses are before a batch runs
};
