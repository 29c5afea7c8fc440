// Depthwise convolutions: forward, the gradient of the input, the gradient of the weights. Memory is the limit, so a thread
// keeps the numbers of several windows in registers.
//
// Layout: images of pixels with a row stride of their own; weights are (kh, kw, c), c the output channels, of which each `filters`
// neighbours read one input channel. Geometry: any number of blocks of 256 threads, but for the gradient of the weights, which says
// its own. A thread takes V channels (4, or 1) at a time.
// Writes: outputs are set, or with `add` added to.
#include "divisor.cuh"

constexpr int T = 4; // neighbouring outputs of a thread
constexpr u32 LANES = 32;

// The windows of the outputs: output (i, j) reads input (i * sh + u * dh - top, j * sw + v * dw - left) with tap (u, v).
struct Windows {
    u32 c, filters, h, w, oh, ow, kh, kw, sh, sw, dh, dw;
    i32 top, left;
};

#define WINDOWS                                                                                                        \
    u32 n, u32 c, u32 filters, u32 h, u32 w, u32 oh, u32 ow, u32 kh, u32 kw, u32 sh, u32 sw, u32 dh, u32 dw, i32 top,    \
        i32 left, u32 vector
#define GATHER_WINDOWS Windows s = {c, filters, h, w, oh, ow, kh, kw, sh, sw, dh, dw, top, left}

// What is done to the sums: the bias is added, unless it is null, and normalized with running averages, unless those are null.
struct Finish {
    const float *bias, *gamma, *beta, *mean, *variance;
    float epsilon;
    Act act;
};

__device__ inline bool inside(i32 at, u32 size) { return at >= 0 && static_cast<u32>(at) < size; }

// The pixel of a line, or zeros beside it. It is unpacked later, so that many loads are under way at once.
template <int V>
__device__ inline Raw<V, act_t> pixel_at(const act_t* line, u32 stride, i32 at, u32 width) {
    Raw<V, act_t> raw = {};
    if (inside(at, width)) raw = fetch<V>(line + static_cast<u64>(at) * stride);
    return raw;
}

template <int V>
__device__ inline void clear(float (&v)[V]) {
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = 0.0f;
}

// The sums of T neighbouring outputs of a row. With K the kernel is K x K, moved by S; else any. `turned` reads the weights from
// their end: with a stride of 1 that is the gradient of the input.
template <int V, int K, int S>
__device__ inline void window_sums(float (&acc)[T][V], const act_t* x, u32 stride, const float* weights, const Windows& s,
                                   u32 sample, u32 row, u32 column, u32 channel, bool turned) {
    const act_t* image = x + static_cast<u64>(sample) * s.h * s.w * stride + (V == 1 ? channel / s.filters : channel);
    u32 kh = K ? K : s.kh, kw = K ? K : s.kw, taps = kh * kw;
    i32 first = static_cast<i32>(column * (K ? S : s.sw)) - s.left;
#pragma unroll
    for (int t = 0; t < T; ++t) clear<V>(acc[t]);
#pragma unroll 1 // long loops take the compiler long
    for (u32 u = 0; u < kh; ++u) {
        i32 from = static_cast<i32>(row * (K ? S : s.sh) + u * (K ? 1 : s.dh)) - s.top;
        if (!inside(from, s.h)) continue;
        const act_t* line = image + static_cast<u64>(from) * s.w * stride;
        if constexpr (K > 0) {
            constexpr int WIDTH = (T - 1) * S + K;
            Raw<V, act_t> raw[WIDTH];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) raw[k] = pixel_at<V>(line, stride, first + k, s.w);
            float pixel[WIDTH][V];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) unpack(raw[k], pixel[k]);
#pragma unroll
            for (int v = 0; v < K; ++v) {
                u32 tap = u * K + v;
                float weight[V];
                load<V>(weights + static_cast<u64>(turned ? taps - 1 - tap : tap) * s.c + channel, weight);
#pragma unroll
                for (int t = 0; t < T; ++t) {
#pragma unroll
                    for (int k = 0; k < V; ++k) acc[t][k] = fmaf(pixel[t * S + v][k], weight[k], acc[t][k]);
                }
            }
        } else {
            for (u32 v = 0; v < kw; ++v) {
                u32 tap = u * kw + v;
                float weight[V];
                load<V>(weights + static_cast<u64>(turned ? taps - 1 - tap : tap) * s.c + channel, weight);
#pragma unroll
                for (int t = 0; t < T; ++t) {
                    i32 at = first + static_cast<i32>(t * s.sw + v * s.dw);
                    if (!inside(at, s.w)) continue;
                    float pixel[V];
                    load<V>(line + static_cast<u64>(at) * stride, pixel);
#pragma unroll
                    for (int k = 0; k < V; ++k) acc[t][k] = fmaf(pixel[k], weight[k], acc[t][k]);
                }
            }
        }
    }
}

