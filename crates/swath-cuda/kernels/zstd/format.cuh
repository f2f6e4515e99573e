// What the decoder and the encoder of Zstd share: the three codes of sequences.
#pragma once
#include "core/bits.cuh"

// The three codes, in the order in which a block stores their tables.
enum ZstdCode : u32 { ZSTD_LITERALS = 0, ZSTD_OFFSETS = 1, ZSTD_LENGTHS = 2, ZSTD_CODES = 3 };

// How a block stores a table; the names of the format.
enum ZstdMode : u32 { ZSTD_MODE_PREDEFINED = 0, ZSTD_MODE_RLE = 1, ZSTD_MODE_FSE = 2, ZSTD_MODE_REPEAT = 3 };

// The largest number of symbols of a code.
constexpr u32 ZSTD_SYMBOLS = 53;

// The predefined distributions: the number of cells of each symbol; -1 is one cell at the end of the table.
SWATH_FN u32 predefined_log(u32 code) { return code == ZSTD_OFFSETS ? 5 : 6; }
SWATH_FN i32 predefined_share(u32 code, u32 symbol) {
    if (code == ZSTD_LITERALS) {
        if (symbol >= 32) return symbol < 36 ? -1 : 0;
        if (symbol == 0) return 4;
        if (symbol == 1 || symbol == 25) return 3;
        return (symbol >= 13 && symbol < 16) || symbol >= 27 ? 1 : 2;
    }
    if (code == ZSTD_OFFSETS) {
        if (symbol >= 24) return symbol < 29 ? -1 : 0;
        return symbol >= 6 && symbol < 9 ? 2 : 1;
    }
    if (symbol < 3) return symbol == 0 ? 1 : symbol == 1 ? 4 : 3;
    return symbol < 9 ? 2 : symbol < 46 ? 1 : -1;
}
// Number of symbols of a predefined distribution.
SWATH_FN u32 code_symbols(u32 code) { return code == ZSTD_LITERALS ? 36 : code == ZSTD_OFFSETS ? 29 : 53; }

// The number of extra bits after a symbol, and the base that they are added to.
SWATH_FN u32 literal_bits(u32 symbol) {
    if (symbol < 16) return 0;
    if (symbol >= 25) return symbol - 19;
    return symbol < 20 ? 1 : symbol < 22 ? 2 : symbol < 24 ? 3 : 4;
}
SWATH_FN u32 literal_base(u32 symbol) {
    if (symbol < 16) return symbol;
    if (symbol >= 25) return 1u << (symbol - 19);
    return symbol < 20 ? 2 * symbol - 16 : symbol < 22 ? 4 * symbol - 56 : symbol < 24 ? 8 * symbol - 144 : 48;
}
SWATH_FN u32 length_bits(u32 symbol) {
    if (symbol < 32) return 0;
    if (symbol >= 43) return symbol - 36;
    return symbol < 36 ? 1 : symbol < 38 ? 2 : symbol < 40 ? 3 : symbol < 42 ? 4 : 5;
}
SWATH_FN u32 length_base(u32 symbol) {
    if (symbol < 32) return symbol + 3;
    if (symbol >= 43) return (1u << (symbol - 36)) + 3;
    if (symbol < 38) return (symbol < 36 ? 2 * symbol - 32 : 4 * symbol - 104) + 3;
    return (symbol < 40 ? 8 * symbol - 256 : symbol < 42 ? 16 * symbol - 576 : 96) + 3;
}
