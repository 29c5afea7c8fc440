// Batch normalization and the activation after it, forward and backward, each in two launches: one that sums, one that maps. At the end
// stands group normalization, which sums and maps in one.
//
// Layout: tensors are rows (pixels) of channels with a row stride. A thread handles `vector` neighbouring channels, QUAD or
// one, in many rows, so what belongs to a channel stays in its registers; of more channels it would need too many.
// Geometry: blocks of (quads, rows of threads), at most 256 threads. A block works on a tile of at most 128 bytes of
// channels, a full cache line of every row, and on a slab of rows: grid (tiles, slabs). So the tiles of a slab, which may
// share lines, run together. Threads take BATCH rows at a time, and load the next ones before they compute.
// Sums: a block adds up its slab and leaves a partial result in scratch memory; the last block of a tile to finish adds the
// slabs' in their order. The split depends on the shape alone, so the sums have the same bits every time.
// The floor is memory. Forward an element is read twice and written once (6 bytes in half formats, 12 in f32), backward
// two are read twice and one written (10 or 20, and 2 or 4 more where dx is added to). Of tensors that fit into the cache
// the second reading comes from there.
#include "towers.cuh"

constexpr int QUAD = 4;
constexpr u32 MOST_THREADS = 256;
constexpr u32 MOST_CHANNELS = 128 / sizeof(act_t); // of a tile

// What a thread works on.
struct Part {
    u64 first;   // the slab's first row
    u32 count;   // the slab's rows; 0 for a thread without channels
    u32 channel; // the first of its channels
    bool inside; // whether it has any: the last tile may be narrower
};

template <int V>
__device__ Part part_of(u32 rows, u32 channels, u32 slab_rows) {
    Part part;
    part.first = static_cast<u64>(blockIdx.y) * slab_rows;
    part.channel = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    part.inside = part.channel < channels;
    u64 left = rows - part.first;
    part.count = part.inside ? static_cast<u32>(left < slab_rows ? left : slab_rows) : 0;
    return part;
}

// The thread's channels in BATCH rows of the slab, from `row` on, as far as there are any.
template <int V, int BATCH>
__device__ inline void load_rows(const act_t* x, u32 stride, u32 row, u32 count, Raw<V, act_t> (&rows)[BATCH]) {
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
        u32 r = row + b * blockDim.y;
        if (r < count) rows[b] = fetch<V>(x + static_cast<u64>(r) * stride);
    }
}

// Shared memory for the numbers of all threads, and for a number of each.
constexpr u32 PITCH = MOST_THREADS + 1; // numbers of a thread lie in different banks
__device__ inline float* numbers_of_all() {
    __shared__ float all[3 * QUAD * PITCH];
    return all;
}
__device__ inline float* number_of_each() {
    __shared__ float each[MOST_THREADS];
    return each;
}

// Adds up over the block's rows of threads, into the numbers of row 0, always in the same order. All threads call it, and meet at a
// barrier before they call it again. Every sum is computed by as many threads as there are for it, each of which adds a share of the rows.
template <int N>
__device__ void add_rows(float (&sums)[N]) {
    static_assert(N <= 3 * QUAD, "there is room for so many numbers");
    float *all = numbers_of_all(), *shares = number_of_each();
    u32 across = blockDim.x, rows = blockDim.y, threads = across * rows;
    u32 thread = threadIdx.y * across + threadIdx.x;
    if (rows == 1) return;
#pragma unroll
    for (int n = 0; n < N; ++n) all[n * PITCH + thread] = sums[n];
    __syncthreads();
    u32 totals = N * across, sharing = threads > totals ? threads / totals : 1;
    for (u32 k = thread; k < totals * sharing; k += threads) {
        u32 n = k % N, column = k / N % across, share = k / totals;
        const float* own = all + n * PITCH + column;
        float sum = 0.0f;
#pragma unroll 8
        for (u32 row = share; row < rows; row += sharing) sum += own[row * across];
        if (sharing > 1) shares[k] = sum;
        else all[n * PITCH + column] = sum; // nobody else reads that column's number
    }
    __syncthreads();
    if (threadIdx.y != 0) return;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        u32 k = threadIdx.x * N + n;
        sums[n] = sharing > 1 ? shares[k] : all[n * PITCH + threadIdx.x];
#pragma unroll 1
        for (u32 share = 1; share < sharing; ++share) sums[n] += shares[share * totals + k];
    }
}

