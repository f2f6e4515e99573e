// Finds the matches in a piece of a tile that Deflate and Zstd then encode.
//
// The matcher goes through a piece in windows. For every position of a window the lanes consider a few earlier places:
// those at the distances at which rasters repeat (the byte, pixel or row before and its neighbours), which are compared for
// the whole window at once into bit masks, and by effort either the last place of the piece whose next bytes have the same
// hash, which one warp looks up while the others compare, or those that the links of lz/links.cuh lead to, which may lie in
// earlier pieces.
// The gain of a match is the number of bits that it saves: the cost of its literals, by the distribution of the piece's
// bytes, less the cost of the match. A position whose successor gains more stays a literal. Which positions are reached from
// the window's first one is found the way packbits/decode.cuh finds packets.
#pragma once
#include "core/atomics.cuh"
#include "core/bits.cuh"
#include "core/kernel.cuh"
#include "lz/bytes.cuh"
#include "lz/links.cuh"

// The limits of a format, and what its matches cost, in sixteenths of a bit.
struct LzLimits {
    u32 min_len;       // 3 or more
    u32 max_len;       // at most 258, or at least 65535, which means no limit
    u32 max_distance;  // less than 2^23
    u32 match_cost;    // of any match
    u32 literal_cost;  // of any literal, at least
    u32 near_cost;     // of a distance of rasters; formats that repeat distances have it almost for nothing
};

struct LzMatch {
    static constexpr u32 PIECE_LEN = 65536;  // the longest piece
    static constexpr u32 WINDOW = 1024;
    static constexpr u32 REACH = 258;        // longest match at first; `join` makes longer ones
    static constexpr u32 HASH_BITS = 12;     // of the table of a piece
    static constexpr u32 NO_HASH = 0xffffffff;
    static constexpr u32 LEAST_HASHED = 4;
    static constexpr u32 DISTANCES = 5;      // distances at which rasters repeat
    static constexpr u32 DISTANCE_BITS = LzLink::DISTANCE_BITS;
    static constexpr u32 MASK_WORDS = (WINDOW + REACH + 31) / 32 + 1;
    static constexpr u32 PART = 8, PARTS = WINDOW / PART, STRETCH = 8 * PART;
    static constexpr u32 SLOTS = WINDOW + 2 * PARTS;
    // Costs are in sixteenths of a bit.
    // Where so many positions of a window have matches so long at the distances of rasters, links are not followed.
    static constexpr u32 MOST_GOOD = WINDOW * 11 / 16, GOOD_LEN = 8;
    static constexpr u32 FAR_COST = 3 * 16;  // of other distances
    static constexpr u32 MOST_COST = 15 * 16;  // of a literal

    struct Weighed {
        // Cost of all literals before a position of the window, modulo 2^16.
        u16 costs[WINDOW + REACH + 6];
        // Bits that the match of a position saves.
        u16 gains[WINDOW + 2];
    };
    struct Chained {
        // Where a chain from each position leaves its part, and its stretch; see `slot`.
        u16 leaves_part[SLOTS];
        u16 leaves_stretch[SLOTS];
    };
    struct Shared {
        // The last position with a hash, << 16, and more bits of that hash.
        u32 heads[1u << HASH_BITS];
        // For each position of the window: length << DISTANCE_BITS and distance of its match, 0 for a literal. Before
        // that a candidate distance, and at first counts of bytes.
        u32 found[WINDOW + 1];
        union {
            Weighed weighed;
            Chained chained;
        };
        // For each distance, a bit for each byte that equals the byte so far before it.
        u32 masks[DISTANCES][MASK_WORDS];
        u16 enters[PARTS];
        u8 literal[256];
    };

