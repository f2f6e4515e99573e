// Tiles out of rows.
#include "write/cut.cuh"

SWATH_KERNEL(swath_cut, Cut)
