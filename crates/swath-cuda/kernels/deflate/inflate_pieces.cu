// Decodes Deflate tiles piece by piece: three sizes of block, for many pieces and for few, and the kernel that joins the
// pieces.
#include "deflate/decode_pieces.cuh"

using PiecesMany = InflatePieces<Inflate<128, 9, 4096>>;
SWATH_INFLATE(swath_inflate_pieces, PiecesMany, 8)

using PiecesSome = InflatePieces<Inflate<256, 9, 8192>>;
SWATH_INFLATE(swath_inflate_pieces_some, PiecesSome, 4)

using PiecesFew = InflatePieces<Inflate<512, 5, 8192>>;
SWATH_INFLATE(swath_inflate_pieces_few, PiecesFew, 2)

SWATH_KERNEL(swath_join_pieces, JoinPieces)
