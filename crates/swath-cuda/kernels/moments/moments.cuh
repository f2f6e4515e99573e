// Computes the statistics of the tiles of an image, bit for bit those of the CPU.
//
// The CPU sums up each row separately, in eight sums side by side, and adds the rows one after the other. Sums of floats
// depend on their order, so the order of operations is fixed. There are two kernels:
// - The first makes the statistics of each row of a tile. Eight lanes take a row, one sum each, and many blocks share a
//   tile.
// - The second adds up the rows of a tile. One lane does that, row after row; so it runs once for all tiles of a batch.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"
#include "core/rows.cuh"

// `Moments` of swath-raster.
struct Moments {
    u64 count;
    u64 all;
    double min;
    double max;
    double mean;
    double squares;
};

// Numbers of the sample types that have statistics.
enum MomentKind : u32 {
    MOMENT_U8 = 0, MOMENT_I8 = 1, MOMENT_U16 = 2, MOMENT_I16 = 3, MOMENT_U32 = 4, MOMENT_I32 = 5, MOMENT_U64 = 6,
    MOMENT_I64 = 7, MOMENT_F16 = 8, MOMENT_F32 = 9, MOMENT_F64 = 10,
};

// Positions first_row * across + skip and on of the grid of tiles, `count` of them: `room` elements of `out` for each
// band of a position, from ((first + i) * bands + band) * room on for the i-th. They are the rows of the tile; those
// beyond the tile or the image are empty. A pixel counts if it lies inside the image, is not NaN, is not `nodata` (if
// has_nodata is set), and has a mask that is not 0 (mask.data is null if there is none; one byte a pixel, rows as in
// `rows`, the same first row).
struct MomentsArgs {
    Rows rows;
    Rows mask;
    Moments* out;
    u64 out_len;       // elements
    u32 height;
    u32 tile_width;
    u32 tile_height;
    u32 across;
    u32 bands;
    u32 first_row;
    u32 skip;
    u32 first;
    u32 count;
    u32 kind;
    u32 has_nodata;
    u32 room;
    u8 nodata[8];
};

// Adds up `room` rows for each of `count` elements of `out`.
struct MomentsJoinArgs {
    const Moments* rows;
    u64 rows_len;      // elements
    Moments* out;
    u64 out_len;       // elements
    u32 room;
    u32 count;
};

