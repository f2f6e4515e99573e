// Decodes Zstd tiles: five kernels, one after the other. For few tiles, others read the sequences and the literals, and three
// kernels stand for the last.
#include "zstd/decode_chain.cuh"
#include "zstd/decode_execute.cuh"
#include "zstd/decode_literals.cuh"
#include "zstd/decode_sequences.cuh"
#include "zstd/decode_layout.cuh"
#include "zstd/decode_walk.cuh"
#include "zstd/decode_windows.cuh"

SWATH_KERNEL(swath_zstd_walk, ZstdWalk)
SWATH_KERNEL(swath_zstd_sequences, ZstdMeasure)
SWATH_KERNEL(swath_zstd_sequences_few, ZstdChain)
SWATH_KERNEL(swath_zstd_layout, ZstdLayout)

using ZstdLiteralsMany = ZstdDecodeLiterals<8>;
SWATH_KERNEL(swath_zstd_literals, ZstdLiteralsMany)

using ZstdLiteralsFew = ZstdDecodeLiterals<32>;
SWATH_KERNEL(swath_zstd_literals_few, ZstdLiteralsFew)

using ZstdExecuteMany = ZstdExecute<256, 4096>;
SWATH_KERNEL(swath_zstd_execute, ZstdExecuteMany)

using ZstdExecuteSome = ZstdExecute<512, 8192>;
SWATH_KERNEL(swath_zstd_execute_some, ZstdExecuteSome)

SWATH_KERNEL(swath_zstd_cells, ZstdCells)
SWATH_KERNEL(swath_zstd_join, ZstdJoin)

using ZstdExecuteRest = ZstdRest<ZstdExecute<1024, 8192>>;
SWATH_KERNEL(swath_zstd_execute_rest, ZstdExecuteRest)
