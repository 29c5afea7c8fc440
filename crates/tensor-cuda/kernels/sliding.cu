// Convolutions with windows of 3 x 3 and a stride of 1, on tensor cores: the lines that a window slides over lie in shared
// memory, and are read from there once for each tap, where a product of patches would read them from global memory.
//
// Layout: tensors are NHWC and contiguous, weights (k, 3, 3, c), all in act_t of 16 bits. The lines of all samples are taken
// one behind the other, with zeros between them as wide as the padding: a line and its zeros have `line` positions, a sample
// and its zeros `lines` of them. So the window at position p looks at p + u line + v for tap (u, v), whatever p is, and a tile
// is a run of positions, with those that follow it up to 2 line + 2 further on. Positions that are no pixel of the grid are
// computed in vain: for 32 x 32 pixels, padded alike, 1 in 17, for 7 x 7 1 in 4.
//   forward          y  = x w            grid: y's pixels
//   backward data    dx = dy w, turned   grid: dx's pixels, x: dy
//   backward filter  dw = x^T dy         grid: dy's pixels
//
// Geometry: dynamic shared memory as the host says (src/engine/sliding.rs has the same sums).
//   forward, data    (tiles of outputs within tiles of positions, 1, parts of the channels), 32 threads for 64 x 32 sums
//   filter           (tiles of inputs, tiles of outputs, parts of the positions), 32 threads for 9 x 16 x 32 sums
// So blocks that read the same positions run together.
// With one part the result goes to `out`, = or with `add` +=. With several, each block leaves its sums (=) in `parts`, a copy
// of the result in float for each part; sum_parts of rows.cu adds these up.
#include "divisor.cuh"
#include "mma.cuh"

constexpr u32 TAPS = 9;
constexpr u32 CHUNK = 32;        // channels in shared memory at once
constexpr u32 PITCH = CHUNK + 8; // of a row of them: an odd number of 16 bytes, so that eight rows lie in different banks
constexpr u32 NONE = 0xffffffffu;

// Where pixels lie in the line of all positions.
struct Lines {
    u32 positions; // of all samples
    Divisor line, lines;
    u32 image_h, image_w, top, left; // of the tensor that the window looks at, and the zeros before it
    u32 grid_h, grid_w;              // of the tensor that the window moves over

    // The pixel of the image that a position shows, or NONE.
    __device__ u32 shown(u32 position) const {
        u32 row = line.quotient(position), sample = lines.quotient(row);
        u32 i = row - sample * lines.by - top, j = position - row * line.by - left;
        if (position >= positions || i >= image_h || j >= image_w) return NONE;
        return (sample * image_h + i) * image_w + j;
    }

    // The pixel of the grid for which the window begins at a position, or NONE.
    __device__ u32 begun(u32 position) const {
        u32 row = line.quotient(position), sample = lines.quotient(row);
        u32 i = row - sample * lines.by, j = position - row * line.by;
        if (position >= positions || i >= grid_h || j >= grid_w) return NONE;
        return (sample * grid_h + i) * grid_w + j;
    }

    // Positions from a tile's last one to the last that its windows look at.
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

// Where a launch leaves its result.
struct Result {
    act_t* out;
    float* parts; // null with one part
    u32 each;     // chunks of a part, or runs
    u32 pixels;   // of the result, but for the weights' gradient
    bool add;
};

// A block's tile of the forward pass, or with DATA of the backward pass for data, where image and grid have changed places.
// Steps are a tap of a chunk of channels each. While one is computed, the weights of the next three are on their way, and with
// a chunk's first step the image's part in the chunk after it.
template <u32 WARPS_M, u32 WARPS_N, bool DATA>
struct Slide {
    static constexpr u32 THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr u32 TILE_M = 64 * WARPS_M, TILE_N = 32 * WARPS_N;
    // Weights of a step: a row for each output, or with DATA for each channel.
    static constexpr u32 PITCH_W = DATA ? TILE_N + 8 : PITCH, SLICE = (DATA ? CHUNK : TILE_N) * PITCH_W;
    static constexpr u32 SLICES = 4;

