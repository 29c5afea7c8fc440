// Convolutions whose window holds at most 32 numbers, such as 3 x 3 pixels of 3 channels, on tensor cores: the first layer of
// most networks on pictures. It computes little and writes much, so that memory is the floor: y once forward (or dy once
// backward), and x, which is small.
//
// Layout: tensors are NHWC and contiguous, weights (k, kh, kw, c), all in act_t of 16 bits. A block brings the windows of a run of
// pixels into shared memory, a row of 32 numbers each with zeros at the end, and multiplies these rows.
//   forward          y  = windows(x) w^T      a run is 128 pixels
//   backward filter  dw = dy^T windows(x)     a run is 64 pixels; each block leaves its sums (=) in `parts`, for sum_parts of rows.cu
//
// Geometry: 256 threads. Forward: a block for each run. Filter: (blocks that share the runs, tiles of 96 outputs).
#include "divisor.cuh"
#include "mma.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WINDOW = 32;
constexpr u32 PITCH = WINDOW + 8; // of a row: an odd number of 16 bytes, so that eight rows lie in different banks

// Where windows lie.
struct Windows {
    u32 pixels; // of y
    Divisor grid_h, grid_w;
    u32 image_h, image_w, channels;
    Divisor row; // numbers of a window's row
    u32 size;    // numbers of a window
    u32 stride_h, stride_w;
    i32 top, left;
};

// A number of a window: its row and column from the window's first pixel, and its place from that pixel's first number.
struct Tap {
    short i, j;
    i32 place;
};

__device__ inline void find_taps(const Windows& p, Tap* taps) {
    u32 at = threadIdx.x;
    if (at >= WINDOW) return;
    constexpr short FAR = 1 << 14; // outside of every image
    u32 i = p.row.quotient(at), across = at - i * p.row.by, j = across / p.channels;
    bool is = at < p.size;
    taps[at] = {is ? static_cast<short>(i) : FAR, static_cast<short>(j), static_cast<i32>(i * p.image_w * p.channels + across)};
}

// This thread's part of the windows of RUN pixels: pairs of numbers, held in registers until they are put into shared memory.
template <u32 RUN>
struct Gather {
    static constexpr u32 SHARES = THREADS / RUN, PAIRS = WINDOW / 2 / SHARES;
    u32 pair[PAIRS];

    __device__ void fetch(const u16* x, const Windows& p, const Tap* taps, u32 first) {
        u32 pixel = first + threadIdx.x / SHARES, share = threadIdx.x % SHARES;
        u32 line = p.grid_w.quotient(pixel), sample = p.grid_h.quotient(line);
        i32 i = static_cast<i32>((line - sample * p.grid_h.by) * p.stride_h) - p.top;
        i32 j = static_cast<i32>((pixel - line * p.grid_w.by) * p.stride_w) - p.left;
        i64 corner = ((static_cast<i64>(sample) * p.image_h + i) * p.image_w + j) * p.channels;
#pragma unroll
        for (u32 k = 0; k < PAIRS; ++k) {
            pair[k] = 0;
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                Tap tap = taps[2 * (share + k * SHARES) + half];
                bool inside = static_cast<u32>(i + tap.i) < p.image_h && static_cast<u32>(j + tap.j) < p.image_w;
                if (pixel < p.pixels && inside) pair[k] |= static_cast<u32>(x[corner + tap.place]) << 16 * half;
            }
        }
    }

    __device__ void put(u16* windows) const {
        u32 share = threadIdx.x % SHARES;
        u16* row = windows + threadIdx.x / SHARES * PITCH;
#pragma unroll
        for (u32 k = 0; k < PAIRS; ++k) *reinterpret_cast<u32*>(row + 2 * (share + k * SHARES)) = pair[k];
    }
};