// Where a slab leaves the first or second of its two numbers of a channel.
__device__ inline float* partial(float* partials, u32 slab, u32 which, u32 channels, u32 channel) {
    return partials + (static_cast<u64>(slab) * 2 + which) * channels + channel;
}

// N numbers of each of the thread's channels: computed once in a block, and handed out through shared memory.
template <int V, int N, class F>
__device__ void per_channel(u32 channels, float (&mine)[N][V], F compute) {
    __shared__ __align__(16) float staged[N][MOST_CHANNELS];
    u32 first = blockIdx.x * blockDim.x * V;
    u32 thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    for (u32 k = thread; k < blockDim.x * V && first + k < channels; k += threads) {
        float all[N];
        compute(first + k, all);
#pragma unroll
        for (int n = 0; n < N; ++n) staged[n][k] = all[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; ++n) load<V>(&staged[n][threadIdx.x * V], mine[n]);
}

// The numbers of a channel, as `per_channel` computes them. Normalization is
// z = (x - MEAN) * SCALE + BETA: the mean goes first, since folded into the offset a large one would cost digits.
// Both passes round alike, so the backward pass finds what the forward pass put into the activation.
enum { MEAN, SCALE, BETA, OFFSET, SLOPE };

template <int V, int N>
__device__ inline float normalized(float centred, const float (&of)[N][V], int k) {
    return fmaf(centred, of[SCALE][k], of[BETA][k]);
}

// Where statistics go.
struct Results {
    float samples; // of this replica
    float epsilon;
    const float* bias; // that x lacks, or null
    float* saved;      // mean and 1 / sqrt(var + epsilon)
    float* sums;       // samples * mean and samples * unbiased variance
    float* stats;      // instead of these, where it is not null: mean, sum of squared differences, at the end the samples
};

// Notes a channel's statistics, of `count` numbers, with one less in the unbiased variance. `lacking` is the bias.
__device__ inline void note(const Results& to, u32 c, u32 channels, float count, float others, float mean,
                            float squares, float lacking) {
    to.saved[c] = mean;
    to.saved[channels + c] = 1.0f / sqrtf(squares / count + to.epsilon);
    to.sums[c] = to.samples * (mean + lacking);
    to.sums[channels + c] = to.samples * (squares / others);
}

// The slabs' means and sums of squares around them, brought together around the first slab's mean, and what follows.
template <int V>
__device__ void finish_statistics(Part part, u32 rows, u32 channels, u32 slab_rows, float* partials, Results to) {
    float pivot[V], total[3 * V] = {};
    if (part.inside) load<V>(partial(partials, 0, 0, channels, part.channel), pivot);
#pragma unroll 8
    for (u32 slab = part.inside ? threadIdx.y : gridDim.y; slab < gridDim.y; slab += blockDim.y) {
        float mean[V], squares[V];
        load<V>(partial(partials, slab, 0, channels, part.channel), mean);
        load<V>(partial(partials, slab, 1, channels, part.channel), squares);
        float count = slab + 1 < gridDim.y ? slab_rows : rows - slab * slab_rows;
#pragma unroll
        for (int k = 0; k < V; ++k) {
            float away = mean[k] - pivot[k];
            total[k] += count * away;
            total[V + k] += count * away * away;
            total[2 * V + k] += squares[k];
        }
    }
    add_rows(total);
    if (!part.inside || threadIdx.y != 0) return;
    float count = rows > 1 ? rows : 1, others = rows > 2 ? rows - 1 : 1, lacking[V] = {};
    if (to.bias) { // all loads before the first store, which might lie where they do for all that the compiler knows
#pragma unroll
        for (int k = 0; k < V; ++k) lacking[k] = to.bias[part.channel + k];
    }
    if (to.stats && part.channel == 0) to.stats[2 * channels] = to.samples;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        float away = total[k] / count;
        float squares = total[2 * V + k] + (total[V + k] - total[k] * away);
        if (squares < 0.0f) squares = 0.0f; // by rounding; a NaN stays
        u32 c = part.channel + k;
        if (to.stats) {
            to.stats[c] = pivot[k] + away;
            to.stats[channels + c] = squares;
        } else {
            note(to, c, channels, count, others, pivot[k] + away, squares, lacking[k]);
        }
    }
}

