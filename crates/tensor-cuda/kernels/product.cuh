// A block's tile of a matrix product with float sums: C[m][n] = sum over k of A[m][k] B[n][k].
//
// 256 threads compute 128 x 64 elements, going along k by steps. A step's elements of A and B come from global memory
// through a loader, and pass through shared memory: for tensor cores they are copied there beside the computation, two steps
// ahead; else they wait in registers while the step before is computed. A loader is a matrix in global memory, real or not
// (the patches under a convolution's window), whose neighbouring elements of a row are read 16 bytes at once:
//   ALONG_K      whether a row is a run along k, so that there is one for each m or n; else there is one for each k
//   WIDE         whether packs of a row lie back to back in memory, on 16 bytes; else elements are read one by one
//   Row row(u32), Column column(u32)      what it wants to know of a row and of a column
//   const act_t* at(Row, Column)          the element, or null for a zero
//   const act_t* origin()                 any address that may be read
// The arithmetic is that of tensor cores where there are some, else plain.
#pragma once
#include "mma.cuh"

constexpr int THREADS = 256;
constexpr int TILE_M = 128, TILE_N = 64;
constexpr int TILE_K = 4 * PACK; // 16 elements of float, 32 of 16 bits

union Pack {
    Wide wide;
    act_t element[PACK];
};

// One operand's part in a step: where this thread's packs lie, and the packs on their way to shared memory.
template <class Loader, int EXTENT>
struct Side {
    static constexpr bool ALONG_K = Loader::ALONG_K;
    static constexpr int ACROSS = (ALONG_K ? TILE_K : EXTENT) / PACK; // packs in a row
    static constexpr int DOWN = THREADS / ACROSS;                     // rows that the block loads at once
    static constexpr int PASSES = (ALONG_K ? EXTENT : TILE_K) / DOWN;
    static constexpr int COLUMNS = Loader::WIDE ? 1 : PACK;

    const Loader& from;
    u32 row, column; // of this thread's first pack in the tile
    typename Loader::Row rows[PASSES];
    typename Loader::Column columns[COLUMNS];
    Pack ahead[PASSES];

    // Elements from `first` on in m or n.
    __device__ Side(const Loader& from, u32 first) : from(from) {
        row = threadIdx.x / ACROSS;
        column = threadIdx.x % ACROSS * PACK;
        if constexpr (ALONG_K) {
            find_rows(first);
        } else {
            find_columns(first);
        }
    }

    __device__ void find_rows(u32 first) {
#pragma unroll
        for (int p = 0; p < PASSES; ++p) rows[p] = from.row(first + row + p * DOWN);
    }

    __device__ void find_columns(u32 first) {
#pragma unroll
        for (int e = 0; e < COLUMNS; ++e) columns[e] = from.column(first + column + e);
    }

    __device__ void find(u32 k) {
        if constexpr (ALONG_K) {
            find_columns(k);
        } else {
            find_rows(k);
        }
    }

    // Copies the packs from k on into shared memory, beside what the thread does then.
    template <class Shared>
    __device__ void copy(Shared& to, u32 k) {
        find(k);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const act_t* at = from.at(rows[p], columns[0]);
            bool there = at != nullptr;
            copy_async(to.pack(row + p * DOWN, column), there ? at : from.origin(), there);
        }
    }

    // Asks for the packs from k on.
    __device__ void fetch(u32 k) {
        find(k);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            ahead[p].wide = {0, 0, 0, 0};
            if constexpr (Loader::WIDE) {
                const act_t* at = from.at(rows[p], columns[0]);
                if (at != nullptr) ahead[p].wide = *reinterpret_cast<const Wide*>(at);
            } else {
#pragma unroll
                for (int e = 0; e < PACK; ++e) {
                    const act_t* at = from.at(rows[p], columns[e]);
                    if (at != nullptr) ahead[p].element[e] = *at;
                }
            }
        }
    }

    // Puts them into shared memory.
    template <class Shared>
    __device__ void stash(Shared& to) const {
#pragma unroll
        for (int p = 0; p < PASSES; ++p) to.put(ahead[p], row + p * DOWN, column);
    }
};

// Plain arithmetic: each thread has 8 x 4 sums, and shared memory holds floats, k by k.
struct Plain {
    template <int EXTENT, bool ALONG_K>
    struct Shared {
        alignas(16) float element[TILE_K][EXTENT + 4];

        __device__ void put(const Pack& pack, u32 row, u32 column) {
#pragma unroll
            for (int e = 0; e < PACK; ++e) {
                float value = to_float(pack.element[e]);
                if constexpr (ALONG_K) {
                    element[column + e][row] = value;
                } else {
                    element[row][column + e] = value;
                }
            }
        }
    };

    float sum[8][4] = {};

    template <class A, class B>
    __device__ void step(const A& a, const B& b) {
        u32 m = threadIdx.x / 16 * 8, n = threadIdx.x % 16 * 4;
#pragma unroll 8
        for (int k = 0; k < TILE_K; ++k) {
            float x[8], y[4];
            load<8>(&a.element[k][m], x);
            load<4>(&b.element[k][n], y);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
            }
        }
    }

    // put(m, n, C[m][n], C[m][n + 1]) for all of the thread's sums, counted from the tile's corner; n is even.
    template <class Put>
    __device__ void each(const Put& put) const {
        u32 m = threadIdx.x / 16 * 8, n = threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            put(m + i, n, sum[i][0], sum[i][1]);
            put(m + i, n + 2, sum[i][2], sum[i][3]);
        }
    }
};

