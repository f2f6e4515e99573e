// The prefix codes of a Deflate block: all lanes read their lengths and make tables of them.
#pragma once
#include "core/atomics.cuh"
#include "core/bits.cuh"
#include "deflate/decode_agree.cuh"
#include "core/racing.cuh"

// The entry of a lookup. Bits 0 to 4: length of the code and its extra bits together.
// A length or distance: bits 5 to 8: length of the code alone; from 16 on: the base that the extra bits are added to.
// A literal: bits 5 to 7: one; 8 to 11 and 13 to 14: code length and number for up to three literals together; 22 to 29:
// the byte.
// A longer code: bits 0 to 3: how many more of its bits count; 8 to 11: how many were looked at; from 16 on: index of the
// second-level table.
enum : u32 {
    ENTRY_LITERAL = 1u << 31,
    ENTRY_OTHER = 1u << 15,  // neither literal nor length nor distance
    ENTRY_END = 1u << 14,    // with ENTRY_OTHER: end of block
    ENTRY_LONG = 1u << 12,   // the code is longer than the index of the table
};

SWATH_FN u32 entry_bits(u32 entry) { return entry & 31; }
SWATH_FN u32 entry_byte(u32 entry) { return entry >> 22 & 255; }
SWATH_FN u32 entry_literals(u32 entry) { return entry >> 5 & 7; }
// A literal's entry with the bits and the number of all literals that the lookup found.
SWATH_FN u32 entry_joined(u32 entry) { return entry >> 8; }
// The entry of the length or distance whose code the low bits of `bits` are; undefined if they are something else.
SWATH_FN u32 entry_value(u32 entry, u32 bits) {
    return (entry >> 16) + (low_bits(bits, entry & 31) >> (entry >> 5 & 15));
}

// The entry of a literal, a length or the end of a block. Zlib refuses the two symbols beyond 285, and so do we.
SWATH_FN u32 length_entry(u32 symbol, u32 bits) {
    if (symbol < 256) return ENTRY_LITERAL | symbol << 22 | (1u << 5 | bits) << 8 | 1u << 5 | bits;
    if (symbol == 256) return ENTRY_OTHER | ENTRY_END | bits;
    if (symbol < 265) return (symbol - 254) << 16 | bits << 5 | bits;
    if (symbol == 285) return 258u << 16 | bits << 5 | bits;
    if (symbol > 285) return ENTRY_OTHER;
    const u32 step = symbol - 261, extra = step >> 2;
    return (3 + ((4 + (step & 3)) << extra)) << 16 | bits << 5 | (bits + extra);
}

SWATH_FN u32 distance_entry(u32 symbol, u32 bits) {
    if (symbol < 4) return (symbol + 1) << 16 | bits << 5 | bits;
    if (symbol > 29) return ENTRY_OTHER;
    const u32 extra = (symbol >> 1) - 1;
    return (1 + ((2 + (symbol & 1)) << extra)) << 16 | bits << 5 | (bits + extra);
}

constexpr u32 LENGTH_SYMBOLS = 288, DISTANCE_SYMBOLS = 32, ALL_SYMBOLS = LENGTH_SYMBOLS + DISTANCE_SYMBOLS;
constexpr u32 LENGTH_WIDTH = 10, DISTANCE_WIDTH = 8;  // of their tables
constexpr u32 LENGTH_ENTRIES = 1u << LENGTH_WIDTH, DISTANCE_ENTRIES = 1u << DISTANCE_WIDTH;
constexpr u32 CODE_BITS = 15;  // the longest code
constexpr u32 SYMBOL_WORDS = ALL_SYMBOLS / 32;
// Second-level tables for codes longer than the index. Complete codes of so many symbols never need more.
constexpr u32 LONG_LENGTHS = LENGTH_ENTRIES + DISTANCE_ENTRIES, LONG_DISTANCES = LONG_LENGTHS + 312;
constexpr u32 TABLE_ENTRIES = LONG_DISTANCES + 148;

// Which code comes next: literals and lengths, or distances.
struct CodeChoice {
    u32 mask, offset;
    SWATH_FN bool second() const { return offset != 0; }
};
SWATH_FN CodeChoice choose_code(bool second) {
    return {second ? DISTANCE_ENTRIES - 1 : LENGTH_ENTRIES - 1, second ? LENGTH_ENTRIES : 0};
}

