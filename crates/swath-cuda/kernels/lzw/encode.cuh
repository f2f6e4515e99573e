// Encodes TIFF LZW (compression 5): bytes to codes, and codes to bits.
//
// Within a table LZW is serial: each lookup needs the code that the one before it found. So a tile is cut into segments
// that begin with a Clear, which an encoder may write at any time, and one lane encodes each segment. Fast memory for the
// string tables is scarce, not lanes: a block has as many working lanes as tables. `LzwEncode` leaves the codes of each
// segment in the scratch memory, and `LzwJoin`, launched after it with the same arguments, packs them bit by bit. A table
// is cleared after a fixed number of codes, so that the number of a code in its segment gives the position of its bits,
// and all lanes write at once.
//
// The scratch memory belongs to the launch, not to each block. With N = src_stride / SEGMENT, rounded up, it takes 2 *
// (src_stride + EXTRA * N) + 4 * N bytes, rounded up to 16, for each tile. `len` bytes become a stream of at most len +
// len / 2 + 16 bytes. A tile that does not fit gets the size FAILED and nothing else.
#pragma once
#include "core/encode_args.cuh"
#include "core/kernel.cuh"
#include "core/quads.cuh"

namespace lzw_encode {

constexpr u32 CLEAR = 256;
constexpr u32 EOI = 257;
constexpr u32 FIRST = 258;
// Codes between two Clears: the last one makes entry 4093, where the encoder of libtiff stops too.
constexpr u32 CODES = 3836;
// Codes from a Clear to the next, including the second.
constexpr u32 PERIOD = CODES + 1;

// The longest segment. A tile is cut into as few segments as possible, all of the same length but the last.
constexpr u32 SEGMENT = 24 << 10;
// Codes of a segment that stand for no byte: its Clears, and the code that ends it.
constexpr u32 EXTRA = 16;
static_assert(SEGMENT / CODES + 2 <= EXTRA && SEGMENT % 16 == 0, "a segment has its codes");

// The size of a tile that could not be encoded.
constexpr u32 FAILED = 0xffffffffu;

// Width of the code that has `before` codes between it and the last Clear: codes get wider one entry early.
SWATH_FN u32 width_at(u32 before) { return 9 + (before >= 254) + (before >= 766) + (before >= 1790); }

// Bits of the first `count` codes after a Clear.
SWATH_FN constexpr u32 table_bits(u32 count) {
    return 9 * count + (count > 254 ? count - 254 : 0) + (count > 766 ? count - 766 : 0) +
        (count > 1790 ? count - 1790 : 0);
}
constexpr u32 PERIOD_BITS = 9 * PERIOD + (PERIOD - 254) + (PERIOD - 766) + (PERIOD - 1790);

// Bits of the first `count` codes of a segment.
SWATH_FN u32 bits_of(u32 count) { return count / PERIOD * PERIOD_BITS + table_bits(count % PERIOD); }

// The code whose bits hold bit `bit` of a segment.
SWATH_FN u32 code_at(u32 bit) {
    const u32 rest = bit % PERIOD_BITS, first = bit / PERIOD_BITS * PERIOD;
    constexpr u32 TEN = 254 * 9, ELEVEN = TEN + 512 * 10, TWELVE = ELEVEN + 1024 * 11;
    if (rest < TEN) return first + rest / 9;
    if (rest < ELEVEN) return first + 254 + (rest - TEN) / 10;
    if (rest < TWELVE) return first + 766 + (rest - ELEVEN) / 11;
    return first + 1790 + (rest - TWELVE) / 12;
}

// The layout of the scratch memory: for each tile the codes of its segments, then the number of codes of each segment.
struct Plan {
    u32 segments;    // segments of the longest possible tile
    u64 counts;      // start of the counts in a tile's part
    u64 tile_bytes;  // bytes of a tile's part
    bool usable;

    SWATH_FN explicit Plan(const EncodeArgs& args) {
        usable = args.pieces == 1 && args.src_stride > 0 && args.src_stride <= 1ull << 28;
        usable = usable && args.src_stride % 16 == 0 && args.dst_stride % 16 == 0;
        usable = usable && aligned_to(args.src, 16) && aligned_to(args.dst, 4) && aligned_to(args.scratch, 16);
        segments = usable ? u32((args.src_stride + SEGMENT - 1) / SEGMENT) : 0;
        counts = 2 * (args.src_stride + u64(segments) * EXTRA);
        tile_bytes = (counts + 4ull * segments + 15) / 16 * 16;
        usable = usable && args.scratch_len / tile_bytes >= args.tiles;
    }
};

// One tile and its segments; empty if something does not fit.
struct Tile {
    Span<const u8> src;
    u16* codes;
    u32* counts;
    u32 segments, each;

