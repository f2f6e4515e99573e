// Turns decoded bytes into samples at their place in the output: predictor, byte order, bit depth and placement in one
// pass.
#pragma once
#include "core/kernel.cuh"

// One tile, or one plane of it, and its place in the output.
struct PlaceTile {
    u64 src;        // its first byte in the source buffer
    u64 src_len;    // its bytes there
    u32 status;     // index of its status; only tiles with status OK are placed
    u32 x, y;       // first requested column and row
    u32 width, height;  // number of requested columns and rows
    u32 to_x, to_y;     // their place in the output
    u32 slot;       // output band of `samples[0]`
    u32 sparse;     // not 0: the tile has no bytes, and the output gets `fill`
    u32 unused;
};

// How stored bits become a sample; Rust's `place::Form` has the same numbers.
enum PlaceForm : u32 {
    FORM_WHOLE = 0,      // samples of 1, 2, 4, 8 or 16 bytes; swapped by words of `word` bytes where `swap` is set
    FORM_PACKED = 1,     // `bits` (1 to 32), highest first, rows padded to bytes; widened to `sample_len` (1, 2, 4)
    FORM_UINT24_LITTLE = 2,  // three bytes to u32
    FORM_UINT24_BIG = 3,
    FORM_FLOAT24_LITTLE = 4, // three bytes to f32
    FORM_FLOAT24_BIG = 5,
};

enum PlacePredictor : u32 { PREDICTOR_NONE = 0, PREDICTOR_HORIZONTAL = 2, PREDICTOR_FLOAT = 3 };

struct PlaceArgs {
    const u8* src;
    u64 src_len;
    u8* dst;
    u64 dst_len;
    const PlaceTile* tiles;
    const u32* status;
    u64 statuses;
    const u16* samples;   // for each output band that a tile fills, the number of the sample
    u64 row_step;         // output: bytes from row to row, from pixel to pixel, from band to band
    u64 pixel_step;
    u64 band_step;
    u64 stored_row;       // bytes of a stored row of the tile
    u32 count;            // tiles
    u32 parts;            // blocks that share a tile: block b works on tile b / parts
    u32 tile_width;       // columns of a tile
    u32 tile_samples;     // samples of a pixel of the tile
    u32 takes;            // number of output bands that a tile fills: length of `samples`
    u32 form;
    u32 bits;             // of a stored sample
    u32 sample_len;       // bytes of an output sample
    u32 word;             // bytes that are swapped together (half of a complex sample)
    u32 swap;
    u32 predictor;
    u32 unused;
    u8 fill[16];          // one output sample for sparse tiles
};

// A tile fills the columns `to_x` to `to_x + width` of the rows `to_y` to `to_y + height` of the output. The kernel
// writes nothing for a tile whose columns exceed its stored row, nor for a row whose bytes are missing or that leaves the
// output. Sparse tiles have no status. If `statuses` is null (nothing was decoded), every tile is OK.
//
// A warp takes one row at a time, or a piece of one if no predictor runs along it. For a predictor, a lane holds samples
// as numbers whose additions are those of the predictor: whole numbers for predictor 2; for predictor 3 the bytes of a
// sample, gathered from their planes and added separately. The sums of earlier lanes come by shuffles; no memory is
// shared.
namespace place {

// For loops that gain nothing from unrolling, which costs registers and load time.
#if SWATH_DEVICE
#define SWATH_ROLLED _Pragma("unroll 1")
#else
#define SWATH_ROLLED
#endif

// Products and sums that saturate instead of wrapping round: a length that does not fit then fails the bounds check.
SWATH_FN u64 saturating_mul(u32 count, u64 step) {
    const u64 low = u64(count) * u32(step), high = u64(count) * (step >> 32);
    return high > (~low >> 32) ? ~0ull : low + (high << 32);
}
SWATH_FN u64 saturating_add(u64 a, u64 b) { return a + b < a ? ~0ull : a + b; }

SWATH_FN u32 swapped(u32 value) {
#if SWATH_DEVICE
    return __byte_perm(value, 0, 0x0123);
#else
    return __builtin_bswap32(value);
#endif
}
SWATH_FN u64 swapped(u64 value) { return u64(swapped(u32(value))) << 32 | swapped(u32(value >> 32)); }

struct alignas(16) Quad {
    u32 words[4];
};

// Loads from memory that no lane writes during the launch, and stores. The device has better instructions for addresses
// in global memory; the compiler cannot see that they are.
template <class T> SWATH_FN T get(const T* at) {
#if SWATH_DEVICE
    return __ldg(at);
#else
    return *at;
#endif
}
template <class T> SWATH_FN void set(T* at, T value) {
#if SWATH_DEVICE
    __stwb(at, value);
#else
    *at = value;
#endif
}
#if SWATH_DEVICE
SWATH_FN Quad get(const Quad* at) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(at));
    return Quad{{four.x, four.y, four.z, four.w}};
}
SWATH_FN void set(Quad* at, Quad value) {
    __stwb(reinterpret_cast<uint4*>(at), make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]));
}
#endif