template <int V, int K, int S>
__device__ inline void sums(const act_t* x, u32 x_stride, const float* weights, Finish finish, act_t* y, u32 y_stride,
                            u32 turned, u32 add, u32 n, const Windows& s) {
    u32 packs = s.c / V, tiles = ceil_div(s.ow, T);
    bool smooth = kind_of(finish.act) > ACT_BOUNDED_RELU;
    Act at_once = smooth ? static_cast<Act>(ACT_NONE) : finish.act;
    u64 items = static_cast<u64>(n) * s.oh * tiles * packs;
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        u64 place = item / packs;
        u32 channel = static_cast<u32>(item - place * packs) * V;
        u64 line = place / tiles;
        u32 column = static_cast<u32>(place - line * tiles) * T;
        u32 sample = static_cast<u32>(line / s.oh), row = static_cast<u32>(line - static_cast<u64>(sample) * s.oh);
        float acc[T][V], bias[V], scale[V], shift[V];
        window_sums<V, K, S>(acc, x, x_stride, weights, s, sample, row, column, channel, turned != 0);
        clear<V>(bias);
        if (finish.bias != nullptr) load<V>(finish.bias + channel, bias);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            scale[k] = 1.0f;
            shift[k] = 0.0f;
            if (finish.gamma == nullptr) continue;
            bias[k] -= finish.mean[channel + k];
            scale[k] = finish.gamma[channel + k] / sqrtf(finish.variance[channel + k] + finish.epsilon);
            shift[k] = finish.beta[channel + k];
        }
        act_t* to = y + (line * s.ow + column) * y_stride + channel;
#pragma unroll
        for (int t = 0; t < T; ++t) {
            if (column + t >= s.ow) break;
            float old[V];
            clear<V>(old);
            if (add) load<V>(to + static_cast<u64>(t) * y_stride, old);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                acc[t][k] = old[k] + activate<false>(fmaf(acc[t][k] + bias[k], scale[k], shift[k]), at_once);
            }
            store<V>(to + static_cast<u64>(t) * y_stride, acc[t]);
        }
        if (!smooth) continue;
        // Code for the smooth ones in each place above would take the compiler long.
#pragma unroll 1
        for (u32 t = 0; t < min(s.ow - column, static_cast<u32>(T)); ++t) {
            float value[V];
            load<V>(to + static_cast<u64>(t) * y_stride, value);
#pragma unroll
            for (int k = 0; k < V; ++k) value[k] = activate(value[k], finish.act);
            store<V>(to + static_cast<u64>(t) * y_stride, value);
        }
    }
}

// y = act(norm(sums + bias)), or with `add` +=. `kernel` says for which square kernel and stride the code is, as K * 10 + S, or 0.
KERNEL depthwise_sums(const act_t* x, u32 x_stride, const float* weights, const float* bias, const float* gamma,
                      const float* beta, const float* mean, const float* variance, float epsilon, Act act, act_t* y,
                      u32 y_stride, u32 turned, u32 add, u32 kernel, WINDOWS) {
    GATHER_WINDOWS;
    Finish finish = {bias, gamma, beta, mean, variance, epsilon, act};
#define CALL(V, K, S) sums<V, K, S>(x, x_stride, weights, finish, y, y_stride, turned, add, n, s)
    if (vector == 1) CALL(1, 0, 0);
    else if (kernel == 11) CALL(4, 1, 1);
    else if (kernel == 31) CALL(4, 3, 1);
    else if (kernel == 32) CALL(4, 3, 2);
    else if (kernel == 51) CALL(4, 5, 1);
    else if (kernel == 52) CALL(4, 5, 2);
    else if (kernel == 71) CALL(4, 7, 1);
    else CALL(4, 0, 0);
#undef CALL
}

