// Copies the rows of a caller into the ring of a level.
#include "write/take.cuh"

SWATH_KERNEL(swath_take, Take)
