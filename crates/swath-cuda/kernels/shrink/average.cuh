// The mean weighted by covered area, and the nearest pixel: the methods of most overviews. Rust's `shrink::average` and
// `shrink::nearest`.
//
// If both sides halve, u8, 16-bit integers and f32 are processed 16 bytes of each source row at a time; the rest of a
// row, and all else, pixel by pixel.
#pragma once
#include "shrink/shrink.cuh"

namespace shrink {

// --------------------------------------------------------------------------------------------------- words in a run

// 16 bytes of words, in as few loads as their alignment allows.
template <class T> SWATH_FN Quad load_run(const u8* from) {
    if (aligned_to(from, 16)) return load_quad(from);
    Quad quad;
    if (sizeof(T) == 4 || aligned_to(from, 4)) {
        SWATH_UNROLL
        for (u32 k = 0; k < 4; k++) quad.words[k] = reinterpret_cast<const u32*>(from)[k];
    } else {
        SWATH_UNROLL
        for (u32 k = 0; k < 4; k++) {
            const u16* const pair = reinterpret_cast<const u16*>(from) + k * 2;
            quad.words[k] = u32(pair[0]) | u32(pair[1]) << 16;
        }
    }
    return quad;
}

// Word number `at` of them.
template <class T> SWATH_FN T word_of(const Quad& quad, u32 at) {
    constexpr u32 EACH = 4 / sizeof(T);
    return T(quad.words[at / EACH] >> (at % EACH * (8 * sizeof(T) % 32)));
}

// Eight bytes of words.
template <class T, u32 COUNT> SWATH_FN void store_run(u8* to, const T (&words)[COUNT]) {
    static_assert(sizeof(T) * COUNT == 8, "a run is eight bytes");
    u64 all = 0;
    SWATH_UNROLL
    for (u32 k = 0; k < COUNT; k++) all |= u64(words[k]) << (k * 8 * sizeof(T));
    if (aligned_to(to, 8)) {
        *reinterpret_cast<u64*>(to) = all;
    } else if (sizeof(T) == 4 || aligned_to(to, 4)) {
        reinterpret_cast<u32*>(to)[0] = u32(all);
        reinterpret_cast<u32*>(to)[1] = u32(all >> 32);
    } else {
        SWATH_UNROLL
        for (u32 k = 0; k < COUNT; k++) reinterpret_cast<T*>(to)[k] = words[k];
    }
}

// Computes the first columns of a level that halves, as many as whole runs cover; returns how many. `Method::run` turns
// the words at the same place of two rows, and their masks if there are any, into a run of the target.
template <class Method, class T, class Group>
SWATH_FN u32 halve_runs(const Group& group, u32 block, u32 blocks, const Args& args, const Method& method) {
    constexpr u32 EACH = 8 / sizeof(T);
    // Rows have an even number of columns: pairs of bytes are aligned in all of them or in none.
    if (((reinterpret_cast<u64>(args.source.data) | args.source.band_step) & 1) != 0) return 0;
    const u32 width = args.target.width / EACH * EACH;
    for (Deal deal(group.warp(), block, blocks, args, 0, width, EACH); deal.next(args);) {
        if (deal.column >= width) continue;
        const u64 from = u64(deal.column) * 2;
        SWATH_ROLLED
        for (u32 row = deal.first; row < deal.end; row++) {
            T made[EACH];
            method.run(deal, row * 2, from, made);
            store_run(row_of(args.target, deal.band, row) + u64(deal.column) * sizeof(T), made);
        }
    }
    return width;
}

// ---------------------------------------------------------------------------------------------------------- average

struct AverageMethod {
    static constexpr bool HAS_PAIRS = true;

    SWATH_FN static void prepare(Scene&) {}

