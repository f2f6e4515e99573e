// Reads the sequences of a block: three tables, the bits, and the last three offsets.
#pragma once
#include "core/near.cuh"
#include "zstd/decode.cuh"
#include "zstd/decode_fse.cuh"

// The bases that extra bits are added to, in shared memory.
struct ZstdBases {
    u32 literals[36], lengths[ZSTD_SYMBOLS];

    template <class Group> SWATH_FN void fill(const Group& group) {
        for (u32 symbol = group.lane(); symbol < ZSTD_SYMBOLS; symbol += group.size()) {
            if (symbol < 36) literals[symbol] = literal_base(symbol);
            lengths[symbol] = length_base(symbol);
        }
    }
};

// An offset is a distance. While the sequences of a block are read without the blocks before it, an offset may depend on
// one of the last three of those. Then ZSTD_UNKNOWN is set, bits from ZSTD_WHICH on say which of the three, and the lower
// bits say what to subtract.
enum ZstdOffset : u32 { ZSTD_UNKNOWN = 0x80000000u, ZSTD_WHICH = 29, ZSTD_LESS = (1u << ZSTD_WHICH) - 1 };

// Resolves an offset once the three before the block are known; 0 if it is impossible.
SWATH_FN u32 known_offset(u32 offset, const u32* before) {
    if ((offset & ZSTD_UNKNOWN) == 0) return offset;
    const u32 from = before[offset >> ZSTD_WHICH & 3], less = offset & ZSTD_LESS;
    return less < from ? from - less : 0;
}

struct ZstdSequence {
    u32 literals, length, offset;
};

// Reads sequences, one lane. It does not stop at damage: the caller checks `bad` and `missing()` before it uses a result.
// After damage the bits are arbitrary, but states stay inside their tables.
struct ZstdReader {
    const Near<u32> tables, literal_bases, length_bases;
    const i32 first;  // lowest bit of the sequences
    BackwardBits bits;
    u32 states[ZSTD_CODES];
    u32 offsets[3];
    bool bad;  // some offset was impossible

    // The cells of the states, and the words with the next bits, loaded before they are needed.
    u32 literal, offset, length;
    BackwardWords words;

    SWATH_FN ZstdReader(const u32* tables, const ZstdBases& bases, const BackwardBits& bits, u32 first)
        : tables(tables), literal_bases(bases.literals), length_bases(bases.lengths), first(i32(first)), bits(bits),
          bad(false) {}

    // Call it once bits, states and offsets are set.
    SWATH_FN void begin() {
        words = bits.words_below();
        literal = tables[states[ZSTD_LITERALS]];
        offset = tables[table_at(ZSTD_OFFSETS) + states[ZSTD_OFFSETS]];
        length = tables[table_at(ZSTD_LENGTHS) + states[ZSTD_LENGTHS]];
    }
    SWATH_FN bool missing() const { return bits.end < first; }
    SWATH_FN bool done() const { return bits.end == first; }

    // Returns the next sequence. The `LAST` one has no next states.
    template <bool LAST> SWATH_FN ZstdSequence next() {
        const u32 literal_now = literal, offset_now = offset, length_now = length;
        const UpperBits now = words.from(bits.end);
        const u32 offset_extra = offset_now >> 14 & 31, length_extra = length_now >> 14 & 31;
        const u32 literal_extra = literal_now >> 14 & 31, literal_from = offset_extra + length_extra;
        const u32 extra = literal_from + literal_extra;
        bits.end -= i32(extra);
        if constexpr (!LAST) {
            const u32 literal_coded = literal_now & 15, length_coded = length_now & 15, offset_coded = offset_now & 15;
            const u32 coded = literal_coded + length_coded + offset_coded;
            UpperBits behind = now;
            u32 from = extra;
            if (extra + coded > 64) {
                behind = bits.peek();
                from = 0;
            }
            const u32 second = from + literal_coded, third = second + length_coded;
            bits.end -= i32(coded);
            states[ZSTD_LITERALS] = (literal_now >> 4 & 1023) + behind.field(from, literal_coded);
            states[ZSTD_LENGTHS] = (length_now >> 4 & 1023) + behind.field(second, length_coded);
            states[ZSTD_OFFSETS] = (offset_now >> 4 & 1023) + behind.field(third, offset_coded);
            begin();
        }
        ZstdSequence sequence;
        const u32 offset_rest = now.field(0, offset_extra);
        sequence.length = length_bases[length_now >> 19] + now.field(offset_extra, length_extra);
        sequence.literals = literal_bases[literal_now >> 19] + now.field(literal_from, literal_extra);
        // A sequence without literals shifts the meaning of repeated offsets by one.
        const bool explicit_offset = offset_extra > 1;
        const u32 which = explicit_offset ? 3 : offset_extra + offset_rest + (literal_now >> 19 == 0);
        const u32 older = which == 1 ? offsets[1] : offsets[2];
        const u32 repeated = which == 0 ? offsets[0] : which == 3 ? one_less(offsets[0]) : older;
        sequence.offset = explicit_offset ? (1u << offset_extra) - 3 + offset_rest : repeated;
        bad |= sequence.offset == 0 || (explicit_offset && sequence.offset >= ZSTD_UNKNOWN);
        offsets[2] = which > 1 ? offsets[1] : offsets[2];
        offsets[1] = which > 0 ? offsets[0] : offsets[1];
        offsets[0] = sequence.offset;
        return sequence;
    }

  private:
    SWATH_FN static u32 one_less(u32 offset) { return offset & ZSTD_UNKNOWN ? offset + 1 : offset - 1; }
};
