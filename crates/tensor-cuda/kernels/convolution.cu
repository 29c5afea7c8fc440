// Convolutions as matrix products, and dense layers as convolutions of one pixel.
//
// Tensors are NHWC and contiguous, weights (k, kh, kw, c), all in act_t. The patches under the window make a matrix
// that is never written down: a row for each pixel of the grid that the window moves over, a column for each tap and
// channel.
//   forward          y  = patches(x) w^T           grid: y's pixels
//   backward data    dx = patches(dy) w'           grid: dx's pixels, windows turned around; w' is w as (taps, k) x c
//   backward filter  dw = (patches(x)^T dy)^T      grid: y's pixels
//
// Geometry: 256 threads, a block for each tile of 128 x 64 of the result: (tiles of m, tiles of n, parts of k). With
// one part the result goes to `out`, = or with `add` +=. With several, each block leaves its sums (=) in `parts`, a
// copy of the result in float for each part, and sum_parts of rows.cu adds these up.
#include "divisor.cuh"
#include "product.cuh"

// What the three passes know of a convolution.
struct Patches {
    u32 rows, columns, others; // pixels of the grid; taps times channels; channels of the tensor that has no patches
    Divisor grid_h, grid_w, channels, kernel_w;
    u32 image_h, image_w; // of the tensor with the patches
    u32 stride_h, stride_w;
    i32 top, left;
};

// So far outside that nothing brings it back.
constexpr i32 FAR = 1 << 30;

// Patches of an image. TURNED: the grid is that of a convolution's input and the image is its output's gradient.
template <bool TURNED, bool ALONG_K_, bool WIDE_>
struct PatchLoader {
    static constexpr bool ALONG_K = ALONG_K_, WIDE = WIDE_;
    struct Row {
        u32 line; // the sample's first line, of all lines
        i32 i, j;
    };
    struct Column {
        i32 u, v;
        u32 channel;
    };

    const act_t* image;
    const Patches& p;

    __device__ Row row(u32 r) const {
        u32 line = p.grid_w.quotient(r), sample = p.grid_h.quotient(line);
        i32 j = static_cast<i32>(r - line * p.grid_w.by), i = static_cast<i32>(line - sample * p.grid_h.by);
        if (r >= p.rows) return {0, -FAR, 0};
        if (TURNED) return {sample * p.image_h, i + p.top, j + p.left};
        i32 below = i * static_cast<i32>(p.stride_h), beside = j * static_cast<i32>(p.stride_w);
        return {sample * p.image_h, below - p.top, beside - p.left};
    }

    __device__ Column column(u32 c) const {
        u32 tap = p.channels.quotient(c), u = p.kernel_w.quotient(tap);
        if (c >= p.columns) return {TURNED ? FAR : -FAR, 0, 0};
        return {static_cast<i32>(u), static_cast<i32>(tap - u * p.kernel_w.by), c - tap * p.channels.by};
    }

    __device__ const act_t* at(Row row, Column column) const {
        i32 i = TURNED ? row.i - column.u : row.i + column.u, j = TURNED ? row.j - column.v : row.j + column.v;
        if (TURNED && (p.stride_h | p.stride_w) != 1) {
            // The window begins at the pixel i of the grid if that is a multiple of the stride.
            u32 below = static_cast<u32>(i) / p.stride_h, beside = static_cast<u32>(j) / p.stride_w;
            bool hit = below * p.stride_h == static_cast<u32>(i) && beside * p.stride_w == static_cast<u32>(j);
            i = hit && (i | j) >= 0 ? static_cast<i32>(below) : -1;
            j = static_cast<i32>(beside);
        }
        if (static_cast<u32>(i) >= p.image_h || static_cast<u32>(j) >= p.image_w) return nullptr;
        u64 pixel = (row.line + static_cast<u32>(i)) * p.image_w + static_cast<u32>(j);
        return image + pixel * p.channels.by + column.channel;
    }
    __device__ const act_t* origin() const { return image; }
};

// A matrix as it lies in memory.
template <bool ALONG_K_, bool WIDE_>
struct MatrixLoader {
    static constexpr bool ALONG_K = ALONG_K_, WIDE = WIDE_;
    using Row = const act_t*;
    using Column = u32;

    const act_t* data;
    u32 rows, columns;

    __device__ Row row(u32 r) const { return r < rows ? data + static_cast<u64>(r) * columns : nullptr; }
    __device__ Column column(u32 c) const { return c; }
    __device__ const act_t* at(Row row, Column column) const {
        return row != nullptr && column < columns ? row + column : nullptr;
    }
    __device__ const act_t* origin() const { return data; }
};

// Weights (k, taps, c) as a matrix with a row for each tap and k, and a column for each c.
template <bool WIDE_>
struct ExchangedLoader {
    static constexpr bool ALONG_K = false, WIDE = WIDE_;
    using Row = const act_t*;
    using Column = u32;

    const act_t* w;
    const Patches& p;
    u32 taps;

