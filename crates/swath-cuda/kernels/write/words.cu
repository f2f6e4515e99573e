// Converts lengths for a library, and from it.
#include "write/words.cuh"

SWATH_KERNEL(swath_widen, Widen)
SWATH_KERNEL(swath_narrow, Narrow)