    SWATH_FN static u64 four(const Scene& scene, const Four& four, u32 column) {
        const auto& s = four.samples;
        if (scene.by == BY_NOTHING) return halve(scene, s, column);
        const u32 count = four.count();
        if (count == 0) return scene.fill;
        if (scene.cls != CLASS_DOUBLE && scene.whole) {
            i32 sum = 0;
            SWATH_UNROLL
            for (u32 at = 0; at < 4; at++) sum += four.ok[at] ? i32(s[at]) : 0;
            if (scene.kind == KIND_I8) return SampleI8::quarter(sum, count, scene.avoid);
            if (scene.kind == KIND_I16) return SampleI16::quarter(sum, count, scene.avoid);
            if (scene.kind == KIND_U16) return SampleU16::quarter(u32(sum), count, scene.avoid);
            return SampleU8::quarter(u32(sum), count, scene.avoid);
        }
        double terms[4];
        SWATH_UNROLL
        for (u32 at = 0; at < 4; at++) terms[at] = four.ok[at] ? scene.wide(s[at]) : 0.0;
        return scene.store_avoiding(div(add(add(terms[0], terms[1]), add(terms[2], terms[3])), double(count)));
    }

    SWATH_FN static u64 span(const Scene& scene, const Cover& across, const Cover& down) {
        return scene.by == BY_NOTHING ? weighted(scene, across, down) : weighted_valid(scene, across, down);
    }

  private:
    SWATH_FN static u64 halve(const Scene& scene, const u64 (&s)[4], u32 column) {
        if (scene.kind == KIND_F32) {
            const bool in_lanes = scene.in_lanes(column, SampleF32::LANES);
            return SampleF32::halve(u32(s[0]), u32(s[1]), u32(s[2]), u32(s[3]), in_lanes);
        }
        if (scene.whole && scene.len < 8) {
            // Halves round away from zero: for negative numbers, one less before the shift, which rounds down.
            const long long sum = (long long)(s[0] + s[1] + s[2] + s[3]);
            return u64((sum + 2 - (sum < 0 ? 1 : 0)) >> 2);
        }
        const bool in_lanes = scene.in_lanes(column, SampleF64::LANES);
        const double a = scene.wide(s[0]), b = scene.wide(s[1]), c = scene.wide(s[2]), d = scene.wide(s[3]);
        return scene.store(mean_of_four(a, b, c, d, in_lanes));
    }

    SWATH_FN static u64 weighted(const Scene& scene, const Cover& across, const Cover& down) {
        // Floats, and integers that are computed as floats, are divided by the count before they are added, to avoid
        // overflow.
        const bool scales = scene.cls != CLASS_UNSIGNED;
        const double count = double(u64(across.len()) * down.len());
        const double scale = scales ? div(1.0, count) : 1.0;
        double sum = 0.0;
        SWATH_ROLLED
        for (u32 y = down.start; y < down.end; y++) {
            const u8* const row = scene.row(y);
            double line = -0.0;
            SWATH_ROLLED
            for (u32 x = across.start; x < across.end; x++) {
                line = add(line, mul(mul(scene.wide(scene.get(row, x)), scale), across.weight(x)));
            }
            sum = add(sum, mul(line, down.weight(y)));
        }
        const double mean = div(sum, mul(across.total, down.total));
        return scene.store_avoiding(scales ? mul(count, mean) : mean);
    }

