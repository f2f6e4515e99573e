// Computes the Adler-32 of every tile of a batch.
#pragma once
#include "core/kernel.cuh"
#include "core/copy.cuh"

// Sets checks[t] for the lens[t] bytes at src + t * src_stride; does nothing if they are not all there.
struct AdlerArgs {
    const u8* src;
    u64 src_len;
    u64 src_stride;
    const u32* lens;
    u32* checks;
    u32 tiles;
    u32 unused;
};

// The low half is 1 plus the sum of all n bytes. The high half is n plus the sum of every byte times the number of bytes
// from it to the end. So a lane needs only the position of its bytes, and the lanes are added at the end.
struct Adler {
    static constexpr u32 THREADS = 256;
    using Args = AdlerArgs;
    struct Shared {};

    static constexpr u32 MODULUS = 65521;
    // A unit adds less than 2^44 to a sum, so that many units may pass before it has to be reduced.
    static constexpr u32 UNITS = 1u << 18;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const AdlerArgs& args, Shared&) {
        const Span<const u8> src(args.src, args.src_len);
        for (u64 tile = block; tile < args.tiles; tile += blocks) {
            const u32 len = args.lens[tile];
            const Span<const u8> bytes = src.part(moving::saturating_mul(u32(tile), args.src_stride), len);
            if (bytes.len != len) continue;
            const u32 units = aligned_to(bytes.data, 16) ? len / 16 : 0;
            u64 low = 0, high = 0;
            u64 unit = group.lane();
            while (unit < units) {
                const u64 stop = min_of(u64(units), unit + u64(UNITS) * group.size());
                SWATH_UNROLL
                for (; unit < stop; unit += group.size()) {
                    const Quad quad = moving::fetch_quad(bytes.data + 16 * unit);
                    u32 sum = 0, weighed = 0;
                    SWATH_UNROLL
                    for (u32 k = 0; k < 4; k++) {
                        sum = dot(quad.words[k], 0x01010101u, sum);
                        weighed = dot(quad.words[k], 0x03020100u + k * 0x04040404u, weighed);
                    }
                    low += sum;
                    high += u64(len - u32(16 * unit)) * sum - weighed;
                }
                low %= MODULUS;
                high %= MODULUS;
            }
            // At most fifteen bytes; all of them if the tile is not aligned.
            for (u64 at = u64(units) * 16 + group.lane(); at < len; at += group.size()) {
                const u32 byte = bytes.data[at];
                low = (low + byte) % MODULUS;
                high = (high + u64(len - u32(at)) * byte) % MODULUS;
            }
            u32 lows, highs;
            group.exclusive_sum(u32(low), lows);
            group.exclusive_sum(u32(high), highs);
            if (group.lane() == 0)
                args.checks[tile] = (u32(highs % MODULUS) + len % MODULUS) % MODULUS << 16 | (1 + lows) % MODULUS;
        }
    }

  private:
    // `sum` plus the products of the four bytes of each word.
    SWATH_FN static u32 dot(u32 bytes, u32 weights, u32 sum) {
#if SWATH_DEVICE
        asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bytes), "r"(weights));
        return sum;
#else
        for (u32 shift = 0; shift < 32; shift += 8) sum += (bytes >> shift & 0xff) * (weights >> shift & 0xff);
        return sum;
#endif
    }
};
