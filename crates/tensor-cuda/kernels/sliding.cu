// Gradients of the weights of convolutions with windows of 3 x 3 and a stride of 1, on tensor cores: dw = x^T dy. The lines of
// x that a window slides over lie in shared memory, and are read from there once for each tap, where a product of patches
// would read them from global memory.
//
// Layout: tensors are NHWC and contiguous, weights (k, 3, 3, c), all in act_t of 16 bits. The lines of all samples are taken
// one behind the other, with zeros between them as wide as the padding: a line and its zeros have `line` positions, a sample
// and its zeros `lines` of them. So the window at position p looks at p + u line + v for tap (u, v), whatever p is. A step
// takes a run of positions of dy, and of x those that follow it up to 2 line + 2 further on. Positions that are no pixel of
// dy are computed in vain: for 32 x 32 pixels, padded alike, 1 in 17, for 7 x 7 1 in 4.
//
// Geometry: (tiles of inputs, tiles of outputs, parts of the positions), 32 threads for 9 x 16 x 32 sums; dynamic shared
// memory as the host says (src/engine/sliding.rs has the same sums).
// With one part the result goes to `out`. With several, each block leaves its sums in `parts`, a copy of the result in float
// for each part; sum_parts of rows.cu adds these up.
#include "divisor.cuh"
#include "mma.cuh"

constexpr u32 TAPS = 9;
constexpr u32 CHUNK = 32;        // outputs of a block
constexpr u32 PITCH = CHUNK + 8; // of a row of them: an odd number of 16 bytes, so that eight rows lie in different banks
constexpr u32 NONE = 0xffffffffu;

// Where pixels lie in the line of all positions.
struct Lines {
    u32 positions; // of all samples
    Divisor line, lines;
    u32 image_h, image_w, top, left; // of x, and the zeros before it
    u32 grid_h, grid_w;              // of dy

    // The pixel of x that a position shows, or NONE.
    __device__ u32 shown(u32 position) const {
        u32 row = line.quotient(position), sample = lines.quotient(row);
        u32 i = row - sample * lines.by - top, j = position - row * line.by - left;
        if (position >= positions || i >= image_h || j >= image_w) return NONE;
        return (sample * image_h + i) * image_w + j;
    }

    // The pixel of dy for which the window begins at a position, or NONE.
    __device__ u32 begun(u32 position) const {
        u32 row = line.quotient(position), sample = lines.quotient(row);
        u32 i = row - sample * lines.by, j = position - row * line.by;
        if (position >= positions || i >= grid_h || j >= grid_w) return NONE;
        return (sample * grid_h + i) * grid_w + j;
    }

    // Positions from a run's last one to the last that its windows look at.
    __device__ u32 reach() const { return 2 * line.by + 2; }
};

// Asks for `packs` packs of 8 channels, from `first` on, of each of some pixels, as rows of shared memory. So many packs divide
// the block's threads.
__device__ inline void copy_pixels(const act_t* from, u32 channels, const u32* pixels, u32 count, u32 first, u32 packs,
                                   u16* to, u32 pitch) {
    constexpr u32 BATCH = 4; // pixels that are looked up together
    u32 first_row = threadIdx.x / packs, column = (threadIdx.x - first_row * packs) * 8, channel = first + column;
    u32 stride = blockDim.x / packs;
    for (u32 row = first_row; row < count; row += BATCH * stride) {
        u32 shown[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; ++b) shown[b] = row + b * stride < count ? pixels[row + b * stride] : NONE;
#pragma unroll
        for (u32 b = 0; b < BATCH; ++b) {
            u32 at = row + b * stride;
            bool there = shown[b] != NONE && channel < channels;
            const act_t* pixel = from + (there ? static_cast<u64>(shown[b]) * channels + channel : 0);
            if (at < count) copy_async(to + at * pitch + column, pixel, there);
        }
    }
    __syncwarp(); // threads have gone round differently often, and products want all lanes together
}

// A block's tile: 32 outputs, and 16 inputs for each warp. A step is a run of positions;
// while it is computed the next one is on its way.
struct Filter {
    static constexpr u32 RUN = 128;

    const act_t *x, *dy;
    const Lines& p;
    u32 inputs, outputs;
    u32 first_c, first_k, pitch; // of x's rows
    u32 rows;                    // that a run's windows look at
    u32* tables; // of two runs: the pixels of dy that begin there, and the pixels of x
    u16* data;   // and what these hold

    __device__ u32* table(u32 run) const { return tables + run % 2 * (RUN + (rows + 3) / 4 * 4); }
    __device__ u16* dys(u32 run) const { return data + run % 2 * (RUN * PITCH + rows * pitch); }
    __device__ u16* xs(u32 run) const { return dys(run) + RUN * PITCH; }