// Loads and stores up to eight bytes, one or two at a time: a device faults on unaligned numbers. `line` divides the
// address.
SWATH_COLD u64 load_some(const u8* at, u32 len, u32 line) {
    u64 value = 0;
    u32 byte = 0;
    if (line >= 2)
        for (; byte + 2 <= len; byte += 2) value |= u64(get(reinterpret_cast<const u16*>(at + byte))) << (8 * byte);
    for (; byte < len; byte++) value |= u64(get(at + byte)) << (8 * byte);
    return value;
}
SWATH_COLD void store_some(u8* at, u64 value, u32 len, u32 line) {
    u32 byte = 0;
    if (line >= 2)
        for (; byte + 2 <= len; byte += 2, value >>= 16) set(reinterpret_cast<u16*>(at + byte), u16(value));
    for (; byte < len; byte++, value >>= 8) set(at + byte, u8(value));
}
// A number of 1, 2, 4 or 8 bytes. The size is the same for all lanes, so that one loop for every size costs little; a
// loop for each size would make the kernel slow to load.
template <class T> SWATH_FN T load(const u8* at, u32 len, bool aligned) {
    if (!aligned) return T(load_some(at, len, 1));
    switch (len) {
    case 1: return get(at);
    case 2: return get(reinterpret_cast<const u16*>(at));
    case 4: return get(reinterpret_cast<const u32*>(at));
    }
    return sizeof(T) == 8 ? T(get(reinterpret_cast<const u64*>(at))) : T(0);
}
template <class T> SWATH_FN void store(u8* at, T value, u32 len, bool aligned) {
    if (!aligned) return store_some(at, value, len, 1);
    switch (len) {
    case 1: return set(at, u8(value));
    case 2: return set(reinterpret_cast<u16*>(at), u16(value));
    case 4: return set(reinterpret_cast<u32*>(at), u32(value));
    }
    if (sizeof(T) == 8) set(reinterpret_cast<u64*>(at), u64(value));
}
SWATH_FN u32 turned(u32 value, u32 len) { return swapped(value) >> (32 - 8 * len); }
SWATH_FN u64 turned(u64 value, u32 len) { return swapped(value) >> (64 - 8 * len); }

// The f32 of a 24-bit float: sign, seven bits of exponent with bias 63, sixteen of mantissa. The conversion is exact.
SWATH_FN u32 widen_f24(u32 bits) {
    const u32 sign = (bits & 0x00800000u) << 8, exponent = bits & 0x007f0000u, rest = (bits & 0x007fffffu) << 7;
    if (exponent == 0x007f0000u) return sign | rest | 0xffu << 23;
    if (exponent != 0) return sign | (rest + ((127u - 63u) << 23));
    // A subnormal is its mantissa times 2^-78, which is a normal f32 or zero.
    union {
        u32 bits;
        float number;
    } scale, made;
    scale.bits = (127u - 78u) << 23;
    made.number = float(bits & 0xffffu) * scale.number;
    return sign | made.bits;
}

