// Encodes PackBits (compression 32773): each lane takes rows, or a part of a long row.
//
// Packets do not cross rows, so a tile is cut into independent units: as many rows as make about UNIT bytes, or UNIT
// bytes of a longer row. `PackBitsMeasure` leaves the length of each unit's packets in the scratch memory;
// `PackBitsEncode`, launched after it with the same arguments, adds them up and writes.
//
// The scratch memory belongs to the launch, not to each block: 8 * (N + 1) bytes for each tile, with N = src_stride /
// UNIT, rounded up. A row of `n` bytes becomes at most n + n / 128, rounded up. With a row_len of 0, the tile is one row.
// A tile that does not fit gets the size FAILED and nothing else.
#pragma once
#include "core/encode_args.cuh"
#include "core/kernel.cuh"
#include "core/quads.cuh"

namespace packbits_encode {

// Longest packet.
constexpr u32 MOST = 128;
// A multiple of MOST: a cut costs a packet only if one would have crossed it.
constexpr u32 UNIT = 1024;
// The size of a tile that could not be encoded.
constexpr u32 FAILED = 0xffffffffu;

// The facts that the units of all tiles share.
struct Plan {
    u32 row;       // bytes of a row
    u32 rows;      // rows of a unit, unless it is a part of one
    u32 parts;     // units of a row that is longer than one unit
    u32 units;     // the most units of a tile
    bool usable;

    SWATH_FN explicit Plan(const EncodeArgs& args) {
        usable = args.pieces == 1 && args.src_stride > 0 && args.src_stride <= 1ull << 28;
        usable = usable && args.src_stride % 16 == 0 && aligned_to(args.src, 16) && aligned_to(args.scratch, 4);
        // No tile is longer than the row that stands for all of it.
        row = args.row_len == 0 ? 1u << 28 : args.row_len;
        rows = max_of(UNIT / row, 1u);
        parts = row / UNIT + (row % UNIT != 0);
        // Both kinds of unit are longer than half of UNIT, except the last of a row and of a tile.
        units = usable ? 2 * u32((args.src_stride + UNIT - 1) / UNIT) + 2 : 0;
        usable = usable && args.scratch_len / 4 / units >= args.tiles;
    }
};

struct Tile {
    Span<const u8> src;
    u32* sizes;
    u32 units;

    SWATH_FN Tile(const EncodeArgs& args, const Plan& plan, u32 tile) : src(args.src, 0) {
        const u32 len = args.lens[tile];
        sizes = reinterpret_cast<u32*>(args.scratch) + u64(tile) * plan.units;
        units = 0;
        if (len > args.src_stride || len > args.piece_len) return;
        src = Span<const u8>(args.src, args.src_len).part(tile * args.src_stride, len);
        if (src.len == 0) return;
        if (plan.parts > 1) {
            const u32 whole = len / plan.row, rest = len % plan.row;
            units = whole * plan.parts + (rest + UNIT - 1) / UNIT;
        } else {
            units = u32((src.len + u64(plan.rows) * plan.row - 1) / (plan.rows * plan.row));
        }
    }
};

// Writes the bytes of a word that belong to the unit: `word` ends at `end` of `out`, and `lead` bytes of the first word
// lie before `out`.
SWATH_COLD void write_edge(u8* out, u32 lead, u32 room, u32 end, u32 word) {
    const u32 begin = (lead + end - 1) & ~3u;
    for (u32 at = max_of(begin, lead) - lead; at < end && at < room; at++) out[at] = u8(word >> ((lead + at) % 4 * 8));
}

// Counts the packets of a unit and, with `WRITES`, writes them: word by word, since single bytes would take most of the
// time.
template <bool WRITES> struct Packets {
    u8* out;           // place of the unit's packets
    u32 room;          // bytes of these packets
    u32 lead;          // bytes before `out` in the word that holds it
    u32 pos = 0;       // bytes of packets so far
    u32 word = 0;      // bytes that are not written yet: of the word that holds `pos`
    u32 header = 0;    // position of the header of the open literal packet
    u32 literal = 0;   // bytes of the open literal packet
    u32 pair = 0;      // not 0: the byte + 256 of two equal bytes, whose packet depends on the next bytes
    u32 byte = 0;      // the last byte, seen `same` times and in no packet yet
    u32 same = 0;

    SWATH_FN Packets(u8* out, u32 room) : out(out), room(room), lead(u32(reinterpret_cast<u64>(out) & 3)) {}

    // Writes one or two bytes.
    SWATH_FN void emit(u32 bytes, u32 count) {
        const u32 from = lead + pos;
        pos += count;
        if (!WRITES) return;
        const u64 words = u64(bytes) << (from % 4 * 8) | word;
        word = u32(words);
        if (from / 4 == (from + count) / 4) return;
        const u32 begin = from & ~3u;
        if (begin >= lead && begin + 4 - lead <= room) *reinterpret_cast<u32*>(out + (begin - lead)) = word;
        else write_edge(out, lead, room, begin + 4 - lead, word);
        word = u32(words >> 32);
    }
    SWATH_FN void run(u32 count, u32 value) { emit((257 - count) | value << 8, 2); }
    SWATH_FN void close() {
        if (WRITES && literal > 0) {
            if ((lead + header) / 4 == (lead + pos) / 4) word |= (literal - 1) << ((lead + header) % 4 * 8);
            else if (header < room) out[header] = u8(literal - 1);
        }
        literal = 0;
    }
    SWATH_FN void append(u32 value) {
        // The header is known when the literal packet ends.
        if (literal == 0) header = pos;
        emit(literal == 0 ? value << 8 : value, literal == 0 ? 2 : 1);
        literal++;
        if (literal == MOST) close();
    }
    // Three equal bytes are worth a run packet: its two bytes and one for the header of the next literal packet are never
    // more than the run itself. Two are worth one only if no single byte stands beside them.
    SWATH_FN void flush() {
        if (pair != 0 && same > 1) {
            run(2, pair & 0xff);
            pair = 0;
        }
        if (same > 2) {
            close();
            run(same, byte);
        } else if (same == 2 && literal == 0) {
            pair = 256 + byte;
        } else {
            const u32 before = pair != 0 ? 2 : 0;
            for (u32 k = 0; k < before + same; k++) append(k < before ? pair & 0xff : byte);
            pair = 0;
        }
        same = 0;
    }
    // Encodes a byte; with `ends`, it begins another row.
    SWATH_FN void take(u32 next, bool ends) {
        if (same > 0 && (ends || next != byte || same == MOST)) flush();
        if (ends) {
            if (pair != 0) run(2, pair & 0xff);
            pair = 0;
            close();
        }
        byte = next;
        same++;
    }
};

// Encodes a unit; returns the number of bytes.
template <bool WRITES> SWATH_FN u32 pack(const Plan& plan, const Tile& tile, u32 unit, u8* out, u32 room) {
    u64 from, to, row_end;
    if (plan.parts > 1) {
        const u64 row = u64(unit / plan.parts) * plan.row;
        from = row + unit % plan.parts * UNIT;
        to = min_of(from + UNIT, row + plan.row);
        row_end = to;
    } else {
        from = u64(unit) * plan.rows * plan.row;
        to = from + u64(plan.rows) * plan.row;
        row_end = from + plan.row;
    }
    const u32 start = u32(from), end = u32(min_of(to, tile.src.len));
    Packets<WRITES> packets(out, room);
    Quad quad = quad_at(tile.src, start & ~15u);
    for (u32 skip = 0; skip < start % 16 / 4; skip++) next_word(quad);
    u32 bytes = next_word(quad) >> (start % 4 * 8);
    // One turn more than bytes, for the end.
    for (u32 at = start;; at++) {
        const bool ends = at == row_end || at == end;
        packets.take(bytes & 0xff, ends);
        if (at == end) break;
        if (ends) row_end += plan.row;
        bytes >>= 8;
        if (at % 16 == 15) quad = quad_at(tile.src, at + 1);
        if (at % 4 == 3) bytes = next_word(quad);
    }
    if (WRITES && (packets.lead + packets.pos) % 4 != 0)
        write_edge(out, packets.lead, room, packets.pos, packets.word);
    return packets.pos;
}

}  // namespace packbits_encode