template <int V>
__device__ void statistics(const act_t* x, u32 x_stride, u32 rows, u32 channels, u32 slab_rows, float* partials,
                           u32* counters, Results to) {
    constexpr int BATCH = 4;
    Part part = part_of<V>(rows, channels, slab_rows);
    x += part.first * x_stride + part.channel;
    // Sums of differences from the mean of some rows lose no digits to a large mean, and few to an outlier among these.
    constexpr u32 PILOT = 4;
    float pivot[V] = {}, total[2 * V] = {};
    Raw<V, act_t> ahead[BATCH];
    load_rows<V>(x, x_stride, threadIdx.y, part.count, ahead);
    u32 some = part.count < PILOT ? part.count : PILOT;
#pragma unroll
    for (u32 row = 0; row < PILOT; ++row) {
        float value[V] = {};
        if (row < some) load<V>(x + static_cast<u64>(row) * x_stride, value);
#pragma unroll
        for (int k = 0; k < V; ++k) pivot[k] += value[k];
    }
#pragma unroll
    for (int k = 0; k < V; ++k) pivot[k] /= some > 0 ? some : 1;
    for (u32 row = threadIdx.y; row < part.count; row += BATCH * blockDim.y) {
        Raw<V, act_t> xs[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) xs[b] = ahead[b];
        load_rows<V>(x, x_stride, row + BATCH * blockDim.y, part.count, ahead);
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (row + b * blockDim.y >= part.count) break;
            float value[V];
            unpack(xs[b], value);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                float away = value[k] - pivot[k];
                total[k] += away;
                total[V + k] = fmaf(away, away, total[V + k]);
            }
        }
    }
    add_rows(total);
    if (part.inside && threadIdx.y == 0) {
        float count = part.count > 0 ? part.count : 1, mean[V], squares[V];
#pragma unroll
        for (int k = 0; k < V; ++k) {
            float away = total[k] / count;
            mean[k] = pivot[k] + away;
            squares[k] = total[V + k] - total[k] * away;
        }
        store<V>(partial(partials, blockIdx.y, 0, channels, part.channel), mean);
        store<V>(partial(partials, blockIdx.y, 1, channels, part.channel), squares);
    }
    if (!is_last(counters + blockIdx.x, gridDim.y)) return;
    finish_statistics<V>(part, rows, channels, slab_rows, partials, to);
}

template <class Is>
__device__ void normalize(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 channels, u32 slab_rows,
                          const float* gamma, const float* beta, const float* mean, const float* deviation,
                          u32 is_variance, const float* bias, float epsilon, u32 act) {
    constexpr int V = Is::V, BATCH = 4;
    Part part = part_of<V>(rows, channels, slab_rows);
    x += part.first * x_stride + part.channel;
    y += part.first * y_stride + part.channel;
    Raw<V, act_t> ahead[BATCH];
    load_rows<V>(x, x_stride, threadIdx.y, part.count, ahead);
    float of[3][V];
    per_channel<V>(channels, of, [=](u32 c, float (&all)[3]) {
        all[MEAN] = (mean ? mean[c] : 0.0f) - (bias ? bias[c] : 0.0f);
        all[SCALE] = is_variance ? gamma[c] / sqrtf(deviation[c] + epsilon) : gamma[c] * deviation[c];
        all[BETA] = beta ? beta[c] : 0.0f;
    });
    for (u32 row = threadIdx.y; row < part.count; row += BATCH * blockDim.y) {
        Raw<V, act_t> xs[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) xs[b] = ahead[b];
        load_rows<V>(x, x_stride, row + BATCH * blockDim.y, part.count, ahead);
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            u32 r = row + b * blockDim.y;
            if (r >= part.count) break;
            float value[V];
            unpack(xs[b], value);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                value[k] = activate<Is::SMOOTH>(normalized<V>(value[k] - of[MEAN][k], of, k), act);
            }
            store<V>(y + static_cast<u64>(r) * y_stride, value);
        }
    }
}

