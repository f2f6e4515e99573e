// Rows of one level of an image in device memory: bands as planes, rows in a ring.
#pragma once
#include "core/base.cuh"

// Sample x of row y of a band lies at data + band * band_step + (y % ring) * row_step + x * sample_len; row_step is width
// * sample_len. The host has checked that kernels stay within `len` bytes. Kernels check again that ring * row_step *
// bands fits, and do nothing if it does not.
struct Rows {
    u8* data;
    u64 len;
    u64 band_step;
    u64 row_step;
    u32 ring;   // rows in the ring
    u32 width;  // columns
};
