// Copies rows from device memory of the caller, in any layout, into the ring of a level.
//
// A warp takes a piece of a row of a band at a time. The bands of a piece follow each other, so that the samples of
// interleaved pixels come from memory once and then from the cache.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"
#include "core/rows.cuh"

// `count` rows; the first is row `first` of the level. Sample x of band b of row y lies at src + y * row_step + x *
// pixel_step + b * band_step (y from 0; steps in bytes, of any sign; the host has checked the addresses). With `replace`
// (2, 4 or 8: bytes of a float, which is the sample), NaN becomes `nodata`. If there are more rows than the ring holds,
// the kernel does nothing.
struct TakeArgs {
    Rows rows;
    const u8* src;
    long long row_step;
    long long pixel_step;
    long long band_step;
    u32 first;
    u32 count;
    u32 bands;
    u32 first_band;    // band of `rows` that band 0 of the source goes to
    u32 sample_len;
    u32 replace;
    u8 nodata[16];
};

namespace taking {

// Whether the bits of a float are a NaN.
SWATH_FN bool is_nan(u8) { return false; }
SWATH_FN bool is_nan(u16 bits) { return (bits & 0x7fffu) > 0x7c00u; }
SWATH_FN bool is_nan(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
SWATH_FN bool is_nan(u64 bits) { return (bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }

// Replaces NaN by `nodata`, if requested.
template <class T> struct Replace {
    T nodata;
    bool asked;

    SWATH_FN T one(T bits) const { return asked && is_nan(bits) ? nodata : bits; }
    SWATH_FN void quad(u32 (&words)[4]) const {
        SWATH_UNROLL
        for (u32 k = 0; k < 4; k++) {
            if (sizeof(T) == 4) {
                words[k] = u32(one(T(words[k])));
            } else if (sizeof(T) == 2) {
                words[k] = u32(one(T(words[k]))) | u32(one(T(words[k] >> 16))) << 16;
            } else if (sizeof(T) == 8 && k % 2 == 0) {
                const u64 both = one(T(u64(words[k + 1]) << 32 | words[k]));
                words[k] = u32(both);
                words[k + 1] = u32(both >> 32);
            }
        }
    }
};

}  // namespace taking

struct Take {
    static constexpr u32 THREADS = 256;
    using Args = TakeArgs;
    struct Shared {};

    // Samples of a row that make one piece of work.
    static constexpr u32 PIECE = 2048;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const TakeArgs& args, Shared&) {
        const u32 len = args.sample_len;
        if (len != 1 && len != 2 && len != 4 && len != 8 && len != 16) return;
        if (args.replace != 0 && (args.replace != len || len == 1 || len == 16)) return;
        if (args.bands > 0xffff || args.first_band > 0xffff || args.count > args.rows.ring) return;
        if (!moving::rows_fit(args.rows, args.first_band + args.bands, len, min_of(len, 8u))) return;
        // Constant indices only: arguments whose address is taken are copied to slow memory first.
        u64 nodata = 0;
        SWATH_UNROLL
        for (u32 byte = 0; byte < 8; byte++) nodata |= u64(args.nodata[byte]) << (8 * byte);
        using namespace taking;
        const bool asked = args.replace != 0;
        switch (len) {
        case 1: return rows(group, block, blocks, args, Replace<u8>{0, false});
        case 2: return rows(group, block, blocks, args, Replace<u16>{u16(nodata), asked});
        case 4: return rows(group, block, blocks, args, Replace<u32>{u32(nodata), asked});
        default: return rows(group, block, blocks, args, Replace<u64>{nodata, asked});
        }
    }

  private:
    template <class T, class Group>
    SWATH_FN static void rows(const Group& group, u32 block, u32 blocks, const TakeArgs& args,
        const taking::Replace<T>& change) {
        const Rows& rows = args.rows;
        const u32 len = args.sample_len, pieces = (rows.width - 1) / PIECE + 1;
        const auto warp = group.warp();
        const u64 step = u64(blocks) * warp.count(), each = u64(pieces) * args.bands, jobs = args.count * each;
        for (u64 job = u64(block) * warp.count() + warp.index(); job < jobs; job += step) {
            const u32 row = u32(job / each), piece = u32((job - row * each) / args.bands);
            const u32 band = u32(job - row * each - u64(piece) * args.bands);
            const u32 start = piece * PIECE, count = min_of(rows.width - start, PIECE);
            const u8* from = args.src + (long long)row * args.row_step + (long long)band * args.band_step +
                (long long)start * args.pixel_step;
            u8* to = rows.data + u64(args.first_band + band) * rows.band_step +
                u64((u64(args.first) + row) % rows.ring) * rows.row_step + u64(start) * len;
            if (args.pixel_step == (long long)len) moving::copy<T>(warp, from, to, u64(count) * len, change);
            else apart(warp, from, to, count, args, change);
        }
    }

    // Samples with gaps between them; a sample of 16 bytes is two numbers.
    template <class T, class Lanes>
    SWATH_FN static void apart(const Lanes& lanes, const u8* from, u8* to, u32 count, const TakeArgs& args,
        const taking::Replace<T>& change) {
        const u32 halves = args.sample_len > sizeof(T) ? 1 : 0;
        for (u32 at = lanes.lane(); at < count << halves; at += lanes.size()) {
            const u8* const sample = from + (long long)(at >> halves) * args.pixel_step + (at & halves) * sizeof(T);
            moving::put<T>(to + u64(at) * sizeof(T), change.one(moving::fetch_anywhere<T>(sample)));
        }
    }
};
