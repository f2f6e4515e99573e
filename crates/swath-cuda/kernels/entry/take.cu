// Rows of a caller into the ring of a level.
#include "../take.cuh"

SWATH_KERNEL(swath_take, Take)