    // Lists the matches of a piece as {position | length << 16, distance}, by position, without overlaps. Positions count
    // from the start of the piece. Returns their number. Matches that `out` has no room for stay literals; 43690 words are
    // enough for any piece. `effort` 1 looks at the distances of rasters only, 2 at hashes of the piece too, 3 and 4 at
    // links instead, 4 at more of them.
    template <class Group>
    SWATH_FN static u32 run(const Group& group, const LzSource& source, const LzLimits& limits, u32 effort, u32 row_len,
        u32 pixel_len, const Span<u32>& out, Shared& shared) {
        const LzBytes& bytes = source.bytes;
        if (bytes.len - source.start > PIECE_LEN) return 0;
        Search search = {{1, pixel_len > 1 ? pixel_len : 2 * row_len, row_len, row_len + pixel_len, row_len - pixel_len}, 4, 2, 0};
        for (u32 k = 0; k < DISTANCES; k++) {
            if (search.distances[k] > limits.max_distance) search.distances[k] = 0;
        }
        if (effort > 3) search.links = search.strangers = 32;
        if (effort <= 2 || source.links.len < bytes.len) search.links = 0;
        const u32 hash_len = price(group, source, limits, shared);
        if (effort == 2) {
            search.hash_len = hash_len;
            for (u32 k = group.lane(); k < 1u << HASH_BITS; k += group.size()) shared.heads[k] = 0;
            group.sync();
        }
        u32 count = 0, enter = source.start;
        for (u32 window = source.start; window < bytes.len; window += WINDOW) {
            hash(group, bytes, window, search, shared);
            sum_costs(group, bytes, window, shared);
            search_window(group, source, window, search, shared);
            weigh(group, source, window, limits, search, shared);
            choose(group, shared);
            const u32 leave = chain(group, enter - window, shared);
            count = list(group, window - source.start, count, out, shared);
            enter = window + leave;
        }
        if (limits.max_len > REACH) count = join(group, count, out, shared);
        return count;
    }

  private:
    // The places to look at: distances (0: none), the number of links to follow, and of those that may lead to other bytes,
    // and the number of bytes to hash (0: no hashing).
    struct Search {
        u32 distances[DISTANCES];
        u32 links, strangers;
        u32 hash_len;

        // A match at one of the distances, with a candidate distance of at most 16 bits beside it.
        SWATH_FN u32 with_candidate(u32 found, u32 candidate) const {
            u32 which = 0;
            SWATH_UNROLL
            for (u32 k = 0; k < DISTANCES; k++) which = distance_of(found) == distances[k] ? k : which;
            return length_of(found) << DISTANCE_BITS | which << 16 | candidate;
        }
        SWATH_FN u32 without_candidate(u32 both) const {
            u32 distance = 0;
            SWATH_UNROLL
            for (u32 k = 0; k < DISTANCES; k++) distance = (both >> 16 & 7) == k ? distances[k] : distance;
            return length_of(both) == 0 ? 0 : length_of(both) << DISTANCE_BITS | distance;
        }
        SWATH_FN bool has(u32 distance) const {
            bool any = distance == 0;
            SWATH_UNROLL
            for (u32 k = 0; k < DISTANCES; k++) any |= distance == distances[k];
            return any;
        }
    };

    SWATH_FN static u32 slot(u32 at) { return at + at / PART * 2; }
    SWATH_FN static u32 length_of(u32 found) { return found >> DISTANCE_BITS; }
    SWATH_FN static u32 distance_of(u32 found) { return low_bits(found, DISTANCE_BITS); }

    // Cost of a match without its distance.
    SWATH_FN static u32 length_cost(const LzLimits& limits, u32 len) { return limits.match_cost + log_of(len); }

    // Cost of a distance whose symbol costs `symbol`. Larger distances have more extra bits.
    SWATH_FN static u32 distance_cost(u32 distance, u32 symbol) { return symbol + max_of(log_of(distance), 16u) - 16; }

    // Finds the cost of each byte as a literal, from a quarter of the piece. Returns the number of bytes to hash: enough
    // that most equal ones are not equal by chance.
    template <class Group>
    SWATH_FN static u32 price(const Group& group, const LzSource& source, const LzLimits& limits, Shared& shared) {
        constexpr u32 COPIES = WINDOW / 256;  // of the counters, so that fewer lanes add to the same one
        for (u32 k = group.lane(); k < COPIES * 256; k += group.size()) shared.found[k] = 0;
        group.sync();
        u32* const counts = shared.found + group.lane() % COPIES * 256;
        for (u32 k = group.lane(); k * 16 < source.bytes.len - source.start; k += group.size()) {
            // Eight words of every 32, so that short rows are sampled evenly too.
            const u32 at = source.start + (k / 8 * 32 + k % 8) * 4;
            if (at + 4 > source.bytes.len) continue;
            const u32 four = source.bytes.four(at);
            SWATH_UNROLL
            for (u32 shift = 0; shift < 32; shift += 8) atomic_add(&counts[four >> shift & 0xff], 1u);
        }
        group.sync();
        u32 all, sum = 0;
        for (u32 k = group.lane(); k < 256; k += group.size()) {
            for (u32 copy = 1; copy < COPIES; copy++) shared.found[k] += shared.found[copy * 256 + k];
            sum += shared.found[k];
        }
        group.exclusive_sum(sum, all);
        sum = 0;
        for (u32 k = group.lane(); k < 256; k += group.size()) {
            const u32 cost = log_of(all) - log_of(shared.found[k]);
            shared.literal[k] = u8(min_of(max_of(cost, limits.literal_cost), MOST_COST));
            sum += shared.found[k] * shared.literal[k];
        }
        u32 total;
        group.exclusive_sum(sum, total);
        return min_of(max_of(LzLink::CHANCE * 16 / (all == 0 ? MOST_COST : total / all), LEAST_HASHED), LzLink::MOST_HASHED);
    }

