// Finds, for every position of a tile, the last earlier position whose next bytes have the same hash.
//
// The matcher (lz/match.cuh) follows these links. They need only the bytes of the tile, so this is a kernel of its own, and
// the pieces of the tile are encoded side by side afterwards. A tile is cut into segments, which no link leaves. The hashes
// of a segment are divided into slices: a block of the grid takes the positions of one slice, so that their table fits the
// shared memory. It takes the positions in rounds: first all look up their hash, then all enter it. So a link never leads
// into its own round, and the order in which lanes run changes nothing.
#pragma once
#include "core/atomics.cuh"
#include "core/encode_args.cuh"
#include "core/kernel.cuh"
#include "core/memory.cuh"
#include "lz/bytes.cuh"

// Where the links of a launch are: at the start of the scratch memory, a word for each byte of the slots of all tiles. Efforts
// 1 and 2 need none.
struct LzLinkTable {
    SWATH_FN static u64 len(const EncodeArgs& args) { return args.effort > 2 ? args.tiles * args.src_stride * 4 : 0; }
    // The links of a tile; empty if the scratch memory is too short or misaligned.
    SWATH_FN static Span<u32> of(const EncodeArgs& args, u64 tile) {
        if (args.effort <= 2) return Span<u32>(nullptr, 0);
        const Span<u8> all = Span<u8>(args.scratch, args.scratch_len).part(tile * args.src_stride * 4, args.src_stride * 4);
        if (all.len != args.src_stride * 4 || !aligned_to(all.data, 4)) return Span<u32>(nullptr, 0);
        return Span<u32>(reinterpret_cast<u32*>(all.data), args.src_stride);
    }
};

// Where the matches of a piece may come from: `bytes` from the start of a segment to the end of the piece, which begins
// at `start`, and the links of those bytes (lz/links.cuh), if any.
struct LzSource {
    LzBytes bytes;
    u32 start;
    Span<u32> links;
};

// A link: the distance, and bits of the hash of the bytes at its own position. 0 is no link.
struct LzLink {
    static constexpr u32 DISTANCE_BITS = 23;
    // So many bytes are hashed that they hold CHANCE bits of information: positions that agree in fewer bits may do so by
    // chance.
    static constexpr u32 CHANCE = 22, MOST_HASHED = 8;

    // The hash of two words; `unused` is the number of bits of the second to leave out.
    SWATH_FN static u32 mix(u32 low, u32 high, u32 unused) {
        u32 mixed = low * 0x9e3779b1u;
        if (unused < 32) mixed = (mixed ^ mixed >> 15 ^ high << unused) * 0x85ebca6bu;
        return mixed ^ mixed >> 15;
    }
    SWATH_FN static u32 make(u32 distance, u32 mixed) { return low_bits(distance, DISTANCE_BITS) | mixed << DISTANCE_BITS; }
    SWATH_FN static u32 distance(u32 link) { return low_bits(link, DISTANCE_BITS); }
    // Whether two positions may have the same next bytes.
    SWATH_FN static bool alike(u32 one, u32 other) { return (one ^ other) >> DISTANCE_BITS == 0; }
};