    __device__ void find(u32 run) const {
        u32 *begun = table(run), *shown = begun + RUN;
        for (u32 k = threadIdx.x; k < RUN; k += blockDim.x) begun[k] = p.begun(run * RUN + k);
        for (u32 k = threadIdx.x; k < rows; k += blockDim.x) shown[k] = p.shown(run * RUN + k);
        __syncwarp(); // products want all lanes together
    }

    __device__ void copy(u32 run) const {
        copy_pixels(dy, outputs, table(run), RUN, first_k, CHUNK / 8, dys(run), PITCH);
        copy_pixels(x, inputs, table(run) + RUN, rows, first_c, blockDim.x / 16, xs(run), pitch);
        commit_copies();
    }

    // With HALF the last 16 outputs are none.
    template <bool HALF>
    __device__ void step(float (&sum)[TAPS][2][2][4], u32 run) const {
#pragma unroll 1
        for (u32 k = 0; k < RUN; k += 16) {
            u32 a[2][4];
            fragments<true, false>(a[0], dys(run), PITCH, 0, k);
            if (!HALF) fragments<true, false>(a[1], dys(run), PITCH, 16, k);
#pragma unroll
            for (u32 tap = 0; tap < TAPS; ++tap) {
                u32 b[4];
                fragments<true, true>(b, xs(run), pitch, threadIdx.x / 32 * 16, k + tap / 3 * p.line.by + tap % 3);
#pragma unroll
                for (u32 j = 0; j < 2; ++j) {
                    u32 pair[2] = {b[2 * j], b[2 * j + 1]};
                    mma_16x8x16(sum[tap][0][j], a[0], pair);
                    if (!HALF) mma_16x8x16(sum[tap][1][j], a[1], pair);
                }
            }
        }
    }

    template <bool HALF>
    __device__ void sums(float (&sum)[TAPS][2][2][4], u32 run, u32 end) const {
        find(run);
        find(run + 1);
        __syncthreads();
        copy(run);
        for (; run < end; ++run) {
            wait_copies<0>();
            __syncthreads(); // this run is there for all, and the one before has been read
            if (run + 1 < end) copy(run + 1);
            if (run + 2 < end) find(run + 2);
            step<HALF>(sum, run);
        }
    }

    // put(at, first, second) for pairs of sums and their place in the result.
    template <class Put>
    __device__ void each(const float (&sum)[TAPS][2][2][4], const Put& put) const {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) { // 8 outputs each
            u32 k = first_k + 8 * i + lane / 4;
            if (k >= outputs) break;
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                u32 c = first_c + threadIdx.x / 32 * 16 + 8 * j + lane % 4 * 2;
                if (c >= inputs) break;
#pragma unroll
                for (u32 tap = 0; tap < TAPS; ++tap) {
                    const float* pair = sum[tap][i / 2][j] + i % 2 * 2;
                    put((static_cast<u64>(k) * TAPS + tap) * inputs + c, pair[0], pair[1]);
                }
            }
        }
    }
};

__device__ inline void filter(const act_t* x, const act_t* dy, act_t* out, float* parts, u32 each, u32 inputs, u32 outputs,
                              const Lines& lines) {
    DYNAMIC_SHARED(u32, shared);
    u32 tile = blockDim.x / 2, rows = Filter::RUN + lines.reach();
    Filter of{x, dy, lines, inputs, outputs, blockIdx.x * tile, blockIdx.y * CHUNK, tile + 8, rows, shared, nullptr};
    of.data = reinterpret_cast<u16*>(of.table(1) + (of.table(1) - shared));
    float sum[TAPS][2][2][4] = {};
    u32 run = blockIdx.z * each, end = min(run + each, (lines.positions + Filter::RUN - 1) / Filter::RUN);
    if (of.first_k + 16 >= outputs) {
        of.sums<true>(sum, run, end);
    } else {
        of.sums<false>(sum, run, end);
    }
    if (parts == nullptr) {
        of.each(sum, [&](u64 at, float first, float second) {
            Pair<act_t>& pair = *reinterpret_cast<Pair<act_t>*>(out + at);
            pair = {from_float<act_t>(first), from_float<act_t>(second)};
        });
    } else {
        float* part = parts + blockIdx.z * (static_cast<u64>(outputs) * TAPS * inputs);
        of.each(sum, [&](u64 at, float first, float second) {
            *reinterpret_cast<float2*>(part + at) = make_float2(first, second);
        });
    }
}

// `each`: the runs of a part. Without tensor cores the host never launches it.
KERNEL __launch_bounds__(128, 2)
slide_filter(const act_t* x, const act_t* dy, act_t* out, float* parts, u32 each, u32 inputs, u32 outputs, u32 positions, u64 line,
             u64 lines, u32 image_h, u32 image_w, u32 top, u32 left, u32 grid_h, u32 grid_w) {
    if constexpr (TENSOR_CORES) {
        Lines p{positions, Divisor(line), Divisor(lines), image_h, image_w, top, left, grid_h, grid_w};
        filter(x, dy, out, parts, each, inputs, outputs, p);
    }
}
