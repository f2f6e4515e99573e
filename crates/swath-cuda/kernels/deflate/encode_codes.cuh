// The codes of a Deflate block that is encoded: counts of symbols, codes, the header, the bits of a symbol.
#pragma once
#include "core/atomics.cuh"
#include "lz/huffman_build.cuh"
#include "lz/match.cuh"

// Writes bits, least significant first, into zeroed words that other lanes write to as well.
struct BitWriter {
    u32* words;
    u32 word, filled;
    u64 bits;

    SWATH_FN BitWriter(u32* words, u32 at) : words(words), word(at / 32), filled(at % 32), bits(0) {}
    // Writes at most 32 bits; those of `value` above `count` are zero.
    SWATH_FN void put(u32 value, u32 count) {
        bits |= u64(value) << filled;
        filled += count;
        if (filled < 32) return;
        atomic_or(&words[word++], u32(bits));
        bits >>= 32;
        filled -= 32;
    }
    SWATH_FN void end() {
        if (u32(bits) != 0) atomic_or(&words[word], u32(bits));
    }
    SWATH_FN u32 place() const { return word * 32 + filled; }
};

struct DeflateCodes {
    static constexpr u32 LITERALS = 286, DISTANCES = 30, ALL = LITERALS + DISTANCES, END = 256;
    static constexpr u32 STEPS = 19;  // symbols of the code for code lengths
    static constexpr u32 COPIES = 4;  // of the counters, so that fewer lanes add to the same one
    static constexpr u32 LIMIT = 15, STEP_LIMIT = 7;

    using Build = HuffmanBuild<LITERALS>;

    u32 counts[COPIES][LITERALS];
    u32 distances[DISTANCES];
    u32 steps[STEPS];
    // Code length << 16 and the code, its first bit the least significant.
    u32 codes[ALL];
    u32 step_codes[STEPS];
    u8 lengths[ALL + 4];
    u8 step_lengths[STEPS + 1];
    // The code lengths as symbols, with the extra bits of a symbol << 8.
    u16 length_symbols[ALL];
    u32 told_count, told_literals, told_distances, told_steps, header_bits;
    Build::Shared build_shared;

    SWATH_FN static u32 bits_of(u32 code) { return code >> 16; }
    SWATH_FN static u32 code_of(u32 code) { return code & 0xffff; }

    // A length or a distance as a symbol and extra bits.
    struct Split {
        u32 symbol, extra, extra_bits;
    };
    SWATH_FN static Split split_length(u32 len) {
        const u32 over = len - 3;
        if (over < 8) return {257 + over, 0, 0};
        if (len == 258) return {285, 0, 0};
        const u32 extra = highest_one(over) - 2;
        return {257 + 4 * extra + (over >> extra), low_bits(over, extra), extra};
    }
    SWATH_FN static Split split_distance(u32 distance) {
        const u32 over = distance - 1;
        if (over < 4) return {over, 0, 0};
        const u32 extra = highest_one(over) - 1;
        return {2 * extra + (over >> extra), low_bits(over, extra), extra};
    }

    // The number of extra bits of a symbol.
    SWATH_FN static u32 length_extra(u32 symbol) { return symbol < 265 || symbol == 285 ? 0 : (symbol - 261) / 4; }
    SWATH_FN static u32 distance_extra(u32 symbol) { return symbol < 4 ? 0 : symbol / 2 - 1; }

    template <class Group> SWATH_FN void clear(const Group& group) {
        for (u32 k = group.lane(); k < COPIES * LITERALS; k += group.size()) counts[k / LITERALS][k % LITERALS] = 0;
        for (u32 k = group.lane(); k < DISTANCES; k += group.size()) distances[k] = 0;
        group.sync();
    }
    SWATH_FN void count_literal(u32 byte, u32 lane) { atomic_add(&counts[lane % COPIES][byte], 1u); }
    // Length << 16 and distance.
    SWATH_FN void count_match(u32 match) {
        atomic_add(&counts[0][split_length(match >> 16).symbol], 1u);
        atomic_add(&distances[split_distance(match & 0xffff).symbol], 1u);
    }

    // Makes the codes for the counts; returns the number of bits of the block, with header and end.
    template <class Group> SWATH_FN u32 build(const Group& group) {
        for (u32 k = group.lane(); k < LITERALS; k += group.size()) {
            u32 sum = k == END ? 1 : 0;
            for (u32 copy = 0; copy < COPIES; copy++) sum += counts[copy][k];
            counts[0][k] = sum;
        }
        group.sync();
        Build::lengths(group, counts[0], LITERALS, LIMIT, lengths, build_shared);
        Build::lengths(group, distances, DISTANCES, LIMIT, lengths + LITERALS, build_shared);
        if (group.lane() == 0) tell();
        group.sync();
        Build::lengths(group, steps, STEPS, STEP_LIMIT, step_lengths, build_shared);
        assign(group, lengths, LITERALS, codes);
        assign(group, lengths + LITERALS, DISTANCES, codes + LITERALS);
        assign(group, step_lengths, STEPS, step_codes);
        if (group.lane() == 0) measure_header();
        u32 bits = 0;
        for (u32 k = group.lane(); k < ALL; k += group.size()) {
            const bool literal = k < LITERALS;
            const u32 count = literal ? counts[0][k] : distances[k - LITERALS];
            bits += count * (lengths[k] + (literal ? length_extra(k) : distance_extra(k - LITERALS)));
        }
        u32 total;
        group.exclusive_sum(bits, total);
        return header_bits + total;
    }

