// Finite state entropy for the decoder: the number of cells of each symbol, and the table with the meaning of each cell.
// One lane runs each function.
#pragma once
#include "zstd/decode_bits.cuh"

struct FseShares {
    u32 log;
    u32 used;  // number of symbols up to the last one with cells
    u32 end;   // position after the description; 0 if it is damaged
};

// Reads the description of a distribution from byte `from`, at most up to `to`. `shares` has room for `most` symbols; all
// are set. A damaged description may run past the end of the stream, where the bytes are undefined: whatever they are,
// the position is then beyond `to`, and the description is refused.
SWATH_FN FseShares read_shares(const Span<const u8>& stream, u32 from, u32 to, u32 most, u32 most_log, short* shares) {
    FseShares found{0, 0, 0};
    if (from >= to) return found;
    u32 bit = from * 8;
    const u32 limit = to * 8;
    found.log = u32(bits_from(stream, bit) & 15) + 5;
    bit += 4;
    if (found.log > most_log) return found;
    u32 left = (1u << found.log) + 1, threshold = 1u << found.log, width = found.log + 1, symbol = 0;
    while (left > 1) {
        if (symbol >= most || bit > limit) return found;
        const u32 bits = u32(bits_from(stream, bit));
        const u32 spare = 2 * threshold - 1 - left;
        u32 share = bits & (threshold - 1);
        if (share < spare) {
            bit += width - 1;
        } else {
            share = bits & (2 * threshold - 1);
            if (share >= threshold) share -= spare;
            bit += width;
        }
        // The stored number is one more than the cells; 0 stands for less than one cell, which gets one.
        shares[symbol++] = short(i32(share) - 1);
        left -= share == 0 ? 1 : share - 1;
        while (left < threshold && threshold > 1) {
            width--;
            threshold >>= 1;
        }
        if (share != 1) continue;
        // The number of symbols without cells that follow.
        for (u32 more = 3; more == 3;) {
            if (bit > limit) return found;
            more = u32(bits_from(stream, bit) & 3);
            bit += 2;
            if (symbol + more > most) return found;
            for (u32 k = 0; k < more; k++) shares[symbol++] = 0;
        }
        // The last symbol must have cells.
        if (symbol >= most) return found;
    }
    found.used = symbol;
    const u32 end = (bit + 7) / 8;
    if (left != 1 || end > to) return found;
    while (symbol < most) shares[symbol++] = 0;
    found.end = end;
    return found;
}

// Sets the symbol of each cell: symbols of less than one cell at the end, the others spread over the rest. Leaves in
// `next` the numbers that `place_cell` counts on from.
SWATH_FN void spread_symbols(const short* shares, u32 used, u32 log, u32* cells, u16* next) {
    const u32 size = 1u << log, step = (size >> 1) + (size >> 3) + 3;
    u32 high = size - 1;
    for (u32 symbol = 0; symbol < used; symbol++) {
        next[symbol] = u16(shares[symbol] < 0 ? 1 : shares[symbol]);
        if (shares[symbol] < 0) cells[high--] = symbol;
    }
    u32 at = 0;
    for (u32 symbol = 0; symbol < used; symbol++) {
        for (i32 cell = 0; cell < shares[symbol]; cell++) {
            cells[at] = symbol;
            do at = (at + step) & (size - 1);
            while (at > high);
        }
    }
}

// The next state after a cell: `bits` bits are read and added to `base`.
struct FseCell {
    u32 bits, base;
};
SWATH_FN FseCell place_cell(u32 symbol, u32 log, u16* next) {
    const u32 number = next[symbol]++;
    const u32 bits = log - highest_one(number);
    return FseCell{bits, (number << bits) - (1u << log)};
}