// First kernel: the encoded length of each unit.
struct PackBitsMeasure {
    static constexpr u32 THREADS = 128;
    using Args = EncodeArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const packbits_encode::Plan plan(args);
        const u64 count = plan.usable ? u64(args.tiles) * plan.units : 0, lanes = u64(blocks) * group.size();
        for (u64 item = u64(block) * group.size() + group.lane(); item < count; item += lanes) {
            const packbits_encode::Tile tile(args, plan, u32(item / plan.units));
            const u32 unit = u32(item % plan.units);
            if (unit < tile.units) tile.sizes[unit] = packbits_encode::pack<false>(plan, tile, unit, nullptr, 0);
        }
    }
};

// Second kernel: the packets.
struct PackBitsEncode {
    static constexpr u32 THREADS = 128;
    using Args = EncodeArgs;
    struct Shared {};
    // Units that a block writes after it has added up those before them.
    static constexpr u32 TURN = 128;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const packbits_encode::Plan plan(args);
        if (!plan.usable) {
            for (u64 tile = u64(block) * group.size() + group.lane(); tile < args.tiles;
                 tile += u64(blocks) * group.size())
                args.sizes[tile] = args.lens[tile] == 0 ? 0 : packbits_encode::FAILED;
            return;
        }
        const u32 turns = (plan.units + TURN - 1) / TURN;
        const u64 count = u64(args.tiles) * turns;
        for (u64 item = block; item < count; item += blocks)
            write(group, args, plan, u32(item / turns), u32(item % turns) * TURN);
    }

  private:
    // Writes TURN units of a tile from `first` on.
    template <class Group>
    SWATH_FN static void write(
        const Group& group, const Args& args, const packbits_encode::Plan& plan, u32 number, u32 first) {
        const packbits_encode::Tile tile(args, plan, number);
        if (first >= max_of(tile.units, 1u)) return;
        u32 mine_before = 0, mine = 0;
        bool wrong = tile.units == 0;
        for (u32 unit = group.lane(); unit < tile.units; unit += group.size()) {
            const u32 size = tile.sizes[unit];
            // With rows of one byte, each byte becomes two.
            wrong |= size > 2 * packbits_encode::UNIT;
            mine += wrong ? 0 : size;
            if (unit < first) mine_before += wrong ? 0 : size;
        }
        wrong = group.any(wrong);
        u32 before, total;
        group.exclusive_sum(mine_before, before);
        group.exclusive_sum(mine, total);
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(number * args.dst_stride, args.dst_stride);
        wrong |= total > dst.len;
        if (first == 0 && group.lane() == 0)
            args.sizes[number] = args.lens[number] == 0 ? 0 : wrong ? packbits_encode::FAILED : total;
        if (wrong) return;
        const u32 last = min_of(first + TURN, tile.units);
        for (u32 turn = first; turn < last; turn += group.size()) {
            const u32 unit = turn + group.lane();
            const u32 size = unit < last ? tile.sizes[unit] : 0;
            u32 all;
            const u32 at = before + group.exclusive_sum(size, all);
            if (unit < last) packbits_encode::pack<true>(plan, tile, unit, dst.data + at, size);
            before += all;
        }
    }
};
