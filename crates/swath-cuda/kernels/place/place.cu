// Puts decoded tiles into the output.
#include "place/place.cuh"

SWATH_KERNEL(swath_place, PlaceKernel)
