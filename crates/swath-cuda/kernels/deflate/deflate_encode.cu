// Encodes tiles as Deflate, piece by piece.
#include "deflate/encode.cuh"

// Pieces are independent, so links do not leave them.
using DeflateLinks = LzLinks<1, 4>;

SWATH_KERNEL(swath_deflate_links, DeflateLinks)
SWATH_KERNEL(swath_deflate_encode, DeflateEncode)