// The facts that all rows of a tile share.
struct Job {
    const PlaceArgs& args;
    u32 x, width;     // requested columns
    u32 row_samples;  // samples of a stored row
    u32 number;       // bytes that move together: a sample, or half of a complex one
    bool identity;    // band k of the output is sample k of the tile
    bool contiguous;  // `identity`, and the bytes of bands follow each other
    bool aligned;     // every number in source and output is aligned
};

// ------------------------------------------------------------------------------------------------------- no predictor

// Bytes of a row that make one piece of work, so that a strip of one long row keeps a whole block busy.
constexpr u32 PIECE = 8192;

// Reverses the bytes of each word of `word` bytes; without branches, since every loop uses it.
SWATH_FN u32 swap_words(u32 value, u32 word) {
#if SWATH_DEVICE
    return __byte_perm(value, 0, word >= 4 ? 0x0123 : word == 2 ? 0x2301 : 0x3210);
#else
    return word >= 4 ? swapped(value) : word == 2 ? (value & 0x00ff00ffu) << 8 | (value >> 8 & 0x00ff00ffu) : value;
#endif
}
SWATH_FN u64 swap_words(u64 value, u32 word) {
    const u32 low = swap_words(u32(value), word), high = swap_words(u32(value >> 32), word);
    return word == 8 ? u64(low) << 32 | high : u64(high) << 32 | low;
}
SWATH_FN Quad swap_words(Quad quad, u32 word) {
    SWATH_UNROLL
    for (u32 half = 0; half < 4; half += 2) {
        const u64 both = swap_words(u64(quad.words[half + 1]) << 32 | quad.words[half], word);
        quad.words[half] = u32(both);
        quad.words[half + 1] = u32(both >> 32);
    }
    return quad;
}

// Copies `count` units of one size; several loads are in flight at once.
template <class Unit, class Warp>
SWATH_FN void copy_units(const Warp& warp, const u8* from, u8* to, u32 count, u32 word) {
    constexpr u32 AHEAD = 4;
    const Unit* source = reinterpret_cast<const Unit*>(from);
    Unit* target = reinterpret_cast<Unit*>(to);
    const u32 lanes = warp.size();
    SWATH_ROLLED
    for (u32 at = warp.lane(); at < count; at += AHEAD * lanes) {
        Unit units[AHEAD];
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++)
            if (at + k * lanes < count) units[k] = get(source + at + k * lanes);
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++)
            if (at + k * lanes < count) set(target + at + k * lanes, swap_words(units[k], word));
    }
}

// Copies `len` bytes and reverses each word of `word` bytes (1: none). Both sides are aligned to the words, and the
// memory that holds `from` to four bytes.
template <class Warp> SWATH_FN void copy(const Warp& warp, const u8* from, u8* to, u32 len, u32 word) {
    const u32 apart = u32(reinterpret_cast<u64>(from) - reinterpret_cast<u64>(to)) & 15;
    const u32 unit = apart == 0 ? 16 : apart == 8 ? 8 : 4;
    const u32 head = min_of(u32(0 - reinterpret_cast<u64>(to)) & (unit - 1), len);
    u32 units = (len - head) / unit;
    if (unit == 16) {
        copy_units<Quad>(warp, from + head, to + head, units, word);
    } else if (unit == 8) {
        copy_units<u64>(warp, from + head, to + head, units, word);
    } else if ((apart & 3) == 0) {
        copy_units<u32>(warp, from + head, to + head, units, word);
    } else {
        // Each unit is put together from two aligned ones; the last would need one that lies partly outside.
        units -= min_of(units, 1u);
        const u32 shift = 8 * (apart & 3);
        const u32* source = reinterpret_cast<const u32*>(from + head - (apart & 3));
        u32* target = reinterpret_cast<u32*>(to + head);
        for (u32 at = warp.lane(); at < units; at += warp.size())
            set(target + at, swap_words(get(source + at) >> shift | get(source + at + 1) << (32 - shift), word));
    }
    const u32 rest = head + units * unit;
    SWATH_ROLLED
    for (u32 byte = warp.lane(); byte < head + (len - rest); byte += warp.size()) {
        const u32 at = byte < head ? byte : rest + (byte - head);
        set(to + at, get(from + (at ^ (word - 1))));
    }
}

