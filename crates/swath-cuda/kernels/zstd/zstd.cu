// Decodes Zstd tiles: five kernels, one after the other. The last one comes in three sizes of block, for many tiles and
// for few.
#include "zstd/decode_execute.cuh"
#include "zstd/decode_literals.cuh"
#include "zstd/decode_sequences.cuh"
#include "zstd/decode_layout.cuh"
#include "zstd/decode_walk.cuh"

SWATH_KERNEL(swath_zstd_walk, ZstdWalk)
SWATH_KERNEL(swath_zstd_sequences, ZstdMeasure)
SWATH_KERNEL(swath_zstd_layout, ZstdLayout)
SWATH_KERNEL(swath_zstd_literals, ZstdDecodeLiterals)

using ZstdExecuteMany = ZstdExecute<256, 4096>;
SWATH_KERNEL(swath_zstd_execute, ZstdExecuteMany)

using ZstdExecuteSome = ZstdExecute<512, 8192>;
SWATH_KERNEL(swath_zstd_execute_some, ZstdExecuteSome)

using ZstdExecuteFew = ZstdExecute<1024, 8192>;
SWATH_KERNEL(swath_zstd_execute_few, ZstdExecuteFew)
