// Overviews: rows of one level from rows of the level above, byte for byte as `shrink` of swath-raster makes them.
//
// A method is a type that makes a pixel from the four below it, or from a footprint with weights; this file has what the
// methods share. The sample type is an argument of the launch: one body serves all types, which keeps kernels short for
// the driver that compiles them. The most used methods have bodies of their own (average.cuh).
#pragma once
#include "core/kernel.cuh"
#include "core/memory.cuh"
#include "core/rows.cuh"
#include "shrink/sample.cuh"

namespace shrink {

// How source pixels correspond to target pixels; the numbers of Rust's `shrink::Plan`.
enum Plan : u32 {
    PLAN_HALVES = 0,  // two by two
    PLAN_SPANS = 1,   // weighted footprints: `Cover` for every column and row
    PLAN_PICKS = 2,   // single pixels: u32
    PLAN_WHOLE = 3,   // ranges of whole pixels: `Range`
    PLAN_TAPS = 4,    // filters: `Tap`
};

enum Flags : u32 {
    FLAG_PAIRS = 1,     // every span has two neighbouring columns
    FLAG_NARROW = 2,    // the filter reaches less than four pixels, which decides the order of additions
    FLAG_SPREAD = 4,    // NaN spreads though it is not valid
    FLAG_NODATA = 8,    // `nodata` is declared: results avoid it, and without a mask pixels are compared with it
    FLAG_NEGATIVE = 16, // the filter has negative weights
};

// Source pixels start..end, the weights of the first and the last, and the sum of all weights.
struct Cover {
    u32 start;
    u32 end;
    double left;
    double right;
    double total;

    SWATH_FN u32 len() const { return end - start; }
    SWATH_FN double weight(u32 at) const { return at == start ? left : at + 1 == end ? right : 1.0; }
};

struct Range {
    u32 start;
    u32 end;
};

// `count` source pixels from `start` on, with the weights from number `weights` on.
struct Tap {
    u32 start;
    u32 count;
    u32 weights;
    u32 unused;
};

// Target rows first..first + count of `bands` bands. `source` holds the source rows they need, and `valid`, if it is not
// null, their mask: one byte a pixel for all bands, zero for no data. `tables` holds at `columns` an entry for each
// target column and at `rows` one for each target row, of the plan's kind, and for filters doubles at `weights`.
struct Args {
    Rows source;
    Rows target;
    Rows valid;
    const u8* tables;
    u64 tables_len;
    u64 columns;
    u64 rows;
    u64 weights;
    u64 weights_len;    // doubles
    double avoid;       // nodata, or NaN
    double instead;
    u64 nodata;         // nodata as a word, in the low bytes
    u64 fill;
    u32 source_height;
    u32 target_height;
    u32 first;
    u32 count;
    u32 bands;
    u32 kind;
    u32 plan;
    u32 flags;
};

// Loops that stay loops: unrolled, they would be most of the code that the driver compiles.
#if SWATH_DEVICE
#define SWATH_ROLLED _Pragma("unroll 1")
#else
#define SWATH_ROLLED
#endif

constexpr u32 THREADS = 256;
// Longest side: columns, and twice a row, stay below 2^32.
constexpr u32 MOST_SIDE = 1u << 30;
// Target rows that a warp takes at a time: it reads the entries of the columns once for all of them.
constexpr u32 ROWS = 4;

// Entry `at` of the table at `offset`.
template <class T> SWATH_FN const T& entry(const Args& args, u64 offset, u32 at) {
    return reinterpret_cast<const T*>(args.tables + offset)[at];
}

// Whether `bands` bands of such rows lie in their memory, with aligned words.
SWATH_FN bool holds(const Rows& rows, u32 bands, u32 sample_len, u32 word) {
    const u64 row_len = u64(rows.width) * sample_len;
    if (rows.data == nullptr || rows.width == 0 || rows.ring == 0 || bands == 0) return false;
    if (rows.row_step != row_len) return false;
    if (row_len > rows.len / rows.ring) return false;
    const u64 plane = row_len * rows.ring;
    if (bands > 1 && (rows.band_step < plane || (rows.len - plane) / rows.band_step < bands - 1)) return false;
    return ((reinterpret_cast<u64>(rows.data) | rows.band_step) & (word - 1)) == 0;
}

SWATH_FN bool holds_table(const Args& args, u64 offset, u64 count, u64 entry_len) {
    return offset % 8 == 0 && offset <= args.tables_len && count <= (args.tables_len - offset) / entry_len;
}

// Whether everything that the arguments name lies in memory. Samples are `words` words of `word` bytes.
SWATH_FN bool sound(const Args& args, u32 word, u32 words) {
    if (args.count > args.target_height || args.first > args.target_height - args.count) return false;
    if (args.source_height == 0 || max_of(args.source_height, args.target_height) > MOST_SIDE) return false;
    if (max_of(args.source.width, args.target.width) > MOST_SIDE) return false;
    if (!holds(args.source, args.bands, word * words, word)) return false;
    if (!holds(args.target, args.bands, word * words, word)) return false;
    const bool masked = args.valid.data != nullptr;
    if (masked && (!holds(args.valid, 1, 1, 1) || args.valid.width != args.source.width)) return false;
    if (args.plan == PLAN_HALVES) {
        const u64 width = u64(args.target.width) * 2, height = u64(args.target_height) * 2;
        return args.source.width == width && args.source_height == height;
    }
    const u64 len = args.plan == PLAN_SPANS ? sizeof(Cover) : args.plan == PLAN_PICKS ? sizeof(u32)
                  : args.plan == PLAN_WHOLE ? sizeof(Range) : sizeof(Tap);
    return aligned_to(args.tables, 8) && holds_table(args, args.columns, args.target.width, len)
        && holds_table(args, args.rows, args.target_height, len)
        && holds_table(args, args.weights, args.weights_len, sizeof(double));
}

SWATH_FN u8* row_of(const Rows& rows, u32 band, u32 row) {
    return rows.data + band * rows.band_step + row % rows.ring * rows.row_step;
}

// Divides the work among the lanes: a warp takes up to ROWS rows of a stretch of columns at a time, `each` columns for a
// lane.
struct Deal {
    u64 unit;
    u64 step;
    u64 total;
    u32 chunks;   // stretches of columns
    u32 groups;   // groups of rows
    u32 stretch;  // columns of a stretch
    u32 start;    // first column of this lane in the first stretch
    // The piece of the current unit.
    u32 band;
    u32 first;
    u32 end;
    u32 column;

