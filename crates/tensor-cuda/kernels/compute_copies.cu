// Weights between the arena, where they lie as (inputs, outputs) in float, and their copy, where they lie as
// (outputs, inputs) in act_t: all of an arena's in one launch.
//
// Geometry: a line of 256 threads, each block some of the tiles of 64 x 64. How many tiles there are is read from the
// table, so that a captured launch also covers weights that came later. Of gradients those of a run of the arena are
// brought there: a block passes over the tiles of the others.
#include "towers.cuh"

constexpr u32 THREADS = 256, TILE = 64;

// One weight; src/compute_copies/table.rs writes it.
struct Kept {
    u64 offset; // in the arena
    act_t* copy;
    u32 rows, columns; // in the arena: inputs and outputs
    u32 first_tile;
    u32 unused;
};

struct Table {
    u32 count, tiles;
    u32 unused[6];
    Kept kept[1]; // `count` of them
};

template <class From, class To>
__device__ inline void transpose(const From* from, u64 from_pitch, To* to, u64 to_pitch, u32 rows, u32 columns,
                            float (&square)[TILE][TILE + 1]) {
    u32 lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
#pragma unroll
    for (u32 i = 0; i < TILE; i += THREADS / TILE) {
        u32 row = line + i;
        if (row < rows && lane < columns) square[row][lane] = to_float(from[row * from_pitch + lane]);
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < TILE; i += THREADS / TILE) {
        u32 column = line + i;
        if (column < columns && lane < rows) to[column * to_pitch + lane] = from_float<To>(square[lane][column]);
    }
}

template <bool BACK>
__device__ inline void transpose_all(float* arena, const Table* table, u64 start, u64 end) {
    __shared__ float square[TILE][TILE + 1];
    __shared__ u32 found;
    u32 count = table->count, tiles = table->tiles;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        __syncthreads(); // the tile before is done
        for (u32 i = threadIdx.x; i < count; i += THREADS) {
            u32 behind = i + 1 < count ? table->kept[i + 1].first_tile : tiles;
            if (table->kept[i].first_tile <= tile && tile < behind) found = i;
        }
        __syncthreads();
        Kept kept = table->kept[found];
        if (kept.offset < start || kept.offset >= end) continue; // the whole block
        u32 across = ceil_div(kept.columns, TILE), local = tile - kept.first_tile;
        u32 row = local / across * TILE, column = local % across * TILE;
        float* weights = arena + kept.offset + static_cast<u64>(row) * kept.columns + column;
        act_t* copy = kept.copy + static_cast<u64>(column) * kept.rows + row;
        u32 rows = min(kept.rows - row, TILE), columns = min(kept.columns - column, TILE);
        if (BACK) {
            transpose(copy, kept.rows, weights, kept.columns, columns, rows, square);
        } else {
            transpose(weights, kept.columns, copy, kept.rows, rows, columns, square);
        }
    }
}

// = every copy of the arena's weights
KERNEL copy_weights(float* params, const Table* table) { transpose_all<false>(params, table, 0, ~0ull); }

// = the gradient of every weight that begins in [start, end) of the arena
KERNEL copy_grads(float* grads, const Table* table, u64 start, u64 end) {
    transpose_all<true>(grads, table, start, end);
}
