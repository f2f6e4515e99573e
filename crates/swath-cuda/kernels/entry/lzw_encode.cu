// LZW tiles, written.
#include "../lzw_encode.cuh"

SWATH_KERNEL(swath_lzw_encode, LzwEncode)
SWATH_KERNEL(swath_lzw_join, LzwJoin)