// The tables of both codes of a block: first literals and lengths, second distances.
struct Codes {
    u32 table[TABLE_ENTRIES];
    u16 more[LENGTH_ENTRIES];  // the second and third of three literals in one lookup

    // The entry for the code at the start of `bits`.
    SWATH_FN u32 find(u32 bits, const CodeChoice& choice) const {
        u32 entry = table[(bits & choice.mask) | choice.offset];
        if (entry & ENTRY_LONG) entry = table[(entry >> 16) + low_bits(bits >> (entry >> 8 & 15), entry & 15)];
        return entry;
    }
    // Adds more literals to an entry whose codes lie wholly within its index. Entries that other lanes have extended
    // still start with their own literal.
    SWATH_FN void join_literals(u32 index) {
        const u32 entry = table[index];
        if ((entry & ENTRY_LITERAL) == 0) return;
        u32 used = entry_bits(entry), count = 0, found = 0;
        for (; count < 2; count++) {
            const u32 next = load_racing(table + (index >> used));
            if ((next & ENTRY_LITERAL) == 0 || used + entry_bits(next) > LENGTH_WIDTH) break;
            found |= entry_byte(next) << (8 * count);
            used += entry_bits(next);
        }
        if (count == 0) return;
        more[index] = u16(found);
        store_racing(table + index, (entry & ~0xff00u) | (count + 1) << 13 | used << 8);
    }
};

// Working memory until the tables are made.
struct CodeLengths {
    u32 users[CODE_BITS + 1][SYMBOL_WORDS];  // for each code length, a bit for each symbol with such a code
    u32 counts[2][CODE_BITS + 1];
    u32 limit[2][CODE_BITS + 1];  // for each length, the first code beyond, extended to 15 bits
    i32 bias[2][CODE_BITS + 1];   // for each length, what is added to a code to find it in `sorted`
    u32 sorted[ALL_SYMBOLS];      // the entries of symbols in the order of their codes
    u8 lengths[ALL_SYMBOLS];      // bits of each symbol's code
    u8 small_table[128];          // of the code for code lengths

    // The entry for codes that start with `index`.
    SWATH_FN u32 table_entry(u32 index, u32 second) const {
        const u32 code = reversed(index) >> (32 - CODE_BITS);
        u32 length = 1;
        SWATH_UNROLL
        for (u32 other = 1; other < DISTANCE_WIDTH; other++) length += code >= limit[second][other];
        if (!second) {
            SWATH_UNROLL
            for (u32 other = DISTANCE_WIDTH; other < LENGTH_WIDTH; other++) length += code >= limit[0][other];
        }
        if (code < limit[second][length]) {
            const u32 at = u32(i32(code >> (CODE_BITS - length)) + bias[second][length]);
            return at < ALL_SYMBOLS ? sorted[at] : u32(ENTRY_OTHER);
        }
        return code < limit[second][CODE_BITS] ? long_entry(code, second) : u32(ENTRY_OTHER);
    }
    // Where to look up a long code. Longer codes come later: so the number of bits grows from one index to the next, and
    // the space taken by those before follows from the limits.
    SWATH_FN u32 long_entry(u32 code, u32 second) const {
        const u32 width = second ? DISTANCE_WIDTH : LENGTH_WIDTH, shift = CODE_BITS - width, start = code >> shift;
        u32 at = second ? LONG_DISTANCES : LONG_LENGTHS, before = limit[second][width] >> shift;
        for (u32 bits = 1; bits <= shift; bits++) {
            const u32 bound = limit[second][width + bits] >> shift;
            if (start < bound) {
                at += (start - before) << bits;
                if (at + (1u << bits) > (second ? TABLE_ENTRIES : LONG_DISTANCES)) break;
                return ENTRY_LONG | at << 16 | width << 8 | bits;
            }
            at += (bound - before) << bits;
            before = bound;
        }
        return ENTRY_OTHER;
    }
};

// The header of a block; the same in all lanes.
struct BlockHead {
    u32 last, kind;
    u32 end;  // the bit after the header
    bool fine;
};