    // Columns from..to of all rows.
    template <class Warp>
    SWATH_FN Deal(const Warp& warp, u32 block, u32 blocks, const Args& args, u32 from, u32 to, u32 each) {
        unit = u64(block) * warp.count() + warp.index();
        step = u64(blocks) * warp.count();
        stretch = warp.size() * each;
        start = from + warp.lane() * each;
        chunks = (to - from + stretch - 1) / stretch;
        groups = (args.count + ROWS - 1) / ROWS;
        total = u64(chunks) * groups * args.bands;
    }

    // Whether there is another piece, which may have no column for this lane.
    SWATH_FN bool next(const Args& args) {
        if (unit >= total) return false;
        u32 chunk, group;
        if (total >> 32 == 0) {
            const u32 at = u32(unit), rest = at / chunks;
            chunk = at - rest * chunks;
            band = rest / groups;
            group = rest - band * groups;
        } else {
            const u64 rest = unit / chunks;
            chunk = u32(unit - rest * chunks);
            band = u32(rest / groups);
            group = u32(rest - u64(band) * groups);
        }
        unit += step;
        first = args.first + group * ROWS;
        end = min_of(first + ROWS, args.first + args.count);
        column = start + chunk * stretch;
        return true;
    }
};

// ------------------------------------------------------------------------------------------------------ the samples

// The source of validity of pixels.
enum By : u32 { BY_NOTHING, BY_NODATA, BY_MASK };

// Bytes of a word.
SWATH_FN u32 word_len(u32 kind) {
    return kind < KIND_F16 ? 1u << kind / 2 : kind == KIND_F16 ? 2 : kind == KIND_F32 ? 4 : 8;
}

// A band of the source, and the facts that a method needs. Words are held in 64 bits: signed ones extended by their sign,
// others by zeros.
struct Scene {
    const Args& args;
    Avoid avoid;
    u64 nodata;
    u64 fill;
    u32 kind;
    u32 len;      // bytes of a word
    u32 cls;      // `Class`
    bool whole;
    bool is_signed;
    u32 by;
    u32 band;

