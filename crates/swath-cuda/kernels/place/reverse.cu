// Reverses the bits of bytes, for files with FillOrder 2.
#include "place/reverse.cuh"

SWATH_KERNEL(swath_reverse, Reverse)
