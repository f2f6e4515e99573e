// Decodes Deflate tiles whose streams are listed as pieces: a block of lanes decodes each piece, then the pieces are
// joined.
//
// The list of pieces comes from the file, so the kernels do not trust it. Still, a tile that passes is exactly what one
// decoder would make of the whole stream. Such a decoder carries only this from block to block: the bit where the next
// block begins, the number of bytes so far, and that no block was the last. So a piece passes only if its blocks begin at
// its first bit and end with its last, where the next piece begins; if they make exactly the bytes before the next piece;
// if none of them is the last block (in the last piece: if one is); and if no match reaches before the piece, so that
// earlier bytes do not matter. The header and checksum of the stream are checked when all pieces are done.
#pragma once
#include "deflate/decode.cuh"

// One piece: the place of its blocks in the compressed buffer, at any byte, and of its bytes in the decoded buffer, at a
// multiple of 16.
struct PieceJob {
    u64 src;
    u64 src_len;  // up to the next piece, or to the end of the stream
    u64 dst;
    u64 dst_len;
    u32 last;  // not 0: last piece of its tile
    u32 unused;
};

// The result of decoding a piece.
struct PieceNote {
    u32 status;
    u32 sum;     // Adler-32 of its bytes
    u32 stored;  // of the last piece: the checksum stored after its blocks
    u32 unused;
};

struct PiecesArgs {
    const u8* src;
    u64 src_len;
    u8* dst;
    u64 dst_len;
    const PieceJob* pieces;
    PieceNote* notes;  // one per piece
    u64 count;
};

// The kernel needs no scratch memory. Block b takes pieces b, b + blocks and so on.
template <class Inflate> struct InflatePieces {
    static constexpr u32 THREADS = Inflate::THREADS;
    using Args = PiecesArgs;
    using Shared = typename Inflate::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 at = block; at < args.count; at += blocks) {
            const PieceJob job = args.pieces[at];
            // The kernel loads words, so the stream starts at the aligned word before its first byte.
            const u64 before = job.src % 16, src_len = job.src_len + before;
            typename Inflate::Tile tile{Span<const u8>(args.src, args.src_len).part(job.src - before, src_len),
                                        Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len),
                                        before * 8,
                                        0,
                                        {0, 0}};
            PieceNote note = {STATUS_CORRUPT, 0, 0, 0};
            const bool inside = tile.src.len == src_len && tile.dst.len == job.dst_len;
            if (inside && job.dst_len <= 1ull << 31)
                note.status = Inflate::decode_blocks(group, tile, shared, job.last != 0);
            if (note.status == STATUS_OK) note.sum = Inflate::sum(group, tile);
            if (note.status == STATUS_OK && job.last) {
                note.stored = Inflate::stored_sum(tile);
                if (Inflate::tail_at(tile) + 4 > tile.src.len) note.status = STATUS_CORRUPT;
            }
            if (group.lane() == 0) args.notes[at] = note;
            group.sync();
        }
    }
};

// The pieces of a tile: `count` pieces from `first` on.
struct PieceRange {
    u32 first;
    u32 count;
};

struct JoinArgs {
    const u8* src;
    u64 src_len;
    const TileJob* tiles;  // whole streams, whole tiles
    const PieceRange* ranges;
    const PieceJob* pieces;
    const PieceNote* notes;
    u64 pieces_len;
    u32* status;  // one per tile
    u64 count;
};

// Sets the status of each tile from the results of its pieces. A lane takes a tile.
struct JoinPieces {
    static constexpr u32 THREADS = 64;
    using Args = JoinArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 tile = u64(block) * group.size() + group.lane(); tile < args.count; tile += step)
            args.status[tile] = join(args, args.tiles[tile], args.ranges[tile]);
    }

  private:
    SWATH_FN static u32 join(const Args& args, const TileJob& tile, const PieceRange& range) {
        if (range.count == 0 || u64(range.first) + range.count > args.pieces_len) return STATUS_CORRUPT;
        if (!has_zlib_head(Span<const u8>(args.src, args.src_len).part(tile.src, tile.src_len))) return STATUS_CORRUPT;
        // Each piece begins where the one before ends, the first after the header, and the last ends with the stream.
        u64 src = tile.src + 2, dst = tile.dst, low = 1, high = 0;
        u32 stored = 0;
        for (u64 at = range.first; at < u64(range.first) + range.count; at++) {
            const PieceJob& piece = args.pieces[at];
            const PieceNote note = args.notes[at];
            if (note.status != STATUS_OK) return note.status;
            const bool last = at + 1 == u64(range.first) + range.count;
            if (piece.src != src || piece.dst != dst || (piece.last != 0) != last) return STATUS_CORRUPT;
            // The bytes so far count once more for each byte of the piece.
            const u64 so_far = (low + ADLER_MODULUS - 1) % ADLER_MODULUS;
            high = (high + (note.sum >> 16) + so_far * (piece.dst_len % ADLER_MODULUS)) % ADLER_MODULUS;
            low = (so_far + (note.sum & 0xffff)) % ADLER_MODULUS;
            src += piece.src_len;
            dst += piece.dst_len;
            stored = note.stored;
        }
        if (src != tile.src + tile.src_len || dst != tile.dst + tile.dst_len) return STATUS_CORRUPT;
        return stored == u32(high << 16 | low) ? STATUS_OK : STATUS_CHECKSUM;
    }
};
