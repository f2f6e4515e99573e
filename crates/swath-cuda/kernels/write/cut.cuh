// Cuts rows into tiles as the file stores them: padded at the edges, with predictor, byte order and bit packing.
//
// A warp takes one row at a time, or a piece of a long one. A sample depends at most on the one a pixel before it, which
// is read once more; so lanes share nothing.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"
#include "core/racing.cuh"
#include "core/rows.cuh"

// How a tile is padded beyond the edge of the image; the numbers of Rust's `pre::Edge`.
enum CutEdge : u32 {
    EDGE_REPEAT = 0,         // repeats the last column and row
    EDGE_REPEAT_COLUMNS = 1, // repeats the last column; zeros below the last row
    EDGE_ZERO = 2,
};

// Tile i of `count` is number n = skip + i of those from row first_row of the grid on: plane n % planes at position n /
// planes; column position % across, row first_row + position / across. It holds `samples` bands of each pixel, from band
// (n % planes) * samples on. It has tile_height stored rows, or fewer in the last row of strips (`tiled` is 0). It goes
// to dst + (first + i) * dst_stride, and its length to lens[first + i]: always, or with `sparse` only if a sample inside
// the image differs from `fill` (the host sets lens to zero before). `rows` holds all rows of the image that the tiles
// cover. The kernel writes nothing if the arguments contradict each other, nor for a tile outside the grid or without
// room.
struct CutArgs {
    Rows rows;
    u8* dst;
    u64 dst_len;
    u64 dst_stride;
    u32* lens;
    u64 stored_row;    // bytes of a stored row of a tile
    u32 height;        // rows of the image
    u32 tile_width;
    u32 tile_height;
    u32 tiled;
    u32 across;
    u32 planes;
    u32 samples;
    u32 first_row;
    u32 skip;
    u32 first;
    u32 count;
    u32 parts;         // blocks that share a tile
    u32 sample_len;    // bytes of a native sample: 1, 2, 4, 8 or 16
    u32 word;          // bytes that are swapped or predicted together (half of a complex sample)
    u32 bits;          // of a stored sample: sample_len * 8, or fewer (1 to 31), packed most significant first
    u32 swap;
    u32 predictor;     // 0, 2 or 3
    u32 edge;
    u32 sparse;
    u32 unused;
    u8 fill[16];
};

namespace cutting {

// Words of a row that make one piece of work, or bytes where samples are packed; a multiple of every unit.
constexpr u32 PIECE = 2048;

// Division by a constant of the launch, as a product.
struct Divisor {
    u32 by, inverse;