// `SEGMENT` is the number of pieces of a segment, and `LEAST` the fewest bytes to hash (4 to 8).
template <u32 SEGMENT, u32 LEAST> struct LzLinks {
    static constexpr u32 THREADS = 256;
    using Args = EncodeArgs;

    static constexpr u64 LONGEST = 1u << LzLink::DISTANCE_BITS;  // the longest segment
    static constexpr u32 ROUND = 1024;
    static constexpr u32 SLICE_BITS = 3, HEAD_BITS = 13;
    static constexpr u32 SLICES = 1u << SLICE_BITS, HEADS = 1u << HEAD_BITS;
    static constexpr u32 COPIES = 4, SAMPLES = 2048;

    // The positions of a round that belong to the slice, in order.
    struct Queue {
        u32 hashes[ROUND];
        u16 places[ROUND];
        u32 count;
    };
    struct Shared {
        u32 heads[HEADS];  // the last position with each hash of the slice, + 1
        Queue queues[2];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u64 segments = (u64(args.pieces) + SEGMENT - 1) / SEGMENT, all = args.tiles * segments * SLICES;
        const u64 len = u64(SEGMENT) * args.piece_len;
        for (u64 item = block; item < all; item += blocks) {
            const u64 tile = item / SLICES / segments, start = item / SLICES % segments * len, tile_len = args.lens[tile];
            if (tile_len > args.src_stride || start >= tile_len || len > LONGEST) continue;
            // Words are read, including all of the one that holds the last byte.
            const u64 words = (tile_len + 3) & ~3ull;
            const Span<const u8> whole = Span<const u8>(args.src, args.src_len).part(tile * args.src_stride, words);
            const Span<u32> links = LzLinkTable::of(args, tile);
            if (whole.len != words || links.len != args.src_stride || !aligned_to(whole.data, 4)) continue;
            const LzBytes bytes(whole.part(start, min_of(len, tile_len - start)));
            link(group, bytes, u32(item % SLICES), links.data + start, shared);
            group.sync();
        }
    }

  private:
    // One warp enters the positions of a round while the others find those of the next.
    template <class Group>
    SWATH_FN static void link(const Group& group, const LzBytes& bytes, u32 slice, u32* links, Shared& shared) {
        const u32 hashed = bytes_to_hash(group, bytes, shared);
        for (u32 k = group.lane(); k < HEADS; k += group.size()) shared.heads[k] = 0;
        const auto warp = group.warp();
        for (u32 base = 0, round = 0; base < bytes.len + ROUND; base += ROUND, round++) {
            fill(group, bytes, base, hashed, slice, shared.queues[round % 2]);
            if (round > 0 && warp.index() == 0) enter(warp, base - ROUND, shared.queues[(round + 1) % 2], links, shared);
        }
    }

    // Lists the positions of a round whose hash belongs to the slice. Each lane takes a few fours of positions.
    template <class Group>
    SWATH_FN static void fill(const Group& group, const LzBytes& bytes, u32 base, u32 hashed, u32 slice, Queue& queue) {
        const u32 each = ROUND / min_of(group.size(), ROUND / 4), unused = (LzLink::MOST_HASHED - hashed) * 8;
        const u32 from = min_of(base + group.lane() * each, bytes.len), to = min_of(from + each, bytes.len);
        u32 mixed[4];
        u32 mine = 0;
        for (u32 at = from; at < to; at += 4) {
            hash_four(bytes, at, unused, mixed);
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) mine += at + k < to && mixed[k] >> (32 - SLICE_BITS) == slice;
        }
        u32 total;
        u32 index = group.exclusive_sum(mine, total);
        for (u32 at = from; at < to; at += 4) {
            // Usually a lane has four positions, and their hashes are at hand.
            if (each > 4) hash_four(bytes, at, unused, mixed);
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) {
                if (at + k >= to || mixed[k] >> (32 - SLICE_BITS) != slice) continue;
                queue.hashes[index] = mixed[k];
                queue.places[index++] = u16(at + k - base);
            }
        }
        if (group.lane() == 0) queue.count = total;
        group.sync();
    }

    // The hashes at four positions.
    SWATH_FN static void hash_four(const LzBytes& bytes, u32 at, u32 unused, u32* mixed) {
        const u32 first = at + bytes.skew;
        if ((first & 3) == 0 && at + 12 <= bytes.len) {
            const u32 low = bytes.words[first >> 2], middle = bytes.words[(first >> 2) + 1], high = bytes.words[(first >> 2) + 2];
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) mixed[k] = LzLink::mix(joined(low, middle, 8 * k), joined(middle, high, 8 * k), unused);
            return;
        }
        SWATH_UNROLL
        for (u32 k = 0; k < 4; k++) {
            const u32 here = min_of(at + k, bytes.len - 1);
            mixed[k] = LzLink::mix(bytes.four(here), bytes.four(min_of(here + 4, bytes.len - 1)), unused);
        }
    }

    // Links each position of the queue to the last one before it with the same hash.
    template <class Warp>
    SWATH_FN static void enter(const Warp& warp, u32 base, const Queue& queue, u32* links, Shared& shared) {
        const u32 lane = warp.lane();
        for (u32 first = 0; first < queue.count; first += warp.size()) {
            const bool valid = first + lane < queue.count;
            const u32 mixed = valid ? queue.hashes[first + lane] : 0, at = base + (valid ? queue.places[first + lane] : 0);
            // A lane without a position agrees with no other.
            const u32 head = valid ? mixed >> (32 - SLICE_BITS - HEAD_BITS) & (HEADS - 1) : HEADS + lane;
            const u32 same = warp.same_as(head), before = same & ((1u << lane) - 1);
            const u32 near = warp.value_of(at + 1, before != 0 ? highest_one(before) : lane);
            const u32 last = before != 0 ? near : valid ? shared.heads[head] : 0;
            warp.sync();
            if (valid && same >> lane == 1) shared.heads[head] = at + 1;
            if (valid) links[at] = LzLink::make(last == 0 ? 0 : at + 1 - last, mixed);
            warp.sync();
        }
    }

    // Finds from a sample of the segment how many bytes to hash: enough that most equal ones are not equal by chance.
    template <class Group>
    SWATH_FN static u32 bytes_to_hash(const Group& group, const LzBytes& bytes, Shared& shared) {
        for (u32 k = group.lane(); k < COPIES * 256; k += group.size()) shared.heads[k] = 0;
        group.sync();
        u32* const counts = shared.heads + group.lane() % COPIES * 256;
        const u32 groups = max_of(bytes.len / SAMPLES, 4u);
        for (u32 k = group.lane(); k < SAMPLES && u64(k) * groups + 4 <= bytes.len; k += group.size()) {
            const u32 four = bytes.four(k * groups);
            SWATH_UNROLL
            for (u32 shift = 0; shift < 32; shift += 8) atomic_add(&counts[four >> shift & 0xff], 1u);
        }
        group.sync();
        u32 all = 0, sum = 0;
        for (u32 k = group.lane(); k < 256; k += group.size()) {
            for (u32 copy = 1; copy < COPIES; copy++) shared.heads[k] += shared.heads[copy * 256 + k];
            sum += shared.heads[k];
        }
        group.exclusive_sum(sum, all);
        sum = 0;
        for (u32 k = group.lane(); k < 256; k += group.size()) {
            sum += shared.heads[k] * min_of(max_of(log_of(all) - log_of(shared.heads[k]), 16u), 15 * 16u);
        }
        u32 total;
        group.exclusive_sum(sum, total);
        group.sync();
        const u32 mean = all == 0 ? 16 * 8 : max_of(total / all, 1u);
        return min_of(max_of(LzLink::CHANCE * 16 / mean, LEAST), LzLink::MOST_HASHED);
    }
};
