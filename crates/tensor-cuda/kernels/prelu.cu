// ReLU with a trained slope for each channel.
//
// The floor is memory: an element costs a read and a write (forward), or two reads and a write (gradient of the input). Sums have an
// order that the shapes decide.
#include "towers.cuh"

// y = x, or slope * x below 0. A thread an element.
KERNEL prelu(const act_t* x, u32 x_stride, const float* slopes, act_t* y, u32 y_stride, u64 rows, u32 c) {
    for (u64 i = global_thread(); i < rows * c; i += global_threads()) {
        u64 row = i / c;
        u32 channel = static_cast<u32>(i % c);
        float value = to_float(x[row * x_stride + channel]);
        y[row * y_stride + channel] = from_float<act_t>(value < 0.0f ? slopes[channel] * value : value);
    }
}

// dx = dy, or slope * dy where x is not above 0; or dx += it
KERNEL prelu_input_gradient(const act_t* x, u32 x_stride, const float* slopes, const act_t* dy, u32 dy_stride, act_t* dx,
                            u32 dx_stride, u64 rows, u32 c, u32 add) {
    for (u64 i = global_thread(); i < rows * c; i += global_threads()) {
        u64 row = i / c;
        u32 channel = static_cast<u32>(i % c);
        float value = to_float(x[row * x_stride + channel]);
        float gradient = to_float(dy[row * dy_stride + channel]) * (value <= 0.0f ? slopes[channel] : 1.0f);
        act_t* to = dx + row * dx_stride + channel;
        *to = from_float<act_t>(add ? to_float(*to) + gradient : gradient);
    }
}

constexpr u32 LANES = 32, LINES = 8;

// parts[p] = the sums of x * dy below 0 over rows_each rows, block p's. Geometry: grid (parts, tiles of LANES channels), blocks of
// LANES * LINES; a line takes every LINES-th row.
KERNEL prelu_slope_sums(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u64 rows, u32 c, u32 rows_each,
                        float* parts) {
    __shared__ float sums[LINES][LANES];
    u32 lane = threadIdx.x % LANES, line = threadIdx.x / LANES, channel = blockIdx.y * LANES + lane;
    u64 first = static_cast<u64>(blockIdx.x) * rows_each, end = min(first + rows_each, rows);
    float sum = 0.0f;
    for (u64 row = channel < c ? first + line : end; row < end; row += LINES) {
        float value = to_float(x[row * x_stride + channel]);
        sum += to_float(dy[row * dy_stride + channel]) * (value < 0.0f ? value : 0.0f);
    }
    sums[line][lane] = sum;
    __syncthreads();
    if (line > 0 || channel >= c) return;
    for (u32 other = 1; other < LINES; ++other) sum += sums[other][lane];
    parts[static_cast<u64>(blockIdx.x) * c + channel] = sum;
}
