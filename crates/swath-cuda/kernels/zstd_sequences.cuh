// The sequences of each block, gone through once by one lane: how many bytes they make, and marks on the way.
//
// Lane k of a block of threads takes block b of tile 8 g + k: neighbours have about as many sequences.
#pragma once
#include "zstd_sequence.cuh"

struct ZstdMeasure {
    static constexpr u32 THREADS = 32;
    static constexpr u32 TEAM = 8;  // tiles at once; their tables fill the shared memory
    using Args = DecodeArgs;

    struct Shared {
        u32 tables[TEAM][ZSTD_TABLE_CELLS];
        short shares[TEAM][ZSTD_SYMBOLS + 1];
        u16 next[TEAM][ZSTD_SYMBOLS + 1];
        ZstdBases bases;
        u32 stores[TEAM];  // where the tables are kept; 0 for nowhere
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        shared.bases.fill(group);
        group.sync();
        const u64 teams = (u64(args.count) + TEAM - 1) / TEAM;
        for (u64 item = block; item < teams * ZstdScratch::most_notes(args.scratch_len); item += blocks) {
            const u64 first = item % teams * TEAM;
            const u32 number = u32(item / teams);
            for (u32 slot = group.lane(); slot < TEAM; slot += group.size()) {
                shared.stores[slot] = 0;
                const u64 at = first + slot;
                if (at < args.count && args.status[at] == STATUS_OK) measure(args, at, number, slot, shared);
            }
            group.sync();
            for (u32 slot = 0; slot < TEAM; slot++) {
                const u32 store = shared.stores[slot];
                if (store == 0) continue;
                u32* const to = reinterpret_cast<u32*>(args.scratch + (first + slot) * args.scratch_len + store);
                for (u32 cell = group.lane(); cell < ZSTD_TABLE_CELLS; cell += group.size())
                    to[cell] = shared.tables[slot][cell];
            }
            group.sync();
        }
    }

  private:
    SWATH_FN static void measure(const Args& args, u64 at, u32 number, u32 slot, Shared& shared) {
        const ZstdTile tile(args, at);
        if (number >= tile.scratch.blocks()) return;
        ZstdNote& note = tile.scratch.notes()[number];
        if (note.sequences == 0) return;
        const u32 status = go_through(tile, number, note, slot, shared);
        if (status != STATUS_OK) blame(args, at, status);
        else shared.stores[slot] = note.store;
    }

    SWATH_FN static u32 go_through(const ZstdTile& tile, u32 number, ZstdNote& note, u32 slot, Shared& shared) {
        u32 logs[ZSTD_CODES];
        const u32 from = make_tables(tile, number, note, slot, shared, logs);
        if (from == 0) return STATUS_CORRUPT;
        u32 bit;
        if (!find_last_bit(tile.src, from, note.src + note.src_len, bit)) return STATUS_CORRUPT;
        ZstdReader reader(shared.tables[slot], shared.bases, BackwardBits(tile.src, bit), from * 8);
        if (i32(logs[0] + logs[1] + logs[2]) > reader.bits.end - reader.first) return STATUS_CORRUPT;
        for (u32 code = 0; code < ZSTD_CODES; code++) reader.states[code] = reader.bits.take(logs[code]);
        for (u32 which = 0; which < 3; which++) reader.offsets[which] = ZSTD_UNKNOWN | which << ZSTD_WHICH;
        reader.begin();
        ZstdMark* const marks = tile.scratch.marks(note);
        u32 literals = 0, out = 0;
        const u32 matched_most = note.most - note.literals, sequences = note.sequences;
        for (u32 from = 0; from < sequences; from += ZSTD_STRIDE) {
            ZstdMark mark;
            mark.bit = u32(reader.bits.end);
            mark.states = reader.states[0] | reader.states[1] << 9 | reader.states[2] << 17;
            mark.out = out;
            mark.literals = literals;
            for (u32 which = 0; which < 3; which++) mark.offsets[which] = reader.offsets[which];
            marks[from / ZSTD_STRIDE] = mark;
            auto count = [&](const ZstdSequence& sequence) {
                literals += sequence.literals;
                out += sequence.literals + sequence.length;
            };
            const bool last = sequences - from <= ZSTD_STRIDE;
            for (u32 left = last ? sequences - from - 1 : ZSTD_STRIDE; left > 0; left--) count(reader.next<false>());
            if (last) count(reader.next<true>());
            if (reader.bad || reader.missing() || literals > note.literals) return STATUS_CORRUPT;
            if (out - literals > matched_most) return STATUS_UNUSUAL;
        }
        if (!reader.done()) return STATUS_CORRUPT;
        note.size = note.literals + (out - literals);
        for (u32 which = 0; which < 3; which++) note.offsets[which] = reader.offsets[which];
        return STATUS_OK;
    }