    SWATH_FN explicit Divisor(u32 by) : by(by), inverse(by > 1 ? u32((0x100000000ull + by - 1) / by) : 0) {}
    SWATH_FN u32 quotient(u32 of) const {
        if (by <= 1) return of;
        // Rounded up, so the product may be one too large.
        const u32 found = u32(u64(of) * inverse >> 32);
        return u64(found) * by > of ? found - 1 : found;
    }
};

// The facts that all rows of a tile share.
struct Job {
    const CutArgs& args;
    const u8* src;       // the tile's first column in row 0 of the ring, of its first band
    u8* dst;             // the stored tile
    u32 columns;         // columns that lie in the image
    u32 words;           // words of a row: samples, or halves of complex ones
    u32 complex;         // 1 if a sample is two words
    Divisor pixel;       // words of a pixel
    u64 fill, fill_end;  // the sample of which sparse tiles consist: its first eight bytes, and the rest
};

SWATH_FN u32 turned(u32 value, u32 len) { return swapped(value) >> (32 - 8 * len); }
SWATH_FN u64 turned(u64 value, u32) { return u64(swapped(u32(value))) << 32 | swapped(u32(value >> 32)); }

// Differences of the numbers packed in a word, each separately; `tops` has the highest bit of every one.
template <class T> SWATH_FN T less(T a, T b, T tops) { return ((a | tops) - (b & ~tops)) ^ ((a ^ ~b) & tops); }
SWATH_FN u32 less_bytes(u32 a, u32 b) { return less(a, b, 0x80808080u); }
SWATH_FN u64 less_bytes(u64 a, u64 b) { return less<u64>(a, b, 0x8080808080808080ull); }

// The type for calculations with a number.
template <u32 LEN> struct Of;
template <> struct Of<1> { using Stored = u8; using Number = u32; };
template <> struct Of<2> { using Stored = u16; using Number = u32; };
template <> struct Of<4> { using Stored = u32; using Number = u32; };
template <> struct Of<8> { using Stored = u64; using Number = u64; };

// A row of the image, as long as the tile is wide.
template <u32 LEN> struct Row {
    using Stored = typename Of<LEN>::Stored;
    using Number = typename Of<LEN>::Number;
    const Job& job;
    const u8* from;

    // Word `at`. Sets `differs` if the word lies in the image and is not the fill.
    SWATH_FN Number get(u32 at, bool& differs) const {
        const u32 pixel = job.pixel.quotient(at), rest = at - pixel * job.pixel.by;
        const u32 sample = rest >> job.complex, half = rest & job.complex;
        u32 column = pixel;
        if (pixel >= job.columns) {
            if (job.args.edge == EDGE_ZERO) return 0;
            column = job.columns - 1;
        }
        const u8* const place = from + sample * job.args.rows.band_step + ((u64(column) << job.complex) + half) * LEN;
        const Stored value = moving::fetch<Stored>(place);
        differs = differs || (pixel < job.columns && value != Stored(half != 0 ? job.fill_end : job.fill));
        return value;
    }
    SWATH_FN Number get(u32 at) const {
        bool unasked = true;
        return get(at, unasked);
    }
};

// Words of a piece that are done.
struct Done {
    u32 from, count;
};

// Words `start` to `start + count`, one by one: the general case.
template <u32 LEN, class Warp>
SWATH_FN void cut_words(const Warp& warp, const Row<LEN>& row, u8* to, u32 start, u32 count, Done done, bool& differs) {
    using Stored = typename Of<LEN>::Stored;
    using Number = typename Of<LEN>::Number;
    const Job& job = row.job;
    const CutArgs& args = job.args;
    const u32 before = args.samples;
    for (u32 k = warp.lane(); k < count - done.count; k += warp.size()) {
        const u32 at = start + (k < done.from ? k : k + done.count);
        Number value = row.get(at, differs);
        if (args.predictor == 3) {
            // The bytes of a plane go on from those of the plane before.
            value = less_bytes(value, at >= before ? row.get(at - before) : row.get(job.words - before + at) >> 8);
            for (u32 plane = 0; plane < LEN; plane++)
                to[u64(plane) * job.words + at] = u8(value >> (8 * (LEN - 1 - plane)));
            continue;
        }
        if (args.predictor == 2 && at >= before) value -= row.get(at - before);
        if (args.swap != 0 && LEN > 1) value = turned(value, LEN);
        moving::put<Stored>(to + u64(at) * LEN, Stored(value));
    }
}

// The number of units of `len` bytes that may be read from `at` to `end`; unaligned units touch a word more.
SWATH_FN u32 units_up_to(const u8* at, const u8* end, u32 unit, bool aligned) {
    const u64 spare = aligned ? 0 : 4, len = u64(end - at);
    return len < spare ? 0 : u32(min_of((len - spare) / unit, u64(0xffffffffu)));
}

// One band without predictor, or with differences of numbers: 16 bytes at a time, as far as they are whole.
template <u32 LEN, class Warp>
SWATH_FN Done cut_units(const Warp& warp, const Row<LEN>& row, u8* to, u32 start, u32 count, bool& differs) {
    using Stored = typename Of<LEN>::Stored;
    constexpr u32 EACH = 16 / LEN;
    const Job& job = row.job;
    const CutArgs& args = job.args;
    const u32 head = min_of(u32((0 - reinterpret_cast<u64>(to + u64(start) * LEN)) & 15) / LEN, count);
    const u32 first = start + head, inside = min_of(max_of(job.columns, first), start + count) - first;
    const u8* const from = row.from + u64(first) * LEN;
    const bool aligned = moving::words_aligned(from, 4);
    const u32 units = min_of(inside / EACH, units_up_to(from, args.rows.data + args.rows.len, 16, aligned));
    const u32 low = u32(job.fill) * (LEN == 1 ? 0x01010101u : LEN == 2 ? 0x00010001u : 1u);
    const u32 high = LEN == 8 ? u32(job.fill >> 32) : low;
    for (u32 unit = warp.lane(); unit < units; unit += warp.size()) {
        u32 words[4], out[4];
        if (aligned) moving::fetch_words<true>(from + 16 * u64(unit), words);
        else moving::fetch_words<false>(from + 16 * u64(unit), words);
        if (args.sparse != 0)
            differs = differs || ((words[0] ^ low) | (words[1] ^ high) | (words[2] ^ low) | (words[3] ^ high)) != 0;
        if (args.predictor == 2) {
            const bool any = first + unit * EACH > 0;
            const u64 before = any ? u64(moving::fetch<Stored>(from + 16 * u64(unit) - LEN)) : 0;
            if (LEN == 8) {
                u64 left = before;
                SWATH_UNROLL
                for (u32 k = 0; k < 4; k += 2) {
                    const u64 value = u64(words[k + 1]) << 32 | words[k];
                    out[k] = u32(value - left);
                    out[k + 1] = u32((value - left) >> 32);
                    left = value;
                }
            } else {
                constexpr u32 SHIFT = 8 * LEN % 32;
                SWATH_UNROLL
                for (u32 k = 0; k < 4; k++) {
                    const u32 left = k > 0 ? words[k - 1] : u32(before) << (32 - 8 * LEN) % 32;
                    if (LEN == 4) out[k] = words[k] - left;
                    else
                        out[k] = less(words[k], words[k] << SHIFT | left >> (32 - SHIFT) % 32,
                            LEN == 1 ? 0x80808080u : 0x80008000u);
                }
            }
        } else {
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) out[k] = words[k];
        }
        if (args.swap != 0 && LEN > 1) {
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) {
                out[k] = swapped(out[k]);
                if (LEN == 2) out[k] = out[k] >> 16 | out[k] << 16;
            }
            if (LEN == 8) {
                const Quad quad{{out[1], out[0], out[3], out[2]}};
                store_quad(to + u64(first) * LEN + 16 * u64(unit), quad);
                continue;
            }
        }
        store_quad(to + u64(first) * LEN + 16 * u64(unit), Quad{{out[0], out[1], out[2], out[3]}});
    }
    return Done{head, units * EACH};
}

