// Lengths that a library gave.
#include "../check.cuh"

SWATH_KERNEL(swath_check, Check)