    const act_t *image, *w;
    const Lines& p;
    u32 channels, others; // of the image and of the result
    u32 first_m, first_n;
    u32* pixels; // shown at the tile's positions and those that follow; in the end, begun there
    u16* halos;  // the image's part in two chunks
    u16* slices;

    __device__ u32 warp_m() const { return threadIdx.x / 32 / WARPS_N * 64; }
    __device__ u32 warp_n() const { return threadIdx.x / 32 % WARPS_N * 32; }
    __device__ u32 rows() const { return TILE_M + p.reach(); }
    __device__ u16* halo(u32 chunk) const { return halos + chunk % 2 * rows() * PITCH; }

    __device__ void copy_halo(u32 chunk) const {
        copy_pixels(image, channels, pixels, rows(), chunk * CHUNK, CHUNK / 8, halo(chunk), PITCH);
    }

    __device__ void copy_weights(u32 chunk, u32 tap, u16* to) const {
        constexpr u32 PACKS = (DATA ? TILE_N : CHUNK) / 8;
#pragma unroll
        for (u32 k = threadIdx.x; k < SLICE / PITCH_W * PACKS; k += THREADS) {
            u32 row = k / PACKS, column = k % PACKS * 8;
            u32 channel = chunk * CHUNK + (DATA ? row : column), other = first_n + (DATA ? column : row);
            bool there = channel < channels && other < others;
            // w is (channels, taps, others) for DATA, which meets the taps the other way round.
            u64 at = DATA ? (static_cast<u64>(channel) * TAPS + (TAPS - 1 - tap)) * others + other
                          : (static_cast<u64>(other) * TAPS + tap) * channels + channel;
            copy_async(to + row * PITCH_W + column, w + (there ? at : 0), there);
        }
    }

    __device__ void step(float (&sum)[4][4][4], const u16* lines, const u16* slice, u32 left) const {
#pragma unroll
        for (u32 k = 0; k < CHUNK; k += 16) {
            if (k >= left) break; // the last chunk may be half as wide
            u32 a[4][4], b[2][4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) fragments<false, false>(a[i], lines, PITCH, warp_m() + 16 * i, k);
#pragma unroll
            for (u32 j = 0; j < 2; ++j) fragments<DATA, true>(b[j], slice, PITCH_W, warp_n() + 16 * j, k);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                u32 pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
#pragma unroll
                for (u32 i = 0; i < 4; ++i) mma_16x8x16(sum[i][j], a[i], pair);
            }
        }
    }

    // The sums over chunks [chunk, end).
    __device__ void sums(float (&sum)[4][4][4], u32 chunk, u32 end) const {
        for (u32 k = threadIdx.x; k < rows(); k += THREADS) pixels[k] = p.shown(first_m + k);
        __syncthreads();
        u32 ahead = chunk, ahead_tap = 0, slot = 0; // the step whose weights are copied next
        const auto copy = [&] {
            if (ahead < end) {
                copy_weights(ahead, ahead_tap, slices + slot * SLICE);
                if (++ahead_tap == TAPS) ahead_tap = 0, ++ahead;
                slot = (slot + 1) % SLICES;
            }
            commit_copies(); // a group for each step, so that they can be counted
        };
        copy_halo(chunk);
        copy();
        copy();
        copy();
        for (u32 at = 0; chunk < end; ++chunk) {
            u32 shift = 0;
            for (u32 tap = 0; tap < TAPS; ++tap) {
                wait_copies<2>();
                __syncthreads(); // this step's copies are there for all, and the step before has been read
                if (tap == 0 && chunk + 1 < end) copy_halo(chunk + 1);
                copy();
                step(sum, halo(chunk) + shift * PITCH, slices + at * SLICE, channels - chunk * CHUNK);
                at = (at + 1) % SLICES;
                shift += tap % 3 == 2 ? p.line.by - 2 : 1;
            }
        }
        // Nobody looks at the image's pixels any more, since its last part is in shared memory.
        for (u32 k = threadIdx.x; k < TILE_M; k += THREADS) pixels[k] = p.begun(first_m + k);
        __syncthreads(); // and all has been computed, so other things may lie in shared memory
    }

