// Measures shared tiles: where the stretches of their Deflate blocks start, and where the bytes of each go.
#pragma once
#include "deflate/decode_shared.cuh"

template <u32 LANES, u32 WORDS> struct Measurer {
    static constexpr u32 TRIES = 6;        // after so many tries, a part goes on as it is; `settle` notices
    static constexpr u32 LEAST_WORDS = 5;  // of a stretch, so that stretches take no more than their memory
    static constexpr u32 MOST_WARM = 1024; // bits before a part, to synchronise
    static constexpr u32 STAGED = LANES * WORDS + MOST_WARM / 32 + 16;
    static constexpr u32 NONE = ~0u;       // start of a stretch that was not measured
    static_assert(STAGED >= HEAD_WORDS && STAGED % 4 == 0 && WORDS >= LEAST_WORDS, "words come by four");

    struct Shared {
        alignas(16) u32 staged[STAGED];
        Codes codes;
        CodeLengths lengths;
        u32 ends[LANES];
    };

    // Bits of a part, and how many parts are left of the stream.
    SWATH_FN static u32 part_bits(const SharedState& state) { return LANES * state.words * 32; }
    SWATH_FN static u32 parts_left(const SharedTile& tile, const SharedState& state) {
        return (tile.end() - state.bit + part_bits(state) - 1) / part_bits(state);
    }

    // Measures the stretches of a part, `first` and those after it, as far as there is room for `count`. `known` is where
    // the first one starts; if it is not known, NONE. Returns where the stretch after them starts, NONE if unknown.
    template <class Group>
    SWATH_FN static u32 measure_part(const Group& group, const SharedTile& tile, const SharedState& state, u32 first,
                                     u32 count, u32 known, Stretch* stretches, Shared& shared) {
        const u32 lane = group.lane(), lanes = min_of(group.size(), LANES), bits = state.words * 32;
        const u32 end = min_of(first + LANES, count), warm_bits = min_of(WARM_TOKENS * state.token_bits, MOST_WARM);
        bool stopped = false;
        for (; first < end; first += lanes) {
            const u32 begin = state.bit + first * bits;
            if (stopped || begin >= tile.end()) {
                if (first + lane < end) stretches[first + lane] = Stretch{NONE, NONE, 0, GOES_ON};
                known = NONE;
                continue;
            }
            const u32 from = begin - (known == NONE ? min_of(warm_bits, first * bits) : 0);
            const u32 start = stage_bits(group, tile.src, from, lanes * state.words + MOST_WARM / 32 + 8, shared.staged);
            // Bit 0 of the staged words; it may lie before the stream.
            const u32 origin = from - start, limit = tile.end() - origin;
            const u32 own_begin = begin - origin + lane * bits, own_end = own_begin + bits;
            auto measure_from = [&](u32 at) { return measure(shared.staged, shared.codes, at, own_end, limit); };
            Stretch stretch{0, 0, 0, GOES_ON};
            if (lane < lanes) {
                const u32 warm = min_of(warm_bits, own_begin - start);
                const bool sure = lane == 0 && known != NONE;
                stretch = measure_from(sure ? known - origin
                                            : fall_in(shared.staged, shared.codes, own_begin - warm, own_begin));
            }
            const u32 valid = agree(group, shared.ends, lanes, TRIES, stretch, measure_from);
            const u32 found = group.broadcast(stretch.stop << 28 | stretch.end, valid - 1);
            stopped = found >> 28 != GOES_ON;
            known = stopped || valid < lanes ? NONE : (found & 0x0fffffff) + origin;
            if (lane < lanes && first + lane < end)
                stretches[first + lane] = Stretch{stretch.start + origin, stretch.end + origin, stretch.sum, stretch.stop};
        }
        return known;
    }

    // Puts `count` measured stretches together. Changes the state of the tile.
    template <class Group>
    SWATH_FN static void settle(const Group& group, const SharedTile& tile, SharedState& state, u32 count, Shared& shared) {
        Stretch* const stretches = tile.scratch.stretches() + state.stretches;
        const u32 each = (count + group.size() - 1) / group.size();
        const u32 own = min_of(group.lane() * each, count), own_end = min_of(own + each, count);
        u32 valid = count, event;
        for (u32 tries = 2 * count / LANES + 4;; tries--) {
            // The first stretch that stops, or that does not start where the one before ends.
            event = 2 * count;
            u32 before = own == 0 ? state.bit : load_racing(&stretches[own - 1].end);
            for (u32 at = own; at < own_end && event == 2 * count; at++) {
                if (load_racing(&stretches[at].start) != before) event = 2 * at;
                else if (load_racing(&stretches[at].stop) != GOES_ON) event = 2 * at + 1;
                before = load_racing(&stretches[at].end);
            }
            event = group.min(event);
            valid = (event + 1) / 2;
            if ((event & 1) != 0 || event == 2 * count || tries == 0) break;
            const u32 known = load_racing(&stretches[valid - 1].end);
            group.sync();
            measure_part(group, tile, state, valid, count, known, stretches, shared);
            group.sync();
        }
        const u32 stop = load_racing(&stretches[valid - 1].stop), bit = load_racing(&stretches[valid - 1].end);
        u32 sum = 0, total;
        for (u32 at = own; at < min_of(own_end, valid); at++) sum += load_racing(&stretches[at].sum);
        u32 place = state.done + group.exclusive_sum(sum, total);
        for (u32 at = own; at < min_of(own_end, valid); at++) {
            const u32 made = load_racing(&stretches[at].sum);
            stretches[at].sum = place;
            place += made;
        }
        if (stop == BAD || total > tile.dst.len - state.done) {
            state.phase = SHARED_GIVEN_UP;
            return;
        }
        state.done += total;
        state.stretches += valid;
        state.bit = bit;
        if (stop != BLOCK_END) {
            if (bit >= tile.end()) state.phase = SHARED_GIVEN_UP;
            return;
        }
        if (state.last == 0) {
            next_block(group, tile, state, shared);
            return;
        }
        state.phase = state.done == tile.dst.len ? SHARED_MEASURED : SHARED_GIVEN_UP;
        if (group.lane() == 0) tile.scratch.blocks()[state.blocks] = SharedBlock{state.stretches, state.done};
    }

    // Reads the header of the next Deflate block and makes its codes.
    template <class Group>
    SWATH_FN static void next_block(const Group& group, const SharedTile& tile, SharedState& state, Shared& shared) {
        state.phase = SHARED_GIVEN_UP;
        if (state.blocks == tile.scratch.block_room) return;
        const u32 start = stage_bits(group, tile.src, state.bit, HEAD_WORDS, shared.staged);
        const BlockHead head = read_head(group, shared.staged, start, shared.lengths, shared.ends, LANES);
        state.last = head.last;
        state.bit += head.end - start;
        if (!head.fine || head.kind == 0 || state.bit >= tile.end()) return;
        state.token_bits = make_tables(group, shared.lengths, shared.codes);
        if (state.token_bits == 0) return;
        state.words = max_of(min_of(STRETCH_TOKENS * state.token_bits / 32, WORDS) | 1, LEAST_WORDS);
        copy_words(group, reinterpret_cast<const u32*>(&shared.codes), tile.scratch.codes(state.blocks), sizeof(Codes) / 4);
        if (group.lane() == 0) tile.scratch.blocks()[state.blocks] = SharedBlock{state.stretches, state.done};
        state.blocks++;
        state.phase = SHARED_RUNNING;
    }

    // Stores the state, which all lanes have.
    template <class Group>
    SWATH_FN static void store_state(const Group& group, const SharedTile& tile, const SharedState& state) {
        group.sync();
        if (group.lane() == 0) tile.scratch.state() = state;
        group.sync();
    }
};

