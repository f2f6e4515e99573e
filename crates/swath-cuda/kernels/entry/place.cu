// Decoded tiles to their place.
#include "../place.cuh"

SWATH_KERNEL(swath_place, PlaceKernel)
