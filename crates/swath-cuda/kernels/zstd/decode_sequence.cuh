// Going through the sequences of a block: three tables, the bits, and the last three offsets.
#pragma once
#include "core/near.cuh"
#include "zstd/decode.cuh"
#include "zstd/decode_fse.cuh"

// The numbers that plain bits are added to, in memory that is quick to reach.
struct ZstdBases {
    u32 literals[36], lengths[ZSTD_SYMBOLS];

    template <class Group> SWATH_FN void fill(const Group& group) {
        for (u32 symbol = group.lane(); symbol < ZSTD_SYMBOLS; symbol += group.size()) {
            if (symbol < 36) literals[symbol] = literal_base(symbol);
            lengths[symbol] = length_base(symbol);
        }
    }
};

// An offset is a distance. While a block's sequences are gone through alone, it may hang on one of the three from before
// the block: then the upper bit is set, which one follows, and what is to be taken away from it.
enum ZstdOffset : u32 { ZSTD_UNKNOWN = 0x80000000u, ZSTD_WHICH = 29, ZSTD_LESS = (1u << ZSTD_WHICH) - 1 };

// The offset once those from before the block are known; 0 where there is none.
SWATH_FN u32 known_offset(u32 offset, const u32* before) {
    if ((offset & ZSTD_UNKNOWN) == 0) return offset;
    const u32 from = before[offset >> ZSTD_WHICH & 3], less = offset & ZSTD_LESS;
    return less < from ? from - less : 0;
}

struct ZstdSequence {
    u32 literals, length, offset;
};

// One lane on its way through sequences. It does not stop at what cannot be: whoever goes on with it looks at `bad` and
// `missing` in good time. Until then bits are noise, but states stay inside their tables.
struct ZstdReader {
    const Near<u32> tables, literal_bases, length_bases;
    const i32 first;  // the lowest bit that is theirs
    BackwardBits bits;
    u32 states[ZSTD_CODES];
    u32 offsets[3];
    bool bad;  // an offset cannot be

    // What the states stand for, and the words of the next bits: loaded before they are needed.
    u32 literal, offset, length;
    BackwardWords words;

    SWATH_FN ZstdReader(const u32* tables, const ZstdBases& bases, const BackwardBits& bits, u32 first)
        : tables(tables), literal_bases(bases.literals), length_bases(bases.lengths), first(i32(first)), bits(bits),
          bad(false) {}

    // Once bits, states and offsets are set.
    SWATH_FN void begin() {
        words = bits.words_below();
        literal = tables[states[ZSTD_LITERALS]];
        offset = tables[table_at(ZSTD_OFFSETS) + states[ZSTD_OFFSETS]];
        length = tables[table_at(ZSTD_LENGTHS) + states[ZSTD_LENGTHS]];
    }
    SWATH_FN bool missing() const { return bits.end < first; }
    SWATH_FN bool done() const { return bits.end == first; }

    // The next sequence. After the `LAST` one there are no states.
    template <bool LAST> SWATH_FN ZstdSequence next() {
        const u32 literal_now = literal, offset_now = offset, length_now = length;
        const UpperBits now = words.from(bits.end);
        const u32 offset_plain = offset_now >> 14 & 31, length_plain = length_now >> 14 & 31;
        const u32 literal_plain = literal_now >> 14 & 31, literal_from = offset_plain + length_plain;
        const u32 plain = literal_from + literal_plain;
        bits.end -= i32(plain);
        if constexpr (!LAST) {
            const u32 literal_coded = literal_now & 15, length_coded = length_now & 15, offset_coded = offset_now & 15;
            const u32 coded = literal_coded + length_coded + offset_coded;
            UpperBits behind = now;
            u32 from = plain;
            if (plain + coded > 64) {
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
        const u32 offset_rest = now.field(0, offset_plain);
        sequence.length = length_bases[length_now >> 19] + now.field(offset_plain, length_plain);
        sequence.literals = literal_bases[literal_now >> 19] + now.field(literal_from, literal_plain);
        // A symbol of 0 stands for no literals at all, which shifts the meaning of repeated offsets by one.
        const bool told = offset_plain > 1;
        const u32 which = told ? 3 : offset_plain + offset_rest + (literal_now >> 19 == 0);
        const u32 older = which == 1 ? offsets[1] : offsets[2];
        const u32 repeated = which == 0 ? offsets[0] : which == 3 ? one_less(offsets[0]) : older;
        sequence.offset = told ? (1u << offset_plain) - 3 + offset_rest : repeated;
        bad |= sequence.offset == 0 || (told && sequence.offset >= ZSTD_UNKNOWN);
        offsets[2] = which > 1 ? offsets[1] : offsets[2];
        offsets[1] = which > 0 ? offsets[0] : offsets[1];
        offsets[0] = sequence.offset;
        return sequence;
    }

  private:
    SWATH_FN static u32 one_less(u32 offset) { return offset & ZSTD_UNKNOWN ? offset + 1 : offset - 1; }
};
