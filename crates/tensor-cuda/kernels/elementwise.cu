// Fills, copies and activations.
//
// Layout: a tensor is walked as rows of packs, where a pack is the `vector` neighbouring elements of a 16-byte load, or one
// element. A tensor without gaps is one long run: the host gives it as rows of a single pack.
// Geometry: blocks of 256 threads in one dimension, as many as fill the device; every thread takes packs that lie as many
// apart as there are threads, BATCH at a time, so that as many loads are under way together.
// The floor is memory: an element costs a write (fill), a read and a write (copy, activation), or two reads and a write
// (gradient), and one read more where the result is added.
#include "towers.cuh"

constexpr int BATCH = 4;

// A thread's packs. The division is done once: each step goes on by the same rows and packs.
struct Walk {
    u64 row, row_step;
    u32 pack, pack_step, packs;

    __device__ explicit Walk(u32 packs)
        : row(global_thread() / packs),
          row_step(global_threads() / packs),
          pack(static_cast<u32>(global_thread() % packs)),
          pack_step(static_cast<u32>(global_threads() % packs)),
          packs(packs) {}

    __device__ void next() {
        row += row_step;
        u64 further = static_cast<u64>(pack) + pack_step;
        bool wraps = further >= packs;
        pack = static_cast<u32>(wraps ? further - packs : further);
        row += wraps;
    }

    // The pack's first element in a tensor with that row stride.
    template <int V>
    __device__ u64 place(u32 stride) const {
        return row * stride + static_cast<u64>(pack) * V;
    }
};

template <int V, class T>
__device__ void fill(T* y, u64 packs, float value) {
    float all[V];
#pragma unroll
    for (int k = 0; k < V; ++k) all[k] = value;
    for (u64 at = global_thread(); at < packs; at += global_threads()) store<V>(y + at * V, all);
}

template <class Is, class T>
__device__ void copy(const T* x, u32 x_stride, T* y, u32 y_stride, u64 rows, u32 packs, float factor, Act act,
                     bool add) {
    constexpr int V = Is::V;
    Walk walk(packs);
    while (walk.row < rows) {
        u64 to[BATCH];
        Raw<V, T> from[BATCH], old[BATCH];
        bool there[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b, walk.next()) {
            there[b] = walk.row < rows;
            to[b] = walk.place<V>(y_stride);
            if (there[b]) from[b] = fetch<V>(x + walk.place<V>(x_stride));
            if (there[b] && add) old[b] = fetch<V>(y + to[b]);
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (!there[b]) break;
            float value[V], sum[V] = {};
            unpack(from[b], value);
            if (add) unpack(old[b], sum);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                value[k] *= factor;
                sum[k] = activate<Is::SMOOTH>(add ? sum[k] + value[k] : value[k], act);
            }
            store<V>(y + to[b], sum);
        }
    }
}

template <class Is>
__device__ void gradient(const act_t* y, u32 y_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                         u64 rows, u32 packs, Act act, bool add) {
    constexpr int V = Is::V;
    Walk walk(packs);
    while (walk.row < rows) {
        u64 to[BATCH];
        Raw<V, act_t> under[BATCH], above[BATCH], old[BATCH];
        bool there[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; ++b, walk.next()) {
            there[b] = walk.row < rows;
            to[b] = walk.place<V>(dx_stride);
            if (there[b]) under[b] = fetch<V>(y + walk.place<V>(y_stride));
            if (there[b]) above[b] = fetch<V>(dy + walk.place<V>(dy_stride));
            if (there[b] && add) old[b] = fetch<V>(dx + to[b]);
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            if (!there[b]) break;
            float of[V], value[V], sum[V] = {};
            unpack(under[b], of);
            unpack(above[b], value);
            if (add) unpack(old[b], sum);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                float gradient = before<Is::SMOOTH>(of[k], value[k], act);
                sum[k] = add ? sum[k] + gradient : gradient;
            }
            store<V>(dx + to[b], sum);
        }
    }
}

// y = value
KERNEL fill_f32(float* y, u64 packs, float value, u32 vector) {
    if (vector == 1) {
        fill<1>(y, packs, value);
    } else {
        fill<4>(y, packs, value);
    }
}
KERNEL fill_act(act_t* y, u64 packs, float value, u32 vector) {
    if (vector == 1) {
        fill<1>(y, packs, value);
    } else {
        fill<PACK>(y, packs, value);
    }
}

// y = factor * x, or y += factor * x
KERNEL copy_f32(const float* x, u32 x_stride, float* y, u32 y_stride, u64 rows, u32 packs, float factor, u32 add,
                u32 vector) {
    if (vector == 1) {
        copy<Variant<1, false>>(x, x_stride, y, y_stride, rows, packs, factor, ACT_NONE, add);
    } else {
        copy<Variant<4, false>>(x, x_stride, y, y_stride, rows, packs, factor, ACT_NONE, add);
    }
}

// y = act(factor * x), or y = act(y + factor * x)
KERNEL copy_act(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u64 rows, u32 packs, float factor, Act act,
                u32 add, u32 vector) {
    CALL_VARIANT(PACK, vector, act, copy, x, x_stride, y, y_stride, rows, packs, factor, act, add);
}

// dx = the gradient before the activation that gave y, or for gelu that took it, or dx += it; dx may be dy
KERNEL act_bwd(const act_t* y, u32 y_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u64 rows,
               u32 packs, Act act, u32 add, u32 vector) {
    CALL_VARIANT(PACK, vector, act, gradient, y, y_stride, dy, dy_stride, dx, dx_stride, rows, packs, act, add);
}
