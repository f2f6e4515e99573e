// Decodes LZW tiles.
#include "lzw/decode.cuh"
#include "lzw/decode_parts.cuh"

SWATH_KERNEL(swath_lzw, Lzw)
SWATH_KERNEL(swath_lzw_find, LzwFind)
SWATH_KERNEL(swath_lzw_measure, LzwMeasure)
SWATH_KERNEL(swath_lzw_write, LzwWrite)
