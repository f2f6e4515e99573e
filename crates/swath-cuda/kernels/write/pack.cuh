// Packs compressed tiles: finds the place of each, then copies.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"

// The tail after the pieces of a tile.
enum PackTail : u32 { TAIL_NONE = 0, TAIL_ADLER = 1 };

// Tile t of the batch becomes: its length in four bytes (little endian, if `frame` is set) | `head` | its pieces | the
// tail (the Adler-32 checks[t], big endian) | its last four bytes again (if `frame` is set). A tile with lens[t] == 0
// becomes nothing. `Layout` sets wholes[t] to the length of all that and offsets[t] to its start: the first tile starts
// at *total, which moves on to the end of the last. A tile that would end beyond dst_len gets length 0xffffffff in
// wholes[t] and is not copied; *total still counts it. A tile with a piece longer than src_stride, or partly outside of
// src, gets length 0xffffffff too and is not counted. `Pack` copies.
struct PackArgs {
    const u8* src;     // pieces, as EncodeArgs.dst
    u64 src_len;
    u64 src_stride;
    u8* dst;
    u64 dst_len;
    const u32* lens;
    const u32* sizes;  // lengths of the pieces
    const u32* checks; // one for each tile, or null
    u32* wholes;
    u64* offsets;
    u64* total;
    u32 tiles;
    u32 pieces;
    u32 head_len;      // at most 16
    u32 tail;
    u32 frame;
    u32 len_in_head;   // not 0: the last four bytes of the head become lens[t], little endian
    u8 head[16];
};

namespace packing {

constexpr u32 NOT_COPIED = 0xffffffffu;
constexpr u32 FRAME = 4;

// Piece `piece` of a tile; empty if it is not all there.
SWATH_FN Span<const u8> piece_of(const PackArgs& args, u32 tile, u32 piece, u32 size) {
    const Span<const u8> none(args.src, 0);
    const u64 index = u64(tile) * args.pieces + piece;
    if (size > args.src_stride || index > 0xffffffffu) return none;
    return Span<const u8>(args.src, args.src_len).part(moving::saturating_mul(u32(index), args.src_stride), size);
}

SWATH_FN u32 tail_len(const PackArgs& args) { return args.tail == TAIL_ADLER && args.checks != nullptr ? 4 : 0; }
SWATH_FN u32 frame_len(const PackArgs& args) { return args.frame != 0 ? FRAME : 0; }

// The length of a tile with head, tail and frame; `NOT_COPIED` if a piece is missing.
SWATH_FN u32 whole_of(const PackArgs& args, u32 tile) {
    if (args.lens[tile] == 0) return 0;
    u64 whole = u64(args.head_len) + tail_len(args) + 2 * frame_len(args);
    for (u32 piece = 0; piece < args.pieces; piece++) {
        const u32 size = args.sizes[u64(tile) * args.pieces + piece];
        if (piece_of(args, tile, piece, size).len != size) return NOT_COPIED;
        whole += size;
    }
    return whole < NOT_COPIED ? u32(whole) : NOT_COPIED;
}

}  // namespace packing

// One block does all; others do nothing.
struct Layout {
    static constexpr u32 THREADS = 1024;
    using Args = PackArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32, const PackArgs& args, Shared&) {
        if (block != 0 || args.head_len > 16) return;
        u64 next = *args.total;
        group.sync();
        for (u64 first = 0; first < args.tiles; first += group.size()) {
            const u64 tile = first + group.lane();
            const u32 whole = tile < args.tiles ? packing::whole_of(args, u32(tile)) : 0;
            const u32 takes = whole == packing::NOT_COPIED ? 0 : whole;
            // In two halves, because the sum over all lanes exceeds 32 bits.
            u32 lows, highs;
            const u32 low = group.exclusive_sum(takes & 0xffff, lows);
            const u32 high = group.exclusive_sum(takes >> 16, highs);
            if (tile < args.tiles) {
                const u64 offset = next + (u64(high) << 16) + low;
                const bool fits = offset <= args.dst_len && takes <= args.dst_len - offset;
                args.offsets[tile] = offset;
                args.wholes[tile] = fits ? whole : packing::NOT_COPIED;
            }
            next += (u64(highs) << 16) + lows;
        }
        if (group.lane() == 0) *args.total = next;
    }
};

// Blocks share the pieces of all tiles; the block of the first piece also writes head and tail.
struct Pack {
    static constexpr u32 THREADS = 256;
    using Args = PackArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const PackArgs& args, Shared&) {
        if (args.head_len > 16) return;
        const u64 jobs = u64(args.tiles) * args.pieces;
        for (u64 job = block; job < jobs; job += blocks) {
            const u32 tile = u32(job / args.pieces), piece = u32(job - u64(tile) * args.pieces);
            const u32 whole = args.wholes[tile];
            const u32 around = args.head_len + packing::tail_len(args) + 2 * packing::frame_len(args);
            if (args.lens[tile] == 0 || whole == packing::NOT_COPIED || whole < around) continue;
            const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(args.offsets[tile], whole);
            if (dst.len != whole) continue;
            if (piece == 0) put_around(group, args, tile, dst);
            u32 sum = 0, before;
            for (u32 other = group.lane(); other < piece; other += group.size()) sum += args.sizes[job - piece + other];
            group.exclusive_sum(sum, before);
            const u32 size = args.sizes[job];
            const Span<const u8> from = packing::piece_of(args, tile, piece, size);
            const u32 room = whole - around;
            if (from.len != size || before > room || size > room - before) continue;
            u8* const to = dst.data + packing::frame_len(args) + args.head_len + before;
            moving::copy<u8>(group, from.data, to, size, moving::Same<u8>{});
        }
    }

  private:
    // Byte `at` of a tile's length, head, pieces and tail.
    SWATH_FN static u8 byte_of(const PackArgs& args, u32 tile, u32 whole, u32 at) {
        const u32 frame = packing::frame_len(args), tail = packing::tail_len(args), stream = whole - 2 * frame;
        if (at < frame) return u8(stream >> (8 * at));
        at -= frame;
        if (at < args.head_len) {
            if (args.len_in_head != 0 && at + 4 >= args.head_len)
                return u8(args.lens[tile] >> (8 * (at + 4 - args.head_len)));
            // Constant indices only: arguments whose address is taken are copied to slow memory first.
            u8 byte = 0;
            SWATH_UNROLL
            for (u32 k = 0; k < 16; k++)
                if (k == at) byte = args.head[k];
            return byte;
        }
        if (at >= stream - tail) return u8(args.checks[tile] >> (8 * (stream - 1 - at)));
        // Only the last bytes of a tile are requested: search from the last piece back.
        u32 behind = stream - tail - at;
        for (u32 piece = args.pieces; piece-- > 0;) {
            const u32 size = args.sizes[u64(tile) * args.pieces + piece];
            if (size >= behind) return packing::piece_of(args, tile, piece, size).get(size - behind);
            behind -= size;
        }
        return 0;
    }

    template <class Group>
    SWATH_FN static void put_around(const Group& group, const PackArgs& args, u32 tile, const Span<u8>& dst) {
        const u32 frame = packing::frame_len(args), tail = packing::tail_len(args), whole = u32(dst.len);
        const u32 front = frame + args.head_len;
        for (u32 k = group.lane(); k < front + tail + frame; k += group.size()) {
            const u32 at = k < front ? k : whole - tail - frame + (k - front);
            // The last four bytes again.
            const u32 source = at >= whole - frame ? at - frame : at;
            dst.set(at, byte_of(args, tile, whole, source));
        }
    }
};
