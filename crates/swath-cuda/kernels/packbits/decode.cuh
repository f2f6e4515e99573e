// Decodes PackBits (compression 32773): all lanes of a block work on one tile.
//
// A packet begins where the one before it ends, so a window of the stream is decoded in three steps:
// - For every byte, as if a packet began there: find where the chain of packets leaves its piece of 16 bytes (each lane
//   goes backwards through a piece), and where it leaves its stretch of 16 pieces (halves joined to wholes, four times).
// - From where the chain enters the window, every lane hops over stretches and then over pieces to its own piece.
// - Lanes count the packets that begin in their pieces and the bytes these make. Sums give each packet its place in a
//   list, and lanes fill the output 16 bytes at a time, each after looking up its first packet in the list.
#pragma once
#include "core/kernel.cuh"
#include "core/memory.cuh"

struct PackBits {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;

    static constexpr u32 NOP = 128;
    static constexpr u32 PIECE = 16;
    static constexpr u32 PIECES = 256;
    static constexpr u32 WINDOW = PIECE * PIECES;
    static constexpr u32 STRETCH = 16 * PIECE;
    // A packet that makes bytes takes at least two.
    static constexpr u32 PACKETS = WINDOW / 2;

    struct Shared {
        // Where a chain from each byte leaves its piece, and its stretch; see `slot`.
        u16 leaves_piece[WINDOW + 2 * PIECES];
        u16 leaves_stretch[WINDOW + 2 * PIECES];
        // Where the chain enters each piece; the end of the piece or beyond if it does not.
        u16 enters[PIECES];
        // The start of the output of each packet << 13, and the start of the packet in the window.
        u32 packets[PACKETS + 1];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 tile = block; tile < args.count; tile += blocks) {
            const TileJob job = args.tiles[tile];
            const u32 status = decode(group, args, job, shared);
            if (group.lane() == 0) args.status[tile] = status;
        }
    }

  private:
    // Neighbouring pieces begin in different banks.
    SWATH_FN static u32 slot(u32 at) { return at + at / PIECE * 2; }

    // Bytes from a header to the next.
    SWATH_FN static u32 step_of(u32 header) { return header < NOP ? header + 2 : header == NOP ? 1 : 2; }

    // Bytes that a packet makes if `after` bytes follow its header. A packet that is cut short makes what it can: then
    // the tile is full, or the stream is too short.
    SWATH_FN static u32 made_by(u32 header, u64 after) {
        if (header < NOP) return u32(min_of(u64(header + 1), after));
        return header == NOP || after == 0 ? 0 : 257 - header;
    }

    template <class Group>
    SWATH_FN static u32 decode(const Group& group, const Args& args, const TileJob& job, Shared& shared) {
        // Headers are read 16 bytes at a time, so bytes after the stream are loaded too.
        const Span<const u8> padded = Span<const u8>(args.src, args.src_len).part(job.src, job.src_len + 16);
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len);
        if (job.src_len > ~0ull / 16 || padded.len != job.src_len + 16 || dst.len != job.dst_len) return STATUS_CORRUPT;
        if (!aligned_to(padded.data, 16)) return STATUS_CORRUPT;
        const Span<const u8> src(padded.data, job.src_len);
        u64 done = 0, enter = 0;
        for (u64 window = 0; done < dst.len; window += WINDOW) {
            if (window >= src.len) return STATUS_SHORT;
            // No packet is longer than a window, so the chain enters every window.
            const u32 leave = chain(group, src, window, u32(enter - window), shared);
            enter = window + leave;
            u32 count;
            const u32 len = list(group, src, window, count, shared);
            fill(group, src, window, count, len, dst, done, shared);
            done += len;
        }
        return STATUS_OK;
    }

    // Follows the chain of packets that enters the window at `enter`: finds where it enters each piece, and returns where
    // it leaves the window.
    template <class Group>
    SWATH_FN static u32 chain(const Group& group, const Span<const u8>& src, u64 window, u32 enter, Shared& shared) {
        for (u32 piece = group.lane(); piece < PIECES; piece += group.size()) {
            const u64 place = window + piece * PIECE;
            // Loads up to 15 bytes after the last byte of the stream.
            const Quad quad = place < src.len ? load_quad(src.data + place) : Quad{{0, 0, 0, 0}};
            const u32 end = (piece + 1) * PIECE;
            SWATH_UNROLL
            for (u32 k = PIECE; k-- > 0;) {
                const u32 at = piece * PIECE + k, next = at + step_of(quad.words[k / 4] >> (k % 4 * 8) & 0xff);
                const u32 leave = next < end ? shared.leaves_piece[slot(next)] : next;
                shared.leaves_piece[slot(at)] = u16(leave);
                shared.leaves_stretch[slot(at)] = u16(leave);
            }
        }
        group.sync();
        // Chains from the first half of a part go on through its second half, which this round does not change.
        for (u32 half = PIECE; half < STRETCH; half *= 2) {
            for (u32 k = group.lane(); k < WINDOW / 2; k += group.size()) {
                const u32 at = k + (k & ~(half - 1)), next = shared.leaves_stretch[slot(at)];
                if (next < (at & ~(2 * half - 1)) + 2 * half) {
                    shared.leaves_stretch[slot(at)] = shared.leaves_stretch[slot(next)];
                }
            }
            group.sync();
        }
        for (u32 piece = group.lane(); piece < PIECES; piece += group.size()) {
            u32 at = enter;
            const u32 first = piece * PIECE, stretch = first & ~(STRETCH - 1);
            while (at < stretch) at = shared.leaves_stretch[slot(at)];
            while (at < first) at = shared.leaves_piece[slot(at)];
            shared.enters[piece] = u16(at);
        }
        u32 leave = enter;
        while (leave < WINDOW) leave = shared.leaves_stretch[slot(leave)];
        group.sync();
        return leave;
    }

    // Lists the packets of the window that make bytes; returns the number of these bytes.
    template <class Group>
    SWATH_FN static u32 list(const Group& group, const Span<const u8>& src, u64 window, u32& count, Shared& shared) {
        const u32 each = (PIECES + group.size() - 1) / group.size();
        const u32 from = min_of(group.lane() * each, PIECES), to = min_of(from + each, PIECES);
        // One sum for both: packets << 19, and bytes (at most 2^18).
        u32 sum = 0;
        for (u32 piece = from; piece < to; piece++) {
            for (u32 at = shared.enters[piece]; at < (piece + 1) * PIECE && window + at < src.len;) {
                const u32 header = src.data[window + at], made = made_by(header, src.len - (window + at) - 1);
                sum += made > 0 ? 1u << 19 | made : 0;
                at += step_of(header);
            }
        }
        u32 total;
        const u32 before = group.exclusive_sum(sum, total);
        u32 index = before >> 19, start = before & ((1u << 19) - 1);
        for (u32 piece = from; piece < to; piece++) {
            for (u32 at = shared.enters[piece]; at < (piece + 1) * PIECE && window + at < src.len;) {
                const u32 header = src.data[window + at], made = made_by(header, src.len - (window + at) - 1);
                if (made > 0) shared.packets[index++] = start << 13 | at;
                start += made;
                at += step_of(header);
            }
        }
        count = total >> 19;
        const u32 len = total & ((1u << 19) - 1);
        if (group.lane() == 0) shared.packets[count] = len << 13;
        group.sync();
        return len;
    }

    // Fills `dst` from `done` on with the `len` bytes of the listed packets, as far as they fit.
    template <class Group>
    SWATH_FN static void fill(const Group& group, const Span<const u8>& src, u64 window, u32 count, u32 len,
        const Span<u8>& dst, u64 done, const Shared& shared) {
        u8* const to = dst.data + done;
        const u32 end = u32(min_of(u64(len), dst.len - done));
        // Writes 16 bytes at multiples of 16 in memory: the first quad may begin before `to`.
        const u32 skip = u32(reinterpret_cast<u64>(to) & 15);
        const u32 whole = end > 0 ? end + skip : 0;
        for (u32 quad = group.lane() * 16; quad < whole; quad += group.size() * 16) {
            const u32 from = quad < skip ? 0 : quad - skip, until = min_of(quad + 16 - skip, end);
            u32 low = 0, high = count;
            while (high - low > 1) {
                const u32 middle = (low + high) / 2;
                if (shared.packets[middle] >> 13 <= from) low = middle;
                else high = middle;
            }
            Quad bytes = {{0, 0, 0, 0}};
            u32 next = from, data = 0, value = 0;
            bool run = false;
            SWATH_UNROLL
            for (u32 k = 0; k < 16; k++) {
                const u32 at = quad + k - skip;
                if (at < from || at >= until) continue;
                if (at == next) {
                    const u32 packet = shared.packets[low], place = packet & 0x1fff;
                    run = src.get(window + place) > NOP;
                    data = place + 1 + (run ? 0 : at - (packet >> 13));
                    value = src.get(window + data);
                    next = shared.packets[++low] >> 13;
                } else if (!run) {
                    value = src.get(window + ++data);
                }
                bytes.words[k / 4] |= value << (k % 4 * 8);
            }
            if (until - from == 16) {
                store_quad(to + from, bytes);
            } else {
                SWATH_UNROLL
                for (u32 k = 0; k < 16; k++) {
                    const u32 at = quad + k - skip;
                    if (at >= from && at < until) to[at] = u8(bytes.words[k / 4] >> (k % 4 * 8));
                }
            }
        }
        group.sync();
    }
};
