// Decodes PackBits tiles.
#include "packbits/decode.cuh"

SWATH_KERNEL(swath_packbits, PackBits)
