// Bytes of files with FillOrder 2.
#include "place/reverse.cuh"

SWATH_KERNEL(swath_reverse, Reverse)
