// Complex samples are shrunk part by part, in single precision, over whole pixels, without regard to nodata. Rust's
// `shrink::complex`.
#pragma once
#include "shrink/shrink.cuh"
#include "shrink/rank.cuh"

namespace shrink {

// A method as a kernel for complex samples; `kind` is that of one part.
template <class Method> struct ComplexKernel {
    static constexpr u32 THREADS = shrink::THREADS;
    using Args = shrink::Args;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u32 kind = args.kind;
        const bool known = kind == KIND_I16 || kind == KIND_I32 || (kind >= KIND_F16 && kind <= KIND_F64);
        if (!known || args.plan == PLAN_PICKS || args.plan >= PLAN_TAPS || !sound(args, word_len(kind), 2)) return;
        Scene scene(args);
        for (Deal deal(group.warp(), block, blocks, args, 0, args.target.width, 1); deal.next(args);) {
            if (deal.column >= args.target.width) continue;
            scene.band = deal.band;
            const Range across = range(args, args.columns, deal.column);
            if (!scene.holds_column(across.start, across.end)) continue;
            SWATH_ROLLED
            for (u32 row = deal.first; row < deal.end; row++) {
                const Range down = range(args, args.rows, row);
                if (!scene.holds_row(down.start, down.end)) continue;
                u64 made[2];
                Method::pixel(scene, across, down, made);
                u8* const out = row_of(args.target, deal.band, row);
                scene.set(out, u64(deal.column) * 2, made[0]);
                scene.set(out, u64(deal.column) * 2 + 1, made[1]);
            }
        }
    }

  private:
    SWATH_FN static Range range(const Args& args, u64 table, u32 at) {
        if (args.plan == PLAN_HALVES) return Range{at * 2, at * 2 + 2};
        if (args.plan == PLAN_WHOLE) return entry<Range>(args, table, at);
        const Cover& cover = entry<Cover>(args, table, at);
        return Range{cover.start, cover.end};
    }
};

template <bool SQUARES> struct ComplexMeanMethod {
    SWATH_FN static void pixel(const Scene& scene, const Range& across, const Range& down, u64 (&made)[2]) {
        double real = 0.0, imaginary = 0.0, count = 0.0;
        SWATH_ROLLED
        for (u32 y = down.start; y < down.end; y++) {
            const u8* const row = scene.row(y);
            SWATH_ROLLED
            for (u32 x = across.start; x < across.end; x++) {
                real = add(real, part(scene, scene.get(row, u64(x) * 2)));
                imaginary = add(imaginary, part(scene, scene.get(row, u64(x) * 2 + 1)));
                count = add(count, 1.0);
            }
        }
        made[0] = finish(scene, real, count);
        made[1] = finish(scene, imaginary, count);
    }

  private:
    SWATH_FN static double part(const Scene& scene, u64 word) {
        const double value = double(float(scene.wide(word)));
        return SQUARES ? mul(value, value) : value;
    }

    SWATH_FN static u64 finish(const Scene& scene, double sum, double count) {
        const double mean = div(sum, count);
        return scene.store(double(float(SQUARES ? root(mean) : mean)));
    }
};

// A pair of parts counts as one value; only a mask excludes it.
struct ComplexModeMethod {
    SWATH_FN static void pixel(const Scene& scene, const Range& across, const Range& down, u64 (&made)[2]) {
        made[0] = made[1] = scene.fill;
        const u64 width = across.end - across.start, count = width * (down.end - down.start);
        if (count > MOST_COMPARED) return;
        u32 most = 0;
        SWATH_ROLLED
        for (u32 one = 0; one < count; one++) {
            u64 a, b;
            if (!pair(scene, across, down, one, a, b)) continue;
            u64 first = a, second = b;
            u32 times = 0;
            SWATH_ROLLED
            for (u32 other = 0; other <= one; other++) {
                u64 c, d;
                if (!pair(scene, across, down, other, c, d) || !alike(scene, c, a) || !alike(scene, d, b)) continue;
                if (times == 0) first = c, second = d;
                times++;
            }
            if (times > most) {
                most = times;
                made[0] = first;
                made[1] = second;
            }
        }
    }

  private:
    // Pixel number `at` of a footprint; false if it is not valid.
    SWATH_FN static bool pair(const Scene& scene, const Range& across, const Range& down, u32 at, u64& a,
                              u64& b) {
        const u32 width = across.end - across.start, y = down.start + at / width, x = across.start + at % width;
        if (scene.by == BY_MASK && scene.mask(y)[x] == 0) return false;
        const u8* const row = scene.row(y);
        a = scene.get(row, u64(x) * 2);
        b = scene.get(row, u64(x) * 2 + 1);
        return true;
    }
};

using ComplexAverage = ComplexKernel<ComplexMeanMethod<false>>;
using ComplexRms = ComplexKernel<ComplexMeanMethod<true>>;
using ComplexMode = ComplexKernel<ComplexModeMethod>;

}  // namespace shrink
