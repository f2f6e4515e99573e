// Lengths for a library, and from it.
#include "../words.cuh"

SWATH_KERNEL(swath_widen, Widen)
SWATH_KERNEL(swath_narrow, Narrow)
