// Memory with its length. Kernel bodies access device memory through spans only, so that no input can lead them out of
// bounds.
#pragma once
#include "core/base.cuh"

template <class T> struct Span {
    T* data;
    u64 len;

    SWATH_FN Span(T* data, u64 len) : data(data), len(len) {}

    // The `count` elements from `start` on; empty if they would leave the memory.
    SWATH_FN Span part(u64 start, u64 count) const {
        if (start > len || count > len - start) return Span(data, 0);
        return Span(data + start, count);
    }
    SWATH_FN bool holds(u64 index) const { return index < len; }
    // Returns zero beyond the end.
    SWATH_FN T get(u64 index) const { return index < len ? data[index] : T(0); }
    // Does nothing beyond the end.
    SWATH_FN void set(u64 index, T value) const {
        if (index < len) data[index] = value;
    }
};
