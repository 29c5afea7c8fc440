// Convolutions with groups or dilation, by plain sums: each output channel reads the input channels of its group.
//
// Layout: tensors are NHWC and contiguous, weights (k, kh, kw, c) with the c of a group, all in act_t; sums are float.
//   forward          y  = sum over taps and c of x w
//   backward data    dx = sum over taps and the k of the channel's group of dy w, or with `add` +=
//   backward filter  dw = sum over pixels of x dy
//
// Geometry: 32 x 8 threads. Forward and data: a thread for each channel (x) and pixel (y) of the result: blocks are (pixels,
// channels). Filter: blocks are (taps and c of a group, channels of dy, parts of the pixels). The lines of a block share the part's
// pixels, and line 0 adds their sums in order. With one part the result goes to `dw` (=). With several, each leaves its sums (=) in
// `parts`, a copy of the result in float for each part, for sum_parts of rows.cu.
#include "divisor.cuh"

constexpr u32 ACROSS = 32, LINES = 8;

struct Window {
    Divisor grid_h, grid_w; // of the result's pixels; backward filter: of y's
    u32 pixels;             // of all samples
    u32 image_h, image_w;   // of the other tensor; backward filter: of x
    u32 kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    i32 top, left;
    u32 inputs, outputs;                  // all channels
    Divisor group_inputs, group_outputs; // those of a group
};

// A pixel's sample, row and column.
struct Spot {
    u32 sample, i, j;
    __device__ Spot(const Window& p, u32 pixel) {
        u32 line = p.grid_w.quotient(pixel);
        sample = p.grid_h.quotient(line);
        i = line - sample * p.grid_h.by;
        j = pixel - line * p.grid_w.by;
    }
};

// The row (or column) of x that an output reads with a tap; outside of x a large number.
__device__ inline u32 read_at(u32 output, u32 stride, u32 tap, u32 dilation, i32 pad) {
    return output * stride + tap * dilation - static_cast<u32>(pad);
}

// The row (or column) of the output that reads a row of x with a tap; without one a large number.
__device__ inline u32 reader_of(u32 input, u32 stride, u32 tap, u32 dilation, i32 pad) {
    u32 at = input + static_cast<u32>(pad) - tap * dilation;
    return static_cast<i32>(at) >= 0 && at % stride == 0 ? at / stride : 0xffffffffu;
}

__device__ inline void grouped_forward(const act_t* x, const act_t* w, act_t* y, const Window& p) {
    u32 pixel = blockIdx.x * LINES + threadIdx.y, k = blockIdx.y * ACROSS + threadIdx.x;
    if (pixel >= p.pixels || k >= p.outputs) return;
    Spot spot(p, pixel);
    u32 c = p.group_inputs.by;
    x += p.group_outputs.quotient(k) * c;
    w += static_cast<u64>(k) * p.kernel_h * p.kernel_w * c;
    float sum = 0;
    for (u32 u = 0; u < p.kernel_h; ++u) {
        u32 i = read_at(spot.i, p.stride_h, u, p.dilation_h, p.top);
        if (i >= p.image_h) continue;
        for (u32 v = 0; v < p.kernel_w; ++v) {
            u32 j = read_at(spot.j, p.stride_w, v, p.dilation_w, p.left);
            if (j >= p.image_w) continue;
            const act_t* from = x + (static_cast<u64>(spot.sample * p.image_h + i) * p.image_w + j) * p.inputs;
            const act_t* weights = w + (u * p.kernel_w + v) * c;
            for (u32 at = 0; at < c; ++at) sum += to_float(from[at]) * to_float(weights[at]);
        }
    }
    y[static_cast<u64>(pixel) * p.outputs + k] = from_float<act_t>(sum);
}

