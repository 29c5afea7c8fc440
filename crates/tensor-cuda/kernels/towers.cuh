// What all kernels share: number formats, wide loads and stores, reductions, random numbers.
//
// Each .cu file is a translation unit of its own, compiled once for each device and number format by NVRTC, and in tests
// by the host's C++ compiler behind emulation/shim.h. Nothing is included from the CUDA toolkit, so none need be
// installed. The format of activations and their gradients, act_t, is chosen by the macro TOWERS_ACT:
// 0 for float, 1 for bfloat16, 2 for IEEE half. All arithmetic is in float.
//
// Conventions of every kernel:
// - A tensor is a pointer to its first element, its sizes, and a row stride: elements from a pixel to the next.
// - Rows, columns and channels fit in 32 bits; products of them are computed in 64.
// - Sums are added in an order that the shapes decide, never with floating-point atomics: the same bits every time.
// - The head of a file says purpose, layout, launch geometry, and whether outputs are set (=) or added to (+=).
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#ifdef TOWERS_EMULATION
#include "shim.h"
#else
// A kernel's name, as the host finds it.
#define KERNEL extern "C" __global__ void
// Shared memory whose size the launch decides.
#define DYNAMIC_SHARED(type, name)                              \
    extern __shared__ __align__(16) unsigned char name##_raw[]; \
    type* name = reinterpret_cast<type*>(name##_raw)
#endif

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

// 16 bytes, the widest load.
struct __align__(16) Wide {
    u32 word[4];
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
#ifdef TOWERS_EMULATION
__device__ inline float to_float(f16 x) { return emulation::half_to_float(x.bits); }
#else
__device__ inline float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
#endif

// Rounds to the nearest, ties to even.
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
    return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
#if !defined(TOWERS_EMULATION) && __CUDA_ARCH__ >= 800
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#else
    u32 bits = __float_as_uint(x);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<u16>(nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
#endif
}
template <>
__device__ inline f16 from_float<f16>(float x) {
#ifdef TOWERS_EMULATION
    return {emulation::float_to_half(x)};
#else
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#endif
}

#if TOWERS_ACT == 0
typedef float act_t;
#elif TOWERS_ACT == 1
typedef bf16 act_t;
#else
typedef f16 act_t;
#endif

// Elements of act_t in 16 bytes: 4 or 8.
constexpr int PACK = 16 / sizeof(act_t);

// Two neighbouring elements.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T first, second;
};

// V neighbouring elements as they lie in memory. V is 1, or fills 8 or 16 bytes or a multiple of 16; memory is aligned to
// them, at most to 16. A thread that has many loads under way holds these: in half formats they take half the registers of floats.
template <int V, class T>
struct Raw {
    static constexpr int BYTES = V * sizeof(T), WORDS = BYTES < 16 ? BYTES / 4 : 4;
    static_assert(BYTES == 8 || BYTES % 16 == 0, "a vector is one or more whole loads");
    struct alignas(4 * WORDS) Load {
        u32 word[WORDS];
    };
    Load loads[BYTES / (4 * WORDS)];
};
template <class T>
struct Raw<1, T> {
    T element;
};

template <int V, class T>
__device__ inline Raw<V, T> fetch(const T* p) {
    return *reinterpret_cast<const Raw<V, T>*>(p);
}

template <int V, class T>
__device__ inline void unpack(const Raw<V, T>& raw, float (&v)[V]) {
    if constexpr (V == 1) {
        v[0] = to_float(raw.element);
    } else {
        union {
            Raw<V, T> raw;
            T element[V];
        } all = {raw};
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] = to_float(all.element[k]);
    }
}

// The same as floats.
template <int V, class T>
__device__ inline void load(const T* p, float (&v)[V]) {
    unpack(fetch<V>(p), v);
}

template <int V, class T>
__device__ inline void store(T* p, const float (&v)[V]) {
    if constexpr (V == 1) {
        *p = from_float<T>(v[0]);
    } else {
        using Load = typename Raw<V, T>::Load;
        constexpr int LOADS = V * sizeof(T) / sizeof(Load);
        union {
            Load load[LOADS];
            T element[V];
        } all;
#pragma unroll
        for (int k = 0; k < V; ++k) all.element[k] = from_float<T>(v[k]);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) reinterpret_cast<Load*>(p)[k] = all.load[k];
    }
}

// This thread's place in a grid of one dimension, and the grid's size.
__device__ inline u64 global_thread() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline u64 global_threads() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// The sum over the 32 lanes of a warp, on all of them.
template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

// The sum over a block of one dimension (a multiple of 32 threads, at most 1024), on all of them. All threads call it.
template <class T>
__device__ inline T block_sum(T x) {
    __shared__ T parts[32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    __syncthreads(); // whoever still reads the parts of a call before
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? parts[lane] : T(0));
}