// Number `at` of a stored row, of any bit depth; a complex sample is two numbers.
SWATH_FN u64 read(const Job& job, const u8* row, u32 at) {
    const PlaceArgs& args = job.args;
    if (args.form == FORM_WHOLE) {
        const u64 value = load<u64>(row + u64(at) * args.word, args.word, job.aligned);
        return args.swap != 0 ? turned(value, args.word) : value;
    }
    if (args.form == FORM_PACKED) {
        const u64 first = u64(at) * args.bits;
        const u8* byte = row + (first >> 3);
        const u32 end = (u32(first) & 7) + args.bits;
        u64 held = get(byte);
        u32 got = 8;
        SWATH_ROLLED
        for (; got < end; got += 8) held = held << 8 | get(++byte);
        return held >> (got - end) & ((1ull << args.bits) - 1);
    }
    const u8* byte = row + u64(at) * 3;
    const u32 a = get(byte), b = get(byte + 1), c = get(byte + 2);
    const bool big = args.form == FORM_UINT24_BIG || args.form == FORM_FLOAT24_BIG;
    const u32 value = big ? a << 16 | b << 8 | c : c << 16 | b << 8 | a;
    return args.form >= FORM_FLOAT24_LITTLE ? widen_f24(value) : value;
}

// Writes columns `start` to `start + count` of the requested ones, band by band; the fill if there is no row.
template <class Warp>
SWATH_FN void scatter(const Warp& warp, const Job& job, const u8* row, u8* out, u32 start, u32 count) {
    const PlaceArgs& args = job.args;
    const u32 len = job.number, halves = len == args.sample_len ? 0 : 1;
    // Constant indices only: arguments whose address is taken are copied to slow memory first.
    u64 fill = 0, fill_end = 0;
    SWATH_UNROLL
    for (u32 byte = 0; byte < 8; byte++) {
        fill |= u64(args.fill[byte]) << (8 * byte);
        fill_end |= u64(args.fill[8 + byte]) << (8 * byte);
    }
    if (len < 8) fill_end = fill >> (8 * len);
    for (u32 band = 0; band < args.takes; band++) {
        const u32 sample = get(args.samples + band);
        if (sample >= args.tile_samples) continue;
        u8* to = out + band * args.band_step;
        SWATH_ROLLED
        for (u32 at = warp.lane(); at < count << halves; at += warp.size()) {
            const u32 column = start + (at >> halves), half = at & halves;
            const u32 number = (((job.x + column) * args.tile_samples + sample) << halves) + half;
            const u64 value = row != nullptr ? read(job, row, number) : half == 0 ? fill : fill_end;
            store<u64>(to + column * args.pixel_step + half * len, value, len, job.aligned);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- predictors

SWATH_FN u32 add_bytes(u32 a, u32 b) {
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
SWATH_FN u64 add_bytes(u64 a, u64 b) {
    return ((a & 0x7f7f7f7f7f7f7f7full) + (b & 0x7f7f7f7f7f7f7f7full)) ^ ((a ^ b) & 0x8080808080808080ull);
}

// Predictor 2: differences of whole samples.
struct Horizontal {
    using Sum = u64;
    static constexpr bool PLANES = false;
    const Job& job;
    const u8* row;

    SWATH_FN Sum get(u32 sample) const {
        const u32 len = job.args.sample_len;
        const Sum value = load<Sum>(row + u64(sample) * len, len, job.aligned);
        return job.args.swap != 0 ? turned(value, len) : value;
    }
    SWATH_FN static Sum add(Sum a, Sum b) { return a + b; }
    SWATH_FN Sum finish(Sum sum) const { return sum; }
    SWATH_FN Sum before(Sum) const { return 0; }
};

// Predictor 3: differences of bytes. They lie in planes, the most significant first; the sum of a plane continues in the
// next.
template <class Number> struct Float {
    using Sum = Number;
    static constexpr bool PLANES = true;
    const Job& job;
    const u8* row;

    // At least two, at most as many as a `Sum` has bytes.
    SWATH_FN u32 planes() const { return job.args.form != FORM_WHOLE ? 3 : job.args.sample_len; }
    SWATH_FN Sum get(u32 sample) const {
        const u32 planes = this->planes();
        Sum value = 0;
        SWATH_UNROLL
        for (u32 plane = 0; plane < sizeof(Sum); plane++)
            if (plane < planes) value = value << 8 | place::get(row + u64(plane) * job.row_samples + sample);
        return value;
    }
    SWATH_FN static Sum add(Sum a, Sum b) { return add_bytes(a, b); }
    SWATH_FN Sum finish(Sum sum) const { return planes() == 3 ? Sum(widen_f24(u32(sum))) : sum; }
    // The sums of the planes before each plane.
    SWATH_FN Sum before(Sum totals) const {
        Sum before = 0;
        for (u32 plane = 1; plane < planes(); plane++) before = add(before, totals >> (8 * plane));
        return before;
    }
};

// Writes a sample of a requested column to every band that takes it. If bands are samples, there is one.
template <class T> SWATH_FN void put(const Job& job, u8* out, u32 column, u32 sample, T value) {
    const PlaceArgs& args = job.args;
    u8* to = out + column * args.pixel_step;
    SWATH_ROLLED
    for (u32 band = job.identity ? sample : 0; band < args.takes; band++) {
        if (job.identity || get(args.samples + band) == sample)
            store(to + band * args.band_step, value, args.sample_len, job.aligned);
        if (job.identity) break;
    }
}

// Lanes take neighbouring samples of the row, whole pixels if there are enough lanes for one; each adds the sums that
// earlier lanes have of its sample. If a pixel has more samples than there are lanes, the row is read several times.
template <class Row, class Warp> SWATH_FN void sum_row(const Warp& warp, const Row& row, u8* out) {
    using Sum = typename Row::Sum;
    constexpr u32 AHEAD = 16 / sizeof(Sum);
    const Job& job = row.job;
    const PlaceArgs& args = job.args;
    const u32 samples = args.tile_samples, side = min_of(samples, warp.size());
    const u32 pixels = warp.size() / side, lanes = pixels * side;
    const u32 lane = warp.lane(), pixel = lane / side, end = job.x + job.width;
    for (u32 sample = lane - pixel * side, turn = 0; turn < samples; turn += side, sample += side) {
        const bool works = lane < lanes && sample < samples;
        const u32 last = lanes - side + (lane - pixel * side);  // the lane of the last pixel with this sample
        Sum before = 0;
        if (Row::PLANES) {
            Sum sum = 0;
            SWATH_ROLLED
            for (u32 first = 0; first < args.tile_width; first += AHEAD * pixels) {
                Sum got[AHEAD];
                SWATH_UNROLL
                for (u32 k = 0; k < AHEAD; k++) {
                    const u32 column = first + k * pixels + pixel;
                    got[k] = works && column < args.tile_width ? row.get(column * samples + sample) : Sum(0);
                }
                SWATH_UNROLL
                for (u32 k = 0; k < AHEAD; k++) sum = Row::add(sum, got[k]);
            }
            for (u32 step = side; step < lanes; step <<= 1) {
                const Sum other = warp.shift_up(sum, step);
                if (lane >= step) sum = Row::add(sum, other);
            }
            before = row.before(warp.value_of(sum, last));
        }
        SWATH_ROLLED
        for (u32 first = 0; first < end; first += AHEAD * pixels) {
            Sum sums[AHEAD];
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const u32 column = first + k * pixels + pixel;
                sums[k] = works && column < end ? row.get(column * samples + sample) : Sum(0);
            }
            SWATH_ROLLED
            for (u32 step = side; step < lanes; step <<= 1) {
                SWATH_UNROLL
                for (u32 k = 0; k < AHEAD; k++) {
                    const Sum other = warp.shift_up(sums[k], step);
                    if (lane >= step) sums[k] = Row::add(sums[k], other);
                }
            }
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const Sum total = warp.value_of(sums[k], last);
                sums[k] = Row::add(before, sums[k]);
                before = Row::add(before, total);
            }
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const u32 column = first + k * pixels + pixel;
                if (!works || column >= end || column < job.x) continue;
                put(job, out, column - job.x, sample, row.finish(sums[k]));
            }
        }
    }
}

// The largest power of two up to eight that divides the address and the step.
SWATH_FN u32 line_of(u64 address, u32 step) {
    const u32 bits = u32(address) | step | 8;
    return bits & (0 - bits);
}

// Predictor 2 for pixels of up to eight bytes: a lane holds as many pixels as fit in eight bytes, with all their samples
// in one number, and adds them at once.
template <class Warp> SWATH_FN void sum_units(const Warp& warp, const Job& job, const u8* row, u8* out) {
    constexpr u32 AHEAD = 2;
    const PlaceArgs& args = job.args;
    const u32 len = args.sample_len, samples = args.tile_samples, pixel = samples * len;
    const u32 pixels = pixel <= 4 ? (pixel == 1 ? 8 : pixel == 2 ? 4 : 2) : 1, unit = pixels * pixel;
    const u32 shift = 8 * pixel, all = 8 * unit, last_pixel = all - shift;
    const u64 mask = ~0ull >> (64 - shift);
    // The highest bit of every sample.
    const u64 tops = len == 1 ? 0x8080808080808080ull
        : len == 2            ? 0x8000800080008000ull
        : len == 4            ? 0x8000000080000000ull
                              : 0x8000000000000000ull;
    const auto add = [tops](u64 a, u64 b) { return ((a & ~tops) + (b & ~tops)) ^ ((a ^ b) & tops); };
    const u32 lane = warp.lane(), lanes = warp.size(), end = job.x + job.width;
    const u32 line = line_of(reinterpret_cast<u64>(row), unit);
    const u32 out_line = line_of(reinterpret_cast<u64>(out) - u64(job.x) * pixel, unit);
    u64 before = 0;
    SWATH_ROLLED
    for (u32 first = 0; first < end; first += AHEAD * lanes * pixels) {
        u64 sums[AHEAD], totals[AHEAD];
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u32 column = first + (k * lanes + lane) * pixels;
            sums[k] = 0;
            if (column < end) {
                const u32 there = min_of(end - column, pixels) * pixel;
                const u8* at = row + u64(column) * pixel;
                sums[k] = there == 8 && line == 8 ? get(reinterpret_cast<const u64*>(at)) : load_some(at, there, line);
            }
        }
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            if (args.swap != 0) sums[k] = swap_words(sums[k], len);
            SWATH_ROLLED
            for (u32 step = shift; step < all; step <<= 1) sums[k] = add(sums[k], sums[k] << step);
            totals[k] = sums[k] >> last_pixel & mask;
        }
        for (u32 step = 1; step < lanes; step <<= 1) {
            SWATH_UNROLL
            for (u32 k = 0; k < AHEAD; k++) {
                const u64 other = warp.shift_up(totals[k], step);
                if (lane >= step) totals[k] = add(totals[k], other);
            }
        }
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u64 other = warp.shift_up(totals[k], 1);
            u64 left = lane == 0 ? before : add(before, other);
            before = add(before, warp.value_of(totals[k], lanes - 1));
            SWATH_ROLLED
            for (u32 step = shift; step < all; step <<= 1) left |= left << step;
            sums[k] = add(sums[k], left);
        }
        SWATH_UNROLL
        for (u32 k = 0; k < AHEAD; k++) {
            const u32 column = first + (k * lanes + lane) * pixels;
            const u32 from = max_of(column, job.x), to = min_of(column + pixels, end);
            if (job.contiguous && from == column && to == column + pixels) {
                u8* at = out + u64(column - job.x) * pixel;
                if (unit == 8 && out_line == 8) set(reinterpret_cast<u64*>(at), sums[k]);
                else store_some(at, sums[k], unit, out_line);
                continue;
            }
            SWATH_ROLLED
            for (u32 at = from; at < to; at++)
                SWATH_ROLLED
                for (u32 sample = 0; sample < samples; sample++)
                    put(job, out, at - job.x, sample, sums[k] >> ((at - column) * shift + sample * 8 * len));
        }
    }
}

