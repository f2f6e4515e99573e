// Computes the statistics of tiles.
#include "moments/moments.cuh"

SWATH_KERNEL(swath_moments, RowMoments)
SWATH_KERNEL(swath_moments_join, JoinedMoments)
