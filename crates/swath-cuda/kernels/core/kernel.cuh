// How a kernel body becomes an entry point.
//
// A kernel is a type with
//   static constexpr u32 THREADS;      threads of a block
//   struct Args;                       its one parameter, plain data
//   struct Shared;                     shared memory of a block (at most 47 KiB)
//   template <class Group> SWATH_FN static void run(const Group&, u32 block, u32 blocks, const Args&, Shared&);
// SWATH_KERNEL(name, Kernel) makes the entry point: for the device here, for the host in host/table.hpp.
#pragma once
#include "core/group.cuh"
#include "core/span.cuh"
#include "core/status.cuh"
#include "core/decode_args.cuh"

#if SWATH_DEVICE
#define SWATH_KERNEL(name, Kernel)                                                              \
    extern "C" __global__ void __launch_bounds__(Kernel::THREADS) name(const Kernel::Args args) { \
        __shared__ Kernel::Shared shared;                                                       \
        __shared__ BlockGroup::Shared group_shared;                                             \
        Kernel::run(BlockGroup(group_shared), blockIdx.x, gridDim.x, args, shared);             \
    }
#endif
