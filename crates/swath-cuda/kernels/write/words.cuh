// Converts lengths between our 32 bits and the 64 bits of a library.
#pragma once
#include "core/kernel.cuh"

struct WordsArgs {
    u32* narrow;
    u64* wide;
    const u32* status;  // of each stream that the library made; 0 means success
    u64 count;
    u64 most;           // the longest valid stream
};

// Lengths of tiles for a library. A tile that is left out gets length 1; its stream is not used.
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

// Sizes of streams from a library. A stream that failed or is too long gets 0xffffffff.
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
