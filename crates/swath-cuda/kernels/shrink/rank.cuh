// The smallest, largest, median or most frequent of the pixels that an average would cover; each pixel counts fully.
// Rust's `shrink::rank` and `shrink::mode`.
#pragma once
#include "shrink/shrink.cuh"

namespace shrink {

// The most pixels of a footprint that are compared with each other: the cost grows with the square of their number.
constexpr u32 MOST_COMPARED = 256;

// The pixels of a footprint, in reading order.
struct Walk {
    const Scene& scene;
    const Cover& across;
    const Cover& down;
    u32 x;
    u32 y;
    const u8* row;
    const u8* mask;
    u64 sample;

    SWATH_FN Walk(const Scene& scene, const Cover& across, const Cover& down)
        : scene(scene), across(across), down(down), x(across.start), y(down.start), row(scene.row(y)),
          mask(scene.mask(y)), sample(0) {}

    // Moves on to the next valid one.
    SWATH_FN bool next() {
        SWATH_ROLLED
        for (;;) {
            if (x == across.end) {
                if (++y == down.end) return false;
                x = across.start;
                row = scene.row(y);
                mask = scene.mask(y);
            }
            sample = scene.get(row, x);
            if (scene.valid(sample, mask, x++) != 0) return true;
        }
    }
};

template <bool LARGEST> struct ExtremeMethod {
    static constexpr bool HAS_PAIRS = false;

    SWATH_FN static void prepare(Scene&) {}

    SWATH_FN static u64 four(const Scene& scene, const Four& four, u32) {
        Found found(scene.fill);
        SWATH_UNROLL
        for (u32 at = 0; at < 4; at++) {
            if (four.ok[at]) found.take(scene, four.samples[at]);
        }
        return found.result();
    }

    SWATH_FN static u64 span(const Scene& scene, const Cover& across, const Cover& down) {
        Found found(scene.fill);
        SWATH_ROLLED
        for (Walk walk(scene, across, down); walk.next();) found.take(scene, walk.sample);
        return found.result();
    }

  private:
    struct Found {
        u64 best;
        u64 lost;  // a NaN, if there is nothing else
        bool some;

        SWATH_FN explicit Found(u64 fill) : best(fill), lost(fill), some(false) {}
        SWATH_FN void take(const Scene& scene, u64 sample) {
            if (scene.no_number(sample)) {
                lost = sample;
            } else if (!some || (LARGEST ? scene.less(best, sample) : scene.less(sample, best))) {
                best = sample;
                some = true;
            }
        }
        SWATH_FN u64 result() const { return some ? best : lost; }
    };
};

struct MedianMethod {
    static constexpr bool HAS_PAIRS = false;

    SWATH_FN static void prepare(Scene&) {}

    SWATH_FN static u64 four(const Scene& scene, const Four& four, u32) {
        const auto& s = four.samples;
        u64 lost = scene.fill;
        bool counts[4];
        u32 count = 0;
        SWATH_UNROLL
        for (u32 at = 0; at < 4; at++) {
            const bool none = scene.no_number(s[at]);
            counts[at] = four.ok[at] && !none;
            if (four.ok[at] && none) lost = s[at];
            count += u32(counts[at]);
        }
        if (count == 4) {
            const u64 low = high_of(scene, low_of(scene, s[0], s[1]), low_of(scene, s[2], s[3]));
            const u64 high = low_of(scene, high_of(scene, s[0], s[1]), high_of(scene, s[2], s[3]));
            return between(scene, low_of(scene, low, high), high_of(scene, low, high));
        }
        u64 low = scene.fill, high = scene.fill;
        SWATH_UNROLL
        for (u32 at = 0; at < 4; at++) {
            u32 rank = 0;
            SWATH_UNROLL
            for (u32 other = 0; other < 4; other++) {
                const bool before = other < at ? !scene.less(s[at], s[other]) : scene.less(s[other], s[at]);
                rank += u32(counts[other] && before);
            }
            if (counts[at] && rank == (count - 1) / 2) low = s[at];
            if (counts[at] && rank == count / 2) high = s[at];
        }
        return middle(scene, count, low, high, lost);
    }

