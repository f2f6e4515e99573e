// Decoded tiles to their place.
#include "place/place.cuh"

SWATH_KERNEL(swath_place, PlaceKernel)