    SWATH_FN static u64 weighted_valid(const Scene& scene, const Cover& across, const Cover& down) {
        double sum = 0.0, weight = 0.0;
        bool some = false;
        SWATH_ROLLED
        for (u32 y = down.start; y < down.end; y++) {
            const u8* const row = scene.row(y);
            const u8* const mask = scene.mask(y);
            double line = 0.0, line_weight = 0.0;
            SWATH_ROLLED
            for (u32 x = across.start; x < across.end; x++) {
                const u64 sample = scene.get(row, x);
                if (scene.valid(sample, mask, x) == 0) continue;
                const double share = across.weight(x);
                line = add(line, mul(scene.wide(sample), share));
                line_weight = add(line_weight, share);
                some = true;
            }
            const double share = down.weight(y);
            sum = add(sum, mul(line, share));
            weight = add(weight, mul(line_weight, share));
        }
        return some ? scene.store_avoiding(div(sum, weight)) : scene.fill;
    }
};

// Runs of averages.
template <class K> struct AverageRuns {
    using Raw = typename K::Raw;
    static constexpr u32 EACH = 8 / sizeof(Raw);
    const Args& args;
    Avoid avoid;
    u32 by;

    SWATH_FN explicit AverageRuns(const Args& args) : args(args), avoid{args.avoid, args.instead}, by(Scene(args).by) {}

    SWATH_FN void run(const Deal& deal, u32 row, u64 from, Raw (&made)[EACH]) const {
        const Quad top = load_run<Raw>(row_of(args.source, deal.band, row) + from * sizeof(Raw));
        const Quad bottom = load_run<Raw>(row_of(args.source, deal.band, row + 1) + from * sizeof(Raw));
        if (by == BY_NOTHING) return plain(deal, top, bottom, made);
        // A bit for each valid pixel of both rows.
        u32 upper = 0, lower = 0;
        if (by == BY_MASK) {
            upper = mask_bits(row_of(args.valid, 0, row) + from);
            lower = mask_bits(row_of(args.valid, 0, row + 1) + from);
        } else {
            const Raw nodata = Raw(args.nodata);
            SWATH_UNROLL
            for (u32 at = 0; at < EACH * 2; at++) {
                upper |= u32(!K::same(word_of<Raw>(top, at), nodata)) << at;
                lower |= u32(!K::same(word_of<Raw>(bottom, at), nodata)) << at;
            }
        }
        SWATH_UNROLL
        for (u32 k = 0; k < EACH; k++) {
            typename K::Sum terms[4];
            u32 count = 0;
            SWATH_UNROLL
            for (u32 at = 0; at < 4; at++) {
                const u32 place = k * 2 + at % 2;
                const bool ok = ((at < 2 ? upper : lower) >> place & 1) != 0;
                terms[at] = ok ? K::term(word_of<Raw>(at < 2 ? top : bottom, place)) : typename K::Sum(0);
                count += u32(ok);
            }
            const auto sum = plus(plus(terms[0], terms[1]), plus(terms[2], terms[3]));
            made[k] = count == 0 ? Raw(args.fill) : K::quarter(sum, count, avoid);
        }
    }

  private:
    SWATH_FN static u32 plus(u32 a, u32 b) { return a + b; }
    SWATH_FN static i32 plus(i32 a, i32 b) { return a + b; }
    SWATH_FN static double plus(double a, double b) { return add(a, b); }

    SWATH_FN void plain(const Deal& deal, const Quad& top, const Quad& bottom, Raw (&made)[EACH]) const {
        if constexpr (sizeof(Raw) == 1) {
            // Neighbouring bytes are added in the halves of a word.
            SWATH_UNROLL
            for (u32 k = 0; k < EACH; k += 2) {
                const u32 mean = (pairs(top.words[k / 2]) + pairs(bottom.words[k / 2]) + 0x00020002) >> 2;
                made[k] = Raw(mean);
                made[k + 1] = Raw(mean >> 16);
            }
        } else {
            SWATH_UNROLL
            for (u32 k = 0; k < EACH; k++) {
                const bool in_lanes = deal.column + k < (args.target.width & ~(K::LANES - 1));
                made[k] = K::halve(word_of<Raw>(top, k * 2), word_of<Raw>(top, k * 2 + 1), word_of<Raw>(bottom, k * 2),
                                   word_of<Raw>(bottom, k * 2 + 1), in_lanes);
            }
        }
    }

    SWATH_FN static u32 pairs(u32 bytes) { return (bytes & 0x00ff00ff) + (bytes >> 8 & 0x00ff00ff); }

    SWATH_FN static u32 mask_bits(const u8* mask) {
        u32 bits = 0;
        if (EACH * 2 % 4 == 0 && aligned_to(mask, 4)) {
            SWATH_UNROLL
            for (u32 k = 0; k < EACH * 2; k += 4) {
                const u32 word = *reinterpret_cast<const u32*>(mask + k);
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) bits |= u32((word >> part * 8 & 0xff) != 0) << (k + part);
            }
            return bits;
        }
        SWATH_ROLLED
        for (u32 k = 0; k < EACH * 2; k++) bits |= u32(mask[k] != 0) << k;
        return bits;
    }
};

