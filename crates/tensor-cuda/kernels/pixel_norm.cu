// Normalizations of each pixel by its own channels: layer normalization, local response normalization.
//
// Layout: a tensor is rows of c channels, with a row stride.
// Writes: dx += if `add`, else =; all others =. Sums are added in an order that the shapes decide.
#include "towers.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WARPS = THREADS / 32;

// Layer normalization. A warp takes a row, which it reads again from the cache: a lane has every 32nd pack of `vector` channels.
// Geometry: any number of blocks of THREADS.

// A row's mean, in two parts, and one over its deviation: first around the first channel, since sums of large numbers would lose digits, and
// then around the mean of that, in case the number stands out.
struct Moments {
    float about, away, inverse; // near the mean, and what is left of it

    __device__ float normalized(float x) const { return (x - about - away) * inverse; }
};

template <int V>
__device__ inline Moments moments(const act_t* x, u32 c, float epsilon) {
    u32 lane = threadIdx.x % 32;
    float pivot = to_float(x[0]), total = 0.0f, squares = 0.0f;
    for (u32 k = lane * V; k < c; k += 32 * V) {
        float v[V];
        load<V>(x + k, v);
#pragma unroll
        for (int i = 0; i < V; ++i) total += v[i] - pivot;
    }
    float about = pivot + warp_sum(total) / c;
    total = 0.0f;
    for (u32 k = lane * V; k < c; k += 32 * V) {
        float v[V];
        load<V>(x + k, v);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            float away = v[i] - about;
            total += away;
            squares += away * away;
        }
    }
    float away = warp_sum(total) / c, variance = warp_sum(squares) / c - away * away;
    return {about, away, 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + epsilon)}; // by rounding; a NaN stays
}

template <int V>
__device__ inline void normalize(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 c, const float* gamma,
                                 const float* beta, float epsilon) {
    u32 lane = threadIdx.x % 32;
    for (u64 row = global_thread() / 32; row < rows; row += global_threads() / 32) {
        const act_t* from = x + row * x_stride;
        Moments of = moments<V>(from, c, epsilon);
        for (u32 k = lane * V; k < c; k += 32 * V) {
            float v[V];
            load<V>(from + k, v);
#pragma unroll
            for (int i = 0; i < V; ++i) v[i] = fmaf(of.normalized(v[i]), gamma[k + i], beta[k + i]);
            store<V>(y + row * y_stride + k, v);
        }
    }
}

// y = (x - mean) * inverse * gamma + beta
KERNEL layer_norm(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 c, const float* gamma,
                  const float* beta, float epsilon, u32 vector) {
    if (vector == 1) normalize<1>(x, x_stride, y, y_stride, rows, c, gamma, beta, epsilon);
    else normalize<PACK>(x, x_stride, y, y_stride, rows, c, gamma, beta, epsilon);
}

template <int V>
__device__ inline void gradients(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                                 u32 rows, u32 c, const float* gamma, float epsilon, float* all, u32 add) {
    u32 lane = threadIdx.x % 32;
    for (u64 row = global_thread() / 32; row < rows; row += global_threads() / 32) {
        const act_t* from = x + row * x_stride;
        const act_t* above = dy + row * dy_stride;
        Moments of = moments<V>(from, c, epsilon);
        if (lane == 0) {
            all[3 * row] = of.about;
            all[3 * row + 1] = of.away;
            all[3 * row + 2] = of.inverse;
        }
        float total = 0.0f, products = 0.0f;
        for (u32 k = lane * V; k < c; k += 32 * V) {
            float v[V], d[V];
            load<V>(from + k, v);
            load<V>(above + k, d);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                float g = gamma[k + i] * d[i];
                total += g;
                products += g * of.normalized(v[i]);
            }
        }
        total = warp_sum(total) / c;
        products = warp_sum(products) / c;
        for (u32 k = lane * V; k < c; k += 32 * V) {
            float v[V], d[V], old[V] = {};
            load<V>(from + k, v);
            load<V>(above + k, d);
            act_t* to = dx + row * dx_stride + k;
            if (add) load<V>(to, old);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                float xhat = of.normalized(v[i]);
                v[i] = old[i] + of.inverse * (gamma[k + i] * d[i] - total - xhat * products);
            }
            store<V>(to, v);
        }
    }
}