    SWATH_FN Tile(const EncodeArgs& args, const Plan& plan, u32 tile) : src(args.src, 0) {
        const u32 len = args.lens[tile];
        u8* const part = args.scratch + tile * plan.tile_bytes;
        codes = reinterpret_cast<u16*>(part);
        counts = reinterpret_cast<u32*>(part + plan.counts);
        segments = each = 0;
        if (len > args.src_stride || len > args.piece_len) return;
        src = Span<const u8>(args.src, args.src_len).part(tile * args.src_stride, len);
        if (src.len == 0) return;
        segments = (len + SEGMENT - 1) / SEGMENT;
        each = ((len + segments - 1) / segments + 15) / 16 * 16;
        // Rounding up may have left nothing for the last segment.
        segments = (len + each - 1) / each;
    }
    SWATH_FN u32 start(u32 segment) const { return segment * each; }
    SWATH_FN u32 end(u32 segment) const { return u32(min_of(u64(segment + 1) * each, src.len)); }
    SWATH_FN u16* codes_of(u32 segment) const { return codes + u64(segment) * (each + EXTRA); }
};

}  // namespace lzw_encode

// First kernel: bytes to codes.
struct LzwEncode {
    static constexpr u32 TABLES = 2;
    static constexpr u32 THREADS = 32;
    using Args = EncodeArgs;

    // A bucket has three fields of 21 bits. A field is a byte, the top bit of the code that the string extends, and the
    // code of the extended string; the other eleven bits of the first code follow from the bucket and the byte. A string
    // that finds its bucket full is forgotten: the stream stays valid and only takes one code more.
    static constexpr u32 BUCKETS = 2048;
    static constexpr u32 FIELD = 21;
    static constexpr u32 FIELD_MASK = (1u << FIELD) - 1;
    // The code in an empty field; no string has it.
    static constexpr u32 NONE = 4095;

    struct Shared {
        // The tables are interleaved, so that their lanes use different banks.
        u64 buckets[BUCKETS * TABLES];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const lzw_encode::Plan plan(args);
        const u32 workers = min_of(group.size(), TABLES);
        if (!plan.usable || group.lane() >= workers) return;
        const u64 count = u64(args.tiles) * plan.segments, step = u64(blocks) * workers;
        for (u64 item = u64(block) * workers + group.lane(); item < count; item += step) {
            const lzw_encode::Tile tile(args, plan, u32(item / plan.segments));
            const u32 segment = u32(item % plan.segments);
            if (segment < tile.segments) encode(tile, segment, shared, group.lane());
        }
    }

  private:
    // A lane's table and its position in the segment.
    struct State {
        u64* buckets;
        u32 own;    // bytes from the buckets of the first table to those of this one
        u16* codes; // place of the next code
        u32 code;   // of the string matched so far
        u32 next;   // number of the entry that the next code makes

        SWATH_FN void forget() {
            for (u32 bucket = 0; bucket < BUCKETS; bucket++) buckets[bucket * TABLES + own / 8] = ~0ull;
            next = lzw_encode::FIRST;
        }
        SWATH_FN u32 room() const { return lzw_encode::FIRST + lzw_encode::CODES - next; }
        SWATH_FN void clear() {
            *codes++ = lzw_encode::CLEAR;
            forget();
        }
        // Encodes a byte, without a branch that depends on it. The table must have room.
        SWATH_FN void step(u32 byte) {
            const u32 spread = byte * (1867 * 8 * TABLES) + own;
            const u32 at = (code * (8 * TABLES) ^ spread) & ((BUCKETS * TABLES - 1) * 8);
            u64& place = *reinterpret_cast<u64*>(reinterpret_cast<u8*>(buckets) + at);
            const u64 bucket = place;
            const u32 key = byte << 13 | (code & 2048) << 1;
            const u32 oldest = u32(bucket >> 2 * FIELD) & FIELD_MASK;
            const u32 found = min_of(min_of((u32(bucket) & FIELD_MASK) ^ key, oldest ^ key),
                (u32(bucket >> FIELD) & FIELD_MASK) ^ key);
            const bool miss = found >= NONE;
            // Of four strings the newest is dropped: the oldest is often the shortest and most used.
            const u64 others = oldest == FIELD_MASK ? bucket << FIELD : bucket & ~u64(FIELD_MASK);
            if (miss) place = others | key | next;
            // The next code overwrites it, unless the string ends here.
            *codes = u16(code);
            codes += miss;
            next += miss;
            code = miss ? byte : found;
        }
    };

