// Encodes tiles as Deflate, piece by piece.
#include "deflate/encode.cuh"

SWATH_KERNEL(swath_deflate_encode, DeflateEncode)
