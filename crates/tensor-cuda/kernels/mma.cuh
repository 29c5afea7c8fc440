// Tensor cores: products of 16x8x16 with float sums, and the loads and copies that feed them.
//
// A product needs the 16-bit formats and compute capability 8.0; elsewhere TENSOR_CORES is false and plain arithmetic
// takes over. The layouts of fragments are those of the PTX manual, "Matrix fragments for mma.m16n8k16" and
// "ldmatrix".
#pragma once
#include "towers.cuh"

#if TOWERS_ACT != 0 && (defined(TOWERS_EMULATION) || __CUDA_ARCH__ >= 800)
#define TOWERS_TENSOR_CORES 1
#else
#define TOWERS_TENSOR_CORES 0
#endif
constexpr bool TENSOR_CORES = TOWERS_TENSOR_CORES;

// load_matrices<TURNED>(out, base, offset) loads four 8x8 matrices from shared memory: lane l points to row l % 8 of
// matrix l / 8, aligned to 16 bytes, and gets of each matrix the elements 2 (l % 4) and the next of row l / 4, or
// with TURNED of column l / 4; the first one is the lower half.
// mma_16x8x16(d, a, b) is d += a b.
// All lanes of a warp call them together.
//
// copy_async(to, from, there) copies 16 bytes, aligned to them, to shared memory while the thread goes on, or zeros if not
// `there`; `from` is an address that may be read all the same. commit_copies() makes a group of those since the last one;
// wait_copies<N>() waits for this thread's groups but the newest N. (PTX manual, "cp.async".)

#if !TOWERS_TENSOR_CORES
// Never called: for the compiler alone.
template <bool TURNED>
__device__ inline void load_matrices(u32 (&)[4], const u16*, u32) {}
__device__ inline void mma_16x8x16(float (&)[4], const u32 (&)[4], const u32 (&)[2]) {}
__device__ inline void copy_async(void*, const void*, bool) {}
__device__ inline void commit_copies() {}
template <int N>
__device__ inline void wait_copies() {}
#elif defined(TOWERS_EMULATION)
template <bool TURNED>
struct LoadMatrices {
    Wide row;
    u32 (*out)[4];

    UNSEEN static void finish(void* const (&offers)[emulation::WARP], u32) {
        for (u32 lane = 0; lane < emulation::WARP; ++lane) {
            u32 along = 2 * (lane % 4), across = lane / 4;
            for (u32 matrix = 0; matrix < 4; ++matrix) {
                const auto element = [&](u32 row, u32 column) UNSEEN {
                    u32 pair = static_cast<const LoadMatrices*>(offers[8 * matrix + row])->row.word[column / 2];
                    return pair >> column % 2 * 16 & 0xffffu;
                };
                u32 low = TURNED ? element(along, across) : element(across, along);
                u32 high = TURNED ? element(along + 1, across) : element(across, along + 1);
                (*static_cast<const LoadMatrices*>(offers[lane])->out)[matrix] = low | high << 16;
            }
        }
    }
};
template <bool TURNED>
inline void load_matrices(u32 (&out)[4], const u16* base, u32 offset, TOWERS_LINE) {
    LoadMatrices<TURNED> mine{*reinterpret_cast<const Wide*>(base + offset), &out};
    emulation::meet_warp(0xffffffffu, LoadMatrices<TURNED>::finish, &mine, {file, line});
}
inline void copy_async(void* to, const void* from, bool there, TOWERS_LINE) {
    emulation::begin_copy(to, there ? from : nullptr, {file, line});
}
inline void commit_copies() { emulation::commit_copies(); }
template <int N>
inline void wait_copies() {
    emulation::wait_copies(N);
}
#else
template <bool TURNED>
__device__ inline void load_matrices(u32 (&out)[4], const u16* base, u32 offset) {
    u32 row = static_cast<u32>(__cvta_generic_to_shared(base + offset));
    if constexpr (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(row)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(row)
                     : "memory");
    }
}

__device__ inline void copy_async(void* to, const void* from, bool there) {
    u32 shared = static_cast<u32>(__cvta_generic_to_shared(to)), bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

#if TOWERS_ACT == 1
#define TOWERS_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
#define TOWERS_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
__device__ inline void mma_16x8x16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    // volatile, lest it moves to where not all lanes go together
    asm volatile(TOWERS_MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// 16 x 16 elements for mma, of rows that lie along k or with ACROSS across it: the left operand, or two of the right one,
// {out[0], out[1]} and {out[2], out[3]}. The operands want the middle two of the four matrices in another order.
template <bool ACROSS, bool RIGHT>
__device__ inline void fragments(u32 (&out)[4], const u16* base, u32 pitch, u32 extent, u32 k) {
    u32 lane = threadIdx.x % 32, second = lane / 8 % 2 * 8, last = lane / 16 * 8;
    extent += (RIGHT ? last : second);
    k += (RIGHT ? second : last);
    if constexpr (ACROSS) {
        load_matrices<true>(out, base, (k + lane % 8) * pitch + extent);
    } else {
        load_matrices<false>(out, base, (extent + lane % 8) * pitch + k);
    }
}
