// Cuts rows into tiles.
#include "write/cut.cuh"

SWATH_KERNEL(swath_cut, Cut)
