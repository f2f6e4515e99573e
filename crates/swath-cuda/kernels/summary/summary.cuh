// Computes the statistics of areas of a raster, bit for bit those of the CPU (swath/src/statistics/summary.rs).
//
// The CPU cuts the pixels of an area, row by row, into chunks. It moves the data of a chunk together, sums up the doubles
// in eight sums side by side, and their squared distances from the chunk's mean in the same way. It merges the chunks of
// an area one after the other. Sums of floats depend on their order, so each chunk is summed in that order here too, many
// chunks at once. A second kernel merges them.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"
#include "summary/number.cuh"

// Statistics of some samples. Extremes are bits of a `Number`, and mean nothing where no sample is valid.
struct Summary {
    u64 valid;
    u64 missing;
    u64 min;
    u64 max;
    double sum;
    double lost;    // the rounding error of `sum`
    double spread;  // sum of squared distances from the mean
};

// A rectangle of the raster.
struct SummaryArea {
    u32 x, y, width, height;
    u64 first;  // number of its first chunk; areas are in this order
};

// Which samples of a band are data. A sample equal to `nodata` is none; of complex samples whose nodata value is shorter
// than a sample, one that begins with its bytes.
struct SummaryRule {
    u8 nodata[16];
    u32 nodata_len;  // 0 where there is none
    u32 masked;      // whether pixels whose mask is 0 are no data
};

// The raster has `bands` planes of height * width samples, the mask one of `mask_len` bytes a pixel.
struct SummaryArgs {
    const u8* samples;
    u64 samples_len;
    const u8* mask;
    u64 mask_bytes;
    const SummaryArea* areas;
    const SummaryRule* rules;  // one for each band
    Summary* parts;            // parts[band * chunks + chunk]
    u64 parts_len;             // elements
    Summary* totals;           // totals[band * area_count + area]
    u64 totals_len;
    u64 chunks;  // of all areas, in one band
    u32 area_count;
    u32 bands;
    u32 width;
    u32 height;
    u32 kind;
    u32 mask_len;
};