// The gradient of V channels of a pixel, for a K x K kernel moved by S: at most MOST windows in a row and in a column are over it,
// and their gradients are under way at once.
template <int V, int K, int S>
__device__ inline void windows_over(float (&acc)[V], const act_t* dy, u32 dy_stride, const float* weights, u32 sample, u32 row,
                                    u32 column, u32 channel, const Windows& s) {
    constexpr int MOST = (K + S - 1) / S;
    u32 down = row + s.top, across = column + s.left;
    const act_t* image = dy + static_cast<u64>(sample) * s.oh * s.ow * dy_stride + channel;
    Raw<V, act_t> raw[MOST][MOST];
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        i32 i = static_cast<i32>(down / S) - a;
        bool is_over = down % S + a * S < K && inside(i, s.oh);
        const act_t* line = image + (is_over ? static_cast<u64>(i) * s.ow * dy_stride : 0);
#pragma unroll
        for (int b = 0; b < MOST; ++b) {
            i32 j = static_cast<i32>(across / S) - b;
            raw[a][b] = pixel_at<V>(line, dy_stride, is_over && across % S + b * S < K ? j : -1, s.ow);
        }
    }
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        u32 u = down % S + a * S;
#pragma unroll
        for (int b = 0; b < MOST; ++b) {
            u32 v = across % S + b * S;
            if (u >= K || v >= K) continue;
            float gradient[V], weight[V];
            unpack(raw[a][b], gradient);
            load<V>(weights + static_cast<u64>(u * K + v) * s.c + channel, weight);
#pragma unroll
            for (int k = 0; k < V; ++k) acc[k] = fmaf(gradient[k], weight[k], acc[k]);
        }
    }
}

// The gradient of the input for any stride: a thread takes V channels of a pixel, and asks which windows it is under. With K and S
// these are the kernel's and the stride.
template <int V, int K, int S>
__device__ inline void input_gradient(const act_t* dy, u32 dy_stride, const float* weights, act_t* dx, u32 dx_stride, u32 add,
                                      u32 n, const Windows& s) {
    u32 channels = s.c / s.filters, packs = channels / V;
    u64 items = static_cast<u64>(n) * s.h * s.w * packs;
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        u64 place = item / packs;
        u32 channel = static_cast<u32>(item - place * packs) * V;
        u64 line = place / s.w;
        u32 column = static_cast<u32>(place - line * s.w);
        u32 sample = static_cast<u32>(line / s.h), row = static_cast<u32>(line - static_cast<u64>(sample) * s.h);
        float acc[V];
        clear<V>(acc);
        if (add) load<V>(dx + place * dx_stride + channel, acc);
        if constexpr (K > 0) {
            windows_over<V, K, S>(acc, dy, dy_stride, weights, sample, row, column, channel, s);
            store<V>(dx + place * dx_stride + channel, acc);
            continue;
        }
        // Of a kernel without dilation one tap in so many belongs to an output.
        u32 down = row + s.top, across = column + s.left;
        u32 u_step = s.dh == 1 ? s.sh : 1, v_step = s.dw == 1 ? s.sw : 1;
        for (u32 u = s.dh == 1 ? down % s.sh : 0; u < s.kh && u * s.dh <= down; u += u_step) {
            u32 i = (down - u * s.dh) / s.sh;
            if (i * s.sh != down - u * s.dh || i >= s.oh) continue;
            for (u32 v = s.dw == 1 ? across % s.sw : 0; v < s.kw && v * s.dw <= across; v += v_step) {
                u32 j = (across - v * s.dw) / s.sw;
                if (j * s.sw != across - v * s.dw || j >= s.ow) continue;
                const act_t* from = dy + ((static_cast<u64>(sample) * s.oh + i) * s.ow + j) * dy_stride;
                const float* tap = weights + static_cast<u64>(u * s.kw + v) * s.c;
                if constexpr (V == 1) {
                    for (u32 f = channel * s.filters; f < (channel + 1) * s.filters; ++f) {
                        acc[0] = fmaf(to_float(from[f]), tap[f], acc[0]);
                    }
                } else {
                    float gradient[V], weight[V];
                    load<V>(from + channel, gradient);
                    load<V>(tap + channel, weight);
#pragma unroll
                    for (int k = 0; k < V; ++k) acc[k] = fmaf(gradient[k], weight[k], acc[k]);
                }
            }
        }
        store<V>(dx + place * dx_stride + channel, acc);
    }
}

