// Makes the tables of the three codes of a block, from its own descriptions and those of earlier blocks. One lane runs
// it.
#pragma once
#include "zstd/decode.cuh"
#include "zstd/decode_fse.cuh"

// Packs a cell: bits of the next state, its base, extra bits of the symbol, the symbol.
SWATH_FN u32 pack_cell(const FseCell& cell, u32 extra, u32 symbol) {
    return cell.bits | cell.base << 4 | extra << 14 | symbol << 19;
}

// Working memory for one table.
struct ZstdShares {
    short shares[ZSTD_SYMBOLS + 1];
    u16 next[ZSTD_SYMBOLS + 1];
};

SWATH_FN u32 extra_bits(u32 code, u32 symbol) {
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
    if (mode == ZSTD_MODE_RLE) return from < end ? from + 1 : 0;
    if (mode != ZSTD_MODE_FSE) return from;
    return read_shares(tile.src, from, end, most_symbols(code), most_log(code), shares).end;
}

// Makes the table that `note` describes from byte `from` on. Returns the position after the description; 0 if it is
// damaged.
SWATH_FN u32 make_table(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, u32* cells,
                        ZstdShares& room, u32& log) {
    const u32 mode = table_mode(tile, note, code), end = note.src + note.src_len;
    if (mode == ZSTD_MODE_RLE) {
        const u32 symbol = tile.src.get(from);
        if (from >= end || symbol >= most_symbols(code)) return 0;
        log = 0;
        cells[0] = pack_cell(FseCell{0, 0}, extra_bits(code, symbol), symbol);
        return from + 1;
    }
    u32 used, after = from;
    if (mode == ZSTD_MODE_FSE) {
        const FseShares described = read_shares(tile.src, from, end, most_symbols(code), most_log(code), room.shares);
        if (described.end == 0) return 0;
        log = described.log;
        used = described.used;
        after = described.end;
    } else {
        log = predefined_log(code);
        used = code_symbols(code);
        for (u32 symbol = 0; symbol < used; symbol++) room.shares[symbol] = short(predefined_share(code, symbol));
    }
    spread_symbols(room.shares, used, log, cells, room.next);
    for (u32 cell = 0; cell < 1u << log; cell++) {
        const u32 symbol = cells[cell];
        cells[cell] = pack_cell(place_cell(symbol, log, room.next), extra_bits(code, symbol), symbol);
    }
    return after;
}

// Makes the three tables of block `number`, `ZSTD_TABLE_CELLS` cells in all. Returns the position of the block's bits; 0
// if a table is damaged.
SWATH_FN u32 make_tables(const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells, ZstdShares& room,
                         u32* logs) {
    u32 own = note.sequence_at + 1;
    for (u32 code = 0; code < ZSTD_CODES; code++) {
        u32 from = own;
        const u32 holder = note.tables[code];
        const ZstdNote& other = tile.scratch.notes()[holder];
        if (holder != number) {
            // Skip the tables that the other block stores before this one.
            from = other.sequence_at + 1;
            for (u32 before = 0; before < code; before++) {
                from = skip_table(tile, other, before, from, room.shares);
                if (from == 0) return 0;
            }
        }
        const u32 end = make_table(tile, other, code, from, cells + table_at(code), room, logs[code]);
        if (end == 0) return 0;
        if (holder == number) own = end;
    }
    return own;
}

// The same as a function of its own, for kernels that seldom need it.
struct ZstdAgain {
    SWATH_COLD static void make_tables(const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells,
                                       ZstdShares& room) {
        u32 logs[ZSTD_CODES];
        ::make_tables(tile, number, note, cells, room, logs);
    }
};
