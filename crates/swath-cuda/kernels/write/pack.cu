// Packs compressed tiles one after the other.
#include "write/pack.cuh"

SWATH_KERNEL(swath_layout, Layout)
SWATH_KERNEL(swath_pack, Pack)
