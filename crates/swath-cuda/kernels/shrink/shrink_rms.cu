// Overviews by roots of mean squares.
#include "shrink/rms.cuh"

SWATH_KERNEL(swath_shrink_rms, shrink::Rms)