namespace statistics {

// Operations that no compiler may fuse, which would round differently.
SWATH_FN double add(double a, double b) {
#if SWATH_DEVICE
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}
SWATH_FN double less(double a, double b) { return add(a, -b); }
SWATH_FN double times(double a, double b) {
#if SWATH_DEVICE
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

// Of two equal values, such as zeros of either sign, the first.
SWATH_FN double smaller(double a, double b) { return b < a ? b : a; }
SWATH_FN double larger(double a, double b) { return b > a ? b : a; }

template <class To, class From> SWATH_FN To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits are neither lost nor made");
    union {
        From from;
        To to;
    } both;
    both.from = from;
    return both.to;
}

// The value of a half float.
SWATH_FN double widened(u16 bits) {
    // Moved to the exponent field of an f32 and scaled, which makes small numbers normal.
    const float size = same_bits<float>(u32(bits & 0x7fff) << 13) * same_bits<float>(0x77800000u);
    const u32 special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return same_bits<float>(same_bits<u32>(size) | special | u32(bits & 0x8000) << 16);
}

// The sums of one lane over a row: whole numbers where their sums are exact, else distances from a first value.
struct ShortSums {
    long long sum;
    u64 squares;
    i32 min, max;
    u32 count;
};
struct LongSums {
    double sum, squares, min, max;
    u32 count;
};

// Reads samples of one size. The type is looked up for every sample, because a loop for each type would make the kernel
// slow to load.
template <class Raw> struct Short {
    using Stored = Raw;
    using Number = i32;
    using Sums = ShortSums;
    SWATH_FN static Number number(u32 kind, Raw raw) {
        if (kind == MOMENT_I8) return i32(static_cast<signed char>(raw));
        return kind == MOMENT_I16 ? i32(static_cast<short>(raw)) : i32(raw);
    }
    SWATH_FN static bool is_float(u32) { return false; }
};
template <class Raw> struct Long {
    using Stored = Raw;
    using Number = double;
    using Sums = LongSums;
    SWATH_FN static Number number(u32 kind, Raw raw) {
        if constexpr (sizeof(Raw) == 2) {
            return widened(raw);
        } else if constexpr (sizeof(Raw) == 4) {
            if (kind == MOMENT_F32) return same_bits<float>(raw);
            return kind == MOMENT_I32 ? double(i32(raw)) : double(raw);
        } else {
            if (kind == MOMENT_F64) return same_bits<double>(raw);
            return kind == MOMENT_I64 ? double(static_cast<long long>(raw)) : double(raw);
        }
    }
    SWATH_FN static bool is_float(u32 kind) { return kind >= MOMENT_F16; }
};

// The rows of a tile and of its mask.
template <class Kind> struct Source {
    using Number = typename Kind::Number;
    using Stored = typename Kind::Stored;
    const MomentsArgs& args;
    const u8* data;  // the tile's first column in row 0 of the ring, of its band
    const u8* mask;  // likewise; null if there is none
    Stored nodata;
    u32 top, columns;

    // Calls `each` with the number of every eighth column of row `row` from `side` on, its value, and whether it is data,
    // until it returns false. AHEAD loads are in flight at once.
    template <u32 AHEAD, class Each> SWATH_FN void walk(u32 row, u32 side, const Each& each) const {
        constexpr u32 SIZE = sizeof(Stored);
        const Number nothing = Kind::number(args.kind, nodata);
        const bool is_float = Kind::is_float(args.kind);
        const u32 y = top + row;
        const u8* const from = data + u64(y % args.rows.ring) * args.rows.row_step;
        const u8* const masks = mask != nullptr ? mask + u64(y % args.mask.ring) * args.mask.row_step : nullptr;
        for (u64 first = side; first < columns; first += 8 * AHEAD) {
            Stored raw[AHEAD];
            bool keep[AHEAD];
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const u64 column = first + 8 * k;
                if (column >= columns) continue;
                raw[k] = moving::fetch<Stored>(from + column * SIZE);
                keep[k] = masks == nullptr || moving::fetch<u8>(masks + column) != 0;
            }
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const u64 column = first + 8 * k;
                if (column >= columns) continue;
                const Number value = Kind::number(args.kind, raw[k]);
                // Zeros of either sign are equal; 64-bit integers may be equal as doubles but not as bits.
                const bool none = args.has_nodata != 0 && (is_float ? value == nothing : raw[k] == nodata);
                // NaN does not equal itself.
                if (!each(u32(column), value, keep[k] && value == value && !none)) return;
            }
        }
    }
    SWATH_FN Number value(u32 row, u32 column) const {
        const u8* const from = data + u64((top + row) % args.rows.ring) * args.rows.row_step;
        return Kind::number(args.kind, moving::fetch<Stored>(from + u64(column) * sizeof(Stored)));
    }
};

// The result of a row of `all` columns, from the sums of its counted samples relative to `base`.
SWATH_FN Moments of_sums(u64 count, u64 all, double base, double sum, double squares, double min, double max) {
    const double samples = double(count);
    const double apart = less(squares, times(sum, sum) / samples);
    return Moments{count, all, min, max, add(base, sum / samples), apart > 0 ? apart : 0};
}

SWATH_FN void add_to(Moments& all, const Moments& row) {
    all.all += row.all;
    if (row.count == 0) return;
    const double mine = double(all.count), theirs = double(row.count), total = add(mine, theirs);
    const double apart = less(row.mean, all.mean);
    all.squares = add(all.squares, add(row.squares, times(times(times(apart, apart), mine), theirs) / total));
    all.mean = add(all.mean, times(apart, theirs) / total);
    all.count += row.count;
    all.min = smaller(all.min, row.min);
    all.max = larger(all.max, row.max);
}

}  // namespace statistics

// A block takes a few rows of one band of a tile at a time.
struct RowMoments {
    static constexpr u32 THREADS = 256;
    using Args = MomentsArgs;

    static constexpr u32 SIDES = 8;
    static constexpr u32 ROWS = 32;
    static constexpr u32 NONE = 0xffffffffu;