// With g = gamma * dy: dx = inverse * (g - mean(g) - xhat * mean(g * xhat)). `all` receives each row's moments.
KERNEL layer_norm_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 rows,
                           u32 c, const float* gamma, float epsilon, float* all, u32 add, u32 vector) {
    if (vector == 1) gradients<1>(x, x_stride, dy, dy_stride, dx, dx_stride, rows, c, gamma, epsilon, all, add);
    else gradients<PACK>(x, x_stride, dy, dy_stride, dx, dx_stride, rows, c, gamma, epsilon, all, add);
}

// The sums of dy * xhat and of dy over `rows_each` rows, for each channel: block x's in row x of `dgamma` and `dbeta`, which are
// partial sums. Geometry: blocks of (32, WARPS) threads; grid (parts, packs of 32 channels).
KERNEL layer_norm_sums(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows, u32 c, u32 rows_each,
                       const float* all, float* dgamma, float* dbeta) {
    __shared__ float shared[2][WARPS][32];
    u32 lane = threadIdx.x, line = threadIdx.y, k = blockIdx.y * 32 + lane;
    u64 first = static_cast<u64>(blockIdx.x) * rows_each, end = min(first + rows_each, static_cast<u64>(rows));
    float of_dy = 0.0f, of_products = 0.0f;
    if (k < c) {
#pragma unroll 4
        for (u64 row = first + line; row < end; row += WARPS) {
            float d = to_float(dy[row * dy_stride + k]);
            of_dy += d;
            Moments of = {all[3 * row], all[3 * row + 1], all[3 * row + 2]};
            of_products += d * of.normalized(to_float(x[row * x_stride + k]));
        }
    }
    shared[0][line][lane] = of_dy;
    shared[1][line][lane] = of_products;
    __syncthreads();
    if (line != 0 || k >= c) return;
#pragma unroll
    for (u32 other = 1; other < WARPS; ++other) {
        of_dy += shared[0][other][lane];
        of_products += shared[1][other][lane];
    }
    dbeta[static_cast<u64>(blockIdx.x) * c + k] = of_dy;
    dgamma[static_cast<u64>(blockIdx.x) * c + k] = of_products;
}

// Local response normalization. A thread takes a channel of a row. Geometry: any number of blocks of THREADS.

struct Response {
    u32 c, size, before; // channels, neighbours, and those of them before a channel
    float factor, beta, bias; // alpha / size

    // What channel k is divided by, to the power of beta.
    __device__ float scale(const act_t* x, u32 k) const {
        u32 end = min(k + size - before, c);
        float squares = 0.0f;
        for (u32 other = k < before ? 0 : k - before; other < end; ++other) {
            float v = to_float(x[other]);
            squares += v * v;
        }
        return bias + factor * squares;
    }

    __device__ float power(float scale) const {
        if (beta != 0.75f) return powf(scale, -beta);
        float root = sqrtf(scale); // AlexNet's
        return 1.0f / (root * sqrtf(root));
    }
};

#define RESPONSE u32 size, u32 before, float factor, float beta, float bias

// y = x * scale^-beta
KERNEL local_response_norm(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 c, RESPONSE) {
    Response s = {c, size, before, factor, beta, bias};
    for (u64 item = global_thread(); item < static_cast<u64>(rows) * c; item += global_threads()) {
        u64 row = item / c;
        u32 k = static_cast<u32>(item - row * c);
        const act_t* from = x + row * x_stride;
        y[row * y_stride + k] = from_float<act_t>(to_float(from[k]) * s.power(s.scale(from, k)));
    }
}

// dx = dy * scale^-beta - 2 factor beta x * the sum of dy x scale^(-beta - 1) of those channels that this one is a neighbour of.
KERNEL local_response_norm_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                                    u32 rows, u32 c, RESPONSE, u32 add) {
    Response s = {c, size, before, factor, beta, bias};
    u32 ahead = size - 1 - before;
    for (u64 item = global_thread(); item < static_cast<u64>(rows) * c; item += global_threads()) {
        u64 row = item / c;
        u32 k = static_cast<u32>(item - row * c);
        const act_t* from = x + row * x_stride;
        const act_t* above = dy + row * dy_stride;
        float sum = 0.0f, own = 0.0f;
        u32 end = min(k + before + 1, c);
        for (u32 other = k < ahead ? 0 : k - ahead; other < end; ++other) {
            float scale = s.scale(from, other), d = to_float(above[other]) * s.power(scale);
            if (other == k) own = d;
            sum += d * to_float(from[other]) / scale;
        }
        float gradient = own - 2.0f * factor * beta * to_float(from[k]) * sum;
        act_t* to = dx + row * dx_stride + k;
        *to = from_float<act_t>(add ? to_float(*to) + gradient : gradient);
    }
}