// Byte `byte` of the samples `first` and `first + 1`, of LEN bytes each, in the low half of a word; the upper half is
// undefined.
template <u32 LEN> SWATH_FN u32 two_bytes(const u32 (&words)[LEN], u32 first, u32 byte) {
    const u32 one = first * LEN + byte, other = one + LEN;
#if SWATH_DEVICE
    return __byte_perm(words[one / 4], words[other / 4], one % 4 | (4 + other % 4) << 4);
#else
    return (words[one / 4] >> (8 * (one % 4)) & 0xff) | (words[other / 4] >> (8 * (other % 4)) & 0xff) << 8;
#endif
}
SWATH_FN u32 join_halves(u32 low, u32 high) {
#if SWATH_DEVICE
    return __byte_perm(low, high, 0x5410);
#else
    return (low & 0xffff) | high << 16;
#endif
}

// One band of floats with predictor 3: four samples at a time, four bytes of each plane. Row lengths are multiples of
// four.
template <u32 LEN, class Warp>
SWATH_FN Done cut_floats(const Warp& warp, const Row<LEN>& row, u8* to, u32 start, u32 count, bool& differs) {
    using Stored = typename Of<LEN>::Stored;
    const Job& job = row.job;
    const CutArgs& args = job.args;
    const u32 inside = min_of(max_of(job.columns, start), start + count) - start;
    const u8* const from = row.from + u64(start) * LEN;
    const bool aligned = moving::words_aligned(from, LEN);
    const u32 units = min_of(inside / 4, units_up_to(from, args.rows.data + args.rows.len, 4 * LEN, aligned));
    for (u32 unit = warp.lane(); unit < units; unit += warp.size()) {
        const u32 at = start + 4 * unit;
        const u8* const place = from + u64(4 * LEN) * unit;
        u32 words[LEN];
        if (aligned) moving::fetch_words<true>(place, words);
        else moving::fetch_words<false>(place, words);
        // The bytes of a plane go on from those of the plane before.
        const u64 before = at > 0 ? u64(moving::fetch<Stored>(place - LEN)) : u64(row.get(job.words - 1)) >> 8;
        if (args.sparse != 0) {
            const u32 low = u32(job.fill) * (LEN == 2 ? 0x00010001u : 1u);
            const u32 high = LEN == 8 ? u32(job.fill >> 32) : low;
            u32 other = 0;
            SWATH_UNROLL
            for (u32 k = 0; k < LEN; k++) other |= words[k] ^ (k % 2 == 0 ? low : high);
            differs = differs || other != 0;
        }
        SWATH_UNROLL
        for (u32 plane = 0; plane < LEN; plane++) {
            const u32 byte = LEN - 1 - plane;
            const u32 four = join_halves(two_bytes(words, 0, byte), two_bytes(words, 2, byte));
            const u32 left = four << 8 | (u32(before >> (8 * byte)) & 0xff);
            moving::put<u32>(to + u64(plane) * job.words + at, less_bytes(four, left));
        }
    }
    return Done{0, 4 * units};
}