    struct Shared {
        union {
            statistics::ShortSums shorts[ROWS * SIDES];
            statistics::LongSums longs[ROWS * SIDES];
        };
        u32 firsts[ROWS * SIDES];  // first valid column of each sum
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const MomentsArgs& args, Shared& shared) {
        using namespace statistics;
        switch (args.kind) {
        case MOMENT_U8:
        case MOMENT_I8: return tiles<Short<u8>>(group, block, blocks, args, shared);
        case MOMENT_U16:
        case MOMENT_I16: return tiles<Short<u16>>(group, block, blocks, args, shared);
        case MOMENT_F16: return tiles<Long<u16>>(group, block, blocks, args, shared);
        case MOMENT_U32:
        case MOMENT_I32:
        case MOMENT_F32: return tiles<Long<u32>>(group, block, blocks, args, shared);
        case MOMENT_U64:
        case MOMENT_I64:
        case MOMENT_F64: return tiles<Long<u64>>(group, block, blocks, args, shared);
        }
    }

  private:
    template <class Kind, class Group>
    SWATH_FN static void tiles(const Group& group, u32 block, u32 blocks, const MomentsArgs& args, Shared& shared) {
        constexpr u32 SIZE = sizeof(typename Kind::Stored);
        if (args.tile_width == 0 || args.tile_height == 0 || args.across == 0) return;
        if (!moving::rows_fit(args.rows, args.bands, SIZE, SIZE)) return;
        const bool masked = args.mask.data != nullptr;
        if (masked && (args.mask.width != args.rows.width || !moving::rows_fit(args.mask, 1, 1, 1))) return;
        u64 nodata = 0;
        SWATH_UNROLL
        for (u32 byte = 0; byte < SIZE; byte++) nodata |= u64(args.nodata[byte]) << (8 * byte);
        const u32 parts = (args.room + ROWS - 1) / ROWS;
        for (u64 job = block; job < u64(args.count) * args.bands * parts; job += blocks) {
            const u32 part = u32(job % parts), first = part * ROWS;
            const u64 tile = job / parts / args.bands, number = args.skip + tile, down = number / args.across;
            const u32 band = u32(job / parts - tile * args.bands);
            const u64 left = (number - down * args.across) * args.tile_width;
            const u64 top = (args.first_row + down) * args.tile_height;
            const u64 slot = ((args.first + tile) * args.bands + band) * args.room + first;
            const Span<Moments> out = Span<Moments>(args.out, args.out_len).part(slot, min_of(ROWS, args.room - first));
            const bool inside = left < args.rows.width && top < args.height;
            const u32 rows = inside ? u32(min_of(u64(args.tile_height), args.height - top)) : 0;
            const u32 count = first < rows ? u32(min_of(u64(rows - first), out.len)) : 0;
            for (u32 row = count + group.lane(); row < u32(out.len); row += group.size()) {
                out.data[row] = Moments{0, 0, 0, 0, 0, 0};
            }
            if (count == 0) continue;
            const statistics::Source<Kind> source{args,
                args.rows.data + u64(band) * args.rows.band_step + left * SIZE,
                masked ? args.mask.data + left : nullptr,
                typename Kind::Stored(nodata),
                u32(top),
                u32(min_of(u64(args.tile_width), args.rows.width - left))};
            sum(group, source, first, count, out, shared, static_cast<typename Kind::Sums*>(nullptr));
            // Before the next rows replace the sums.
            group.sync();
        }
    }

    template <class Group, class Source>
    SWATH_FN static void sum(const Group& group, const Source& source, u32 first, u32 count, const Span<Moments>& out,
        Shared& shared, statistics::ShortSums*) {
        for (u32 task = group.lane(); task < count * SIDES; task += group.size()) {
            statistics::ShortSums sums{0, 0, 0x7fffffff, -0x7fffffff - 1, 0};
            source.template walk<4>(first + task / SIDES, task % SIDES, [&](u32, i32 value, bool data) {
                const long long kept = data ? value : 0;
                sums.sum += kept;
                sums.squares += u64(kept * kept);
                sums.min = data ? min_of(sums.min, value) : sums.min;
                sums.max = data ? max_of(sums.max, value) : sums.max;
                sums.count += data ? 1 : 0;
                return true;
            });
            shared.shorts[task] = sums;
        }
        group.sync();
        for (u32 row = group.lane(); row < count; row += group.size()) {
            statistics::ShortSums sums = shared.shorts[row * SIDES];
            for (u32 side = 1; side < SIDES; side++) {
                const statistics::ShortSums& other = shared.shorts[row * SIDES + side];
                sums.sum += other.sum;
                sums.squares += other.squares;
                sums.min = min_of(sums.min, other.min);
                sums.max = max_of(sums.max, other.max);
                sums.count += other.count;
            }
            const double all = double(sums.sum), squares = double(sums.squares);
            out.data[row] = sums.count == 0 ? Moments{0, source.columns, 0, 0, 0, 0}
                : statistics::of_sums(sums.count, source.columns, 0, all, squares, sums.min, sums.max);
        }
    }