    __device__ Row row(u32 r) const {
        u32 tap = p.channels.quotient(r), k = r - tap * p.channels.by;
        return r < p.columns ? w + (static_cast<u64>(k) * taps + tap) * p.others : nullptr;
    }
    __device__ Column column(u32 c) const { return c; }
    __device__ const act_t* at(Row row, Column column) const {
        return row != nullptr && column < p.others ? row + column : nullptr;
    }
    __device__ const act_t* origin() const { return w; }
};

// Where sums go. ACROSS: the result lies n by n, else m by m.
template <class T, bool ACROSS>
struct Target {
    T* out;
    bool add;
    u32 first_m, first_n, ms, ns;

    __device__ void put(u64 at, float value) const {
        out[at] = from_float<T>(add ? to_float(out[at]) + value : value);
    }

    __device__ void operator()(u32 m, u32 n, float first, float second) const {
        m += first_m;
        n += first_n;
        if (m >= ms || n >= ns) return;
        u64 at = ACROSS ? static_cast<u64>(n) * ms + m : static_cast<u64>(m) * ns + n;
        if (!ACROSS && ns % 2 == 0) {
            Pair<T>& pair = *reinterpret_cast<Pair<T>*>(out + at);
            if (add) {
                first += to_float(pair.first);
                second += to_float(pair.second);
            }
            pair = {from_float<T>(first), from_float<T>(second)};
        } else {
            put(at, first);
            if (n + 1 < ns) put(at + (ACROSS ? ms : 1), second);
        }
    }
};

// Where a launch leaves its result.
struct Result {
    act_t* out;
    float* parts; // null with one part
    u32 steps;    // of k in a part
    u32 add;
};

template <bool ACROSS, class A, class B>
__device__ inline void compute(const A& a, const B& b, const Result& result, u32 ms, u32 ns, u32 ks) {
    u32 first_m = blockIdx.x * TILE_M, first_n = blockIdx.y * TILE_N, part = blockIdx.z;
    u32 k = part * result.steps * TILE_K, k_end = min(ks, k + result.steps * TILE_K);
    Arithmetic sums;
    product(sums, a, b, first_m, first_n, k, k_end);
    if (result.parts == nullptr) {
        sums.each(Target<act_t, ACROSS>{result.out, result.add != 0, first_m, first_n, ms, ns});
    } else {
        float* out = result.parts + static_cast<u64>(part) * ms * ns;
        sums.each(Target<float, ACROSS>{out, false, first_m, first_n, ms, ns});
    }
}

template <bool WIDE>
__device__ inline void forward(const act_t* x, const act_t* w, const Result& y, const Patches& p) {
    PatchLoader<false, true, WIDE> patches{x, p};
    MatrixLoader<true, WIDE> weights{w, p.others, p.columns};
    compute<false>(patches, weights, y, p.rows, p.others, p.columns);
}

template <bool WIDE>
__device__ inline void backward_data(const act_t* dy, const act_t* w, const Result& dx, const Patches& p) {
    PatchLoader<true, true, WIDE> patches{dy, p};
    ExchangedLoader<WIDE> weights{w, p, p.columns / p.channels.by};
    compute<false>(patches, weights, dx, p.rows, p.others, p.columns);
}

template <bool WIDE_X, bool WIDE_DY>
__device__ inline void backward_filter(const act_t* x, const act_t* dy, const Result& dw, const Patches& p) {
    PatchLoader<false, false, WIDE_X> patches{x, p};
    MatrixLoader<false, WIDE_DY> gradient{dy, p.rows, p.others};
    compute<true>(patches, gradient, dw, p.columns, p.others, p.rows);
}

// A pass as a kernel. `a` is the tensor with the patches.
#define PASS(name, ...)                                                                                           \
    KERNEL __launch_bounds__(THREADS, 2)                                                                          \
    name(const act_t* a, const act_t* b, act_t* out, float* parts, u32 steps, u32 add, u32 rows, u32 columns,     \
         u32 others, u64 grid_h, u64 grid_w, u64 channels, u64 kernel_w, u32 image_h, u32 image_w, u32 stride_h,  \
         u32 stride_w, i32 top, i32 left) {                                                                       \
        Patches p{rows,    columns, others,   Divisor(grid_h), Divisor(grid_w), Divisor(channels), Divisor(kernel_w), \
                  image_h, image_w, stride_h, stride_w,        top,             left};                            \
        __VA_ARGS__(a, b, Result{out, parts, steps, add}, p);                                                     \
    }

// Both operands in packs of 16 bytes, or element by element; the backward filter also with packs of dy alone, for the
// few channels of an image.
PASS(conv_fwd, forward<true>)
PASS(conv_fwd_single, forward<false>)
PASS(conv_bwd_data, backward_data<true>)
PASS(conv_bwd_data_single, backward_data<false>)
PASS(conv_bwd_filter, backward_filter<true, true>)
PASS(conv_bwd_filter_image, backward_filter<false, true>)
PASS(conv_bwd_filter_single, backward_filter<false, false>)
