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

constexpr u32 LANES = 32, LINES = 8;

// dz = the sums of dy, or of dy * x, of each channel of each sample, or dz += them. Geometry: grid (samples, tiles of LANES channels),
// blocks of LANES * LINES; a line takes every LINES-th pixel.
KERNEL merge_pixel_sums(const act_t* dy, u32 dy_stride, const act_t* x, u32 x_stride, act_t* dz, u32 dz_stride, u32 pixels,
                        u32 c, u32 has_x, u32 add) {
    __shared__ float sums[LINES][LANES];
    u32 lane = threadIdx.x % LANES, line = threadIdx.x / LANES, channel = blockIdx.y * LANES + lane;
    u64 first = static_cast<u64>(blockIdx.x) * pixels;
    float sum = 0.0f;
    for (u32 pixel = channel < c ? line : pixels; pixel < pixels; pixel += LINES) {
        float value = to_float(dy[(first + pixel) * dy_stride + channel]);
        sum += has_x ? value * to_float(x[(first + pixel) * x_stride + channel]) : value;
    }
    sums[line][lane] = sum;
    __syncthreads();
    if (line > 0 || channel >= c) return;
    for (u32 other = 1; other < LINES; ++other) sum += sums[other][lane];
    act_t* to = dz + static_cast<u64>(blockIdx.x) * dz_stride + channel;
    *to = from_float<act_t>(add ? to_float(*to) + sum : sum);
}

// The same for each pixel. Geometry: a warp a pixel.
KERNEL merge_channel_sums(const act_t* dy, u32 dy_stride, const act_t* x, u32 x_stride, act_t* dz, u32 dz_stride, u64 rows,
                          u32 c, u32 has_x, u32 add) {
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
