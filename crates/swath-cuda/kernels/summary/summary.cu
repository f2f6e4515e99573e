// Computes the statistics of areas of a raster: of their chunks, and of the chunks together.
#include "summary/summary.cuh"

SWATH_KERNEL(swath_summary_chunks, ChunkSummaries)
SWATH_KERNEL(swath_summary_areas, AreaSummaries)
