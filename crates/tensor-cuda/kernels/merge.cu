// Products and sums of two tensors, the second of which may have a number for each channel of a sample, or for each pixel.
//
// The floor is memory: an element costs two reads and a write. Sums have an order that the shapes decide.
#include "towers.cuh"

enum Spread : u32 { SPREAD_NONE, SPREAD_PIXELS, SPREAD_CHANNELS };

template <int V>
__device__ void merge_packs(const act_t* x, u32 x_stride, const act_t* z, u32 z_stride, act_t* y, u32 y_stride, u64 rows,
                            u32 packs, u32 pixels, u32 spread, bool is_sum, bool add) {
    for (u64 i = global_thread(); i < rows * packs; i += global_threads()) {
        u64 row = i / packs, other = spread == SPREAD_PIXELS ? row / pixels : row;
        u64 channel = i % packs * V;
        float a[V], b[V], out[V] = {};
        unpack(fetch<V>(x + row * x_stride + channel), a);
        if (spread == SPREAD_CHANNELS) {
            float one = to_float(z[other * z_stride]);
#pragma unroll
            for (int k = 0; k < V; ++k) b[k] = one;
        } else {
            unpack(fetch<V>(z + other * z_stride + channel), b);
        }
        if (add) unpack(fetch<V>(y + row * y_stride + channel), out);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            float merged = is_sum ? a[k] + b[k] : a[k] * b[k];
            out[k] = add ? out[k] + merged : merged;
        }
        store<V>(y + row * y_stride + channel, out);
    }
}

// y = x * z or x + z, or y += it; y may be x
KERNEL merge(const act_t* x, u32 x_stride, const act_t* z, u32 z_stride, act_t* y, u32 y_stride, u64 rows, u32 packs,
             u32 pixels, u32 spread, u32 is_sum, u32 add, u32 vector) {
    if (vector == 1) {
        merge_packs<1>(x, x_stride, z, z_stride, y, y_stride, rows, packs, pixels, spread, is_sum != 0, add != 0);
    } else {
        merge_packs<PACK>(x, x_stride, z, z_stride, y, y_stride, rows, packs, pixels, spread, is_sum != 0, add != 0);
    }
}

constexpr u32 THREADS = 256;

// A thread takes V neighbouring channels of every so many pixels, some at a time; then halves of the lines are added.
template <int V>
__device__ void add_pixels(const act_t* dy, u32 dy_stride, const act_t* x, u32 x_stride, act_t* dz, u32 dz_stride, u32 pixels,
                           u32 packs, float scale, bool has_x, bool add) {
    constexpr int BATCH = 4;
    __shared__ float all[V * THREADS];
    u32 line = threadIdx.y, lines = blockDim.y, pack = blockIdx.y * blockDim.x + threadIdx.x;
    u64 first = static_cast<u64>(blockIdx.x) * pixels;
    dy += first * dy_stride + pack * V;
    x += has_x ? first * x_stride + pack * V : 0;
    float sum[V] = {};
    for (u32 pixel = pack < packs ? line : pixels; pixel < pixels; pixel += BATCH * lines) {
        Raw<V, act_t> gradients[BATCH], factors[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            u64 at = pixel + b * lines;
            if (at >= pixels) break;
            gradients[b] = fetch<V>(dy + at * dy_stride);
            if (has_x) factors[b] = fetch<V>(x + at * x_stride);
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (pixel + b * lines >= pixels) break;
            float gradient[V], factor[V];
            unpack(gradients[b], gradient);
            if (has_x) unpack(factors[b], factor);
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] = has_x ? fmaf(gradient[k], factor[k], sum[k]) : sum[k] + gradient[k];
        }
    }
    u32 thread = line * blockDim.x + threadIdx.x;
    for (u32 half = lines / 2; half > 0; half /= 2) {
        if (line >= half && line < 2 * half) {
#pragma unroll
            for (int k = 0; k < V; ++k) all[k * THREADS + thread] = sum[k];
        }
        __syncthreads();
        if (line < half) {
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] += all[k * THREADS + thread + half * blockDim.x];
        }
        __syncthreads();
    }
    if (line > 0 || pack >= packs) return;
    act_t* to = dz + static_cast<u64>(blockIdx.x) * dz_stride + pack * V;
    float old[V] = {};
    if (add) load<V>(to, old);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] = fmaf(sum[k], scale, old[k]);
    store<V>(to, sum);
}

// dz = the sums of dy, or of dy * x, of each channel of each sample, times `scale`, or dz += them. Geometry: grid (samples, tiles of
// packs), blocks of (packs, lines), at most THREADS; the lines are a power of two.
KERNEL pixel_sums(const act_t* dy, u32 dy_stride, const act_t* x, u32 x_stride, act_t* dz, u32 dz_stride, u32 pixels, u32 packs,
                  float scale, u32 add, u32 vector) {
    bool has_x = x != nullptr;
    if (vector == 1) add_pixels<1>(dy, dy_stride, x, x_stride, dz, dz_stride, pixels, packs, scale, has_x, add != 0);
    else add_pixels<PACK>(dy, dy_stride, x, x_stride, dz, dz_stride, pixels, packs, scale, has_x, add != 0);
}

// dz = the sums of dy, or of dy * x, of each pixel, or dz += them. Geometry: a warp a pixel.
KERNEL merge_channel_sums(const act_t* dy, u32 dy_stride, const act_t* x, u32 x_stride, act_t* dz, u32 dz_stride, u64 rows,
                          u32 c, u32 add) {
    bool has_x = x != nullptr;
    u64 step = global_threads() / 32;
    for (u64 row = global_thread() / 32; row < rows; row += step) {
        float sum = 0.0f;
        for (u32 channel = threadIdx.x % 32; channel < c; channel += 32) {
            float value = to_float(dy[row * dy_stride + channel]);
            sum += has_x ? value * to_float(x[row * x_stride + channel]) : value;
        }
        sum = warp_sum(sum);
        act_t* to = dz + row * dz_stride;
        if (threadIdx.x % 32 == 0) *to = from_float<act_t>(add ? to_float(*to) + sum : sum);
    }
}
