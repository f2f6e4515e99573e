// The arithmetic of a sample type: how it widens, and how a result rounds back to it. Rust's `shrink::kind`.
#pragma once
#include "shrink/float.cuh"

namespace shrink {

enum Kind : u32 {
    KIND_U8 = 0, KIND_I8 = 1, KIND_U16 = 2, KIND_I16 = 3, KIND_U32 = 4, KIND_I32 = 5, KIND_U64 = 6,
    KIND_I64 = 7, KIND_F16 = 8, KIND_F32 = 9, KIND_F64 = 10,
};

enum Class : u32 { CLASS_UNSIGNED, CLASS_SINGLE, CLASS_DOUBLE };

// A value that results must not take, and its replacement. NaN equals nothing.
struct Avoid {
    double value;
    double instead;

    SWATH_FN double apply(double result) const { return result == value ? instead : result; }
};

// The nearest whole number to sum / count, halves up, for a count from 1 to 4 and a sum below 2^30.
SWATH_FN u32 rounded_mean(u32 sum, u32 count) {
    const u32 twice = sum * 2 + count;
    return count == 3 ? u32(u64(twice) * 0xaaaaaaabu >> 34) : twice >> (count == 1 ? 1 : count == 2 ? 2 : 3);
}

// Raw words are unsigned, so that copies keep every bit. `halve` gets whether its column is one of those that the CPU
// adds in vectors of LANES, columns first; the last columns are added in reading order.
template <class R, u32 TOP> struct SmallUnsigned {
    using Raw = R;
    using Sum = u32;
    static constexpr u32 CLASS = CLASS_UNSIGNED;
    static constexpr bool WHOLE = true;
    static constexpr u32 LANES = 1;
    static constexpr double LOW = 0.0;
    static constexpr double HIGH = TOP;

    SWATH_FN static double wide(R raw) { return double(raw); }
    SWATH_FN static R store(double value) { return R(to_unsigned(double(add(float(value), 0.5f)), TOP)); }
    SWATH_FN static R store_avoiding(double value, const Avoid& avoid) {
        return R(to_unsigned(avoid.apply(whole_part(add(value, 0.5))), TOP));
    }
    SWATH_FN static bool same(R a, R b) { return a == b; }
    SWATH_FN static bool less(R a, R b) { return a < b; }
    SWATH_FN static R halve(R a, R b, R c, R d, bool) { return R((u32(a) + b + c + d + 2) >> 2); }
    SWATH_FN static u32 term(R raw) { return raw; }
    SWATH_FN static R quarter(u32 sum, u32 count, const Avoid& avoid) {
        const R value = R(rounded_mean(sum, count));
        return double(value) == avoid.value ? R(to_unsigned(avoid.instead, TOP)) : value;
    }
};

template <class R, class S, i32 BOTTOM, i32 TOP> struct SmallSigned {
    using Raw = R;
    using Sum = i32;
    static constexpr u32 CLASS = CLASS_SINGLE;
    static constexpr bool WHOLE = true;
    static constexpr u32 LANES = 1;
    static constexpr double LOW = BOTTOM;
    static constexpr double HIGH = TOP;

    SWATH_FN static i32 number(R raw) { return S(raw); }
    SWATH_FN static double wide(R raw) { return double(number(raw)); }
    SWATH_FN static R store(double value) { return nearest(float(value)); }
    SWATH_FN static R store_avoiding(double value, const Avoid& avoid) {
        return store(avoid.apply(double(float(value))));
    }
    SWATH_FN static bool same(R a, R b) { return a == b; }
    SWATH_FN static bool less(R a, R b) { return number(a) < number(b); }
    SWATH_FN static R halve(R a, R b, R c, R d, bool) {
        const i32 sum = number(a) + number(b) + number(c) + number(d);
        // Halves round away from zero: for negative numbers, one less before the shift, which rounds down.
        return R((sum + 2 - (sum < 0 ? 1 : 0)) >> 2);
    }
    SWATH_FN static i32 term(R raw) { return number(raw); }
    SWATH_FN static R quarter(i32 sum, u32 count, const Avoid& avoid) {
        // Only a mean that is nodata before rounding is moved off it.
        if (double(sum) == mul(avoid.value, double(count))) return R(to_signed(avoid.instead, BOTTOM, TOP));
        const i32 size = i32(rounded_mean(u32(sum < 0 ? -sum : sum), count));
        return R(sum < 0 ? -size : size);
    }

  private:
    SWATH_FN static R nearest(float value) {
        return R(to_signed(double(add(value, half_towards(value))), BOTTOM, TOP));
    }
};

// Results of the wide integers, by type.
SWATH_FN u32 whole_of(double value, u32) { return to_unsigned(value, 0xffffffffu); }
SWATH_FN u32 whole_of(double value, i32) { return u32(to_signed(value, -0x7fffffff - 1, 0x7fffffff)); }
SWATH_FN u64 whole_of(double value, u64) { return to_unsigned64(value); }
SWATH_FN u64 whole_of(double value, long long) { return u64(to_signed64(value)); }

// Means of two by two in doubles: GDAL adds columns first, two at a time, and a last odd column in reading order. Scaling
// before adding avoids overflow.
SWATH_FN double mean_of_four(double a, double b, double c, double d, bool in_lanes) {
    a = mul(a, 0.25), b = mul(b, 0.25), c = mul(c, 0.25), d = mul(d, 0.25);
    return in_lanes ? add(add(a, c), add(b, d)) : add(add(add(a, b), c), d);
}

template <class R, class N> struct WideWhole {
    using Raw = R;
    using Sum = double;
    static constexpr u32 CLASS = CLASS_DOUBLE;
    static constexpr bool WHOLE = true;
    static constexpr u32 LANES = 2;
    static constexpr bool SIGNED = N(-1) < N(0);
    static constexpr double LOW = !SIGNED ? 0.0 : sizeof(R) == 4 ? -2147483648.0 : -9223372036854775808.0;
    // The largest double that converts back.
    static constexpr double HIGH = sizeof(R) == 4 ? (SIGNED ? 2147483647.0 : 4294967295.0)
                                                  : (SIGNED ? 9223372036854774784.0 : 18446744073709549568.0);

    SWATH_FN static double wide(R raw) { return double(N(raw)); }
    SWATH_FN static R store(double value) { return whole_of(add(value, half_towards(value)), N()); }
    SWATH_FN static R store_avoiding(double value, const Avoid& avoid) { return store(avoid.apply(value)); }
    SWATH_FN static bool same(R a, R b) { return a == b; }
    SWATH_FN static bool less(R a, R b) { return N(a) < N(b); }
    SWATH_FN static R halve(R a, R b, R c, R d, bool in_lanes) {
        if (sizeof(R) == 8) return store(mean_of_four(wide(a), wide(b), wide(c), wide(d), in_lanes));
        using Long = long long;
        const Long sum = Long(N(a)) + Long(N(b)) + Long(N(c)) + Long(N(d));
        return R(u64((sum + 2 - (sum < 0 ? 1 : 0)) >> 2));
    }
    SWATH_FN static double term(R raw) { return wide(raw); }
    SWATH_FN static R quarter(double sum, u32 count, const Avoid& avoid) {
        return store_avoiding(div(sum, double(count)), avoid);
    }
};

// GDAL treats floats as nodata that differ from it by less than about four units in the last place of an f32; doubles
// too. The sum is computed in the type itself; if it overflows, more values count as nodata.
template <class F> SWATH_FN bool same_float(F value, F nodata) {
    const F apart = size_of_float(sub(value, nodata)), sum = size_of_float(add(value, nodata));
    return value == nodata || apart < mul(mul(F(FLOAT_EPSILON), sum), F(2)) || (is_nan(value) && is_nan(nodata));
}

// What the float types share. `Own` has `wide`, `store`, `same`, `halve`.
template <class Own, class R, u32 OF> struct FloatSample {
    using Raw = R;
    using Sum = double;
    static constexpr u32 CLASS = OF;
    static constexpr bool WHOLE = false;

    SWATH_FN static R store_avoiding(double value, const Avoid& avoid) {
        return Own::store(avoid.apply(OF == CLASS_SINGLE ? double(float(value)) : value));
    }
    SWATH_FN static bool less(R a, R b) { return Own::wide(a) < Own::wide(b); }
    SWATH_FN static double term(R raw) { return Own::wide(raw); }
    SWATH_FN static R quarter(double sum, u32 count, const Avoid& avoid) {
        return store_avoiding(div(sum, double(count)), avoid);
    }
};

// NaN results have one bit pattern: which of several payloads survives depends on the processor.
struct SampleF32 : FloatSample<SampleF32, u32, CLASS_SINGLE> {
    static constexpr u32 LANES = 4;
    static constexpr double LOW = -double(FLOAT_MAX);
    static constexpr double HIGH = double(FLOAT_MAX);

