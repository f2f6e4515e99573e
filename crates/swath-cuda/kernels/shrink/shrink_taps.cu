// Overviews by filters that reach beyond their pixel.
#include "shrink/taps.cuh"

SWATH_KERNEL(swath_shrink_taps, shrink::Taps)
