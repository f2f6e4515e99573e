// Lengths that a library gave.
#include "place/check.cuh"

SWATH_KERNEL(swath_check, Check)
