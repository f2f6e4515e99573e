// Statistics of tiles.
#include "../moments.cuh"

SWATH_KERNEL(swath_moments, TileMoments)