__device__ inline void small_forward(const u16* x, const u16* w, act_t* y, u32 outputs, const Windows& p) {
    constexpr u32 RUN = 128, TILE = 64, STAGED = TILE + 8;
    __shared__ Tap taps[WINDOW];
    __shared__ __align__(16) u16 windows[RUN * PITCH];
    __shared__ __align__(16) u16 weights[TILE * PITCH];
    __shared__ __align__(16) act_t staged[THREADS / 32][16 * STAGED];
    u32 first = blockIdx.x * RUN, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    find_taps(p, taps);
    __syncthreads();
    Gather<RUN> gather;
    gather.fetch(x, p, taps, first);
    gather.put(windows);
    act_t* mine = staged[warp];
    for (u32 tile = 0; tile < outputs; tile += TILE) {
        for (u32 k = threadIdx.x; k < TILE * WINDOW; k += THREADS) {
            u32 row = k / WINDOW, at = k % WINDOW;
            bool there = tile + row < outputs && at < p.size;
            weights[row * PITCH + at] = there ? w[(tile + row) * p.size + at] : 0;
        }
        __syncthreads();
        u32 a[2][4];
#pragma unroll
        for (u32 s = 0; s < 2; ++s) fragments<false, false>(a[s], windows, PITCH, 16 * warp, 16 * s);
#pragma unroll
        for (u32 n = 0; n < TILE; n += 16) {
            if (tile + n >= outputs) break;
            float sum[2][4] = {};
#pragma unroll
            for (u32 s = 0; s < 2; ++s) {
                u32 b[4];
                fragments<false, true>(b, weights, PITCH, n, 16 * s);
                u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                mma_16x8x16(sum[0], a[s], low);
                mma_16x8x16(sum[1], a[s], high);
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                act_t* at = mine + (lane / 4 + k / 2 * 8) * STAGED + n + k % 2 * 8 + lane % 4 * 2;
                const float* both = sum[k % 2] + k / 2 * 2;
                *reinterpret_cast<Pair<act_t>*>(at) = {from_float<act_t>(both[0]), from_float<act_t>(both[1])};
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 k = lane; k < 16 * TILE / 8; k += 32) {
            u32 row = k / (TILE / 8), n = k % (TILE / 8) * 8, pixel = first + 16 * warp + row;
            if (pixel >= p.pixels || tile + n >= outputs) continue;
            *reinterpret_cast<Wide*>(y + static_cast<u64>(pixel) * outputs + tile + n) =
                *reinterpret_cast<const Wide*>(mine + row * STAGED + n);
        }
        __syncthreads(); // the weights and the staged rows have been read
    }
}

// put(output, number of the window, sum) for a warp's sums of the outputs between `from` and `to`.
template <class Put>
__device__ inline void each_sum(float (&sum)[3][4][4], u32 from, u32 to, const Put& put) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 m = 0; m < 3; ++m) {
        if (from + 16 * m >= to) break;
#pragma unroll
        for (u32 n = 0; n < 4; ++n) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                put(from + 16 * m + lane / 4 + k / 2 * 8, 8 * n + lane % 4 * 2 + k % 2, sum[m][n][k]);
            }
        }
    }
}

