// Overviews by the methods that most of them use.
#include "shrink/average.cuh"

SWATH_KERNEL(swath_shrink_nearest, shrink::Nearest)
SWATH_KERNEL(swath_shrink_average, shrink::Average)
