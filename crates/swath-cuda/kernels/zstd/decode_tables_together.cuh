// Makes the tables of the three codes of a block with all lanes of a group.
#pragma once
#include "zstd/decode_tables.cuh"

struct ZstdTogether {
    u32 logs[ZSTD_CODES];

    // Makes what `make_tables` makes: the cells of all three tables. Returns the position of the block's bits; 0 if a table
    // is damaged.
    template <class Group>
    SWATH_FN u32 make(const Group& group, const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells) {
        group.sync();
        if (group.lane() == 0) end = describe(tile, number, note, cells);
        group.sync();
        if (end == 0) return 0;
        for (u32 code = group.lane(); code < ZSTD_CODES; code += group.size())
            if (used[code] > 0) spread(code);
        group.sync();
        for (u32 item = group.lane(); item < ZSTD_CODES * 64; item += group.size())
            if (item % 64 < used[item / 64]) place(item / 64, item % 64, cells + table_at(item / 64));
        group.sync();
        return end;
    }

  private:
    ZstdShares shares[ZSTD_CODES];
    u32 used[ZSTD_CODES];  // number of symbols; 0 if the table is complete already
    u32 end;
    u8 symbols[ZSTD_TABLE_CELLS];  // the symbol of each cell

    // Reads the shares of all symbols, and makes tables of a single symbol. One lane runs it.
    SWATH_FN u32 describe(const ZstdTile& tile, u32 number, const ZstdNote& note, u32* cells) {
        u32 own = note.sequence_at + 1;
        for (u32 code = 0; code < ZSTD_CODES; code++) {
            u32 from = own;
            const u32 holder = note.tables[code];
            const ZstdNote& other = tile.scratch.notes()[holder];
            if (holder != number) {
                // Skip the tables that the other block stores before this one.
                from = other.sequence_at + 1;
                for (u32 before = 0; before < code; before++) {
                    from = skip_table(tile, other, before, from, shares[code].shares);
                    if (from == 0) return 0;
                }
            }
            const u32 after = describe_one(tile, other, code, from, cells + table_at(code));
            if (after == 0) return 0;
            if (holder == number) own = after;
        }
        return own;
    }

    SWATH_FN u32 describe_one(const ZstdTile& tile, const ZstdNote& note, u32 code, u32 from, u32* cells) {
        const u32 mode = table_mode(tile, note, code), to = note.src + note.src_len;
        used[code] = 0;
        if (mode == ZSTD_MODE_RLE) {
            const u32 symbol = tile.src.get(from);
            if (from >= to || symbol >= most_symbols(code)) return 0;
            logs[code] = 0;
            cells[0] = pack_cell(FseCell{0, 0}, extra_bits(code, symbol), symbol);
            return from + 1;
        }
        if (mode == ZSTD_MODE_FSE) {
            const FseShares found = read_shares(tile.src, from, to, most_symbols(code), most_log(code), shares[code].shares);
            logs[code] = found.log;
            used[code] = found.used;
            return found.end;
        }
        logs[code] = predefined_log(code);
        used[code] = code_symbols(code);
        for (u32 symbol = 0; symbol < used[code]; symbol++) shares[code].shares[symbol] = short(predefined_share(code, symbol));
        return from;
    }

    SWATH_FN void spread(u32 code) {
        u8* const to = symbols + table_at(code);
        const u32 size = 1u << logs[code], step = (size >> 1) + (size >> 3) + 3;
        u32 high = size - 1, at = 0;
        for (u32 symbol = 0; symbol < used[code]; symbol++)
            if (shares[code].shares[symbol] < 0) to[high--] = u8(symbol);
        for (u32 symbol = 0; symbol < used[code]; symbol++) {
            for (i32 cell = 0; cell < shares[code].shares[symbol]; cell++) {
                to[at] = u8(symbol);
                do at = (at + step) & (size - 1);
                while (at > high);
            }
        }
    }

    // Fills the cells of one symbol, in their order.
    SWATH_FN void place(u32 code, u32 symbol, u32* cells) {
        const u8* const from = symbols + table_at(code);
        const i32 share = shares[code].shares[symbol];
        if (share == 0) return;
        const u32 extra = extra_bits(code, symbol);
        u16 next = u16(share < 0 ? 1 : share);
        for (u32 cell = 0; cell < 1u << logs[code]; cell++)
            if (from[cell] == symbol) cells[cell] = pack_cell(place_cell(0, logs[code], &next), extra, symbol);
    }
};