    template <class Group>
    SWATH_FN static void sum_costs(const Group& group, const LzBytes& bytes, u32 window, Shared& shared) {
        const u32 all = WINDOW + REACH + 2, each = (all + group.size() * 4 - 1) / (group.size() * 4) * 4;
        const u32 from = min_of(group.lane() * each, all), to = min_of(from + each, all);
        u32 sum = 0;
        for (u32 k = from; k < to; k += 4) {
            const u32 four = window + k < bytes.len ? bytes.four(window + k) : 0;
            SWATH_UNROLL
            for (u32 i = 0; i < 4; i++) {
                // Also beyond the end, where no match goes.
                shared.weighed.costs[k + i] = u16(sum);
                sum += shared.literal[four >> 8 * i & 0xff];
            }
        }
        u32 total;
        const u32 before = group.exclusive_sum(sum, total);
        for (u32 k = from; k < to; k++) shared.weighed.costs[k] = u16(shared.weighed.costs[k] + before);
    }

    // A bit for each of the four bytes that is 0; bit 0 is the first byte.
    SWATH_FN static u32 zeros_in(u32 word) {
        const u32 others = ((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word;
        return ((~others & 0x80808080u) >> 7) * 0x10204080u >> 28;
    }

    // The hash of the bytes from each position on; NO_HASH where too few bytes are left.
    template <class Group>
    SWATH_FN static void hash(const Group& group, const LzBytes& bytes, u32 window, const Search& search, Shared& shared) {
        if (search.hash_len == 0) return;
        const u32 unused = (LzLink::MOST_HASHED - search.hash_len) * 8;
        for (u32 k = group.lane(); k < WINDOW; k += group.size()) {
            const u32 at = window + k;
            u32 mixed = NO_HASH;
            if (at + search.hash_len <= bytes.len) {
                mixed = LzLink::mix(bytes.four(at), unused < 32 ? bytes.four(at + 4) : 0, unused);
                if (mixed == NO_HASH) mixed = 0;
            }
            shared.found[k] = mixed;
        }
    }

    // One warp turns hashes into distances while the others compare.
    template <class Group>
    SWATH_FN static void search_window(const Group& group, const LzSource& source, u32 window, const Search& search,
        Shared& shared) {
        const auto warp = group.warp();
        const u32 helpers = group.size() - warp.size();
        if (search.hash_len > 0 && warp.index() == 0) look_up(warp, window - source.start, shared);
        if (search.hash_len == 0 || helpers == 0) {
            compare(group.lane(), group.size(), source.bytes, window, search, shared);
        } else if (warp.index() > 0) {
            compare(group.lane() - warp.size(), helpers, source.bytes, window, search, shared);
        }
        group.sync();
    }

    // Finds for each position the distance to the last earlier one with the same hash; 0 if there is none. The window
    // begins at `base` of the piece. Work that does not depend on the table is done for a few rounds at a time.
    template <class Warp> SWATH_FN static void look_up(const Warp& warp, u32 base, Shared& shared) {
        constexpr u32 ROUNDS = 4;
        const u32 lane = warp.lane();
        for (u32 first = lane; first < WINDOW; first += warp.size() * ROUNDS) {
            u32 mixed[ROUNDS], places[ROUNDS], same[ROUNDS], earlier[ROUNDS];
            SWATH_UNROLL
            for (u32 k = 0; k < ROUNDS; k++) mixed[k] = shared.found[first + k * warp.size()];
            SWATH_UNROLL
            for (u32 k = 0; k < ROUNDS; k++) {
                // A position without a hash agrees with no other.
                places[k] = mixed[k] == NO_HASH ? (1u << HASH_BITS) + lane : mixed[k] >> (32 - HASH_BITS);
                same[k] = warp.same_as(places[k]);
                const u32 before = same[k] & ((1u << lane) - 1);
                const u32 entry = (base + first + k * warp.size()) << 16 | (mixed[k] & 0xffff);
                earlier[k] = warp.value_of(entry, before != 0 ? highest_one(before) : lane);
            }
            SWATH_UNROLL
            for (u32 k = 0; k < ROUNDS; k++) {
                const u32 at = first + k * warp.size(), entry = (base + at) << 16 | (mixed[k] & 0xffff);
                const bool none = mixed[k] == NO_HASH;
                if ((same[k] & ((1u << lane) - 1)) == 0) earlier[k] = none ? ~entry : shared.heads[places[k]];
                warp.sync();
                if (!none && same[k] >> lane == 1) shared.heads[places[k]] = entry;
                shared.found[at] = ((earlier[k] ^ entry) & 0xffff) == 0 ? (entry >> 16) - (earlier[k] >> 16) : 0;
                warp.sync();
            }
        }
    }

    // Compares the bytes of the window with those at the distances before; lane `nth` of `of` takes its share.
    SWATH_FN static void compare(u32 nth, u32 of, const LzBytes& bytes, u32 window, const Search& search, Shared& shared) {
        for (u32 k = nth; k < DISTANCES * MASK_WORDS; k += of) {
            const u32 which = k / MASK_WORDS, word = k % MASK_WORDS;
            const u32 distance = search.distances[which];
            const u32 first = window + word * 32;
            u32 mask = 0;
            if (distance != 0 && first + 32 > distance) {
                for (u32 i = 0; i < 32; i += 4) {
                    const u32 at = first + i;
                    if (at >= bytes.len || at + 4 <= distance) continue;
                    u32 same;
                    if (at >= distance) {
                        same = zeros_in(bytes.four(at) ^ bytes.four(at - distance));
                    } else {
                        // The first bytes of the piece have no byte that far before them.
                        const u32 lacking = distance - at;
                        same = zeros_in(bytes.four(at) ^ bytes.four(0) << lacking * 8) & 0xfu << lacking;
                    }
                    if (bytes.len - at < 4) same &= (1u << (bytes.len - at)) - 1;
                    mask |= same << i;
                }
            }
            shared.masks[which][word] = mask;
        }
    }

    // The number of bytes from a position of the window on that equal those at the distance.
    SWATH_FN static u32 run_of(const u32* mask, u32 at) {
        u32 word = at >> 5, ones = 0;
        u32 differ = ~(mask[word] >> (at & 31)), most = 32 - (at & 31);
        for (;;) {
            const u32 here = differ == 0 ? 32 : lowest_one(differ);
            if (here < most) return ones + here;
            ones += most;
            if (ones >= REACH) return REACH;
            differ = ~mask[++word];
            most = 32;
        }
    }

    // The best match of a position so far, and the bits it saves.
    struct Best {
        u32 found, gain;
    };

    // Finds the best match of each position of the window. Where most positions have a good one at the distances of rasters,
    // others are not worth a look: they would cost more than they save, since repeated distances cost almost nothing.
    template <class Group>
    SWATH_FN static void weigh(const Group& group, const LzSource& source, u32 window, const LzLimits& limits,
        const Search& search, Shared& shared) {
        const u32 most = min_of(limits.max_len, REACH), end = source.bytes.len;
        u32 good = 0;
        for (u32 k = group.lane(); k < WINDOW; k += group.size()) {
            const u32 room = window + k < end ? min_of(end - window - k, most) : 0;
            const u32 hashed = search.hash_len > 0 ? shared.found[k] : 0;
            Best best = {0, 0};
            SWATH_UNROLL
            for (u32 d = 0; d < DISTANCES; d++) {
                if (search.distances[d] == 0) continue;
                const u32 len = min_of(run_of(shared.masks[d], k), room);
                if (len >= limits.min_len) consider(k, len, search.distances[d], limits.near_cost, limits, shared, best);
            }
            good += length_of(best.found) >= GOOD_LEN;
            shared.found[k] = search.hash_len > 0 ? search.with_candidate(best.found, hashed) : best.found;
            shared.weighed.gains[k] = u16(best.gain);
        }
        if (group.lane() == 0) shared.weighed.gains[WINDOW] = shared.weighed.gains[WINDOW + 1] = 0;
        u32 total = 0;
        if (search.links > 0 || search.hash_len > 0) group.exclusive_sum(good, total);
        if (search.links == 0 && search.hash_len == 0) total = MOST_GOOD;
        for (u32 k = group.lane(); k < WINDOW && (total < MOST_GOOD || search.hash_len > 0); k += group.size()) {
            const u32 room = window + k < end ? min_of(end - window - k, most) : 0;
            Best best = {shared.found[k], shared.weighed.gains[k]};
            if (search.hash_len > 0) {
                const u32 distance = low_bits(best.found, 16), at = window + k;
                best.found = search.without_candidate(best.found);
                const bool there = distance != 0 && distance <= min_of(limits.max_distance, at);
                if (total < MOST_GOOD && there && length_of(best.found) < room) {
                    try_distance(source.bytes, k, at, distance, room, limits, search, shared, best);
                }
            } else if (room >= limits.min_len) {
                follow(source, k, window + k, room, limits, search, shared, best);
            }
            shared.found[k] = best.found;
            shared.weighed.gains[k] = u16(best.gain);
        }
        group.sync();
    }

    // Considers the places that links lead to.
    SWATH_FN static void follow(const LzSource& source, u32 k, u32 at, u32 room, const LzLimits& limits, const Search& search,
        const Shared& shared, Best& best) {
        const u32 own = source.links.data[at], most = min_of(limits.max_distance, at);
        u32 distance = 0, link = own, strangers = 0;
        for (u32 n = 0; n < search.links && length_of(best.found) < room; n++) {
            distance += LzLink::distance(link);
            if (LzLink::distance(link) == 0 || distance > most) break;
            link = source.links.data[at - distance];
            if (LzLink::alike(link, own)) try_distance(source.bytes, k, at, distance, room, limits, search, shared, best);
            else if (++strangers == search.strangers) break;
        }
        // A match of the next position often begins here.
        if (at + 1 < source.bytes.len && length_of(best.found) < room) {
            const u32 next = LzLink::distance(source.links.data[at + 1]);
            if (next <= most) try_distance(source.bytes, k, at, next, room, limits, search, shared, best);
        }
    }

    SWATH_FN static void try_distance(const LzBytes& bytes, u32 k, u32 at, u32 distance, u32 room, const LzLimits& limits,
        const Search& search, const Shared& shared, Best& best) {
        if (search.has(distance)) return;
        const u32 len = same_bytes(bytes, at, distance, room);
        if (len >= limits.min_len) consider(k, len, distance, FAR_COST, limits, shared, best);
    }

    // Takes a match if it saves more than the best one.
    SWATH_FN static void consider(u32 k, u32 len, u32 distance, u32 symbol, const LzLimits& limits, const Shared& shared,
        Best& best) {
        const u32 saved = u16(shared.weighed.costs[k + len] - shared.weighed.costs[k]);
        const u32 cost = length_cost(limits, len) + distance_cost(distance, symbol);
        if (saved > cost + best.gain) best = {len << DISTANCE_BITS | distance, saved - cost};
    }

    // The number of bytes that equal those `distance` before, at most `room`.
    SWATH_FN static u32 same_bytes(const LzBytes& bytes, u32 at, u32 distance, u32 room) {
        const u32 own = (at + bytes.skew) >> 2, other = (at - distance + bytes.skew) >> 2;
        const u32 own_shift = ((at + bytes.skew) & 3) * 8, other_shift = ((at - distance + bytes.skew) & 3) * 8;
        u32 own_word = bytes.words[own], other_word = bytes.words[other];
        for (u32 len = 0, word = 1; len < room; len += 4, word++) {
            const u32 own_next = bytes.words[min_of(own + word, bytes.last)];
            const u32 other_next = bytes.words[min_of(other + word, bytes.last)];
            const u32 differ = joined(own_word, own_next, own_shift) ^ joined(other_word, other_next, other_shift);
            if (differ != 0) return min_of(len + (lowest_one(differ) >> 3), room);
            own_word = own_next;
            other_word = other_next;
        }
        return room;
    }

    // Makes a position a literal where a match that begins a little later saves more.
    template <class Group> SWATH_FN static void choose(const Group& group, Shared& shared) {
        for (u32 k = group.lane(); k < WINDOW; k += group.size()) {
            if (shared.weighed.gains[k + 1] > shared.weighed.gains[k]) shared.found[k] = 0;
        }
        group.sync();
    }

    // Follows the chain of matches and literals that enters the window at `enter`: finds where it enters each part, and
    // returns where it leaves the window.
    template <class Group> SWATH_FN static u32 chain(const Group& group, u32 enter, Shared& shared) {
        for (u32 part = group.lane(); part < PARTS; part += group.size()) {
            const u32 end = (part + 1) * PART;
            SWATH_UNROLL
            for (u32 k = PART; k-- > 0;) {
                const u32 at = part * PART + k, next = at + max_of(length_of(shared.found[at]), 1u);
                const u32 leave = next < end ? shared.chained.leaves_part[slot(next)] : next;
                shared.chained.leaves_part[slot(at)] = u16(leave);
                shared.chained.leaves_stretch[slot(at)] = u16(leave);
            }
        }
        group.sync();
        // Chains from the first half of a stretch go on through its second half, which this round does not change.
        for (u32 half = PART; half < STRETCH; half *= 2) {
            for (u32 k = group.lane(); k < WINDOW / 2; k += group.size()) {
                const u32 at = k + (k & ~(half - 1)), next = shared.chained.leaves_stretch[slot(at)];
                if (next < (at & ~(2 * half - 1)) + 2 * half) {
                    shared.chained.leaves_stretch[slot(at)] = shared.chained.leaves_stretch[slot(next)];
                }
            }
            group.sync();
        }
        for (u32 part = group.lane(); part < PARTS; part += group.size()) {
            u32 at = enter;
            const u32 first = part * PART, stretch = first & ~(STRETCH - 1);
            while (at < stretch) at = shared.chained.leaves_stretch[slot(at)];
            while (at < first) at = shared.chained.leaves_part[slot(at)];
            shared.enters[part] = u16(at);
        }
        u32 leave = enter;
        while (leave < WINDOW) leave = shared.chained.leaves_stretch[slot(leave)];
        group.sync();
        return leave;
    }

    // Appends the matches of the window to the list.
    template <class Group>
    SWATH_FN static u32 list(const Group& group, u32 window, u32 count, const Span<u32>& out, Shared& shared) {
        const u32 each = (PARTS + group.size() - 1) / group.size();
        const u32 from = min_of(group.lane() * each, PARTS), to = min_of(from + each, PARTS);
        u32 matches = 0;
        for (u32 part = from; part < to; part++) {
            for (u32 at = shared.enters[part]; at < (part + 1) * PART; at += max_of(length_of(shared.found[at]), 1u)) {
                matches += shared.found[at] != 0;
            }
        }
        u32 total;
        u32 index = count + group.exclusive_sum(matches, total);
        const u32 room = u32(min_of(out.len / 2, u64(PIECE_LEN)));
        for (u32 part = from; part < to; part++) {
            for (u32 at = shared.enters[part]; at < (part + 1) * PART; at += max_of(length_of(shared.found[at]), 1u)) {
                const u32 found = shared.found[at];
                if (found == 0) continue;
                if (index < room) {
                    out.data[2 * index] = (window + at) | length_of(found) << 16;
                    out.data[2 * index + 1] = distance_of(found);
                }
                index++;
            }
        }
        group.sync();
        return min_of(count + total, room);
    }

    // Joins matches that continue each other with the same distance. Returns how many are left.
    template <class Group>
    SWATH_FN static u32 join(const Group& group, u32 count, const Span<u32>& out, Shared& shared) {
        u32 made = 0;
        // The entries that a round overwrites are not read again, except the last.
        u32* const last = shared.found;
        for (u32 first = 0; first < count; first += group.size()) {
            const u32 k = first + group.lane();
            u32 head = 0, place = 0, distance = 0;
            if (k < count) {
                place = out.data[2 * k];
                distance = out.data[2 * k + 1];
                const u32 before = k == 0 ? 0 : k == first ? last[0] : out.data[2 * k - 2];
                const u32 before_distance = k == 0 ? 0 : k == first ? last[1] : out.data[2 * k - 1];
                head = !follows(before, before_distance, place, distance);
            }
            u32 end = (place & 0xffff) + (place >> 16);
            if (head != 0) {
                for (u32 next = k + 1; next < count; next++) {
                    const u32 other = out.data[2 * next];
                    if ((other & 0xffff) != end || out.data[2 * next + 1] != distance) break;
                    end += other >> 16;
                }
            }
            u32 total;
            const u32 index = made + group.exclusive_sum(head, total);
            if (k < count && (group.lane() + 1 == group.size())) {
                last[0] = place;
                last[1] = distance;
            }
            if (head != 0) {
                out.data[2 * index] = (place & 0xffff) | (end - (place & 0xffff)) << 16;
                out.data[2 * index + 1] = distance;
            }
            made += total;
            group.sync();
        }
        return made;
    }
    SWATH_FN static bool follows(u32 before, u32 before_distance, u32 place, u32 distance) {
        return distance == before_distance && (before & 0xffff) + (before >> 16) == (place & 0xffff);
    }
};
