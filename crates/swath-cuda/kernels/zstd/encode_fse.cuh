// Finite state entropy for the encoder: distributions that add up to a power of two, their descriptions, and the tables
// that an encoder steps through. One lane runs each function.
#pragma once
#include "core/bits.cuh"
#include "zstd/encode_bits.cuh"

// What an encoder needs to know of a symbol. A state is a number from `size` to 2 * size - 1. To encode a symbol, it
// writes as many low bits of the state as bring it down to `share` to 2 * share - 1; that number selects one of the
// symbol's cells.
struct FseSymbol {
    u32 bits;   // (state + bits) >> 16 is the number of bits to write
    i32 cells;  // index of the cell that a state of 0 would select
};

template <u32 SYMBOLS, u32 MOST_LOG> struct FseTable {
    static constexpr u32 ROOM = 1u << MOST_LOG;
    // Number of cells of each symbol; -1 is one cell at the end of the table.
    short shares[SYMBOLS];
    FseSymbol symbols[SYMBOLS];
    u16 states[ROOM];
    u8 spread[ROOM];
    u32 log;
    u32 used;  // number of symbols up to the last one that occurs

    // Cost of a symbol in 256ths of a bit.
    SWATH_FN static u32 cost(u32 share, u32 log) { return log * 256 - log2_256(share); }

    // Sets the shares for these counts: as near as whole cells allow, and at least one for each symbol that occurs. At
    // least two symbols occur, and `log` is large enough to give each a cell.
    SWATH_COLD void share_out(const u32* counts, u32 total, u32 table_log) {
        log = table_log;
        used = 0;
        i32 left = i32(1) << log;
        u32 most = 0;
        for (u32 symbol = 0; symbol < SYMBOLS; symbol++) {
            u32 share = 0;
            if (counts[symbol] > 0) {
                share = max_of(u32(((u64(counts[symbol]) << (log + 1)) / total + 1) >> 1), 1u);
                used = symbol + 1;
                if (counts[symbol] > counts[most]) most = symbol;
            }
            shares[symbol] = short(share);
            left -= i32(share);
        }
        // Spare cells go to the most frequent symbol; missing cells come from the symbols with the most.
        if (left > 0) shares[most] = short(shares[most] + left);
        for (; left < 0; left++) {
            u32 largest = 0;
            for (u32 symbol = 1; symbol < used; symbol++) {
                if (shares[symbol] > shares[largest]) largest = symbol;
            }
            shares[largest]--;
        }
    }

    // Writes the description of the shares.
    SWATH_COLD void describe(ByteSink& sink) const {
        sink.put(log - 5, 4);
        u32 left = (1u << log) + 1, threshold = 1u << log, bits = log + 1;
        for (u32 symbol = 0; symbol < used;) {
            const u32 share = u32(shares[symbol]);
            const u32 spare = 2 * threshold - 1 - left;
            u32 value = share + 1;
            if (value >= threshold) value += spare;
            sink.put(value, bits - (value < spare));
            left -= share;
            symbol++;
            if (share == 0) {
                u32 zeros = 0;
                while (symbol < used && shares[symbol] == 0) symbol++, zeros++;
                for (; zeros >= 3; zeros -= 3) sink.put(3, 2);
                sink.put(zeros, 2);
            }
            for (; left < threshold; bits--) threshold >>= 1;
        }
        sink.end();
    }

    // Spreads the cells over the table, and lists the cells of each symbol in the order of states.
    SWATH_COLD void build() {
        const u32 size = 1u << log, step = (size >> 1) + (size >> 3) + 3;
        u32 top = size, at = 0;
        for (u32 symbol = 0; symbol < used; symbol++) {
            if (shares[symbol] < 0) spread[--top] = u8(symbol);
        }
        u32 first = 0;
        for (u32 symbol = 0; symbol < used; symbol++) {
            const u32 share = shares[symbol] < 0 ? 1 : u32(shares[symbol]);
            const u32 most = share > 0 ? log - highest_one(share) : 0;
            symbols[symbol] = FseSymbol{(most << 16) - (share << most), i32(first) - i32(share)};
            for (i32 k = 0; k < shares[symbol]; k++) {
                spread[at] = u8(symbol);
                do at = (at + step) & (size - 1);
                while (at >= top);
            }
            first += share;
        }
        // While cells are assigned, `cells` is the index of the next cell of a symbol.
        for (u32 symbol = 0; symbol < used; symbol++) symbols[symbol].cells += taken(symbol);
        for (u32 cell = 0; cell < size; cell++) states[symbols[spread[cell]].cells++] = u16(size + cell);
        for (u32 symbol = 0; symbol < used; symbol++) symbols[symbol].cells -= 2 * taken(symbol);
    }

    // The initial state, from which a decoder gets `symbol` without reading on. Of its cells, the one after which a
    // decoder would read most bits: at least one, so that it notices the end of the stream.
    SWATH_FN u32 start(u32 symbol) const { return states[symbols[symbol].cells + taken(symbol)]; }

    // Encodes a symbol. Returns the bits to write, and from bit 12 on their number.
    SWATH_FN u32 step(u32& state, const FseSymbol& symbol) const {
        const u32 bits = (state + symbol.bits) >> 16, put = low_bits(state, bits) | bits << 12;
        state = states[i32(state >> bits) + symbol.cells];
        return put;
    }

    // log2 in 256ths.
    SWATH_FN static u32 log2_256(u32 value) {
        const u32 whole = highest_one(value);
        u32 fraction = value << (15 - whole), log2 = whole;  // 1 to 2, in 32768ths
        for (u32 k = 0; k < 8; k++) {
            fraction = fraction * fraction >> 15;
            log2 *= 2;
            if (fraction >= 65536) {
                fraction >>= 1;
                log2++;
            }
        }
        return log2;
    }

  private:
    SWATH_FN i32 taken(u32 symbol) const { return shares[symbol] < 0 ? 1 : shares[symbol]; }
};
