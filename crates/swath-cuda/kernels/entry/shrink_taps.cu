// Overviews by kernels that reach beyond their pixel.
#include "../shrink_taps.cuh"

SWATH_KERNEL(swath_shrink_taps, shrink::Taps)
