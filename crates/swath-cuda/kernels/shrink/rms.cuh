// The root of the mean of squares, weighted by covered area. Integers take the root whose square is closest. Rust's
// `shrink::rms`.
#pragma once
#include "shrink/shrink.cuh"

namespace shrink {

struct RmsMethod {
    static constexpr bool HAS_PAIRS = true;

    SWATH_FN static void prepare(Scene&) {}

    SWATH_FN static u64 four(const Scene& scene, const Four& four, u32 column) {
        const auto& s = four.samples;
        if (scene.by == BY_NOTHING) return plain(scene, s, scene.in_lanes(column, 4));
        double terms[4];
        SWATH_UNROLL
        for (u32 at = 0; at < 4; at++) terms[at] = four.ok[at] ? square(scene.wide(s[at])) : 0.0;
        const u32 count = four.count();
        const double sum = add(add(terms[0], terms[1]), add(terms[2], terms[3]));
        return count == 0 ? scene.fill : finish(scene, div(sum, double(count)), 1.0);
    }

    SWATH_FN static u64 span(const Scene& scene, const Cover& across, const Cover& down) {
        return scene.by == BY_NOTHING ? weighted(scene, across, down) : weighted_valid(scene, across, down);
    }

  private:
    template <class F> SWATH_FN static F square(F value) { return mul(value, value); }

    SWATH_FN static double whole_root(double mean) {
        const double low = whole_part(root(mean));
        const double next = add(low, 1.0);
        return add(mul(mul(2.0, low), next), 1.0) < mul(2.0, mean) ? next : low;
    }

    // The word for the root of a mean square; integers are rounded by their squares.
    SWATH_FN static u64 finish(const Scene& scene, double mean, double scale) {
        return scene.store_avoiding(scene.cls == CLASS_UNSIGNED ? whole_root(mean) : mul(scale, root(mean)));
    }

    // Four pixels of weight one, with GDAL's precision and scaling for this case.
    SWATH_FN static u64 plain(const Scene& scene, const u64 (&s)[4], bool in_lanes) {
        const double a = scene.wide(s[0]), b = scene.wide(s[1]), c = scene.wide(s[2]), d = scene.wide(s[3]);
        if (scene.cls == CLASS_UNSIGNED) {
            const double sum = add(add(square(a), square(b)), add(square(c), square(d)));
            return scene.store(whole_root(mul(sum, 0.25)));
        }
        if (scene.cls == CLASS_SINGLE) {
            const float e = float(size_of_float(a)), f = float(size_of_float(b));
            const float g = float(size_of_float(c)), h = float(size_of_float(d));
            const float peak = larger(larger(e, f), larger(g, h));
            if (peak > FLOAT_MAX) return scene.store(double(peak));
            const float scale = peak == 0.0f ? 0.0f : div(1.0f, peak);
            const float i = square(mul(e, scale)), j = square(mul(f, scale));
            const float k = square(mul(g, scale)), l = square(mul(h, scale));
            const float sum = in_lanes ? add(add(i, j), add(k, l)) : add(add(add(i, j), k), l);
            return scene.store(double(mul(peak, root(mul(sum, 0.25f)))));
        }
        const double e = size_of_float(a), f = size_of_float(b), g = size_of_float(c), h = size_of_float(d);
        const double peak = larger(larger(e, f), larger(g, h));
        if (peak == 0.0) return scene.store(0.0);
        if (peak > DOUBLE_MAX) return scene.store(size_of_float(add(add(add(a, b), c), d)));
        const double scale = div(1.0, peak);
        const double sum = add(add(add(square(mul(e, scale)), square(mul(f, scale))), square(mul(g, scale))),
                               square(mul(h, scale)));
        return scene.store(mul(peak, root(mul(0.25, sum))));
    }

    SWATH_FN static u64 weighted(const Scene& scene, const Cover& across, const Cover& down) {
        double peak = 0.0;
        if (scene.cls != CLASS_UNSIGNED) {
            SWATH_ROLLED
            for (u32 y = down.start; y < down.end; y++) {
                const u8* const row = scene.row(y);
                SWATH_ROLLED
                for (u32 x = across.start; x < across.end; x++) {
                    peak = larger(peak, size_of_float(scene.wide(scene.get(row, x))));
                }
            }
        }
        // Squares of large numbers would overflow, so they are scaled by the largest.
        const double scale = peak > 0.0 && !is_infinite(peak) ? div(1.0, peak) : 1.0;
        double sum = 0.0;
        SWATH_ROLLED
        for (u32 y = down.start; y < down.end; y++) {
            const u8* const row = scene.row(y);
            double line = -0.0;
            SWATH_ROLLED
            for (u32 x = across.start; x < across.end; x++) {
                line = add(line, mul(square(mul(scene.wide(scene.get(row, x)), scale)), across.weight(x)));
            }
            sum = add(sum, mul(line, down.weight(y)));
        }
        return finish(scene, div(sum, mul(across.total, down.total)), peak);
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
                line = add(line, mul(square(scene.wide(sample)), share));
                line_weight = add(line_weight, share);
                some = true;
            }
            const double share = down.weight(y);
            sum = add(sum, mul(line, share));
            weight = add(weight, mul(line_weight, share));
        }
        return some ? finish(scene, div(sum, weight), 1.0) : scene.fill;
    }
};

using Rms = Kernel<RmsMethod>;

}  // namespace shrink
