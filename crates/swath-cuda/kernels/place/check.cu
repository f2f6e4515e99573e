// Checks the lengths that a library returned.
#include "place/check.cuh"

SWATH_KERNEL(swath_check, Check)