__device__ inline void grouped_data(const act_t* dy, const act_t* w, act_t* dx, const Window& p, bool add) {
    u32 pixel = blockIdx.x * LINES + threadIdx.y, channel = blockIdx.y * ACROSS + threadIdx.x;
    if (pixel >= p.pixels || channel >= p.inputs) return;
    Spot spot(p, pixel);
    u32 c = p.group_inputs.by, taps = p.kernel_h * p.kernel_w;
    u32 group = p.group_inputs.quotient(channel), first = group * p.group_outputs.by;
    w += static_cast<u64>(first) * taps * c + (channel - group * c);
    dy += first;
    float sum = 0;
    for (u32 u = 0; u < p.kernel_h; ++u) {
        u32 i = reader_of(spot.i, p.stride_h, u, p.dilation_h, p.top);
        if (i >= p.image_h) continue;
        for (u32 v = 0; v < p.kernel_w; ++v) {
            u32 j = reader_of(spot.j, p.stride_w, v, p.dilation_w, p.left);
            if (j >= p.image_w) continue;
            const act_t* from = dy + (static_cast<u64>(spot.sample * p.image_h + i) * p.image_w + j) * p.outputs;
            const act_t* weights = w + static_cast<u64>(u * p.kernel_w + v) * c;
            for (u32 k = 0; k < p.group_outputs.by; ++k) {
                sum += to_float(from[k]) * to_float(weights[static_cast<u64>(k) * taps * c]);
            }
        }
    }
    act_t& to = dx[static_cast<u64>(pixel) * p.inputs + channel];
    to = from_float<act_t>(add ? to_float(to) + sum : sum);
}

__device__ inline void grouped_filter(const act_t* x, const act_t* dy, act_t* dw, float* parts, u32 each, const Window& p) {
    __shared__ float sums[LINES][ACROSS];
    u32 c = p.group_inputs.by, tap = p.group_inputs.quotient(blockIdx.x), channel = blockIdx.x - tap * c;
    u32 u = tap / p.kernel_w, v = tap - u * p.kernel_w, k = blockIdx.y * ACROSS + threadIdx.x;
    float sum = 0;
    if (k < p.outputs) {
        x += p.group_outputs.quotient(k) * c + channel;
        u32 first = blockIdx.z * each, end = min(p.pixels, first + each);
        for (u32 pixel = first + threadIdx.y; pixel < end; pixel += LINES) {
            Spot spot(p, pixel);
            u32 i = read_at(spot.i, p.stride_h, u, p.dilation_h, p.top);
            u32 j = read_at(spot.j, p.stride_w, v, p.dilation_w, p.left);
            if (i >= p.image_h || j >= p.image_w) continue;
            u64 from = (static_cast<u64>(spot.sample * p.image_h + i) * p.image_w + j) * p.inputs;
            sum += to_float(x[from]) * to_float(dy[static_cast<u64>(pixel) * p.outputs + k]);
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || k >= p.outputs) return;
    for (u32 line = 1; line < LINES; ++line) sum += sums[line][threadIdx.x];
    u64 columns = static_cast<u64>(p.kernel_h) * p.kernel_w * c, at = k * columns + blockIdx.x;
    if (parts == nullptr) {
        dw[at] = from_float<act_t>(sum);
    } else {
        parts[blockIdx.z * columns * p.outputs + at] = sum;
    }
}

// A pass as a kernel: `a` and `b` are read, in the order of the heads above.
#define PASS(name, ...)                                                                                                   \
    KERNEL __launch_bounds__(ACROSS* LINES)                                                                               \
    name(const act_t* a, const act_t* b, act_t* out, float* parts, u32 each, u32 add, u64 grid_h, u64 grid_w, u32 pixels, \
         u32 image_h, u32 image_w, u32 kernel_h, u32 kernel_w, u32 stride_h, u32 stride_w, u32 dilation_h, u32 dilation_w, \
         i32 top, i32 left, u32 inputs, u32 outputs, u64 group_inputs, u64 group_outputs) {                               \
        Window p{Divisor(grid_h),       Divisor(grid_w), pixels,   image_h,    image_w,    kernel_h, kernel_w,            \
                 stride_h,              stride_w,        dilation_h, dilation_w, top,      left,     inputs, outputs,     \
                 Divisor(group_inputs), Divisor(group_outputs)};                                                          \
        __VA_ARGS__;                                                                                                      \
    }

PASS(grouped_fwd, grouped_forward(a, b, out, p))
PASS(grouped_bwd_data, grouped_data(a, b, out, p, add != 0))
PASS(grouped_bwd_filter, grouped_filter(a, b, out, parts, each, p))
