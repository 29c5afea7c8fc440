// Largest and mean elements of windows, forward and backward.
//
// Layout: x and dx are images of h x w pixels, y and dy of oh x ow, all with c channels and each with a row stride of
// its own. The window of output (i, j) is kh x kw and begins at pixel (i * sh - top, j * sw - left); what lies outside
// of the image never wins, and counts in averages where it is said. Every window has pixels inside.
// Geometry: any number of blocks of 256 threads; a thread takes `vector` channels (1 or PACK) of a pixel at a time.
// Writes: y and winners =; dx += if `add`, else =. Nothing is added by two threads, and a pixel's windows are added in
// row-major order.
#include "divisor.cuh"

struct Windows {
    u32 c, h, w, oh, ow, kh, kw;
    Divisor sh, sw;
    u32 top, left;
    Divisor packs, down, across; // of the image whose pixels the threads take, with `packs` packs of channels each

    // The places of a window are numbered u * pitch + v, so that pixels between windows have numbers of their own.
    __device__ u32 pitch() const { return kw > sw.by ? kw : sw.by; }
};

// The last parameters of every kernel, and what they make.
#define WINDOWS                                                                                                     \
    u32 n, u32 c, u32 h, u32 w, u32 oh, u32 ow, u32 kh, u32 kw, u64 sh, u64 sw, u32 top, u32 left, u64 packs, u64 down, \
        u64 across, u32 vector
#define GATHER_WINDOWS                                                                                              \
    Windows s = {c,    h,           w,             oh,             ow, kh, kw, Divisor(sh), Divisor(sw), top,       \
                 left, Divisor(packs), Divisor(down), Divisor(across)}

struct Range {
    u32 from, to;
};

// The rows or columns inside of the image under window k.
__device__ inline Range under(u32 k, u32 kernel, u32 stride, u32 before, u32 size) {
    u32 start = k * stride, end = start + kernel - before;
    return {start > before ? start - before : 0, end < size ? end : size};
}

// The windows that contain a row or column; there may be none.
__device__ inline Range over(u32 pixel, u32 kernel, const Divisor& stride, u32 before, u32 count) {
    u32 at = pixel + before, end = stride.quotient(at) + 1;
    return {at < kernel ? 0 : stride.quotient(at - kernel) + 1, end < count ? end : count};
}

// Channels of one pixel of an image.
struct Spot {
    u32 n, row, column, channel;
};

// The spot that is number `item` of the image whose pixels the threads take.
template <int V>
__device__ inline Spot spot(u64 item, const Windows& s) {
    u32 pixel, line, sample;
    if (item >> 31 == 0) {
        pixel = s.packs.quotient(static_cast<u32>(item));
        line = s.across.quotient(pixel);
        sample = s.down.quotient(line);
    } else {
        pixel = static_cast<u32>(item / s.packs.by);
        line = pixel / s.across.by;
        sample = line / s.down.by;
    }
    u32 pack = static_cast<u32>(item - static_cast<u64>(pixel) * s.packs.by);
    return {sample, line - sample * s.down.by, pixel - line * s.across.by, pack * V};
}

__device__ inline u64 place(u32 n, u32 row, u32 column, u32 h, u32 w) {
    return (static_cast<u64>(n) * h + row) * w + column;
}

// The largest element under a window, lane by lane, and the number of its place: of equals the first. A NaN wins.
template <int V>
struct Largest {
    float value[V];
    u32 at[V];
};

template <int V>
__device__ inline Largest<V> largest(const act_t* x, u32 stride, Windows s, Spot y) {
    Range rows = under(y.row, s.kh, s.sh.by, s.top, s.h), columns = under(y.column, s.kw, s.sw.by, s.left, s.w);
    u32 pitch = s.pitch(), up = s.top - y.row * s.sh.by, back = s.left - y.column * s.sw.by;
    Largest<V> best;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        best.value[k] = __uint_as_float(0xff800000u);
        best.at[k] = (rows.from + up) * pitch + columns.from + back;
    }
    for (u32 row = rows.from; row < rows.to; ++row) {
        for (u32 column = columns.from; column < columns.to; ++column) {
            float v[V];
            load<V>(x + place(y.n, row, column, s.h, s.w) * stride + y.channel, v);
            u32 at = (row + up) * pitch + column + back;
#pragma unroll
            for (int k = 0; k < V; ++k) {
                bool first_nan = v[k] != v[k] && best.value[k] == best.value[k];
                bool wins = v[k] > best.value[k] || first_nan;
                best.value[k] = wins ? v[k] : best.value[k];
                best.at[k] = wins ? at : best.at[k];
            }
        }
    }
    return best;
}

