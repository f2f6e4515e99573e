// Rows of one level of an image on the device: bands in planes, rows in a ring.
#pragma once
#include "core/base.cuh"

// Sample x of row y of a band stands at data + band * band_step + (y % ring) * row_step + x * sample_len, where row_step
// is width * sample_len. What a kernel reads or writes was checked by the host to lie in `len` bytes; kernels check again
// that ring * row_step * bands fits, and do nothing where it does not.
struct Rows {
    u8* data;
    u64 len;
    u64 band_step;
    u64 row_step;
    u32 ring;   // rows that there is room for
    u32 width;  // columns
};