    // Writes the header at the start of zeroed words; returns its number of bits.
    template <class Group> SWATH_FN u32 write_header(const Group& group, bool last, u32* words) {
        if (group.lane() == 0) {
            BitWriter writer(words, 0);
            writer.put(last ? 5 : 4, 3);
            writer.put(told_literals - 257, 5);
            writer.put(told_distances - 1, 5);
            writer.put(told_steps - 4, 4);
            for (u32 k = 0; k < told_steps; k++) writer.put(step_lengths[step_at(k)], 3);
            for (u32 k = 0; k < told_count; k++) {
                const u32 step = length_symbols[k] & 31;
                writer.put(code_of(step_codes[step]), bits_of(step_codes[step]));
                writer.put(length_symbols[k] >> 8, step_extra(step));
            }
            writer.end();
        }
        group.sync();
        return header_bits;
    }

    SWATH_FN u32 literal(u32 byte) const { return codes[byte]; }
    SWATH_FN u32 match_bits(u32 match) const {
        const Split length = split_length(match >> 16), distance = split_distance(match & 0xffff);
        return bits_of(codes[length.symbol]) + length.extra_bits + bits_of(codes[LITERALS + distance.symbol]) +
            distance.extra_bits;
    }
    SWATH_FN void put_match(u32 match, BitWriter& writer) const {
        const Split length = split_length(match >> 16), distance = split_distance(match & 0xffff);
        put_split(codes[length.symbol], length, writer);
        put_split(codes[LITERALS + distance.symbol], distance, writer);
    }
    // Writes the end of the block.
    SWATH_FN u32 end_code() const { return codes[END]; }

  private:
    SWATH_FN static void put_split(u32 code, const Split& split, BitWriter& writer) {
        writer.put(code_of(code) | split.extra << bits_of(code), bits_of(code) + split.extra_bits);
    }
    SWATH_FN static u32 step_extra(u32 step) { return step < 16 ? 0 : step == 16 ? 2 : step == 17 ? 3 : 7; }
    // The lengths of the code for code lengths come in this order: 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1 15.
    SWATH_FN static u32 step_at(u32 k) {
        if (k < 3) return 16 + k;
        if (k == 3) return 0;
        return k % 2 == 0 ? 8 + (k - 4) / 2 : 7 - (k - 5) / 2;
    }

    // Turns the code lengths into symbols: a length, 16 for the one before again, 17 and 18 for zeros.
    SWATH_FN void tell() {
        for (u32 k = 0; k < STEPS; k++) steps[k] = 0;
        u32 literals = LITERALS, last = DISTANCES;
        while (literals > 257 && lengths[literals - 1] == 0) literals--;
        while (last > 1 && lengths[LITERALS + last - 1] == 0) last--;
        told_literals = literals;
        told_distances = last;
        const u32 all = literals + last;
        u32 made = 0, before = 256;
        for (u32 k = 0; k < all;) {
            const u32 length = told_length(k);
            u32 again = 1;
            while (k + again < all && again < 138 && told_length(k + again) == length) again++;
            u32 step = length, extra = 0, taken = 1;
            if (length == 0 && again >= 3) {
                step = again < 11 ? 17 : 18;
                extra = again - (again < 11 ? 3 : 11);
                taken = again;
            } else if (length == before && again >= 3) {
                step = 16;
                taken = min_of(again, 6u);
                extra = taken - 3;
            }
            steps[step]++;
            length_symbols[made++] = u16(step | extra << 8);
            before = length;
            k += taken;
        }
        told_count = made;
    }
    SWATH_FN u32 told_length(u32 k) const { return lengths[k < told_literals ? k : LITERALS + k - told_literals]; }

    SWATH_FN void measure_header() {
        u32 count = STEPS;
        while (count > 4 && step_lengths[step_at(count - 1)] == 0) count--;
        told_steps = count;
        u32 bits = 3 + 5 + 5 + 4 + 3 * count;
        for (u32 k = 0; k < STEPS; k++) bits += steps[k] * (step_lengths[k] + step_extra(k));
        header_bits = bits;
    }

    // Codes of one length count up; those of the next length follow.
    template <class Group>
    SWATH_FN static void assign(const Group& group, const u8* lengths, u32 symbols, u32* codes) {
        for (u32 k = group.lane(); k < symbols; k += group.size()) {
            const u32 length = lengths[k];
            u32 code = 0;
            for (u32 other = 0; other < symbols; other++) {
                const u32 its = lengths[other];
                if (its != 0 && (its < length || (its == length && other < k))) code += 1u << (LIMIT - its);
            }
            codes[k] = length == 0 ? 0 : length << 16 | reversed(code >> (LIMIT - length)) >> (32 - length);
        }
        group.sync();
    }
};