// Bytes `start` to `start + count` of a row of samples that are packed bit by bit.
template <u32 LEN, class Warp>
SWATH_FN void cut_packed(const Warp& warp, const Row<LEN>& row, u8* to, u32 start, u32 count, bool& differs) {
    const Job& job = row.job;
    const u32 bits = job.args.bits, top = (1u << bits) - 1;
    const Divisor sample(bits);
    for (u32 byte = start + warp.lane(); byte < start + count; byte += warp.size()) {
        u32 at = sample.quotient(8 * byte);
        u64 held = min_of(u32(row.get(at, differs)), top);
        // Its bits that are not written yet.
        u32 have = bits - (8 * byte - at * bits);
        while (have < 8) {
            at++;
            held = held << bits | (at < job.words ? min_of(u32(row.get(at, differs)), top) : 0u);
            have += bits;
        }
        to[byte] = u8(held >> (have - 8));
    }
}

// The stored bytes of padding rows: zeros, whatever the predictor.
template <class Warp> SWATH_FN void put_zeros(const Warp& warp, u8* to, u32 count) {
    const u32 head = min_of(u32((0 - reinterpret_cast<u64>(to)) & 15), count), units = (count - head) / 16;
    for (u32 unit = warp.lane(); unit < units; unit += warp.size())
        store_quad(to + head + 16 * u64(unit), Quad{{0, 0, 0, 0}});
    for (u32 k = warp.lane(); k < count - 16 * units; k += warp.size()) to[k < head ? k : k + 16 * u64(units)] = 0;
}

// Cuts the block's part of a tile. Returns whether a sample in the image differs from the fill.
template <u32 LEN, class Warp> SWATH_FN bool cut_part(const Warp& warp, const Job& job, u32 top, u32 rows, u32 part) {
    const CutArgs& args = job.args;
    const bool packed = args.bits != 8 * args.sample_len, alone = args.samples == 1 && job.complex == 0;
    const u32 len = packed ? u32(args.stored_row) : job.words, size = packed ? 1 : LEN;
    const u32 pieces = (len - 1) / PIECE + 1;
    const u64 step = u64(args.parts) * warp.count();
    bool differs = false;
    for (u64 at = u64(part) * warp.count() + warp.index(); at < rows * pieces; at += step) {
        const u32 line = u32(at) / pieces, start = (u32(at) - line * pieces) * PIECE;
        const u32 count = min_of(len - start, PIECE);
        u8* const to = job.dst + u64(line) * args.stored_row;
        const bool below = args.height - top <= line;
        if (below && args.edge != EDGE_REPEAT) {
            put_zeros(warp, to + u64(start) * size, count * size);
            continue;
        }
        const u32 y = below ? args.height - 1 : top + line;
        const Row<LEN> row{job, job.src + u64(y % args.rows.ring) * args.rows.row_step};
        if (packed) {
            if constexpr (LEN <= 4) cut_packed(warp, row, to, start, count, differs);
            continue;
        }
        Done done{0, 0};
        if (alone && args.predictor != 3) {
            done = cut_units(warp, row, to, start, count, differs);
        } else if (alone && job.words % 4 == 0) {
            if constexpr (LEN >= 2) done = cut_floats(warp, row, to, start, count, differs);
        }
        cut_words(warp, row, to, start, count, done, differs);
    }
    return differs;
}

