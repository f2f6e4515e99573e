// Deflate tiles: three sizes of block, for many tiles and for few.
#include "../deflate.cuh"

#if SWATH_DEVICE
// How many blocks a multiprocessor is to hold says how many registers a thread may have.
#define SWATH_INFLATE(name, Kernel, blocks)                                                             \
    extern "C" __global__ void __launch_bounds__(Kernel::THREADS, blocks) name(const Kernel::Args args) { \
        __shared__ Kernel::Shared shared;                                                               \
        __shared__ BlockGroup::Shared group_shared;                                                     \
        Kernel::run(BlockGroup(group_shared), blockIdx.x, gridDim.x, args, shared);                     \
    }
#else
#define SWATH_INFLATE(name, Kernel, blocks) SWATH_KERNEL(name, Kernel)
#endif

using InflateMany = Inflate<128, 9, 4096>;
SWATH_INFLATE(swath_inflate, InflateMany, 8)

using InflateSome = Inflate<256, 9, 8192>;
SWATH_INFLATE(swath_inflate_some, InflateSome, 4)

using InflateFew = Inflate<512, 5, 8192>;
SWATH_INFLATE(swath_inflate_few, InflateFew, 2)
