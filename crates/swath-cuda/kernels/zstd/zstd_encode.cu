// Encodes tiles as Zstd frames.
#include "lz/match.cuh"
#include "zstd/encode.cuh"

using ZstdEncoder = ZstdEncode<LzMatch, LzLimits, 128>;
using ZstdLinks = LzLinks<ZstdEncoder::SEGMENT, 5>;

SWATH_KERNEL(swath_zstd_links, ZstdLinks)

#if SWATH_DEVICE
// Eight blocks on a multiprocessor: some work while one lane of another block follows a chain.
extern "C" __global__ void __launch_bounds__(ZstdEncoder::THREADS, 8) swath_zstd_encode(const ZstdEncoder::Args args) {
    __shared__ ZstdEncoder::Shared shared;
    __shared__ BlockGroup::Shared group_shared;
    ZstdEncoder::run(BlockGroup(group_shared), blockIdx.x, gridDim.x, args, shared);
}
#else
SWATH_KERNEL(swath_zstd_encode, ZstdEncoder)
#endif