    SWATH_FN static u64 span(const Scene& scene, const Cover& across, const Cover& down) {
        if (u64(across.len()) * down.len() > MOST_COMPARED) return scene.fill;
        u64 lost = scene.fill, low = scene.fill, high = scene.fill;
        u32 count = 0;
        SWATH_ROLLED
        for (Walk walk(scene, across, down); walk.next();) {
            if (scene.no_number(walk.sample)) lost = walk.sample;
            else count++;
        }
        // Of equal values, the first in reading order comes first: two zeros may differ in sign.
        u32 at = 0;
        SWATH_ROLLED
        for (Walk one(scene, across, down); one.next();) {
            if (scene.no_number(one.sample)) continue;
            u32 rank = 0, index = 0;
            SWATH_ROLLED
            for (Walk other(scene, across, down); other.next();) {
                if (scene.no_number(other.sample)) continue;
                rank += u32(index < at ? !scene.less(one.sample, other.sample) : scene.less(other.sample, one.sample));
                index++;
            }
            if (rank == (count - 1) / 2) low = one.sample;
            if (rank == count / 2) high = one.sample;
            at++;
        }
        return middle(scene, count, low, high, lost);
    }

  private:
    SWATH_FN static u64 low_of(const Scene& scene, u64 a, u64 b) { return scene.less(b, a) ? b : a; }
    SWATH_FN static u64 high_of(const Scene& scene, u64 a, u64 b) { return scene.less(b, a) ? a : b; }

    // The median of two: the lower one for integers, so that it is a value of the data; for floats the mean, moved off
    // nodata.
    SWATH_FN static u64 between(const Scene& scene, u64 low, u64 high) {
        // Halved first, since the sum could overflow.
        return scene.whole ? low : scene.store_avoiding(add(mul(scene.wide(low), 0.5), mul(scene.wide(high), 0.5)));
    }

    SWATH_FN static u64 middle(const Scene& scene, u32 count, u64 low, u64 high, u64 lost) {
        if (count == 0) return lost;
        return count % 2 == 0 ? between(scene, low, high) : low;
    }
};

// Whether two samples count as one value. All NaNs are one value, and so are both zeros.
SWATH_FN bool alike(const Scene& scene, u64 a, u64 b) {
    if (scene.whole) return a == b;
    const double x = scene.wide(a), y = scene.wide(b);
    return x == y || (is_nan(x) && is_nan(y));
}

struct ModeMethod {
    static constexpr bool HAS_PAIRS = false;

    SWATH_FN static void prepare(Scene& scene) {
        // GDAL counts bytes in a histogram that ignores the mask; only nodata excludes a byte.
        if (scene.kind == KIND_U8) scene.by = (scene.args.flags & FLAG_NODATA) != 0 ? BY_NODATA : BY_NOTHING;
    }

    // The value of the first pair that is complete in reading order; else the first pixel.
    SWATH_FN static u64 four(const Scene& scene, const Four& four, u32) {
        const u64 a = four.samples[0], b = four.samples[1], c = four.samples[2], d = four.samples[3];
        const bool p = four.ok[0], q = four.ok[1], r = four.ok[2], s = four.ok[3];
        u64 found = p ? a : q ? b : r ? c : s ? d : scene.fill;
        if (r && s && alike(scene, c, d)) found = c;
        if (q && s && alike(scene, b, d)) found = b;
        if (p && s && alike(scene, a, d)) found = a;
        if (q && r && alike(scene, b, c)) found = b;
        return p && ((q && alike(scene, a, b)) || (r && alike(scene, a, c))) ? a : found;
    }

    // Of equally frequent values, the one that reached the count first in reading order.
    SWATH_FN static u64 span(const Scene& scene, const Cover& across, const Cover& down) {
        if (u64(across.len()) * down.len() > MOST_COMPARED) return scene.fill;
        u64 best = scene.fill;
        u32 most = 0;
        SWATH_ROLLED
        for (Walk one(scene, across, down); one.next();) {
            u64 first = one.sample;
            u32 times = 0;
            SWATH_ROLLED
            for (Walk other(scene, across, down); other.next();) {
                if (alike(scene, other.sample, one.sample)) {
                    if (times == 0) first = other.sample;
                    times++;
                }
                if (other.x == one.x && other.y == one.y) break;
            }
            if (times > most) {
                most = times;
                best = first;
            }
        }
        return best;
    }
};

using Min = Kernel<ExtremeMethod<false>>;
using Max = Kernel<ExtremeMethod<true>>;
using Median = Kernel<MedianMethod>;
using Mode = Kernel<ModeMethod>;

}  // namespace shrink
