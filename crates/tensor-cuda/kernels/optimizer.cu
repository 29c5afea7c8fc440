// Steps of optimizers and running averages over flat arenas in f32, the meter of the losses, and the loss scale of
// half precision.
//
// Layout: parameters, gradients and state are runs of n numbers. Gradients of half precision carry the loss scale.
// Geometry: any number of blocks of 256 threads, which take 4 numbers at a time where `vector` is 4; what says so runs
// on one thread. Clipping has blocks for each gradient.
// Writes: parameters, state and running averages in place. Nothing moves once the step's state is halted, and no parameter
// moves in a step whose gradients overflowed.
#include "towers.cuh"

__device__ inline bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// What an optimizer steps over: n parameters, their gradients, and up to two numbers that it remembers of each.
struct Arenas {
    float* params;
    const float* grads;
    float* state[2];
};

// Calls rule(p, g, s) with the numbers from `from` to `to`, V at a time; s are the STATES numbers remembered, if any.
template <int V, int STATES, class Rule>
__device__ inline void for_run(const Arenas& all, u64 from, u64 to, Rule rule) {
    for (u64 k = from + global_thread() * V; k < to; k += global_threads() * V) {
        float p[V], g[V], s[2][V] = {};
        load<V>(all.params + k, p);
        load<V>(all.grads + k, g);
#pragma unroll
        for (int j = 0; j < STATES; ++j) load<V>(all.state[j] + k, s[j]);
#pragma unroll
        for (int i = 0; i < V; ++i) rule(p[i], g[i], s[0][i], s[1][i]);
        store<V>(all.params + k, p);
#pragma unroll
        for (int j = 0; j < STATES; ++j) store<V>(all.state[j] + k, s[j]);
    }
}

template <int STATES, class Rule>
__device__ inline void for_all(const Arenas& all, u64 n, u32 vector, Rule rule) {
    u64 wide = vector == 4 ? n / 4 * 4 : 0;
    for_run<4, STATES>(all, 0, wide, rule);
    for_run<1, STATES>(all, wide, n, rule);
}

// All conventions of SGD as one formula: v = m v + into g, then p += out (of_v v + of_g g). Weight decay is g +=
// penalty p (coupled), or p *= 1 - lr shrink (decoupled). With a momentum of 0 the velocity is not touched.
KERNEL sgd_step(const StepState* state, float* params, const float* grads, float* velocity, u64 n, float multiplier,
                float momentum, u32 keras, u32 nesterov, float penalty, float shrink, u32 vector) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    if (momentum == 0.0f) {
        for_all<0>({params, grads}, n, vector, [=](float& p, float g, float&, float&) {
            g *= unscale;
            p = p * keep - lr * (g + penalty * p);
        });
        return;
    }
    // The learning rate enters the velocity (Keras) or leaves with it (PyTorch).
    float into = keras ? -lr : 1.0f, out = keras ? 1.0f : -lr;
    // Nesterov looks one step ahead: m v + into g in place of v.
    float of_v = nesterov ? momentum : 1.0f, of_g = nesterov ? into : 0.0f;
    for_all<1>({params, grads, {velocity}}, n, vector, [=](float& p, float g, float& v, float&) {
        g = g * unscale + penalty * p;
        v = momentum * v + into * g;
        p = p * keep + out * (of_v * v + of_g * g);
    });
}

// a = rho a + (1 - rho) g^2, then p -= lr g / (sqrt(a + inside) + outside). Weight decay as in sgd_step.
KERNEL rmsprop_step(const StepState* state, float* params, const float* grads, float* mean_square, u64 n, float multiplier,
                    float rho, float inside, float outside, float penalty, float shrink, u32 vector) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    for_all<1>({params, grads, {mean_square}}, n, vector, [=](float& p, float g, float& a, float&) {
        g = g * unscale + penalty * p;
        a = rho * a + (1.0f - rho) * g * g;
        p = p * keep - lr * g / (sqrtf(a + inside) + outside);
    });
}

// m = beta1 m + take1 g, a = beta2 a + take2 g^2, then p -= rate m / (sqrt(a) + epsilon): in the t-th step the means fall
// short by c = 1 - beta^t, which the rate makes up for, and epsilon where it stands for PyTorch's (`hat` is 0). The logarithms
// of beta make c exact where beta^t is nearly 1. Weight decay as in sgd_step.
KERNEL adam_step(const StepState* state, float* params, const float* grads, float* mean, float* mean_square,
                 const float* steps, u64 n, float multiplier, float beta1, float take1, float log_beta1, float beta2,
                 float take2, float log_beta2, float epsilon, u32 hat, float penalty, float shrink, u32 vector) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    float t = steps[0] + 1.0f, c1 = -expm1f(t * log_beta1), root = sqrtf(-expm1f(t * log_beta2));
    float rate = lr * root / c1, outside = hat ? epsilon : epsilon * root;
    for_all<2>({params, grads, {mean, mean_square}}, n, vector, [=](float& p, float g, float& m, float& a) {
        g = g * unscale + penalty * p;
        m = beta1 * m + take1 * g;
        a = beta2 * a + take2 * g * g;
        p = p * keep - rate * m / (sqrtf(a) + outside);
    });
}

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

// The sum of squares that each block takes, in double precision.
KERNEL grad_squares(float* grads, u64 len, const u32* table, double* sums) {
    Gradient of = gradient(grads, len, table);
    double sum = 0.0;
    for (u64 k = global_thread(); k < of.n; k += global_threads()) {
        double g = static_cast<double>(of.at[k]);
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
