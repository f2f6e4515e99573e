// Overviews of complex samples.
#include "shrink/complex.cuh"

SWATH_KERNEL(swath_shrink_complex_average, shrink::ComplexAverage)
SWATH_KERNEL(swath_shrink_complex_rms, shrink::ComplexRms)
SWATH_KERNEL(swath_shrink_complex_mode, shrink::ComplexMode)