// Sums of dz, the gradient before the activation, and of dz * (x - mean).
template <class Is>
__device__ void gradient_sums(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows, u32 channels,
                              u32 slab_rows, const float* gamma, const float* beta, const float* saved, u32 act,
                              float* partials, u32* counters, float* dgamma, float* dbeta) {
    constexpr int V = Is::V, BATCH = PACK / (Is::SMOOTH ? 4 : 2); // as many as registers hold
    Part part = part_of<V>(rows, channels, slab_rows);
    x += part.first * x_stride + part.channel;
    dy += part.first * dy_stride + part.channel;
    Raw<V, act_t> xs_ahead[BATCH], dys_ahead[BATCH];
    load_rows<V>(x, x_stride, threadIdx.y, part.count, xs_ahead);
    load_rows<V>(dy, dy_stride, threadIdx.y, part.count, dys_ahead);
    float of[3][V], total[2 * V] = {};
    per_channel<V>(channels, of, [=](u32 c, float (&all)[3]) {
        all[MEAN] = saved[c];
        all[SCALE] = gamma[c] * saved[channels + c];
        all[BETA] = beta[c];
    });
    for (u32 row = threadIdx.y; row < part.count; row += BATCH * blockDim.y) {
        Raw<V, act_t> xs[BATCH], dys[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) xs[b] = xs_ahead[b], dys[b] = dys_ahead[b];
        load_rows<V>(x, x_stride, row + BATCH * blockDim.y, part.count, xs_ahead);
        load_rows<V>(dy, dy_stride, row + BATCH * blockDim.y, part.count, dys_ahead);
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (row + b * blockDim.y >= part.count) break;
            float value[V], above[V];
            unpack(xs[b], value);
            unpack(dys[b], above);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                float centred = value[k] - of[MEAN][k];
                float dz = before<Is::SMOOTH>(normalized<V>(centred, of, k), above[k], act);
                total[k] += dz;
                total[V + k] = fmaf(dz, centred, total[V + k]);
            }
        }
    }
    add_rows(total);
    if (part.inside && threadIdx.y == 0) {
        float first[V], second[V];
#pragma unroll
        for (int k = 0; k < V; ++k) first[k] = total[k], second[k] = total[V + k];
        store<V>(partial(partials, blockIdx.y, 0, channels, part.channel), first);
        store<V>(partial(partials, blockIdx.y, 1, channels, part.channel), second);
    }
    if (!is_last(counters + blockIdx.x, gridDim.y)) return;
#pragma unroll
    for (int k = 0; k < 2 * V; ++k) total[k] = 0.0f;
#pragma unroll 8
    for (u32 slab = part.inside ? threadIdx.y : gridDim.y; slab < gridDim.y; slab += blockDim.y) {
        float first[V], second[V];
        load<V>(partial(partials, slab, 0, channels, part.channel), first);
        load<V>(partial(partials, slab, 1, channels, part.channel), second);
#pragma unroll
        for (int k = 0; k < V; ++k) total[k] += first[k], total[V + k] += second[k];
    }
    add_rows(total);
    if (!part.inside || threadIdx.y != 0) return;
    float inverse[V];
#pragma unroll
    for (int k = 0; k < V; ++k) inverse[k] = saved[channels + part.channel + k];
#pragma unroll
    for (int k = 0; k < V; ++k) {
        u32 c = part.channel + k;
        dbeta[c] = total[k];
        dgamma[c] = total[V + k] * inverse[k];
    }
}

