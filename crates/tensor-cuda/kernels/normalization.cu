// Batch normalization and the activation after it, forward and backward, each in two launches: one that sums, one that maps.
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
    __shared__ float all[2 * QUAD * PITCH];
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
    static_assert(N <= 2 * QUAD, "there is room for so many numbers");
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

// The means of some rows and the sums of squared differences from these. Rows and other moments join them by the formula of Chan,
// Golub and LeVeque ("Algorithms for computing the sample variance", 1983), which takes no square around a distant number: so
// rows that stand out cost no digits, wherever they are. A mean keeps what it lost when it was rounded.
template <int V>
struct Moments {
    float count = 0.0f, mean[V] = {}, lost[V] = {}, squares[V] = {};

    // Joins a channel of `more` others, whose mean is `away` from this one.
    __device__ inline void join(int k, float more, float away, float their_squares) {
        float share = more / (count + more), apart = away - lost[k], by = fmaf(apart, share, lost[k]);
        squares[k] += fmaf(apart * apart, count * share, their_squares);
        float moved = mean[k] + by;
        lost[k] = by - (moved - mean[k]);
        mean[k] = moved;
    }

    // Joins the first rows of a batch, `some` of them.
    template <int BATCH>
    __device__ inline void join_rows(const Raw<V, act_t> (&rows)[BATCH], u32 some) {
        float values[BATCH][V], more = some, share = 1.0f / more;
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (b < some) unpack(rows[b], values[b]);
        }
#pragma unroll
        for (int k = 0; k < V; ++k) {
            float away = 0.0f, own_squares = 0.0f;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (b < some) away += values[b][k] - mean[k];
            }
            away *= share;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                float apart = b < some ? values[b][k] - (mean[k] + away) : 0.0f;
                own_squares = fmaf(apart, apart, own_squares);
            }
            join(k, more, away, own_squares);
        }
        count += more;
    }

    // Joins those of all rows of threads, in row 0, which have `all` rows together. First about where the mean is, and then the
    // distances from there: sums of numbers far from 0 would lose digits.
    __device__ void add_up(float all) {
        __shared__ float staged[MOST_CHANNELS];
        float total[2 * V], pivot[V];
#pragma unroll
        for (int k = 0; k < V; ++k) pivot[k] = mean[k] * (count / all);
        add_rows(pivot);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            if (threadIdx.y == 0) staged[threadIdx.x * V + k] = pivot[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < V; ++k) {
            pivot[k] = staged[threadIdx.x * V + k];
            float away = mean[k] - pivot[k];
            total[k] = count * away;
            total[V + k] = fmaf(count * away, away, squares[k]);
        }
        add_rows(total);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            float away = total[k] / all, rest = total[V + k] - total[k] * away;
            mean[k] = pivot[k] + away;
            squares[k] = rest < 0.0f ? 0.0f : rest; // by rounding; a NaN stays
        }
    }
};

// The slabs' moments, brought together, and what follows.
template <int V>
__device__ void finish_statistics(Part part, u32 rows, u32 channels, u32 slab_rows, float* partials, Results to) {
    Moments<V> own;
#pragma unroll 4
    for (u32 slab = part.inside ? threadIdx.y : gridDim.y; slab < gridDim.y; slab += blockDim.y) {
        float mean[V], squares[V], more = slab + 1 < gridDim.y ? slab_rows : rows - slab * slab_rows;
        load<V>(partial(partials, slab, 0, channels, part.channel), mean);
        load<V>(partial(partials, slab, 1, channels, part.channel), squares);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            if (own.count == 0.0f) own.mean[k] = mean[k];
            own.join(k, more > 0.0f ? more : 1.0f, mean[k] - own.mean[k], squares[k]);
        }
        own.count += more;
    }
    float count = rows > 1 ? rows : 1, others = rows > 2 ? rows - 1 : 1, lacking[V] = {};
    own.add_up(count);
    if (!part.inside || threadIdx.y != 0) return;
    if (to.bias) { // all loads before the first store, which might lie where they do for all that the compiler knows
#pragma unroll
        for (int k = 0; k < V; ++k) lacking[k] = to.bias[part.channel + k];
    }
    if (to.stats && part.channel == 0) to.stats[2 * channels] = to.samples;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        u32 c = part.channel + k;
        if (to.stats) {
            to.stats[c] = own.mean[k];
            to.stats[channels + c] = own.squares[k];
        } else {
            note(to, c, channels, count, others, own.mean[k], own.squares[k], lacking[k]);
        }
    }
}