// The part of a tile that a block works on.
struct Work {
    const PlaceTile& tile;
    u32 columns;  // of a piece
    u32 part;
};

// Calls `each` for the pieces of rows that belong to this warp, with the stored row, the place of the first requested
// sample of the row, and the requested columns of the piece. Rows that are missing on either side are left out.
template <class Warp, class Each>
SWATH_FN void each_piece(const Warp& warp, const Job& job, const Work& work, const Each& each) {
    const PlaceArgs& args = job.args;
    const PlaceTile& tile = work.tile;
    const Span<const u8> src = Span<const u8>(args.src, args.src_len).part(tile.src, tile.src_len);
    const Span<u8> dst(args.dst, args.dst_len);
    const u64 in_row =
        saturating_add(saturating_mul(tile.to_x, args.pixel_step), saturating_mul(tile.slot, args.band_step));
    const u64 to_last = saturating_add(saturating_mul(tile.width - 1, args.pixel_step),
                                       saturating_mul(args.takes - 1, args.band_step));
    // The pieces of a tile can be counted in 32 bits: eight kilobytes each.
    const u32 pieces = min_of((tile.width - 1) / work.columns + 1, 0xffffffffu / tile.height);
    const u64 step = u64(args.parts) * warp.count();
    for (u64 at = u64(work.part) * warp.count() + warp.index(); at < tile.height * pieces; at += step) {
        const u32 row = u32(at) / pieces, start = (u32(at) - row * pieces) * work.columns;
        const u64 to = saturating_add(saturating_mul(tile.to_y + row, args.row_step), in_row);
        const Span<u8> out = dst.part(to, saturating_add(to_last, args.sample_len));
        const Span<const u8> stored = src.part(saturating_mul(tile.y + row, args.stored_row), args.stored_row);
        if (out.len == 0 || (stored.len == 0 && tile.sparse == 0)) continue;
        each(stored.data, out.data, start, min_of(work.columns, tile.width - start));
    }
}

