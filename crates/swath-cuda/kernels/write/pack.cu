// Compressed tiles side by side.
#include "write/pack.cuh"

SWATH_KERNEL(swath_layout, Layout)
SWATH_KERNEL(swath_pack, Pack)
