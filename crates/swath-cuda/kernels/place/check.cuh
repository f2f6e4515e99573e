// Checks whether streams that a library decoded gave as many bytes as their tiles have.
#pragma once
#include "core/kernel.cuh"

struct CheckArgs {
    const u64* got;
    const u64* wanted;
    u32* status;
    u64 count;
};

struct Check {
    static constexpr u32 THREADS = 256;
    using Args = CheckArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 tile = u64(block) * group.size() + group.lane(); tile < args.count; tile += step) {
            if (args.status[tile] == STATUS_OK && args.got[tile] != args.wanted[tile]) args.status[tile] = STATUS_SHORT;
        }
    }
};