template <int V>
__device__ void statistics(const act_t* x, u32 x_stride, u32 rows, u32 channels, u32 slab_rows, float* partials,
                           u32* counters, Results to) {
    constexpr int BATCH = 4;
    Part part = part_of<V>(rows, channels, slab_rows);
    x += part.first * x_stride + part.channel;
    Moments<V> own;
    Raw<V, act_t> ahead[BATCH];
    load_rows<V>(x, x_stride, threadIdx.y, part.count, ahead);
    if (threadIdx.y < part.count) unpack(ahead[0], own.mean); // of equal numbers it is the mean exactly
    for (u32 row = threadIdx.y; row < part.count; row += BATCH * blockDim.y) {
        Raw<V, act_t> xs[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) xs[b] = ahead[b];
        load_rows<V>(x, x_stride, row + BATCH * blockDim.y, part.count, ahead);
        u32 some = 0;
#pragma unroll
        for (int b = 0; b < BATCH; ++b) some += row + b * blockDim.y < part.count;
        own.join_rows(xs, some);
    }
    own.add_up(part.count > 0 ? part.count : 1);
    if (part.inside && threadIdx.y == 0) {
        store<V>(partial(partials, blockIdx.y, 0, channels, part.channel), own.mean);
        store<V>(partial(partials, blockIdx.y, 1, channels, part.channel), own.squares);
    }
    if (!is_last(counters + blockIdx.x, gridDim.y)) return;
    finish_statistics<V>(part, rows, channels, slab_rows, partials, to);
}

template <class Is>
__device__ void normalize(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 channels, u32 slab_rows,
                          const float* gamma, const float* beta, const float* mean, const float* deviation,
                          u32 is_variance, const float* bias, float epsilon, Act act) {
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
                              u32 slab_rows, const float* gamma, const float* beta, const float* saved, Act act,
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
                               const float* saved, const float* dgamma, const float* dbeta, float count, Act act,
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
                    u32 is_variance, const float* bias, float epsilon, Act act, u32 vector) {
    CALL_VARIANT(QUAD, vector, act, normalize, x, x_stride, y, y_stride, rows, channels, slab_rows, gamma, beta, mean,
                 deviation, is_variance, bias, epsilon, act);
}

// dgamma and dbeta =
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_gradient_sums(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, u32 rows, u32 channels,
                        u32 slab_rows, const float* gamma, const float* beta, const float* saved, Act act,
                        float* partials, u32* counters, float* dgamma, float* dbeta, u32 vector) {
    CALL_VARIANT(QUAD, vector, act, gradient_sums, x, x_stride, dy, dy_stride, rows, channels, slab_rows, gamma, beta,
                 saved, act, partials, counters, dgamma, dbeta);
}

// dx = or, if so said, dx +=
KERNEL __launch_bounds__(MOST_THREADS, 3) bn_input_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                         u32 rows, u32 channels, u32 slab_rows, const float* gamma, const float* beta,
                         const float* saved, const float* dgamma, const float* dbeta, float count, Act act, u32 add,
                         u32 vector) {
    CALL_VARIANT(QUAD, vector, act, input_gradient, x, x_stride, dy, dy_stride, dx, dx_stride, rows, channels, slab_rows,
                 gamma, beta, saved, dgamma, dbeta, count, act, add != 0);
}
