// Reads the sequences of each block once, one lane a block: finds the number of bytes they make, and leaves marks.
//
// Lane k of a block of threads takes block b of tile 8 g + k: the same blocks of neighbouring tiles have about as many
// sequences.
#pragma once
#include "zstd/decode_sequence.cuh"
#include "zstd/decode_tables.cuh"

struct ZstdMeasure {
    static constexpr u32 THREADS = 32;
    static constexpr u32 TEAM = 8;  // tiles at once: as many tables as fit in shared memory
    using Args = DecodeArgs;

    struct Shared {
        u32 tables[TEAM][ZSTD_TABLE_CELLS];
        ZstdShares shares[TEAM];
        ZstdBases bases;
        u32 stores[TEAM];  // where in the scratch the tables go; 0 for nowhere
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        shared.bases.fill(group);
        group.sync();
        const u64 teams = (u64(args.count) + TEAM - 1) / TEAM;
        for (u64 item = block; item < teams * ZstdScratch::most_notes(args); item += blocks) {
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
        if (number >= tile.scratch.head().blocks) return;
        ZstdNote& note = tile.scratch.notes()[number];
        if (note.sequences == 0) return;
        const u32 status = read_block(tile, number, note, slot, shared);
        if (status != STATUS_OK) report_status(args, at, status);
        else if (tile.scratch.head().tables > 0) shared.stores[slot] = note.store;
    }

    SWATH_FN static u32 read_block(const ZstdTile& tile, u32 number, ZstdNote& note, u32 slot, Shared& shared) {
        u32 logs[ZSTD_CODES];
        const u32 from = make_tables(tile, number, note, shared.tables[slot], shared.shares[slot], logs);
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
        const u32 stride = tile.scratch.head().stride;
        for (u32 from = 0; from < sequences; from += stride) {
            ZstdMark mark;
            mark.bit = u32(reader.bits.end);
            mark.states = reader.states[0] | reader.states[1] << 9 | reader.states[2] << 17;
            mark.out = out;
            mark.literals = literals;
            for (u32 which = 0; which < 3; which++) mark.offsets[which] = reader.offsets[which];
            marks[from / stride] = mark;
            auto count = [&](const ZstdSequence& sequence) {
                literals += sequence.literals;
                out += sequence.literals + sequence.length;
            };
            const bool last = sequences - from <= stride;
            for (u32 left = last ? sequences - from - 1 : stride; left > 0; left--) count(reader.next<false>());
            if (last) count(reader.next<true>());
            if (reader.bad || reader.missing() || literals > note.literals) return STATUS_CORRUPT;
            if (out - literals > matched_most) return STATUS_UNUSUAL;
        }
        if (!reader.done()) return STATUS_CORRUPT;
        note.size = note.literals + (out - literals);
        for (u32 which = 0; which < 3; which++) note.offsets[which] = reader.offsets[which];
        return STATUS_OK;
    }
};