    __device__ void leave_part(const float (&sum)[4][4][4], float* out) const {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) { // 8 rows each
            u32 pixel = pixels[warp_m() + 8 * i + lane / 4];
            if (pixel == NONE) continue;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                u32 n = first_n + warp_n() + 8 * j + lane % 4 * 2;
                if (n >= others) break;
                const float* pair = sum[i / 2][j] + i % 2 * 2;
                *reinterpret_cast<float2*>(out + static_cast<u64>(pixel) * others + n) = make_float2(pair[0], pair[1]);
            }
        }
    }

    // move(here, there) for each 16 bytes of this lane in its warp's shared memory and where they belong.
    template <class Move>
    __device__ void each_pack(act_t* mine, act_t* out, const Move& move) const {
        u32 lane = threadIdx.x % 32, column = lane % 4 * 8, n = first_n + warp_n() + column;
#pragma unroll
        for (u32 row = lane / 4; row < 64; row += 8) {
            u32 pixel = pixels[warp_m() + row];
            if (pixel == NONE || n >= others) continue;
            move(*reinterpret_cast<Wide*>(mine + row * PITCH + column),
                 *reinterpret_cast<Wide*>(out + static_cast<u64>(pixel) * others + n));
        }
        __syncwarp();
    }

    // Each warp turns its sums round in shared memory of its own, so that 16 bytes are written at once.
    __device__ void leave(const float (&sum)[4][4][4], act_t* out, bool add) const {
        u32 lane = threadIdx.x % 32;
        act_t* mine = reinterpret_cast<act_t*>(halos) + threadIdx.x / 32 * (64 * PITCH);
        if (add) each_pack(mine, out, [](Wide& here, const Wide& there) { here = there; });
#pragma unroll
        for (u32 i = 0; i < 8; ++i) { // 8 rows each
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                Pair<act_t>& at = *reinterpret_cast<Pair<act_t>*>(mine + (8 * i + lane / 4) * PITCH + 8 * j + lane % 4 * 2);
                float first = sum[i / 2][j][i % 2 * 2], second = sum[i / 2][j][i % 2 * 2 + 1];
                if (add) {
                    first += to_float(at.first);
                    second += to_float(at.second);
                }
                at = {from_float<act_t>(first), from_float<act_t>(second)};
            }
        }
        __syncwarp();
        each_pack(mine, out, [](const Wide& here, Wide& there) { there = here; });
    }
};

template <u32 WARPS_M, u32 WARPS_N, bool DATA>
__device__ inline void slide(const act_t* image, const act_t* w, const Result& result, u32 channels, u32 others,
                             const Lines& lines) {
    using Tile = Slide<WARPS_M, WARPS_N, DATA>;
    DYNAMIC_SHARED(u32, shared);
    u32 tiles_n = (others + Tile::TILE_N - 1) / Tile::TILE_N, tile_m = blockIdx.x / tiles_n;
    u32 first_m = tile_m * Tile::TILE_M, first_n = (blockIdx.x - tile_m * tiles_n) * Tile::TILE_N;
    Tile tile{image, w, lines, channels, others, first_m, first_n, shared, nullptr, nullptr};
    u32 rows = tile.rows();
    tile.halos = reinterpret_cast<u16*>(shared + (rows + 3) / 4 * 4);
    tile.slices = tile.halos + 2 * rows * PITCH;
    float sum[4][4][4] = {};
    u32 chunk = blockIdx.z * result.each;
    tile.sums(sum, chunk, min(chunk + result.each, (channels + CHUNK - 1) / CHUNK));
    if (result.parts == nullptr) {
        tile.leave(sum, result.out, result.add);
    } else {
        u64 size = static_cast<u64>(result.pixels) * others;
        tile.leave_part(sum, result.parts + blockIdx.z * size);
    }
}

