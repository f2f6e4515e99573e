// The threads that work on one tile together, on the device.
//
// A kernel body is a template over a group. It has to be correct for any group size that is a power of two, one included:
// on the host the same body runs with one lane and with a team of threads (host/groups.hpp). All lanes call every
// collective, and when it returns, all lanes have passed its barriers.
#pragma once
#include "core/base.cuh"

#if SWATH_DEVICE
// One warp of a block: lanes that run in step. All of them call each collective.
struct WarpGroup {
    SWATH_FN u32 lane() const { return threadIdx.x & 31; }
    SWATH_FN u32 size() const { return 32; }
    // Number of this warp in its block, and number of warps.
    SWATH_FN u32 index() const { return threadIdx.x >> 5; }
    SWATH_FN u32 count() const { return blockDim.x >> 5; }
    SWATH_FN void sync() const { __syncwarp(); }
    // The value of the lane `by` places before this one; the first `by` lanes get their own.
    template <class T> SWATH_FN T shift_up(T value, u32 by) const { return __shfl_up_sync(0xffffffffu, value, by); }
    // The value of lane `from`. Each lane may ask for another one.
    template <class T> SWATH_FN T value_of(T value, u32 from) const { return __shfl_sync(0xffffffffu, value, from); }
    // A bit for each lane that passed the same value; the bit of this lane is set too.
    SWATH_FN u32 same_as(u32 value) const { return __match_any_sync(0xffffffffu, value); }
};

// All threads of a block.
struct BlockGroup {
    struct Shared {
        u32 warps[33];
    };
    Shared& shared;

    SWATH_FN explicit BlockGroup(Shared& shared) : shared(shared) {}
    SWATH_FN u32 lane() const { return threadIdx.x; }
    SWATH_FN u32 size() const { return blockDim.x; }
    SWATH_FN void sync() const { __syncthreads(); }
    SWATH_FN WarpGroup warp() const { return WarpGroup(); }

    // Returns the sum of the values of all lanes before this one; `total` becomes the sum of all lanes.
    SWATH_FN u32 exclusive_sum(u32 value, u32& total) const {
        const u32 in_warp = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
        u32 sum = value;
        SWATH_UNROLL
        for (u32 step = 1; step < 32; step <<= 1) {
            const u32 other = __shfl_up_sync(0xffffffffu, sum, step);
            if (in_warp >= step) sum += other;
        }
        if (in_warp == 31) shared.warps[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            u32 mine = in_warp < warps ? shared.warps[in_warp] : 0;
            u32 run = mine;
            SWATH_UNROLL
            for (u32 step = 1; step < 32; step <<= 1) {
                const u32 other = __shfl_up_sync(0xffffffffu, run, step);
                if (in_warp >= step) run += other;
            }
            if (in_warp < warps) shared.warps[in_warp] = run - mine;
            if (in_warp == 31) shared.warps[32] = run;
        }
        __syncthreads();
        total = shared.warps[32];
        const u32 before = shared.warps[warp] + sum - value;
        __syncthreads();
        return before;
    }
    SWATH_FN bool any(bool value) const { return __syncthreads_or(value) != 0; }
    SWATH_FN u32 min(u32 value) const {
        value = __reduce_min(value);
        const u32 warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
        if ((threadIdx.x & 31) == 0) shared.warps[warp] = value;
        __syncthreads();
        u32 least = shared.warps[0];
        for (u32 other = 1; other < warps; other++) least = min_of(least, shared.warps[other]);
        __syncthreads();
        return least;
    }
    SWATH_FN u32 broadcast(u32 value, u32 from) const {
        if (threadIdx.x == from) shared.warps[0] = value;
        __syncthreads();
        value = shared.warps[0];
        __syncthreads();
        return value;
    }

  private:
    // Chips before sm_80 have no instruction for this.
    SWATH_FN static u32 __reduce_min(u32 value) {
        SWATH_UNROLL
        for (u32 step = 16; step > 0; step >>= 1) value = min_of(value, __shfl_xor_sync(0xffffffffu, value, step));
        return value;
    }
};
#endif
