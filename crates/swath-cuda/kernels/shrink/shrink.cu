// Overviews: what most of them are made with.
#include "shrink/average.cuh"

SWATH_KERNEL(swath_shrink_nearest, shrink::Nearest)
SWATH_KERNEL(swath_shrink_average, shrink::Average)