    SWATH_FN static double wide(u32 raw) { return double(float_of(raw)); }
    SWATH_FN static u32 stored(float value) { return is_nan(value) ? 0x7fc00000 : bits_of(value); }
    SWATH_FN static u32 store(double value) { return stored(float(value)); }
    SWATH_FN static bool same(u32 a, u32 b) { return same_float(float_of(a), float_of(b)); }
    SWATH_FN static u32 halve(u32 t0, u32 t1, u32 b0, u32 b1, bool in_lanes) {
        const float a = mul(float_of(t0), 0.25f), b = mul(float_of(t1), 0.25f);
        const float c = mul(float_of(b0), 0.25f), d = mul(float_of(b1), 0.25f);
        return stored(in_lanes ? add(add(a, c), add(b, d)) : add(add(add(a, b), c), d));
    }
};

struct SampleF64 : FloatSample<SampleF64, u64, CLASS_DOUBLE> {
    static constexpr u32 LANES = 2;
    static constexpr double LOW = -DOUBLE_MAX;
    static constexpr double HIGH = DOUBLE_MAX;

    SWATH_FN static double wide(u64 raw) { return double_of(raw); }
    SWATH_FN static u64 store(double value) { return is_nan(value) ? 0x7ff8000000000000ull : bits_of(value); }
    SWATH_FN static bool same(u64 a, u64 b) { return same_float(double_of(a), double_of(b)); }
    SWATH_FN static u64 halve(u64 a, u64 b, u64 c, u64 d, bool in_lanes) {
        return store(mean_of_four(wide(a), wide(b), wide(c), wide(d), in_lanes));
    }
};

struct SampleF16 : FloatSample<SampleF16, u16, CLASS_DOUBLE> {
    static constexpr u32 LANES = 2;
    static constexpr double LOW = -DOUBLE_MAX;
    static constexpr double HIGH = DOUBLE_MAX;

    SWATH_FN static double wide(u16 raw) { return widen_half(raw); }
    // Through f32, as GDAL does: two roundings.
    SWATH_FN static u16 store(double value) {
        return is_nan(value) ? 0x7e00 : u16(narrow_to_half(double(float(value))));
    }
    SWATH_FN static bool same(u16 a, u16 b) { return same_float(wide(a), wide(b)); }
    SWATH_FN static u16 halve(u16 a, u16 b, u16 c, u16 d, bool in_lanes) {
        return store(mean_of_four(wide(a), wide(b), wide(c), wide(d), in_lanes));
    }
};

using SampleU8 = SmallUnsigned<u8, 255>;
using SampleU16 = SmallUnsigned<u16, 65535>;
using SampleI8 = SmallSigned<u8, signed char, -128, 127>;
using SampleI16 = SmallSigned<u16, short, -32768, 32767>;
using SampleU32 = WideWhole<u32, u32>;
using SampleI32 = WideWhole<u32, i32>;
using SampleU64 = WideWhole<u64, u64>;
using SampleI64 = WideWhole<u64, long long>;

}  // namespace shrink