// With xhat = (x - mean) / deviation and the count m of rows in the whole batch, this replica's or more:
// dx = gamma / deviation * (dz - dbeta / m - xhat * dgamma / m) = SCALE * dz + ((x - MEAN) * SLOPE + OFFSET).
template <class Is>
__device__ void input_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                               u32 rows, u32 channels, u32 slab_rows, const float* gamma, const float* beta,
                               const float* saved, const float* dgamma, const float* dbeta, float count, u32 act,
                               bool add) {
    constexpr int V = Is::V, BATCH = Is::SMOOTH || PACK == 4 ? 2 : 3; // as many as registers hold
    Part part = part_of<V>(rows, channels, slab_rows);
    x += part.first * x_stride + part.channel;
    dy += part.first * dy_stride + part.channel;
    dx += part.first * dx_stride + part.channel;
    Raw<V, act_t> xs[BATCH], dys[BATCH];
    load_rows<V>(x, x_stride, threadIdx.y, part.count, xs);
    load_rows<V>(dy, dy_stride, threadIdx.y, part.count, dys);
    float of[5][V];
    per_channel<V>(channels, of, [=](u32 c, float (&all)[5]) {
        float inverse = saved[channels + c], scale = gamma[c] * inverse, share = scale / count;
        all[MEAN] = saved[c];
        all[SCALE] = scale;
        all[BETA] = beta[c];
        all[OFFSET] = -share * dbeta[c];
        all[SLOPE] = -share * inverse * dgamma[c];
    });
    for (u32 row = threadIdx.y; row < part.count; row += BATCH * blockDim.y) {
        Raw<V, act_t> olds[BATCH];
        load_rows<V>(dx, dx_stride, row, add ? part.count : 0, olds);
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            u32 r = row + b * blockDim.y;
            if (r >= part.count) break;
            float value[V], above[V], sum[V] = {};
            unpack(xs[b], value);
            unpack(dys[b], above);
            if (add) unpack(olds[b], sum);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                float centred = value[k] - of[MEAN][k];
                float dz = before<Is::SMOOTH>(normalized<V>(centred, of, k), above[k], act);
                float gradient = fmaf(of[SCALE][k], dz, fmaf(centred, of[SLOPE][k], of[OFFSET][k]));
                sum[k] = add ? sum[k] + gradient : gradient;
            }
            store<V>(dx + static_cast<u64>(r) * dx_stride, sum);
        }
        load_rows<V>(x, x_stride, row + BATCH * blockDim.y, part.count, xs);
        load_rows<V>(dy, dy_stride, row + BATCH * blockDim.y, part.count, dys);
    }
}

// saved = mean and 1 / sqrt(var + epsilon); sums = samples * mean (with a bias that x lacks, where there is one) and
// samples * unbiased variance. With stats they are left alone, and stats = mean, sum of squared differences, samples.
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_statistics(const act_t* x, u32 x_stride, u32 rows, u32 channels, u32 slab_rows, float samples, float epsilon,
                     const float* bias, float* partials, u32* counters, float* saved, float* sums, float* stats,
                     u32 vector) {
    Results to = {samples, epsilon, bias, saved, sums, stats};
    if (vector == 1) {
        statistics<1>(x, x_stride, rows, channels, slab_rows, partials, counters, to);
    } else {
        statistics<QUAD>(x, x_stride, rows, channels, slab_rows, partials, counters, to);
    }
}

// saved and sums, of the statistics that all replicas left: one behind the other, joined in this order. Samples have so many
// pixels. A thread a channel; what lies between the replicas' means is added around the mean of all.
KERNEL bn_join(const float* stats, u32 replicas, u32 channels, float pixels, float samples, float epsilon,
               const float* bias, float* saved, float* sums) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x, pitch = 2 * channels + 1;
    if (c >= channels) return;
    float all = 0.0f, pivot = 0.0f, total = 0.0f, squares = 0.0f;
    for (u32 k = replicas; k-- > 0;) { // the mean of the first that has samples
        if (stats[k * pitch + 2 * channels] > 0.0f) pivot = stats[k * pitch + c];
    }
    for (u32 k = 0; k < replicas; ++k) {
        const float* own = stats + k * pitch;
        float count = own[2 * channels] * pixels;
        all += count;
        if (count > 0.0f) total += count * (own[c] - pivot);
    }
    float count = all > 1.0f ? all : 1.0f, mean = pivot + total / count;
    for (u32 k = 0; k < replicas; ++k) {
        const float* own = stats + k * pitch;
        float away = own[c] - mean;
        squares += own[channels + c] + own[2 * channels] * pixels * away * away;
    }
    Results to = {samples, epsilon, bias, saved, sums, nullptr};
    note(to, c, channels, count, all > 2.0f ? all - 1.0f : 1.0f, mean, squares, bias ? bias[c] : 0.0f);
}