template <int V>
__device__ inline void max_forward(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, Windows s) {
    u64 items = static_cast<u64>(n) * s.oh * s.ow * (s.c / V);
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at = spot<V>(item, s);
        Largest<V> best = largest<V>(x, x_stride, s, at);
        store<V>(y + place(at.n, at.row, at.column, s.oh, s.ow) * y_stride + at.channel, best.value);
    }
}

KERNEL maxpool_fwd(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, WINDOWS) {
    GATHER_WINDOWS;
    if (vector == 1) max_forward<1>(x, x_stride, y, y_stride, n, s);
    else max_forward<PACK>(x, x_stride, y, y_stride, n, s);
}

// The backward pass where no two windows share a pixel: a thread takes a window with the pixels up to the next ones, as a
// pixel of an image of such cells.
template <int V>
__device__ inline void max_backward_apart(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx,
                                          u32 dx_stride, u32 n, Windows s, u32 add) {
    u32 pitch = s.pitch();
    u64 items = static_cast<u64>(n) * s.down.by * s.across.by * (s.c / V);
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at = spot<V>(item, s);
        bool window = at.row < s.oh && at.column < s.ow; // else pixels that no window contains
        Largest<V> best = {};
        float gradient[V] = {};
        if (window) {
            best = largest<V>(x, x_stride, s, at);
            load<V>(dy + place(at.n, at.row, at.column, s.oh, s.ow) * dy_stride + at.channel, gradient);
        }
        Range rows = under(at.row, s.sh.by, s.sh.by, s.top, s.h), columns = under(at.column, s.sw.by, s.sw.by, s.left, s.w);
        for (u32 row = rows.from; row < rows.to; ++row) {
            for (u32 column = columns.from; column < columns.to; ++column) {
                act_t* to = dx + place(at.n, row, column, s.h, s.w) * dx_stride + at.channel;
                u32 here = (row + s.top - at.row * s.sh.by) * pitch + column + s.left - at.column * s.sw.by;
                float v[V] = {};
                if (add) load<V>(to, v);
#pragma unroll
                for (int k = 0; k < V; ++k) v[k] += window && best.at[k] == here ? gradient[k] : 0.0f;
                store<V>(to, v);
            }
        }
    }
}

KERNEL maxpool_bwd_apart(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                         u32 add, WINDOWS) {
    GATHER_WINDOWS;
    if (vector == 1) max_backward_apart<1>(x, x_stride, dy, dy_stride, dx, dx_stride, n, s, add);
    else max_backward_apart<PACK>(x, x_stride, dy, dy_stride, dx, dx_stride, n, s, add);
}

// Where windows overlap the backward pass is two kernels. The first finds each window's winner, once; the second asks
// of every pixel which of its windows it won. That reads x about as often as the forward pass, and adds without
// atomics.
template <int V>
struct __align__(2 * V) Winners {
    u16 at[V];
};

template <int V>
__device__ inline void find_winners(const act_t* x, u32 x_stride, u16* winners, u32 n, Windows s) {
    u64 packs = static_cast<u64>(n) * s.oh * s.ow * (s.c / V);
    for (u64 pack = global_thread(); pack < packs; pack += global_threads()) {
        Largest<V> best = largest<V>(x, x_stride, s, spot<V>(pack, s));
        Winners<V> all;
#pragma unroll
        for (int k = 0; k < V; ++k) all.at[k] = static_cast<u16>(best.at[k]);
        reinterpret_cast<Winners<V>*>(winners)[pack] = all;
    }
}

// winners: (n, oh, ow, c), back to back.
KERNEL maxpool_winners(const act_t* x, u32 x_stride, u16* winners, WINDOWS) {
    GATHER_WINDOWS;
    if (vector == 1) find_winners<1>(x, x_stride, winners, n, s);
    else find_winners<PACK>(x, x_stride, winners, n, s);
}

