// Computes the Adler-32 of tiles.
#include "deflate/adler.cuh"

SWATH_KERNEL(swath_adler, Adler)
