// What goes on around a matrix product: bias and activation, strided tensors to and fro, sums of columns.
//
// A tensor is rows x c with a row stride. Geometry: 256 threads, as many as a row has packs side by side (at most
// 256; the grid's y goes on from there), the others on rows below, so that a thread keeps its channels.
#include "towers.cuh"

constexpr u32 THREADS = 256;
constexpr int BATCH = 4; // loads of a thread in flight

// A thread's place: its first channel, and its line among those that a block handles at once.
template <int V>
struct Spot {
    u32 across, down, channel, line;

    __device__ explicit Spot(u32 c) {
        across = min(c / V, THREADS);
        down = THREADS / across;
        channel = (blockIdx.y * across + threadIdx.x % across) * V;
        line = threadIdx.x / across;
    }
    __device__ bool inside(u32 c) const { return line < down && channel < c; }
};

template <class Is>
__device__ inline void move(const act_t* x, u32 x_stride, const float* bias, Act act, act_t* y, u32 y_stride, u32 rows,
                            u32 c, bool add) {
    constexpr int V = Is::V;
    Spot<V> spot(c);
    if (!spot.inside(c)) return;
    float b[V] = {};
    if (bias != nullptr) {
#pragma unroll
        for (int v = 0; v < V; ++v) b[v] = bias[spot.channel + v];
    }
    u64 step = static_cast<u64>(gridDim.x) * spot.down;
    for (u64 row = static_cast<u64>(blockIdx.x) * spot.down + spot.line; row < rows; row += BATCH * step) {
        float value[BATCH][V], old[BATCH][V] = {};
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            u64 at = row + i * step;
            if (at >= rows) break;
            load<V>(x + at * x_stride + spot.channel, value[i]);
            if (add) load<V>(y + at * y_stride + spot.channel, old[i]);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            u64 at = row + i * step;
            if (at >= rows) break;
#pragma unroll
            for (int v = 0; v < V; ++v) value[i][v] = old[i][v] + activate<Is::SMOOTH>(value[i][v] + b[v], act);
            store<V>(y + at * y_stride + spot.channel, value[i]);
        }
    }
}

// y = act(x + bias), or with `add` +=; `bias` may be null, and y may be x.
KERNEL move_rows(const act_t* x, u32 x_stride, const float* bias, Act act, act_t* y, u32 y_stride, u32 rows, u32 c,
                 u32 add, u32 vector) {
    CALL_VARIANT(PACK, vector, act, move, x, x_stride, bias, act, y, y_stride, rows, c, add != 0);
}

template <int V>
__device__ inline void sum_columns(const act_t* x, u32 stride, u32 rows, u32 c, u32 rows_each, float* parts) {
    __shared__ float shared[V][THREADS];
    Spot<V> spot(c);
    float sum[V] = {};
    if (spot.inside(c)) {
        u64 first = static_cast<u64>(blockIdx.x) * rows_each, end = min(first + rows_each, static_cast<u64>(rows));
        for (u64 row = first + spot.line; row < end; row += BATCH * spot.down) {
            float value[BATCH][V] = {};
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                u64 at = row + i * spot.down;
                if (at < end) load<V>(x + at * stride + spot.channel, value[i]);
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
#pragma unroll
                for (int v = 0; v < V; ++v) sum[v] += value[i][v];
            }
        }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) shared[v][threadIdx.x] = sum[v];
    // The lower half of the lines is added to the upper one until one is left.
    for (u32 lines = spot.down; lines > 1; lines = (lines + 1) / 2) {
        __syncthreads();
        u32 partner = threadIdx.x + (lines + 1) / 2 * spot.across;
        if (spot.line < lines / 2) {
#pragma unroll
            for (int v = 0; v < V; ++v) shared[v][threadIdx.x] += shared[v][partner];
        }
    }
    if (spot.line == 0 && spot.channel < c) {
#pragma unroll
        for (int v = 0; v < V; ++v) parts[static_cast<u64>(blockIdx.x) * c + spot.channel + v] = shared[v][threadIdx.x];
    }
}

// parts[p] = the column sums of rows_each rows, block p's in x.
KERNEL column_sums(const act_t* x, u32 stride, u32 rows, u32 c, u32 rows_each, float* parts, u32 vector) {
    if (vector == 1) {
        sum_columns<1>(x, stride, rows, c, rows_each, parts);
    } else {
        sum_columns<PACK>(x, stride, rows, c, rows_each, parts);
    }
}

// out = the sum of `count` parts of `size` floats, or with `add` +=. Geometry: blocks of (32, lines) threads, for `vector`
// (1 or 4) neighbours each; a line adds every so many parts.
constexpr u32 MOST_LINES = 16;

template <int V, class T>
__device__ inline void add_parts(const float* parts, u32 count, u64 size, T* out, bool add) {
    __shared__ float shared[MOST_LINES][V][32];
    u32 lane = threadIdx.x, line = threadIdx.y;
    u64 at = (static_cast<u64>(blockIdx.x) * 32 + lane) * V;
    float sum[V] = {};
    if (at < size) {
#pragma unroll 8
        for (u32 part = line; part < count; part += blockDim.y) {
            float value[V];
            load<V>(parts + part * size + at, value);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += value[v];
        }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) shared[line][v][lane] = sum[v];
    __syncthreads();
    if (line != 0 || at >= size) return;
#pragma unroll 4
    for (u32 other = 1; other < blockDim.y; ++other) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += shared[other][v][lane];
    }
    float old[V] = {};
    if (add) load<V>(out + at, old);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += old[v];
    store<V>(out + at, sum);
}

KERNEL sum_parts(const float* parts, u32 count, u64 size, act_t* out, u32 add, u32 vector) {
    if (vector == 1) add_parts<1>(parts, count, size, out, add != 0);
    else add_parts<4>(parts, count, size, out, add != 0);
}
KERNEL sum_parts_f32(const float* parts, u32 count, u64 size, float* out, u32 add, u32 vector) {
    if (vector == 1) add_parts<1>(parts, count, size, out, add != 0);
    else add_parts<4>(parts, count, size, out, add != 0);
}
