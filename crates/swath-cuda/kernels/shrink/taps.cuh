// Filters that reach beyond the pixel they make: bilinear, cubic, Lanczos. Rust's `shrink::convolve`.
//
// The CPU filters every row across once and then sums rows down. Here each lane filters the rows it needs itself: a row
// is filtered again for every target row that it reaches, and nothing has to be kept. The order of additions is the
// CPU's.
#pragma once
#include "shrink/shrink.cuh"

namespace shrink {

struct Taps {
    static constexpr u32 THREADS = shrink::THREADS;
    using Args = shrink::Args;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        if (args.kind > KIND_F64 || args.plan != PLAN_TAPS || !sound(args, word_len(args.kind), 1)) return;
        Scene scene(args);
        for (Deal deal(group.warp(), block, blocks, args, 0, args.target.width, 1); deal.next(args);) {
            if (deal.column >= args.target.width) continue;
            scene.band = deal.band;
            const Window across(args, args.columns, deal.column);
            if (!across.within(args.source.width)) continue;
            SWATH_ROLLED
            for (u32 row = deal.first; row < deal.end; row++) {
                const Window down(args, args.rows, row);
                if (!down.within(args.source_height)) continue;
                const bool all = scene.by == BY_NOTHING;
                const u64 made = all ? plain(scene, across, down, deal.column) : masked(scene, across, down);
                scene.set(row_of(args.target, deal.band, row), deal.column, made);
            }
        }
    }

  private:
    // A tap with its weights.
    struct Window {
        u32 start;
        u32 count;
        const double* weights;

        SWATH_FN Window(const Args& args, u64 table, u32 at) {
            const Tap tap = entry<Tap>(args, table, at);
            start = tap.start;
            count = tap.count;
            const bool held = tap.weights <= args.weights_len && tap.count <= args.weights_len - tap.weights;
            weights = held ? reinterpret_cast<const double*>(args.tables + args.weights) + tap.weights : nullptr;
        }
        SWATH_FN bool within(u32 pixels) const {
            return weights != nullptr && count > 0 && count <= pixels && start <= pixels - count;
        }
    };

    // The result of a row, and whether anything in it counts.
    struct Filtered {
        double value;
        bool ok;
    };

    SWATH_FN static bool dips(const Args& args) { return (args.flags & FLAG_NEGATIVE) != 0; }

    // ---------------------------------------------------------------------------------------------------- all valid

    SWATH_FN static u64 plain(const Scene& scene, const Window& across, const Window& down, u32 column) {
        const bool negative = dips(scene.args);
        const bool single = scene.cls == CLASS_UNSIGNED || (scene.cls == CLASS_SINGLE && !negative);
        // Eight columns at a time are added in order; the last columns, and all if results are scaled, in pairs.
        const u32 apart = single && scene.in_lanes(column, 8) ? 0 : 2;
        const u32 fours = down.count & ~3u;
        double one = 0.0, two = 0.0;
        SWATH_ROLLED
        for (u32 nth = 0; nth < down.count; nth++) {
            const double term = mul(filtered(scene, across, down.start + nth), down.weights[nth]);
            if (nth < fours && (nth & apart) != 0) two = add(two, term);
            else one = add(one, term);
        }
        double sum = add(one, two);
        if (!scene.whole && !single) {
            const double most = scene.cls == CLASS_SINGLE ? double(FLOAT_MAX) : DOUBLE_MAX;
            if (is_nan(sum)) {
                if (negative) sum = one_sided_rows(scene, across, down, sum);
            } else if (!is_infinite(sum)) {
                sum = clamped(sum, -most, most);
            }
        }
        return finish(scene, sum);
    }

    // Sums side by side, as vectors form them.
    struct Lanes {
        double a, b, c, d;

        SWATH_FN Lanes() : a(0.0), b(0.0), c(0.0), d(0.0) {}
        SWATH_FN void put(u32 lane, double term) {
            if (lane == 0) a = add(a, term);
            if (lane == 1) b = add(b, term);
            if (lane == 2) c = add(c, term);
            if (lane == 3) d = add(d, term);
        }
        SWATH_FN double sum() const { return add(add(a, c), add(b, d)); }
    };

    // A row, all of it valid. Small unsigned integers: four lanes, then the rest one by one. Others: two sums of
    // alternating pairs, the rest added to the first.
    SWATH_FN static double filtered(const Scene& scene, const Window& across, u32 y) {
        const u8* const samples = scene.row(y) + u64(across.start) * scene.len;
        const bool in_lanes = scene.cls == CLASS_UNSIGNED;
        const bool fours = !in_lanes || (scene.args.flags & FLAG_NARROW) != 0 || across.count == 4;
        const u32 whole = across.count & ~(fours ? 3u : 7u);
        Lanes lanes;
        SWATH_ROLLED
        for (u32 at = 0; at < whole; at++) {
            lanes.put(in_lanes ? at & 3 : at >> 1 & 1, term(scene, samples, across, at));
        }
        double sum = in_lanes ? lanes.sum() : lanes.a;
        SWATH_ROLLED
        for (u32 at = whole; at < across.count; at++) sum = add(sum, term(scene, samples, across, at));
        if (!in_lanes) sum = add(sum, lanes.b);
        return is_nan(sum) && dips(scene.args) ? one_sided(scene, samples, across, sum) : sum;
    }

