// FillOrder 2: reverses the bits of every byte, in place.
#pragma once
#include "core/kernel.cuh"
#include "core/memory.cuh"

struct Reverse {
    static constexpr u32 THREADS = 256;
    struct Args {
        u8* data;
        u64 len;
    };
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 lane = u64(block) * group.size() + group.lane(), lanes = u64(blocks) * group.size();
        // Quads lie at multiples of 16 in memory.
        const u64 head = min_of((u64(0) - reinterpret_cast<u64>(args.data)) & 15, args.len);
        const u64 rest = head + ((args.len - head) & ~15ull);
        for (u64 at = head + lane * 16; at < rest; at += lanes * 16) {
            Quad quad = load_quad(args.data + at);
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) quad.words[k] = reversed(quad.words[k]);
            store_quad(args.data + at, quad);
        }
        for (u64 at = lane; at < head; at += lanes) args.data[at] = u8(reversed(args.data[at]));
        for (u64 at = rest + lane; at < args.len; at += lanes) args.data[at] = u8(reversed(args.data[at]));
    }

  private:
    // Reverses the bits of each byte of a word.
    SWATH_FN static u32 reversed(u32 word) {
        word = (word >> 4 & 0x0f0f0f0fu) | (word & 0x0f0f0f0fu) << 4;
        word = (word >> 2 & 0x33333333u) | (word & 0x33333333u) << 2;
        return (word >> 1 & 0x55555555u) | (word & 0x55555555u) << 1;
    }
};
