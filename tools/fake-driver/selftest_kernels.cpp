// Kernels for the self-test: one that works, one that writes to a given address.
#include "../../crates/swath-cuda/kernels/host/table.hpp"

struct AddKernel {
    static constexpr u32 THREADS = 64;
    struct Args {
        const u8* src;
        u8* dst;
        u64 len;
        u32 value;
        u32 unused;
    };
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& g, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * g.size();
        for (u64 at = u64(block) * g.size() + g.lane(); at < args.len; at += step) {
            args.dst[at] = u8(args.src[at] + args.value);
        }
    }
};

// Writes one byte `offset` bytes from `base`, which is all the argument check can see.
struct PokeKernel {
    static constexpr u32 THREADS = 32;
    struct Args {
        u8* base;
        u64 offset;
    };
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& g, u32, u32, const Args& args, Shared&) {
        if (g.lane() == 0) args.base[args.offset] = 0;
    }
};

SWATH_KERNEL(swath_selftest_add, AddKernel)
SWATH_KERNEL(swath_selftest_poke, PokeKernel)
