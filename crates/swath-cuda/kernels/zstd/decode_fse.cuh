// Finite state entropy for decoders: how many cells each symbol has, and the table of what each cell stands for.
// Each of these is one lane's work.
#pragma once
#include "zstd/decode_bits.cuh"

struct FseShares {
    u32 log;
    u32 used;  // symbols up to the last that has cells
    u32 end;   // the byte after the description; 0 where it is damaged
};

// Reads what a distribution says of each symbol, up to byte `to`. `shares` has room for `most` symbols; all are set.
SWATH_FN FseShares read_shares(const Span<const u8>& stream, u32 from, u32 to, u32 most, u32 most_log, short* shares) {
    FseShares told{0, 0, 0};
    if (from >= to) return told;
    u32 bit = from * 8;
    const u32 limit = to * 8;
    told.log = u32(bits_from(stream, bit) & 15) + 5;
    bit += 4;
    if (told.log > most_log) return told;
    u32 left = (1u << told.log) + 1, threshold = 1u << told.log, width = told.log + 1, symbol = 0;
    while (left > 1) {
        if (symbol >= most || bit > limit) return told;
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
        // One more than the cells; 0 is a single cell of less than its share.
        shares[symbol++] = short(i32(share) - 1);
        left -= share == 0 ? 1 : share - 1;
        while (left < threshold && threshold > 1) {
            width--;
            threshold >>= 1;
        }
        if (share != 1) continue;
        // How many more have none.
        for (u32 more = 3; more == 3;) {
            if (bit > limit) return told;
            more = u32(bits_from(stream, bit) & 3);
            bit += 2;
            if (symbol + more > most) return told;
            for (u32 k = 0; k < more; k++) shares[symbol++] = 0;
        }
        // A distribution does not end with nothing.
        if (symbol >= most) return told;
    }
    told.used = symbol;
    const u32 end = (bit + 7) / 8;
    if (left != 1 || end > to) return told;
    while (symbol < most) shares[symbol++] = 0;
    told.end = end;
    return told;
}

// The symbol of each cell: those of less than a cell's share at the end, the others spread over the rest.
// `next` is left as what `place_cell` counts on from.
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

// What follows a cell of a symbol: so many bits, to be added to a base.
struct FseCell {
    u32 bits, base;
};
SWATH_FN FseCell place_cell(u32 symbol, u32 log, u16* next) {
    const u32 number = next[symbol]++;
    const u32 bits = log - highest_one(number);
    return FseCell{bits, (number << bits) - (1u << log)};
}
