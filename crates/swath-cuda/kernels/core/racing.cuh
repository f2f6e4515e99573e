// Accesses to single numbers that lanes share without a barrier. A load returns the old or the new value, never a mixture, and the
// algorithms are right with either.
#pragma once
#include "core/base.cuh"

template <class T> SWATH_FN T load_racing(const T* from) {
#if SWATH_DEVICE
    return *const_cast<const volatile T*>(from);
#else
    return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}

template <class T> SWATH_FN void store_racing(T* to, T value) {
#if SWATH_DEVICE
    *const_cast<volatile T*>(to) = value;
#else
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}