struct Average {
    static constexpr u32 THREADS = shrink::THREADS;
    using Args = shrink::Args;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        if (!sound_step(args)) return;
        u32 done = 0;
        if (args.plan == PLAN_HALVES) {
            switch (args.kind) {
            case KIND_U8: done = runs<SampleU8>(group, block, blocks, args); break;
            case KIND_U16: done = runs<SampleU16>(group, block, blocks, args); break;
            case KIND_I16: done = runs<SampleI16>(group, block, blocks, args); break;
            case KIND_F32: done = runs<SampleF32>(group, block, blocks, args); break;
            default: break;
            }
        }
        shrink_columns<AverageMethod>(group, block, blocks, args, done);
    }

  private:
    template <class K, class Group>
    SWATH_FN static u32 runs(const Group& group, u32 block, u32 blocks, const Args& args) {
        return halve_runs<AverageRuns<K>, typename K::Raw>(group, block, blocks, args, AverageRuns<K>(args));
    }
};

// ---------------------------------------------------------------------------------------------------------- nearest

template <class T> struct NearestRuns {
    const Args& args;

    SWATH_FN void run(const Deal& deal, u32 row, u64 from, T (&made)[8 / sizeof(T)]) const {
        const Quad quad = load_run<T>(row_of(args.source, deal.band, row) + from * sizeof(T));
        SWATH_UNROLL
        for (u32 k = 0; k < 8 / sizeof(T); k++) made[k] = word_of<T>(quad, k * 2);
    }
};

// Only the size of a sample matters: `kind` is its number of bytes.
struct Nearest {
    static constexpr u32 THREADS = shrink::THREADS;
    using Args = shrink::Args;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u32 size = args.kind, word = min_of(size, 8u);
        if (size == 0 || size > 16 || (size & (size - 1)) != 0 || !sound(args, word, size / word)) return;
        const bool halves = args.plan == PLAN_HALVES;
        if (!halves && args.plan != PLAN_PICKS) return;
        u32 done = 0;
        if (halves && size == 1) done = runs<u8>(group, block, blocks, args);
        if (halves && size == 2) done = runs<u16>(group, block, blocks, args);
        if (halves && size == 4) done = runs<u32>(group, block, blocks, args);
        for (Deal deal(group.warp(), block, blocks, args, done, args.target.width, 1); deal.next(args);) {
            if (deal.column >= args.target.width) continue;
            const u32 x = halves ? deal.column * 2 : entry<u32>(args, args.columns, deal.column);
            if (x >= args.source.width) continue;
            SWATH_ROLLED
            for (u32 row = deal.first; row < deal.end; row++) {
                const u32 y = halves ? row * 2 : entry<u32>(args, args.rows, row);
                if (y >= args.source_height) continue;
                const u8* const from = row_of(args.source, deal.band, y) + u64(x) * size;
                copy(row_of(args.target, deal.band, row) + u64(deal.column) * size, from, size);
            }
        }
    }

  private:
    template <class T, class Group>
    SWATH_FN static u32 runs(const Group& group, u32 block, u32 blocks, const Args& args) {
        return halve_runs<NearestRuns<T>, T>(group, block, blocks, args, NearestRuns<T>{args});
    }

    SWATH_FN static void copy(u8* to, const u8* from, u32 size) {
        switch (size) {
        case 1: *to = *from; return;
        case 2: *reinterpret_cast<u16*>(to) = *reinterpret_cast<const u16*>(from); return;
        case 4: *reinterpret_cast<u32*>(to) = *reinterpret_cast<const u32*>(from); return;
        default: {
            for (u32 at = 0; at < size; at += 8) {
                *reinterpret_cast<u64*>(to + at) = *reinterpret_cast<const u64*>(from + at);
            }
        }
        }
    }
};

}  // namespace shrink