// The symbol whose length is stored at place `index`.
SWATH_FN u32 small_symbol(u32 index) {
    // 16 17 18 0 8 7 9 6 10 5 11 4, 12 3 13 2 14 1 15: five bits each.
    const u64 first = 16ull | 17ull << 5 | 18ull << 10 | 0ull << 15 | 8ull << 20 | 7ull << 25 | 9ull << 30 |
                      6ull << 35 | 10ull << 40 | 5ull << 45 | 11ull << 50 | 4ull << 55;
    const u64 rest = 12ull | 3ull << 5 | 13ull << 10 | 2ull << 15 | 14ull << 20 | 1ull << 25 | 15ull << 30;
    return u32(index < 12 ? first >> (5 * index) : rest >> (5 * (index - 12))) & 31;
}

// Makes the table of the code for code lengths, from `count` lengths of three bits; false if the code is not complete.
template <class Group> SWATH_FN bool make_small_table(const Group& group, u64 written, u32 count, u8* table) {
    constexpr u64 ONES = 01111111111111111111ull;  // the lowest bit of each of 19 lengths
    written &= (1ull << (3 * count)) - 1;
    u64 lengths = 0;
    SWATH_UNROLL
    for (u32 index = 0; index < 19; index++) lengths |= (written >> (3 * index) & 7) << (3 * small_symbol(index));
    // With codes extended to seven bits: the start of the codes of each length, eight bits each.
    u64 starts = 0;
    u32 code = 0;
    SWATH_UNROLL
    for (u32 length = 1; length < 8; length++) {
        const u64 other = lengths ^ ONES * length;
        starts |= u64(code & 255) << (8 * length);
        code += ones_in(~(other | other >> 1 | other >> 2) & ONES) << (7 - length);
        if (code > 128) return false;
    }
    if (code != 128) return false;
    for (u32 at = group.lane(); at < 128; at += group.size()) {
        const u32 own = reversed(at) >> 25;
        u32 length = 1;
        SWATH_UNROLL
        for (u32 longer = 2; longer < 8; longer++)
            length = own >= (u32(starts >> (8 * longer)) & 255) ? longer : length;
        // The symbol is one of those with this length, counted from the first.
        u32 left = (own - (u32(starts >> (8 * length)) & 255)) >> (7 - length), found = 0;
        SWATH_UNROLL
        for (u32 symbol = 0; symbol < 19; symbol++) {
            if ((u32(lengths >> (3 * symbol)) & 7) != length) continue;
            if (left == 0) found = symbol;
            left--;
        }
        table[at] = u8(found << 3 | length);
    }
    return true;
}

// Each lane reads the lengths in one part of the header (decode_agree.cuh).
constexpr u32 LENGTH_SAME = 255;  // as the one before
constexpr u32 LENGTH_TRIES = 24;

struct LengthRun {
    u32 bits, count, value;
};

SWATH_FN LengthRun length_run(const u8* small_table, u32 bits) {
    const u32 found = small_table[bits & 127], width = found & 7, symbol = found >> 3;
    if (symbol < 16) return {width, 1, symbol};
    const u32 extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
    return {width + extra, (symbol == 18 ? 11 : 3) + low_bits(bits >> width, extra), symbol == 16 ? LENGTH_SAME : 0};
}