__device__ inline void small_filter(const u16* x, const u16* dy, float* parts, u32 outputs, const Windows& p) {
    constexpr u32 RUN = 64, TILE = 96, PITCH_DY = TILE + 8, SLICES = RUN / 16;
    __shared__ Tap taps[WINDOW];
    __shared__ __align__(16) u16 windows[2][RUN * PITCH];
    __shared__ __align__(16) u16 dys[2][RUN * PITCH_DY];
    u32 tile = blockIdx.y * TILE, width = min(outputs - tile, TILE), warp = threadIdx.x / 32;
    // A warp has a slice of the run's pixels and up to half of the tile's outputs.
    u32 slice = warp % SLICES, half = (width + 31) / 32 * 16, from = warp / SLICES * half, to = min(from + half, width);
    u32 runs = (p.pixels + RUN - 1) / RUN;
    const auto copy = [&](u32 run, u16* room) {
        if (run < runs) {
            u32 packs = width / 8;
            for (u32 k = threadIdx.x; k < RUN * packs; k += THREADS) {
                u32 row = k / packs, column = k % packs * 8, pixel = run * RUN + row;
                bool there = pixel < p.pixels;
                const u16* at = dy + (there ? static_cast<u64>(pixel) * outputs + tile + column : 0);
                copy_async(room + row * PITCH_DY + column, at, there);
            }
        }
        commit_copies();
    };
    find_taps(p, taps);
    __syncthreads();
    Gather<RUN> gather;
    u32 run = blockIdx.x;
    copy(run, dys[0]);
    gather.fetch(x, p, taps, run * RUN);
    gather.put(windows[0]);
    float sum[3][4][4] = {};
    for (u32 now = 0; run < runs; run += gridDim.x, now ^= 1) {
        wait_copies<0>();
        __syncthreads(); // this run is there for all, and the one before has been read
        u32 next = run + gridDim.x;
        copy(next, dys[now ^ 1]);
        if (next < runs) gather.fetch(x, p, taps, next * RUN);
        u32 b[2][4];
#pragma unroll
        for (u32 s = 0; s < 2; ++s) fragments<true, true>(b[s], windows[now], PITCH, 16 * s, 16 * slice);
#pragma unroll
        for (u32 m = 0; m < 3; ++m) {
            if (from + 16 * m >= to) break;
            u32 a[4];
            fragments<true, false>(a, dys[now], PITCH_DY, from + 16 * m, 16 * slice);
#pragma unroll
            for (u32 n = 0; n < 4; ++n) {
                u32 pair[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
                mma_16x8x16(sum[m][n], a, pair);
            }
        }
        if (next < runs) gather.put(windows[now ^ 1]);
    }
    // The slices' sums are added two by two, through the memory of dy.
    static_assert(sizeof(dys) >= 2 * TILE * WINDOW * sizeof(float), "half of the slices fit");
    float* room = reinterpret_cast<float*>(dys[0]);
#pragma unroll
    for (u32 left = SLICES / 2; left > 0; left /= 2) {
        __syncthreads();
        if (slice >= left && slice < 2 * left) {
            each_sum(sum, from, to, [&](u32 k, u32 at, float value) { room[((slice - left) * TILE + k) * WINDOW + at] = value; });
        }
        __syncthreads();
        if (slice < left) {
            each_sum(sum, from, to, [&](u32 k, u32 at, float& value) { value += room[(slice * TILE + k) * WINDOW + at]; });
        }
    }
    if (slice != 0) return;
    float* out = parts + (static_cast<u64>(blockIdx.x) * outputs + tile) * p.size;
    each_sum(sum, from, to, [&](u32 k, u32 at, float value) {
        if (k < width && at < p.size) out[k * p.size + at] = value;
    });
}

// A pass as a kernel. Without tensor cores the host never launches it.
#define PASS(name, blocks, ...)                                                                                       \
    KERNEL __launch_bounds__(THREADS, blocks)                                                                         \
    name(const act_t* x, const act_t* other, act_t* out, float* parts, u32 outputs, u32 pixels, u64 grid_h,           \
         u64 grid_w, u32 image_h, u32 image_w, u32 channels, u64 row, u32 size, u32 stride_h, u32 stride_w, i32 top,  \
         i32 left) {                                                                                                  \
        if constexpr (TENSOR_CORES) {                                                                                 \
            Windows p{pixels, Divisor(grid_h), Divisor(grid_w), image_h, image_w, channels, Divisor(row),             \
                      size,   stride_h,        stride_w,        top,     left};                                       \
            const u16 *image = reinterpret_cast<const u16*>(x), *numbers = reinterpret_cast<const u16*>(other);       \
            __VA_ARGS__;                                                                                              \
        }                                                                                                             \
    }

PASS(small_window_fwd, 3, small_forward(image, numbers, out, outputs, p))
PASS(small_window_filter, 2, small_filter(image, numbers, parts, outputs, p))
