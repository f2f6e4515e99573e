// Compressed tiles side by side.
#include "../pack.cuh"

SWATH_KERNEL(swath_layout, Layout)
SWATH_KERNEL(swath_pack, Pack)
