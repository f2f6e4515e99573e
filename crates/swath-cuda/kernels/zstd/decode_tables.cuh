// The tables of a block's three codes, made of what it tells and what blocks before it told: one lane's work.
#pragma once
#include "zstd/decode.cuh"
#include "zstd/decode_fse.cuh"

// A cell of a table: bits of the next state, its base, plain bits of the symbol, the symbol.
SWATH_FN u32 pack_cell(const FseCell& cell, u32 plain, u32 symbol) {
    return cell.bits | cell.base << 4 | plain << 14 | symbol << 19;
}

// Room to make a table in.
struct ZstdShares {
    short shares[ZSTD_SYMBOLS + 1];
    u16 next[ZSTD_SYMBOLS + 1];
};

SWATH_FN u32 plain_bits(u32 code, u32 symbol) {
    return code == ZSTD_OFFSETS ? symbol : code == ZSTD_LITERALS ? literal_bits(symbol) : length_bits(symbol);
}

SWATH_FN u32 table_mode(const ZstdTile& tile, const ZstdNote& note, u32 code) {
    return tile.src.get(note.sequence_at) >> (6 - 2 * code) & 3;
}
SWATH_FN u32 most_symbols(u32 code) {
    return code == ZSTD_LITERALS ? 36 : code == ZSTD_OFFSETS ? 32 : ZSTD_SYMBOLS;
}
SWATH_FN u32 most_log(u32 code) { return code == ZSTD_OFFSETS ? 8 : 9; }

SWATH_FN u32 skip_table(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, short* shares) {
    const u32 mode = table_mode(tile, note, code), end = note.src + note.src_len;
    if (mode == ZSTD_SAME) return from < end ? from + 1 : 0;
    if (mode != ZSTD_TOLD) return from;
    return read_shares(tile.src, from, end, most_symbols(code), most_log(code), shares).end;
}

// Makes the table that a block tells from a byte on; tells which byte follows, 0 where it is damaged.
SWATH_FN u32 make_table(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, u32* cells,
                        ZstdShares& room, u32& log) {
    const u32 mode = table_mode(tile, note, code), end = note.src + note.src_len;
    if (mode == ZSTD_SAME) {
        const u32 symbol = tile.src.get(from);
        if (from >= end || symbol >= most_symbols(code)) return 0;
        log = 0;
        cells[0] = pack_cell(FseCell{0, 0}, plain_bits(code, symbol), symbol);
        return from + 1;
    }
    u32 used, after = from;
    if (mode == ZSTD_TOLD) {
        const FseShares told = read_shares(tile.src, from, end, most_symbols(code), most_log(code), room.shares);
        if (told.end == 0) return 0;
        log = told.log;
        used = told.used;
        after = told.end;
    } else {
        log = predefined_log(code);
        used = code_symbols(code);
        for (u32 symbol = 0; symbol < used; symbol++) room.shares[symbol] = short(predefined_share(code, symbol));
    }
    spread_symbols(room.shares, used, log, cells, room.next);
    for (u32 cell = 0; cell < 1u << log; cell++) {
        const u32 symbol = cells[cell];
        cells[cell] = pack_cell(place_cell(symbol, log, room.next), plain_bits(code, symbol), symbol);
    }
    return after;
}

// Makes the three tables of block `number`, `ZSTD_TABLE_CELLS` cells in all. Tells where its bits begin; 0 where a
// table is damaged.
SWATH_FN u32 make_tables(const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells, ZstdShares& room,
                         u32* logs) {
    u32 own = note.sequence_at + 1;
    for (u32 code = 0; code < ZSTD_CODES; code++) {
        u32 from = own;
        const u32 teller = note.tables[code];
        const ZstdNote& other = tile.scratch.notes()[teller];
        if (teller != number) {
            // Behind those that the other block tells before it.
            from = other.sequence_at + 1;
            for (u32 before = 0; before < code; before++) {
                from = skip_table(tile, other, before, from, room.shares);
                if (from == 0) return 0;
            }
        }
        const u32 end = make_table(tile, other, code, from, cells + table_at(code), room, logs[code]);
        if (end == 0) return 0;
        if (teller == number) own = end;
    }
    return own;
}

// The same apart, for kernels of several sizes that seldom need it.
struct ZstdAgain {
    SWATH_COLD static void make_tables(const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells,
                                       ZstdShares& room) {
        u32 logs[ZSTD_CODES];
        ::make_tables(tile, number, note, cells, room, logs);
    }
};
