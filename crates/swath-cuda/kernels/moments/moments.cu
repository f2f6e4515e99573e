// Computes the statistics of tiles.
#include "moments/moments.cuh"

SWATH_KERNEL(swath_moments, TileMoments)
