// The Huffman code of literals: reads the weights and makes a table from bits to bytes.
#pragma once
#include "zstd/decode_fse.cuh"

struct ZstdTree {
    static constexpr u32 MOST_LOG = 11;  // the longest code that encoders make; libzstd reads one bit more
    static constexpr u32 SYMBOLS = 256;

    union {
        // For every value of `log` bits: the length of the code, and from bit 8 on the symbol.
        u16 table[1 << MOST_LOG];
        // Before the table is filled: the distribution of the weights.
        struct {
            short shares[SYMBOLS];
            u16 next[SYMBOLS];
            u32 cells[64];
        } coded;
    };
    u8 weights[SYMBOLS];
    u16 starts[SYMBOLS];  // first entry of each symbol in the table
    u32 log;
    u32 symbols;

    // Reads the weights from byte `from`, at most up to `to`, and finds the entries of each symbol. One lane runs it.
    // Returns the position after the weights; 0 if they are damaged, `UNUSUAL` if codes are longer than the table
    // supports.
    static constexpr u32 UNUSUAL = 0xffffffffu;
    SWATH_FN u32 read(const Span<const u8>& stream, u32 from, u32 to) {
        if (from >= to) return 0;
        const u32 head = stream.get(from);
        u32 end, count;
        if (head >= 128) {
            count = head - 127;
            end = from + 1 + (count + 1) / 2;
            if (end > to) return 0;
            for (u32 symbol = 0; symbol < count; symbol++) {
                const u32 pair = stream.get(from + 1 + symbol / 2);
                weights[symbol] = u8(symbol % 2 ? pair & 15 : pair >> 4);
            }
        } else {
            end = from + 1 + head;
            if (end > to) return 0;
            count = read_coded(stream, from + 1, end);
            if (count == 0) return 0;
        }
        // The weight of the last symbol is not stored: it fills the sum up to a power of two.
        u32 total = 0, ranks[14];
        for (u32 weight = 0; weight < 14; weight++) ranks[weight] = 0;
        for (u32 symbol = 0; symbol < count; symbol++) {
            const u32 weight = weights[symbol];
            if (weight > MOST_LOG + 1) return 0;
            ranks[weight]++;
            total += (1u << weight) >> 1;
        }
        if (total == 0) return 0;
        log = highest_one(total) + 1;
        const u32 rest = (1u << log) - total, last = highest_one(rest) + 1;
        if (log > MOST_LOG + 1 || rest != 1u << (last - 1)) return 0;
        weights[count] = u8(last);
        ranks[last]++;
        symbols = count + 1;
        if (ranks[1] < 2 || ranks[1] % 2 != 0) return 0;
        if (log > MOST_LOG) return UNUSUAL;
        u32 start = 0;
        for (u32 weight = 1; weight <= log; weight++) {
            const u32 cells = ranks[weight] << (weight - 1);
            ranks[weight] = start;
            start += cells;
        }
        for (u32 symbol = 0; symbol < symbols; symbol++) {
            const u32 weight = weights[symbol];
            starts[symbol] = u16(ranks[weight]);
            if (weight > 0) ranks[weight] += 1u << (weight - 1);
        }
        return end;
    }

    // All lanes fill the table. The caller puts a barrier before and after.
    template <class Group> SWATH_FN void fill(const Group& group) {
        for (u32 symbol = group.lane(); symbol < symbols; symbol += group.size()) {
            const u32 weight = weights[symbol];
            if (weight == 0 || weight > WIDE) continue;
            const u16 entry = entry_of(symbol, weight);
            for (u32 cell = 0; cell < 1u << (weight - 1); cell++) table[starts[symbol] + cell] = entry;
        }
        // Short codes have many entries, which all lanes share.
        for (u32 symbol = 0; symbol < symbols; symbol++) {
            const u32 weight = weights[symbol];
            if (weight <= WIDE) continue;
            const u16 entry = entry_of(symbol, weight);
            for (u32 cell = group.lane(); cell < 1u << (weight - 1); cell += group.size())
                table[starts[symbol] + cell] = entry;
        }
    }

  private:
    static constexpr u32 WIDE = 5;

    SWATH_FN u16 entry_of(u32 symbol, u32 weight) const { return u16(symbol << 8 | (log + 1 - weight)); }

    // Reads weights stored by finite state entropy: two states take turns until the bits run out. Returns how many; 0 if
    // damaged.
    SWATH_FN u32 read_coded(const Span<const u8>& stream, u32 from, u32 to) {
        const FseShares shares = read_shares(stream, from, to, SYMBOLS, 6, coded.shares);
        u32 bit;
        if (shares.end == 0 || !find_last_bit(stream, shares.end, to, bit)) return 0;
        spread_symbols(coded.shares, shares.used, shares.log, coded.cells, coded.next);
        for (u32 cell = 0; cell < 1u << shares.log; cell++) {
            const u32 symbol = coded.cells[cell];
            const FseCell placed = place_cell(symbol, shares.log, coded.next);
            coded.cells[cell] = placed.bits | placed.base << 8 | symbol << 16;
        }
        BackwardBits bits(stream, bit);
        const i32 first = i32(shares.end * 8);
        u32 states[2], count = 0;
        states[0] = bits.take(shares.log);
        states[1] = bits.take(shares.log);
        if (bits.end < first) return 0;
        for (u32 turn = 0;; turn ^= 1) {
            // Room for this weight and the last one of the other state.
            if (count > SYMBOLS - 3) return 0;
            const u32 cell = coded.cells[turn ? states[1] : states[0]];
            weights[count++] = u8(cell >> 16);
            const u32 state = (cell >> 8 & 255) + bits.take(cell & 255);
            if (bits.end < first) {
                weights[count++] = u8(coded.cells[turn ? states[0] : states[1]] >> 16);
                return count;
            }
            if (turn) states[1] = state;
            else states[0] = state;
        }
    }
};