// All lanes: reads the lengths of both codes from bit `pos` on and moves `pos` behind them. They take less than 2300
// bits, and lanes look as far again ahead: words for 5000 bits are loaded.
template <class Group>
SWATH_FN bool read_lengths(const Group& group, const u32* words, u32& pos, u32 literals, u32 distances,
                           CodeLengths& codes, u32* ends, u32 most_lanes) {
    constexpr u32 PIECE = 16, WARM = 32;
    const u32 lane = group.lane(), lanes = min_of(group.size(), min_of(most_lanes, 2300u / PIECE));
    const u32 all = literals + distances;
    for (u32 at = lane; at < ALL_SYMBOLS; at += group.size()) codes.lengths[at] = 0;
    group.sync();
    u32 done = 0;
    // A part holds at least one run, so this ends.
    while (done < all) {
        const u32 to = pos + (lane + 1) * PIECE;
        auto measure = [&](u32 from) {
            BitCursor cursor(words, from);
            Stretch piece{from, from, 0, 0};
            while (cursor.pos < to) {
                const LengthRun run = length_run(codes.small_table, cursor.peek());
                cursor.skip(run.bits);
                piece.sum += run.count;
            }
            piece.end = cursor.pos;
            return piece;
        };
        Stretch piece{0, 0, 0, 0};
        if (lane < lanes) {
            // Starts a little earlier, to synchronise.
            BitCursor cursor(words, to - PIECE - min_of(lane * PIECE, WARM));
            while (cursor.pos < to - PIECE) cursor.skip(length_run(codes.small_table, cursor.peek()).bits);
            piece = measure(cursor.pos);
        }
        const u32 valid = agree(group, ends, lanes, LENGTH_TRIES, piece, measure);
        u32 total;
        const u32 before = done + group.exclusive_sum(lane < valid ? piece.sum : 0, total);
        // The tokens of the block begin where the last length ends.
        bool fault = false;
        u32 end = 0;
        if (lane < valid && before < all) {
            BitCursor cursor(words, piece.start);
            for (u32 at = before; cursor.pos < piece.end && at < all;) {
                const LengthRun run = length_run(codes.small_table, cursor.peek());
                cursor.skip(run.bits);
                if ((at == 0 && run.value == LENGTH_SAME) || run.count > all - at) {
                    fault = true;
                    break;
                }
                const u32 stop = at + run.count;
                for (; at < stop && run.value != 0; at++)
                    codes.lengths[at < literals ? at : LENGTH_SYMBOLS + at - literals] = u8(run.value);
                at = stop;
                if (at == all) end = cursor.pos;
            }
        }
        if (group.any(fault)) return false;
        done += min_of(total, all - done);
        // Only one lane knows the end.
        pos = done < all ? group.broadcast(piece.end, valid - 1) : group.min(end ? end : ~0u);
        if (pos > 2600) return false;
    }
    for (u32 at = lane; at < all; at += group.size()) {
        u32 back = at, value;
        do value = load_racing(codes.lengths + (back < literals ? back : LENGTH_SYMBOLS + back - literals));
        while (value == LENGTH_SAME && back-- > 0);
        if (back != at) store_racing(codes.lengths + (at < literals ? at : LENGTH_SYMBOLS + at - literals), u8(value));
    }
    group.sync();
    return codes.lengths[256] != 0;
}

// All lanes: reads the header of a block that starts at bit `pos` (less than 128), and the lengths of its codes.
template <class Group>
SWATH_FN BlockHead read_head(const Group& group, const u32* words, u32 pos, CodeLengths& codes, u32* ends,
                             u32 most_lanes) {
    BitCursor cursor(words, pos);
    BlockHead head{cursor.take(1), cursor.take(2), 0, true};
    head.end = cursor.pos;
    if (head.kind == 1) {
        for (u32 symbol = group.lane(); symbol < ALL_SYMBOLS; symbol += group.size())
            codes.lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : symbol < 288 ? 8 : 5;
        group.sync();
    }
    if (head.kind == 2) {
        const u32 literals = 257 + cursor.take(5), distances = 1 + cursor.take(5), smalls = 4 + cursor.take(4);
        u64 written = cursor.take(30);
        written |= u64(cursor.peek() & 0x7ffffff) << 30;
        head.end += 14 + 3 * smalls;
        head.fine = make_small_table(group, written, smalls, codes.small_table) &&
                    read_lengths(group, words, head.end, literals, distances, codes, ends, most_lanes);
    }
    if (head.kind == 3) head.fine = false;
    return head;
}