// Counts up to `most` and begins again at 0. What the block wrote is seen by whoever counts later, and it sees what others
// wrote that counted before.
__device__ inline u32 count_in_order(u32* counter, u32 most) {
    u32 before;
#ifdef TOWERS_EMULATION
    __threadfence();
    before = atomicInc(counter, most);
    __threadfence();
#else
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(most) : "memory");
#endif
    return before;
}

// Whether this block is the last of so many to come here; then it sees what the others wrote. The counter, 0 before, is 0 again
// after. All threads call it.
__device__ inline bool is_last(u32* counter, u32 blocks) {
    __shared__ u32 last;
    __syncthreads(); // what the block wrote comes before the count
    if (threadIdx.x == 0 && threadIdx.y == 0) last = count_in_order(counter, blocks - 1) == blocks - 1;
    __syncthreads(); // what is read from now on comes after it
    return last;
}

__device__ inline u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }

// What GELU is made of, at a distance from 0, up to 12, where nothing is left: the bell exp(-distance^2 / 2), and what of the
// normal distribution lies above. The polynomial is that of the CPU, to 2e-9; a NaN passes.
struct Bell {
    float distance, bell, tail;

    __device__ explicit Bell(float x) {
        distance = fabsf(x) > 12.0f ? 12.0f : fabsf(x);
        bell = expf(-0.5f * distance * distance);
        float t = 1.0f / fmaf(0.325f, distance, 1.0f);
        float sum = fmaf(t, 0.045749884f, -0.23087305f);
        sum = fmaf(t, fmaf(t, fmaf(t, sum, 0.36892125f), -0.12581888f), 0.19826803f);
        tail = bell * t * fmaf(t, fmaf(t, sum, 0.11261675f), 0.13113603f);
    }
};

// What SiLU, ELU, sigmoid, tanh, softplus and mish are made of: the distance from 0, at most 87; exp(-distance); 1 / (1 + exp(-distance)), and what
// that lacks to 1.
struct Logistic {
    float distance, power, most, rest;

    __device__ explicit Logistic(float x) {
        distance = fabsf(x) > 87.0f ? 87.0f : fabsf(x);
        power = expf(-distance);
        most = 1.0f / (1.0f + power);
        rest = power * most;
    }
};

// tanh(ln(1 + exp(x))), and 1 minus its square, for mish.
struct Softened {
    float tanh, rest;

    __device__ Softened(const Logistic& of, float x) {
        float e = of.power, own = x < 0.0f ? e * (e + 2.0f) : 1.0f + 2.0f * e, other = x < 0.0f ? 2.0f : 2.0f * e * e;
        float whole = own + other;
        tanh = own / whole;
        rest = other * (2.0f * own + other) / (whole * whole);
    }
};

// Activations, each with a number of its own in the upper half: src/activation.rs packs both. The smooth ones come last, and behind
// ACT_SILU those that have an exponential in common.
using Act = u64;
enum Kind : u32 { ACT_NONE, ACT_RELU, ACT_BOUNDED_RELU, ACT_LEAKY_RELU, ACT_HARD_SIGMOID, ACT_HARD_SWISH, ACT_GELU, ACT_SILU, ACT_ELU, ACT_SIGMOID, ACT_TANH, ACT_SOFTPLUS, ACT_MISH };

__device__ inline u32 kind_of(Act act) { return static_cast<u32>(act); }
__device__ inline float number_of(Act act) { return __uint_as_float(static_cast<u32>(act >> 32)); }

// An activation; a NaN passes. Without SMOOTH it is none, relu or bounded relu: code for the others would cost registers and branches
// for each element.
template <bool SMOOTH = true>
__device__ inline float activate(float x, Act of_kind) {
    u32 act = kind_of(of_kind);
    float number = number_of(of_kind);
    if (SMOOTH && act >= ACT_SILU) { // one exponential for all: code for each would take twice as long to compile
        Logistic of(act == ACT_TANH ? 2.0f * x : x);
        if (act == ACT_SILU) return (x < 0.0f ? 0.0f : x) - of.distance * of.rest;
        if (act == ACT_ELU) return x < 0.0f ? of.power - 1.0f : x;
        if (act == ACT_SOFTPLUS) return (x < 0.0f ? 0.0f : x) + log1pf(of.power);
        if (act == ACT_MISH) return (x < 0.0f ? -of.distance : x) * Softened(of, x).tanh;
        float above = x < 0.0f ? of.rest : of.most, below = x < 0.0f ? of.most : of.rest;
        return act == ACT_SIGMOID ? above : above - below;
    }
    if (SMOOTH && act == ACT_GELU) {
        Bell of(x);
        return (x < 0.0f ? 0.0f : x) - of.distance * of.tail;
    }
    if (SMOOTH && act == ACT_LEAKY_RELU) return x < 0.0f ? number * x : x;
    if (SMOOTH && act == ACT_HARD_SIGMOID) {
        float y = fmaf(number, x, 0.5f);
        return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
    }
    if (SMOOTH && act == ACT_HARD_SWISH) {
        float of_six = x + 3.0f < 6.0f ? (x + 3.0f) * (1.0f / 6.0f) : 1.0f;
        return x <= -3.0f ? 0.0f : x >= 3.0f ? x : x * of_six;
    }
    if (act == ACT_NONE) return x;
    return x < 0.0f ? 0.0f : act == ACT_BOUNDED_RELU && x > number ? number : x;
}

