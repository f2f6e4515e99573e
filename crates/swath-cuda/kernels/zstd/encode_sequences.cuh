// The sequences of a Zstd block: numbers of literals and matches, by three FSE codes and extra bits.
#pragma once
#include "zstd/encode_fse.cuh"
#include "core/kernel.cuh"
#include "zstd/format.cuh"

// The matches of a piece, and room for the FSE steps of each. An entry of `matches` is {position | length << 16, distance},
// and later {position | length << 16, offset value}; an entry of `steps` is the step of the literals code | step of the
// length code << 16. A step is first the symbol of the code, then the result of `FseTable::step`.
struct ZstdList {
    u32* matches;
    u32* steps;
    u16* offset_steps;
    u32 count;

    SWATH_FN u32 place(u32 index) const { return matches[2 * index] & 0xffff; }
    SWATH_FN u32 length(u32 index) const { return matches[2 * index] >> 16; }
    SWATH_FN u32 distance(u32 index) const { return matches[2 * index + 1]; }
    // What the format stores for a distance: 1 to 3 for a repeated one, else the distance + 3.
    SWATH_FN u32& offset(u32 index) const { return matches[2 * index + 1]; }
    // Number of literals before a match.
    SWATH_FN u32 literals(u32 index) const {
        return index == 0 ? place(0) : place(index) - place(index - 1) - length(index - 1);
    }
    SWATH_FN u16* step(u32 code, u32 index) const {
        if (code == ZSTD_OFFSETS) return offset_steps + index;
        return reinterpret_cast<u16*>(steps + index) + (code == ZSTD_LENGTHS);
    }
};

struct ZstdSequences {
    static constexpr u32 SYMBOLS = ZSTD_SYMBOLS;
    static constexpr u32 HEADER_ROOM = 96;
    static constexpr u32 STAGED = 256;
    using Table = FseTable<SYMBOLS, 9>;

    static constexpr u32 STRETCHES = 128;

    // The last three different distances, the latest first; 0 where not known.
    struct Latest {
        u32 kept[3] = {0, 0, 0};

        // Adds one from before those that are known.
        SWATH_FN void recall(u32 distance) {
            if (distance == 0 || distance == kept[0] || distance == kept[1] || kept[2] != 0) return;
            if (kept[0] == 0) kept[0] = distance;
            else if (kept[1] == 0) kept[1] = distance;
            else kept[2] = distance;
        }
        // Makes a distance the latest one; returns its offset value. The matcher joins matches that continue each other,
        // so the latest distance does not follow without literals.
        SWATH_FN u32 take(u32 distance, bool no_literals) {
            const u32 which = distance == kept[0] ? 0 : distance == kept[1] ? 1 : distance == kept[2] ? 2 : 3;
            if (which >= 2) kept[2] = kept[1];
            if (which >= 1) kept[1] = kept[0];
            kept[0] = distance;
            return which == 3 ? distance + 3 : which + 1 - no_literals;
        }
    };

    struct Shared {
        union {
            u32 latest[STRETCHES][3];
            u16 staged[ZSTD_CODES][STAGED];
        };
        u32 counts[ZSTD_CODES][SYMBOLS];
        Table tables[ZSTD_CODES];
        u32 modes[ZSTD_CODES];
        u32 ends[ZSTD_CODES];  // the states that a decoder starts with
        u32 header_lens[ZSTD_CODES];
        u8 headers[ZSTD_CODES][HEADER_ROOM];
    };

    // A number as the symbol of a code and extra bits.
    struct Split {
        u32 symbol, bits, rest;
    };
    SWATH_FN static Split split_literals(u32 count) {
        if (count < 16) return Split{count, 0, 0};
        const u32 high = highest_one(count);
        if (count >= 64) return Split{high + 19, high, low_bits(count, high)};
        const u32 bits = count < 24 ? 1 : count < 32 ? 2 : count < 48 ? 3 : 4;
        const u32 first = count < 24 ? 8 : count < 32 ? 14 : count < 48 ? 18 : 21;
        return Split{first + (count >> bits), bits, low_bits(count, bits)};
    }
    SWATH_FN static Split split_length(u32 length) {
        const u32 over = length - 3;
        if (over < 32) return Split{over, 0, 0};
        const u32 high = highest_one(over);
        if (over >= 128) return Split{high + 36, high, low_bits(over, high)};
        const u32 bits = over < 40 ? 1 : over < 48 ? 2 : over < 64 ? 3 : over < 96 ? 4 : 5;
        const u32 first = over < 40 ? 16 : over < 48 ? 26 : over < 64 ? 32 : over < 96 ? 36 : 39;
        return Split{first + (over >> bits), bits, low_bits(over, bits)};
    }
    SWATH_FN static Split split_offset(u32 offset) {
        const u32 bits = highest_one(offset);
        return Split{bits, bits, low_bits(offset, bits)};
    }

