// Encodes LZW tiles.
#include "lzw/encode.cuh"

SWATH_KERNEL(swath_lzw_encode, LzwEncode)
SWATH_KERNEL(swath_lzw_join, LzwJoin)