template <int V>
__device__ inline void max_backward(const u16* winners, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 n,
                                    Windows s, u32 add) {
    u64 items = static_cast<u64>(n) * s.h * s.w * (s.c / V);
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at = spot<V>(item, s);
        Range rows = over(at.row, s.kh, s.sh, s.top, s.oh), columns = over(at.column, s.kw, s.sw, s.left, s.ow);
        act_t* to = dx + place(at.n, at.row, at.column, s.h, s.w) * dx_stride + at.channel;
        float v[V] = {};
        if (add) load<V>(to, v);
        for (u32 i = rows.from; i < rows.to; ++i) {
            for (u32 j = columns.from; j < columns.to; ++j) {
                u64 window = place(at.n, i, j, s.oh, s.ow);
                Winners<V> won = *reinterpret_cast<const Winners<V>*>(winners + window * s.c + at.channel);
                u32 here = (at.row + s.top - i * s.sh.by) * s.pitch() + at.column + s.left - j * s.sw.by;
                float gradient[V];
                load<V>(dy + window * dy_stride + at.channel, gradient);
#pragma unroll
                for (int k = 0; k < V; ++k) v[k] += won.at[k] == here ? gradient[k] : 0.0f;
            }
        }
        store<V>(to, v);
    }
}

KERNEL maxpool_bwd(const u16* winners, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 add, WINDOWS) {
    GATHER_WINDOWS;
    if (vector == 1) max_backward<1>(winners, dy, dy_stride, dx, dx_stride, n, s, add);
    else max_backward<PACK>(winners, dy, dy_stride, dx, dx_stride, n, s, add);
}

// The part of the padded image that counts in averages, in its rows and columns: the image, and maybe padding.
struct Counted {
    Range rows, columns;

    // One over the number of pixels that count under window (i, j).
    __device__ float weight(u32 i, u32 j, const Windows& s) const {
        return 1.0f / static_cast<float>(along(i * s.sh.by, s.kh, rows) * along(j * s.sw.by, s.kw, columns));
    }

    __device__ static u32 along(u32 start, u32 kernel, Range all) {
        return min(start + kernel, all.to) - max(start, all.from);
    }
};

// Their last parameters before the windows.
#define COUNTED u32 first_row, u32 end_row, u32 first_column, u32 end_column
#define GATHER_COUNTED Counted counted = {{first_row, end_row}, {first_column, end_column}}

template <int V>
__device__ inline void average_forward(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, Windows s,
                                       Counted counted) {
    u64 items = static_cast<u64>(n) * s.oh * s.ow * (s.c / V);
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at = spot<V>(item, s);
        Range rows = under(at.row, s.kh, s.sh.by, s.top, s.h), columns = under(at.column, s.kw, s.sw.by, s.left, s.w);
        float sum[V] = {};
        for (u32 row = rows.from; row < rows.to; ++row) {
            for (u32 column = columns.from; column < columns.to; ++column) {
                float v[V];
                load<V>(x + place(at.n, row, column, s.h, s.w) * x_stride + at.channel, v);
#pragma unroll
                for (int k = 0; k < V; ++k) sum[k] += v[k];
            }
        }
        float scale = counted.weight(at.row, at.column, s);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] *= scale;
        store<V>(y + place(at.n, at.row, at.column, s.oh, s.ow) * y_stride + at.channel, sum);
    }
}

KERNEL avgpool_fwd(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, COUNTED, WINDOWS) {
    GATHER_WINDOWS;
    GATHER_COUNTED;
    if (vector == 1) average_forward<1>(x, x_stride, y, y_stride, n, s, counted);
    else average_forward<PACK>(x, x_stride, y, y_stride, n, s, counted);
}

template <int V>
__device__ inline void average_backward(const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 n, Windows s,
                                        Counted counted, u32 add) {
    u64 items = static_cast<u64>(n) * s.h * s.w * (s.c / V);
    for (u64 item = global_thread(); item < items; item += global_threads()) {
        Spot at = spot<V>(item, s);
        Range is = over(at.row, s.kh, s.sh, s.top, s.oh), js = over(at.column, s.kw, s.sw, s.left, s.ow);
        act_t* to = dx + place(at.n, at.row, at.column, s.h, s.w) * dx_stride + at.channel;
        float v[V] = {};
        if (add) load<V>(to, v);
        for (u32 i = is.from; i < is.to; ++i) {
            for (u32 j = js.from; j < js.to; ++j) {
                float scale = counted.weight(i, j, s), gradient[V];
                load<V>(dy + place(at.n, i, j, s.oh, s.ow) * dy_stride + at.channel, gradient);
#pragma unroll
                for (int k = 0; k < V; ++k) v[k] += gradient[k] * scale;
            }
        }
        store<V>(to, v);
    }
}

KERNEL avgpool_bwd(const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride, u32 add, COUNTED, WINDOWS) {
    GATHER_WINDOWS;
    GATHER_COUNTED;
    if (vector == 1) average_backward<1>(dy, dy_stride, dx, dx_stride, n, s, counted, add);
    else average_backward<PACK>(dy, dy_stride, dx, dx_stride, n, s, counted, add);
}
