// Kernels for the tests of the emulation; some are wrong on purpose. Geometry: as the test says. All set (=).
#include "mma.cuh"

KERNEL all_halves(float* y) {
    u32 k = static_cast<u32>(global_thread());
    y[k] = to_float(f16{static_cast<u16>(k)});
}

KERNEL to_halves(const float* x, u32* y, u32 n) {
    u64 k = global_thread();
    if (k < n) y[k] = from_float<f16>(x[k]).bits;
}

KERNEL sums(const float* x, float* y) {
    float sum = block_sum(x[global_thread()]);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

KERNEL random_words(u32* y, u32 key0, u32 key1) {
    u32 k = static_cast<u32>(global_thread());
    Words words = philox({{k, k * k, 3, 4}}, key0, key1);
    for (u32 at = 0; at < 4; ++at) y[4 * k + at] = words.word[at];
}

KERNEL neighbours(u32* y) {
    const u32 all = 0xffffffffu;
    u32 k = threadIdx.x, *out = y + 8 * k;
    out[0] = __shfl_sync(all, k, 5);
    out[1] = __shfl_xor_sync(all, k, 9);
    out[2] = __shfl_up_sync(all, k, 3);
    out[3] = static_cast<u32>(__shfl_down_sync(all, static_cast<u64>(k), 3, 8));
    out[4] = __ballot_sync(all, k % 2 == 0);
    out[5] = static_cast<u32>(__any_sync(all, k % 32 == 7));
    out[6] = static_cast<u32>(__all_sync(all, k < 32));
    out[7] = k % 32 < 16 ? __shfl_sync(0x0000ffffu, k, 7, 16) : __shfl_sync(0xffff0000u, k, 7, 16);
}

KERNEL divergent(u32 arrive) {
    u32 k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    if (k < arrive) __syncthreads();
}

KERNEL two_barriers() {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

KERNEL missing_lane() {
    if (threadIdx.x != 9) __syncwarp();
}

// Each thread takes what the one before it leaves, twice, without the barrier of a number. A template has its shared memory
// elsewhere.
template <u32 ROUNDS>
__device__ void shift(float* y, u32 lacks) {
    __shared__ float left[64];
    u32 k = threadIdx.x;
    for (u32 round = 0; round < ROUNDS; ++round) {
        if (lacks != 0) __syncthreads();
        left[k] = static_cast<float>(k);
        if (lacks != 1) __syncthreads();
        y[k] = left[k == 0 ? 0 : k - 1];
    }
}
KERNEL shift_in_block(float* y, u32 lacks) { shift<2>(y, lacks); }

// The same for one warp; a shuffle orders nothing.
KERNEL shift_in_warp(float* y, u32 lacks) {
    __shared__ float left[64];
    u32 k = threadIdx.x;
    for (u32 round = 0; round < 2; ++round) {
        if (lacks != 0) __syncwarp();
        left[k] = __shfl_sync(0xffffffffu, 1.0f, 0);
        if (lacks != 1) __syncwarp();
        y[k] = left[k == 0 ? 0 : k - 1];
    }
}

// The last block adds what all leave, without the fence of a number, or without the barrier.
KERNEL sum_of_blocks(float* y, u32 lacks) {
    __shared__ u32 last;
    if (threadIdx.x == 0) {
        y[1 + blockIdx.x] = 1.0f;
        if (lacks != 0) __threadfence();
        last = atomicInc(reinterpret_cast<u32*>(y), gridDim.x - 1) == gridDim.x - 1;
        if (lacks != 1) __threadfence();
    }
    if (lacks != 2) __syncthreads();
    if (last && threadIdx.x == 1) y[10] = y[1] + y[2] + y[3];
}

KERNEL all_write(float* y, u32) { y[0] = 1.0f; }

KERNEL writes_past(float* y, i32 at) { y[at] = 1.0f; }

KERNEL reads_past(float* y, i32 at) { y[0] = y[at]; }

KERNEL writes_past_shared() {
    DYNAMIC_SHARED(float, buffer);
    buffer[16] = 1.0f;
}

KERNEL unwritten_shared(float* y) {
    DYNAMIC_SHARED(float, buffer);
    __shared__ float fixed[4];
    y[blockIdx.x] = blockIdx.x == 0 ? buffer[3] : fixed[3];
    buffer[3] = fixed[3] = 0.0f;
}

KERNEL tickets(u32* count, u32* seen) {
    u32 blocks = gridDim.x * gridDim.y * gridDim.z;
    u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    seen[block * 2 + threadIdx.x] = atomicInc(count, blocks * 2 - 1);
}

// Of four floats a thread, those of the even threads and zeros, then those of all, with a wait for so many of the two.
KERNEL copies(const float* x, float* y, u32 waits) {
    __shared__ __align__(16) float first[128], second[128];
    u32 k = 4 * threadIdx.x;
    copy_async(first + k, x + k, threadIdx.x % 2 == 0);
    commit_copies();
    copy_async(second + k, x + k, true);
    commit_copies();
    if (waits == 1) wait_copies<1>();
    if (waits == 2) wait_copies<0>();
    for (u32 at = k; at < k + 4; ++at) {
        y[at] = first[at];
        y[128 + at] = second[at];
    }
}

// d = x y + 1, of 16x16 and 16x8.
KERNEL product(const float* x, const float* y, float* d) {
#if TOWERS_ACT != 0
    u32 g = threadIdx.x / 4, t = threadIdx.x % 4, a[4], b[2];
    const auto pair = [](float low, float high) {
        return from_float<act_t>(low).bits | static_cast<u32>(from_float<act_t>(high).bits) << 16;
    };
    for (u32 k = 0; k < 4; ++k) {
        const float* at = x + (g + k % 2 * 8) * 16 + 2 * t + k / 2 * 8;
        a[k] = pair(at[0], at[1]);
    }
    for (u32 k = 0; k < 2; ++k) {
        const float* at = y + (2 * t + 8 * k) * 8 + g;
        b[k] = pair(at[0], at[8]);
    }
    float sum[4] = {1, 1, 1, 1};
    mma_16x8x16(sum, a, b);
    for (u32 k = 0; k < 4; ++k) d[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = sum[k];
#endif
}

KERNEL set(u32* y, u32 a, i32 b, u64 c, float d) {
    y[0] = a;
    y[1] = static_cast<u32>(b);
    y[2] = static_cast<u32>(c);
    y[3] = static_cast<u32>(c >> 32);
    y[4] = __float_as_uint(d);
}