    SWATH_FN explicit Scene(const Args& args)
        : args(args), avoid{args.avoid, args.instead}, fill(args.fill), kind(args.kind), len(word_len(args.kind)),
          band(0) {
        whole = kind < KIND_F16;
        is_signed = whole && kind % 2 == 1;
        cls = kind == KIND_U8 || kind == KIND_U16 ? CLASS_UNSIGNED
            : kind == KIND_I8 || kind == KIND_I16 || kind == KIND_F32 ? CLASS_SINGLE : CLASS_DOUBLE;
        by = args.valid.data != nullptr ? BY_MASK : (args.flags & FLAG_NODATA) != 0 ? BY_NODATA : BY_NOTHING;
        nodata = extended(args.nodata);
    }

    SWATH_FN u64 extended(u64 word) const {
        const u32 above = 64 - len * 8;
        return is_signed ? u64((long long)(word << above) >> above) : word << above >> above;
    }

    SWATH_FN const u8* row(u32 at) const { return row_of(args.source, band, at); }
    // Null if there is no mask.
    SWATH_FN const u8* mask(u32 at) const { return by == BY_MASK ? row_of(args.valid, 0, at) : nullptr; }

    SWATH_FN u64 get(const u8* row, u64 at) const {
        switch (len) {
        case 1: return is_signed ? u64((long long)(reinterpret_cast<const signed char*>(row)[at])) : row[at];
        case 2: {
            const u16 word = reinterpret_cast<const u16*>(row)[at];
            return is_signed ? u64((long long)(short(word))) : word;
        }
        case 4: {
            const u32 word = reinterpret_cast<const u32*>(row)[at];
            return is_signed ? u64((long long)(i32(word))) : word;
        }
        default: return reinterpret_cast<const u64*>(row)[at];
        }
    }
    SWATH_FN void set(u8* row, u64 at, u64 word) const {
        switch (len) {
        case 1: row[at] = u8(word); return;
        case 2: reinterpret_cast<u16*>(row)[at] = u16(word); return;
        case 4: reinterpret_cast<u32*>(row)[at] = u32(word); return;
        default: reinterpret_cast<u64*>(row)[at] = word; return;
        }
    }

    SWATH_FN double wide(u64 word) const {
        if (whole) return is_signed || len < 8 ? double((long long)(word)) : double(word);
        return len == 4 ? SampleF32::wide(u32(word)) : len == 8 ? SampleF64::wide(word) : SampleF16::wide(u16(word));
    }
    SWATH_FN bool less(u64 a, u64 b) const {
        if (!whole) return wide(a) < wide(b);
        return is_signed ? (long long)(a) < (long long)(b) : a < b;
    }
    SWATH_FN bool no_number(u64 word) const { return !whole && is_nan(wide(word)); }
    SWATH_FN bool is_nodata(u64 word) const {
        if (whole) return word == nodata;
        return len == 4 ? SampleF32::same(u32(word), u32(nodata)) : same_float(wide(word), wide(nodata));
    }
    // The weight for filters: the mask's byte, or 255 for pixels that are not nodata.
    SWATH_FN u8 valid(u64 word, const u8* mask, u32 column) const {
        if (by == BY_MASK) return mask[column];
        return by == BY_NODATA && is_nodata(word) ? 0 : 255;
    }

    // The word for a value already rounded to the precision of the class.
    SWATH_FN u64 store(double value) const {
        switch (kind) {
        case KIND_U8: return SampleU8::store(value);
        case KIND_I8: return SampleI8::store(value);
        case KIND_U16: return SampleU16::store(value);
        case KIND_I16: return SampleI16::store(value);
        case KIND_U32: return SampleU32::store(value);
        case KIND_I32: return SampleI32::store(value);
        case KIND_U64: return SampleU64::store(value);
        case KIND_I64: return SampleI64::store(value);
        case KIND_F16: return SampleF16::store(value);
        case KIND_F32: return SampleF32::store(value);
        default: return SampleF64::store(value);
        }
    }
    // The word for a mean, moved off nodata.
    SWATH_FN u64 store_avoiding(double value) const {
        if (cls == CLASS_UNSIGNED) {
            return to_unsigned(avoid.apply(whole_part(add(value, 0.5))), len == 1 ? 0xff : 0xffff);
        }
        return store(avoid.apply(cls == CLASS_SINGLE ? double(float(value)) : value));
    }