// `DecodeArgs::flags` of these kernels is the number of parts that a span has at most.
using SharedMeasurer = Measurer<256, SHARED_WORDS>;

struct InflateStart {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;
    using Shared = SharedMeasurer::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 at = block; at < args.count; at += blocks) {
            const SharedTile tile(args, at);
            if (args.scratch_len < sizeof(SharedState)) continue;
            SharedState state{};
            state.phase = SHARED_GIVEN_UP;
            state.bit = 16;
            if (tile.sound && has_zlib_head(tile.src)) SharedMeasurer::next_block(group, tile, state, shared);
            SharedMeasurer::store_state(group, tile, state);
        }
    }
};

struct InflateSpan {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;
    using Shared = SharedMeasurer::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u32 parts = max_of(args.flags, 1u);
        if (args.scratch_len < sizeof(SharedState)) return;
        for (u64 item = block; item < u64(args.count) * parts; item += blocks) {
            const SharedTile tile(args, item / parts);
            SharedState state = tile.scratch.state();
            if (state.phase != SHARED_RUNNING) continue;
            const u32 part = u32(item % parts), used = min_of(SharedMeasurer::parts_left(tile, state), parts);
            const u32 count = used * THREADS;
            // `finish` needs less room.
            if (count > tile.scratch.stretch_room() - state.stretches) continue;
            group.sync();
            if (part < used || part + 1 == parts)
                copy_words(group, tile.scratch.codes(state.blocks - 1), reinterpret_cast<u32*>(&shared.codes),
                           sizeof(Codes) / 4);
            group.sync();
            if (part < used)
                SharedMeasurer::measure_part(group, tile, state, part * THREADS, count, part == 0 ? state.bit : SharedMeasurer::NONE,
                                             tile.scratch.stretches() + state.stretches, shared);
            // Every block of threads arrives, so that none of them reads a state that the last one has changed.
            fence();
            group.sync();
            u32 before = 0;
            if (group.lane() == 0) before = atomic_add(&tile.scratch.state().arrived, 1u);
            if (group.broadcast(before, 0) + 1 < parts) continue;
            fence();
            if (part >= used && part + 1 != parts) {
                copy_words(group, tile.scratch.codes(state.blocks - 1), reinterpret_cast<u32*>(&shared.codes),
                           sizeof(Codes) / 4);
                group.sync();
            }
            SharedMeasurer::settle(group, tile, state, count, shared);
            state.arrived = 0;
            SharedMeasurer::store_state(group, tile, state);
        }
    }
};

struct InflateFinish {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;
    using Shared = SharedMeasurer::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        if (args.scratch_len < sizeof(SharedState)) return;
        for (u64 at = block; at < args.count; at += blocks) {
            const SharedTile tile(args, at);
            SharedState state = tile.scratch.state();
            if (state.phase != SHARED_RUNNING) continue;
            group.sync();
            copy_words(group, tile.scratch.codes(state.blocks - 1), reinterpret_cast<u32*>(&shared.codes),
                       sizeof(Codes) / 4);
            group.sync();
            while (state.phase == SHARED_RUNNING) {
                if (THREADS > tile.scratch.stretch_room() - state.stretches) {
                    state.phase = SHARED_GIVEN_UP;
                    break;
                }
                SharedMeasurer::measure_part(group, tile, state, 0, THREADS, state.bit,
                                             tile.scratch.stretches() + state.stretches, shared);
                group.sync();
                SharedMeasurer::settle(group, tile, state, THREADS, shared);
                group.sync();
            }
            SharedMeasurer::store_state(group, tile, state);
        }
    }
};