    SWATH_FN static void encode(const lzw_encode::Tile& tile, u32 segment, Shared& shared, u32 lane) {
        const u32 from = tile.start(segment), to = tile.end(segment);
        u16* const codes = tile.codes_of(segment);
        Quad ahead = quad_at(tile.src, from);
        // The first byte is the initial string.
        State state = {shared.buckets, lane * 8, codes, ahead.words[0] & 0xff, 0};
        state.forget();
        for (u32 at = from; at < to; at += 16) {
            Quad now = ahead;
            ahead = quad_at(tile.src, at + 16);
            if (at != from && to - at >= 16 && state.room() >= 16) {
                SWATH_UNROLL
                for (u32 word = 0; word < 4; word++) {
                    u32 bytes = next_word(now);
                    SWATH_UNROLL
                    for (u32 k = 0; k < 4; k++) {
                        state.step(bytes & 0xff);
                        bytes >>= 8;
                    }
                }
                continue;
            }
            const u32 end = min_of(to - at, 16u);
            u32 bytes = 0;
            for (u32 k = 0; k < end; k++) {
                bytes = k % 4 == 0 ? next_word(now) : bytes >> 8;
                if (state.room() == 0) state.clear();
                if (at + k != from) state.step(bytes & 0xff);
            }
        }
        if (state.room() == 0) state.clear();
        *state.codes++ = u16(state.code);
        *state.codes++ = u16(segment + 1 == tile.segments ? lzw_encode::EOI : lzw_encode::CLEAR);
        tile.counts[segment] = u32(state.codes - codes);
    }
};

// Second kernel: codes to bits.
struct LzwJoin {
    static constexpr u32 THREADS = 256;
    using Args = EncodeArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const lzw_encode::Plan plan(args);
        if (!plan.usable) {
            for (u64 tile = u64(block) * group.size() + group.lane(); tile < args.tiles;
                 tile += u64(blocks) * group.size())
                args.sizes[tile] = args.lens[tile] == 0 ? 0 : lzw_encode::FAILED;
            return;
        }
        const u64 count = u64(args.tiles) * plan.segments;
        for (u64 item = block; item < count; item += blocks)
            join(group, args, plan, u32(item / plan.segments), u32(item % plan.segments));
    }

  private:
    // Writes the words that begin in a segment.
    template <class Group>
    SWATH_FN static void join(
        const Group& group, const Args& args, const lzw_encode::Plan& plan, u32 number, u32 segment) {
        const lzw_encode::Tile tile(args, plan, number);
        if (segment >= max_of(tile.segments, 1u)) return;
        u32 mine_before = 0, mine = 0;
        bool wrong = tile.segments == 0;
        for (u32 other = group.lane(); other < tile.segments; other += group.size()) {
            const u32 codes = tile.counts[other];
            wrong |= codes < 2 || codes > tile.end(other) - tile.start(other) + lzw_encode::EXTRA;
            const u32 bits = wrong ? 0 : lzw_encode::bits_of(codes);
            mine += bits;
            if (other < segment) mine_before += bits;
        }
        wrong = group.any(wrong);
        u32 before, total;
        group.exclusive_sum(mine_before, before);
        group.exclusive_sum(mine, total);
        // The stream begins with a Clear of its own.
        constexpr u32 LEAD = 9;
        const u32 size = u32((u64(total) + LEAD + 7) / 8);
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(number * args.dst_stride, args.dst_stride);
        wrong |= size > dst.len;
        if (segment == 0 && group.lane() == 0)
            args.sizes[number] = args.lens[number] == 0 ? 0 : wrong ? lzw_encode::FAILED : size;
        if (wrong) return;
        const u32 begin = before + LEAD, end = begin + lzw_encode::bits_of(tile.counts[segment]);
        const u32 first = segment == 0 ? 0 : (begin + 31) / 32;
        for (u32 word = first + group.lane(); word * 32 < end; word += group.size()) {
            const u32 bits = bits_at(tile, segment, word * 32 - begin, word == 0);
            *reinterpret_cast<u32*>(dst.data + 4ull * word) = swapped(bits);
        }
    }

    // The 32 bits from bit `from` of a segment on, which may reach into the next segment; with `lead`, from the first bit
    // of the tile.
    SWATH_FN static u32 bits_at(const lzw_encode::Tile& tile, u32 segment, u32 from, bool lead) {
        const u16* codes = tile.codes_of(segment);
        u32 count = tile.counts[segment];
        u32 code = lead ? 0 : lzw_encode::code_at(from), in_table = code % lzw_encode::PERIOD;
        const u32 skip = lead ? 0 : from - lzw_encode::bits_of(code);
        u64 bits = lead ? lzw_encode::CLEAR : 0;
        u32 have = lead ? 9 : 0;
        while (have < skip + 32) {
            if (code == count) {
                if (++segment >= tile.segments) {
                    bits <<= skip + 32 - have;
                    have = skip + 32;
                    break;
                }
                codes = tile.codes_of(segment);
                count = tile.counts[segment];
                code = in_table = 0;
            }
            const u32 width = lzw_encode::width_at(in_table);
            bits = bits << width | codes[code];
            have += width;
            code++;
            in_table = in_table == lzw_encode::CODES ? 0 : in_table + 1;
        }
        return u32(bits >> (have - skip - 32));
    }
};
