// What stands around the steps of optimizers, which are in rules.cu: the clipping of gradients, the ascent of sharpness-aware
// minimization and the loss scale of half precision. Running averages over flat arenas in f32, and the meter of the losses.
//
// Layout: gradients and running averages are runs of n numbers. Gradients of half precision carry the loss scale.
// Geometry: any number of blocks of 256 threads, which take 4 numbers at a time where `vector` is 4; what says so runs
// on one thread. Clipping and ascents have blocks for each gradient.
// Writes: gradients, parameters and running averages in place. Nothing moves once the step's state is halted.
#include "towers.cuh"

__device__ inline bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// Behind all of a step: counts it, if it moved anything. One thread.
KERNEL count_step(const StepState* state, float* steps) {
    if (!state->halted && !state->overflow) steps[0] += 1.0f;
}

// Clipping. A table has for each gradient its place in the arena of `len` numbers and its own length; blocks (x, y) take gradient
// y, which is empty if it does not lie in the arena.
struct Gradient {
    float* at;
    u32 n;
};
__device__ inline Gradient gradient(float* grads, u64 len, const u32* table) {
    u64 first = table[2 * blockIdx.y], n = table[2 * blockIdx.y + 1];
    if (first + n > len) return {grads, 0};
    return {grads + first, static_cast<u32>(n)};
}

// Brings each number into -limit..limit. NaN stays, and in half precision infinity too, which is an overflow.
KERNEL clip_values(const StepState* state, float* grads, u64 len, const u32* table, float limit) {
    Gradient of = gradient(grads, len, table);
    float scale = state->loss_scale, most = limit * scale;
    for (u64 k = global_thread(); k < of.n; k += global_threads()) {
        float g = of.at[k];
        if (scale != 1.0f && !is_finite(g)) continue;
        of.at[k] = g > most ? most : g < -most ? -most : g;
    }
}

// The sum of squares that each block takes, in double precision: of gradients, or with parameters of their products.
KERNEL grad_squares(float* grads, const float* params, u64 len, const u32* table, double* sums) {
    Gradient of = gradient(grads, len, table);
    const float* sizes = params ? params + (of.at - grads) : nullptr;
    double sum = 0.0;
    for (u64 k = global_thread(); k < of.n; k += global_threads()) {
        double g = static_cast<double>(of.at[k]);
        if (sizes) g *= sizes[k];
        sum += g * g;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// The norms of gradients without the loss scale, and the factor that brings each, or all together, down to the limit. One
// block; the sums are added in their order.
KERNEL grad_norms(const StepState* state, const double* sums, u32 blocks, u32 parts, float* norms, float* factors,
                  float limit, u32 global) {
    double unscale = 1.0 / static_cast<double>(state->loss_scale);
    for (u32 part = threadIdx.x; part < parts; part += blockDim.x) {
        double sum = 0.0;
        for (u32 k = 0; k < blocks; ++k) sum += sums[static_cast<u64>(part) * blocks + k];
        norms[part] = static_cast<float>(sqrt(sum) * unscale);
    }
    __syncthreads();
    double all = 0.0;
    for (u32 part = 0; global && part < parts; ++part) all += static_cast<double>(norms[part]) * norms[part];
    for (u32 part = threadIdx.x; part < parts; part += blockDim.x) {
        float norm = global ? static_cast<float>(sqrt(all)) : norms[part];
        factors[part] = norm > limit ? limit / norm : 1.0f;
    }
}

// Shortens gradients by their factors; a factor of 1 changes no bit.
KERNEL clip_norms(float* grads, u64 len, const u32* table, const float* factors) {
    Gradient of = gradient(grads, len, table);
    float factor = factors[blockIdx.y];
    if (factor == 1.0f) return;
    for (u64 k = global_thread(); k < of.n; k += global_threads()) of.at[k] *= factor;
}

// Sharpness-aware minimization. The factor that makes of gradients, with their loss scale, what is added to parameters, so that
// all together move by rho. In half precision a norm that is not finite is an overflow. One thread.
KERNEL ascent_factor(StepState* state, const float* norms, u32 parts, float* factor, float rho, float epsilon, u32 scaled) {
    double all = 0.0;
    for (u32 part = 0; part < parts; ++part) all += static_cast<double>(norms[part]) * norms[part];
    float norm = static_cast<float>(sqrt(all));
    if (scaled && !is_finite(norm)) state->overflow = 1u;
    factor[0] = rho / (norm + epsilon) / state->loss_scale;
}

// Moves the parameters at the places of their gradients, in the adaptive form by their squares too.
KERNEL ascend(const StepState* state, float* params, const float* grads, u64 len, const u32* table, const float* factor,
              u32 adaptive) {
    if (state->halted || state->overflow) return;
    Gradient of = gradient(params, len, table);
    const float* by = grads + (of.at - params);
    float share = factor[0];
    for (u64 k = global_thread(); k < of.n; k += global_threads()) {
        float p = of.at[k];
        of.at[k] = p + (adaptive ? p * p * by[k] : by[k]) * share;
    }
}

// Half precision only, before a step: notes whether a gradient is not finite.
KERNEL find_overflow(StepState* state, const float* grads, u64 n, u32 vector) {
    u64 wide = vector == 4 ? n / 4 * 4 : 0;
    bool finite = true;
    for (u64 k = global_thread() * 4; k < wide; k += global_threads() * 4) {
        float g[4];
        load<4>(grads + k, g);
#pragma unroll
        for (int i = 0; i < 4; ++i) finite = finite && is_finite(g[i]);
    }
    for (u64 k = wide + global_thread(); k < n; k += global_threads()) finite = finite && is_finite(grads[k]);
    if (!finite) atomicExch(&state->overflow, 1u);
}

// Half precision only, after a step: halves the loss scale if the gradients overflowed, and doubles it after 2000 steps
// without that, as PyTorch's GradScaler does; it stays a normal number with a normal inverse. One thread.
KERNEL update_loss_scale(StepState* state) {
    bool overflow = state->overflow;
    state->overflow = 0;
    if (state->halted) return;
    state->good_steps = overflow ? 0 : state->good_steps + 1;
    if (overflow && state->loss_scale > 1e-30f) state->loss_scale *= 0.5f;
    if (state->good_steps == 2000) {
        state->good_steps = 0;
        if (state->loss_scale < 1e30f) state->loss_scale *= 2.0f;
    }
}

// running = momentum * running + share * sums. The forward pass is good even where gradients overflow.
KERNEL ema_step(const StepState* state, const float* sums, float* running, u32 n, float momentum, float share) {
    if (state->halted) return;
    for (u64 k = global_thread(); k < n; k += global_threads()) running[k] = momentum * running[k] + share * sums[k];
}

// Adds metrics (loss, correct) to the meter (loss, what rounding took from it, correct, steps), until a loss is not
// finite; that one halts the steps. One thread, so doubles cost nothing, and the sum has the bits of the processor's.
KERNEL meter(StepState* state, const float* metrics, float* meter) {
    if (is_finite(meter[0])) {
        double total = static_cast<double>(meter[0]) + meter[1] + metrics[0];
        float high = static_cast<float>(total);
        bool finite = is_finite(high);
        meter[0] = high;
        meter[1] = finite ? static_cast<float>(total - high) : 0.0f;
        if (finite) {
            meter[2] += metrics[1];
            meter[3] += 1.0f;
        }
    }
    state->halted = !is_finite(meter[0]);
}