// All lanes: makes the tables of both codes from their lengths. Returns the likely number of bits of a token; 0 if a code
// is refused.
template <class Group> SWATH_FN u32 make_tables(const Group& group, CodeLengths& from, Codes& codes) {
    const u32 lane = group.lane(), size = group.size();
    for (u32 at = lane; at < (CODE_BITS + 1) * SYMBOL_WORDS; at += size) (&from.users[0][0])[at] = 0;
    group.sync();
    for (u32 symbol = lane; symbol < ALL_SYMBOLS; symbol += size)
        atomic_or(&from.users[from.lengths[symbol]][symbol / 32], 1u << symbol % 32);
    group.sync();
    for (u32 at = lane; at < 2 * (CODE_BITS + 1); at += size) {
        const u32 second = at / (CODE_BITS + 1), length = at % (CODE_BITS + 1);
        u32 count = 0;
        SWATH_UNROLL
        for (u32 word = 0; word < SYMBOL_WORDS; word++)
            if ((word == SYMBOL_WORDS - 1) == (second == 1)) count += ones_in(from.users[length][word]);
        from.counts[second][length] = count;
    }
    group.sync();
    bool fine = true;
    for (u32 at = lane; at < 2 * (CODE_BITS + 1); at += size) {
        const u32 second = at / (CODE_BITS + 1), own = at % (CODE_BITS + 1);
        u32 code = 0, before = 0, used = 0;
        SWATH_UNROLL
        for (u32 length = 1; length <= CODE_BITS; length++) {
            const u32 count = from.counts[second][length];
            if (length < own) before += count, used += count << (CODE_BITS - length);
            if (length <= own) code += count << (CODE_BITS - length);
        }
        from.limit[second][own] = code;
        const u32 first = second ? LENGTH_SYMBOLS : 0;
        if (own > 0) from.bias[second][own] = i32(first + before) - i32(used >> (CODE_BITS - own));
        // A code has to be complete, or one code of one bit, or, for distances, empty.
        const bool lone = code == 1u << (CODE_BITS - 1) && from.counts[second][1] == 1;
        if (own == CODE_BITS && code != 1u << CODE_BITS && !lone && !(second && code == 0)) fine = false;
    }
    if (group.any(!fine)) return 0;
    for (u32 symbol = lane; symbol < ALL_SYMBOLS; symbol += size) {
        const u32 length = from.lengths[symbol], second = symbol >= LENGTH_SYMBOLS;
        if (length == 0) continue;
        // Counts the symbols before it with codes of the same length.
        u32 before = ones_in(low_bits(from.users[length][symbol / 32], symbol % 32));
        for (u32 word = second ? LENGTH_SYMBOLS / 32 : 0; word < symbol / 32; word++)
            before += ones_in(from.users[length][word]);
        const u32 code = (from.limit[second][length - 1] >> (CODE_BITS - length)) + before;
        const u32 entry = second ? distance_entry(symbol - LENGTH_SYMBOLS, length) : length_entry(symbol, length);
        const u32 width = second ? DISTANCE_WIDTH : LENGTH_WIDTH;
        if (length <= width) {
            const u32 at = u32(i32(code) + from.bias[second][length]);
            if (at < ALL_SYMBOLS) from.sorted[at] = entry;
        } else {
            const u32 to = from.long_entry(code << (CODE_BITS - length), second), more = length - width;
            if (to & ENTRY_LONG)
                for (u32 at = reversed(code) >> (32 - more); at < 1u << (to & 15); at += 1u << more)
                    codes.table[(to >> 16) + at] = entry;
        }
    }
    group.sync();
    u32 bits = 0, matches = 0, more = 0, sums, all_more;
    for (u32 at = lane; at < LENGTH_ENTRIES; at += size) {
        const u32 entry = from.table_entry(at, 0);
        codes.table[at] = entry;
        bits += entry & ENTRY_LONG ? LENGTH_WIDTH + 2 : entry_bits(entry);
        matches += (entry & (ENTRY_LITERAL | ENTRY_OTHER)) == 0;
    }
    for (u32 at = lane; at < DISTANCE_ENTRIES; at += size) {
        const u32 entry = from.table_entry(at, 1);
        codes.table[LENGTH_ENTRIES + at] = entry;
        more += entry & ENTRY_LONG ? DISTANCE_WIDTH + 5 : entry_bits(entry);
    }
    group.exclusive_sum(matches << 16 | bits, sums);
    group.exclusive_sum(more, all_more);
    for (u32 at = lane; at < LENGTH_ENTRIES; at += size) codes.join_literals(at);
    group.sync();
    return ((sums & 0xffff) + (sums >> 16) * (all_more / DISTANCE_ENTRIES)) / LENGTH_ENTRIES + 1;
}