    template <class Group, class Source>
    SWATH_FN static void sum(const Group& group, const Source& source, u32 first, u32 count, const Span<Moments>& out,
        Shared& shared, statistics::LongSums*) {
        using namespace statistics;
        using Number = typename Source::Number;
        for (u32 task = group.lane(); task < count * SIDES; task += group.size()) {
            u32 found = NONE;
            source.template walk<1>(first + task / SIDES, task % SIDES, [&](u32 column, Number, bool data) {
                if (data) found = column;
                return !data;
            });
            shared.firsts[task] = found;
        }
        group.sync();
        for (u32 task = group.lane(); task < count * SIDES; task += group.size()) {
            const u32 row = first + task / SIDES, start = first_of(shared, task / SIDES);
            // Without data there is no base, and no value relative to it.
            const double base = start != NONE ? double(source.value(row, start)) : 0;
            LongSums sums{0, 0, base, base, 0};
            source.template walk<4>(row, task % SIDES, [&](u32, Number number, bool data) {
                const double value = data ? double(number) : base, apart = less(value, base);
                sums.sum = add(sums.sum, apart);
                sums.squares = add(sums.squares, times(apart, apart));
                sums.min = smaller(sums.min, value);
                sums.max = larger(sums.max, value);
                sums.count += data ? 1 : 0;
                return start != NONE;
            });
            shared.longs[task] = sums;
        }
        group.sync();
        for (u32 row = group.lane(); row < count; row += group.size()) {
            const u32 start = first_of(shared, row);
            if (start == NONE) {
                out.data[row] = Moments{0, source.columns, 0, 0, 0, 0};
                continue;
            }
            const double base = double(source.value(first + row, start));
            const LongSums& one = shared.longs[row * SIDES];
            LongSums sums{one.sum, one.squares, smaller(base, one.min), larger(base, one.max), one.count};
            for (u32 side = 1; side < SIDES; side++) {
                const LongSums& other = shared.longs[row * SIDES + side];
                sums.sum = add(sums.sum, other.sum);
                sums.squares = add(sums.squares, other.squares);
                sums.min = smaller(sums.min, other.min);
                sums.max = larger(sums.max, other.max);
                sums.count += other.count;
            }
            out.data[row] = of_sums(sums.count, source.columns, base, sums.sum, sums.squares, sums.min, sums.max);
        }
    }

    // The first valid column of a row.
    SWATH_FN static u32 first_of(const Shared& shared, u32 row) {
        u32 first = NONE;
        for (u32 side = 0; side < SIDES; side++) first = min_of(first, shared.firsts[row * SIDES + side]);
        return first;
    }
};

// A block takes one band of a tile at a time.
struct JoinedMoments {
    static constexpr u32 THREADS = 64;
    using Args = MomentsJoinArgs;

    static constexpr u32 HELD = 128;

    struct Shared {
        Moments rows[HELD];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const MomentsJoinArgs& args, Shared& shared) {
        const Span<const Moments> all_rows(args.rows, args.rows_len);
        const double infinity = statistics::same_bits<double>(0x7ff0000000000000ull);
        for (u64 job = block; job < args.count; job += blocks) {
            const Span<const Moments> rows = all_rows.part(job * args.room, args.room);
            if (job >= args.out_len) return;
            Moments all{0, 0, infinity, -infinity, 0, 0};
            for (u64 first = 0; first < rows.len; first += HELD) {
                const u32 held = u32(min_of(u64(HELD), rows.len - first));
                for (u32 row = group.lane(); row < held; row += group.size()) {
                    shared.rows[row] = rows.data[first + row];
                }
                group.sync();
                if (group.lane() == 0) {
                    for (u32 row = 0; row < held; row++) statistics::add_to(all, shared.rows[row]);
                }
                group.sync();
            }
            if (group.lane() == 0) args.out[job] = all;
        }
    }
};
