// Lengths as we have them (32 bits) and as a library wants them (64 bits).
#pragma once
#include "core/kernel.cuh"

struct WordsArgs {
    u32* narrow;
    u64* wide;
    const u32* status;  // of each stream that the library made: 0 where it is good
    u64 count;
    u64 most;           // bytes that a stream may have
};

// Lengths of tiles for a library, which gets one byte of a tile that is left out: its stream is not looked at.
struct Widen {
    static constexpr u32 THREADS = 256;
    using Args = WordsArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 at = u64(block) * group.size() + group.lane(); at < args.count; at += step)
            args.wide[at] = max_of(args.narrow[at], 1u);
    }
};

// Sizes of its streams for us: one that is not good, or too long, has none that fits anywhere.
struct Narrow {
    static constexpr u32 THREADS = 256;
    using Args = WordsArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 at = u64(block) * group.size() + group.lane(); at < args.count; at += step)
            args.narrow[at] = args.status[at] == 0 && args.wide[at] <= min_of(args.most, 0xfffffffeull) ? u32(args.wide[at]) : 0xffffffffu;
    }
};
