// Deflate of tiles, piece by piece.
#include "../deflate_encode.cuh"

SWATH_KERNEL(swath_deflate_encode, DeflateEncode)