// Bits of a stored sample; 0 if the arguments contradict each other.
SWATH_FN u32 stored_bits(const PlaceArgs& args) {
    const u32 len = args.sample_len, word = args.word;
    if (args.form == FORM_WHOLE) {
        const bool size = len == 1 || len == 2 || len == 4 || len == 8 || len == 16;
        const bool parts = word != 0 && word <= 8 && (word == len || 2 * word == len);
        const bool predicted = args.predictor == PREDICTOR_NONE || len <= 8;
        return size && parts && predicted && (args.predictor != PREDICTOR_FLOAT || len >= 2) ? 8 * len : 0;
    }
    if (args.form == FORM_PACKED) {
        const bool size = len == 1 || len == 2 || len == 4;
        return size && args.bits <= 8 * len && args.predictor == PREDICTOR_NONE ? args.bits : 0;
    }
    return args.form <= FORM_FLOAT24_BIG && len == 4 && args.predictor != PREDICTOR_HORIZONTAL ? 24 : 0;
}

}  // namespace place

struct PlaceKernel {
    static constexpr u32 THREADS = 256;
    using Args = PlaceArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32, const PlaceArgs& args, Shared&) {
        if (args.parts == 0 || block / args.parts >= args.count) return;
        const PlaceTile tile = args.tiles[block / args.parts];
        if (tile.width == 0 || tile.height == 0 || args.takes == 0) return;
        if (tile.sparse == 0 && args.statuses != 0) {
            if (tile.status >= args.statuses || args.status[tile.status] != STATUS_OK) return;
        }
        // Samples of a row are counted in 32 bits, and twice as many numbers.
        const u64 row_samples = place::saturating_mul(args.tile_width, args.tile_samples);
        const u32 bits = place::stored_bits(args);
        if (bits == 0 || row_samples == 0 || row_samples > 0x3fffffff || args.tile_samples > 0xffff) return;
        if (args.stored_row < (row_samples * bits + 7) / 8) return;
        if (tile.x > args.tile_width || tile.width > args.tile_width - tile.x) return;

        bool differs = args.takes != args.tile_samples;
        for (u32 band = group.lane(); band < args.takes && !differs; band += group.size())
            differs = args.samples[band] != band;
        const bool identity = !group.any(differs);

        // A predictor treats a complex sample as one number.
        const bool sums = args.predictor != PREDICTOR_NONE && tile.sparse == 0;
        const u32 number = args.form == FORM_WHOLE && !sums ? args.word : args.sample_len;
        const u64 out_steps = args.row_step | args.pixel_step | args.band_step | reinterpret_cast<u64>(args.dst);
        const u64 src_steps = args.stored_row | tile.src | reinterpret_cast<u64>(args.src);
        const bool whole = args.form == FORM_WHOLE && tile.sparse == 0;
        const bool aligned = ((out_steps | (whole ? src_steps : 0)) & (number - 1)) == 0;
        const bool contiguous = identity && args.pixel_step == u64(args.takes) * args.sample_len &&
            (args.takes == 1 || args.band_step == args.sample_len);
        const place::Job job{args, tile.x, tile.width, u32(row_samples), number, identity, contiguous, aligned};

        // A predictor needs the whole row; without one, several warps share a long row.
        const u32 pixel = args.tile_samples * args.sample_len;
        const u32 columns = sums ? tile.width : max_of(place::PIECE / min_of(pixel, place::PIECE), 1u);
        const place::Work work{tile, columns, block % args.parts};
        const auto warp = group.warp();
        // Each case has its own loop over the rows, so that the registers of one do not burden the others.
        if (tile.sparse != 0) {
            place::each_piece(warp, job, work, [&](const u8*, u8* out, u32 start, u32 count) {
                place::scatter(warp, job, nullptr, out, start, count);
            });
        } else if (!sums && whole && contiguous && aligned && (reinterpret_cast<u64>(args.src) & 3) == 0) {
            place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32 start, u32 count) {
                const u32 word = args.swap != 0 ? args.word : 1;
                place::copy(warp, row + u64(tile.x + start) * pixel, out + u64(start) * pixel, count * pixel, word);
            });
        } else if (!sums) {
            place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32 start, u32 count) {
                place::scatter(warp, job, row, out, start, count);
            });
        } else if (args.predictor == PREDICTOR_HORIZONTAL) {
            if (pixel <= 8)
                place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32, u32) {
                    place::sum_units(warp, job, row, out);
                });
            else
                place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32, u32) {
                    place::sum_row(warp, place::Horizontal{job, row}, out);
                });
        } else if (args.sample_len <= 4) {
            place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32, u32) {
                place::sum_row(warp, place::Float<u32>{job, row}, out);
            });
        } else {
            place::each_piece(warp, job, work, [&](const u8* row, u8* out, u32, u32) {
                place::sum_row(warp, place::Float<u64>{job, row}, out);
            });
        }
    }
};