// dx = or, with `add`, += the gradient of the input. With V = 4 each channel has one filter. `kernel` as above.
KERNEL depthwise_input_gradient(const act_t* dy, u32 dy_stride, const float* weights, act_t* dx, u32 dx_stride, u32 add,
                                u32 kernel, WINDOWS) {
    GATHER_WINDOWS;
#define CALL(V, K, S) input_gradient<V, K, S>(dy, dy_stride, weights, dx, dx_stride, add, n, s)
    if (vector == 1) CALL(1, 0, 0);
    else if (kernel == 32) CALL(4, 3, 2);
    else if (kernel == 52) CALL(4, 5, 2);
    else CALL(4, 0, 0);
#undef CALL
}

// The sums over some rows of outputs for one row of K taps and V channels: a thread keeps the pixels under the taps.
template <int V, int K, int S>
__device__ inline void row_of_taps(float (&acc)[K][V], const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride,
                                   u32 u, u32 channel, u64 first, u64 end, u32 step, const Windows& s) {
    for (u64 line = first; line < end; line += step) {
        u32 sample = static_cast<u32>(line / s.oh), row = static_cast<u32>(line - static_cast<u64>(sample) * s.oh);
        i32 from = static_cast<i32>(row * S + u) - s.top;
        if (!inside(from, s.h)) continue;
        const act_t* pixels = x + (static_cast<u64>(sample) * s.h + from) * s.w * x_stride + channel;
        const act_t* gradient_line = dy + line * s.ow * dy_stride + channel;
        // The last pixels under the windows before are the first ones under the next.
        constexpr int KEPT = K - S, NEW = T * S;
        Raw<V, act_t> raw[KEPT + NEW], gradients[T];
#pragma unroll
        for (int v = 0; v < KEPT; ++v) raw[NEW + v] = pixel_at<V>(pixels, x_stride, v - static_cast<i32>(s.left), s.w);
#pragma unroll 1
        for (u32 j = 0; j < s.ow; j += T) {
            i32 next = static_cast<i32>(j * S) + KEPT - s.left;
#pragma unroll
            for (int v = 0; v < KEPT; ++v) raw[v] = raw[NEW + v];
#pragma unroll
            for (int v = 0; v < NEW; ++v) raw[KEPT + v] = pixel_at<V>(pixels, x_stride, next + v, s.w);
#pragma unroll
            for (int t = 0; t < T; ++t) gradients[t] = pixel_at<V>(gradient_line, dy_stride, static_cast<i32>(j + t), s.ow);
#pragma unroll
            for (int t = 0; t < T; ++t) {
                if (j + t >= s.ow) break; // zeros would make a NaN of an infinite pixel
                float gradient[V];
                unpack(gradients[t], gradient);
#pragma unroll
                for (int v = 0; v < K; ++v) {
                    float pixel[V];
                    unpack(raw[t * S + v], pixel);
#pragma unroll
                    for (int k = 0; k < V; ++k) acc[v][k] = fmaf(pixel[k], gradient[k], acc[v][k]);
                }
            }
        }
    }
}

