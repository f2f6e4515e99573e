// Decodes Deflate tiles: three sizes of block, for many tiles and for few.
#include "deflate/decode.cuh"

using InflateMany = Inflate<128, 9, 4096>;
SWATH_INFLATE(swath_inflate, InflateMany, 8)

using InflateSome = Inflate<256, 9, 8192>;
SWATH_INFLATE(swath_inflate_some, InflateSome, 4)

using InflateFew = Inflate<512, 5, 8192>;
SWATH_INFLATE(swath_inflate_few, InflateFew, 2)
