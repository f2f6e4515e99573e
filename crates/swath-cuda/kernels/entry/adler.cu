// The Adler-32 of tiles.
#include "../adler.cuh"

SWATH_KERNEL(swath_adler, Adler)