// The gradient before the activation, from the one after it and a relu's output or input, or the input of the others. That of a NaN
// passes.
template <bool SMOOTH = true>
__device__ inline float before(float of, float dy, Act of_kind) {
    u32 act = kind_of(of_kind);
    float number = number_of(of_kind);
    if (SMOOTH && act >= ACT_SILU) {
        Logistic at(act == ACT_TANH ? 2.0f * of : of);
        if (act == ACT_ELU) return of < 0.0f ? dy * at.power : dy;
        if (act == ACT_SOFTPLUS) return dy * (of < 0.0f ? at.rest : at.most);
        if (act == ACT_MISH) {
            Softened to(at, of);
            return dy * (to.tanh + (of < 0.0f ? -at.distance * at.rest : at.distance * at.most) * to.rest);
        }
        if (act >= ACT_SIGMOID) return dy * ((act == ACT_TANH ? 4.0f : 1.0f) * at.most * at.rest);
        float below = at.rest * (1.0f - at.distance * at.most);
        return dy * (of < 0.0f ? below : 1.0f - below);
    }
    if (SMOOTH && act == ACT_GELU) {
        Bell at(of);
        float below = at.tail - at.distance * (0.3989423f * at.bell);
        return dy * (of < 0.0f ? below : 1.0f - below);
    }
    if (SMOOTH && act == ACT_LEAKY_RELU) return of <= 0.0f ? number * dy : dy;
    if (SMOOTH && act == ACT_HARD_SIGMOID) {
        float y = fmaf(number, of, 0.5f);
        return y <= 0.0f || y >= 1.0f ? 0.0f : number * dy;
    }
    if (SMOOTH && act == ACT_HARD_SWISH) return of <= -3.0f ? 0.0f : of >= 3.0f ? dy : dy * fmaf(of, 1.0f / 3.0f, 0.5f);
    if (act == ACT_NONE) return dy;
    return of <= 0.0f || (act == ACT_BOUNDED_RELU && of >= number) ? 0.0f : dy;
}

// What a kernel is compiled for: V neighbouring elements a thread, and activations with or without SMOOTH ones.
template <int V_, bool SMOOTH_>
struct Variant {
    static constexpr int V = V_;
    static constexpr bool SMOOTH = SMOOTH_;
};

// Calls the variant of a function for `vector`, 1 or WIDE, and an activation.
#define CALL_VARIANT(WIDE, vector, act, function, ...)                          \
    do {                                                                        \
        if (vector == 1) function<Variant<1, true>>(__VA_ARGS__);               \
        else if (kind_of(act) > ACT_BOUNDED_RELU) function<Variant<WIDE, true>>(__VA_ARGS__);          \
        else function<Variant<WIDE, false>>(__VA_ARGS__);                       \
    } while (false)

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as in crate `philox`.
struct Words {
    u32 word[4];
};
__device__ inline Words philox(Words counter, u32 key0, u32 key1) {
    u32* c = counter.word;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 a = static_cast<u64>(c[0]) * 0xD2511F53u, b = static_cast<u64>(c[2]) * 0xCD9E8D57u;
        u32 c1 = c[1], c3 = c[3];
        c[0] = static_cast<u32>(b >> 32) ^ c1 ^ key0;
        c[1] = static_cast<u32>(b);
        c[2] = static_cast<u32>(a >> 32) ^ c3 ^ key1;
        c[3] = static_cast<u32>(a);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

// What changes from one step to the next of a recording, and what a step leaves for the next: in device memory, so that a
// captured graph can be replayed. The host's mirror image is src/step_state.rs.
struct StepState {
    u64 step;         // of the training, for dropout
    float lr;         // of this step
    u32 first;        // the first place of this batch in the epoch's order
    float loss_scale; // 1, but in half precision
    u32 good_steps;   // since the loss scale changed
    u32 halted;       // 1 after a loss that is not finite: nothing moves any more
    u32 overflow;     // 1 if a gradient of this step is not finite: it moves nothing
};
