// Accesses to single numbers that lanes share without a barrier. The algorithms are right whether a load sees the old or
// the new value.
#pragma once
#include "core/base.cuh"

template <class T> SWATH_FN T shared_value(const T* from) {
#if SWATH_DEVICE
    return *const_cast<const volatile T*>(from);
#else
    return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}

template <class T> SWATH_FN void share_value(T* to, T value) {
#if SWATH_DEVICE
    *const_cast<volatile T*>(to) = value;
#else
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

// Returns 0, 1, 2 and so on, a new number for each call.
SWATH_FN u32 next_number(u32* counter) {
#if SWATH_DEVICE
    return atomicAdd(counter, 1u);
#else
    return __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED);
#endif
}

SWATH_FN void add_bits(u32* to, u32 bits) {
#if SWATH_DEVICE
    atomicOr(to, bits);
#else
    __atomic_fetch_or(to, bits, __ATOMIC_RELAXED);
#endif
}
