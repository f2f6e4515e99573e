// Encodes PackBits tiles.
#include "packbits/encode.cuh"

SWATH_KERNEL(swath_packbits_measure, PackBitsMeasure)
SWATH_KERNEL(swath_packbits_encode, PackBitsEncode)