    // Turns distances into offset values. A decoder keeps the last three different distances, the latest first; what it
    // keeps from earlier blocks is unknown, so a block repeats only its own distances. Each lane takes a stretch of the
    // list: it finds the last distances of its stretch, then those before it, then goes through the stretch.
    template <class Group>
    SWATH_FN static void repeat_offsets(const Group& group, const ZstdList& list, Shared& shared) {
        const u32 lanes = min_of(group.size(), STRETCHES), each = (list.count + lanes - 1) / lanes;
        const u32 from = min_of(group.lane() * each, list.count), to = min_of(from + each, list.count);
        if (group.lane() < lanes) {
            Latest own;
            for (u32 k = to; k-- > from && own.kept[2] == 0;) own.recall(list.distance(k));
            for (u32 k = 0; k < 3; k++) shared.latest[group.lane()][k] = own.kept[k];
        }
        group.sync();
        Latest latest;
        for (u32 lane = min_of(group.lane(), lanes); lane-- > 0 && latest.kept[2] == 0;) {
            for (u32 k = 0; k < 3; k++) latest.recall(shared.latest[lane][k]);
        }
        if (group.lane() < lanes) {
            for (u32 k = from; k < to; k++) list.offset(k) = latest.take(list.distance(k), list.literals(k) == 0);
        }
        group.sync();
    }

    // Finds the symbols of all sequences and counts them.
    template <class Group> SWATH_FN static void count(const Group& group, const ZstdList& list, Shared& shared) {
        u32* const counts = &shared.counts[0][0];
        for (u32 k = group.lane(); k < ZSTD_CODES * SYMBOLS; k += group.size()) counts[k] = 0;
        repeat_offsets(group, list, shared);
        for (u32 k = group.lane(); k < list.count; k += group.size()) {
            const u32 literals = split_literals(list.literals(k)).symbol, length = split_length(list.length(k)).symbol;
            const u32 offset = split_offset(list.offset(k)).symbol;
            list.steps[k] = literals | length << 16;
            list.offset_steps[k] = u16(offset);
            atomic_add(&shared.counts[ZSTD_LITERALS][literals], 1u);
            atomic_add(&shared.counts[ZSTD_LENGTHS][length], 1u);
            atomic_add(&shared.counts[ZSTD_OFFSETS][offset], 1u);
        }
    }

    // Chooses the table of a code and steps through it. One warp runs it; the caller puts a barrier before and after.
    // There is at least one sequence.
    template <class Warp>
    SWATH_FN static void step_through(const Warp& warp, u32 code, const ZstdList& list, Shared& shared) {
        if (warp.lane() == 0) plan(code, list.count, shared);
        warp.sync();
        if (shared.modes[code] != ZSTD_MODE_RLE) walk(warp, code, list, shared);
    }

    // Returns the bits of the sequences from `from` to before `to`.
    SWATH_FN static u32 measure(const ZstdList& list, const Shared& shared, u32 from, u32 to) {
        u32 bits = 0;
        for (u32 k = from; k < to; k++) {
            bits += split_literals(list.literals(k)).bits + split_length(list.length(k)).bits;
            bits += split_offset(list.offset(k)).bits;
            SWATH_UNROLL
            for (u32 code = 0; code < ZSTD_CODES; code++) {
                if (shared.modes[code] != ZSTD_MODE_RLE) bits += *list.step(code, k) >> 12;
            }
        }
        return bits;
    }

    // Writes the sequences, the last first.
    SWATH_FN static void put(const ZstdList& list, const Shared& shared, u32 from, u32 to, BitSink& sink) {
        for (u32 k = to; k-- > from;) {
            put_step(list, shared, ZSTD_OFFSETS, k, sink);
            put_step(list, shared, ZSTD_LENGTHS, k, sink);
            put_step(list, shared, ZSTD_LITERALS, k, sink);
            const Split literals = split_literals(list.literals(k)), length = split_length(list.length(k));
            const Split distance = split_offset(list.offset(k));
            sink.put(literals.rest, literals.bits);
            sink.put(length.rest, length.bits);
            sink.put(distance.rest, distance.bits);
        }
    }

