// Types and qualifiers that kernel bodies share between the device compiler and a host compiler.
#pragma once

#if defined(__CUDACC__)
#define SWATH_DEVICE 1
#define SWATH_FN __device__ __forceinline__
#define SWATH_COLD __device__ __noinline__
#define SWATH_UNROLL _Pragma("unroll")
#else
#define SWATH_DEVICE 0
#define SWATH_FN inline
#define SWATH_COLD
#define SWATH_UNROLL
#endif

// NVRTC has no <cstdint>.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "kernels count on these sizes");

template <class T> SWATH_FN T min_of(T a, T b) { return a < b ? a : b; }
template <class T> SWATH_FN T max_of(T a, T b) { return a > b ? a : b; }