// The rows of outputs are cut into parts; block.z lines of threads take every so many rows of one. Their sums are added in
// their order.
template <int V, int K, int S>
__device__ inline void weight_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows_each,
                                       float* parts, u32 n, const Windows& s) {
    DYNAMIC_SHARED(float, shared);
    u32 lane = threadIdx.x, u = threadIdx.y, line = threadIdx.z;
    u32 channel = (blockIdx.x * blockDim.x + lane) * V;
    bool real = channel < s.c;
    u64 rows = static_cast<u64>(n) * s.oh, first = static_cast<u64>(blockIdx.y) * rows_each;
    u64 end = min(first + rows_each, rows);
    float acc[K][V];
#pragma unroll
    for (int v = 0; v < K; ++v) clear<V>(acc[v]);
    if (real) row_of_taps<V, K, S>(acc, x, x_stride, dy, dy_stride, u, channel, first + line, end, blockDim.z, s);
    u32 own = (u * blockDim.x + lane) * (K * V), all = blockDim.x * blockDim.y * (K * V);
#pragma unroll
    for (int v = 0; v < K; ++v) {
#pragma unroll
        for (int k = 0; k < V; ++k) shared[line * all + own + v * V + k] = acc[v][k];
    }
    __syncthreads();
    if (line != 0 || !real) return;
    for (u32 other = 1; other < blockDim.z; ++other) {
#pragma unroll
        for (int v = 0; v < K; ++v) {
#pragma unroll
            for (int k = 0; k < V; ++k) acc[v][k] += shared[other * all + own + v * V + k];
        }
    }
    float* to = parts + (static_cast<u64>(blockIdx.y) * s.kh * K + u * K) * s.c + channel;
#pragma unroll
    for (int v = 0; v < K; ++v) store<V>(to + static_cast<u64>(v) * s.c, acc[v]);
}

// parts[p] = the gradient of the weights of a K x K kernel, moved by S, over rows_each rows of outputs. Geometry: grid (packs of
// channels, parts), blocks (at most 32 packs, rows of the kernel, lines).
KERNEL depthwise_weight_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows_each, float* parts,
                                 u32 kernel, WINDOWS) {
    GATHER_WINDOWS;
    if (kernel == 11) weight_gradient<4, 1, 1>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
    else if (kernel == 31) weight_gradient<4, 3, 1>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
    else if (kernel == 32) weight_gradient<4, 3, 2>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
    else if (kernel == 51) weight_gradient<4, 5, 1>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
    else if (kernel == 52) weight_gradient<4, 5, 2>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
    else weight_gradient<4, 7, 1>(x, x_stride, dy, dy_stride, rows_each, parts, n, s);
}

// The same for any kernel: a thread has one tap of one channel. Geometry: grid (groups of 32 channels, parts, taps), blocks
// (32 channels, lines).
KERNEL depthwise_tap_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows_each, float* parts,
                              WINDOWS) {
    GATHER_WINDOWS;
    DYNAMIC_SHARED(float, of_lines);
    u32 lane = threadIdx.x, line = threadIdx.y, tap = blockIdx.z, u = tap / s.kw, v = tap % s.kw;
    u32 channel = blockIdx.x * LANES + lane;
    bool real = channel < s.c;
    u64 rows = static_cast<u64>(n) * s.oh, first = static_cast<u64>(blockIdx.y) * rows_each;
    u64 end = min(first + rows_each, rows);
    float sum = 0.0f;
    for (u64 at = real ? first + line : end; at < end; at += blockDim.y) {
        u32 sample = static_cast<u32>(at / s.oh), row = static_cast<u32>(at - static_cast<u64>(sample) * s.oh);
        i32 from = static_cast<i32>(row * s.sh + u * s.dh) - s.top;
        if (!inside(from, s.h)) continue;
        const act_t* pixels = x + (static_cast<u64>(sample) * s.h + from) * s.w * x_stride + channel / s.filters;
        const act_t* gradients = dy + at * s.ow * dy_stride + channel;
        for (u32 j = 0; j < s.ow; ++j) {
            i32 column = static_cast<i32>(j * s.sw + v * s.dw) - s.left;
            if (!inside(column, s.w)) continue;
            float pixel = to_float(pixels[static_cast<u64>(column) * x_stride]);
            sum = fmaf(pixel, to_float(gradients[static_cast<u64>(j) * dy_stride]), sum);
        }
    }
    of_lines[line * LANES + lane] = sum;
    __syncthreads();
    if (line != 0 || !real) return;
    for (u32 other = 1; other < blockDim.y; ++other) sum += of_lines[other * LANES + lane];
    parts[(static_cast<u64>(blockIdx.y) * s.kh * s.kw + tap) * s.c + channel] = sum;
}