// Whether the arguments agree with each other and with the memory.
SWATH_FN bool consistent(const CutArgs& args) {
    const u32 len = args.sample_len, word = args.word;
    if (len != 1 && len != 2 && len != 4 && len != 8 && len != 16) return false;
    if (word == 0 || word > 8 || (word != len && 2 * word != len)) return false;
    if (args.predictor != 0 && args.predictor != 2 && (args.predictor != 3 || word < 2)) return false;
    if (args.planes == 0 || args.planes > 0xffff || args.samples == 0 || args.samples > 0xffff) return false;
    if (args.tile_width == 0 || args.tile_height == 0 || args.across == 0 || args.parts == 0) return false;
    // Words and bits of a row are counted in 32 bits.
    const u64 samples = u64(args.tile_width) * args.samples;
    if (samples > 0x3fffffffu || args.bits == 0 || args.bits > 8 * len) return false;
    if (args.bits < 8 * len && (len > 4 || word != len || samples * args.bits > 0x7fffffffu)) return false;
    if (args.stored_row != (samples * args.bits + 7) / 8 || args.stored_row > 0x7fffffffu) return false;
    if (!aligned_to(args.dst, 16) || (args.dst_stride & 15) != 0) return false;
    return moving::rows_fit(args.rows, args.planes * args.samples, len, word);
}

}  // namespace cutting

struct Cut {
    static constexpr u32 THREADS = 256;
    using Args = CutArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const CutArgs& args, Shared&) {
        if (!cutting::consistent(args)) return;
        for (u64 work = block; work < u64(args.count) * args.parts; work += blocks) {
            const u32 tile = u32(work / args.parts), part = u32(work - u64(tile) * args.parts);
            cut(group, args, tile, part);
        }
    }

  private:
    template <class Group> SWATH_FN static void cut(const Group& group, const CutArgs& args, u32 tile, u32 part) {
        using namespace cutting;
        if (tile > ~args.skip) return;
        const u32 number = args.skip + tile, position = number / args.planes, plane = number - position * args.planes;
        const u32 down = position / args.across;
        const u64 left = u64(position - down * args.across) * args.tile_width;
        const u64 top = (u64(args.first_row) + down) * args.tile_height;
        if (left >= args.rows.width || top >= args.height) return;
        const u32 rows = args.tiled != 0 ? args.tile_height : u32(min_of(u64(args.tile_height), args.height - top));
        const u64 len = u64(rows) * args.stored_row, index = u64(args.first) + tile;
        if (len > 0x7fffffffu || len > args.dst_stride || index > 0xffffffffu) return;
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(moving::saturating_mul(u32(index), args.dst_stride), len);
        if (dst.len != len) return;

        const u32 complex = args.word != args.sample_len ? 1 : 0;
        // Constant indices only: arguments whose address is taken are copied to slow memory first.
        u64 fill = 0, fill_end = 0;
        SWATH_UNROLL
        for (u32 byte = 0; byte < 8; byte++) {
            fill |= u64(args.fill[byte]) << (8 * byte);
            fill_end |= u64(args.fill[8 + byte]) << (8 * byte);
        }
        if (args.word < 8) {
            fill_end = fill >> (8 * args.word) & ((1ull << (8 * args.word)) - 1);
            fill &= (1ull << (8 * args.word)) - 1;
        }
        const u8* const src = args.rows.data + u64(plane * args.samples) * args.rows.band_step + left * args.sample_len;
        const u32 columns = u32(min_of(u64(args.tile_width), args.rows.width - left));
        const u32 words = args.tile_width * args.samples << complex;
        const Job job{args, src, dst.data, columns, words, complex, Divisor(args.samples << complex), fill, fill_end};

        const auto warp = group.warp();
        bool differs = false;
        switch (args.word) {
        case 1: differs = cut_part<1>(warp, job, u32(top), rows, part); break;
        case 2: differs = cut_part<2>(warp, job, u32(top), rows, part); break;
        case 4: differs = cut_part<4>(warp, job, u32(top), rows, part); break;
        default: differs = cut_part<8>(warp, job, u32(top), rows, part);
        }
        const bool wanted = args.sparse != 0 ? group.any(differs) : part == 0;
        // Several parts of a tile may write it at the same time, with the same value.
        if (wanted && group.lane() == 0) store_racing(&args.lens[index], u32(len));
    }
};
