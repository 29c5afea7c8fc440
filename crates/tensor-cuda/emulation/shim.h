// The words of CUDA C++ that kernels use, for a C++ compiler of the host. The machine behind them is in machine.h.
//
// What is missing here is added when a kernel needs it. What has no counterpart on the host (asm) a kernel leaves
// out under TOWERS_EMULATION.
#pragma once

#include "half.h"
#include "machine.h"

// A kernel that is not in its file's list of kernels is not used, which is an error; anything else may be unused.
#define KERNEL static void
#define __global__
#define __device__ __attribute__((unused))
#define __host__
#define __constant__ __attribute__((unused))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// `used`: other threads see it, which the compiler cannot know.
#define __shared__ static thread_local __attribute__((used))
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(emulation::dynamic_shared)

#define TOWERS_LINE int line = __builtin_LINE(), const char *file = __builtin_FILE()

constexpr int warpSize = 32;

inline void __syncthreads(TOWERS_LINE) { emulation::meet_block({file, line}); }
inline void __syncwarp(unsigned int mask = 0xffffffffu, TOWERS_LINE) {
    emulation::meet_warp(mask, nullptr, nullptr, {file, line});
}
inline void __threadfence() { emulation::note_fence(); }

#include "copies.h"
#include "warp.h"

// --- Memory: no two threads run at once, so a plain read and write is atomic.

template <class T>
inline T __ldg(const T* p) { return *p; }
template <class T>
inline T __ldcs(const T* p) { return *p; }
template <class T>
inline T __ldcg(const T* p) { return *p; }
template <class T>
inline void __stcs(T* p, T x) { *p = x; }
template <class T>
inline void __stcg(T* p, T x) { *p = x; }

namespace emulation {
// Keeps T from being deduced from an argument, as in a declaration for each type.
template <class T>
struct Same { using Type = T; };
template <class T, class F>
__attribute__((noinline)) UNSEEN inline T update(T* p, F next) {
    note_atomic(p, sizeof(T), __builtin_return_address(0));
    T old = *p;
    *p = next(old);
    return old;
}
} // namespace emulation

template <class T>
inline T atomicAdd(T* p, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return static_cast<T>(old + x); });
}
template <class T>
inline T atomicExch(T* p, typename emulation::Same<T>::Type x) { return emulation::update(p, [=](T) { return x; }); }
template <class T>
inline T atomicMax(T* p, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return old < x ? x : old; });
}
template <class T>
inline T atomicMin(T* p, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return x < old ? x : old; });
}
template <class T>
inline T atomicOr(T* p, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return static_cast<T>(old | x); });
}
template <class T>
inline T atomicAnd(T* p, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return static_cast<T>(old & x); });
}
template <class T>
inline T atomicCAS(T* p, typename emulation::Same<T>::Type was, typename emulation::Same<T>::Type x) {
    return emulation::update(p, [=](T old) { return old == was ? x : old; });
}
inline unsigned int atomicInc(unsigned int* p, unsigned int last) {
    return emulation::update(p, [=](unsigned int old) { return old >= last ? 0u : old + 1; });
}

// --- Arithmetic

extern "C" {
float expf(float) noexcept;
float exp2f(float) noexcept;
float expm1f(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float log1pf(float) noexcept;
float powf(float, float) noexcept;
float tanhf(float) noexcept;
float sinf(float) noexcept;
float cosf(float) noexcept;
double sqrt(double) noexcept;
float sqrtf(float) noexcept;
float fabsf(float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float fmaf(float, float, float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float rintf(float) noexcept;
float truncf(float) noexcept;
float roundf(float) noexcept;
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x))); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline float __uint_as_float(unsigned int bits) { return emulation::as_float(bits); }
inline unsigned int __float_as_uint(float x) { return emulation::as_bits(x); }
inline float __int_as_float(int bits) { return emulation::as_float(static_cast<unsigned int>(bits)); }
inline int __float_as_int(float x) { return static_cast<int>(emulation::as_bits(x)); }
inline int __float2int_rn(float x) { return static_cast<int>(__builtin_lrintf(x)); }

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// Of the same types that CUDA has them for; a mixture of signs is unsigned there, and an ambiguity here.
#define TOWERS_MIN_MAX(type)                                       \
    inline type min(type a, type b) { return b < a ? b : a; }      \
    inline type max(type a, type b) { return a < b ? b : a; }
TOWERS_MIN_MAX(int)
TOWERS_MIN_MAX(unsigned int)
TOWERS_MIN_MAX(long long)
TOWERS_MIN_MAX(unsigned long long)
#undef TOWERS_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

// --- Vectors

#define TOWERS_VECTOR(type, name)                                                                  \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                       \
    struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };                                 \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                               \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
TOWERS_VECTOR(float, float)
TOWERS_VECTOR(int, int)
TOWERS_VECTOR(unsigned int, uint)
#undef TOWERS_VECTOR
