// Images with other numbers of rows and columns: zeros around them or borders cut off, repeated or blended pixels.
//
// Layout: x is h x w pixels, y oh x ow, both with c channels and a row stride of their own.
// Geometry: any number of blocks of 256 threads; a thread takes `vector` channels (1 or PACK) of a pixel of the result.
// Writes: += if `add`, else =. Nothing is added by two threads.
#include "towers.cuh"

struct Images {
    u32 c, h, w, oh, ow;
};

// Channels of one pixel: number `item` of an image of h x w pixels with c channels, V at a time.
struct Spot {
    u32 n, row, column, channel;

    __device__ Spot(u64 item, u32 h, u32 w, u32 packs, u32 vector) {
        u64 pixel = item / packs, line = pixel / w;
        channel = static_cast<u32>(item - pixel * packs) * vector;
        column = static_cast<u32>(pixel - line * w);
        n = static_cast<u32>(line / h);
        row = static_cast<u32>(line - static_cast<u64>(n) * h);
    }
};

__device__ inline u64 place(u32 n, u32 row, u32 column, u32 h, u32 w) {
    return (static_cast<u64>(n) * h + row) * w + column;
}

template <int V>
__device__ inline void pad(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, Images s, int top, int left,
                           u32 add) {
    u32 packs = s.c / V;
    u64 items = static_cast<u64>(n) * s.oh * s.ow * packs;
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at(item, s.oh, s.ow, packs, V);
        // Below 0 they are large.
        u32 row = at.row - static_cast<u32>(top), column = at.column - static_cast<u32>(left);
        bool inside = row < s.h && column < s.w;
        if (add && !inside) continue;
        act_t* to = y + place(at.n, at.row, at.column, s.oh, s.ow) * y_stride + at.channel;
        float v[V] = {}, old[V] = {};
        if (inside) load<V>(x + place(at.n, row, column, s.h, s.w) * x_stride + at.channel, v);
        if (add) load<V>(to, old);
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] += old[k];
        store<V>(to, v);
    }
}

// y = x with `top` rows and `left` columns of zeros before it, or so many cut off where they are negative.
KERNEL zero_pad(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, u32 c, u32 h, u32 w, u32 oh, u32 ow, int top,
                int left, u32 add, u32 vector) {
    Images s = {c, h, w, oh, ow};
    if (vector == 1) pad<1>(x, x_stride, y, y_stride, n, s, top, left, add);
    else pad<PACK>(x, x_stride, y, y_stride, n, s, top, left, add);
}

// One axis: `by` output pixels for each of `size` input pixels.
struct Axis {
    u32 by, size, bilinear;

    // The two input pixels of output pixel i, and the share of the second.
    struct Taps {
        u32 first, second;
        float share;
    };
    __device__ Taps taps(u32 i) const {
        if (!bilinear) return {i / by, i / by, 0.0f};
        u32 at = 2 * i + 1 + by, pixel = at / (2 * by); // twice `by` times the place, plus one whole pixel
        float share = static_cast<float>(at - pixel * 2 * by) / static_cast<float>(2 * by);
        return {pixel > 0 ? pixel - 1 : 0, min(pixel, size - 1), share};
    }
    __device__ float weight(u32 i, u32 p) const {
        Taps of = taps(i);
        return (of.first == p ? 1.0f - of.share : 0.0f) + (of.second == p ? of.share : 0.0f);
    }
    // The output pixels that may be made of input pixel p.
    __device__ u32 from(u32 p) const {
        u32 more = bilinear ? ceil_div(by, 2) : 0;
        return p * by > more ? p * by - more : 0;
    }
    __device__ u32 to(u32 p) const { return min((p + 1) * by + (bilinear ? ceil_div(by, 2) : 0), size * by); }
};

template <int V>
__device__ inline void upsample(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, Images s, Axis down,
                                Axis across) {
    u32 packs = s.c / V;
    u64 items = static_cast<u64>(n) * s.oh * s.ow * packs;
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at(item, s.oh, s.ow, packs, V);
        Axis::Taps rows = down.taps(at.row), columns = across.taps(at.column);
        float sum[V];
        load<V>(x + place(at.n, rows.first, columns.first, s.h, s.w) * x_stride + at.channel, sum);
        if (down.bilinear) {
            float b[V], c[V], d[V];
            load<V>(x + place(at.n, rows.first, columns.second, s.h, s.w) * x_stride + at.channel, b);
            load<V>(x + place(at.n, rows.second, columns.first, s.h, s.w) * x_stride + at.channel, c);
            load<V>(x + place(at.n, rows.second, columns.second, s.h, s.w) * x_stride + at.channel, d);
            float right = columns.share, left = 1.0f - right, bottom = rows.share, top = 1.0f - bottom;
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] = (sum[k] * left + b[k] * right) * top + (c[k] * left + d[k] * right) * bottom;
        }
        store<V>(y + place(at.n, at.row, at.column, s.oh, s.ow) * y_stride + at.channel, sum);
    }
}

KERNEL upsample_fwd(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, u32 c, u32 h, u32 w, u32 down, u32 across,
                    u32 bilinear, u32 vector) {
    Images s = {c, h, w, h * down, w * across};
    Axis rows = {down, h, bilinear}, columns = {across, w, bilinear};
    if (vector == 1) upsample<1>(x, x_stride, y, y_stride, n, s, rows, columns);
    else upsample<PACK>(x, x_stride, y, y_stride, n, s, rows, columns);
}

template <int V>
__device__ inline void gather(const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 n, Images s, Axis down,
                              Axis across, u32 add) {
    u32 packs = s.c / V;
    u64 items = static_cast<u64>(n) * s.h * s.w * packs;
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at(item, s.h, s.w, packs, V);
        act_t* to = dx + place(at.n, at.row, at.column, s.h, s.w) * dx_stride + at.channel;
        float sum[V] = {};
        if (add) load<V>(to, sum);
        for (u32 i = down.from(at.row); i < down.to(at.row); ++i) {
            float of_row = down.weight(i, at.row);
            for (u32 j = across.from(at.column); j < across.to(at.column); ++j) {
                float weight = of_row * across.weight(j, at.column), v[V];
                load<V>(dy + place(at.n, i, j, s.oh, s.ow) * dy_stride + at.channel, v);
#pragma unroll
                for (int k = 0; k < V; ++k) sum[k] += v[k] * weight;
            }
        }
        store<V>(to, sum);
    }
}

KERNEL upsample_bwd(const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 n, u32 c, u32 h, u32 w, u32 down,
                    u32 across, u32 bilinear, u32 add, u32 vector) {
    Images s = {c, h, w, h * down, w * across};
    Axis rows = {down, h, bilinear}, columns = {across, w, bilinear};
    if (vector == 1) gather<1>(dy, dy_stride, dx, dx_stride, n, s, rows, columns, add);
    else gather<PACK>(dy, dy_stride, dx, dx_stride, n, s, rows, columns, add);
}
