// Tiles out of rows.
#include "../cut.cuh"

SWATH_KERNEL(swath_cut, Cut)
