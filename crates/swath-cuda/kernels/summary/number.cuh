// Samples of every type as numbers, as the statistics of the CPU see them.
#pragma once
#include "core/kernel.cuh"

// Numbers of the sample types. Complex samples count by their magnitude.
enum NumberKind : u32 {
    NUMBER_U8 = 0, NUMBER_I8 = 1, NUMBER_U16 = 2, NUMBER_I16 = 3, NUMBER_U32 = 4, NUMBER_I32 = 5, NUMBER_U64 = 6,
    NUMBER_I64 = 7, NUMBER_F16 = 8, NUMBER_F32 = 9, NUMBER_F64 = 10, NUMBER_CI16 = 11, NUMBER_CI32 = 12,
    NUMBER_CF16 = 13, NUMBER_CF32 = 14, NUMBER_CF64 = 15, NUMBER_KINDS = 16,
};

namespace numbers {

// Operations that no compiler may fuse, which would round differently.
SWATH_FN double add(double a, double b) {
#if SWATH_DEVICE
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}
SWATH_FN double less(double a, double b) { return add(a, -b); }
SWATH_FN double times(double a, double b) {
#if SWATH_DEVICE
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}
SWATH_FN double root(double a) {
#if SWATH_DEVICE
    return __dsqrt_rn(a);
#else
    return __builtin_sqrt(a);
#endif
}

template <class To, class From> SWATH_FN To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits are neither lost nor made");
    union {
        From from;
        To to;
    } both;
    both.from = from;
    return both.to;
}

SWATH_FN double size_of(double a) { return same_bits<double>(same_bits<u64>(a) & 0x7fffffffffffffffull); }
SWATH_FN bool is_finite(double a) { return (same_bits<u64>(a) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }

// The value of a half float.
SWATH_FN double widened(u16 bits) {
    // Moved to the exponent field of an f32 and scaled, which makes small numbers normal.
    const float size = same_bits<float>(u32(bits & 0x7fff) << 13) * same_bits<float>(0x77800000u);
    const u32 special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return same_bits<float>(same_bits<u32>(size) | special | u32(bits & 0x8000) << 16);
}

// `magnitude` of swath/src/statistics/samples.rs.
SWATH_FN double magnitude(double real, double imaginary) {
    const double infinity = same_bits<double>(0x7ff0000000000000ull);
    const double a = size_of(real), b = size_of(imaginary), larger = a > b ? a : b;
    if (a == infinity || b == infinity) return infinity;
    const double huge = same_bits<double>(0x5f30000000000000ull);   // 2^500
    const double tiny = same_bits<double>(0x20b0000000000000ull);   // 2^-500
    const double up = same_bits<double>(0x6570000000000000ull);     // 2^600
    const double down = same_bits<double>(0x1a70000000000000ull);   // 2^-600
    const double scale = larger > huge ? down : larger < tiny ? up : 1.0, back = larger > huge ? up : larger < tiny ? down : 1.0;
    const double x = times(a, scale), y = times(b, scale);
    return times(root(add(times(x, x), times(y, y))), back);
}

// A sample: its nearest double, and the bits that extremes are found by (integers of 64 bits, else those of the double).
struct Number {
    double value;
    u64 bits;
};

enum Order { UNSIGNED, SIGNED, FLOATS };
SWATH_FN Order order_of(u32 kind) {
    if (kind >= NUMBER_F16) return FLOATS;
    return (kind & 1) != 0 ? SIGNED : UNSIGNED;
}
SWATH_FN bool is_less(Order order, u64 a, u64 b) {
    if (order == FLOATS) return same_bits<double>(a) < same_bits<double>(b);
    return order == SIGNED ? static_cast<long long>(a) < static_cast<long long>(b) : a < b;
}
SWATH_FN bool is_same(Order order, u64 a, u64 b) {
    return order == FLOATS ? same_bits<double>(a) == same_bits<double>(b) : a == b;
}

SWATH_FN u32 len_of(u32 kind) {
    switch (kind) {
    case NUMBER_U8:
    case NUMBER_I8: return 1;
    case NUMBER_U16:
    case NUMBER_I16:
    case NUMBER_F16: return 2;
    case NUMBER_U32:
    case NUMBER_I32:
    case NUMBER_F32:
    case NUMBER_CI16:
    case NUMBER_CF16: return 4;
    case NUMBER_CF64: return 16;
    default: return 8;
    }
}

// Loads an aligned word.
template <class T> SWATH_FN T word(const u8* at) { return *reinterpret_cast<const T*>(at); }

SWATH_FN Number of_double(double value) { return Number{value, same_bits<u64>(value)}; }
SWATH_FN Number of_signed(long long value) { return Number{double(value), u64(value)}; }

// The type is looked up for every sample, because a loop for each type would make the kernel slow to load.
SWATH_FN Number load(u32 kind, const u8* at) {
    switch (kind) {
    case NUMBER_U8: return Number{double(*at), *at};
    case NUMBER_I8: return of_signed(static_cast<signed char>(*at));
    case NUMBER_U16: return Number{double(word<u16>(at)), word<u16>(at)};
    case NUMBER_I16: return of_signed(static_cast<short>(word<u16>(at)));
    case NUMBER_U32: return Number{double(word<u32>(at)), word<u32>(at)};
    case NUMBER_I32: return of_signed(i32(word<u32>(at)));
    case NUMBER_U64: return Number{double(word<u64>(at)), word<u64>(at)};
    case NUMBER_I64: return of_signed(static_cast<long long>(word<u64>(at)));
    case NUMBER_F16: return of_double(widened(word<u16>(at)));
    case NUMBER_F32: return of_double(same_bits<float>(word<u32>(at)));
    case NUMBER_F64: return of_double(same_bits<double>(word<u64>(at)));
    case NUMBER_CI16:
        return of_double(magnitude(static_cast<short>(word<u16>(at)), static_cast<short>(word<u16>(at + 2))));
    case NUMBER_CI32: return of_double(magnitude(i32(word<u32>(at)), i32(word<u32>(at + 4))));
    case NUMBER_CF16: return of_double(magnitude(widened(word<u16>(at)), widened(word<u16>(at + 2))));
    case NUMBER_CF32:
        return of_double(magnitude(same_bits<float>(word<u32>(at)), same_bits<float>(word<u32>(at + 4))));
    default:
        return of_double(magnitude(same_bits<double>(word<u64>(at)), same_bits<double>(word<u64>(at + 8))));
    }
}

}  // namespace numbers