    // Smallest and largest value, as doubles that convert back.
    SWATH_FN double low() const {
        if (!whole) return kind == KIND_F32 ? SampleF32::LOW : SampleF64::LOW;
        if (!is_signed) return 0.0;
        return len == 1 ? SampleI8::LOW : len == 2 ? SampleI16::LOW : len == 4 ? SampleI32::LOW : SampleI64::LOW;
    }
    SWATH_FN double high() const {
        switch (kind) {
        case KIND_U8: return SampleU8::HIGH;
        case KIND_I8: return SampleI8::HIGH;
        case KIND_U16: return SampleU16::HIGH;
        case KIND_I16: return SampleI16::HIGH;
        case KIND_U32: return SampleU32::HIGH;
        case KIND_I32: return SampleI32::HIGH;
        case KIND_U64: return SampleU64::HIGH;
        case KIND_I64: return SampleI64::HIGH;
        case KIND_F32: return SampleF32::HIGH;
        default: return SampleF64::HIGH;
        }
    }

    // Whether the CPU computes a target column in vectors of `lanes`.
    SWATH_FN bool in_lanes(u32 column, u32 lanes) const { return column < (args.target.width & ~(lanes - 1)); }
    SWATH_FN bool holds_column(u32 start, u32 end) const { return start < end && end <= args.source.width; }
    SWATH_FN bool holds_row(u32 start, u32 end) const { return start < end && end <= args.source_height; }
};

// Four pixels in reading order and which of them are valid.
struct Four {
    u64 samples[4];
    bool ok[4];

    SWATH_FN Four(const Scene& scene, u32 row, u32 column) {
        SWATH_UNROLL
        for (u32 y = 0; y < 2; y++) {
            const u8* const line = scene.row(row + y);
            const u8* const mask = scene.mask(row + y);
            SWATH_UNROLL
            for (u32 x = 0; x < 2; x++) {
                samples[y * 2 + x] = scene.get(line, u64(column) + x);
                ok[y * 2 + x] = scene.valid(samples[y * 2 + x], mask, column + x) != 0;
            }
        }
    }
    SWATH_FN u32 count() const { return u32(ok[0]) + u32(ok[1]) + u32(ok[2]) + u32(ok[3]); }
};

// Target columns from `from` on, by halves or weighted footprints: a lane computes one column of some rows.
template <class Method, class Group>
SWATH_FN void shrink_columns(const Group& group, u32 block, u32 blocks, const Args& args, u32 from) {
    Scene scene(args);
    Method::prepare(scene);
    const bool halves = args.plan == PLAN_HALVES;
    for (Deal deal(group.warp(), block, blocks, args, from, args.target.width, 1); deal.next(args);) {
        if (deal.column >= args.target.width) continue;
        scene.band = deal.band;
        Cover across{deal.column * 2, deal.column * 2 + 2, 1.0, 1.0, 2.0};
        if (!halves) across = entry<Cover>(args, args.columns, deal.column);
        if (!scene.holds_column(across.start, across.end)) continue;
        SWATH_ROLLED
        for (u32 row = deal.first; row < deal.end; row++) {
            Cover down{row * 2, row * 2 + 2, 1.0, 1.0, 2.0};
            if (!halves) down = entry<Cover>(args, args.rows, row);
            if (!scene.holds_row(down.start, down.end)) continue;
            // Plain footprints of two by two weigh all four pixels equally, whatever their weights say.
            const bool pairs = Method::HAS_PAIRS && scene.by == BY_NOTHING && (args.flags & FLAG_PAIRS) != 0;
            const bool four = halves || (pairs && across.len() == 2 && down.len() == 2);
            const u64 made = four ? Method::four(scene, Four(scene, down.start, across.start), deal.column)
                                  : Method::span(scene, across, down);
            scene.set(row_of(args.target, deal.band, row), deal.column, made);
        }
    }
}

// Whether the arguments describe a step by halves or footprints.
SWATH_FN bool sound_step(const Args& args) {
    if (args.kind > KIND_F64 || (args.plan != PLAN_HALVES && args.plan != PLAN_SPANS)) return false;
    return sound(args, word_len(args.kind), 1);
}

// A method as a kernel, for all types of samples.
template <class Method> struct Kernel {
    static constexpr u32 THREADS = shrink::THREADS;
    using Args = shrink::Args;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        if (sound_step(args)) shrink_columns<Method>(group, block, blocks, args, 0);
    }
};

}  // namespace shrink
