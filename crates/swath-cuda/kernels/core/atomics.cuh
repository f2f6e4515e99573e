// Atomic operations on shared or global memory. They order no other access.
#pragma once
#include "core/base.cuh"

// Makes what this lane has written visible to other blocks before what it writes later. On the host, blocks run one after the
// other.
SWATH_FN void fence() {
#if SWATH_DEVICE
    __threadfence();
#endif
}

// Each returns the value from before the operation.
SWATH_FN u32 atomic_add(u32* to, u32 value) {
#if SWATH_DEVICE
    return atomicAdd(to, value);
#else
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

SWATH_FN u32 atomic_or(u32* to, u32 bits) {
#if SWATH_DEVICE
    return atomicOr(to, bits);
#else
    return __atomic_fetch_or(to, bits, __ATOMIC_RELAXED);
#endif
}

SWATH_FN u32 atomic_max(u32* to, u32 value) {
#if SWATH_DEVICE
    return atomicMax(to, value);
#else
    u32 old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
#endif
}