    // The states that a decoder starts with. It reads them first, so they are written last.
    SWATH_FN static u32 end_bits(const Shared& shared) {
        u32 bits = 0;
        for (u32 code = 0; code < ZSTD_CODES; code++) bits += shared.tables[code].log;
        return bits;
    }
    SWATH_FN static void put_end(const Shared& shared, BitSink& sink) {
        sink.put(shared.ends[ZSTD_LENGTHS], shared.tables[ZSTD_LENGTHS].log);
        sink.put(shared.ends[ZSTD_OFFSETS], shared.tables[ZSTD_OFFSETS].log);
        sink.put(shared.ends[ZSTD_LITERALS], shared.tables[ZSTD_LITERALS].log);
        sink.put(1, 1);
    }

  private:
    SWATH_FN static void put_step(const ZstdList& list, const Shared& shared, u32 code, u32 index, BitSink& sink) {
        if (shared.modes[code] == ZSTD_MODE_RLE) return;
        const u32 step = *list.step(code, index);
        sink.put(step & 0xfff, step >> 12);
    }

    // Sets the predefined distribution.
    SWATH_COLD static void predefine(u32 code, Table& table) {
        table.log = predefined_log(code);
        table.used = code_symbols(code);
        for (u32 k = 0; k < SYMBOLS; k++) table.shares[k] = short(predefined_share(code, k));
    }

    // Returns the cost of all symbols in 256ths of a bit.
    SWATH_COLD static u32 cost(const u32* counts, const Table& table) {
        u32 sum = 0;
        for (u32 k = 0; k < table.used; k++) {
            if (counts[k] == 0) continue;
            sum += counts[k] * Table::cost(table.shares[k] < 0 ? 1 : u32(table.shares[k]), table.log);
        }
        return sum;
    }

    // Chooses how the table of a code is stored, and makes it.
    SWATH_FN static void plan(u32 code, u32 total, Shared& shared) {
        Table& table = shared.tables[code];
        const u32* const counts = shared.counts[code];
        u32 kinds = 0, last = 0;
        for (u32 k = 0; k < SYMBOLS; k++) {
            if (counts[k] == 0) continue;
            kinds++;
            last = k;
        }
        predefine(code, table);
        const u32 known = cost(counts, table);
        shared.modes[code] = ZSTD_MODE_PREDEFINED;
        shared.header_lens[code] = 0;
        if (kinds == 1) {
            if (known > 8 * 256) {
                shared.modes[code] = ZSTD_MODE_RLE;
                shared.headers[code][0] = u8(last);
                shared.header_lens[code] = 1;
                table.log = shared.ends[code] = 0;
                return;
            }
        } else {
            // More cells than a quarter of the sequences do not pay; each symbol needs one.
            const u32 finest = code == ZSTD_OFFSETS ? 8 : 9, least = max_of(highest_one(last) + 2, 5u);
            const u32 fitting = max_of(highest_one(total), 2u) - 2;
            table.share_out(counts, total, min_of(max_of(fitting, least), finest));
            ByteSink sink(shared.headers[code], HEADER_ROOM);
            table.describe(sink);
            if (sink.fits() && sink.len * 8 * 256 + cost(counts, table) < known) {
                shared.modes[code] = ZSTD_MODE_FSE;
                shared.header_lens[code] = sink.len;
            } else {
                predefine(code, table);
            }
        }
        table.build();
    }

    // Encodes from the last symbol to the first, so that a decoder reads them from the first to the last. One lane does
    // it; the other lanes move symbols and steps between global and shared memory, since a chain that waits for global
    // memory is slow.
    template <class Warp> SWATH_FN static void walk(const Warp& warp, u32 code, const ZstdList& list, Shared& shared) {
        const Table& table = shared.tables[code];
        u16* const staged = shared.staged[code];
        u32 state = 0;
        for (u32 end = list.count, from; end > 0; end = from) {
            from = end > STAGED ? end - STAGED : 0;
            for (u32 k = warp.lane(); k < end - from; k += warp.size()) staged[k] = *list.step(code, from + k);
            warp.sync();
            if (warp.lane() == 0) {
                u32 k = end - from;
                if (end == list.count) {
                    state = table.start(staged[--k]);
                    staged[k] = 0;
                }
                FseSymbol next = table.symbols[k > 0 ? staged[k - 1] : 0];
                while (k-- > 0) {
                    const FseSymbol symbol = next;
                    // Loaded before it is needed.
                    if (k > 0) next = table.symbols[staged[k - 1]];
                    staged[k] = u16(table.step(state, symbol));
                }
            }
            warp.sync();
            // Each lane loads and stores the same entries, so the next round needs no barrier.
            for (u32 k = warp.lane(); k < end - from; k += warp.size()) *list.step(code, from + k) = staged[k];
        }
        if (warp.lane() == 0) shared.ends[code] = state - (1u << table.log);
    }
};
