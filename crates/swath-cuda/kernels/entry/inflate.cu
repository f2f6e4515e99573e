// Deflate tiles.
#include "../deflate.cuh"

using InflateTile = Inflate<128, 17, 4096>;
SWATH_KERNEL(swath_inflate, InflateTile)

using InflateFewTiles = Inflate<512, 5, 8192>;
SWATH_KERNEL(swath_inflate_few, InflateFewTiles)