// A block's tile of the backward pass for weights: 32 outputs, and 16 inputs for each warp. A step is a run of positions;
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
        __syncwarp();
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

__device__ inline void filter(const act_t* x, const act_t* dy, const Result& result, u32 inputs, u32 outputs,
                              const Lines& lines) {
    DYNAMIC_SHARED(u32, shared);
    u32 tile = blockDim.x / 2, rows = Filter::RUN + lines.reach();
    Filter of{x, dy, lines, inputs, outputs, blockIdx.x * tile, blockIdx.y * CHUNK, tile + 8, rows, shared, nullptr};
    of.data = reinterpret_cast<u16*>(of.table(1) + (of.table(1) - shared));
    float sum[TAPS][2][2][4] = {};
    u32 run = blockIdx.z * result.each, end = min(run + result.each, (lines.positions + Filter::RUN - 1) / Filter::RUN);
    if (of.first_k + 16 >= outputs) {
        of.sums<true>(sum, run, end);
    } else {
        of.sums<false>(sum, run, end);
    }
    if (result.parts == nullptr) {
        of.each(sum, [&](u64 at, float first, float second) {
            Pair<act_t>& pair = *reinterpret_cast<Pair<act_t>*>(result.out + at);
            pair = {from_float<act_t>(first), from_float<act_t>(second)};
        });
    } else {
        float* out = result.parts + blockIdx.z * (static_cast<u64>(outputs) * TAPS * inputs);
        of.each(sum, [&](u64 at, float first, float second) {
            *reinterpret_cast<float2*>(out + at) = make_float2(first, second);
        });
    }
}

// A pass as a kernel, with `threads` and so many blocks side by side. Without tensor cores the host never launches it.
#define PASS(name, threads, blocks, ...)                                                                              \
    KERNEL __launch_bounds__(threads, blocks)                                                                         \
    name(const act_t* a, const act_t* b, act_t* out, float* parts, u32 each, u32 add, u32 channels, u32 others,       \
         u32 positions, u64 line, u64 lines, u32 image_h, u32 image_w, u32 top, u32 left, u32 pixels, u32 grid_h,     \
         u32 grid_w) {                                                                                                \
        if constexpr (TENSOR_CORES) {                                                                                 \
            Lines p{positions, Divisor(line), Divisor(lines), image_h, image_w, top, left, grid_h, grid_w};           \
            __VA_ARGS__(a, b, Result{out, parts, each, pixels, add != 0}, channels, others, p);                       \
        }                                                                                                             \
    }

PASS(slide_fwd_256x32, 128, 4, slide<4, 1, false>)
PASS(slide_fwd_256x64, 256, 2, slide<4, 2, false>)
PASS(slide_fwd_256x96, 384, 1, slide<4, 3, false>)
PASS(slide_fwd_128x32, 64, 4, slide<2, 1, false>)
PASS(slide_fwd_128x64, 128, 4, slide<2, 2, false>)
PASS(slide_fwd_128x96, 192, 2, slide<2, 3, false>)
PASS(slide_data_256x32, 128, 4, slide<4, 1, true>)
PASS(slide_data_256x64, 256, 2, slide<4, 2, true>)
PASS(slide_data_256x96, 384, 1, slide<4, 3, true>)
PASS(slide_data_128x32, 64, 4, slide<2, 1, true>)
PASS(slide_data_128x64, 128, 4, slide<2, 2, true>)
PASS(slide_data_128x96, 192, 2, slide<2, 3, true>)
PASS(slide_filter, 128, 2, filter)