    // Tells where the bits begin; 0 where a table is damaged.
    SWATH_FN static u32 make_tables(const ZstdTile& tile, u32 number, const ZstdNote& note, u32 slot, Shared& shared,
                                    u32* logs) {
        u32 own = note.sequence_at + 1;
        for (u32 code = 0; code < ZSTD_CODES; code++) {
            u32 from = own;
            const u32 teller = note.tables[code];
            const ZstdNote& other = tile.scratch.notes()[teller];
            if (teller != number) {
                // Behind those that the other block tells before it.
                from = other.sequence_at + 1;
                for (u32 before = 0; before < code; before++) {
                    from = skip_table(tile, other, before, from, shared.shares[slot]);
                    if (from == 0) return 0;
                }
            }
            const u32 end = make_table(tile, other, code, from, slot, shared, logs[code]);
            if (end == 0) return 0;
            if (teller == number) own = end;
        }
        return own;
    }

    SWATH_FN static u32 mode_of(const ZstdTile& tile, const ZstdNote& note, u32 code) {
        return tile.src.get(note.sequence_at) >> (6 - 2 * code) & 3;
    }
    SWATH_FN static u32 most_symbols(u32 code) {
        return code == ZSTD_LITERALS ? 36 : code == ZSTD_OFFSETS ? 32 : ZSTD_SYMBOLS;
    }
    SWATH_FN static u32 most_log(u32 code) { return code == ZSTD_OFFSETS ? 8 : 9; }

    SWATH_FN static u32 skip_table(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, short* shares) {
        const u32 mode = mode_of(tile, note, code), end = note.src + note.src_len;
        if (mode == ZSTD_SAME) return from < end ? from + 1 : 0;
        if (mode != ZSTD_TOLD) return from;
        return read_shares(tile.src, from, end, most_symbols(code), most_log(code), shares).end;
    }

    // Makes the table that a block tells from a byte on; tells which byte follows, 0 where it is damaged.
    SWATH_FN static u32 make_table(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, u32 slot,
                                   Shared& shared, u32& log) {
        const u32 mode = mode_of(tile, note, code), end = note.src + note.src_len;
        u32* const cells = shared.tables[slot] + table_at(code);
        short* const shares = shared.shares[slot];
        u16* const next = shared.next[slot];
        if (mode == ZSTD_SAME) {
            const u32 symbol = tile.src.get(from);
            if (from >= end || symbol >= most_symbols(code)) return 0;
            log = 0;
            cells[0] = pack_cell(FseCell{0, 0}, plain_bits(code, symbol), symbol);
            return from + 1;
        }
        u32 used, after = from;
        if (mode == ZSTD_TOLD) {
            const FseShares told = read_shares(tile.src, from, end, most_symbols(code), most_log(code), shares);
            if (told.end == 0) return 0;
            log = told.log;
            used = told.used;
            after = told.end;
        } else {
            log = predefined_log(code);
            used = code_symbols(code);
            for (u32 symbol = 0; symbol < used; symbol++) shares[symbol] = short(predefined_share(code, symbol));
        }
        spread_symbols(shares, used, log, cells, next);
        for (u32 cell = 0; cell < 1u << log; cell++) {
            const u32 symbol = cells[cell];
            cells[cell] = pack_cell(place_cell(symbol, log, next), plain_bits(code, symbol), symbol);
        }
        return after;
    }

    SWATH_FN static u32 plain_bits(u32 code, u32 symbol) {
        return code == ZSTD_OFFSETS ? symbol : code == ZSTD_LITERALS ? literal_bits(symbol) : length_bits(symbol);
    }
};

// Where the bytes of each block go, and which offsets it begins with: one lane a tile.
struct ZstdLayout {
    static constexpr u32 THREADS = 32;
    using Args = DecodeArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 at = u64(block) * group.size() + group.lane(); at < args.count; at += step)
            if (args.status[at] == STATUS_OK) args.status[at] = lay_out(ZstdTile(args, at));
    }

  private:
    SWATH_FN static u32 lay_out(const ZstdTile& tile) {
        const u32 blocks = tile.scratch.blocks(), room = u32(tile.dst.len);
        u32 dst = 0, frame = 0, offsets[3] = {1, 4, 8};
        for (u32 number = 0; number < blocks; number++) {
            ZstdNote& note = tile.scratch.notes()[number];
            if ((note.flags & ZSTD_FRAME_FIRST) != 0) {
                frame = dst;
                offsets[0] = 1;
                offsets[1] = 4;
                offsets[2] = 8;
            }
            note.dst = dst;
            note.frame = frame;
            if (note.size > room - dst) return STATUS_LONG;
            dst += note.size;
            if (note.sequences > 0) {
                u32 after[3];
                for (u32 which = 0; which < 3; which++) after[which] = known_offset(note.offsets[which], offsets);
                for (u32 which = 0; which < 3; which++) {
                    note.offsets[which] = offsets[which];
                    offsets[which] = after[which];
                }
            }
            if ((note.flags & ZSTD_HAS_CONTENT) != 0 && dst - frame != note.content) return STATUS_CORRUPT;
        }
        return dst == room ? STATUS_OK : STATUS_SHORT;
    }
};
