// PackBits tiles, written.
#include "../packbits_encode.cuh"

SWATH_KERNEL(swath_packbits_measure, PackBitsMeasure)
SWATH_KERNEL(swath_packbits_encode, PackBitsEncode)