    SWATH_FN static double term(const Scene& scene, const u8* samples, const Window& across, u32 at) {
        return mul(scene.wide(scene.get(samples, at)), across.weights[at]);
    }

    // Infinities with weights of both signs make NaN; if all samples are on one side, the first stands for them.
    struct Side {
        double first;
        bool one;

        SWATH_FN Side() : first(0.0), one(true) {}
        SWATH_FN void take(u32 nth, double value) {
            if (nth == 0) first = value;
            one = one && !is_nan(value) && (value >= 0.0) == (first >= 0.0);
        }
    };

    SWATH_FN static double one_sided(const Scene& scene, const u8* samples, const Window& across, double sum) {
        Side side;
        SWATH_ROLLED
        for (u32 at = 0; at < across.count && side.one; at++) side.take(at, scene.wide(scene.get(samples, at)));
        return side.one ? side.first : sum;
    }

    SWATH_FN static double one_sided_rows(const Scene& scene, const Window& across, const Window& down, double sum) {
        Side side;
        SWATH_ROLLED
        for (u32 nth = 0; nth < down.count && side.one; nth++) {
            side.take(nth, filtered(scene, across, down.start + nth));
        }
        return side.one ? side.first : sum;
    }

    // ------------------------------------------------------------------------------------------------- some invalid

    SWATH_FN static u64 masked(const Scene& scene, const Window& across, const Window& down) {
        // Filters with negative weights need half of their pixels in one run, or they would overshoot.
        const u32 needed = dips(scene.args) ? down.count / 2 : 0;
        double sum = 0.0, weight = 0.0;
        u32 run = 0, longest = 0;
        SWATH_ROLLED
        for (u32 nth = 0; nth < down.count; nth++) {
            const Filtered row = filtered_valid(scene, across, down.start + nth);
            const double share = mul(down.weights[nth], row.ok ? 1.0 : 0.0);
            sum = add(sum, mul(row.value, share));
            weight = add(weight, share);
            run = row.ok ? run + 1 : 0;
            longest = max_of(longest, run);
        }
        return weight > 0.0 && longest >= needed ? finish(scene, div(sum, weight)) : scene.fill;
    }

    SWATH_FN static Filtered filtered_valid(const Scene& scene, const Window& across, u32 y) {
        const u8* const samples = scene.row(y) + u64(across.start) * scene.len;
        const u8* const mask = scene.mask(y);
        if (dips(scene.args)) {
            u32 run = 0, longest = 0;
            SWATH_ROLLED
            for (u32 at = 0; at < across.count; at++) {
                run = scene.valid(scene.get(samples, at), mask, across.start + at) != 0 ? run + 1 : 0;
                longest = max_of(longest, run);
            }
            if (longest < across.count / 2) return Filtered{0.0, false};
        }
        const bool in_lanes = scene.cls == CLASS_UNSIGNED;
        // NaN spreads if it is multiplied by zero, and does not if it is left out.
        const bool leave_out = !in_lanes && (scene.args.flags & FLAG_SPREAD) == 0;
        const u32 whole = across.count & ~3u;
        Lanes sums, weights;
        double sum = 0.0, weight = 0.0, four = -0.0;
        SWATH_ROLLED
        for (u32 at = 0; at < across.count; at++) {
            const u64 sample = scene.get(samples, at);
            const u8 valid = scene.valid(sample, mask, across.start + at);
            const double share = mul(across.weights[at], double(valid));
            const double part = valid == 0 && leave_out ? 0.0 : mul(scene.wide(sample), share);
            if (in_lanes && at < whole) {
                sums.put(at & 3, part);
                weights.put(at & 3, share);
                if (at + 1 == whole) {
                    sum = sums.sum();
                    weight = weights.sum();
                }
                continue;
            }
            sum = add(sum, part);
            if (at >= whole) {
                weight = add(weight, share);
                continue;
            }
            // The weights of four are added among themselves first.
            four = add(four, share);
            if ((at & 3) == 3) {
                weight = add(weight, four);
                four = -0.0;
            }
        }
        return weight > 0.0 ? Filtered{div(sum, weight), true} : Filtered{0.0, false};
    }

    // --------------------------------------------------------------------------------------------------- the result

    SWATH_FN static double clamped(double value, double low, double high) {
        return value < low ? low : value > high ? high : value;
    }

    SWATH_FN static u64 finish(const Scene& scene, double sum) {
        const double value = scene.cls == CLASS_DOUBLE ? sum : double(float(sum));
        if ((scene.args.flags & FLAG_NODATA) == 0) return scene.store(value);
        // Filters overshoot: clamp first, since nodata may be at the end of the range.
        const double held = clamped(value, scene.low(), scene.high());
        const double near = scene.whole ? rounded(held) : held;
        return scene.store(near == scene.avoid.value ? scene.avoid.instead : held);
    }
};

}  // namespace shrink