// y = act((x + bias - mean) * gamma * deviation + beta), with 1 / sqrt(var + epsilon) as the deviation. If so said it is
// given as the variance. Bias, mean and beta may be null: zeros.
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_normalize(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 channels, u32 slab_rows,
                    const float* gamma, const float* beta, const float* mean, const float* deviation,
                    u32 is_variance, const float* bias, float epsilon, u32 act, u32 vector) {
    CALL_VARIANT(QUAD, vector, act, normalize, x, x_stride, y, y_stride, rows, channels, slab_rows, gamma, beta, mean,
                 deviation, is_variance, bias, epsilon, act);
}

// dgamma and dbeta =
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_gradient_sums(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows, u32 channels,
                        u32 slab_rows, const float* gamma, const float* beta, const float* saved, u32 act,
                        float* partials, u32* counters, float* dgamma, float* dbeta, u32 vector) {
    CALL_VARIANT(QUAD, vector, act, gradient_sums, x, x_stride, dy, dy_stride, rows, channels, slab_rows, gamma, beta,
                 saved, act, partials, counters, dgamma, dbeta);
}

// dx = or, if so said, dx +=
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_input_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                         u32 rows, u32 channels, u32 slab_rows, const float* gamma, const float* beta,
                         const float* saved, const float* dgamma, const float* dbeta, float count, u32 act, u32 add,
                         u32 vector) {
    CALL_VARIANT(QUAD, vector, act, input_gradient, x, x_stride, dy, dy_stride, dx, dx_stride, rows, channels, slab_rows,
                 gamma, beta, saved, dgamma, dbeta, count, act, add != 0);
}

// Group normalization. A block works on one group of one sample, whose numbers it reads again from the cache: a thread takes every
// MOST_THREADS-th number, neighbours side by side. Geometry: grid (samples * groups), blocks of MOST_THREADS.

// The block's group, with its statistics around its first number: sums of large numbers would lose digits.
struct Group {
    u32 sample, first, size, count; // its first channel, channels, numbers
    float mean, inverse;

    __device__ Group(const act_t* x, u32 stride, u32 pixels, u32 channels, u32 groups, float epsilon) {
        sample = blockIdx.x / groups;
        size = channels / groups;
        first = blockIdx.x % groups * size;
        count = pixels * size;
        const act_t* own = of(x, stride, pixels);
        float pivot = to_float(own[0]), total = 0.0f, squares = 0.0f;
        for (u32 i = threadIdx.x; i < count; i += MOST_THREADS) total += to_float(own[at(i, stride)]) - pivot;
        mean = pivot + block_sum(total) / count;
        for (u32 i = threadIdx.x; i < count; i += MOST_THREADS) {
            float away = to_float(own[at(i, stride)]) - mean;
            squares += away * away;
        }
        inverse = 1.0f / sqrtf(block_sum(squares) / count + epsilon);
    }

    // The group's numbers in a tensor.
    template <class T>
    __device__ T* of(T* x, u32 stride, u32 pixels) const {
        return x + static_cast<u64>(sample) * pixels * stride + first;
    }

    // The place of its i-th number there.
    __device__ u64 at(u32 i, u32 stride) const { return static_cast<u64>(i / size) * stride + i % size; }
};

