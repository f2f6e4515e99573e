// A stretch of a Deflate block: some bits of it, which one lane decodes.
#pragma once
#include "core/span.cuh"
#include "deflate/decode_codes.cuh"

constexpr u32 WARM_TOKENS = 32;     // tokens that a lane decodes before its stretch, to synchronise
constexpr u32 STRETCH_TOKENS = 64;  // tokens of a stretch, if its length allows
constexpr u32 HEAD_WORDS = 160;     // more words than a block header has

// Why a stretch ends early.
enum Stop : u32 { GOES_ON = 0, BLOCK_END = 1, BAD = 2 };

// Whether a stream begins with a zlib header without a dictionary.
SWATH_FN bool has_zlib_head(const Span<const u8>& src) {
    const u32 method = src.get(0), flags = src.get(1);
    const bool known = (method & 15) == 8 && method >> 4 <= 7 && (flags & 32) == 0;
    return src.len >= 2 && known && (method << 8 | flags) % 31 == 0;
}

struct alignas(16) Four {
    u32 words[4];
};

// Loads the words of the stream from `bit` on; returns the position of that bit in them. Zeros follow the end of the stream.
template <class Group>
SWATH_FN u32 stage_bits(const Group& group, const Span<const u8>& src, u64 bit, u32 words, u32* staged) {
    const u64 first = bit / 128 * 16;
    const u32 fours = (words + 3) / 4, size = group.size();
    Four* to = reinterpret_cast<Four*>(staged);
    group.sync();
    // Several loads are in flight at once.
    for (u32 from = group.lane(); from < fours; from += 4 * size) {
        Four got[4];
        SWATH_UNROLL
        for (u32 part = 0; part < 4; part++) {
            const u64 at = first + (from + part * size) * 16;
            got[part] = Four{{0, 0, 0, 0}};
            if (from + part * size < fours && at + 16 <= src.len)
                got[part] = *reinterpret_cast<const Four*>(src.data + at);
        }
        SWATH_UNROLL
        for (u32 part = 0; part < 4; part++) {
            const u64 at = first + (from + part * size) * 16;
            if (from + part * size >= fours) break;
            if (at < src.len && at + 16 > src.len)
                for (u32 byte = 0; byte < 16; byte++)
                    got[part].words[byte / 4] |= u32(src.get(at + byte)) << (8 * (byte % 4));
            to[from + part * size] = got[part];
        }
    }
    group.sync();
    return u32(bit & 127);
}

// Decodes from any bit until the codes have most likely synchronised; returns the first code that starts at `to` or
// later.
SWATH_FN u32 fall_in(const u32* staged, const Codes& codes, u32 from, u32 to) {
    BitCursor cursor(staged, from);
    CodeChoice choice = choose_code(false);
    while (cursor.pos < to || choice.second()) {
        const u32 entry = codes.find(cursor.peek(), choice);
        const bool literal = entry & ENTRY_LITERAL, several = literal && cursor.pos + LENGTH_WIDTH <= to;
        cursor.skip(max_of(entry_bits(several ? entry_joined(entry) : entry), 1u));
        choice = choose_code(!choice.second() && !literal && (entry & ENTRY_OTHER) == 0);
    }
    return cursor.pos;
}

// Counts the tokens that start in a stretch, from its first one on. A length and its distance are two steps, so that
// lanes at different kinds of codes run the same instructions.
SWATH_FN Stretch measure(const u32* staged, const Codes& codes, u32 from, u32 to, u32 limit) {
    BitCursor cursor(staged, from);
    u32 bytes = 0, stop = GOES_ON;
    CodeChoice choice = choose_code(false);
    while (cursor.pos < to || choice.second()) {
        const u32 bits = cursor.peek();
        const u32 entry = codes.find(bits, choice);
        // Not beyond the end: there the next lane takes over, and it may not see the same literals together.
        const bool literal = entry & ENTRY_LITERAL, several = literal && cursor.pos + LENGTH_WIDTH <= to;
        const u32 taken = several ? entry_joined(entry) : entry;
        cursor.skip(entry_bits(taken));
        if (entry & ENTRY_OTHER) {
            stop = entry & ENTRY_END ? BLOCK_END : BAD;
            break;
        }
        const u32 value = entry_value(entry, bits), made = literal ? entry_literals(taken) : value;
        bytes += choice.second() ? 0 : made;
        choice = choose_code(!choice.second() && !literal);
    }
    return {from, cursor.pos, bytes, cursor.pos > limit ? u32(BAD) : stop};
}
