// PackBits tiles.
#include "../packbits.cuh"

SWATH_KERNEL(swath_packbits, PackBits)
