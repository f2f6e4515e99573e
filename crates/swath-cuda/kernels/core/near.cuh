// Shared memory addressed by its plain 32-bit address. Compilers compute the start of shared memory anew for each access,
// which a chain of dependent loads waits for every time. A load through `Near` takes one addition.
#pragma once
#include "core/base.cuh"

struct alignas(16) FourWords {
    u32 words[4];
};

struct alignas(8) TwoWords {
    u32 low, high;
};

// Elements of shared memory. This lane has written them, or a barrier lies behind those who did.
template <class T> struct Near {
#if SWATH_DEVICE
    u32 address;

    SWATH_FN explicit Near(const T* from) : address(u32(__cvta_generic_to_shared(from))) {
        // Keeps earlier stores before the loads.
        asm volatile("" ::: "memory");
    }
    SWATH_FN u32 operator[](u32 index) const {
        if constexpr (sizeof(T) == 2) {
            unsigned short value;
            asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address + index * 2));
            return value;
        } else {
            u32 value;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address + index * 4));
            return value;
        }
    }
    // Two or four words from a place on: the number of a byte, plus `origin`. These loads stay in their order.
    SWATH_FN u32 origin() const { return address; }
    SWATH_FN TwoWords two_at(u32 place) const {
        TwoWords two;
        asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(two.low), "=r"(two.high) : "r"(place));
        return two;
    }
    SWATH_FN FourWords four_at(u32 place) const {
        FourWords four;
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four.words[0]), "=r"(four.words[1]), "=r"(four.words[2]), "=r"(four.words[3])
                     : "r"(place));
        return four;
    }
    // Stores four words; `index` is a multiple of four.
    SWATH_FN void put(u32 index, const FourWords& four) const {
        static_assert(sizeof(T) == 4, "these are words");
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address + index * 4), "r"(four.words[0]),
                     "r"(four.words[1]), "r"(four.words[2]), "r"(four.words[3]));
    }
#else
    T* from;

    explicit Near(const T* from) : from(const_cast<T*>(from)) {}
    u32 operator[](u32 index) const { return from[index]; }
    u32 origin() const { return 0; }
    TwoWords two_at(u32 place) const { return TwoWords{from[place / 4], from[place / 4 + 1]}; }
    FourWords four_at(u32 place) const {
        return FourWords{{from[place / 4], from[place / 4 + 1], from[place / 4 + 2], from[place / 4 + 3]}};
    }
    void put(u32 index, const FourWords& four) const {
        for (u32 word = 0; word < 4; word++) from[index + word] = four.words[word];
    }
#endif
};
