// Floating-point operations that round once each, as on the CPU: no compiler may fuse two of them.
#pragma once
#include "core/base.cuh"

namespace shrink {

#if SWATH_DEVICE
SWATH_FN float add(float a, float b) { return __fadd_rn(a, b); }
SWATH_FN float sub(float a, float b) { return __fsub_rn(a, b); }
SWATH_FN float mul(float a, float b) { return __fmul_rn(a, b); }
SWATH_FN float div(float a, float b) { return __fdiv_rn(a, b); }
SWATH_FN float root(float a) { return __fsqrt_rn(a); }
SWATH_FN double add(double a, double b) { return __dadd_rn(a, b); }
SWATH_FN double sub(double a, double b) { return __dsub_rn(a, b); }
SWATH_FN double mul(double a, double b) { return __dmul_rn(a, b); }
SWATH_FN double div(double a, double b) { return __ddiv_rn(a, b); }
SWATH_FN double root(double a) { return __dsqrt_rn(a); }
SWATH_FN float size_of_float(float a) { return fabsf(a); }
SWATH_FN double size_of_float(double a) { return fabs(a); }
SWATH_FN double whole_part(double a) { return trunc(a); }
SWATH_FN float float_of(u32 bits) { return __uint_as_float(bits); }
SWATH_FN u32 bits_of(float a) { return __float_as_uint(a); }
SWATH_FN double double_of(u64 bits) { return __longlong_as_double((long long)(bits)); }
SWATH_FN u64 bits_of(double a) { return u64(__double_as_longlong(a)); }
#else
// Host builds use -ffp-contract=off where the host has fused instructions.
SWATH_FN float add(float a, float b) { return a + b; }
SWATH_FN float sub(float a, float b) { return a - b; }
SWATH_FN float mul(float a, float b) { return a * b; }
SWATH_FN float div(float a, float b) { return a / b; }
SWATH_FN float root(float a) { return __builtin_sqrtf(a); }
SWATH_FN double add(double a, double b) { return a + b; }
SWATH_FN double sub(double a, double b) { return a - b; }
SWATH_FN double mul(double a, double b) { return a * b; }
SWATH_FN double div(double a, double b) { return a / b; }
SWATH_FN double root(double a) { return __builtin_sqrt(a); }
SWATH_FN float size_of_float(float a) { return __builtin_fabsf(a); }
SWATH_FN double size_of_float(double a) { return __builtin_fabs(a); }
SWATH_FN double whole_part(double a) { return __builtin_trunc(a); }
template <class To, class From> inline To bits_as(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "the same bits");
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
SWATH_FN float float_of(u32 bits) { return bits_as<float>(bits); }
SWATH_FN u32 bits_of(float a) { return bits_as<u32>(a); }
SWATH_FN double double_of(u64 bits) { return bits_as<double>(bits); }
SWATH_FN u64 bits_of(double a) { return bits_as<u64>(a); }
#endif

template <class F> SWATH_FN bool is_nan(F a) { return a != a; }

// The larger number; if one is NaN, the other.
template <class F> SWATH_FN F larger(F a, F b) { return a > b || is_nan(b) ? a : b; }

constexpr float FLOAT_MAX = 3.40282346638528859812e+38f;
constexpr double DOUBLE_MAX = 1.79769313486231570815e+308;
// The distance from a float to the next.
constexpr float FLOAT_EPSILON = 1.1920928955078125e-7f;

SWATH_FN bool is_infinite(float a) { return size_of_float(a) > FLOAT_MAX; }
SWATH_FN bool is_infinite(double a) { return size_of_float(a) > DOUBLE_MAX; }

// Converts to integers like Rust's `as`: towards zero, clamped to the range, 0 for NaN.
SWATH_FN u32 to_unsigned(double a, u32 top) { return a >= double(top) ? top : a > 0.0 ? u32(a) : 0; }
SWATH_FN i32 to_signed(double a, i32 low, i32 top) {
    return a >= double(top) ? top : a <= double(low) ? low : is_nan(a) ? 0 : i32(a);
}
SWATH_FN u64 to_unsigned64(double a) { return a >= 18446744073709551616.0 ? ~0ull : a > 0.0 ? u64(a) : 0; }
SWATH_FN long long to_signed64(double a) {
    if (a >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    if (a <= -9223372036854775808.0) return -0x7fffffffffffffffll - 1;
    return is_nan(a) ? 0 : (long long)(a);
}

// To the nearest whole number, halves away from zero.
SWATH_FN double rounded(double a) {
    const double low = whole_part(a);
    if (size_of_float(sub(a, low)) < 0.5 || is_nan(a) || is_infinite(a)) return low;
    return add(low, a < 0.0 ? -1.0 : 1.0);
}

// Half a unit with the sign of the value: added before truncation, it rounds halves away from zero.
SWATH_FN float half_towards(float a) { return a < 0.0f ? -0.5f : 0.5f; }
SWATH_FN double half_towards(double a) { return a < 0.0 ? -0.5 : 0.5; }

// The value of half-precision bits; exact.
SWATH_FN double widen_half(u32 bits) {
    // Moved to the exponent field of an f32 and scaled, which normalises small numbers too.
    const float size = mul(float_of((bits & 0x7fff) << 13), float_of(0x77800000));
    const u32 special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    return double(float_of(bits_of(size) | special | (bits & 0x8000) << 16));
}

// The half nearest to a double that is no NaN, ties to even, in one rounding.
SWATH_FN u32 narrow_to_half(double value) {
    const u64 bits = bits_of(value);
    const u32 sign = u32(bits >> 48) & 0x8000;
    const double size = size_of_float(value);
    // Halfway from the largest half to the next step.
    if (size >= 65520.0) return sign | 0x7c00;
    const i32 exponent = max_of(i32(bits >> 52 & 0x7ff) - 1023, -14);
    const double scale = double_of(u64(10 - exponent + 1023) << 52);
    // Beyond 2^52 there are no fractions: adding and subtracting it rounds to the nearest whole number, ties to even.
    const double step = 4503599627370496.0;
    const u32 units = u32(sub(add(mul(size, scale), step), step));
    const u32 biased = units < 1024 ? 0 : u32(exponent + 14);
    // A fraction that rounds up to 2048 carries into the exponent by itself.
    return sign | ((biased << 10) + units);
}

}  // namespace shrink
