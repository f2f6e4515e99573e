// Decodes few Deflate tiles, each with many blocks of threads: six kernels, of which the second is launched several times.
#include "deflate/decode_cells.cuh"
#include "deflate/decode_spans.cuh"

SWATH_KERNEL(swath_inflate_start, InflateStart)
SWATH_KERNEL(swath_inflate_span, InflateSpan)
SWATH_KERNEL(swath_inflate_finish, InflateFinish)
SWATH_KERNEL(swath_inflate_cells, InflateCells)
SWATH_KERNEL(swath_inflate_join, InflateJoin)

using InflateAlone = InflateRest<Inflate<512, 5, 8192>>;
SWATH_INFLATE(swath_inflate_rest, InflateAlone, 2)
