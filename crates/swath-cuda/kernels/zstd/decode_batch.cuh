// The sequences of a block, some at a time, in shared memory.
#pragma once
#include "zstd/decode_sequence.cuh"
#include "zstd/decode_tables.cuh"

// Where the literals of a block with sequences are.
struct ZstdLiteralPlace {
    const u8* data;
    u32 step, last;
    u32 safe;  // words may be loaded up to this literal

    SWATH_FN ZstdLiteralPlace(const ZstdTile& tile, const ZstdNote& note)
        : data(tile.src.data + note.literal_at), step(note.literal_kind == ZSTD_PLAIN),
          last(note.literals > 0 ? note.literals - 1 : 0), safe(note.literals + 16) {
        if (note.literal_kind != ZSTD_HUFFMAN) return;
        const u32 dst = note.dst + note.size - note.literals;
        data = tile.dst.data + dst;
        step = 1;
        safe = u32(tile.dst.len) - dst;
    }
    SWATH_FN const u8* at(u32 index) const { return data + step * min_of(index, last); }
};

struct ZstdBatch {
    static constexpr u32 MOST = ZSTD_MOST_STRIDE;  // sequences read at once: whole strides

    u32 tables[ZSTD_TABLE_CELLS];
    ZstdBases bases;
    ZstdShares shares;
    // For each sequence, and for the literals after the last: where in the block its literals and its match go, the
    // number of its first literal, and the offset of its match.
    u32 outs[MOST + 2], splits[MOST + 1], literals[MOST + 1], offsets[MOST + 1];

    template <class Group>
    SWATH_FN void take_tables(const Group& group, const ZstdTile& tile, u32 number, const ZstdNote& note) {
        if (tile.scratch.head().tables > 0) {
            const u32* const kept = tile.scratch.tables(note);
            for (u32 cell = group.lane(); cell < ZSTD_TABLE_CELLS; cell += group.size()) tables[cell] = kept[cell];
        } else if (group.lane() == 0) {
            ZstdAgain::make_tables(tile, number, note, tables, shares);
        }
    }

    // Reads `count` sequences, each lane from a mark on. False if an offset is impossible.
    template <class Group>
    SWATH_FN bool read_batch(const Group& group, const ZstdTile& tile, const ZstdNote& note, u32 first, u32 count) {
        const u32 stride = tile.scratch.head().stride;
        const ZstdMark* const marks = tile.scratch.marks(note) + first / stride;
        for (u32 stretch = group.lane(); stretch * stride < count; stretch += group.size()) {
            const ZstdMark mark = marks[stretch];
            ZstdReader reader(tables, bases, BackwardBits(tile.src, mark.bit), note.sequence_at * 8);
            reader.states[ZSTD_LITERALS] = mark.states & 511;
            reader.states[ZSTD_OFFSETS] = mark.states >> 9 & 255;
            reader.states[ZSTD_LENGTHS] = mark.states >> 17 & 511;
            for (u32 which = 0; which < 3; which++)
                reader.offsets[which] = known_offset(mark.offsets[which], note.offsets);
            reader.begin();
            u32 out = mark.out, literal = mark.literals;
            const u32 from = stretch * stride, to = min_of(from + stride, count);
            const bool last = first + to == note.sequences;
            for (u32 index = from; index < to; index++) {
                const ZstdSequence sequence = last && index + 1 == to ? reader.next<true>() : reader.next<false>();
                outs[index] = out;
                literals[index] = literal;
                splits[index] = out + sequence.literals;
                offsets[index] = sequence.offset;
                // A match must not start before its frame.
                reader.bad |= sequence.offset > note.dst + out + sequence.literals - note.frame;
                out += sequence.literals + sequence.length;
                literal += sequence.literals;
            }
            if (reader.bad) return false;
            if (to == count) {
                outs[count] = out;
                outs[count + 1] = note.size;
                splits[count] = note.size;
                literals[count] = literal;
                offsets[count] = 1;
            }
        }
        return true;
    }
};