// y = act((x - mean) * gamma * inverse + beta)
KERNEL group_norm(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 pixels, u32 channels, u32 groups,
                  const float* gamma, const float* beta, float epsilon, u32 act) {
    Group group(x, x_stride, pixels, channels, groups, epsilon);
    const act_t* from = group.of(x, x_stride, pixels);
    act_t* to = group.of(y, y_stride, pixels);
    for (u32 i = threadIdx.x; i < group.count; i += MOST_THREADS) {
        u32 c = group.first + i % group.size;
        float xhat = (to_float(from[group.at(i, x_stride)]) - group.mean) * group.inverse;
        to[group.at(i, y_stride)] = from_float<act_t>(activate(fmaf(xhat, gamma[c], beta[c]), act));
    }
}

// dx = or, if so said, dx +=; partials = the sums of dz and of dz * xhat of each channel of each sample, with dz the gradient before
// the activation.
KERNEL group_norm_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                           u32 pixels, u32 channels, u32 groups, const float* gamma, const float* beta, float epsilon,
                           u32 act, float* partials, u32 add) {
    __shared__ float sums[2][MOST_THREADS];
    Group group(x, x_stride, pixels, channels, groups, epsilon);
    const act_t* values = group.of(x, x_stride, pixels);
    const act_t* above = group.of(dy, dy_stride, pixels);
    float* own = partials + static_cast<u64>(group.sample) * 2 * channels;
    float total = 0.0f, products = 0.0f;
    // A thread has one channel in every so many pixels.
    for (u32 tile = 0; tile < group.size; tile += MOST_THREADS) {
        u32 lanes = min(group.size - tile, MOST_THREADS);
        u32 rows = MOST_THREADS / lanes, lane = threadIdx.x % lanes, row = threadIdx.x / lanes;
        u32 c = group.first + tile + lane;
        float of_dz = 0.0f, of_products = 0.0f;
        for (u32 pixel = row < rows ? row : pixels; pixel < pixels; pixel += rows) {
            float xhat = (to_float(values[static_cast<u64>(pixel) * x_stride + tile + lane]) - group.mean) * group.inverse;
            float dy_here = to_float(above[static_cast<u64>(pixel) * dy_stride + tile + lane]);
            float dz = before(fmaf(xhat, gamma[c], beta[c]), dy_here, act);
            of_dz += dz;
            of_products += dz * xhat;
        }
        sums[0][threadIdx.x] = of_dz; // only the last tile has several rows, whose sums are read
        sums[1][threadIdx.x] = of_products;
        __syncthreads();
        if (threadIdx.x < lanes) {
            for (u32 r = 1; r < rows; ++r) {
                of_dz += sums[0][r * lanes + lane];
                of_products += sums[1][r * lanes + lane];
            }
            own[c] = of_dz;
            own[channels + c] = of_products;
            total += gamma[c] * of_dz;
            products += gamma[c] * of_products;
        }
    }
    total = block_sum(total) / group.count;
    products = block_sum(products) / group.count;
    act_t* to = group.of(dx, dx_stride, pixels);
    for (u32 i = threadIdx.x; i < group.count; i += MOST_THREADS) {
        u32 c = group.first + i % group.size;
        float xhat = (to_float(values[group.at(i, x_stride)]) - group.mean) * group.inverse;
        float dz = before(fmaf(xhat, gamma[c], beta[c]), to_float(above[group.at(i, dy_stride)]), act);
        float gradient = group.inverse * (gamma[c] * dz - total - xhat * products);
        act_t* place = to + group.at(i, dx_stride);
        *place = from_float<act_t>(add ? to_float(*place) + gradient : gradient);
    }
}

// dgamma and dbeta = the samples' sums, in their order. A thread a channel.
KERNEL group_norm_sums(const float* partials, u32 samples, u32 channels, float* dgamma, float* dbeta) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float of_dz = 0.0f, of_products = 0.0f;
    for (u32 sample = 0; sample < samples; ++sample) {
        const float* own = partials + static_cast<u64>(sample) * 2 * channels;
        of_dz += own[c];
        of_products += own[channels + c];
    }
    dbeta[c] = of_dz;
    dgamma[c] = of_products;
}