namespace summary {

constexpr u32 CHUNK = 2048;  // CHUNK of summary.rs
constexpr u32 SIDES = 8;     // sums side by side

SWATH_FN u64 pixels_of(const SummaryArea& area) { return u64(area.width) * area.height; }

// Whether all samples lie in their buffer, at multiples of their words.
SWATH_FN bool fits(const SummaryArgs& args) {
    if (args.kind >= NUMBER_KINDS) return false;
    const u64 plane = u64(args.width) * args.height;
    const u64 size = numbers::len_of(args.kind);
    // The plane's pixels are fewer than 2^64, so that only the two products may overflow.
    const u64 most = args.samples_len / size / (args.bands == 0 ? 1 : args.bands);
    if (plane > most || !aligned_to(args.samples, min_of(size, u64(8)))) return false;
    return args.mask == nullptr || (args.mask_len != 0 && plane <= args.mask_bytes / args.mask_len);
}

// The area of a chunk: the last one whose first chunk is not behind it.
SWATH_FN u32 area_of(const SummaryArgs& args, u64 chunk) {
    u32 low = 0, high = args.area_count;
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if (args.areas[middle].first <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

// Adds a value and keeps the rounding error.
SWATH_FN void add_to(double& sum, double& lost, double value) {
    using namespace numbers;
    const double total = add(sum, value);
    if (!is_finite(total)) {
        lost = 0;
    } else {
        const bool first = size_of(sum) >= size_of(value);
        const double large = first ? sum : value, small = first ? value : sum;
        lost = add(lost, add(less(large, total), small));
    }
    sum = total;
}

SWATH_FN double mean_of(const Summary& of) { return numbers::add(of.sum, of.lost) / double(of.valid); }

SWATH_FN void merge(numbers::Order order, Summary& all, const Summary& other) {
    using namespace numbers;
    all.missing += other.missing;
    if (other.valid == 0) return;
    all.spread = add(all.spread, other.spread);
    if (all.valid > 0) {
        const double own = double(all.valid), others = double(other.valid);
        const double apart = less(mean_of(other), mean_of(all));
        all.spread = add(all.spread, times(times(apart, apart), times(own / add(own, others), others)));
        // Of two equal values, such as zeros of either sign, the first.
        if (is_less(order, other.min, all.min)) all.min = other.min;
        if (is_less(order, all.max, other.max)) all.max = other.max;
    } else {
        all.min = other.min;
        all.max = other.max;
    }
    all.valid += other.valid;
    add_to(all.sum, all.lost, other.sum);
    add_to(all.sum, all.lost, other.lost);
}

// The pixels of an area from a number on, row by row.
struct Walk {
    const SummaryArea& area;
    u64 row_step;
    u64 pixel;  // in the plane
    u32 column;

    SWATH_FN Walk(const SummaryArea& area, u32 width, u64 number) : area(area), row_step(width - area.width) {
        const u64 row = number / area.width;
        column = u32(number - row * area.width);
        pixel = (area.y + row) * width + area.x + column;
    }
    SWATH_FN void next() {
        pixel++;
        if (++column == area.width) {
            column = 0;
            pixel += row_step;
        }
    }
};

}  // namespace summary

// Sums up chunks. A block takes one chunk of one band at a time.
struct ChunkSummaries {
    static constexpr u32 THREADS = 256;
    using Args = SummaryArgs;

    struct Extremes {
        u64 min, max;
        u32 any;
    };
    struct Shared {
        double values[summary::CHUNK];  // of the data, moved together
        Extremes extremes[THREADS];
        double sums[summary::SIDES];
        double total;
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const SummaryArgs& args, Shared& shared) {
        if (!summary::fits(args) || args.area_count == 0) return;
        for (u64 job = block; job < args.chunks * args.bands; job += blocks) {
            const u32 band = u32(job / args.chunks);
            const u64 chunk = job - band * args.chunks;
            const SummaryArea area = args.areas[summary::area_of(args, chunk)];
            if (job >= args.parts_len || chunk < area.first) continue;
            if (area.width == 0 || u64(area.x) + area.width > args.width) continue;
            if (u64(area.y) + area.height > args.height) continue;
            const u64 start = (chunk - area.first) * summary::CHUNK, pixels = summary::pixels_of(area);
            if (start >= pixels) continue;
            const u32 count = u32(min_of(pixels - start, u64(summary::CHUNK)));
            one(group, args, area, band, start, count, shared, args.parts[job]);
        }
    }

  private:
    // Calls `each` with the samples of this lane that are data: CHUNK / size pixels in a row.
    template <class Group, class Each>
    SWATH_FN static void walk(const Group& group, const SummaryArgs& args, const SummaryArea& area, u32 band, u64 start,
        u32 count, const Each& each) {
        using namespace numbers;
        const u32 share = summary::CHUNK / group.size(), first = group.lane() * share;
        if (first >= count) return;
        const u32 size = len_of(args.kind);
        const SummaryRule rule = args.rules[band];
        const Order order = order_of(args.kind);
        const bool by_bytes = rule.nodata_len != 0 && rule.nodata_len != size;
        const bool by_value = rule.nodata_len == size;
        Number nodata{0, 0};
        if (by_value) {
            // As aligned as the type wants it.
            alignas(16) u8 raw[16];
            for (u32 byte = 0; byte < 16; byte++) raw[byte] = rule.nodata[byte];
            nodata = load(args.kind, raw);
        }
        const u8* const plane = args.samples + u64(band) * args.width * args.height * size;
        const u32 mask_len = args.mask != nullptr && rule.masked != 0 ? args.mask_len : 0;
        summary::Walk at(area, args.width, start + first);
        for (u32 number = first; number < min_of(first + share, count); number++, at.next()) {
            const u8* const from = plane + at.pixel * size;
            const Number sample = load(args.kind, from);
            // NaN does not equal itself.
            bool data = sample.value == sample.value && !(by_value && is_same(order, sample.bits, nodata.bits));
            if (by_bytes) {
                bool same = rule.nodata_len < size;
                for (u32 byte = 0; same && byte < rule.nodata_len; byte++) same = from[byte] == rule.nodata[byte];
                data = data && !same;
            }
            if (mask_len != 0) {
                u32 any = 0;
                for (u32 byte = 0; byte < mask_len; byte++) any |= args.mask[at.pixel * mask_len + byte];
                data = data && any != 0;
            }
            if (data) each(sample);
        }
    }

    template <class Group>
    SWATH_FN static void one(const Group& group, const SummaryArgs& args, const SummaryArea& area, u32 band, u64 start,
        u32 count, Shared& shared, Summary& out) {
        using namespace numbers;
        const Order order = order_of(args.kind);
        Extremes mine{0, 0, 0};
        u32 found = 0, total = 0;
        walk(group, args, area, band, start, count, [&](const Number& sample) {
            found++;
            if (mine.any == 0 || is_less(order, sample.bits, mine.min)) mine.min = sample.bits;
            if (mine.any == 0 || is_less(order, mine.max, sample.bits)) mine.max = sample.bits;
            mine.any = 1;
        });
        shared.extremes[group.lane()] = mine;
        u32 place = group.exclusive_sum(found, total);
        if (found > 0)
            walk(group, args, area, band, start, count, [&](const Number& sample) { shared.values[place++] = sample.value; });
        group.sync();
        const Extremes all = extremes(group, order, shared);
        const double sum = sides(group, total, shared, [](double value) { return value; });
        const double mean = total == 0 ? 0 : sum / double(total);
        const double spread = sides(group, total, shared, [mean](double value) {
            const double apart = less(value, mean);
            return times(apart, apart);
        });
        if (group.lane() == 0) out = Summary{total, count - total, all.min, all.max, sum, 0, spread};
    }

    // The extremes of all lanes. Those of earlier pixels come first.
    template <class Group>
    SWATH_FN static Extremes extremes(const Group& group, numbers::Order order, Shared& shared) {
        for (u32 step = 1; step < group.size(); step *= 2) {
            if (group.lane() % (2 * step) == 0) {
                Extremes& own = shared.extremes[group.lane()];
                const Extremes other = shared.extremes[group.lane() + step];
                if (other.any != 0) {
                    if (own.any == 0 || numbers::is_less(order, other.min, own.min)) own.min = other.min;
                    if (own.any == 0 || numbers::is_less(order, own.max, other.max)) own.max = other.max;
                    own.any = 1;
                }
            }
            group.sync();
        }
        return shared.extremes[0];
    }

    // The sum of the terms in eight sums side by side, and of the values that are left over.
    template <class Group, class Term>
    SWATH_FN static double sides(const Group& group, u32 count, Shared& shared, const Term& term) {
        const u32 whole = count - count % summary::SIDES;
        for (u32 side = group.lane(); side < summary::SIDES; side += group.size()) {
            double sum = 0;
            for (u32 at = side; at < whole; at += summary::SIDES) sum = numbers::add(sum, term(shared.values[at]));
            shared.sums[side] = sum;
        }
        group.sync();
        if (group.lane() == 0) {
            double all = 0, rest = 0;
            for (u32 side = 0; side < summary::SIDES; side++) all = numbers::add(all, shared.sums[side]);
            for (u32 at = whole; at < count; at++) rest = numbers::add(rest, term(shared.values[at]));
            shared.total = numbers::add(all, rest);
        }
        group.sync();
        return shared.total;
    }
};

// Merges the chunks of areas. A lane takes one band of an area at a time.
struct AreaSummaries {
    static constexpr u32 THREADS = 32;
    using Args = SummaryArgs;
    struct Shared {
        u32 unused;
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const SummaryArgs& args, Shared&) {
        if (args.kind >= NUMBER_KINDS) return;
        const numbers::Order order = numbers::order_of(args.kind);
        const u64 jobs = u64(args.area_count) * args.bands;
        for (u64 job = u64(block) * group.size() + group.lane(); job < jobs; job += u64(blocks) * group.size()) {
            const u32 band = u32(job / args.area_count);
            const SummaryArea area = args.areas[job - u64(band) * args.area_count];
            const u64 count = (summary::pixels_of(area) + summary::CHUNK - 1) / summary::CHUNK;
            if (job >= args.totals_len || area.first > args.chunks || count > args.chunks - area.first) continue;
            const u64 first = band * args.chunks + area.first;
            if (first > args.parts_len || count > args.parts_len - first) continue;
            Summary all{0, 0, 0, 0, 0, 0, 0};
            for (u64 chunk = 0; chunk < count; chunk++) summary::merge(order, all, args.parts[first + chunk]);
            args.totals[job] = all;
        }
    }
};
