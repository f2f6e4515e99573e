// Overviews by comparing pixels.
#include "shrink/rank.cuh"

SWATH_KERNEL(swath_shrink_min, shrink::Min)
SWATH_KERNEL(swath_shrink_max, shrink::Max)
SWATH_KERNEL(swath_shrink_median, shrink::Median)
SWATH_KERNEL(swath_shrink_mode, shrink::Mode)