// Tensor cores: 4 x 2 warps have 32 x 32 sums each, and shared memory holds rows as they are. Their pitch is an odd
// number of 16 bytes, so that the eight rows of a matrix lie in different banks.
struct Tensor {
    template <int EXTENT, bool ALONG_K>
    struct Shared {
        static constexpr int PITCH = (ALONG_K ? TILE_K : EXTENT) + 8;
        alignas(16) u16 element[ALONG_K ? EXTENT : TILE_K][PITCH];

        __device__ u16* pack(u32 row, u32 column) { return &element[row][column]; }
        __device__ void put(const Pack& wide, u32 row, u32 column) {
            *reinterpret_cast<Wide*>(pack(row, column)) = wide.wide;
        }

        // The 16 x 16 elements from (m or n, k) on.
        template <bool RIGHT>
        __device__ void find(u32 (&out)[4], u32 extent, u32 k) const {
            fragments<!ALONG_K, RIGHT>(out, element[0], PITCH, extent, k);
        }
    };

    float sum[2][4][4] = {};

    template <class A, class B>
    __device__ void step(const A& a, const B& b) {
        u32 warp = threadIdx.x / 32, m = warp / 2 * 32, n = warp % 2 * 32;
#pragma unroll
        for (int k = 0; k < TILE_K; k += 16) {
            u32 x[2][4], y[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                a.template find<false>(x[i], m + 16 * i, k);
                b.template find<true>(y[i], n + 16 * i, k);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                u32 pair[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
                mma_16x8x16(sum[0][j], x[0], pair);
                mma_16x8x16(sum[1][j], x[1], pair);
            }
        }
    }

    template <class Put>
    __device__ void each(const Put& put) const {
        u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        u32 m = warp / 2 * 32 + lane / 4, n = warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                put(m + 16 * i, n + 8 * j, sum[i][j][0], sum[i][j][1]);
                put(m + 16 * i + 8, n + 8 * j, sum[i][j][2], sum[i][j][3]);
            }
        }
    }
};

template <bool YES, class Then, class Else>
struct Choose {
    using Type = Then;
};
template <class Then, class Else>
struct Choose<false, Then, Else> {
    using Type = Else;
};
using Arithmetic = Choose<TENSOR_CORES, Tensor, Plain>::Type;

// The sums of the tile at (first_m, first_n) over k in [k, k_end); k_end is the end of all k or a multiple of TILE_K.
template <class A, class B>
__device__ inline void product(Arithmetic& sums, const A& a, const B& b, u32 first_m, u32 first_n, u32 k, u32 k_end) {
    using SharedA = Arithmetic::Shared<TILE_M, A::ALONG_K>;
    using SharedB = Arithmetic::Shared<TILE_N, B::ALONG_K>;
    constexpr bool COPIED = TENSOR_CORES && A::WIDE && B::WIDE;
    // As many stages as 48 KiB hold, so that one barrier a step is enough: three where they are copied to, else two.
    constexpr int ROOM = 48 * 1024 / static_cast<int>(sizeof(SharedA) + sizeof(SharedB)), WANTED = COPIED ? 3 : 2;
    constexpr int STAGES = ROOM < WANTED ? ROOM : WANTED;
    __shared__ SharedA shared_a[STAGES];
    __shared__ SharedB shared_b[STAGES];

    Side<A, TILE_M> side_a(a, first_m);
    Side<B, TILE_N> side_b(b, first_n);
    if constexpr (COPIED) {
        static_assert(STAGES == 3, "copies are two steps ahead");
        const auto copy = [&](u32 stage, u32 from) {
            if (from < k_end) {
                side_a.copy(shared_a[stage], from);
                side_b.copy(shared_b[stage], from);
            }
            commit_copies(); // a group for each step, so that they can be counted
        };
        copy(0, k);
        copy(1, k + TILE_K);
        for (u32 stage = 0; k < k_end; k += TILE_K, stage = (stage + 1) % STAGES) {
            wait_copies<1>();
            __syncthreads(); // this step's copies are there for all, and the step before has been read
            copy((stage + 2) % STAGES, k + 2 * TILE_K);
            sums.step(shared_a[stage], shared_b[stage]);
        }
        return;
    }
    side_a.fetch(k);
    side_b.fetch(k);
    for (u32 stage = 0; k < k_end; stage = (stage + 1) % STAGES) {
        if (STAGES == 1) __syncthreads(); // in 16 bits without tensor cores: the step before has read what is written over
        side_a.stash(shared_a[stage]);
        side_b.stash(shared_b[stage]);
        __syncthreads();
        k += TILE_K;
        if (k < k_end) {
            side_a.fetch(k);
            side_b.fetch(k);
        }
        sums.step(shared_a[stage], shared_b[stage]);
    }
}
